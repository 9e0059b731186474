//! Calls that are bound to their schemas while they are written: demanded ones, those that a
//! model opens by itself, and what no grammar can bind. Rows M5, I13.
//!
//! `bound_calls.jsonl` has 60 schemas. A few of 500 demanded calls are made, all of them with
//! `TWOPASS_SLOW` set (it takes hours on a busy core); the same requests with a free choice
//! show what the grammar is worth.

use std::sync::Arc;

use futures_util::stream::{StreamExt, iter};
use serde_json::{Value, json};
use twopass_core::chat::{
    DiagnosticKind, Message, Passthrough, Reply, Request, Role, Sampling, StopReason, ThinkTag,
    ToolChoice, ToolSpec, TurnBudget, WireFormat,
};
use twopass_core::control::OnUnboundSchema;
use twopass_provider::backend::{Backend, Embedded};
use twopass_provider::config::{BackendKind, EngineConfig, ProviderConfig};
use twopass_provider::{ErrorKind, ProviderError};

const N_CALLS: usize = 500;
/// Without `TWOPASS_SLOW` every so-manyth call is made; prime to the number of schemas.
const SAMPLE: usize = 71;
/// Turns under way at one time.
const N_STREAMS: usize = 4;
/// Calls that would be longer are brought to their end.
const MAX_TOKENS: u32 = 600;
/// A free answer that has made no call by then makes none.
const FREE_MAX_TOKENS: u32 = 160;

/// What a free turn is to repeat.
const EXAMPLE: &str = "<tool_call>\n{\"name\": \"act\", \"arguments\": {}}\n</tool_call>";

struct Row {
    what: String,
    schema: Value,
}

fn rows() -> Vec<Row> {
    let rows = include_str!("bound_calls.jsonl").lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        Row {
            what: row["what"].as_str().unwrap().to_owned(),
            schema: row["schema"].take(),
        }
    });
    rows.collect()
}

pub(crate) fn embedded(variable: &str, change: impl FnOnce(&mut ProviderConfig)) -> Embedded {
    let path = std::env::var(variable).expect("`cargo xtask test` sets it");
    let mut entry = ProviderConfig::with_defaults("local", BackendKind::Embedded, &path);
    entry.engine = EngineConfig {
        max_streams: Some(u32::try_from(N_STREAMS).unwrap()),
        // Several threads wait for each other on a busy machine.
        threads: Some(1),
        ..EngineConfig::default()
    };
    change(&mut entry);
    Embedded::new(&entry, path.into()).unwrap()
}

fn request(row: &Row, choice: ToolChoice, number: usize) -> Request {
    let text = format!("Call the tool for this: {}. Make up the values.", row.what);
    let mut request = Request::new(vec![Message::text(Role::User, text)]);
    request.tools = vec![ToolSpec {
        name: "act".to_owned(),
        description: "Does what the user asks.".to_owned(),
        parameters: row.schema.clone(),
    }];
    request.tool_choice = choice;
    // A second call of one turn is as good as the first.
    request.parallel_tool_calls = false;
    request.budget = TurnBudget::OnePass {
        max_tokens: Some(FREE_MAX_TOKENS),
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

/// The call of this number: `required` and named, each with a thought and without.
fn demanded(row: &Row, number: usize, n_rows: usize) -> Request {
    let way = number / n_rows + number;
    let choice = match way.is_multiple_of(2) {
        true => ToolChoice::Required,
        false => ToolChoice::Named("act".to_owned()),
    };
    let mut request = request(row, choice, number);
    request.budget = match (way / 2).is_multiple_of(2) {
        true => TurnBudget::OnePass {
            max_tokens: Some(MAX_TOKENS),
        },
        false => TurnBudget::TwoPass {
            tag: ThinkTag::Think,
            max_thinking_tokens: 16,
            max_response_tokens: MAX_TOKENS,
        },
    };
    request
}

async fn reply_of(model: &Embedded, request: Request) -> Result<Reply, ProviderError> {
    model.open(request).await?.collect().await
}

/// What is wrong with the arguments, by the `jsonschema` crate itself, formats included.
fn misfit(arguments: &str, schema: &Value) -> Option<String> {
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.offline().build(schema).unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let error = validator.iter_errors(&arguments).next()?;
    Some(format!("{arguments}: {error}"))
}

/// What is wrong with a demanded call.
async fn fault(model: &Embedded, request: Request, schema: &Value) -> Option<String> {
    let reply = match reply_of(model, request).await {
        Err(error) => return Some(format!("engine error: {error}")),
        Ok(reply) => reply,
    };
    let [call] = reply.tool_calls.as_slice() else {
        return Some(format!("no call, or several: {reply:?}"));
    };
    misfit(call.arguments.as_text(), schema)
}

/// All are valid, no engine error.
#[tokio::test(flavor = "multi_thread")]
async fn m5_demanded_calls_of_sixty_schemas_are_valid() {
    let rows = Arc::new(rows());
    let model = Arc::new(embedded("TWOPASS_TEST_MODEL", |_| {}));
    // Its value, if it is a number, makes every so-manyth call of them.
    let step = match std::env::var("TWOPASS_SLOW") {
        Ok(slow) => slow.parse().ok().filter(|step| *step > 0).unwrap_or(1),
        Err(_) => SAMPLE,
    };
    let numbers = (0..N_CALLS).step_by(step);
    let n_calls = numbers.len();
    let runs = iter(numbers).map(|number| {
        let (rows, model) = (Arc::clone(&rows), Arc::clone(&model));
        async move {
            let row = &rows[number % rows.len()];
            let at_fault = fault(&model, demanded(row, number, rows.len()), &row.schema).await;
            let free = request(row, ToolChoice::Auto, number);
            let is_free_valid = fault(&model, free, &row.schema).await.is_none();
            let at_fault = at_fault.map(|fault| format!("{number} {}: {fault}", row.what));
            (at_fault, is_free_valid)
        }
    });
    let mut runs = runs.buffer_unordered(N_STREAMS);
    let mut seen: Vec<(Option<String>, bool)> = Vec::new();
    while let Some(outcome) = runs.next().await {
        if let Some(fault) = &outcome.0 {
            println!("{fault}");
        }
        seen.push(outcome);
        if seen.len().is_multiple_of(20) {
            let n_faults = seen.iter().filter(|(fault, _)| fault.is_some()).count();
            println!("{} of {n_calls} made, {n_faults} at fault", seen.len());
        }
    }
    let n_free = seen.iter().filter(|(_, is_valid)| *is_valid).count();
    let faults: Vec<_> = seen.into_iter().filter_map(|(fault, _)| fault).collect();
    println!(
        "valid of {n_calls}: demanded {}, free {n_free}",
        n_calls - faults.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What could go on for ever ends within a small cap, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn m5_a_call_ends_before_its_cap() {
    let model = embedded("TWOPASS_TEST_MODEL", |_| {});
    let endless = ["recursive $ref, a list that may end", "free JSON"];
    let listed = rows().into_iter();
    let mut rows: Vec<Row> = listed
        .filter(|row| endless.contains(&row.what.as_str()))
        .collect();
    let texts = json!({"type": "object", "additionalProperties": false,
        "properties": {"first_name": {"type": "string"}, "second_name": {"type": "string"},
            "is_true": {"type": "boolean"}, "mood": {"enum": ["positive", "negative"]}},
        "required": ["first_name", "second_name", "is_true", "mood"]});
    rows.push(Row {
        what: "people".to_owned(),
        schema: json!({"type": "object", "required": ["all"],
            "properties": {"all": {"type": "array", "items": texts}}}),
    });
    let mut n_hurried = 0;
    for (row, seed) in rows
        .iter()
        .flat_map(|row| (0..3).map(move |seed| (row, seed)))
    {
        let mut request = request(row, ToolChoice::Required, seed);
        request.logprobs = (seed == 1).then_some(0);
        request.parallel_tool_calls = seed == 2;
        request.budget = TurnBudget::OnePass {
            max_tokens: Some(64),
        };
        let reply = reply_of(&model, request).await.unwrap();
        assert_eq!(reply.invalid_tool_calls, [], "{}, {seed}", row.what);
        assert!(
            !reply.tool_calls.is_empty(),
            "{}, {seed}: {reply:?}",
            row.what
        );
        for call in &reply.tool_calls {
            assert_eq!(misfit(call.arguments.as_text(), &row.schema), None);
        }
        n_hurried += usize::from(is_hurried(&reply));
    }
    assert!(n_hurried > 0, "no call was long enough to show anything");
}

/// Where a string is to come whose end no walk finds, nothing before it is hurried, however
/// small the cap: it is what it is with a large one.
#[tokio::test(flavor = "multi_thread")]
async fn m5_what_no_walk_leaves_is_left_alone() {
    let model = embedded("TWOPASS_TEST_MODEL", |_| {});
    let mail = json!({"type": "string", "format": "email"});
    let row = Row {
        what: "send a mail".to_owned(),
        schema: json!({"type": "object", "required": ["to", "text"],
            "properties": {"text": {"type": "string"}, "to": mail}}),
    };
    let written = async |seed, cap| {
        let mut request = request(&row, ToolChoice::Required, seed);
        request.budget = TurnBudget::OnePass {
            max_tokens: Some(cap),
        };
        let reply = reply_of(&model, request).await.unwrap();
        let valid = reply.tool_calls.iter();
        let valid = valid.map(|call| call.arguments.as_text().to_owned());
        let cut = reply.invalid_tool_calls.iter();
        let mut all = valid.chain(cut.map(|call| call.arguments.clone()));
        all.next().unwrap_or_else(|| panic!("no call: {reply:?}"))
    };
    // The prompt is in the cache then, for all of them alike.
    written(0, 24).await;
    for seed in 0..3 {
        let (short, long) = (written(seed, 24).await, written(seed, 120).await);
        let before = short.split(r#"", "to""#).next().unwrap_or_default();
        assert!(before.starts_with(r#"{"text": ""#), "{short}");
        assert!(long.starts_with(before), "{short}\n{long}");
    }
}

fn is_hurried(reply: &Reply) -> bool {
    let mut notes = reply.diagnostics.iter();
    notes.any(|note| {
        note.kind == DiagnosticKind::LimitReached && note.message.contains("few tokens")
    })
}

/// Runs free turns; returns how many calls were opened, and the faults.
async fn run_free(model: &Embedded, n_turns: usize) -> (usize, Vec<String>) {
    let rows = Arc::new(rows());
    let turns = iter(0..n_turns).map(|number| {
        let rows = Arc::clone(&rows);
        async move {
            // Seven has no factor in common with 60: each schema comes once.
            let row = &rows[number * 7 % rows.len()];
            let mut request = request(row, ToolChoice::Auto, number);
            // A model of this size opens a call by itself where it is to repeat one.
            let text = format!("Repeat this text exactly:\n{EXAMPLE}");
            request.messages = vec![Message::text(Role::User, text)];
            request.sampling.temperature = Some(0.0);
            let reply = reply_of(model, request).await.unwrap();
            let n_opened = reply.tool_calls.len() + reply.invalid_tool_calls.len();
            let fault = free_fault(row, &reply);
            let fault = fault.map(|fault| format!("{} (turn {number}): {fault}", row.what));
            (n_opened, fault)
        }
    });
    let seen: Vec<(usize, Option<String>)> = turns.buffer_unordered(N_STREAMS).collect().await;
    let n_opened = seen.iter().map(|(n_opened, _)| n_opened).sum();
    (
        n_opened,
        seen.into_iter().filter_map(|(_, fault)| fault).collect(),
    )
}

/// What is wrong with the calls of a free turn; one that the cap cut is none.
fn free_fault(row: &Row, reply: &Reply) -> Option<String> {
    let is_cut = reply.stop_reason == StopReason::Length;
    if let Some(call) = reply.invalid_tool_calls.first().filter(|_| !is_cut) {
        return Some(format!("invalid: {call:?}"));
    }
    let mut calls = reply.tool_calls.iter();
    calls.find_map(|call| misfit(call.arguments.as_text(), &row.schema))
}

/// What the model opens by itself is bound, what it says besides is its own.
#[tokio::test(flavor = "multi_thread")]
async fn m5_i13_calls_of_free_turns_fit_their_schemas() {
    let model = embedded("TWOPASS_TEST_MODEL", |_| {});
    let n_turns = match std::env::var_os("TWOPASS_SLOW") {
        Some(_) => 60,
        None => 6,
    };
    let (n_opened, faults) = run_free(&model, n_turns).await;
    assert!(n_opened > 0, "no call was opened in {n_turns} turns");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn demanding(schema: Value) -> Request {
    let what = "this".to_owned();
    request(&Row { what, schema }, ToolChoice::Required, 1)
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
            object(json!({"type": "string", "pattern": "\\bx\\b"})),
            "`pattern` at `/properties/a`",
        ),
        (
            object(json!({"type": "integer", "minimum": 18_446_744_073_709_551_615_u64})),
            "`minimum` at `/properties/a`",
        ),
        (
            object(json!({"type": "integer", "minimum": 3, "maximum": 2})),
            "`minimum` at `/properties/a`",
        ),
        (
            object(json!({"type": "array", "minItems": 3, "maxItems": 2})),
            "`minItems` at `/properties/a`",
        ),
        (
            object(json!({"type": "number", "multipleOf": 1e-10})),
            "`multipleOf` at `/properties/a`",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
            "`$ref` at `/properties/a`",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/x-more"}},
                "x-more": {"not": {}}}),
            "`not` at `/x-more`",
        ),
    ];
    for (schema, expect) in rows {
        let mut request = demanding(schema.clone());
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
        assert!(error.to_string().contains("`act`"), "{error}");
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

/// What fits one value only is written; what a grammar of doubles would let through is not.
#[tokio::test]
async fn m5_calls_fit_what_is_easily_read_wrongly() {
    let model = embedded("TWOPASS_TEST_QWEN3", |_| {});
    let big = 9_007_199_254_740_993_u64;
    let object =
        |member: Value| json!({"type": "object", "properties": {"a": member}, "required": ["a"]});
    let rows = [
        object(json!({"type": ["integer", "null"], "minimum": big, "maximum": big + 6})),
        object(json!({"type": "number", "minimum": big, "maximum": big + 6})),
        object(json!({"type": "string", "minLength": 2.0, "maxLength": 2.0})),
        json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a", "b"],
            "patternProperties": {"^b$": {"const": 2}}}),
    ];
    for schema in rows {
        let fault = fault(&model, demanding(schema.clone()), &schema).await;
        assert_eq!(fault, None, "{schema}");
    }
}

/// A grammar that breaks while it is written names its tool, or the turn goes on without.
#[tokio::test]
async fn m5_a_call_that_cannot_go_on_is_named_or_only_checked() {
    // No member is demanded twice, so that the recursion shows only while it is written.
    let schema = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}},
        "required": ["n"],
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]},
            "b": {"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}}, "required": ["n"]}}});
    let mut request = demanding(schema);
    request.budget = TurnBudget::OnePass {
        max_tokens: Some(60),
    };
    let refusing = embedded("TWOPASS_TEST_QWEN3", |_| {});
    let error = reply_of(&refusing, request.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest, "{error}");
    assert_eq!(error.param(), Some("tools[0].parameters"), "{error}");
    assert!(error.to_string().contains("the call of `act`"), "{error}");
    assert!(error.to_string().contains("because of `"), "{error}");
    let checking = embedded("TWOPASS_TEST_QWEN3", |entry| {
        entry.decisions.on_unbound_schema = OnUnboundSchema::Check;
    });
    let reply = reply_of(&checking, request).await.unwrap();
    let notes = &reply.diagnostics;
    let mut kinds = notes.iter().map(|note| note.kind);
    assert!(
        kinds.any(|kind| kind == DiagnosticKind::Degraded),
        "{notes:?}"
    );
}

/// A schema that is easily bound wrongly: what a demanded call of it comes to.
#[derive(serde::Deserialize)]
struct Edge {
    schema: Value,
    /// The keyword that the refusal names; without one the call is valid.
    refused: Option<String>,
}

/// What is wrong with the outcome of a demanded call.
async fn edge_fault(model: &Embedded, edge: &Edge, seed: usize) -> Option<String> {
    let what = "this".to_owned();
    let row = Row {
        what,
        schema: edge.schema.clone(),
    };
    let mut request = request(&row, ToolChoice::Required, seed);
    request.budget = TurnBudget::OnePass {
        max_tokens: Some(MAX_TOKENS),
    };
    let outcome = match (reply_of(model, request).await, &edge.refused) {
        (Err(error), Some(keyword)) => {
            let is_named = error.kind() == ErrorKind::BadRequest
                && error.to_string().contains(&format!("`{keyword}`"));
            (!is_named).then(|| format!("not refused by name: {error}"))
        }
        (Err(error), None) => Some(format!("engine error: {error}")),
        (Ok(reply), refused) => match reply.tool_calls.as_slice() {
            [call] if refused.is_none() => misfit(call.arguments.as_text(), &edge.schema),
            _ => Some(format!("no call, or one that was to be refused: {reply:?}")),
        },
    };
    outcome.map(|fault| format!("{} (seed {seed}): {fault}", edge.schema))
}

/// Every schema gives a valid call or an error that names the keyword.
#[tokio::test(flavor = "multi_thread")]
async fn m5_schemas_easily_bound_wrongly() {
    let model = embedded("TWOPASS_TEST_QWEN3", |_| {});
    let n_seeds = match std::env::var_os("TWOPASS_SLOW") {
        Some(_) => 20,
        None => 1,
    };
    let edges = include_str!("bound_edges.jsonl").lines();
    let edges: Vec<Edge> = edges
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let runs = edges
        .iter()
        .flat_map(|edge| (0..n_seeds).map(move |seed| (edge, seed)));
    let runs = iter(runs).map(|(edge, seed)| edge_fault(&model, edge, seed));
    let faults: Vec<_> = runs.buffer_unordered(N_STREAMS).collect().await;
    let faults: Vec<_> = faults.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
