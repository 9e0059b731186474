//! Row M5: what a small model writes at temperature 1 under a forced call is a valid call.
//!
//! `forced_calls.jsonl` has 60 schemas. A few of 500 calls are made, all of them with
//! `TWOPASS_SLOW` set (it takes hours on a busy core); the same requests with a free choice
//! show what the grammar is worth.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use twopass_core::chat::{Reply, Request, Sampling, ThinkTag, TurnBudget};
use twopass_provider::backend::{Backend, Embedded};
use twopass_provider::config::{BackendKind, EngineConfig, ToolParserName};
use twopass_provider::{ErrorKind, Message, ProviderConfig, Role, ToolChoice, ToolSpec};

const N_CALLS: usize = 500;
/// Without `TWOPASS_SLOW` every so-manyth call is made; prime to the number of schemas.
const SAMPLE: usize = 71;
const N_STREAMS: usize = 4;
/// Answers longer than this are cut off, which is no fault of the grammar.
const MAX_TOKENS: u32 = 600;
/// A free answer that has made no call by then makes none.
const FREE_MAX_TOKENS: u32 = 160;

struct Row {
    what: String,
    schema: Value,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("forced_calls.jsonl").lines();
    lines
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            Row {
                what: row["what"].as_str().unwrap().to_owned(),
                schema: row["schema"].clone(),
            }
        })
        .collect()
}

fn small_model() -> Embedded {
    let path = std::env::var_os("TWOPASS_TEST_MODEL");
    let path = PathBuf::from(path.expect("`cargo xtask test` sets it"));
    let entry = ProviderConfig {
        tool_parser: ToolParserName("hermes".to_owned()),
        engine: EngineConfig {
            threads: Some(1),
            max_streams: Some(u32::try_from(N_STREAMS).unwrap()),
            ..EngineConfig::default()
        },
        ..ProviderConfig::with_defaults("local", BackendKind::Embedded, "small")
    };
    Embedded::new(&entry, path).unwrap()
}

fn tool(schema: &Value) -> ToolSpec {
    ToolSpec {
        name: "act".to_owned(),
        description: "Does what the user asks.".to_owned(),
        parameters: schema.clone(),
    }
}

/// The call of this number: `required` and named, each with a thought and without.
fn request(row: &Row, number: usize, n_rows: usize) -> Request {
    let way = number / n_rows + number;
    let text = format!("Call the tool for this: {}. Make up the values.", row.what);
    let mut request = Request::new(vec![Message::text(Role::User, text)]);
    request.tools = vec![tool(&row.schema)];
    request.tool_choice = if way.is_multiple_of(2) {
        ToolChoice::Required
    } else {
        ToolChoice::Named("act".to_owned())
    };
    // A second call of one turn is as good as the first.
    request.parallel_tool_calls = false;
    request.budget = if (way / 2).is_multiple_of(2) {
        TurnBudget::OnePass {
            max_tokens: Some(MAX_TOKENS),
        }
    } else {
        TurnBudget::TwoPass {
            tag: ThinkTag::Think,
            max_thinking_tokens: 16,
            max_response_tokens: MAX_TOKENS,
        }
    };
    request.sampling = Sampling {
        temperature: Some(1.0),
        top_p: Some(1.0),
        top_k: Some(0),
        min_p: Some(0.0),
        seed: Some(number as u64),
        ..Sampling::default()
    };
    request
}

/// What is wrong with the reply, by the `jsonschema` crate itself, formats included.
fn fault(reply: &Reply, schema: &Value) -> Option<String> {
    let [call] = reply.tool_calls.as_slice() else {
        return Some(format!(
            "{} calls, stop {:?}, content {:?}, invalid {:?}",
            reply.tool_calls.len(),
            reply.stop_reason,
            reply.content,
            reply.invalid_tool_calls
        ));
    };
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.offline().build(schema).unwrap();
    let arguments: Value = serde_json::from_str(call.arguments.as_text()).unwrap();
    let error = validator.iter_errors(&arguments).next()?;
    Some(format!("{arguments}: {error}"))
}

async fn outcome(model: &Embedded, request: Request, schema: &Value) -> Option<String> {
    match model.open(request).await {
        Err(error) => Some(format!("engine error: {error}")),
        Ok(turn) => match turn.collect().await {
            Err(error) => Some(format!("engine error: {error}")),
            Ok(reply) => fault(&reply, schema),
        },
    }
}

/// Row M5, and must-have 1 of the engine: all valid, no engine error.
#[tokio::test(flavor = "multi_thread")]
async fn m5_forced_calls_of_sixty_schemas_are_valid() {
    let (rows, model) = (Arc::new(rows()), Arc::new(small_model()));
    let step = match std::env::var_os("TWOPASS_SLOW") {
        Some(_) => 1,
        None => SAMPLE,
    };
    let numbers = (0..N_CALLS).step_by(step);
    let n_calls = numbers.len();
    let runs = stream::iter(numbers).map(|number| {
        let (rows, model) = (Arc::clone(&rows), Arc::clone(&model));
        async move {
            let row = &rows[number % rows.len()];
            let forced = request(row, number, rows.len());
            let mut free = forced.clone();
            free.tool_choice = ToolChoice::Auto;
            free.budget = TurnBudget::OnePass {
                max_tokens: Some(FREE_MAX_TOKENS),
            };
            let at_fault = outcome(&model, forced, &row.schema).await;
            let is_free_valid = outcome(&model, free, &row.schema).await.is_none();
            let at_fault = at_fault.map(|fault| format!("{number} {}: {fault}", row.what));
            (at_fault, is_free_valid)
        }
    });
    let seen: Vec<(Option<String>, bool)> = runs.buffer_unordered(N_STREAMS).collect().await;
    let n_free = seen.iter().filter(|(_, is_valid)| *is_valid).count();
    let faults: Vec<_> = seen.into_iter().filter_map(|(fault, _)| fault).collect();
    println!(
        "valid of {n_calls}: forced {}, free {n_free}",
        n_calls - faults.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Row M5: what no grammar binds is refused by the names of tool and keyword, before any event.
#[tokio::test]
async fn m5_a_schema_that_cannot_be_bound_is_refused_by_its_keyword() {
    let model = small_model();
    let rows = [
        (
            r#"{"properties": {"a": {"type": "string", "pattern": "\\bx\\b"}}}"#,
            "pattern",
        ),
        (
            r#"{"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1}}, "required": ["a"]}"#,
            "minimum",
        ),
        (
            r#"{"properties": {"a": {"type": "integer", "minimum": 18446744073709551615}}, "required": ["a"]}"#,
            "minimum",
        ),
    ];
    for (schema, keyword) in rows {
        let row = Row {
            what: "this".to_owned(),
            schema: serde_json::from_str(schema).unwrap(),
        };
        let error = model.open(request(&row, 1, 60)).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::BadRequest, "{schema}: {error}");
        let text = error.to_string();
        assert!(text.contains(&format!("`{keyword}`")), "{text}");
        assert!(text.contains("`act`"), "{text}");
    }
}
