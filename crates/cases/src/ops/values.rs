use std::time::Instant;

use serde_json::{Value, json};
use twopass_core::schema::CompiledSchema;
use twopass_core::text::decode_arguments as decode;
use twopass_core::tool_parser::normalize_name;

use crate::Verdict;
use crate::case::{call_rules_of, text_of, tools_of};
use crate::expect::meets;

/// Judges one result.
pub(super) fn verdict(case: &Value, actual: &Value, started: Instant) -> Verdict {
    let elapsed_ms = started.elapsed().as_secs_f64() * 1000.0;
    match meets(&case["expect"], actual, elapsed_ms) {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(why),
    }
}

pub(super) fn decode_arguments(case: &Value) -> Verdict {
    let input = &case["input"];
    let raw = text_of(input, "raw").unwrap_or_default();
    let limits = call_rules_of(input).limits.arguments;
    let started = Instant::now();
    let actual = match decode(&raw, &limits) {
        Err(error) => {
            json!({"ok": false, "error_kind": error.kind.as_str(), "message": error.message})
        }
        Ok(decoded) => {
            let mut value = Value::Object(decoded.object);
            let schema = input.get("schema").map(CompiledSchema::new);
            let violations = match schema {
                None => Vec::new(),
                Some(Err(error)) => return Verdict::Failed(error.to_string()),
                Some(Ok(schema)) => {
                    let (coerced, violations) = schema.check_coerced(&value);
                    value = coerced.unwrap_or(value);
                    violations
                }
            };
            match violations.first() {
                None => json!({"ok": true, "value": value, "repaired": decoded.repaired}),
                Some(first) => json!({
                    "ok": false, "error_kind": "schema_violation", "path": first.path, "value": value,
                    "errors": [{"kind": "schema_violation", "path": first.path, "keyword": first.keyword}],
                }),
            }
        }
    };
    verdict(case, &actual, started)
}

pub(super) fn normalize(case: &Value) -> Verdict {
    let input = &case["input"];
    let tools = tools_of(input);
    let name = input["name"].as_str().unwrap_or_default();
    let started = Instant::now();
    let known: Vec<&str> = tools.iter().flat_map(|tools| tools.names()).collect();
    let actual = json!({"name": normalize_name(name, known.iter().copied())});
    verdict(case, &actual, started)
}
