//! Probabilities of the answer's tokens, by the real model.

use twopass_engine::{ErrorKind, GenerateRequest, Grammar};

use crate::support::{Seen, chat, real, request, run, thinking};

/// The answer's bytes are its tokens', and no probability is impossible.
fn check(seen: &Seen, n_top: usize) {
    let bytes: Vec<u8> = seen.logprobs.iter().flat_map(|t| t.bytes.clone()).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), seen.answer);
    for token in &seen.logprobs {
        assert!(
            token.logprob <= 0.0 && token.logprob.is_finite(),
            "{token:?}"
        );
        assert_eq!(token.top.len(), n_top);
        let sum: f32 = token.top.iter().map(|top| top.logprob.exp()).sum();
        assert!(sum <= 1.0 + 1e-4, "{sum} of {token:?}");
        assert!(token.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
        let least = token.top.last().map_or(0.0, |top| top.logprob);
        let is_listed = token.top.iter().any(|top| top.bytes == token.bytes);
        assert!(
            n_top == 0 || is_listed || token.logprob <= least,
            "{token:?}"
        );
    }
}

#[test]
fn the_greedy_token_is_the_likeliest() {
    let engine = &real().engine;
    for n_top in [0, 1, 5, 20] {
        let mut turn = request(chat("What is the capital of France?"), 24);
        turn.sampling.temperature = Some(0.0);
        turn.logprobs = Some(n_top);
        let seen = run(engine, turn);
        check(&seen, n_top as usize);
        let first = seen
            .logprobs
            .iter()
            .filter_map(|t| Some((t, t.top.first()?)));
        for (token, top) in first {
            assert_eq!((&token.bytes, token.logprob), (&top.bytes, top.logprob));
        }
    }
}

#[test]
fn a_thought_has_none_and_a_grammar_changes_none() {
    let engine = &real().engine;
    let turn = |logprobs| GenerateRequest {
        grammar: Some(Grammar::whole("start: \"The answer is \" /[0-9]+/ \".\"")),
        logprobs,
        ..thinking("What is 2 + 2?", 12, 24)
    };
    let seen = run(engine, turn(Some(3)));
    assert!(!seen.thinking.is_empty());
    check(&seen, 3);
    // What is forced is not what the model would have said.
    let is_unlikely =
        |token: &twopass_core::chat::TokenLogprob| token.logprob < token.top[2].logprob;
    assert!(seen.logprobs.iter().any(is_unlikely), "{:?}", seen.logprobs);
    assert!(run(engine, turn(None)).logprobs.is_empty());
}

#[test]
fn too_many_alternatives_are_refused() {
    let mut turn = request(chat("Hi"), 4);
    turn.logprobs = Some(21);
    let error = real().engine.generate(turn).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
    assert_eq!(error.to_string(), "`logprobs`: must be 0 to 20, got 21");
}
