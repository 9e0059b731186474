use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use twopass_core::chat::{
    Delivery, Diagnostic, DiagnosticKind, Event, PassReport, Reply, Request, StopReason, ToolSpec,
    Usage,
};
use twopass_core::chat_template::Prompt;
use twopass_core::control::{PassEnd, PassRequest};
use twopass_core::schema::{close_objects, inline_refs};
use twopass_wire::completions::{self, Completion, CompletionRequest, Constraint, StreamDecoder};
use twopass_wire::sse::SseEvent;

use super::remote::Remote;
use crate::backend::TurnItem;
use crate::backend::exchange::{Call, Decoder, Exchange, Framing};
use crate::backend::text_turn::{PassStep, TextEngine};
use crate::http::Deadline;
use crate::{ErrorKind, ProviderError};

/// One turn's side of a remote engine.
///
/// `ids` are the tokens that the engine has seen: the prompt, then those of `said`. What the
/// machine wants the next pass to go on from begins with `said`; only the rest is tokenised.
pub(super) struct Side {
    remote: Arc<Remote>,
    request: Request,
    total: Deadline,
    ids: Vec<u32>,
    said: String,
    open: Option<OpenPass>,
    /// A pass that was read to its end.
    ended: Option<OpenPass>,
    /// Text of the turn that is ours: the frame of a forced call.
    ours: Option<&'static str>,
    n_passes: u32,
}

struct OpenPass {
    exchange: Box<Exchange>,
    whole: Whole,
    name: &'static str,
    /// True if the engine binds the output to a call.
    is_call: bool,
    max_tokens: Option<u32>,
    started: Instant,
    notes: Vec<Diagnostic>,
}

impl OpenPass {
    fn stop_reason(&self) -> StopReason {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.stop_reason.clone()
    }
}

/// The frame of a forced call, as Hermes models write it.
const CALL_HEAD: &str = "<tool_call>\n";
const CALL_TAIL: &str = "\n</tool_call>";

/// What binds the answer to one call, for a choice that demands one (row M5).
fn forced_call(request: &Request) -> Option<Constraint> {
    let choice = &request.tool_choice;
    if !choice.forces_call() {
        return None;
    }
    let allowed = |tool: &&ToolSpec| choice.only_tool().is_none_or(|name| name == tool.name);
    let calls: Vec<Value> = request
        .tools
        .iter()
        .filter(allowed)
        .map(|tool| {
            json!({
                "type": "object",
                "properties": {
                    "name": {"const": tool.name},
                    "arguments": close_objects(&inline_refs(&tool.parameters)),
                },
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        })
        .collect();
    let schema = match <[Value; 1]>::try_from(calls) {
        Ok([only]) => only,
        Err(calls) => json!({ "anyOf": calls }),
    };
    Some(Constraint::JsonSchema(schema))
}

/// The completion, once the answer is complete.
type Whole = Arc<Mutex<Completion>>;

impl Side {
    /// A turn over this prompt. Its time begins to run.
    pub(super) async fn new(
        remote: Arc<Remote>,
        request: Request,
        prompt: &Prompt,
    ) -> Result<Self, ProviderError> {
        let total = remote.endpoint.total_deadline();
        let ids = remote.tokenize_prompt(prompt, total).await?;
        Ok(Self {
            remote,
            request,
            total,
            ids,
            said: String::new(),
            open: None,
            ended: None,
            ours: None,
            n_passes: 0,
        })
    }

    /// Begins a pass.
    async fn start(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        let fresh = pass.continuation.strip_prefix(&self.said).ok_or_else(|| {
            ProviderError::new(
                ErrorKind::Internal,
                "a pass does not go on from the last one",
            )
        })?;
        let fresh = self.remote.tokenize(fresh, true, self.total).await?;
        self.ids.extend(fresh);
        self.said = pass.continuation;
        let is_answer = pass.name == "answer";
        let call = forced_call(&self.request).filter(|_| is_answer);
        let is_call = call.is_some();
        let form = || Some(close_objects(&inline_refs(&self.request.answer_schema()?)));
        let form = form().filter(|_| is_answer).map(Constraint::JsonSchema);
        if is_call {
            let head = self.remote.tokenize(CALL_HEAD, true, self.total).await?;
            self.ids.extend(head);
            self.said.push_str(CALL_HEAD);
            self.ours = Some(CALL_HEAD);
        }
        let constraint = call.or(form);
        let request = CompletionRequest {
            max_tokens: pass.max_tokens,
            sampling: self.request.sampling,
            // A stop string inside the JSON would break it.
            stop: match constraint {
                Some(_) => Vec::new(),
                None => pass.stop,
            },
            constraint,
            stream: self.request.delivery == Delivery::Stream,
            ..CompletionRequest::new(
                self.remote.model_name.clone(),
                completions::Prompt::Ids(self.ids.clone()),
            )
        };
        let (body, notes) = self.remote.encode(&request);
        let body = Bytes::from(body);
        let whole = Whole::default();
        let session = self.remote.endpoint.session(&self.request);
        let call = || Call {
            uri: self.remote.turn_uri.clone(),
            session,
            body: body.clone(),
            framing: Framing::Sse,
            delivery: self.request.delivery,
            decoder: Box::new(PassDecoder {
                inner: StreamDecoder::new(),
                whole: Arc::clone(&whole),
            }),
        };
        let started = Instant::now();
        let exchange = self.remote.endpoint.open(call, self.total).await?;
        self.n_passes += 1;
        self.open = Some(OpenPass {
            exchange,
            whole,
            name: pass.name,
            is_call,
            max_tokens: pass.max_tokens,
            started,
            notes,
        });
        Ok(())
    }

    /// Takes a finished pass into account.
    async fn end(&mut self, pass: OpenPass) -> Result<PassStep, ProviderError> {
        let completion = {
            let mut whole = pass.whole.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *whole)
        };
        let mut notes: Vec<String> = pass.notes.into_iter().map(|note| note.message).collect();
        if pass.name == "thinking" {
            notes.extend(self.keep(&completion).await?);
        }
        let usage = &completion.usage;
        let report = PassReport {
            name: if self.n_passes == 1 && pass.name == "answer" {
                "single"
            } else {
                pass.name
            },
            means: "completions_exact",
            max_tokens: pass.max_tokens,
            prefill_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cached_tokens: usage.cached_tokens,
            decode_tokens: usage.response_tokens,
            duration_ms: pass.started.elapsed().as_secs_f64() * 1000.0,
            stop_reason: completion.stop_reason.clone(),
        };
        // The prompt counts once in a turn, however often it is sent.
        let is_first = self.n_passes == 1;
        let end = PassEnd {
            stop_reason: completion.stop_reason,
            usage: Usage {
                prompt_tokens: if is_first { usage.prompt_tokens } else { 0 },
                cached_tokens: if is_first { usage.cached_tokens } else { 0 },
                ..completion.usage
            },
            reports: vec![report],
            ..PassEnd::default()
        };
        let note = (!notes.is_empty())
            .then(|| Diagnostic::new(DiagnosticKind::Degraded, notes.join("; ")));
        Ok(PassStep::End(Box::new(end), note.into_iter().collect()))
    }

    /// Takes over the very tokens of a thought, without those of a matched closing tag or of
    /// the end of the turn. Returns what is to be said if that is impossible.
    async fn keep(&mut self, completion: &Completion) -> Result<Option<String>, ProviderError> {
        let text = completion.text.as_str();
        let given = &completion.token_ids;
        // Most likely first: all of them; all but a last one; all but the tag's.
        let mut candidates = vec![given.len(), given.len().saturating_sub(1)];
        if let StopReason::StopSequence(tag) = &completion.stop_reason {
            let n_tag = self.remote.tokenize(tag, true, self.total).await?.len();
            candidates = (1..=n_tag.max(1) + 1)
                .map(|n| given.len().saturating_sub(n))
                .chain([given.len()])
                .collect();
        }
        let mut exact = None;
        for n in candidates {
            if !given.is_empty() && self.remote.detokenize(&given[..n], self.total).await? == text {
                exact = Some(n);
                break;
            }
        }
        let (ids, note) = match exact {
            Some(n) => (given[..n].to_vec(), None),
            None => {
                let ids = self.remote.tokenize(text, true, self.total).await?;
                let note = "the engine's token ids do not spell its text, so the thought was \
                            tokenised again";
                (ids, (!text.is_empty()).then(|| note.to_owned()))
            }
        };
        self.ids.extend(ids);
        self.said.push_str(text);
        Ok(note)
    }
}

impl TextEngine for Side {
    async fn open(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        self.start(pass).await
    }

    async fn next(&mut self) -> Result<PassStep, ProviderError> {
        loop {
            if let Some(text) = self.ours.take() {
                return Ok(PassStep::text(text));
            }
            if let Some(pass) = self.ended.take() {
                return self.end(pass).await;
            }
            let item = match &mut self.open {
                Some(pass) => pass.exchange.next().await,
                None => None,
            };
            match item.transpose()? {
                Some(TurnItem::Event(Event::TextDelta(text))) => return Ok(PassStep::text(text)),
                Some(TurnItem::Event(_)) => {}
                Some(TurnItem::Done(_)) => {
                    self.ended = self.open.take();
                    let whole = self.ended.as_ref().filter(|pass| pass.is_call);
                    // A call that the cap cut stays open.
                    let is_whole = |pass: &OpenPass| pass.stop_reason() == StopReason::EndTurn;
                    self.ours = whole.filter(|pass| is_whole(pass)).map(|_| CALL_TAIL);
                }
                None => {
                    return Err(ProviderError::new(
                        ErrorKind::StreamTruncated,
                        "the engine's stream ended without its end",
                    ));
                }
            }
        }
    }
}

/// Reads a completion; its text becomes text events, the rest is kept in `whole`.
struct PassDecoder {
    inner: StreamDecoder,
    whole: Whole,
}

impl PassDecoder {
    fn give(pieces: Vec<completions::CompletionPiece>, out: &mut Vec<Event>) {
        let texts = pieces.into_iter().map(|piece| piece.text);
        out.extend(texts.filter(|text| !text.is_empty()).map(Event::TextDelta));
    }
}

impl Decoder for PassDecoder {
    fn push(&mut self, event: &SseEvent, out: &mut Vec<Event>) -> Result<(), ProviderError> {
        let mut pieces = Vec::new();
        let read = self.inner.push(event, &mut pieces);
        Self::give(pieces, out);
        Ok(read?)
    }

    fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), ProviderError> {
        let mut pieces = Vec::new();
        let read = self.inner.push_whole(body, &mut pieces);
        Self::give(pieces, out);
        Ok(read?)
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn finish(&mut self, _: &mut Vec<Event>) -> Result<Reply, ProviderError> {
        let whole = self.inner.finish()?;
        *self.whole.lock().unwrap_or_else(PoisonError::into_inner) = whole;
        Ok(Reply::default())
    }
}
