//! The backend of a case: the real text path over an engine that says what the script says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use twopass_core::chat::{PassReport, Request, Usage};
use twopass_core::chat_template::Segment;
use twopass_core::control::{Means, PassEnd, PassRequest, TextModel, TurnSettings, plan_turn};
use twopass_provider::backend::{PassStep, TextEngine, run_raw, run_text_turn};
use twopass_provider::config::{
    BackendKind, OnError, ProviderConfig, ReasoningReplay, TwoPassMode,
};
use twopass_provider::prompt::{model_of_template, turn_settings};
use twopass_provider::{Backend, Provider, ProviderError, RawRequest, TurnStream};
use twopass_wire::fault::Fault;

use crate::case::end_of;

/// A template that writes tools, calls, results and the reasoning of the running loop.
const TEMPLATE: &str = include_str!("../../../../core/testdata/chat_template/qwen3.jinja");

/// What the engine was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    /// The prompt of each turn.
    pub(super) prompts: Vec<String>,
    /// The passes, in order.
    pub(super) passes: Vec<Value>,
    /// When the last turn was dropped before its end.
    cancelled: Option<Instant>,
}

/// An engine that answers call after call from a script, and `ok` after its end.
#[derive(Clone)]
pub(super) struct Engine(Arc<Inner>);

struct Inner {
    script: Vec<Value>,
    model: TextModel,
    settings: TurnSettings,
    log: Mutex<Log>,
}

impl Engine {
    pub(super) fn new(script: Vec<Value>) -> Result<Self, String> {
        let model = model_of_template(TEMPLATE).map_err(|error| error.to_string())?;
        let settings = turn_settings(&entry(MODEL_NAME)).map_err(|error| error.to_string())?;
        Ok(Self(Arc::new(Inner {
            script,
            model,
            settings: TurnSettings {
                means: Means::Continuation,
                ..settings
            },
            log: Mutex::default(),
        })))
    }

    /// A provider of this name over this engine.
    pub(super) fn provider(&self, name: &str) -> Provider {
        Provider::new(entry(name), Arc::new(self.clone()))
    }

    /// The engine's side of a turn over this prompt.
    fn side(&self, prompt: String) -> Side {
        let n_prompt = prompt.split_whitespace().count() as u64;
        self.0.log().prompts.push(prompt);
        Side {
            engine: Arc::clone(&self.0),
            n_prompt,
            open: None,
            is_over: false,
        }
    }

    pub(super) fn log(&self) -> Log {
        self.0.log().clone()
    }

    /// How long after `left` the turn was dropped, waiting for it up to `patience`.
    pub(super) async fn cancelled_since(
        &self,
        left: Instant,
        patience: Duration,
    ) -> Option<Duration> {
        while left.elapsed() < patience {
            if let Some(cancelled) = self.0.log().cancelled {
                return Some(cancelled.saturating_duration_since(left));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }
}

const MODEL_NAME: &str = "scripted";

/// An entry whose turns have one pass unless a request asks for two, and whose reasoning goes
/// back within the running loop.
fn entry(name: &str) -> ProviderConfig {
    let mut entry = ProviderConfig::with_defaults(name, BackendKind::Completions, MODEL_NAME);
    entry.on_error = OnError::Raise;
    entry.reasoning_replay = Some(ReasoningReplay::KeepLast);
    entry.generation.two_pass = TwoPassMode::Off;
    entry
}

impl Inner {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Engine {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        async move {
            let planned = plan_turn(&request, &self.0.model, &self.0.settings, None)?;
            let segments = planned.prompt.segments.iter();
            let prompt: String = segments
                .map(|segment| match segment {
                    Segment::Markup(text) | Segment::Literal(text) => text.as_str(),
                })
                .collect();
            run_text_turn(planned, self.side(prompt)).await
        }
        .boxed()
    }

    fn complete(&self, request: RawRequest) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        let pass = request.pass();
        run_raw(pass, self.side(request.prompt)).boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// One turn.
struct Side {
    engine: Arc<Inner>,
    n_prompt: u64,
    open: Option<Pass>,
    is_over: bool,
}

struct Pass {
    entry: Value,
    request: PassRequest,
    pieces: VecDeque<String>,
    n_pieces: u64,
    began: bool,
}

impl TextEngine for Side {
    async fn open(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        let entry = {
            let mut log = self.engine.log();
            log.passes.push(json!({
                "max_tokens": pass.max_tokens, "stop": pass.stop, "continues_from": pass.continuation,
            }));
            let entry = self.engine.script.get(log.passes.len() - 1).cloned();
            entry.unwrap_or_else(|| json!({"text": "ok"}))
        };
        if let Some(fault) = fault_of(&entry, "fail") {
            return Err(fault);
        }
        let text = entry["text"].as_str().unwrap_or_default();
        let pieces: VecDeque<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        self.open = Some(Pass {
            n_pieces: pieces.len() as u64,
            pieces,
            entry,
            request: pass,
            began: false,
        });
        Ok(())
    }

    async fn next(&mut self) -> Result<PassStep, ProviderError> {
        let Some(pass) = &mut self.open else {
            return Ok(PassStep::End(Box::default(), Vec::new()));
        };
        let pause = |name: &str| pass.entry[name].as_u64().map(Duration::from_millis);
        let first = pause("first_token_delay_ms").filter(|_| !pass.began);
        if let Some(pause) = first.or(pause("delay_per_token_ms")) {
            tokio::time::sleep(pause).await;
        }
        pass.began = true;
        if let Some(piece) = pass.pieces.pop_front() {
            return Ok(PassStep::text(piece));
        }
        self.is_over = true;
        if let Some(fault) = fault_of(&pass.entry, "then_fail") {
            return Err(fault);
        }
        let end = pass_end(pass, self.n_prompt);
        Ok(PassStep::End(Box::new(end), Vec::new()))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.is_over {
            self.engine.log().cancelled = Some(Instant::now());
        }
    }
}

fn pass_end(pass: &Pass, n_prompt: u64) -> PassEnd {
    let usage = |key: &str| pass.entry["usage"][key].as_u64();
    let usage = Usage {
        prompt_tokens: usage("prompt_tokens").unwrap_or(n_prompt),
        response_tokens: usage("completion_tokens").unwrap_or(pass.n_pieces),
        ..Usage::default()
    };
    let stop_reason = end_of(&pass.entry).stop_reason;
    let report = PassReport {
        name: pass.request.name,
        means: "completions_exact",
        max_tokens: pass.request.max_tokens,
        prefill_tokens: usage.prompt_tokens,
        decode_tokens: usage.response_tokens,
        stop_reason: stop_reason.clone(),
        ..PassReport::default()
    };
    PassEnd {
        stop_reason,
        usage,
        reports: vec![report],
        ..PassEnd::default()
    }
}

/// The failure that an entry demands, read as that of a service is.
fn fault_of(entry: &Value, key: &str) -> Option<ProviderError> {
    let fail = entry.get(key)?;
    let status = fail["status"].as_u64().and_then(|s| u16::try_from(s).ok());
    let headers = fail["headers"].as_object().into_iter().flatten();
    let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let body = json!({"error": {"message": fail["message"], "code": fail["code"]}});
    let body = body.to_string();
    Some(Fault::from_response(status.unwrap_or(500), headers, body.as_bytes(), 0.0).into())
}
