//! The engine in this process.
//!
//! ```text
//! Request --plan_turn--> prompt + TwoPass --Send--> Engine --text--> TwoPass --Emit--> items
//! ```
//! The model is loaded at the first turn or by [`Backend::prepare`], once, on a thread that
//! may block.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::{OnceCell, Semaphore};
use twopass_core::chat::{Diagnostic, DiagnosticKind, PassReport, Request, TurnBudget};
use twopass_core::chat_template::Prompt;
use twopass_core::control::{PassEnd, PassRequest, TextModel, TurnSettings, plan_turn};
use twopass_engine::{
    Engine, EngineOptions, EngineStats, Error as EngineError, ErrorKind as EngineErrorKind,
    GenerateRequest, Generation, Grammar, ModelInfo, Outcome, Output,
};

use super::binding::{BoundPart, bind, bind_lazily, bound_part};
use super::text_turn::{PassStep, TextEngine, TextTurn, run_raw, unix_now};
use super::{Backend, RawRequest, TurnStream};
use crate::catalogue::Catalogue;
use crate::config::{BackendKind, CacheType, EngineConfig, ProviderConfig};
use crate::prompt::{TemplateFacts, turn_settings};
use crate::{ErrorKind, ProviderError};

/// What a model is made to say, for exact tests: request in, text out.
pub type Recital = dyn Fn(&Request) -> Option<String> + Send + Sync;

/// A model in this process.
pub struct Embedded {
    model: Arc<ModelSource>,
    /// As the entry names it; of a model that was given as a file nothing is known.
    model_name: Option<String>,
    engine: EngineConfig,
    settings: Arc<TurnSettings>,
    loaded: Arc<OnceCell<Arc<Loaded>>>,
    recital: Option<Box<Recital>>,
}

/// Where the model's file is.
enum ModelSource {
    File(PathBuf),
    /// Looked up when the model is loaded: until then it may be pulled.
    Catalogue(Box<(Catalogue, ProviderConfig)>),
}

struct Loaded {
    engine: Engine,
    model: TextModel,
}

impl Embedded {
    /// A backend over this model file. Reads nothing yet.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the entry names an unknown dialect.
    pub fn new(entry: &ProviderConfig, model_path: PathBuf) -> Result<Self, ProviderError> {
        Self::over(entry, ModelSource::File(model_path))
    }

    /// A backend over the model that the entry names. It need not be on this machine before
    /// the first turn.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`]: the catalogue knows no such model.
    /// Kind [`ErrorKind::Config`]: the entry names an unknown dialect.
    pub fn of_catalogue(
        entry: &ProviderConfig,
        catalogue: Catalogue,
    ) -> Result<Self, ProviderError> {
        catalogue.locate(&entry.model_name)?;
        Self::over(
            entry,
            ModelSource::Catalogue(Box::new((catalogue, entry.clone()))),
        )
    }

    fn over(entry: &ProviderConfig, model: ModelSource) -> Result<Self, ProviderError> {
        let options = engine_options(std::path::Path::new(""), &entry.engine);
        options.check().map_err(engine_error)?;
        let is_named = matches!(model, ModelSource::Catalogue(_));
        Ok(Self {
            model: Arc::new(model),
            model_name: is_named.then(|| entry.model_name.clone()),
            engine: entry.engine.clone(),
            settings: Arc::new(turn_settings(entry)?),
            loaded: Arc::default(),
            recital: None,
        })
    }

    /// The same backend with a model that draws given texts instead of its own, through the
    /// real scheduler, cache, rules and tokenizer. For exact tests.
    #[must_use]
    pub fn reciting(
        mut self,
        recital: impl Fn(&Request) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.recital = Some(Box::new(recital));
        self
    }

    async fn loaded(&self) -> Result<&Arc<Loaded>, ProviderError> {
        self.loaded
            .get_or_try_init(|| async {
                let path = match &*self.model {
                    ModelSource::File(path) => path.clone(),
                    ModelSource::Catalogue(named) => named.0.model_path(&named.1)?,
                };
                let mut options = engine_options(&path, &self.engine);
                if let (Some(name), ModelSource::Catalogue(named)) =
                    (&self.engine.draft_model, &*self.model)
                {
                    options.draft_model = Some(named.0.draft_path(name)?);
                }
                let load = tokio::task::spawn_blocking(move || Engine::load(options));
                let engine = load
                    .await
                    .map_err(|error| {
                        ProviderError::new(ErrorKind::Internal, "the model's loader ended")
                            .with_source(error)
                    })?
                    .map_err(engine_error)?;
                let model = template_facts(engine.info()).to_model()?;
                Ok(Arc::new(Loaded { engine, model }))
            })
            .await
    }

    async fn start(&self, request: Request) -> Result<TurnStream, ProviderError> {
        let loaded = Arc::clone(self.loaded().await?);
        let settings = Arc::clone(&self.settings);
        let recite = self.recital.as_ref().and_then(|recital| recital(&request));
        let is_large = text_bytes(&request) >= LARGE_PROMPT_BYTES;
        // Schemas are compiled, which takes as long as they like.
        let has_schemas = !request.tools.is_empty() || request.answer_schema().is_some();
        let turn = if !is_large && !has_schemas {
            begin(&loaded, &settings, request, recite)?
        } else {
            let places = if is_large { &LARGE_PROMPTS } else { &SCHEMAS };
            let place = places.acquire().await.ok();
            let work = move || {
                // Held to the end, also when nobody waits for the turn any more.
                let _place = place;
                begin(&loaded, &settings, request, recite)
            };
            tokio::task::spawn_blocking(work).await.map_err(|error| {
                ProviderError::new(ErrorKind::Internal, "a turn could not be begun")
                    .with_source(error)
            })??
        };
        Ok(TurnStream::of(turn))
    }
}

impl Backend for Embedded {
    fn open(&self, request: Request) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        self.start(request).boxed()
    }

    fn complete(&self, request: RawRequest) -> BoxFuture<'_, Result<TurnStream, ProviderError>> {
        async move {
            let loaded = Arc::clone(self.loaded().await?);
            let side = Side {
                engine: loaded.engine.clone(),
                request: request.to_request(),
                prompt: request.prompt(),
                grammar: None,
                lora: None,
                recite: None,
                open: None,
                written: String::new(),
            };
            run_raw(request.pass(), side).await
        }
        .boxed()
    }

    fn count_prompt(&self, request: Request) -> BoxFuture<'_, Result<Option<u64>, ProviderError>> {
        async move {
            let loaded = Arc::clone(self.loaded().await?);
            let settings = Arc::clone(&self.settings);
            let count = move || -> Result<u64, ProviderError> {
                let planned = plan_turn(&request, &loaded.model, &settings, unix_now())?;
                let tokens = loaded.engine.tokenize(&planned.prompt);
                Ok(tokens.map_err(engine_error)?.len() as u64)
            };
            let counted = tokio::task::spawn_blocking(count).await;
            let counted = counted.map_err(|error| {
                ProviderError::new(ErrorKind::Internal, "a prompt could not be counted")
                    .with_source(error)
            })?;
            Ok(Some(counted?))
        }
        .boxed()
    }

    fn prepare(&self) -> BoxFuture<'_, Result<(), ProviderError>> {
        async { self.loaded().await.map(|_| ()) }.boxed()
    }

    fn is_ready(&self) -> bool {
        self.loaded.initialized()
    }

    /// The same model with the same engine's settings is loaded once.
    fn heir(&self, entry: &ProviderConfig) -> Option<Arc<dyn Backend>> {
        let is_same = entry.backend == BackendKind::Embedded
            && self.model_name.as_ref() == Some(&entry.model_name)
            && self.engine == entry.engine;
        is_same.then_some(())?;
        Some(Arc::new(Self {
            model: Arc::clone(&self.model),
            model_name: self.model_name.clone(),
            engine: self.engine.clone(),
            settings: Arc::new(turn_settings(entry).ok()?),
            loaded: Arc::clone(&self.loaded),
            recital: None,
        }))
    }

    fn warnings(&self) -> Vec<String> {
        let loaded = self.loaded.get();
        loaded.map_or_else(Vec::new, |loaded| loaded.engine.warnings())
    }

    fn most_turns(&self) -> Option<usize> {
        let options = engine_options(std::path::Path::new(""), &self.engine);
        Some(options.max_streams as usize + options.queue_len)
    }

    fn stats(&self) -> Vec<(&'static str, f64)> {
        self.loaded
            .get()
            .map(|loaded| named_stats(&loaded.engine.stats()))
            .unwrap_or_default()
    }
}

/// Rendering and tokenising takes about 0.7 s per MB. A longer prompt than this one does not
/// do that on a thread that serves others.
const LARGE_PROMPT_BYTES: usize = 32 << 10;
/// Large prompts that are prepared at one time, in this process; further ones wait.
static LARGE_PROMPTS: Semaphore = Semaphore::const_new(2);

/// Turns with schemas that are begun at one time, in this process: a schema may take a second
/// to compile.
static SCHEMAS: Semaphore = Semaphore::const_new(4);

/// Bytes that rendering and tokenising has to read, roughly.
fn text_bytes(request: &Request) -> usize {
    let messages = request.messages.iter().map(|message| {
        let calls = message
            .tool_calls
            .iter()
            .map(|call| call.arguments.as_text().len());
        message.content_text().len() + calls.sum::<usize>()
    });
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.description.len() + tool.parameters.to_string().len());
    let form = request.answer_schema();
    let form = form.map_or(0, |schema| schema.to_string().len());
    messages.sum::<usize>() + tools.sum::<usize>() + form
}

/// One turn's side of the engine.
struct Side {
    engine: Engine,
    request: Request,
    prompt: Prompt,
    grammar: Option<Grammar>,
    lora: Option<String>,
    recite: Option<String>,
    open: Option<Generation>,
    /// What a grammar bound so far: its faults are told by it.
    written: String,
}

/// Plans a turn and opens its first pass, so that a prompt that is too long or a full queue
/// is an error before any event. Does not wait for the engine.
fn begin(
    loaded: &Loaded,
    settings: &TurnSettings,
    request: Request,
    recite: Option<String>,
) -> Result<TextTurn<Side>, ProviderError> {
    let mut planned = plan_turn(&request, &loaded.model, settings, unix_now())?;
    let mut bound = None;
    if let Some(grammar) = planned.grammar {
        let about = (&loaded.model, settings);
        let (grammar, notes) = bind(&loaded.engine, grammar, &request, about)?;
        if grammar.is_some() {
            planned.plan.bind_answer();
        }
        bound = grammar;
        planned.diagnostics.extend(notes);
    } else if let Some(lazy) = planned.lazy_grammar
        // A text that is recited may hold a broken call, to see what comes of it.
        && recite.is_none()
    {
        bound = bind_lazily(&loaded.engine, lazy);
    }
    let lora = lora_of(&request)?;
    let side = Side {
        engine: loaded.engine.clone(),
        lora,
        request,
        prompt: planned.prompt,
        grammar: bound,
        recite,
        open: None,
        written: String::new(),
    };
    let mut turn = TextTurn::new(planned.plan, side);
    if let Some(pass) = turn.first_pass(planned.diagnostics) {
        turn.engine.generate(pass)?;
    }
    Ok(turn)
}

/// The adapter that a request names: its own field `lora`, which no other backend reads.
fn lora_of(request: &Request) -> Result<Option<String>, ProviderError> {
    let mut fields = request.passthrough.iter().flat_map(|passed| &passed.fields);
    let Some((_, json)) = fields.find(|(name, _)| name == "lora") else {
        return Ok(None);
    };
    match serde_json::from_str(json) {
        Ok(name) => Ok(Some(name)),
        Err(_) => {
            let message = format!("must be the name of an adapter, got {json}");
            Err(ProviderError::new(ErrorKind::BadRequest, message).with_param("lora"))
        }
    }
}

impl TextEngine for Side {
    async fn open(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        self.generate(pass)
    }

    async fn next(&mut self) -> Result<PassStep, ProviderError> {
        let output = match &mut self.open {
            Some(generation) => generation.next().await,
            None => None,
        };
        match output {
            Some(Output::Text { text, logprobs, .. }) => {
                if self.grammar.is_some() {
                    self.written.push_str(&text);
                }
                Ok(PassStep::Text { text, logprobs })
            }
            Some(Output::Done(outcome)) => {
                self.open = None;
                let notes = lowered_cap(&self.request, &outcome.passes).into_iter();
                let notes = notes.chain(self.dropped_grammar(&outcome));
                let notes = notes.chain(self.hurried(&outcome)).collect();
                let end = pass_end(*outcome).map_err(|error| self.pass_error(error))?;
                Ok(PassStep::End(Box::new(end), notes))
            }
            None => Err(ProviderError::new(
                ErrorKind::Internal,
                "the engine stopped within a turn",
            )),
        }
    }
}

impl Side {
    /// Says so if a grammar that could not go on was dropped.
    fn dropped_grammar(&self, outcome: &Outcome) -> Option<Diagnostic> {
        let why = outcome.grammar_failure.as_ref()?;
        let BoundPart { of, because, .. } = bound_part(&self.request, &self.written);
        let message = format!("{of} is only checked, since it cannot be bound{because}: {why}");
        Some(Diagnostic::new(DiagnosticKind::Degraded, message))
    }

    /// Says so if what is bound was ended for want of tokens.
    fn hurried(&self, outcome: &Outcome) -> Option<Diagnostic> {
        if !outcome.is_hurried {
            return None;
        }
        let of = bound_part(&self.request, &self.written).of;
        let message = format!("{of} was brought to its end early: few tokens were left");
        Some(Diagnostic::new(DiagnosticKind::LimitReached, message))
    }

    /// An engine's error within a pass, with what the grammar was to bind.
    fn pass_error(&self, error: EngineError) -> ProviderError {
        if error.kind() != EngineErrorKind::BadGrammar {
            return engine_error(error);
        }
        let BoundPart { param, of, because } = bound_part(&self.request, &self.written);
        let message = format!("{of} cannot be bound to its schema{because}: {error}");
        ProviderError::new(ErrorKind::BadRequest, message)
            .with_source(error)
            .with_param(&param)
    }

    fn generate(&mut self, pass: PassRequest) -> Result<(), ProviderError> {
        let mut prompt = self.prompt.clone();
        prompt.push_markup(&pass.continuation);
        let request = GenerateRequest {
            thinking: pass.thinking,
            max_tokens: pass.max_tokens,
            stop: pass.stop,
            grammar: self.grammar.clone(),
            sampling: self.request.sampling,
            lora: self.lora.clone(),
            logprobs: self.request.logprobs,
            recite: self.recite.take(),
            ..GenerateRequest::new(prompt)
        };
        self.open = Some(self.engine.generate(request).map_err(engine_error)?);
        Ok(())
    }
}

/// Says so if the context had no room for the caps that were asked for.
fn lowered_cap(request: &Request, passes: &[PassReport]) -> Option<Diagnostic> {
    let asked = match request.budget {
        TurnBudget::OnePass { max_tokens } => [None, max_tokens],
        TurnBudget::TwoPass {
            max_thinking_tokens,
            max_response_tokens,
            ..
        } => [Some(max_thinking_tokens), Some(max_response_tokens)],
    };
    let got = |name| passes.iter().find(|pass| pass.name == name)?.max_tokens;
    let lowered: Vec<String> = [
        ("thinking", asked[0]),
        ("answer", asked[1]),
        ("single", asked[1]),
    ]
    .into_iter()
    .filter_map(|(name, asked)| {
        let (asked, got) = (asked?, got(name)?);
        (got < asked).then(|| format!("{name} tokens from {asked} to {got}"))
    })
    .collect();
    (!lowered.is_empty()).then(|| {
        let what = lowered.join(", ");
        Diagnostic::new(
            DiagnosticKind::LimitReached,
            format!("the context has too little room behind the prompt: {what}"),
        )
    })
}

fn pass_end(outcome: Outcome) -> Result<PassEnd, EngineError> {
    Ok(PassEnd {
        stop_reason: outcome.stop?,
        reports: outcome.passes,
        usage: outcome.usage,
        thinking_truncated: outcome.thinking_truncated,
        ended_in_thought: outcome.ended_in_thought,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counters for people")]
fn named_stats(stats: &EngineStats) -> Vec<(&'static str, f64)> {
    vec![
        ("prefill_tokens", stats.prefill_tokens as f64),
        ("cached_tokens", stats.cached_tokens as f64),
        ("decode_tokens", stats.decode_tokens as f64),
        ("drafted_tokens", stats.drafted_tokens as f64),
        ("accepted_tokens", stats.accepted_tokens as f64),
        ("forced_tokens", stats.forced_tokens as f64),
        ("steps", stats.steps as f64),
        ("decode_seconds", stats.decode_seconds),
        ("grammar_seconds", stats.grammar_seconds),
        ("batch_streams_mean", stats.batch_streams_mean),
        ("batch_streams_max", stats.batch_streams_max.into()),
        ("running", stats.running.into()),
        ("queued", stats.queued.into()),
        ("slots", stats.slots.into()),
        ("cached_sequences", stats.cached_sequences.into()),
        ("finished", stats.finished as f64),
        ("cancelled", stats.cancelled as f64),
        ("failed", stats.failed as f64),
    ]
}

fn engine_options(path: &std::path::Path, config: &EngineConfig) -> EngineOptions {
    let mut options = EngineOptions::new(path);
    options.threads = config.threads;
    options.context_tokens = config.context_tokens.unwrap_or(options.context_tokens);
    options.max_streams = config.max_streams.unwrap_or(options.max_streams);
    options.step_tokens = config.step_tokens.unwrap_or(options.step_tokens);
    options.queue_len = config
        .queue_len
        .map_or(options.queue_len, |len| len as usize);
    options.session_path.clone_from(&config.session_path);
    options.prompt_lookup_tokens = config.prompt_lookup_tokens.unwrap_or_default();
    options.draft_model = config.draft_model.as_ref().map(PathBuf::from);
    options.draft_tokens = config.draft_tokens.unwrap_or(options.draft_tokens);
    options.lora.clone_from(&config.lora);
    options.cache_type = match config.cache_type {
        None | Some(CacheType::F16) => twopass_engine::CacheType::F16,
        Some(CacheType::Q8_0) => twopass_engine::CacheType::Q8_0,
    };
    options.flash_attention = config.flash_attention;
    options
}

/// What the engine knows of the model's prompts.
fn template_facts(info: &ModelInfo) -> TemplateFacts {
    TemplateFacts {
        template: info.chat_template.clone(),
        bos: info.bos_text.clone().unwrap_or_default(),
        eos: info.eos_text.clone().unwrap_or_default(),
        control_strings: info.control_strings.clone(),
        control_tokens: info.control_tokens.clone(),
    }
}

/// An engine's error as ours: the same sentence, the kind by who must act.
pub(super) fn engine_error(error: twopass_engine::Error) -> ProviderError {
    let kind = match error.kind() {
        EngineErrorKind::BadModel | EngineErrorKind::UnsupportedCpu => ErrorKind::Model,
        EngineErrorKind::BadOption => ErrorKind::Config,
        EngineErrorKind::BadRequest
        | EngineErrorKind::BadGrammar
        | EngineErrorKind::GrammarTooLarge => ErrorKind::BadRequest,
        EngineErrorKind::PromptTooLong { .. } => ErrorKind::ContextLength,
        EngineErrorKind::QueueFull => ErrorKind::QueueFull,
        EngineErrorKind::ContextFull => ErrorKind::Overloaded,
        _ => ErrorKind::Internal,
    };
    let message = error.to_string();
    let param = match error.kind() {
        EngineErrorKind::PromptTooLong { .. } => Some("messages".to_owned()),
        EngineErrorKind::BadGrammar | EngineErrorKind::GrammarTooLarge => Some("tools".to_owned()),
        _ => error.param().map(str::to_owned),
    };
    let error = ProviderError::new(kind, message).with_source(error);
    match param {
        Some(param) => error.with_param(&param),
        None => error,
    }
}
