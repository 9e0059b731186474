use serde_json::{Value, json};
use twopass_core::chat::{BadRequest, Diagnostic};

use super::{Completion, CompletionFacts, CompletionPiece, CompletionRequest, Constraint, Prompt};
use crate::body::Body;
use crate::error::ErrorBody;
use crate::facts::RepeatPenaltyField;
use crate::generate::{read_sampling, read_stop};
use crate::json::{Fields, Lenient, decimal, string};
use crate::logprobs;
use crate::openai_chat::{finish_reason, read_utf8, usage_body};
use crate::request::ReplyMeta;
use crate::sse::encode_event;

/// Writes a request to `/v1/completions`: the body, and what was not sent.
#[must_use]
pub fn encode_request(
    request: &CompletionRequest,
    facts: &CompletionFacts,
) -> (String, Vec<Diagnostic>) {
    let mut body = Body::new(&request.extra);
    body.text("model", &request.model);
    body.value("prompt", &prompt_json(&request.prompt));
    body.maybe("max_tokens", request.max_tokens.map(Value::from));
    let s = &request.sampling;
    body.maybe("temperature", s.temperature.map(decimal));
    body.maybe("top_p", s.top_p.map(decimal));
    body.if_taken(facts.top_k_min_p, "top_k", s.top_k.map(Value::from));
    body.if_taken(facts.top_k_min_p, "min_p", s.min_p.map(decimal));
    body.maybe("seed", s.seed.map(Value::from));
    body.maybe("presence_penalty", s.presence_penalty.map(decimal));
    body.maybe("frequency_penalty", s.frequency_penalty.map(decimal));
    let field = facts.repeat_penalty_field.map(RepeatPenaltyField::as_str);
    body.if_taken(
        field.is_some(),
        field.unwrap_or("repeat_penalty"),
        s.repeat_penalty.map(decimal),
    );
    body.maybe("logprobs", request.logprobs.map(Value::from));
    body.maybe(
        "stop",
        (!request.stop.is_empty()).then(|| request.stop.clone().into()),
    );
    let constraint = request
        .constraint
        .as_ref()
        .map(|constraint| match constraint {
            Constraint::JsonSchema(schema) => json!({"json": schema}),
            Constraint::Grammar(grammar) => json!({"grammar": grammar}),
            Constraint::Regex(regex) => json!({"regex": regex}),
        });
    body.if_taken(facts.structured_outputs, "structured_outputs", constraint);
    if facts.token_ids {
        body.value("return_token_ids", &true.into());
        body.value("add_special_tokens", &false.into());
    }
    if request.stream {
        body.value("stream", &true.into());
        if facts.stream_options {
            body.value("stream_options", &json!({"include_usage": true}));
        }
    }
    body.finish()
}

/// Writes a request to llama.cpp's `/completion`: the body, and what was not sent. The
/// prompt stays in the cache for the next pass, and ids come back.
#[must_use]
pub fn encode_native_request(request: &CompletionRequest) -> (String, Vec<Diagnostic>) {
    let mut body = Body::new(&request.extra);
    body.value("prompt", &prompt_json(&request.prompt));
    body.maybe("n_predict", request.max_tokens.map(Value::from));
    let s = &request.sampling;
    body.maybe("temperature", s.temperature.map(decimal));
    body.maybe("top_p", s.top_p.map(decimal));
    body.maybe("top_k", s.top_k.map(Value::from));
    body.maybe("min_p", s.min_p.map(decimal));
    body.maybe("seed", s.seed.map(Value::from));
    body.maybe("presence_penalty", s.presence_penalty.map(decimal));
    body.maybe("frequency_penalty", s.frequency_penalty.map(decimal));
    body.maybe("repeat_penalty", s.repeat_penalty.map(decimal));
    body.maybe(
        "stop",
        (!request.stop.is_empty()).then(|| request.stop.clone().into()),
    );
    match &request.constraint {
        None => {}
        Some(Constraint::JsonSchema(schema)) => body.value("json_schema", schema),
        Some(Constraint::Grammar(grammar)) => body.text("grammar", grammar),
        Some(Constraint::Regex(regex)) => {
            body.if_taken(false, "regex", Some(regex.clone().into()));
        }
    }
    body.value("cache_prompt", &true.into());
    body.value("return_tokens", &true.into());
    body.value("stream", &request.stream.into());
    body.finish()
}

fn prompt_json(prompt: &Prompt) -> Value {
    match prompt {
        Prompt::Ids(ids) => ids.clone().into(),
        Prompt::Text(text) => text.clone().into(),
    }
}

const KNOWN: &[&str] = &[
    "model",
    "prompt",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "logprobs",
    "stop",
    "structured_outputs",
    "return_token_ids",
    "add_special_tokens",
    "stream",
    "stream_options",
];

/// Reads a request to `/v1/completions`: the server side. One prompt is taken: a text, an
/// array with one text, or token ids.
///
/// # Errors
/// Names the parameter that is wrong, what is allowed and what was given.
pub fn decode_request(body: &[u8]) -> Result<CompletionRequest, BadRequest> {
    let text = read_utf8(body)?;
    let fields = Fields::read("body", text)?;
    let prompt = read_prompt(&fields)?;
    let mut request = CompletionRequest::new(fields.text("model")?.unwrap_or_default(), prompt);
    request.max_tokens = fields.cap("max_tokens", 1)?;
    request.sampling = read_sampling(&fields)?;
    if request.sampling.repeat_penalty.is_none() {
        request.sampling.repeat_penalty = fields.float("repetition_penalty")?;
    }
    request.logprobs = logprobs::read_number(&fields)?;
    request.stop = read_stop(&fields)?;
    if let Some(bound) = fields.raw("structured_outputs").and_then(Lenient::read) {
        request.constraint = bound
            .value("json")
            .map(Constraint::JsonSchema)
            .or_else(|| bound.text("grammar").map(Constraint::Grammar))
            .or_else(|| bound.text("regex").map(Constraint::Regex));
    }
    request.stream = fields.boolean("stream")?.unwrap_or(false);
    request.extra = fields.extra(KNOWN);
    Ok(request)
}

/// True if the body of a request asks for usage at the end of its stream.
#[must_use]
pub fn wants_usage(body: &[u8]) -> bool {
    let fields = std::str::from_utf8(body).ok().and_then(Lenient::read);
    let options = fields.and_then(|fields| fields.object("stream_options"));
    let wants = options.and_then(|options| options.flag("include_usage"));
    wants.unwrap_or(false)
}

fn read_prompt(fields: &Fields<'_>) -> Result<Prompt, BadRequest> {
    const ALLOWED: &str = "a text or an array of token ids";
    let raw = fields
        .raw("prompt")
        .ok_or_else(|| fields.fault("prompt", ALLOWED))?;
    if let Some(text) = string(raw) {
        return Ok(Prompt::Text(text));
    }
    if let Ok(ids) = serde_json::from_str::<Vec<u32>>(raw)
        && !ids.is_empty()
    {
        return Ok(Prompt::Ids(ids));
    }
    if let Ok([ids]) = serde_json::from_str::<[Vec<u32>; 1]>(raw)
        && !ids.is_empty()
    {
        return Ok(Prompt::Ids(ids));
    }
    match serde_json::from_str::<[String; 1]>(raw) {
        Ok([text]) => Ok(Prompt::Text(text)),
        Err(_) => Err(fields.fault("prompt", ALLOWED)),
    }
}

/// Writes a whole answer of `/v1/completions`: the server side.
#[must_use]
pub fn encode_reply(completion: &Completion, meta: &ReplyMeta) -> String {
    let logprobs = logprobs::completion_json(&completion.logprobs, 0);
    let choice = choice(
        &completion.text,
        &completion.token_ids,
        Some(completion),
        logprobs,
    );
    json!({
        "id": meta.id,
        "object": "text_completion",
        "created": meta.created_s,
        "model": meta.model,
        "choices": [choice],
        "usage": usage_body(&completion.usage),
    })
    .to_string()
}

fn choice(text: &str, token_ids: &[u32], end: Option<&Completion>, logprobs: Value) -> Value {
    let stop_reason = end.and_then(|end| match &end.stop_reason {
        twopass_core::chat::StopReason::StopSequence(stop) => Some(stop.clone()),
        _ => None,
    });
    json!({
        "index": 0,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": end.map(|end| finish_reason(&end.stop_reason)),
        "stop_reason": stop_reason,
        "token_ids": if token_ids.is_empty() { Value::Null } else { token_ids.into() },
    })
}

/// Writes a streamed answer of `/v1/completions`: the server side.
#[derive(Debug)]
pub struct StreamEncoder {
    meta: ReplyMeta,
    include_usage: bool,
    /// Characters of the tokens whose probabilities were told.
    n_characters: usize,
}

impl StreamEncoder {
    /// An encoder at the start of a stream. `include_usage`: the client asked for usage.
    #[must_use]
    pub fn new(meta: ReplyMeta, include_usage: bool) -> Self {
        Self {
            meta,
            include_usage,
            n_characters: 0,
        }
    }

    /// Appends a piece.
    pub fn encode(&mut self, piece: &CompletionPiece, out: &mut String) {
        let logprobs = logprobs::completion_json(&piece.logprobs, self.n_characters);
        let tokens = piece.logprobs.iter();
        self.n_characters += tokens
            .map(|t| logprobs::n_characters(&t.bytes))
            .sum::<usize>();
        let choice = choice(&piece.text, &piece.token_ids, None, logprobs);
        self.chunk(&json!([choice]), None, out);
    }

    /// Appends the end: finish reason, usage if it was asked for, end marker.
    pub fn encode_done(&mut self, completion: &Completion, out: &mut String) {
        self.chunk(
            &json!([choice("", &[], Some(completion), Value::Null)]),
            None,
            out,
        );
        if self.include_usage {
            self.chunk(&json!([]), Some(json!(usage_body(&completion.usage))), out);
        }
        encode_event(None, "[DONE]", out);
    }

    /// Appends an error as the last event of a stream that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        encode_event(None, &error.to_openai_json(), out);
        encode_event(None, "[DONE]", out);
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>, out: &mut String) {
        let mut chunk = json!({
            "id": self.meta.id,
            "object": "text_completion",
            "created": self.meta.created_s,
            "model": self.meta.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        encode_event(None, &chunk.to_string(), out);
    }
}
