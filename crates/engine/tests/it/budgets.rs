//! Thinking budgets on a real KV cache. Rows D2, D3, D4, D6, D13, M2, M3.

use twopass_core::chat::StopReason;
use twopass_core::chat_template::Segment;
use twopass_engine::GenerateRequest;

use crate::support::{Alone, CLOSE, Seen, prompt, qwen3, real, run, thinking};

/// What holds for every turn with a budget, whatever the model wrote.
fn check(seen: &Seen, budget: u32, cap: u32) {
    let usage = seen.outcome.usage;
    let passes = &seen.outcome.passes;
    assert!(usage.thinking_tokens <= u64::from(budget));
    assert!(usage.response_tokens <= u64::from(cap));
    assert!(usage.response_tokens > 0);
    assert!(!seen.answer.trim().is_empty());
    let n_closes = seen.thinking.matches("</think>").count();
    assert_eq!(n_closes, usize::from(budget > 0), "{:?}", seen.thinking);
    assert_eq!(passes.len(), 2);
    let [first, second] = [&passes[0], &passes[1]];
    assert_eq!((first.name, second.name), ("thinking", "answer"));
    assert_eq!(first.max_tokens, Some(budget));
    assert_eq!(second.max_tokens, Some(cap));
    assert_eq!(
        first.prefill_tokens + first.cached_tokens,
        usage.prompt_tokens
    );
    assert_eq!(
        second.cached_tokens,
        usage.prompt_tokens + first.decode_tokens
    );
    assert_eq!(second.decode_tokens, usage.response_tokens);
    if seen.outcome.thinking_truncated {
        assert_eq!(first.stop_reason, StopReason::Length);
        assert_eq!(usage.thinking_tokens, u64::from(budget));
        assert!(seen.thinking.ends_with(CLOSE));
    }
}

#[test]
fn d3_m3_budgets_on_the_real_model() {
    let Alone { engine, .. } = &real();
    let n_close = engine.tokenize(&prompt(CLOSE)).unwrap().len() as u64;
    for (idx, budget) in [0, 1, 2, 8, 64].into_iter().enumerate() {
        for user in ["Why is the sky blue?", "Say hi."] {
            let before = engine.stats();
            let request = thinking(&format!("{user} ({idx})"), budget, 12);
            let seen = run(engine, request);
            check(&seen, budget, 12);
            let passes = &seen.outcome.passes;
            // One prefill: pass 2 computes the closing tokens and nothing else.
            let is_forced = seen.outcome.thinking_truncated || seen.outcome.ended_in_thought;
            let forced = if is_forced { n_close } else { 0 };
            assert_eq!(passes[1].prefill_tokens, forced);
            let after = engine.stats();
            assert_eq!(
                after.prefill_tokens - before.prefill_tokens,
                passes[0].prefill_tokens + forced
            );
        }
    }
}

#[test]
fn d3_a_thought_that_reaches_its_budget_is_cut_there() {
    let Alone { engine, .. } = &qwen3();
    for budget in [1, 2, 8, 64] {
        let mut request = thinking("Count.", budget, 8);
        request.recite = Some(" one two three four five six seven eight".repeat(20));
        let seen = run(engine, request);
        check(&seen, budget, 8);
        assert!(seen.outcome.thinking_truncated);
        assert_eq!(seen.outcome.usage.thinking_tokens, u64::from(budget));
        assert_eq!(seen.outcome.usage.response_tokens, 8);
        assert_eq!(*seen.stop(), StopReason::Length);
        assert!(!seen.outcome.ended_in_thought);
    }
}

#[test]
fn d4_a_thought_that_closes_itself_is_not_cut() {
    let Alone { engine, .. } = &qwen3();
    let mut request = thinking("Hi.", 64, 32);
    request.recite = Some("short thought\n</think>\n\nThe answer.".to_owned());
    let seen = run(engine, request);
    assert_eq!(seen.thinking, "short thought\n</think>");
    assert_eq!(seen.answer, "\n\nThe answer.");
    check(&seen, 64, 32);
    assert!(!seen.outcome.thinking_truncated);
    let passes = &seen.outcome.passes;
    assert_eq!(passes[1].prefill_tokens, 0);
    let tag = StopReason::StopSequence("</think>".to_owned());
    assert_eq!(passes[0].stop_reason, tag);
    assert_eq!(*seen.stop(), StopReason::EndTurn);
}

#[test]
fn d4_a_turn_that_ends_in_the_thought_is_closed_and_answered() {
    let Alone { engine, .. } = &real();
    // The end of the script is the end of the turn, first in the thought, then in the answer.
    let mut request = thinking("Hi.", 64, 32);
    request.recite = Some("only a thought".to_owned());
    let seen = run(engine, request);
    assert_eq!(seen.thinking, format!("only a thought{CLOSE}"));
    assert_eq!(seen.answer, "");
    assert!(seen.outcome.ended_in_thought);
    assert!(!seen.outcome.thinking_truncated);
    assert_eq!(*seen.stop(), StopReason::EndTurn);
}

/// The closing tag is one token in Qwen3 and three that merge with their neighbours in
/// SmolLM2.
#[test]
fn d3_closing_tags_of_one_and_of_several_tokens() {
    assert_eq!(close_tokens(&qwen3().engine), 1);
    let Alone { engine, .. } = &real();
    assert!(close_tokens(engine) > 1);
    for text in ["a thought</think>Answer.", "x\n</think>\n\nAnswer é."] {
        let mut request = thinking("Hi.", 32, 32);
        request.recite = Some(text.to_owned());
        let seen = run(engine, request);
        assert_eq!(format!("{}{}", seen.thinking, seen.answer), text);
        assert!(seen.thinking.ends_with("</think>"), "{:?}", seen.thinking);
        assert!(!seen.outcome.thinking_truncated);
    }
}

fn close_tokens(engine: &twopass_engine::Engine) -> usize {
    engine.tokenize(&prompt("</think>")).unwrap().len()
}

#[test]
fn d3_characters_of_several_tokens_are_never_split() {
    let Alone { engine, .. } = &qwen3();
    let text = "𒀀𒁹 🦩𐎀 𝔘𝔫𝔦 𓂀ß";
    let n_tokens = engine.tokenize(&prompt(text)).unwrap().len();
    assert!(n_tokens > text.chars().count());
    for budget in 1..=u32::try_from(n_tokens).unwrap() + 1 {
        let mut request = thinking("Hi.", budget, 200);
        request.recite = Some(text.to_owned());
        let seen = run(engine, request);
        assert!(seen.outcome.usage.thinking_tokens <= u64::from(budget));
        let whole = format!("{}{}", seen.thinking.replacen(CLOSE, "", 1), seen.answer);
        // Nothing lost, nothing doubled, nothing broken: taken-back tokens are drawn again.
        assert_eq!(whole, text, "budget {budget}");
        assert_eq!(seen.thinking.matches("</think>").count(), 1);
    }
}

#[test]
fn m2_the_second_pass_goes_on_from_the_very_tokens() {
    let Alone { engine, .. } = &real();
    let seen = run(engine, thinking("Why?", 8, 8));
    let passes = &seen.outcome.passes;
    let n_prompt = seen.outcome.usage.prompt_tokens;
    assert_eq!(passes[1].cached_tokens, n_prompt + passes[0].decode_tokens);
    assert!(passes.iter().all(|pass| pass.duration_ms >= 0.0));
}

#[test]
fn d3_the_context_end_closes_the_thought_and_leaves_room_to_answer() {
    let mut options = crate::support::options(crate::support::random_qwen3());
    options.context_tokens = 256;
    let Alone { engine, .. } = &crate::support::fresh(options);
    let mut request = thinking("Hi.", 1000, 1000);
    request.recite = Some(" one two three".repeat(400));
    let seen = run(engine, request);
    assert!(seen.outcome.thinking_truncated);
    assert_eq!(*seen.stop(), StopReason::Length);
    assert!(seen.thinking.ends_with(CLOSE));
    // Row M10: half of the room is the answer's, and the reports name the caps that held.
    let passes = &seen.outcome.passes;
    let caps = [passes[0].max_tokens.unwrap(), passes[1].max_tokens.unwrap()];
    assert_eq!(u64::from(caps[0]), passes[0].decode_tokens);
    assert_eq!(u64::from(caps[1]), passes[1].decode_tokens);
    assert!(
        (100..128).contains(&caps[0]) && caps[0].abs_diff(caps[1]) <= 2,
        "{caps:?}"
    );
}

#[test]
fn d6_a_budget_of_zero_begins_in_the_answer() {
    let Alone { engine, .. } = &real();
    let seen = run(engine, thinking("Name a colour.", 0, 6));
    assert_eq!(seen.thinking, "");
    assert_eq!(seen.outcome.usage.thinking_tokens, 0);
    assert_eq!(seen.outcome.passes[0].decode_tokens, 0);
    assert_eq!(seen.outcome.passes[1].prefill_tokens, 0);
    assert!(!seen.outcome.thinking_truncated);
}

#[test]
fn d3_no_second_block_without_budget() {
    let Alone { engine, .. } = &qwen3();
    let mut request = thinking("Hi.", 2, 16);
    request.recite = Some(" one two<think>Yes</think>".to_owned());
    let seen = run(engine, request);
    assert!(!seen.answer.contains("<think>"), "{:?}", seen.answer);
    assert!(seen.outcome.thinking_truncated);
}

#[test]
fn d13_without_thinking_there_is_one_pass() {
    let Alone { engine, .. } = &real();
    let mut request = GenerateRequest::new(prompt("One two three"));
    request
        .prompt
        .segments
        .push(Segment::Markup(" four".into()));
    request.max_tokens = Some(4);
    let seen = run(engine, request);
    assert_eq!(seen.outcome.passes.len(), 1);
    assert_eq!(seen.outcome.passes[0].name, "single");
    assert_eq!(seen.outcome.usage.thinking_tokens, 0);
}
