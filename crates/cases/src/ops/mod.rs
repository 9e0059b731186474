//! One adapter for each operation of the case files.

mod agent;
mod client;
mod config;
mod embeddings;
mod live;
mod outcome;
mod parse;
mod render;
mod schema;
mod server;
mod sse;
mod two_pass;
mod values;

use serde_json::Value;

use crate::Verdict;

pub(crate) use client::{Format, message_of};
pub(crate) use live::{provider, runtime};
pub(crate) use parse::{Parsed, run_cuttings};

/// Runs a case with an `op`.
pub(crate) fn run(case: &Value) -> Verdict {
    let component = case["component"].as_str().unwrap_or_default();
    let op = case["input"]["op"].as_str().unwrap_or_default();
    match (component, op) {
        ("think_parser", "split") => parse::split(case),
        ("think_parser", "two_pass") => two_pass::two_pass(case),
        ("think_parser", "single_pass_stop") => two_pass::single_pass_stop(case),
        ("tool_parser", "render_history") => render::history(case),
        ("tool_parser", "extract" | "extract_turn") => parse::extract(case),
        ("tool_parser", "split_channels") => parse::split_channels(case),
        ("tool_parser", "decode_arguments") => values::decode_arguments(case),
        ("tool_parser", "normalize_name") => values::normalize(case),
        ("schema", "validate") => schema::validate(case),
        ("schema", "inline_refs") => schema::inline(case),
        ("schema", "to_provider") => schema::provider_form(case),
        ("sse", "parse_events") => sse::parse_events(case),
        ("embeddings", "embed") => embeddings::run(case),
        ("config", "resolve" | "load") => config::run(case),
        ("server", "http" | "http_sequence") => server::run(case),
        ("agent", "run") => agent::run(case),
        (component, op) => match (Format::of_component(component), op) {
            (Some(format), "build_request") => client::build_request(format, case),
            (Some(format), "stream" | "complete" | "roundtrip" | "roundtrip_tool_name") => {
                live::run(format, case)
            }
            _ => Verdict::Failed(format!("`{component}` has no operation `{op}`")),
        },
    }
}
