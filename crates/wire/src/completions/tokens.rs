use serde_json::{Value, json};
use twopass_core::chat::BadRequest;

use super::read::ids;
use crate::facts::WireFacts;
use crate::fault::Fault;
use crate::json::Lenient;
use crate::openai_chat::encode_request;
use crate::request::WireRequest;

/// A prompt as token ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tokenized {
    /// The ids.
    pub ids: Vec<u32>,
    /// The most tokens of prompt and answer together, if the engine says so.
    pub context_tokens: Option<u64>,
}

/// Writes a request to tokenize text, in a body that vLLM's `/tokenize` (`prompt`) and
/// llama.cpp's (`content`) both take. `special`: markers in the text become control tokens;
/// no token is added in front.
#[must_use]
pub fn encode_tokenize(model: &str, text: &str, special: bool) -> String {
    json!({
        "model": model,
        "prompt": text,
        "content": text,
        "add_special_tokens": false,
        "add_special": false,
        "parse_special": special,
    })
    .to_string()
}

/// Writes a request to render messages through the engine's chat template and tokenize them:
/// vLLM's `/tokenize`. The assistant boundary is added, or the last message continued.
///
/// # Errors
/// The request holds content that this wire cannot carry.
pub fn encode_tokenize_messages(
    request: &WireRequest,
    facts: &WireFacts,
) -> Result<String, BadRequest> {
    let mut body = template_body(request, facts)?;
    if let Value::Object(fields) = &mut body {
        fields.insert("model".to_owned(), request.model.clone().into());
        let goes_on = request.continue_final;
        fields.insert("add_generation_prompt".to_owned(), (!goes_on).into());
        if goes_on {
            fields.insert("continue_final_message".to_owned(), true.into());
        }
    }
    Ok(body.to_string())
}

/// Writes a request to render messages through the engine's chat template: llama.cpp's
/// `/apply-template`. A last assistant message is always continued there.
///
/// # Errors
/// The request holds content that this wire cannot carry.
pub fn encode_apply_template(
    request: &WireRequest,
    facts: &WireFacts,
) -> Result<String, BadRequest> {
    template_body(request, facts).map(|body| body.to_string())
}

/// The fields that a template sees, written as Chat Completions writes them.
fn template_body(request: &WireRequest, facts: &WireFacts) -> Result<Value, BadRequest> {
    let whole = encode_request(request, facts)?.body;
    let fields = Lenient::read(&whole).unwrap_or_default();
    let kept = ["messages", "tools", "chat_template_kwargs"];
    Ok(kept
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), fields.value(name)?)))
        .collect::<serde_json::Map<_, _>>()
        .into())
}

/// Reads token ids: vLLM's `/tokenize` and `/v1/chat/completions/render`, llama.cpp's
/// `/tokenize` with ids or with pieces.
///
/// # Errors
/// The body is not JSON, is an error, or holds no ids.
pub fn decode_tokens(body: &[u8]) -> Result<Tokenized, Fault> {
    let fields = read(body)?;
    let name = ["tokens", "token_ids"]
        .into_iter()
        .find(|name| fields.raw(name).is_some())
        .ok_or_else(|| Fault::invalid("the answer holds no token ids"))?;
    let mut found = ids(&fields, name);
    if found.is_empty() {
        found = fields
            .list(name)
            .into_iter()
            .filter_map(|item| u32::try_from(Lenient::read(item)?.count("id")?).ok())
            .collect();
    }
    Ok(Tokenized {
        ids: found,
        context_tokens: fields.count("max_model_len"),
    })
}

/// Writes a request to turn ids into text: `/detokenize` of both engines.
#[must_use]
pub fn encode_detokenize(model: &str, ids: &[u32]) -> String {
    json!({"model": model, "tokens": ids}).to_string()
}

/// Reads a text: llama.cpp's `/apply-template` and `/detokenize`, vLLM's `/detokenize`.
///
/// # Errors
/// The body is not JSON, is an error, or holds no text.
pub fn decode_prompt(body: &[u8]) -> Result<String, Fault> {
    let fields = read(body)?;
    ["prompt", "content"]
        .into_iter()
        .find_map(|name| fields.raw(name).and_then(crate::json::string))
        .ok_or_else(|| Fault::invalid("the answer holds no text"))
}

/// Reads the size of the context from llama.cpp's `/props`; `None` if it is not told.
///
/// # Errors
/// The body is not JSON or is an error.
pub fn decode_context_tokens(body: &[u8]) -> Result<Option<u64>, Fault> {
    let fields = read(body)?;
    Ok(fields
        .object("default_generation_settings")
        .and_then(|settings| settings.count("n_ctx"))
        .or_else(|| fields.count("n_ctx")))
}

fn read(body: &[u8]) -> Result<Lenient<'_>, Fault> {
    let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
    let fields = Lenient::read(text).ok_or_else(|| Fault::not_json(body))?;
    if fields.raw("error").is_some() {
        return Err(Fault::from_json(text)
            .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
    }
    Ok(fields)
}
