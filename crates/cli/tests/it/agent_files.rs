//! An agent of a real small model that works with files, here and behind a server of ours.
//! Rows I9, I10, M5.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use twopass_agent::{AgentOptions, EndReason, Kind, LoopOptions, Parts, Rules};
use twopass_core::chat::{Sampling, ToolSpec};
use twopass_provider::config::Environment;
use twopass_provider::{CallOptions, Provider, Service, Thinking};
use twopass_tools::{FnTool, Policy, Sandbox, ToolContext, ToolRegistry, Workspace, builtin};

use crate::agent_models::{embedded, play, serve};

const STEPS: [&str; 3] = ["create_file", "edit_file", "search_codebase"];

/// The built-in tools with arguments that a model of 135 million parameters cannot miss.
fn narrow() -> ToolRegistry {
    let whole = ToolRegistry::new();
    builtin::register(&whole, Sandbox::default()).unwrap();
    let one = |text: &str| json!({"type": "string", "enum": [text]});
    let rows = [
        (
            "create_file",
            json!({"file_path": one("notes.txt"), "content": one("alpha beta\n")}),
        ),
        (
            "edit_file",
            json!({"file_path": one("notes.txt"), "old_string": one("beta"), "new_string": one("gamma")}),
        ),
        ("search_codebase", json!({"pattern": one("gamma")})),
    ];
    let narrow = ToolRegistry::new();
    for (name, properties) in rows {
        let tool = whole.get(name).unwrap();
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        let spec = ToolSpec {
            name: name.to_owned(),
            description: name.replace('_', " "),
            parameters: json!({
                "type": "object", "properties": properties, "required": required,
                "additionalProperties": false,
            }),
        };
        let effect = tool.effect();
        let narrowed = FnTool::new(spec, effect, move |arguments, context| {
            let (tool, context) = (Arc::clone(&tool), context.clone());
            async move { tool.run(arguments, &context).await }
        });
        narrow.add(Arc::new(narrowed)).unwrap();
    }
    narrow.set_default_policy(Policy::Auto);
    narrow
}

fn parts(provider: Provider, folder: &Path) -> Parts {
    let rules = Rules {
        required_steps: STEPS.map(str::to_owned).into(),
        force_required: true,
        rescue: false,
        ..Rules::default()
    };
    let sampling = Sampling {
        seed: Some(7),
        temperature: Some(0.0),
        ..Sampling::default()
    };
    Parts {
        provider,
        tools: Arc::new(narrow()),
        context: ToolContext::new(Workspace::open(folder).unwrap()),
        options: AgentOptions {
            turns: LoopOptions {
                rules,
                ..LoopOptions::default()
            },
            call: CallOptions {
                thinking: Thinking::On,
                max_thinking_tokens: Some(8),
                max_response_tokens: Some(160),
                sampling,
                ..CallOptions::default()
            },
            instructions: None,
        },
    }
}

/// Which lines a trace has up to its last call, and what each of them must hold: thoughts, calls that are whole,
/// results that are none of failure.
fn checked(lines: &[Value]) -> Vec<(String, String)> {
    let of = |event: &'static str| lines.iter().filter(move |line| line["event"] == event);
    let results: Vec<&Value> = of("tool_result").collect();
    let names: Vec<&str> = results
        .iter()
        .map(|line| line["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, STEPS, "{lines:#?}");
    assert!(
        results.iter().all(|line| line["is_error"] == false),
        "{lines:#?}"
    );
    let found = results[2]["content"].as_str().unwrap();
    assert!(found.contains("notes.txt"), "{found}");
    let mut thoughts = of("turn").map(|line| line["thinking"].as_str().unwrap());
    assert!(
        thoughts.by_ref().take(3).all(|thought| !thought.is_empty()),
        "{lines:#?}"
    );
    assert_eq!(lines.last().unwrap()["event"], "end", "{lines:#?}");
    // What such a model says once it is free may need a nudge.
    let is_result = |line: &Value| line["event"] == "tool_result";
    let n_bound = 1 + lines.iter().rposition(is_result).unwrap();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let shape = lines[..n_bound].iter();
    shape
        .map(|line| (text(line, "event"), text(line, "name")))
        .collect()
}

// The model is bound to a call of each tool in turn: it creates a file, edits it, finds it and
// answers. A model behind a server leaves the same trace.
#[tokio::test(flavor = "multi_thread")]
async fn i9_i10_the_small_model_works_with_files() {
    let local = embedded("TWOPASS_TEST_MODEL", None);
    let (url, serving) = serve(local.clone()).await;
    let connected = Service::connect(&url, None, &Environment::of_pairs([])).await;
    let mut shapes = Vec::new();
    for provider in [local, connected.unwrap().provider] {
        let folder = tempfile::tempdir().unwrap();
        let parts = parts(provider, folder.path());
        let played = play(Kind::Vanilla, parts, "Make notes.txt, then say hello.").await;
        shapes.push(checked(&played.lines));
        let (outcome, lines) = (&played.outcome, &played.lines);
        assert_eq!(outcome.end, EndReason::Answer, "{lines:#?}");
        assert!(!outcome.answer.trim().is_empty(), "{lines:#?}");
        let text = std::fs::read_to_string(folder.path().join("notes.txt")).unwrap();
        assert_eq!(text, "alpha gamma\n");
    }
    assert_eq!(shapes[0], shapes[1]);
    serving.abort();
}
