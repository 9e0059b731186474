//! Grammars that leave the model free until it opens a call. Rows M5, I13.

use serde_json::json;
use twopass_core::chat::{StopReason, ToolChoice, ToolSpec};
use twopass_core::tool_parser::dialect;
use twopass_core::tool_prompt::CallFormat;
use twopass_engine::{Engine, Grammar};

use crate::support::{Alone, chat, qwen3, real, request, run, thinking};

/// What binds the calls of `f`, which takes a number up to 99 and further numbers by name.
fn lazy(engine: &Engine, name: &str, parallel: bool) -> Grammar {
    let tool = ToolSpec {
        name: "f".to_owned(),
        description: String::new(),
        parameters: json!({
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["n"],
            "additionalProperties": {"type": "integer"},
        }),
    };
    let format = CallFormat::new(dialect(name).unwrap()).unwrap();
    let format = format.with_control_tokens(&engine.info().control_tokens);
    let lazy = format.lazy_grammar(&[tool], &ToolChoice::Auto, parallel);
    let lazy = lazy.unwrap();
    Grammar {
        lark: lazy.lark,
        opens_at: Some(lazy.marker),
        is_optional: true,
    }
}

const ONE: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 5}}\n</tool_call>";

/// The model says the text; tokens that the grammar refuses are passed over.
fn check(engine: &Engine, say: &str, expect: &str, parallel: bool) {
    let mut turn = request(chat("q"), 200);
    turn.recite = Some(say.to_owned());
    turn.grammar = Some(lazy(engine, "hermes", parallel));
    let seen = run(engine, turn);
    assert_eq!(seen.stop(), &StopReason::EndTurn, "{say}");
    assert_eq!(seen.answer, expect, "{say}");
}

#[test]
fn m5_i13_text_is_free_and_calls_are_bound_once_they_open() {
    let free = [
        "No call: {\"n\": 1, \"n\": 500} and <tool> or <tool_cal.",
        "Grüße, 日本 🦀",
        "\n\n```json\n{\"name\": \"g\"}\n```",
        ONE,
    ];
    for engine in [real, qwen3] {
        let Alone { engine, .. } = &engine();
        for text in free {
            for parallel in [false, true] {
                check(engine, text, text, parallel);
            }
        }
        let around = format!("Hi. {ONE} Bye: {{\"n\": 1, \"n\": 500}}");
        check(engine, &around, &around, false);
        let two = format!("{ONE}\n{ONE}");
        check(engine, &two, &two, true);
        // 500 is over the bound, and the second `n` is one too many.
        let over = ONE.replace("5}", "500}");
        check(engine, &over, &ONE.replace("5}", "50}"), false);
    }
}

#[test]
fn m5_a_second_call_or_member_cannot_come() {
    for engine in [real, qwen3] {
        let Alone { engine, .. } = &engine();
        for between in ["", "\n", "\n\n  ", " Next:\r\n"] {
            let mut turn = request(chat("q"), 200);
            turn.recite = Some(format!("{ONE}{between}{ONE}"));
            turn.grammar = Some(lazy(engine, "hermes", false));
            let seen = run(engine, turn);
            // Neither a second call nor, at a line's start, half a marker of one.
            assert!(seen.answer.starts_with(ONE), "{:?}", seen.answer);
            let behind = &seen.answer[ONE.len()..];
            assert!(!behind.contains("<tool"), "{between:?}: {behind:?}");
        }
    }
    let Alone { engine, .. } = &qwen3();
    let mut turn = request(chat("q"), 200);
    let twice = "{\"n\": 5, \"a\": 1, \"a\": 2}";
    turn.recite = Some(ONE.replace("{\"n\": 5}", twice));
    turn.grammar = Some(lazy(engine, "hermes", false));
    let seen = run(engine, turn);
    assert!(!seen.answer.contains("\"a\": 2"), "{}", seen.answer);
}

/// A call inside the thought ends the turn as without a grammar.
#[test]
fn m5_calls_inside_the_thought_end_the_turn() {
    let Alone { engine, .. } = &real();
    let mut turn = thinking("q", 64, 64);
    let rule = turn.thinking.as_mut().unwrap();
    rule.call_open = Some("<tool_call>".to_owned());
    rule.call_close = Some("</tool_call>".to_owned());
    turn.recite = Some(format!("I call it.\n{ONE}"));
    turn.grammar = Some(lazy(engine, "hermes", false));
    let seen = run(engine, turn);
    assert_eq!(seen.stop(), &StopReason::EndTurn);
    let all = seen.thinking + &seen.answer;
    assert!(all.ends_with(ONE), "{all:?}");
}

/// Every dialect whose calls begin with a marker can be bound so.
#[test]
fn m5_i13_dialects_have_free_grammars() {
    let Alone { engine, .. } = &qwen3();
    let mut n = 0;
    for row in twopass_core::tool_parser::DIALECTS {
        let Some(format) = CallFormat::new(row) else {
            continue;
        };
        let tool = ToolSpec {
            name: "f".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        for parallel in [false, true] {
            let Some(lazy) =
                format.lazy_grammar(std::slice::from_ref(&tool), &ToolChoice::Auto, parallel)
            else {
                continue;
            };
            n += 1;
            let grammar = Grammar {
                lark: lazy.lark,
                opens_at: Some(lazy.marker),
                is_optional: true,
            };
            engine
                .check_grammar(&grammar)
                .unwrap_or_else(|e| panic!("{}: {e}\n{}", row.name, grammar.lark));
        }
    }
    assert!(n >= 20, "{n}");
}
