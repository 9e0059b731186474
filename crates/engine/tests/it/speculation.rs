//! Several tokens in one step: guesses change no text, forced tokens are not drawn.

use twopass_core::chat::{Sampling, StopReason};
use twopass_engine::{CacheType, Engine, ErrorKind, GenerateRequest, Grammar};

use crate::support::{
    Alone, chat, collect, fresh, options, random_qwen3, real_model, request, run, thinking,
};

/// Answers that repeat their prompt, so that there is something to guess from.
const REPEATING: [&str; 3] = [
    "Repeat this list exactly: apple, banana, cherry, apple, banana, cherry, apple, banana, cherry.",
    "Copy this code:\nfn add(a: i32, b: i32) -> i32 {\n    a + b\n}\nfn sub(a: i32, b: i32) -> i32 {\n    a - b\n}",
    "Count: one two three one two three one two three one two",
];

const FORM: &str = r#"start: %json {"x-guidance":{"whitespace_flexible":false},"type":"object","properties":{"description_of_the_person":{"type":"string","maxLength":12},"age_of_the_person_in_years":{"type":"integer","minimum":0,"maximum":150}},"required":["description_of_the_person","age_of_the_person_in_years"],"additionalProperties":false}"#;

fn turns() -> Vec<GenerateRequest> {
    let mut turns = Vec::new();
    for (text, seed) in REPEATING.into_iter().zip(0..) {
        for temperature in [0.0, 0.9] {
            let sampling = Sampling {
                temperature: Some(temperature),
                seed: Some(seed),
                ..Sampling::default()
            };
            let plain = request(chat(text), 60);
            let budget = thinking(text, 24, 40);
            let bound = GenerateRequest {
                grammar: Some(Grammar::whole(FORM.to_owned())),
                ..thinking(text, 12, 80)
            };
            for turn in [plain, budget, bound] {
                turns.push(GenerateRequest { sampling, ..turn });
            }
        }
    }
    turns
}

fn texts(engine: &Engine) -> Vec<(String, String, StopReason)> {
    let seen = turns().into_iter().map(|turn| run(engine, turn));
    seen.map(|seen| {
        let stop = seen.stop().clone();
        (seen.thinking, seen.answer, stop)
    })
    .collect()
}

#[test]
fn guesses_change_no_text() {
    let plain = texts(&fresh(options(real_model())).engine);
    let mut with_guesses = options(real_model());
    with_guesses.prompt_lookup_tokens = 6;
    let Alone { engine, .. } = &fresh(with_guesses);
    let guessed = texts(engine);
    for (plain, guessed) in plain.iter().zip(&guessed) {
        assert_eq!(plain, guessed);
    }
    let stats = engine.stats();
    assert!(stats.accepted_tokens > 50, "{stats:?}");
    assert!(stats.drafted_tokens > stats.accepted_tokens, "{stats:?}");
    // Every accepted guess is a draw without a step of its own.
    assert!(stats.steps < stats.decode_tokens + stats.prefill_tokens);
}

/// The model is its own draft: greedy turns take every guess, the others refuse some.
#[test]
fn a_draft_model_changes_no_text() {
    let plain = texts(&fresh(options(real_model())).engine);
    let mut with_draft = options(real_model());
    with_draft.draft_model = Some(real_model());
    with_draft.draft_tokens = 4;
    let Alone { engine, .. } = &fresh(with_draft);
    let guessed = texts(engine);
    for (plain, guessed) in plain.iter().zip(&guessed) {
        assert_eq!(plain, guessed);
    }
    let stats = engine.stats();
    assert!(stats.accepted_tokens > 100, "{stats:?}");
    assert!(stats.drafted_tokens > stats.accepted_tokens, "{stats:?}");
    assert!(stats.steps < stats.decode_tokens, "{stats:?}");
}

/// Several turns at once, longer than the slots of the draft: each goes on from its own.
#[test]
fn a_draft_model_serves_many_streams() {
    let mut with_draft = options(real_model());
    with_draft.draft_model = Some(real_model());
    (with_draft.max_streams, with_draft.context_tokens) = (3, 512);
    let Alone { engine, .. } = &fresh(with_draft);
    let turns = (0..7).map(|n| {
        let mut turn = request(chat(&format!("Count from {n} to {}.", n + 20)), 40);
        turn.sampling.temperature = Some(0.0);
        engine.generate(turn).unwrap()
    });
    let turns: Vec<_> = turns.collect();
    for turn in turns {
        let seen = collect(turn);
        assert!(seen.outcome.usage.response_tokens > 0);
        assert!(!seen.answer.is_empty());
    }
    let stats = engine.stats();
    assert_eq!((stats.finished, stats.failed), (7, 0));
    assert!(stats.accepted_tokens > 50, "{stats:?}");
}

#[test]
fn a_draft_of_another_vocabulary_is_refused() {
    let rows = [
        (random_qwen3(), "its vocabulary has"),
        (real_model().with_file_name("absent.gguf"), "absent.gguf"),
    ];
    for (path, expect) in rows {
        let mut options = options(real_model());
        options.draft_model = Some(path);
        let error = Engine::load(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadOption);
        let text = error.to_string();
        assert!(
            text.starts_with("`draft_model`: cannot draft with"),
            "{text}"
        );
        assert!(text.contains(expect), "{text}");
    }
}

#[test]
fn what_a_grammar_forces_is_computed_in_one_step() {
    let Alone { engine, .. } = &fresh(options(real_model()));
    let turn = GenerateRequest {
        grammar: Some(Grammar::whole(FORM.to_owned())),
        ..request(chat("Describe a person."), 80)
    };
    let seen = run(engine, turn);
    let value: serde_json::Value = serde_json::from_str(&seen.answer).unwrap();
    assert!(value["age_of_the_person_in_years"].is_u64(), "{value}");
    let stats = engine.stats();
    let n_answer = seen.outcome.usage.response_tokens;
    assert!(stats.forced_tokens >= 10, "{stats:?}");
    assert_eq!(u64::from(seen.n_tokens), n_answer);
    assert!(
        stats.steps < n_answer,
        "{} steps for {n_answer}",
        stats.steps
    );
}

#[test]
fn a_smaller_cache_gives_an_answer() {
    for (cache_type, flash_attention) in [
        (CacheType::Q8_0, None),
        (CacheType::Q8_0, Some(true)),
        (CacheType::F16, Some(false)),
    ] {
        let mut options = options(real_model());
        (options.cache_type, options.flash_attention) = (cache_type, flash_attention);
        let Alone { engine, .. } = &fresh(options);
        let mut turn = request(chat("What is the capital of France?"), 24);
        turn.sampling.temperature = Some(0.0);
        let seen = run(engine, turn);
        assert!(seen.answer.contains("Paris"), "{:?}", seen.answer);
    }
}
