//! Comparing an actual value with an expected one that may hold matchers.

use regex::Regex;
use serde_json::{Map, Value};
use twopass_core::text::prefix_within;

/// `Err` tells where and how `actual` differs. Objects match if all expected keys match;
/// `root` is the value that `$gt_pointer` looks into.
pub(crate) fn check(expected: &Value, actual: Option<&Value>, root: &Value) -> Result<(), String> {
    at(expected, actual, root, "")
}

fn at(expected: &Value, actual: Option<&Value>, root: &Value, path: &str) -> Result<(), String> {
    if let Value::Object(members) = expected
        && members.keys().any(|key| key.starts_with('$'))
    {
        return matcher(members, actual, root).map_err(|why| format!("at `{path}`: {why}"));
    }
    let wrong = || {
        let shown = actual.map_or_else(
            || "nothing".to_owned(),
            |actual| shorten(&actual.to_string()),
        );
        Err(format!(
            "at `{path}`: expected {}, got {shown}",
            shorten(&expected.to_string())
        ))
    };
    let Some(actual) = actual else { return wrong() };
    match (expected, actual) {
        (Value::Object(members), Value::Object(_)) => {
            for (key, value) in members {
                at(value, actual.get(key), root, &format!("{path}/{key}"))?;
            }
            Ok(())
        }
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                return wrong();
            }
            for (idx, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                at(wanted, Some(got), root, &format!("{path}/{idx}"))?;
            }
            Ok(())
        }
        _ if same(expected, actual) => Ok(()),
        _ => wrong(),
    }
}

/// Deep equality in which 1 and 1.0 are one number and the order of keys does not matter.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

fn matcher(
    members: &Map<String, Value>,
    actual: Option<&Value>,
    root: &Value,
) -> Result<(), String> {
    for (name, wanted) in members {
        let shown = actual.map_or_else(
            || "nothing".to_owned(),
            |actual| shorten(&actual.to_string()),
        );
        if !one_matcher(name, wanted, actual, root)? {
            return Err(format!(
                "{name} {} does not hold for {shown}",
                shorten(&wanted.to_string())
            ));
        }
    }
    Ok(())
}

fn one_matcher(
    name: &str,
    wanted: &Value,
    actual: Option<&Value>,
    root: &Value,
) -> Result<bool, String> {
    let regex = |pattern: &Value| {
        Regex::new(pattern.as_str().unwrap_or_default())
            .map_err(|error| format!("bad pattern in the case: {error}"))
    };
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    Ok(match name {
        "$nonempty" => is_empty(actual) != wanted.as_bool().unwrap_or(true),
        "$contains" => contains(actual, wanted),
        "$contains_all" => wanted
            .as_array()
            .is_some_and(|all| all.iter().all(|one| contains(actual, one))),
        "$not_contains" => match wanted {
            Value::Array(all) => all.iter().all(|one| !contains(actual, one)),
            one => !contains(actual, one),
        },
        "$regex" => {
            let regex = regex(wanted)?;
            actual
                .and_then(Value::as_str)
                .is_some_and(|text| regex.is_match(text))
        }
        "$max_len" => {
            let len = match actual {
                Some(Value::String(text)) => text.chars().count(),
                Some(Value::Array(items)) => items.len(),
                _ => 0,
            };
            wanted.as_u64().is_some_and(|most| len as u64 <= most)
        }
        "$gte" => number(actual)
            .zip(wanted.as_f64())
            .is_some_and(|(actual, wanted)| actual >= wanted),
        "$lte" => number(actual)
            .zip(wanted.as_f64())
            .is_some_and(|(actual, wanted)| actual <= wanted),
        "$in" => {
            let among = wanted.as_array().zip(actual);
            among.is_some_and(|(all, actual)| all.iter().any(|one| same(one, actual)))
        }
        "$json_object" => {
            let text = actual.and_then(Value::as_str);
            let is_object =
                text.is_some_and(|text| serde_json::from_str::<Map<String, Value>>(text).is_ok());
            is_object == wanted.as_bool().unwrap_or(true)
        }
        "$gt_pointer" => {
            let other = wanted.as_str().and_then(|pointer| root.pointer(pointer));
            number(actual)
                .zip(number(other))
                .is_some_and(|(actual, other)| actual > other)
        }
        "$absent_or_equals" => actual.is_none_or(|actual| actual.is_null() || same(actual, wanted)),
        "$absent_or_regex" => {
            let regex = regex(wanted)?;
            actual.is_none_or(|actual| {
                actual.is_null() || actual.as_str().is_some_and(|text| regex.is_match(text))
            })
        }
        other => return Err(format!("the matcher `{other}` is not known")),
    })
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.trim().is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(members)) => members.is_empty(),
        Some(_) => false,
    }
}

fn contains(actual: Option<&Value>, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Some(Value::String(text)), Value::String(part)) => text.contains(part.as_str()),
        (Some(Value::Array(items)), wanted) => items.iter().any(|item| same(item, wanted)),
        (Some(Value::Object(members)), Value::String(key)) => members.contains_key(key),
        _ => false,
    }
}

/// A value short enough for a line.
pub(crate) fn shorten(text: &str) -> String {
    let most = 300;
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}... ({} bytes)", prefix_within(text, most), text.len())
}
