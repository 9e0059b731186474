use std::time::Instant;

use serde_json::{Value, json};
use twopass_core::schema::{CompiledSchema, ProviderForm, Violation, inline_refs, to_provider};

use super::values::verdict;
use crate::Verdict;
use crate::case::value_of;

pub(super) fn validate(case: &Value) -> Verdict {
    let input = &case["input"];
    let started = Instant::now();
    let bad = |kind: &str, message: String| json!({"valid": false, "error_kind": kind, "message": message, "errors": []});
    let actual = match (value_of(input, "schema"), value_of(input, "value")) {
        (Err(error), _) => bad("bad_schema", error),
        (_, Err(error)) => bad("malformed_arguments", error),
        (Ok(schema), Ok(value)) => match CompiledSchema::new(&schema) {
            Err(error) => bad("bad_schema", error.to_string()),
            Ok(schema) => {
                let (value, violations) = if input["coerce"] == true {
                    let (coerced, violations) = schema.check_coerced(&value);
                    (coerced.unwrap_or(value), violations)
                } else {
                    let violations = schema.check(&value);
                    (value, violations)
                };
                let errors: Vec<Value> = violations.iter().map(error_of).collect();
                json!({"valid": errors.is_empty(), "value": value, "errors": errors})
            }
        },
    };
    verdict(case, &actual, started)
}

fn error_of(violation: &Violation) -> Value {
    json!({"path": violation.path, "keyword": violation.keyword, "message": violation.message})
}

pub(super) fn inline(case: &Value) -> Verdict {
    let started = Instant::now();
    let actual = match value_of(&case["input"], "schema") {
        Err(error) => json!({"error_kind": "bad_schema", "message": error}),
        Ok(schema) => {
            let inlined = inline_refs(&schema);
            json!({"no_dangling_refs_or_kept_defs": refs_resolve(&inlined, &inlined), "schema_equals": inlined})
        }
    };
    verdict(case, &actual, started)
}

/// True if every local reference in `part` leads somewhere in `root`.
fn refs_resolve(part: &Value, root: &Value) -> bool {
    match part {
        Value::Array(items) => items.iter().all(|item| refs_resolve(item, root)),
        Value::Object(members) => {
            let resolves = match members.get("$ref") {
                Some(Value::String(reference)) => reference
                    .strip_prefix('#')
                    .is_some_and(|pointer| root.pointer(pointer).is_some()),
                _ => true,
            };
            resolves && members.values().all(|value| refs_resolve(value, root))
        }
        _ => true,
    }
}

pub(super) fn provider_form(case: &Value) -> Verdict {
    let input = &case["input"];
    let started = Instant::now();
    let form = match input.get("dialect").and_then(Value::as_str) {
        None => ProviderForm::JsonSchema,
        Some(name) => match ProviderForm::from_name(name) {
            Some(form) => form,
            None => return Verdict::Failed(format!("no provider form `{name}`")),
        },
    };
    let actual = match value_of(input, "schema") {
        Err(error) => json!({"error_kind": "bad_schema", "message": error}),
        Ok(schema) => json!({"schema_equals": to_provider(&schema, form)}),
    };
    verdict(case, &actual, started)
}
