//! `invoke` and `render` on the real small model. Rows D3, D12, M3, M5, M6.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::run::Place;

fn model() -> PathBuf {
    let path = std::env::var_os("TWOPASS_TEST_MODEL");
    path.expect("TWOPASS_TEST_MODEL names the small model; `cargo xtask test` sets it")
        .into()
}

fn invoke(place: &Place, args: &[&str]) -> Value {
    let model = model().display().to_string();
    let fixed = ["invoke", "--json", "--seed", "7", "--model", &model];
    let ran = place.run(&[&fixed[..], args].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn m3_a_budget_is_kept_in_one_prefill() {
    let place = Place::new();
    for budget in ["0", "8"] {
        let args = [
            "--thinking",
            "--max-response-tokens",
            "12",
            "--max-thinking-tokens",
            budget,
            "Why is the sky blue?",
        ];
        let turn = invoke(&place, &args);
        let budget: u64 = budget.parse().unwrap();
        assert!(
            turn["usage"]["thinking_tokens"].as_u64().unwrap() <= budget,
            "{turn}"
        );
        assert!(!turn["response"].as_str().unwrap().is_empty(), "{turn}");
        assert!(
            !turn["response"].as_str().unwrap().contains("think>"),
            "{turn}"
        );
        let passes = turn["passes"].as_array().unwrap();
        if budget > 0 {
            assert!(
                passes[1]["prefill_tokens"].as_u64().unwrap() < 10,
                "the close alone: {turn}"
            );
        }
    }
}

#[test]
fn m5_a_required_call_fits_its_schema() {
    let place = Place::new();
    let tools = json!([{
        "name": "get_forecast",
        "description": "Get the weather forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "days"],
            "additionalProperties": false,
        },
    }]);
    place.write("tools.json", tools.to_string());
    let turn = invoke(
        &place,
        &[
            "--thinking",
            "--max-thinking-tokens",
            "4",
            "--max-response-tokens",
            "120",
            "--tools",
            "tools.json",
            "--tool-choice",
            "required",
            "Forecast for Rome, 3 days",
        ],
    );
    let calls = turn["tool_calls"].as_array().unwrap();
    assert!(!calls.is_empty(), "{turn}");
    for call in calls {
        let days = call["arguments"]["days"].as_u64().unwrap();
        assert!(
            (1..=7).contains(&days) && call["arguments"]["city"].is_string(),
            "{turn}"
        );
    }
}

#[test]
fn render_shows_the_prompt_up_to_the_assistant_boundary() {
    let place = Place::new();
    place.write(
        "m.json",
        r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]"#,
    );
    let model = model().display().to_string();
    let ran = place.run(&["render", "--messages", "m.json", "--model", &model]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (
            0,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
    );
    place.write(
        "t.jinja",
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]",
    );
    let ran = place.run(&[
        "render",
        "--messages",
        "m.json",
        "--template",
        "t.jinja",
        "--json",
    ]);
    let prompt: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        prompt["prompt"],
        "[system] Be brief.\n[user] Hi\n[assistant]"
    );
    place.write("t.jinja", "{% for %}");
    let ran = place.run(&["render", "--messages", "m.json", "--template", "t.jinja"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn inspect_reads_the_header() {
    let place = Place::new();
    let model = model().display().to_string();
    let ran = place.run(&["models", "inspect", "--json", &model]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&report["architecture"], &report["n_vocab"]),
        (&json!("llama"), &json!(49152))
    );
    assert_eq!(
        (
            &report["context_tokens"],
            &report["template"]["writes_tools"]
        ),
        (&json!(8192), &json!(false))
    );
}

// Bad model files and prompts: one line, exit code 2, no abort.
#[test]
fn broken_models_and_long_prompts_are_errors() {
    let place = Place::new();
    let whole = std::fs::read(model()).unwrap();
    place.write("cut.gguf", &whole[..1 << 20]);
    place.write("text.gguf", "hello");
    place.write("empty.gguf", "");
    let model = model().display().to_string();
    let long = "word ".repeat(9000);
    for args in [
        ["--model", "cut.gguf", "x"],
        ["--model", "text.gguf", "x"],
        ["--model", "empty.gguf", "x"],
        ["--model", "none.gguf", "x"],
        ["--model", ".", "x"],
        ["--model", &model, &long],
    ] {
        let ran = place.run(&[&["invoke"][..], &args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", args[1]);
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.lines().count() == 1,
            "{}",
            ran.stderr
        );
    }
}
