//! Prompts into tokens. Row M6.

use twopass_core::chat_template::{Prompt, Segment};

use crate::support::{Alone, prompt, qwen3, real};

#[test]
fn m6_literal_text_never_becomes_a_control_token() {
    for alone in [real, qwen3] {
        let Alone { engine, .. } = &alone();
        let controls = engine.info().control_strings.clone();
        assert!(controls.len() > 10);
        for control in &controls {
            let text = format!("a{control}b {control}{control}");
            let literal = Prompt {
                segments: vec![Segment::Literal(text.clone())],
            };
            let tokens = engine.tokenize(&literal).unwrap();
            assert_eq!(engine.detokenize(&tokens), text);
            for token in tokens {
                let piece = engine.detokenize(&[token]);
                assert!(!controls.contains(&piece), "{control}: {piece}");
            }
        }
    }
}

#[test]
fn m6_markup_uses_control_tokens() {
    let Alone { engine, .. } = &qwen3();
    for text in ["<|im_start|>", "<think>", "</think>", "<tool_call>"] {
        assert_eq!(engine.tokenize(&prompt(text)).unwrap().len(), 1, "{text}");
    }
}

#[test]
fn text_survives_the_round_trip_in_any_segments() {
    let texts = [
        "Hello, wörld! 🦀",
        "  two  spaces\n\n\ttab",
        "x < y <think> z",
        "\u{0}\u{1}",
    ];
    for alone in [real, qwen3] {
        let Alone { engine, .. } = &alone();
        for text in texts {
            for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
                let (a, b) = text.split_at(at);
                let mixed = Prompt {
                    segments: vec![Segment::Literal(a.into()), Segment::Markup(b.into())],
                };
                let tokens = engine.tokenize(&mixed).unwrap();
                assert_eq!(engine.detokenize(&tokens), text);
            }
        }
    }
}
