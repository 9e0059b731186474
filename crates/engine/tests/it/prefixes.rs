//! Prefixes that stay in the cache, and repeatable texts.

use twopass_core::chat::StopReason;
use twopass_core::chat_template::Segment;
use twopass_engine::EngineOptions;

use crate::support::{Alone, chat, collect, fresh, long_prompt, options, real_model, request, run};

fn small() -> EngineOptions {
    let mut options = options(real_model());
    options.context_tokens = 2048;
    options.cached_sequences = 4;
    options
}

#[test]
fn a_prompt_goes_on_from_the_longest_common_prefix() {
    let Alone { engine, .. } = &fresh(small());
    let base = long_prompt(300, "base");
    let first = run(engine, request(base.clone(), 4));
    assert_eq!(first.outcome.usage.cached_tokens, 0);

    // The same prompt: all but its last token.
    let again = run(engine, request(base.clone(), 4));
    let n_prompt = again.outcome.usage.prompt_tokens;
    assert_eq!(again.outcome.usage.cached_tokens, n_prompt - 1);
    assert_eq!(again.outcome.passes[0].prefill_tokens, 1);

    // A fork within the prompt, and a continuation past its end.
    let mut fork = base.clone();
    if let Segment::Markup(text) = &mut fork.segments[0] {
        text.truncate(text.len() / 2);
    }
    fork.segments
        .push(Segment::Markup(" and then something else".into()));
    let forked = run(engine, request(fork, 4)).outcome.usage;
    assert!(forked.cached_tokens > 100 && forked.cached_tokens < forked.prompt_tokens);
    let mut longer = base;
    longer
        .segments
        .push(Segment::Markup(" with more to come".into()));
    let longer = run(engine, request(longer, 4)).outcome.usage;
    assert!(longer.cached_tokens + 10 > n_prompt);
    assert_eq!(
        engine.stats().cached_tokens,
        again.outcome.usage.cached_tokens + forked.cached_tokens + longer.cached_tokens
    );
}

/// A kept sequence leaves the cells when another turn begins, and its prompt goes on from it
/// all the same, with the same text.
#[test]
fn parked_prefixes_come_back() {
    let Alone { engine, .. } = &fresh(small());
    let prompts = ["a", "b", "c"].map(|salt| long_prompt(600, salt));
    let first: Vec<_> = prompts
        .iter()
        .map(|prompt| run(engine, request(prompt.clone(), 6)))
        .collect();
    for (prompt, first) in prompts.iter().zip(&first) {
        let again = run(engine, request(prompt.clone(), 6));
        let usage = &again.outcome.usage;
        assert_eq!(usage.cached_tokens, usage.prompt_tokens - 1);
        assert_eq!(again.answer, first.answer);
    }
}

#[test]
fn parked_prefixes_need_memory() {
    let prompts = ["a", "b", "c"].map(|salt| long_prompt(600, salt));
    let mut options = small();
    options.cached_bytes = 0;
    let Alone { engine, .. } = &fresh(options);
    for prompt in &prompts {
        run(engine, request(prompt.clone(), 6));
    }
    let again = run(engine, request(prompts[0].clone(), 6));
    assert_eq!(again.outcome.usage.cached_tokens, 0);
}

#[test]
fn prefixes_give_way_when_cells_are_needed() {
    let Alone { engine, .. } = &fresh(small());
    for salt in ["a", "b", "c", "d", "e", "f"] {
        let seen = run(engine, request(long_prompt(900, salt), 4));
        assert!(matches!(
            seen.stop(),
            StopReason::Length | StopReason::EndTurn
        ));
    }
    assert!(engine.stats().cached_sequences <= 4);
    assert_eq!(engine.stats().failed, 0);
}

/// With the cache off every run computes the same batches; with it on the second run finds
/// the prompt there, and the text is the same all the same.
#[test]
fn m3_same_seed_same_text_for_a_lone_stream() {
    for cached_sequences in [0, 4] {
        let mut options = small();
        options.cached_sequences = cached_sequences;
        let Alone { engine, .. } = &fresh(options);
        let text = |seed| {
            let mut turn = request(chat("Tell me a story about a fox."), 40);
            turn.sampling.temperature = Some(1.0);
            turn.sampling.seed = Some(seed);
            run(engine, turn).answer
        };
        let first = text(11);
        assert_ne!(text(12), first);
        assert_eq!(text(11), first);
        assert_eq!(text(11), first);
    }
}

#[test]
fn streams_share_the_prefix_of_one_that_is_running() {
    let Alone { engine, .. } = &fresh(small());
    let mut first = request(long_prompt(300, "shared"), 200);
    first.recite = Some("word ".repeat(190));
    let mut running = engine.generate(first).unwrap();
    assert!(running.blocking_next().is_some());
    let second = run(engine, request(long_prompt(300, "shared"), 2));
    assert!(second.outcome.usage.cached_tokens > 250);
}

/// The choices of one request come at once: the first computes the prompt, the others take it
/// over, and each draws its own text.
#[test]
fn choices_of_one_prompt_share_one_prefill() {
    let Alone { engine, .. } = &fresh(small());
    let choices: Vec<_> = (0..4)
        .map(|seed| {
            let mut turn = request(long_prompt(300, "choices"), 12);
            turn.sampling.temperature = Some(1.0);
            turn.sampling.seed = Some(seed);
            engine.generate(turn).unwrap()
        })
        .collect();
    let seen: Vec<_> = choices.into_iter().map(collect).collect();
    let n_prompt = seen[0].outcome.usage.prompt_tokens;
    let stats = engine.stats();
    assert!(stats.prefill_tokens < n_prompt + 40, "{n_prompt} {stats:?}");
    assert!(stats.cached_tokens > 3 * (n_prompt - 12), "{stats:?}");
    assert!(seen.iter().any(|other| other.answer != seen[0].answer));
}
