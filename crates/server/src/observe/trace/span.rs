//! Spans as OTLP's JSON has them.
//!
//! Sources: opentelemetry-proto 1.8, `trace.proto`, in its JSON mapping (ids in hex, 64-bit
//! numbers as text); semantic conventions 1.37 for HTTP and generative AI.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::context::new_span_id;
use super::{Pass, Traced};
use crate::observe::{Facts, OK};

const KIND_INTERNAL: u8 = 1;
const KIND_SERVER: u8 = 2;
const STATUS_ERROR: u8 = 2;

/// The request's span, then those of its passes.
pub(super) fn of_request(traced: &Traced, facts: &Facts, outcome: &'static str) -> Vec<Value> {
    let id = new_span_id();
    let mut spans = vec![request(traced, facts, outcome, &id)];
    spans.extend(traced.passes.iter().map(|each| pass(traced, each, &id)));
    spans
}

fn request(traced: &Traced, facts: &Facts, outcome: &'static str, id: &str) -> Value {
    let operation = match (&facts.provider, facts.route.as_str()) {
        (None, _) => None,
        (_, "/v1/embeddings") => Some("embeddings"),
        (_, "/v1/completions") => Some("text_completion"),
        _ => Some("chat"),
    };
    let name = match (operation, &facts.model) {
        (Some(operation), Some(model)) => format!("{operation} {model}"),
        _ => format!("{} {}", facts.method, facts.route),
    };
    let usage = &facts.usage;
    let n_written = usage.thinking_tokens + usage.response_tokens;
    let is_error = outcome != OK;
    let attributes = [
        text("http.request.method", Some(facts.method)),
        text("http.route", Some(&facts.route)),
        number("http.response.status_code", facts.status.map(u64::from)),
        text("gen_ai.operation.name", operation),
        text("gen_ai.provider.name", facts.provider.as_deref()),
        text("gen_ai.request.model", facts.model.as_deref()),
        number("gen_ai.usage.input_tokens", some(usage.prompt_tokens)),
        number("gen_ai.usage.output_tokens", some(n_written)),
        number("twopass.usage.thinking_tokens", some(usage.thinking_tokens)),
        number("twopass.usage.cached_tokens", some(usage.cached_tokens)),
        texts("gen_ai.response.finish_reasons", &traced.finish_reasons),
        text("error.type", is_error.then_some(outcome)),
        text(
            "gen_ai.input.messages",
            json_text(traced.asked.as_ref()).as_deref(),
        ),
        text("gen_ai.output.messages", answers(traced).as_deref()),
    ];
    let mut span = span(traced, id, name, (Duration::ZERO, facts.started.elapsed()));
    span["kind"] = KIND_SERVER.into();
    span["attributes"] = attributes.into_iter().flatten().collect();
    if let Some(parent) = &traced.context.parent_id {
        span["parentSpanId"] = parent.as_str().into();
    }
    if is_error {
        span["status"] = json!({"code": STATUS_ERROR});
    }
    span
}

fn pass(traced: &Traced, pass: &Pass, parent: &str) -> Value {
    let report = &pass.report;
    let attributes = [
        text("twopass.pass.name", Some(report.name)),
        text("twopass.pass.means", Some(report.means)),
        number("twopass.pass.max_tokens", report.max_tokens.map(u64::from)),
        number("twopass.pass.prefill_tokens", Some(report.prefill_tokens)),
        number("twopass.pass.cached_tokens", Some(report.cached_tokens)),
        number("gen_ai.usage.output_tokens", Some(report.decode_tokens)),
        texts(
            "gen_ai.response.finish_reasons",
            &[report.stop_reason.as_str()],
        ),
    ];
    let name = format!("pass {}", report.name);
    let mut span = span(traced, &new_span_id(), name, (pass.from, pass.to));
    span["kind"] = KIND_INTERNAL.into();
    span["parentSpanId"] = parent.into();
    span["attributes"] = attributes.into_iter().flatten().collect();
    span
}

/// A span of this trace over this time, counted from the request's beginning.
fn span(traced: &Traced, id: &str, name: String, (from, to): (Duration, Duration)) -> Value {
    let began = traced.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = |at: Duration| (began + at).as_nanos().to_string();
    json!({
        "traceId": traced.context.trace_id,
        "spanId": id,
        "name": name,
        "startTimeUnixNano": nanos(from),
        "endTimeUnixNano": nanos(to),
    })
}

fn some(n: u64) -> Option<u64> {
    Some(n).filter(|n| *n > 0)
}

fn json_text(value: Option<&Value>) -> Option<String> {
    value.map(Value::to_string)
}

fn answers(traced: &Traced) -> Option<String> {
    let answers = &traced.answers;
    (!answers.is_empty()).then(|| Value::from(answers.clone()).to_string())
}

pub(super) fn text(key: &str, value: Option<&str>) -> Option<Value> {
    Some(json!({"key": key, "value": {"stringValue": value?}}))
}

fn number(key: &str, value: Option<u64>) -> Option<Value> {
    Some(json!({"key": key, "value": {"intValue": value?.to_string()}}))
}

fn texts(key: &str, values: &[&str]) -> Option<Value> {
    let values: Vec<_> = values
        .iter()
        .map(|text| json!({"stringValue": text}))
        .collect();
    (!values.is_empty()).then(|| json!({"key": key, "value": {"arrayValue": {"values": values}}}))
}
