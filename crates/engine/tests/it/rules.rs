//! Stop strings, grammars, caps and scripts. Rows E15, M5.

use std::sync::Arc;

use twopass_core::chat::{Reply, Sampling, StopReason, ToolChoice, ToolSpec};
use twopass_core::chat_template::Segment;
use twopass_core::control::{ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::schema::CompiledSchema;
use twopass_core::tool_parser::{CallRules, DIALECTS, ToolDialect, ToolSet, dialect};
use twopass_core::tool_prompt::{CallFormat, call_grammar, form_grammar};
use twopass_engine::{ErrorKind, GenerateRequest, Grammar};

use crate::support::{Alone, CLOSE, chat, prompt, qwen3, real, request, run, thinking};

const JSON: &str = r#"start: %json {"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false}"#;

fn grammar(lark: &str) -> Option<Grammar> {
    Some(Grammar::whole(lark.to_owned()))
}

#[test]
fn stop_strings_across_tokens_end_the_answer_and_are_not_part_of_it() {
    let Alone { engine, .. } = &real();
    let rows = [
        ("alpha beta gamma", "a g", "alpha bet"),
        ("alpha beta gamma", "alpha", ""),
        ("say 🦀 now", "🦀", "say "),
        ("one\n\ntwo", "\n\n", "one"),
    ];
    for (text, stop, expect) in rows {
        let mut turn = request(chat("Hi."), 50);
        turn.recite = Some(text.to_owned());
        turn.stop = vec!["never".to_owned(), stop.to_owned()];
        let seen = run(engine, turn);
        assert_eq!(seen.answer, expect);
        assert_eq!(*seen.stop(), StopReason::StopSequence(stop.to_owned()));
    }
}

#[test]
fn stop_strings_do_not_apply_to_the_thought() {
    let Alone { engine, .. } = &qwen3();
    let mut turn = thinking("Hi.", 64, 64);
    turn.recite = Some("STOP here</think>go STOP on".to_owned());
    turn.stop = vec!["STOP".to_owned()];
    let seen = run(engine, turn);
    assert_eq!(seen.thinking, "STOP here</think>");
    assert_eq!(seen.answer, "go ");
    assert_eq!(*seen.stop(), StopReason::StopSequence("STOP".to_owned()));
}

#[test]
fn text_that_only_looked_like_a_stop_string_is_kept() {
    let Alone { engine, .. } = &real();
    let mut turn = request(chat("Hi."), 50);
    turn.recite = Some("alpha bet".to_owned());
    turn.stop = vec!["beta".to_owned()];
    let seen = run(engine, turn);
    assert_eq!(seen.answer, "alpha bet");
    assert_eq!(*seen.stop(), StopReason::EndTurn);
}

#[test]
fn recited_text_comes_out_exactly() {
    let texts = [
        "Plain words, 1234, and\ttabs.\n",
        "naïve café 🦀 𝔘 ありがとう",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        " leading space",
    ];
    for alone in [real, qwen3] {
        let Alone { engine, .. } = &alone();
        for text in texts {
            let mut turn = request(chat("Hi."), 200);
            turn.recite = Some(text.to_owned());
            let seen = run(engine, turn);
            assert_eq!(seen.answer, text);
            assert_eq!(*seen.stop(), StopReason::EndTurn);
            assert_eq!(u64::from(seen.n_tokens), seen.outcome.usage.response_tokens);
        }
    }
}

#[test]
fn m5_a_grammar_holds_at_temperature_one() {
    let Alone { engine, .. } = &real();
    for seed in 0..6 {
        let mut turn = request(chat("Describe a person as JSON."), 120);
        turn.sampling = Sampling {
            temperature: Some(1.0),
            top_k: Some(0),
            top_p: Some(1.0),
            min_p: Some(0.0),
            seed: Some(seed),
            ..Sampling::default()
        };
        turn.grammar = grammar(JSON);
        let seen = run(engine, turn);
        assert_eq!(*seen.stop(), StopReason::EndTurn, "{:?}", seen.answer);
        let value: serde_json::Value = serde_json::from_str(&seen.answer).unwrap();
        assert!(value["name"].is_string() && value["age"].is_u64());
    }
}

/// A random model writes noise: what comes out right is the grammar's doing.
#[test]
fn m5_a_grammar_begins_after_the_thought_and_uses_tool_tokens() {
    let Alone { engine, .. } = &qwen3();
    let lark = "start: \"<tool_call>\\n\" obj \"\\n</tool_call>\"\nobj: %json {\"x-guidance\":{\"whitespace_flexible\":false},\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},\"arguments\":{\"type\":\"object\",\"properties\":{\"unit\":{\"enum\":[\"c\",\"f\"]}},\"required\":[\"unit\"],\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}";
    for seed in 0..4 {
        let mut turn = thinking("Weather?", 8, 100);
        turn.sampling.seed = Some(seed);
        turn.sampling.temperature = Some(1.0);
        turn.grammar = grammar(lark);
        let seen = run(engine, turn);
        assert!(seen.thinking.ends_with(CLOSE));
        let call = seen.answer.strip_prefix("<tool_call>\n").unwrap();
        let call = call.strip_suffix("\n</tool_call>").unwrap();
        let value: serde_json::Value = serde_json::from_str(call).unwrap();
        assert_eq!(value["name"], "get_weather");
        assert_eq!(*seen.stop(), StopReason::EndTurn);
    }
}

#[test]
fn m5_the_end_of_the_turn_is_refused_until_the_grammar_accepts() {
    let Alone { engine, .. } = &qwen3();
    let mut turn = request(chat("Hi."), 50);
    turn.grammar = grammar("start: \"yes\" | \"no\"");
    let seen = run(engine, turn);
    assert!(["yes", "no"].contains(&seen.answer.as_str()));
    assert_eq!(*seen.stop(), StopReason::EndTurn);

    let mut turn = request(chat("Hi."), 50);
    turn.grammar = grammar("start: \"yes\" | \"no\"");
    turn.recite = Some("ye".to_owned());
    let seen = run(engine, turn);
    let error = seen.outcome.stop.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
    assert_eq!(error.param(), Some("recite"));
}

#[test]
fn m5_grammar_then_cap_cut_is_length() {
    let Alone { engine, .. } = &real();
    let mut turn = request(chat("Describe a person as JSON."), 3);
    turn.grammar = grammar(JSON);
    let seen = run(engine, turn);
    assert_eq!(*seen.stop(), StopReason::Length);
    assert!(seen.answer.starts_with('{'));
}

/// Schemas that tools in the wild have. Each either binds the call, so that what a random
/// model writes at temperature 1 is valid, or is refused with a reason.
#[test]
fn m5_common_schemas_bind_the_call() {
    let Alone { engine, .. } = &qwen3();
    let text = r##"
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["a", "b"]}
        {"type": "object", "properties": {"a": {"oneOf": [{"const": 1}, {"const": "x"}]}}, "required": ["a"]}
        {"type": "object", "properties": {"a": {"enum": ["x"], "description": "d", "format": "nickname"}}, "required": ["a"]}
        {"type": "object", "properties": {"a": {"type": ["boolean", "null"], "x-order": 1}}, "required": ["a"]}
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/k"}}, "required": ["a"], "$defs": {"k": {"enum": ["p", "q"]}}}
        {"type": "object", "properties": {"a": {"const": {"b": [1, 2]}}}, "required": ["a"], "if": {"required": ["b"]}, "then": {"required": ["c"]}}
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3, "uniqueItems": false}}, "required": ["a"]}
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "boolean"}], "default": null}}, "required": ["a"]}
        {"type": "object", "properties": {}}
        {"properties": {"a": {"enum": ["only"]}}, "required": ["a"]}
        {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"$ref": "#"}}, "required": ["a"]}
    "##;
    let schemas = text.lines().map(str::trim).filter(|line| !line.is_empty());
    for schema in schemas {
        let parameters: serde_json::Value = serde_json::from_str(schema).unwrap();
        let check = CompiledSchema::new(&parameters).unwrap();
        let tools = [ToolSpec {
            name: "t".to_owned(),
            parameters,
            description: String::new(),
        }];
        let lark = call_grammar(&tools, &ToolChoice::Required, false).unwrap();
        for seed in 0..3 {
            let mut turn = request(chat("Call it."), 80);
            turn.sampling.seed = Some(seed);
            turn.sampling.temperature = Some(1.0);
            turn.grammar = grammar(&lark);
            let seen = run(engine, turn);
            assert_eq!(
                *seen.stop(),
                StopReason::EndTurn,
                "{schema} {}",
                seen.answer
            );
            let call = seen.answer.strip_prefix("<tool_call>\n").unwrap();
            let call = call.strip_suffix("\n</tool_call>").unwrap();
            let value: serde_json::Value = serde_json::from_str(call).unwrap();
            let faults = check.check(&value["arguments"]);
            assert!(faults.is_empty(), "{schema} {call} {faults:?}");
        }
    }
}

/// The text of a turn, read in this dialect.
fn parsed(row: &ToolDialect, tools: &[ToolSpec], text: &str) -> Reply {
    let mut parser = TurnParser::new(TurnParserOptions {
        syntax: TurnSyntax::new(ReasoningSyntax::none(), row.syntax()),
        prompt_opened: Some(false),
        calls: CallRules {
            tools: Some(Arc::new(ToolSet::new(tools.to_vec()))),
            choice: ToolChoice::Required,
            ..CallRules::default()
        },
        ..TurnParserOptions::default()
    });
    let mut events = Vec::new();
    parser.push(text, &mut events);
    let end = TurnEnd {
        stop_reason: StopReason::EndTurn,
        stop_string: None,
    };
    parser.finish(&end, &mut events);
    let mut reply = ReplyAssembler::new();
    events.iter().for_each(|event| reply.handle(event));
    reply.finish(end.stop_reason)
}

fn two_tools() -> [ToolSpec; 2] {
    let schemas = [
        r#"{"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}"#,
        r#"{"type": "object", "properties": {"on": {"type": "boolean"}, "room": {"enum": ["a \"b\"", "c"]}}, "required": ["room"]}"#,
    ];
    let named = ["get_weather", "lights.set"].into_iter().zip(schemas);
    let specs: Vec<_> = named
        .map(|(name, schema)| ToolSpec {
            name: name.to_owned(),
            parameters: serde_json::from_str(schema).unwrap(),
            description: String::new(),
        })
        .collect();
    specs.try_into().unwrap()
}

/// Every dialect that a forced call can be bound in, and one whose markers are control tokens
/// of this model: what a random model writes at temperature 1 is one call, and a valid one.
#[test]
fn m5_e18_forced_calls_in_every_dialect_are_read_back() {
    let Alone { engine, .. } = &qwen3();
    let tools = two_tools();
    let boxed = ToolDialect {
        name: "boxed",
        opens: &["<|box_start|>"],
        closes: &["<|box_end|>"],
        ..*dialect("longcat").unwrap()
    };
    let rows = DIALECTS.iter().chain([&boxed]);
    let mut n_dialects = 0;
    for row in rows {
        let Some(format) = CallFormat::new(row) else {
            continue;
        };
        n_dialects += 1;
        let format = format.with_control_tokens(&engine.info().control_tokens);
        let lark = format
            .grammar(&tools, &ToolChoice::Required, false)
            .unwrap();
        assert_eq!(lark.contains("<["), row.name == "boxed", "{lark}");
        for seed in 0..2 {
            let mut turn = request(chat("Call it."), 240);
            turn.sampling.seed = Some(seed);
            turn.sampling.temperature = Some(1.0);
            turn.grammar = grammar(&lark);
            let seen = run(engine, turn);
            let text = &seen.answer;
            assert_eq!(*seen.stop(), StopReason::EndTurn, "{}: {text}", row.name);
            let reply = parsed(row, &tools, text);
            let invalid = &reply.invalid_tool_calls;
            assert!(invalid.is_empty(), "{}: {text} {invalid:?}", row.name);
            assert_eq!(reply.tool_calls.len(), 1, "{}: {text}", row.name);
            assert_eq!(reply.content, "", "{}: {text}", row.name);
        }
    }
    assert!(n_dialects >= 28, "{n_dialects}");
}

/// What is forced is spelled as the model would write it: else it reads a call of its own that
/// looks like none that it was trained on.
#[test]
fn m5_forced_markers_are_the_tokens_that_the_model_knows() {
    let Alone { engine, .. } = &qwen3();
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let mut free = request(chat("Call it."), 60);
    free.recite = Some(text.to_owned());
    let free = run(engine, free);
    let mut bound = request(chat("Call it."), 60);
    bound.grammar = grammar(&format!("start: {}", serde_json::json!(text)));
    let bound = run(engine, bound);
    assert_eq!([&free.answer, &bound.answer], [text, text]);
    assert_eq!(bound.n_tokens, free.n_tokens);
}

/// Models end a line behind a call and then their turn: that is no promise of another call.
#[test]
fn m5_several_calls_may_end_behind_a_line() {
    let Alone { engine, .. } = &qwen3();
    let row = dialect("hermes").unwrap();
    let tools = two_tools();
    let format = CallFormat::new(row).unwrap();
    let lark = format.grammar(&tools, &ToolChoice::Required, true).unwrap();
    let call =
        "<tool_call>\n{\"name\": \"lights.set\", \"arguments\": {\"room\": \"c\"}}\n</tool_call>";
    let texts = [
        (1, call.to_owned()),
        (1, format!("{call}\n")),
        (2, format!("{call}\n{call}")),
    ];
    for (n_calls, text) in texts {
        let mut turn = request(chat("Call it."), 240);
        turn.recite = Some(text.clone());
        turn.grammar = grammar(&lark);
        let seen = run(engine, turn);
        assert_eq!(*seen.stop(), StopReason::EndTurn);
        assert_eq!(seen.answer, text);
        let reply = parsed(row, &tools, &text);
        assert_eq!(reply.tool_calls.len(), n_calls, "{text}");
        assert_eq!(reply.content, "", "{text}");
    }
}

#[test]
fn m5_a_schema_that_cannot_bind_is_refused_with_a_reason() {
    let Alone { engine, .. } = &qwen3();
    for schema in [
        r##"{"$ref": "#"}"##,
        r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}"##,
        r#"{"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1}}, "required": ["a"]}"#,
        r#"{"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}, "required": ["a"]}"#,
    ] {
        let tools = [ToolSpec {
            name: "t".to_owned(),
            parameters: serde_json::from_str(schema).unwrap(),
            description: String::new(),
        }];
        let lark = call_grammar(&tools, &ToolChoice::Required, false).unwrap();
        let error = engine.check_grammar(&grammar(&lark).unwrap());
        let Err(error) = error else {
            let seen = run(
                engine,
                GenerateRequest {
                    grammar: grammar(&lark),
                    ..request(chat("x"), 60)
                },
            );
            panic!("{schema}: {:?} {:?}", seen.answer, seen.outcome.stop)
        };
        assert_eq!(error.kind(), ErrorKind::BadGrammar, "{schema}");
    }
}

#[test]
fn m5_a_grammar_that_does_not_compile_is_refused() {
    let Alone { engine, .. } = &real();
    for lark in ["start: [", "", "begin: \"a\"", "start: missing"] {
        let mut turn = request(chat("Hi."), 5);
        turn.grammar = grammar(lark);
        let error = engine.generate(turn).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadGrammar, "{lark:?}");
        assert!(error.to_string().len() < 500);
    }
}

#[test]
fn e15_the_cap_ends_the_answer() {
    let Alone { engine, .. } = &real();
    for cap in [1, 2, 7] {
        let mut turn = request(chat("Hi."), cap);
        turn.recite = Some("one two three four five six seven eight nine".to_owned());
        let seen = run(engine, turn);
        assert_eq!(seen.outcome.usage.response_tokens, u64::from(cap));
        assert_eq!(seen.n_tokens, cap);
        assert_eq!(*seen.stop(), StopReason::Length);
    }
}

#[test]
fn an_answer_is_never_blank_when_the_cap_allows() {
    let Alone { engine, .. } = &real();
    for budget in [0, 1, 4] {
        for cap in [1, 2, 5] {
            let seen = run(engine, thinking("Hi.", budget, cap));
            assert!(!seen.answer.trim().is_empty(), "{budget} {cap}");
        }
    }
}

#[test]
fn requests_that_cannot_be_carried_out_name_their_parameter() {
    let Alone { engine, .. } = &real();
    let base = || request(chat("Hi."), 5);
    let mut rows = Vec::new();
    let mut turn = base();
    turn.max_tokens = Some(0);
    rows.push((turn, "max_tokens"));
    let mut turn = base();
    turn.stop = vec![String::new()];
    rows.push((turn, "stop"));
    let mut turn = base();
    turn.stop = vec!["x".to_owned(); 65];
    rows.push((turn, "stop"));
    let mut turn = base();
    turn.sampling.temperature = Some(-1.0);
    rows.push((turn, "temperature"));
    let mut turn = base();
    turn.sampling.top_p = Some(f32::NAN);
    rows.push((turn, "top_p"));
    let mut turn = base();
    turn.sampling.repeat_penalty = Some(0.0);
    rows.push((turn, "repeat_penalty"));
    let mut turn = base();
    turn.prompt.segments = vec![Segment::Markup(String::new())];
    rows.push((turn, "prompt"));
    let mut turn = thinking("Hi.", 4, 4);
    turn.thinking.as_mut().unwrap().close_text.clear();
    rows.push((turn, "thinking"));
    for (turn, param) in rows {
        let error = engine.generate(turn).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRequest, "{param}");
        assert_eq!(error.param(), Some(param));
    }
}

#[test]
fn a_prompt_over_the_context_is_refused_with_both_numbers() {
    let Alone { engine, .. } = &real();
    let turn = request(prompt(&"word ".repeat(9000)), 5);
    let error = engine.generate(turn).unwrap_err();
    let ErrorKind::PromptTooLong {
        prompt_tokens,
        limit_tokens,
    } = error.kind()
    else {
        panic!("{error}");
    };
    assert!(prompt_tokens > 8192 && limit_tokens < 8192);
    assert!(error.to_string().contains(&prompt_tokens.to_string()));
    // Refused before it is counted.
    let turn = request(prompt(&"word ".repeat(600_000)), 5);
    let error = engine.generate(turn).unwrap_err().to_string();
    assert!(error.contains("has at least "), "{error}");
}

#[test]
fn penalties_and_greedy_are_accepted() {
    let Alone { engine, .. } = &real();
    let mut turn = request(chat("Repeat: a a a a"), 12);
    turn.sampling = Sampling {
        temperature: Some(0.0),
        repeat_penalty: Some(1.3),
        presence_penalty: Some(0.5),
        frequency_penalty: Some(0.5),
        ..Sampling::default()
    };
    assert!(!run(engine, turn).answer.is_empty());
}

/// Names that the grammar forces are looked at as drawn ones are: an object whose only name
/// is taken ends.
#[test]
fn m5_forced_names_come_once() {
    let forms = [
        serde_json::json!({
            "type": "object", "patternProperties": {"^b$": {"const": 7}},
            "additionalProperties": false, "required": ["b"],
        }),
        serde_json::json!({
            "type": "object", "patternProperties": {"^(foo|bar)$": {"const": 7}},
            "additionalProperties": false, "required": ["foo", "bar"],
        }),
    ];
    let Alone { engine, .. } = &qwen3();
    for form in forms {
        for seed in 0..6 {
            let mut turn = request(chat("q"), 200);
            turn.sampling.seed = Some(seed);
            turn.sampling.temperature = Some(2.0);
            turn.grammar = grammar(&form_grammar(&form));
            let seen = run(engine, turn);
            let value: serde_json::Value = serde_json::from_str(&seen.answer)
                .unwrap_or_else(|e| panic!("{e}: {:?} {:?}", seen.answer, seen.outcome.stop));
            let n_names = seen.answer.matches("\": 7").count();
            assert_eq!(n_names, value.as_object().unwrap().len(), "{}", seen.answer);
        }
    }
}

/// A recursion without end compiles and breaks while it is written: a turn that can do without
/// the grammar goes on.
#[test]
fn m5_a_grammar_that_cannot_go_on_fails_the_turn_or_is_dropped() {
    let Alone { engine, .. } = &qwen3();
    let form = serde_json::json!({
        "type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"],
    });
    for is_optional in [false, true] {
        let mut turn = request(chat("q"), 60);
        turn.grammar = Some(Grammar {
            is_optional,
            ..Grammar::whole(form_grammar(&form))
        });
        let seen = run(engine, turn);
        let failure = &seen.outcome.grammar_failure;
        assert_eq!(failure.is_some(), is_optional, "{failure:?}");
        match &seen.outcome.stop {
            Ok(_) => assert!(is_optional && seen.n_tokens > 0, "{:?}", seen.answer),
            Err(e) => assert!(!is_optional && e.kind() == ErrorKind::BadGrammar, "{e}"),
        }
    }
}
