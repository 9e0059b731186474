use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use twopass_core::chat::MAX_TOP_LOGPROBS;
use twopass_core::chat_template::Prompt;

use crate::adapters::Adapters;
use crate::draft::Guessing;
use crate::draw::{Source, sampler_params};
use crate::ffi::{Context, ContextParams, Model, Sampler, used_instructions};
use crate::grammar::GrammarCompiler;
use crate::inbox::{Inbox, Job};
use crate::options::check_cpu;
use crate::scheduler::{Scheduler, SchedulerParts};
use crate::session::Session;
use crate::stats::StatsCell;
use crate::stream::channel;
use crate::turn::{Turn, TurnParts};
use crate::vocab::Vocab;
use crate::{
    CacheType, EngineOptions, EngineStats, Error, ErrorKind, GenerateRequest, Generation, Grammar,
    TokenId,
};

/// Most stop strings of a request.
const STOP_LIMIT: usize = 64;
/// Longest stop string.
const STOP_LIMIT_BYTES: usize = 1024;

/// A loaded model with its engine thread. Clones are handles to the same one; the last that
/// is dropped stops the thread and waits for it, and turns still running end as `Stopped`.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: ModelInfo,
    vocab: Arc<Vocab>,
    grammars: Arc<GrammarCompiler>,
    adapters: Arc<Adapters>,
    inbox: Arc<Inbox>,
    stats: Arc<StatsCell>,
    /// Most tokens of one sequence.
    limit_tokens: usize,
    /// Most tokens guessed by what stood before.
    lookup_tokens: usize,
    output_tokens: u32,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Facts of a loaded model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The name in the file's metadata, or the file's own.
    pub name: String,
    /// The architecture, such as `llama` or `qwen3`.
    pub architecture: String,
    /// Size of the file.
    pub file_bytes: u64,
    /// Tokens in the vocabulary.
    pub n_vocab: u32,
    /// Tokens that the model was trained to look back on.
    pub context_train: u32,
    /// KV cells that all streams share. One sequence has at most the smaller of this and
    /// `context_train`.
    pub context_tokens: u32,
    /// The Jinja template that the file carries.
    pub chat_template: Option<String>,
    /// Text of the token that begins a text.
    pub bos_text: Option<String>,
    /// Text of the token that ends a text.
    pub eos_text: Option<String>,
    /// True if a prompt begins with the `bos` token; the engine adds it.
    pub add_bos: bool,
    /// Texts that must not be taken from untrusted text as they are: all tokens of the
    /// vocabulary that are control tokens, never split, or unknown. White space is left out.
    pub control_strings: Vec<String>,
    /// Control tokens and their texts, save those that end a turn. In a grammar they are named
    /// by number (`<[7]>`): plain text never spells them.
    pub control_tokens: Vec<(TokenId, String)>,
    /// True if the model keeps a running state besides or instead of the KV cache: prefixes
    /// are then reused only where a kept sequence ends.
    pub is_hybrid: bool,
    /// Threads that compute.
    pub threads: u32,
}

impl Engine {
    /// Loads a model and starts its thread. Blocks for as long as the file takes to load
    /// (about a second per gigabyte).
    ///
    /// # Errors
    /// `BadOption`, `UnsupportedCpu`, or `BadModel` with llama.cpp's own reason.
    pub fn load(options: EngineOptions) -> Result<Self, Error> {
        options.check()?;
        check_cpu(&used_instructions())?;
        let path = options.model_path.as_path();
        let file_bytes = crate::gguf::check_file(path)?;
        let model = load_model(path, options.gpu_layers)?;
        let vocab = Arc::new(Vocab::new(Arc::clone(&model))?);
        let is_stateful = model.is_stateful();
        let cached_sequences = match options.cached_sequences {
            n if is_stateful => n.min(options.max_streams),
            n => n,
        };
        let threads = options.resolved_threads();
        let adapters = Arc::new(Adapters::load(&options, &model)?);
        let guessing = Guessing::open(&options, &model, &vocab)?;
        let (lookup_tokens, draft_tokens) = (guessing.lookup_tokens, guessing.limit_tokens());
        let abort = Arc::new(AtomicBool::new(false));
        let params = ContextParams {
            context_tokens: options.context_tokens,
            batch_tokens: options.step_tokens + options.max_streams * (1 + draft_tokens),
            n_sequences: options.max_streams + cached_sequences,
            n_outputs: options.max_streams * (1 + draft_tokens) + cached_sequences,
            threads,
            cache_type: options.cache_type,
            flash_attention: options.flash_attention,
        };
        let context = Context::new(Arc::clone(&model), params, Arc::clone(&abort))
            .map_err(|e| bad_model(path, &e))?;
        let context_tokens = context.params().context_tokens;
        let info = read_info(&model, &vocab, path, file_bytes, context_tokens, threads);
        let most = options.max_streams as usize + options.queue_len;
        let inbox = Arc::new(Inbox::new(most, Arc::clone(&abort)));
        let stats = Arc::new(StatsCell::default());
        stats.update(|s| s.slots = options.max_streams);
        let scheduler = Scheduler::new(SchedulerParts {
            context,
            vocab: Arc::clone(&vocab),
            inbox: Arc::clone(&inbox),
            stats: Arc::clone(&stats),
            abort,
            guessing,
            adapters: Arc::clone(&adapters),
            session: Session::open(&options, &stats)?,
            max_streams: options.max_streams as usize,
            cached_sequences: cached_sequences as usize,
            cached_bytes: options.cached_bytes,
            step_tokens: options.step_tokens as usize,
            shared_step_tokens: options.shared_step_tokens(),
            attends_in_tiles: options.gpu_layers == 0
                && options.cache_type == CacheType::F16
                && options.flash_attention != Some(false),
            is_stateful,
            sliding_window: model.sliding_window() as usize,
        });
        let inner = Inner {
            limit_tokens: sequence_limit(&info),
            lookup_tokens: lookup_tokens as usize,
            info,
            grammars: Arc::new(GrammarCompiler::new(Arc::clone(&vocab))),
            vocab,
            adapters,
            inbox,
            stats,
            output_tokens: options.output_tokens,
            threads: Mutex::default(),
        };
        inner.start(scheduler)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Facts of the model.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.inner.info
    }

    /// What the engine has done and is doing.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.inner.stats.get();
        // A request that came since the last step waits too.
        let waiting = u32::try_from(self.inner.inbox.len()).unwrap_or(u32::MAX);
        stats.queued = stats.queued.max(waiting);
        stats
    }

    /// What went wrong without stopping anything, for people: a saved session that does not
    /// fit, one that cannot be saved. At most 16 sentences.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.stats.warnings()
    }

    /// The tokens of a prompt, with the begin token where the model wants one. Literal
    /// segments become ordinary tokens only.
    ///
    /// # Errors
    /// `BadRequest` for a prompt of more than 64 MiB.
    pub fn tokenize(&self, prompt: &Prompt) -> Result<Vec<TokenId>, Error> {
        self.inner.vocab.tokenize_prompt(prompt)
    }

    /// The text of tokens, control tokens spelled out; broken characters are replaced.
    #[must_use]
    pub fn detokenize(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|&t| self.inner.vocab.piece(t))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Compiles a grammar, as [`Self::generate`] would.
    ///
    /// # Errors
    /// `BadGrammar` says why it cannot be used.
    pub fn check_grammar(&self, grammar: &Grammar) -> Result<(), Error> {
        self.inner.grammars.compile(grammar).map(|_| ())
    }

    /// Queues a turn. Tokenises the prompt and compiles the grammar on this thread; the
    /// first grammar after loading may have to wait up to a second for its tables.
    ///
    /// # Errors
    /// `BadRequest`, `PromptTooLong`, `BadGrammar`, `QueueFull`, `Stopped`.
    pub fn generate(&self, request: GenerateRequest) -> Result<Generation, Error> {
        let inner = &self.inner;
        check_request(&request)?;
        // A prompt far too long is refused by its bytes: tokenising it could take seconds.
        let least = inner.vocab.least_tokens(&request.prompt);
        if least > inner.limit_tokens {
            return Err(prompt_too_long("at least ", least, inner.limit_tokens));
        }
        let prompt = inner.vocab.tokenize_prompt(&request.prompt)?;
        if prompt.is_empty() {
            return Err(Error::bad_request("prompt", "must not be empty"));
        }
        let close = match &request.thinking {
            Some(rule) => inner.vocab.tokenize_more(&rule.close_text)?,
            None => Vec::new(),
        };
        // Room for the close, and for one token on either side of it.
        let reserve = if close.is_empty() { 1 } else { close.len() + 2 };
        let limit = inner.limit_tokens.saturating_sub(reserve);
        if prompt.len() > limit {
            return Err(prompt_too_long("", prompt.len(), limit));
        }
        let source = match &request.recite {
            Some(text) => Source::Script {
                tokens: inner.vocab.tokenize_more(text)?,
                next: 0,
            },
            None => {
                let params = sampler_params(&request.sampling)?;
                let sampler = Sampler::new(params, inner.vocab.len());
                Source::Sampler(sampler.ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "llama.cpp cannot make a sampler")
                })?)
            }
        };
        let grammar = request.grammar.as_ref();
        let grammar = grammar.map(|g| inner.grammars.compile(g)).transpose()?;
        let turn = Turn::new(TurnParts {
            prompt,
            adapter: inner.adapters.find(request.lora.as_deref())?,
            thinking: request.thinking,
            close,
            max_tokens: request.max_tokens,
            stop: request.stop,
            grammar,
            source,
            logprobs: request.logprobs,
            limit_tokens: inner.limit_tokens,
            lookup_tokens: inner.lookup_tokens,
        });
        let (sender, generation) = channel(Arc::clone(&inner.inbox), inner.output_tokens);
        inner.inbox.push(Job { turn, sender })?;
        Ok(generation)
    }
}

impl Inner {
    fn start(&self, scheduler: Scheduler) -> Result<(), Error> {
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
                .map_err(|e| {
                    let text = "cannot start an engine thread".to_owned();
                    Error::with_source(ErrorKind::Internal, text, e)
                })
        };
        let stop = StopOnDrop(Arc::clone(&self.inbox));
        let run = Box::new(move || {
            let _stop = stop;
            scheduler.run();
        });
        let grammars = Arc::clone(&self.grammars);
        // The result is kept for the first request that asks for a grammar.
        let warm_up = Box::new(move || drop(grammars.warm_up().map(|_| ())));
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(spawn("twopass-engine", run)?);
        threads.push(spawn("twopass-grammar", warm_up)?);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.stop();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic on the thread was reported there; nothing is left to do about it.
            let _ = thread.join();
        }
    }
}

/// However the engine thread ends, nobody waits for it in vain.
struct StopOnDrop(Arc<Inbox>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
        drop(self.0.drain(true));
    }
}

fn check_request(request: &GenerateRequest) -> Result<(), Error> {
    if request.max_tokens == Some(0) {
        return Err(Error::bad_request(
            "max_tokens",
            "must be at least 1, got 0",
        ));
    }
    if request.stop.len() > STOP_LIMIT {
        let text = format!("must be at most {STOP_LIMIT}, got {}", request.stop.len());
        return Err(Error::bad_request("stop", text));
    }
    for stop in &request.stop {
        if stop.is_empty() || stop.len() > STOP_LIMIT_BYTES {
            let text = format!(
                "a stop string must have 1 to {STOP_LIMIT_BYTES} bytes, got {}",
                stop.len()
            );
            return Err(Error::bad_request("stop", text));
        }
    }
    if let Some(n_top) = request.logprobs.filter(|n_top| *n_top > MAX_TOP_LOGPROBS) {
        let text = format!("must be 0 to {MAX_TOP_LOGPROBS}, got {n_top}");
        return Err(Error::bad_request("logprobs", text));
    }
    if let Some(rule) = &request.thinking
        && rule.budget_tokens > 0
        && rule.close_text.is_empty()
    {
        let text = "the closing text of the thought must not be empty";
        return Err(Error::bad_request("thinking", text));
    }
    Ok(())
}

/// `how` stands before the number: one that is only a lower bound says so.
fn prompt_too_long(how: &str, prompt_tokens: usize, limit_tokens: usize) -> Error {
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Error::new(
        ErrorKind::PromptTooLong {
            prompt_tokens: clamp(prompt_tokens),
            limit_tokens: clamp(limit_tokens),
        },
        format!("the prompt has {how}{prompt_tokens} tokens, allowed here: {limit_tokens}"),
    )
}

fn load_model(path: &Path, gpu_layers: u32) -> Result<Arc<Model>, Error> {
    let model = Model::load(path, gpu_layers).map_err(|e| bad_model(path, &e))?;
    if !model.is_causal_decoder() {
        return Err(bad_model(path, "the model does not generate text"));
    }
    Ok(Arc::new(model))
}

fn bad_model(path: &Path, reason: &str) -> Error {
    Error::new(
        ErrorKind::BadModel,
        format!("cannot load model file `{}`: {reason}", path.display()),
    )
}

fn sequence_limit(info: &ModelInfo) -> usize {
    let train = match info.context_train {
        0 => info.context_tokens,
        n => n,
    };
    train.min(info.context_tokens) as usize
}

fn read_info(
    model: &Model,
    vocab: &Vocab,
    path: &Path,
    file_bytes: u64,
    context_tokens: u32,
    threads: u32,
) -> ModelInfo {
    let stem = || {
        let stem = path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    };
    ModelInfo {
        name: model.meta(c"general.name").unwrap_or_else(stem),
        architecture: model.meta(c"general.architecture").unwrap_or_default(),
        file_bytes,
        n_vocab: vocab.len(),
        context_train: model.context_train(),
        context_tokens,
        chat_template: model.chat_template(),
        bos_text: model.bos().map(|t| vocab.text(t)),
        eos_text: model.eos().map(|t| vocab.text(t)),
        add_bos: model.add_bos(),
        control_strings: vocab.control_strings(),
        control_tokens: vocab.control_tokens(),
        is_hybrid: model.is_stateful(),
        threads,
    }
}
