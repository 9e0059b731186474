//! Comparing what an operation gave with the `expect` of its case.

use serde_json::{Value, json};

use crate::matchers::{check, same, shorten};

/// Keys that are no expectation themselves.
const SETTINGS: &[&str] = &[
    "exact",
    "compare",
    "errors_match",
    "panics",
    "empty_events_optional",
];

/// `Err` tells the first difference. `elapsed_ms` is the time of the slowest run.
pub(crate) fn meets(expect: &Value, actual: &Value, elapsed_ms: f64) -> Result<(), String> {
    let Value::Object(keys) = expect else {
        return Err("`expect` is no object".to_owned());
    };
    if let Some(choices) = keys.get("one_of") {
        any_of(choices, |one| meets(one, actual, elapsed_ms))?;
    }
    let text = TextRule::of(expect);
    for (key, wanted) in keys {
        if key == "one_of" || SETTINGS.contains(&key.as_str()) {
            continue;
        }
        one(key, wanted, actual, &text, expect, elapsed_ms)
            .map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(())
}

/// `max_ms` and `min_elapsed_ms`.
pub(crate) fn in_time(key: &str, wanted: &Value, elapsed_ms: f64) -> Result<(), String> {
    let limit = wanted.as_f64().ok_or("is no number")?;
    let holds = match key {
        "max_ms" => elapsed_ms <= limit,
        _ => elapsed_ms >= limit,
    };
    match holds {
        true => Ok(()),
        false => Err(format!("expected {limit}, took {elapsed_ms:.1}")),
    }
}

/// Judges the entries of a `one_of`: any may hold.
pub(crate) fn any_of(
    choices: &Value,
    judge: impl FnMut(&Value) -> Result<(), String>,
) -> Result<(), String> {
    let choices = choices.as_array().map(Vec::as_slice).unwrap_or_default();
    let results: Vec<Result<(), String>> = choices.iter().map(judge).collect();
    if results.iter().any(Result::is_ok) {
        return Ok(());
    }
    let why: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    Err(format!("none of `one_of`: {}", why.join(" | ")))
}

/// How text is compared.
struct TextRule {
    exact: bool,
    squash: bool,
}

impl TextRule {
    fn of(expect: &Value) -> Self {
        Self {
            exact: expect["exact"] == true,
            squash: expect["compare"] == "squash",
        }
    }

    fn form(&self, text: &str) -> String {
        if self.squash {
            return squash(text);
        }
        if self.exact {
            text.to_owned()
        } else {
            text.trim().to_owned()
        }
    }
}

/// White space collapsed to single spaces.
pub(crate) fn squash(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn one(
    key: &str,
    wanted: &Value,
    actual: &Value,
    text: &TextRule,
    expect: &Value,
    elapsed_ms: f64,
) -> Result<(), String> {
    let require = |holds: bool, got: &Value| {
        if holds {
            return Ok(());
        }
        Err(format!(
            "expected {}, got {}",
            shorten(&wanted.to_string()),
            shorten(&got.to_string())
        ))
    };
    match key {
        "max_ms" | "min_elapsed_ms" => in_time(key, wanted, elapsed_ms),
        "thinking" | "content" | "response" | "name" if wanted.is_string() => {
            let (holds, got) = same_text(key, wanted, actual, text);
            require(holds, got)
        }
        "thinking_contains" | "content_contains" => {
            let got = &actual[key.trim_end_matches("_contains")];
            require(strings(wanted).all(|part| holds(got, part)), got)
        }
        "thinking_not_contains" | "content_not_contains" => {
            let got = &actual[key.trim_end_matches("_not_contains")];
            require(strings(wanted).all(|part| !holds(got, part)), got)
        }
        "content_length" => {
            let got = json!(
                actual["content"]
                    .as_str()
                    .unwrap_or_default()
                    .chars()
                    .count()
            );
            check(wanted, Some(&got), actual)
        }
        "tool_calls_count" => {
            let got = json!(actual["tool_calls"].as_array().map_or(0, Vec::len));
            check(wanted, Some(&got), actual)
        }
        "tool_calls" => calls(wanted, &actual["tool_calls"]),
        "errors" => errors(
            wanted,
            &actual["errors"],
            expect["errors_match"] == "prefix",
        ),
        "value" | "schema_equals" => {
            let got = actual.get(key).unwrap_or(&Value::Null);
            require(same(wanted, got), got)
        }
        "max_bytes" => {
            let got = json!(actual["schema_equals"].to_string().len());
            require(got.as_u64() <= wanted.as_u64(), &got)
        }
        _ => check(wanted, actual.get(key), actual),
    }
}

/// Whether the text under `key` is the wanted one, and what it is.
fn same_text<'a>(
    key: &str,
    wanted: &Value,
    actual: &'a Value,
    text: &TextRule,
) -> (bool, &'a Value) {
    let exact_key = if key == "content" {
        "content_exact"
    } else {
        key
    };
    let is_exact = text.exact && actual.get(exact_key).is_some();
    let got = &actual[if is_exact { exact_key } else { key }];
    let (wanted, shown) = (
        wanted.as_str().unwrap_or_default(),
        got.as_str().unwrap_or_default(),
    );
    (text.form(shown) == text.form(wanted), got)
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    let (list, single) = match value {
        Value::Array(list) => (list.as_slice(), None),
        single => (&[][..], single.as_str()),
    };
    list.iter().filter_map(Value::as_str).chain(single)
}

fn holds(got: &Value, part: &str) -> bool {
    got.as_str().unwrap_or_default().contains(part)
}

/// Calls in order and number; arguments by deep equality.
pub(crate) fn calls(wanted: &Value, got: &Value) -> Result<(), String> {
    let (Value::Array(wanted), Value::Array(got_list)) = (wanted, got) else {
        return check(wanted, Some(got), got);
    };
    if wanted.len() != got_list.len() {
        return Err(format!(
            "expected {} calls, got {}",
            wanted.len(),
            shorten(&got.to_string())
        ));
    }
    for (idx, (wanted, got)) in wanted.iter().zip(got_list).enumerate() {
        let Value::Object(keys) = wanted else {
            continue;
        };
        for (key, wanted) in keys {
            let result = if key == "arguments" && !has_matcher(wanted) {
                if same(wanted, &got["arguments"]) {
                    Ok(())
                } else {
                    let got = shorten(&got["arguments"].to_string());
                    Err(format!(
                        "expected arguments {}, got {got}",
                        shorten(&wanted.to_string())
                    ))
                }
            } else {
                check(wanted, got.get(key), got)
            };
            result.map_err(|why| format!("call {idx}: {why}"))?;
        }
    }
    Ok(())
}

fn has_matcher(value: &Value) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| key.starts_with('$') || has_matcher(value)),
        Value::Array(items) => items.iter().any(has_matcher),
        _ => false,
    }
}

/// At least these errors; an empty list means none.
fn errors(wanted: &Value, got: &Value, prefix: bool) -> Result<(), String> {
    let (Some(wanted), Some(got_list)) = (wanted.as_array(), got.as_array()) else {
        return check(wanted, Some(got), got);
    };
    if wanted.is_empty() && !got_list.is_empty() {
        return Err(format!("expected none, got {}", shorten(&got.to_string())));
    }
    for wanted in wanted {
        let found = got_list.iter().any(|got| {
            let Value::Object(keys) = wanted else {
                return false;
            };
            keys.iter()
                .all(|(key, wanted)| match (key.as_str(), wanted) {
                    ("path", Value::String(path)) if prefix => got["path"]
                        .as_str()
                        .is_some_and(|got| got.starts_with(path.as_str())),
                    _ => check(wanted, got.get(key), got).is_ok(),
                })
        });
        if !found {
            return Err(format!(
                "expected {wanted}, got {}",
                shorten(&got.to_string())
            ));
        }
    }
    Ok(())
}
