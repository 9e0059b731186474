//! Engines for tests, and turns collected.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use twopass_core::chat::{Sampling, StopReason, ThinkTag, TokenLogprob};
use twopass_core::chat_template::{Prompt, Segment};
use twopass_core::control::{Phase, ThinkingRule};
use twopass_engine::{Engine, EngineOptions, GenerateRequest, Generation, Outcome, Output};

pub(crate) const CLOSE: &str = "\n</think>\n\n";

/// The file that an environment variable names.
pub(crate) fn model_path(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => panic!(
            "{variable} is not set: run `cargo xtask test`, or `cargo xtask fixtures` and export what it prints"
        ),
    }
}

pub(crate) fn real_model() -> PathBuf {
    model_path("TWOPASS_TEST_MODEL")
}

pub(crate) fn random_qwen3() -> PathBuf {
    model_path("TWOPASS_TEST_QWEN3")
}

/// The defaults on one thread: several threads wait for each other on a busy machine.
pub(crate) fn options(path: PathBuf) -> EngineOptions {
    let mut options = EngineOptions::new(path);
    options.threads = Some(1);
    options
}

/// An engine that no other test uses meanwhile. Tests that measure or compare texts need the
/// processor and the batch to themselves.
pub(crate) struct Alone {
    pub(crate) engine: Engine,
    _guard: MutexGuard<'static, ()>,
}

fn guard() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The real model with the default options, loaded once.
pub(crate) fn real() -> Alone {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let guard = guard();
    let load = || Engine::load(options(real_model())).unwrap();
    Alone {
        engine: ENGINE.get_or_init(load).clone(),
        _guard: guard,
    }
}

/// The random Qwen3 with the default options, loaded once.
pub(crate) fn qwen3() -> Alone {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let guard = guard();
    let load = || Engine::load(options(random_qwen3())).unwrap();
    Alone {
        engine: ENGINE.get_or_init(load).clone(),
        _guard: guard,
    }
}

/// A fresh engine with options of its own.
pub(crate) fn fresh(options: EngineOptions) -> Alone {
    let guard = guard();
    Alone {
        engine: Engine::load(options).unwrap(),
        _guard: guard,
    }
}

pub(crate) fn prompt(text: &str) -> Prompt {
    Prompt {
        segments: vec![Segment::Markup(text.to_owned())],
    }
}

pub(crate) fn chat(user: &str) -> Prompt {
    prompt(&format!(
        "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    ))
}

/// A prompt of about this many tokens.
pub(crate) fn long_prompt(n_tokens: usize, salt: &str) -> Prompt {
    let words = [
        "river", "stone", "cloud", "green", "seven", "paper", "music", "winter",
    ];
    let mut text = format!("{salt}:");
    for n in 0..n_tokens.saturating_sub(4) {
        text.push(' ');
        text.push_str(words[(n * 7 + n / 5) % words.len()]);
    }
    prompt(&text)
}

pub(crate) fn request(prompt: Prompt, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        max_tokens: Some(max_tokens),
        sampling: Sampling {
            seed: Some(7),
            ..Sampling::default()
        },
        ..GenerateRequest::new(prompt)
    }
}

pub(crate) fn thinking(user: &str, budget_tokens: u32, max_tokens: u32) -> GenerateRequest {
    let opening = if budget_tokens == 0 {
        "<think>\n\n</think>\n\n"
    } else {
        "<think>\n"
    };
    let mut prompt = chat(user);
    prompt.segments.push(Segment::Markup(opening.to_owned()));
    GenerateRequest {
        thinking: Some(ThinkingRule {
            tag: ThinkTag::Think,
            budget_tokens,
            close_text: CLOSE.to_owned(),
            call_open: None,
            call_close: None,
        }),
        ..request(prompt, max_tokens)
    }
}

/// A turn as its reader saw it.
pub(crate) struct Seen {
    pub(crate) thinking: String,
    pub(crate) answer: String,
    pub(crate) n_tokens: u32,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) outcome: Outcome,
}

impl Seen {
    pub(crate) fn stop(&self) -> &StopReason {
        self.outcome.stop.as_ref().unwrap()
    }
}

pub(crate) fn run(engine: &Engine, request: GenerateRequest) -> Seen {
    collect(engine.generate(request).unwrap())
}

pub(crate) fn collect(mut turn: Generation) -> Seen {
    let (mut thinking, mut answer, mut n) = (String::new(), String::new(), 0);
    let mut logprobs = Vec::new();
    loop {
        match turn.blocking_next() {
            Some(Output::Text {
                text,
                n_tokens,
                phase,
                logprobs: more,
            }) => {
                assert!(!text.is_empty());
                n += n_tokens;
                logprobs.extend(more);
                match phase {
                    Phase::Thinking => thinking.push_str(&text),
                    Phase::CallInThought | Phase::Answering => answer.push_str(&text),
                }
            }
            Some(Output::Done(outcome)) => {
                assert!(turn.blocking_next().is_none());
                return Seen {
                    thinking,
                    answer,
                    n_tokens: n,
                    logprobs,
                    outcome: *outcome,
                };
            }
            None => panic!("the stream ended without an outcome"),
        }
    }
}
