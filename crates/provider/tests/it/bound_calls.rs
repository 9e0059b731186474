//! Calls of free turns, and schemas that no grammar binds, on the embedded engine.
//! Rows M5, I13.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::iter;
use serde_json::{Value, json};
use twopass_core::chat::{
    DiagnosticKind, Message, Passthrough, Reply, Request, Role, Sampling, StopReason, ToolChoice,
    ToolSpec, TurnBudget, WireFormat,
};
use twopass_core::control::OnUnboundSchema;
use twopass_provider::backend::{Backend, Embedded, TurnItem};
use twopass_provider::config::{BackendKind, EngineConfig, ProviderConfig};
use twopass_provider::{ErrorKind, ProviderError};

const SCHEMAS: &str = include_str!("forced_calls.jsonl");
/// Turns under way at one time.
const STREAMS: usize = 8;
/// The cap of a turn that may say anything.
const FREE_TOKENS: u32 = 96;

struct Case {
    ask: String,
    tool: ToolSpec,
}

fn cases() -> Vec<Case> {
    let rows = SCHEMAS.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        Case {
            ask: row["what"].as_str().unwrap().to_owned(),
            tool: ToolSpec {
                name: "act".to_owned(),
                description: String::new(),
                parameters: row["schema"].take(),
            },
        }
    });
    rows.collect()
}

fn model_path(variable: &str) -> String {
    std::env::var(variable).expect("`cargo xtask test` sets it")
}

fn embedded(variable: &str, change: impl FnOnce(&mut ProviderConfig)) -> Embedded {
    let path = model_path(variable);
    let mut entry = ProviderConfig::with_defaults("local", BackendKind::Embedded, &path);
    entry.engine = EngineConfig {
        max_streams: Some(8),
        // Several threads wait for each other on a busy machine.
        threads: Some(1),
        ..EngineConfig::default()
    };
    change(&mut entry);
    Embedded::new(&entry, path.into()).unwrap()
}

/// The whole reply of one turn.
async fn reply_of(backend: &dyn Backend, request: Request) -> Result<Reply, ProviderError> {
    let mut turn = backend.open(request).await?;
    while let Some(item) = turn.next().await {
        if let TurnItem::Done(reply) = item? {
            return Ok(*reply);
        }
    }
    panic!("a turn ended without its reply")
}

fn request(case: &Case, choice: ToolChoice, seed: usize) -> Request {
    let mut request = Request::new(vec![Message::text(Role::User, &case.ask)]);
    request.tools = vec![case.tool.clone()];
    request.tool_choice = choice;
    request.budget = TurnBudget::OnePass {
        max_tokens: Some(FREE_TOKENS),
    };
    request.sampling = Sampling {
        temperature: Some(1.0),
        top_p: Some(1.0),
        top_k: Some(0),
        min_p: Some(0.0),
        seed: Some(seed as u64),
        ..Sampling::default()
    };
    request
}

/// Runs free turns; returns the faults.
async fn run(backend: &Embedded, n_turns: usize) -> Vec<String> {
    let cases = Arc::new(cases());
    let turns = iter(0..n_turns).map(|n| {
        let cases = Arc::clone(&cases);
        async move {
            let case = &cases[n * 7 % cases.len()];
            let fault = match reply_of(backend, request(case, ToolChoice::Auto, n)).await {
                Ok(reply) => lazy_fault(case, &reply),
                Err(error) => Some(error.to_string()),
            };
            fault.map(|fault| format!("{} (turn {n}): {fault}", case.ask))
        }
    });
    let faults: Vec<Option<String>> = turns.buffer_unordered(STREAMS).collect().await;
    faults.into_iter().flatten().collect()
}

/// What is wrong with the calls of a free turn; one that the cap cut is none.
fn lazy_fault(case: &Case, reply: &Reply) -> Option<String> {
    let is_cut = reply.stop_reason == StopReason::Length;
    let invalid = reply.invalid_tool_calls.first();
    if let Some(call) = invalid.filter(|_| !is_cut) {
        return Some(format!("invalid: {call:?}"));
    }
    let schema = jsonschema::validator_for(&case.tool.parameters).unwrap();
    reply.tool_calls.iter().find_map(|call| {
        let arguments = serde_json::from_str(call.arguments.as_text()).unwrap();
        let broken = schema.validate(&arguments).err()?;
        Some(format!("invalid: {broken} in {arguments}"))
    })
}

/// What the model opens by itself is bound, what it says besides is its own.
#[tokio::test]
async fn m5_i13_calls_of_free_turns_fit_their_schemas() {
    let backend = embedded("TWOPASS_TEST_MODEL", |_| {});
    let n_turns = match std::env::var_os("TWOPASS_SLOW") {
        Some(_) => 180,
        None => 6,
    };
    let faults = run(&backend, n_turns).await;
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

fn asking(parameters: Value) -> Request {
    let case = Case {
        ask: "Go on.".to_owned(),
        tool: ToolSpec {
            name: "go".to_owned(),
            description: String::new(),
            parameters,
        },
    };
    request(&case, ToolChoice::Required, 1)
}

/// What no grammar binds is refused by name; with `on_unbound_schema: check`, in the
/// configuration or the request, it is checked afterwards instead.
#[tokio::test]
async fn m5_unbound_keywords_are_refused_or_checked() {
    let refusing = embedded("TWOPASS_TEST_QWEN3", |_| {});
    let checking = embedded("TWOPASS_TEST_QWEN3", |entry| {
        entry.decisions.on_unbound_schema = OnUnboundSchema::Check;
    });
    let object =
        |member: Value| json!({"type": "object", "properties": {"a": member}, "required": ["a"]});
    let rows = [
        (
            object(json!({"type": "array", "uniqueItems": true})),
            "`uniqueItems` at `/properties/a`",
        ),
        (
            object(json!({"not": {"type": "string"}})),
            "`not` at `/properties/a`",
        ),
        (
            object(json!({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 2}]})),
            "`oneOf` at `/properties/a`",
        ),
        (
            object(json!({"const": 9_007_199_254_740_993_u64})),
            "`const` at `/properties/a`",
        ),
        // These do not compile.
        (
            object(json!({"type": "integer", "minimum": 3, "maximum": 2})),
            "`minimum` at `/properties/a`",
        ),
        (
            object(json!({"type": "array", "minItems": 3, "maxItems": 2})),
            "`minItems` at `/properties/a`",
        ),
    ];
    for (schema, expect) in rows {
        let mut request = asking(schema.clone());
        // One token is enough to see that the turn begins.
        request.budget = TurnBudget::OnePass {
            max_tokens: Some(1),
        };
        let refused = reply_of(&refusing, request.clone()).await;
        let checked = reply_of(&checking, request.clone()).await;
        let Err(error) = refused else {
            panic!("not refused: {schema}");
        };
        assert_eq!(error.kind(), ErrorKind::BadRequest, "{error}");
        assert_eq!(error.param(), Some("tools[0].parameters"), "{error}");
        assert!(error.to_string().contains("`go`"), "{error}");
        assert!(error.to_string().contains(expect), "{error}");
        let notes = checked.unwrap().diagnostics;
        assert!(
            notes
                .iter()
                .any(|note| note.kind == DiagnosticKind::Degraded),
            "{notes:?}"
        );
        let field = ("on_unbound_schema".to_owned(), "\"check\"".to_owned());
        request.passthrough = Passthrough::of(WireFormat::ChatCompletions, vec![field]);
        reply_of(&refusing, request.clone()).await.unwrap();
        request.passthrough.as_mut().unwrap().fields[0].1 = "\"maybe\"".to_owned();
        let error = reply_of(&refusing, request).await.unwrap_err();
        assert_eq!(error.param(), Some("on_unbound_schema"), "{error}");
    }
}
