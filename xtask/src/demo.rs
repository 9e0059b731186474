//! `cargo xtask demo`: set-up, build, and the main job on a real model.
//!
//! Two turns through the command line, as a user would run them: one that thinks within a
//! budget and answers, one that must call a tool. What they promise is checked, not only shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::workspace::{Workspace, run_quiet};
use crate::{Outcome, fixtures, setup};

const THINKING_TOKENS: u64 = 48;
const RESPONSE_TOKENS: u64 = 96;
const QUESTION: &str = "How do plants make their food?";
const TOOL_QUESTION: &str =
    "What will the weather be in Paris over the next three days, in celsius?";

/// `cargo xtask demo`
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<Outcome> {
    if let Some(argument) = arguments.first() {
        bail!("`demo` takes no argument, got `{argument}`");
    }
    setup::require_build()?;
    let model = fixtures::smollm2(workspace)?;
    eprintln!("building; the first time this compiles llama.cpp, which takes some minutes");
    let twopass = workspace.build(&["--package=twopass-cli", "--bin=twopass"], "twopass")?;
    let scratch = workspace.scratch("demo")?;
    let demo = Demo {
        twopass,
        folder: scratch.path().to_owned(),
    };
    std::fs::write(demo.config(), config(&model))?;
    std::fs::write(demo.tools(), tools().to_string())?;

    println!("Model: {}", model.display());
    let mut faults = Vec::new();
    answer(&demo, &mut faults)?;
    tool_call(&demo, &mut faults)?;
    next_steps(&demo.twopass);
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(if faults.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// Where the demo's files are.
struct Demo {
    twopass: PathBuf,
    folder: PathBuf,
}

impl Demo {
    fn config(&self) -> PathBuf {
        self.folder.join("twopass.yaml")
    }

    fn tools(&self) -> PathBuf {
        self.folder.join("tools.json")
    }

    /// One turn with the budgets of the demo, as the JSON of `twopass invoke`.
    fn invoke(&self, arguments: &[&str], prompt: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.twopass);
        command.args(["invoke", "--json", "--thinking", "--seed=7"]);
        command.arg(format!("--max-thinking-tokens={THINKING_TOKENS}"));
        command.arg(format!("--max-response-tokens={RESPONSE_TOKENS}"));
        command
            .args(arguments)
            .arg(prompt)
            .env("TWOPASS_CONFIG", self.config());
        let output = run_quiet(&mut command)?;
        serde_json::from_str(&output).context("`twopass invoke --json` printed no JSON")
    }
}

fn config(model: &Path) -> String {
    let provider = json!({
        "name": "local",
        "provider_backend": "embedded",
        "model_name": model,
        "generation_config": {"two_pass": true, "temperature": 0.3},
    });
    // JSON is YAML, and needs no quoting rules of our own.
    json!({"default_provider": "local", "providers": [provider]}).to_string()
}

fn tools() -> Value {
    json!([{
        "name": "get_forecast",
        "description": "Get the weather forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 40},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "days", "unit"],
            "additionalProperties": false,
        },
    }])
}

/// The turn that thinks and answers.
fn answer(demo: &Demo, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let turn = demo.invoke(&[], QUESTION)?;
    println!("\nQuestion: {QUESTION}");
    thought(&turn, faults);
    println!("\nAnswer:");
    let answer = text(&turn, "response");
    print_indented(answer);
    if answer.trim().is_empty() {
        faults.push("the answer is empty".to_owned());
    }
    passes(&turn);
    Ok(())
}

/// The turn that must call a tool.
fn tool_call(demo: &Demo, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let tools = format!("--tools={}", demo.tools().display());
    let turn = demo.invoke(&[&tools, "--tool-choice=required"], TOOL_QUESTION)?;
    println!("\nQuestion: {TOOL_QUESTION}");
    thought(&turn, faults);
    println!("\nTool call (required, so constrained by its schema):");
    let calls = turn["tool_calls"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if calls.is_empty() {
        faults.push("the turn that must call a tool has no call".to_owned());
    }
    for call in calls {
        let arguments = call.get("args").unwrap_or(&call["arguments"]);
        print_indented(&format!("{} {arguments}", text(call, "name")));
        if call["name"] != "get_forecast" || !is_forecast(arguments) {
            faults.push(format!("the call does not fit its schema: {call}"));
        }
    }
    passes(&turn);
    Ok(())
}

/// What the schema of [`tools`] asks for, checked here independently of the product.
fn is_forecast(arguments: &Value) -> bool {
    let city = arguments["city"]
        .as_str()
        .is_some_and(|city| city.chars().count() <= 40);
    let days = arguments["days"]
        .as_u64()
        .is_some_and(|days| (1..=7).contains(&days));
    let unit = matches!(arguments["unit"].as_str(), Some("celsius" | "fahrenheit"));
    city && days
        && unit
        && arguments
            .as_object()
            .is_some_and(|fields| fields.len() == 3)
}

fn thought(turn: &Value, faults: &mut Vec<String>) {
    let n_tokens = turn["usage"]["thinking_tokens"].as_u64();
    let cut = turn["thinking_truncated"] == true;
    let n_shown = n_tokens.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let end = if cut {
        "cut and closed at the budget"
    } else {
        "ended by the model"
    };
    println!("\nThought ({n_shown} of at most {THINKING_TOKENS} tokens, {end}):");
    print_indented(text(turn, "thinking"));
    if n_tokens.is_none_or(|n| n > THINKING_TOKENS) {
        faults.push(format!(
            "{n_shown} thinking tokens, the budget is {THINKING_TOKENS}"
        ));
    }
    if text(turn, "response").contains("</think") {
        faults.push("a closing tag is part of the answer".to_owned());
    }
}

fn passes(turn: &Value) {
    println!("\n  pass      prefill   cached  decoded       ms  end");
    for pass in turn["passes"].as_array().into_iter().flatten() {
        println!(
            "  {:<8} {:>8} {:>8} {:>8} {:>8.0}  {}",
            text(pass, "name"),
            count(pass, "prefill_tokens"),
            count(pass, "cached_tokens"),
            count(pass, "decode_tokens"),
            pass["duration_ms"].as_f64().unwrap_or_default(),
            text(pass, "finish_reason"),
        );
    }
}

fn next_steps(twopass: &Path) {
    let twopass = twopass.display();
    println!(
        "\nNow start the server and ask it:\n\
         \n  {twopass} serve --port 8001\n\
         \n  curl -s localhost:8001/generate -H 'content-type: application/json' -d '{{\n    \
           \"messages\": [{{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}}],\n    \
           \"max_thinking_tokens\": 64, \"max_response_tokens\": 128}}'"
    );
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

fn print_indented(text: &str) {
    for line in text.trim().lines() {
        println!("{}", format!("  {line}").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_fits_its_schema() {
        let good = json!({"city": "Paris", "days": 3, "unit": "celsius"});
        assert!(is_forecast(&good));
        let bad = [
            json!({"city": "Paris", "days": 8, "unit": "celsius"}),
            json!({"city": "Paris", "days": 3.5, "unit": "celsius"}),
            json!({"city": "Paris", "days": 3, "unit": "kelvin"}),
            json!({"city": "Paris", "days": 3}),
            json!({"city": "Paris", "days": 3, "unit": "celsius", "more": 1}),
            json!({"city": "x".repeat(41), "days": 3, "unit": "celsius"}),
            json!("Paris"),
        ];
        for arguments in bad {
            assert!(!is_forecast(&arguments), "{arguments}");
        }
    }
}
