//! Compaction (row L2): what goes, what stays, and that calls keep their results.

use twopass_agent::{AgentEvent, Compacted, Compaction, EndReason, LoopOptions};
use twopass_core::chat::{Message, Role};

use crate::script::{Played, play, task};

/// Characters of a message beside its text, as the estimate counts them.
const MESSAGE_CHARS: usize = 16;

fn with_context(compaction: Compaction, context_tokens: u64) -> LoopOptions {
    LoopOptions {
        compaction,
        context_tokens: Some(context_tokens),
        ..LoopOptions::default()
    }
}

/// Nine steps, each with a result of some 600 characters.
fn long_run(options: LoopOptions) -> Played {
    let turns: Vec<String> = (0..9)
        .map(|n| format!("step {n} find:{}", format!("{n}").repeat(600)))
        .collect();
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    play(options, task(), &turns)
}

fn compactions(played: &Played) -> Vec<Compacted> {
    let all = played.events.iter().filter_map(|event| match event {
        AgentEvent::Compacted(done) => Some(*done),
        _ => None,
    });
    all.collect()
}

/// The estimate without any count of a backend: a quarter of the characters.
fn tokens(messages: &[Message]) -> usize {
    let of_calls = |message: &Message| -> usize {
        let calls = message.tool_calls.iter();
        calls
            .map(|call| call.name.len() + call.arguments.as_text().len() + MESSAGE_CHARS)
            .sum()
    };
    let of = |m: &Message| m.content_text().len() + of_calls(m) + MESSAGE_CHARS;
    messages.iter().map(of).sum::<usize>() / 4
}

// Row L2.
#[test]
fn l2_every_request_fits_and_keeps_its_head() {
    let strategies = [
        Compaction::Sliding { threshold: 0.75 },
        Compaction::default(),
        Compaction::Tiered {
            threshold: 0.5,
            keep_recent: 1,
        },
    ];
    for compaction in strategies {
        let played = long_run(with_context(compaction, 1500));
        assert_eq!(played.outcome.end, EndReason::Answer, "{compaction:?}");
        let threshold = match compaction {
            Compaction::Tiered { threshold, .. } => threshold,
            _ => 0.75,
        };
        for messages in &played.asked {
            assert_eq!(messages[..2], task(), "{compaction:?}");
            let n = tokens(messages);
            assert!(n as f64 <= 1500.0 * threshold, "{compaction:?}: {n} tokens");
        }
        let done = compactions(&played);
        assert!(!done.is_empty(), "{compaction:?}");
        assert!(done.iter().all(|one| one.tokens_after < one.tokens_before));
    }
}

// Row L2: without compaction, or without a known context, nothing is touched.
#[test]
fn l2_none_leaves_the_history_alone() {
    let none = with_context(Compaction::None, 1500);
    for options in [none, LoopOptions::default()] {
        let played = long_run(options);
        assert!(compactions(&played).is_empty());
        assert_eq!(played.asked.last().unwrap().len(), 2 + 9 * 2);
    }
}

// Row L2: the tiers come one after the other.
#[test]
fn l2_tiers_take_the_least_first() {
    // What it gives, by the size of the context.
    let table = [(6000, 0), (3500, 1), (1750, 4)];
    for (context, strongest) in table {
        let done = compactions(&long_run(with_context(Compaction::default(), context)));
        let tiers: Vec<u8> = done.iter().map(|one| one.tier).collect();
        assert_eq!(
            tiers.iter().max().copied().unwrap_or(0),
            strongest,
            "{context}: {tiers:?}"
        );
        assert!(tiers.is_sorted(), "{context}: {tiers:?}");
    }
    let played = long_run(with_context(Compaction::default(), 3500));
    let last = played.asked.last().unwrap();
    let results: Vec<String> = last
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(Message::content_text)
        .collect();
    assert_eq!(results.len(), 9);
    assert!(results[0].contains("left out") && results[0].len() < 260);
    assert!(results[8].len() > 600);
}

// Row L2: how full the context is, each mark once.
#[test]
fn l2_filling_is_told_once() {
    let played = long_run(with_context(Compaction::None, 3500));
    let marks = played.events.iter().filter_map(|event| match event {
        AgentEvent::ContextFilling { percent } => Some(*percent),
        _ => None,
    });
    assert_eq!(marks.collect::<Vec<_>>(), [50, 65, 80]);
}

// Row L2: a service that says that the context is full gets a shorter one, once.
#[test]
fn l2_a_full_context_is_made_shorter_once() {
    let long = "find:".to_owned() + &"x".repeat(3000);
    let turns = [&long, "find:b", "find:c", "@context_length", "Done."];
    let played = play(LoopOptions::default(), task(), &turns);
    assert_eq!(played.outcome.end, EndReason::Answer);
    assert_eq!(compactions(&played).len(), 1);
    assert!(tokens(&played.asked[4]) < tokens(&played.asked[3]));

    let turns = [
        &long,
        "find:b",
        "find:c",
        "@context_length",
        "@context_length",
    ];
    let played = play(LoopOptions::default(), task(), &turns);
    assert_eq!(played.outcome.end, EndReason::Error);
}
