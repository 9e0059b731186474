//! `parse`: the parsers alone. Rows A4, C1, C6, E7, E10.

use serde_json::{Value, json};

use crate::run::Place;

const TOOLS: &str = r#"[{"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}]"#;

/// What is printed for this text, and the exit code.
fn parsed(place: &Place, args: &[&str], text: &[u8]) -> (Value, i32) {
    let args: Vec<&str> = ["parse"].iter().chain(args).copied().collect();
    let ran = place.run_with(&args, text);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.stdout.lines().count(), 1);
    (serde_json::from_str(&ran.stdout).unwrap(), ran.code)
}

#[test]
fn c1_e7_thinking_content_and_calls_in_any_chunks() {
    let place = Place::new();
    let text = "<think>hm ◁</think>Ünder way.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 12345678901234567890123}}\n</tool_call>";
    let whole = place.run_with(&["parse"], text.as_bytes());
    assert_eq!(
        whole.stdout,
        "{\"thinking\":\"hm ◁\",\"content\":\"Ünder way.\",\"tool_calls\":[{\"id\":\"call_1\",\"name\":\"f\",\"arguments\":{\"x\": 12345678901234567890123}}],\"invalid_tool_calls\":[],\"diagnostics\":[]}\n"
    );
    assert_eq!(whole.code, 0);
    for n in ["1", "2", "3", "7", "1000"] {
        let cut = place.run_with(&["parse", "--chunk-bytes", n, "--json"], text.as_bytes());
        assert_eq!(cut.stdout, whole.stdout, "{n}");
    }
}

#[test]
fn e10_tools_and_the_finish_reason_decide() {
    let place = Place::new();
    let tools = place.write("tools.json", TOOLS).display().to_string();
    let call = |arguments: &str| format!("f[ARGS]{arguments}");
    let text = format!(
        "[TOOL_CALLS]{}[TOOL_CALLS]{}",
        call("{\"x\": 1}"),
        call("{}")
    );
    let (reply, code) = parsed(
        &place,
        &["--dialect", "mistral_v11", "--tools", &tools],
        text.as_bytes(),
    );
    assert_eq!(
        (
            &reply["tool_calls"],
            &reply["invalid_tool_calls"][0]["kind"],
            code
        ),
        (
            &json!([{"id": "call_1", "name": "f", "arguments": {"x": 1}}]),
            &json!("schema_violation"),
            0
        )
    );
    let cut = &text[..text.len() - 3];
    let args = ["--dialect", "mistral_v11", "--finish-reason", "length"];
    let (reply, _) = parsed(&place, &args, cut.as_bytes());
    assert_eq!(
        reply["invalid_tool_calls"][0]["kind"],
        "truncated_tool_call"
    );
    let args = ["--tools", &tools, "--tool-choice", "required"];
    let (reply, code) = parsed(&place, &args, b"No.");
    assert_eq!(
        (&reply["diagnostics"][0]["kind"], code),
        (&json!("missing_tool_call"), 1)
    );
}

#[test]
fn c6_an_opened_prompt_and_bytes_that_are_not_utf8() {
    let place = Place::new();
    let text = b"so \xff\xfe</think>Yes.";
    let args = ["--prompt-opened", "--chunk-bytes", "1"];
    let (reply, code) = parsed(&place, &args, text);
    assert_eq!(
        (&reply["thinking"], &reply["content"], code),
        (&json!("so \u{fffd}\u{fffd}"), &json!("Yes."), 0)
    );
    assert_eq!(reply["diagnostics"][0]["kind"], "invalid_utf8");
    let (reply, _) = parsed(&place, &["--reasoning", "none"], b"<think>a</think>b");
    assert_eq!(reply["content"], "<think>a</think>b");
    let (reply, code) = parsed(&place, &["--dialect", "seed_oss"], b"<seed:think>a");
    assert_eq!((&reply["thinking"], code), (&json!("a"), 1));
}

// A dialect that names its reasoning is read with it, and with the usual tags besides.
#[test]
fn c1_think_tags_beside_a_dialect_of_calls() {
    let place = Place::new();
    let text = "[TOOL_CALLS]get_forecast[ARGS]{\"city\": \"Rome\"}";
    for thought in ["<think>Rain?</think>", "[THINK]Rain?[/THINK]"] {
        let args = ["--dialect", "mistral_v11"];
        let (reply, code) = parsed(&place, &args, format!("{thought}{text}").as_bytes());
        assert_eq!(
            (&reply["thinking"], &reply["content"], code),
            (&json!("Rain?"), &json!(""), 0)
        );
        assert_eq!(reply["tool_calls"][0]["arguments"], json!({"city": "Rome"}));
    }
}

#[test]
fn a4_dialects_of_the_configuration() {
    let place = Place::new();
    let config = "dialects:\n  - {name: mine, open: '<<call>>', close: '<</call>>', name_key: fn, arguments_key: with}\n";
    let file = place.write("own.yaml", config).display().to_string();
    let text = br#"Go. <<call>>{"fn": "f", "with": {"x": 1}}<</call>>"#;
    let args = ["--config", &file, "--dialect", "mine"];
    let (reply, _) = parsed(&place, &args, text);
    assert_eq!(
        (&reply["content"], &reply["tool_calls"][0]["arguments"]),
        (&json!("Go."), &json!({"x": 1}))
    );

    let ran = place.run(&["parse", "--list", "--json", "--config", &file]);
    let rows: Value = serde_json::from_str(&ran.stdout).unwrap();
    let row = |name: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.find(|row| row["name"] == name).unwrap().clone()
    };
    assert_eq!(row("mine")["markers"], json!(["<<call>>", "<</call>>"]));
    assert_eq!(row("mine")["source"], "configuration");
    assert_eq!(row("kimi_k3")["begins_inside"], "yes");
    assert_eq!(row("qwen3_coder")["streams_arguments"], false);
    let ran = place.run(&["parse", "--list"]);
    assert!(ran.stdout.lines().count() > 60, "{}", ran.stdout);
    let (_, sources) = ran.stdout.split_once("\nSources:\n").unwrap();
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}\n{}", ran.stdout);
    assert!(ran.stdout.contains("(also json)"), "{}", ran.stdout);
    assert!(sources.contains("chat templates"), "{sources}");
}

#[test]
fn unknown_dialects_are_named() {
    let place = Place::new();
    for (flag, value) in [("--dialect", "hermess"), ("--reasoning", "thinck")] {
        let ran = place.run_with(&["parse", flag, value], b"x");
        assert_eq!(
            (ran.code, ran.stderr),
            (
                2,
                format!(
                    "error: {flag}: unknown dialect `{value}`\nhint: `twopass parse --list` lists the dialects\n"
                )
            )
        );
    }
}
