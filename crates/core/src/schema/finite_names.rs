//! Members whose names are few, though a pattern says which.
//!
//! A grammar over patterns does not count the names that are left: with all of them used it
//! takes one more comma, and then nothing fits. Names that can be listed are listed.

use std::collections::BTreeMap;

use regex_syntax::Parser;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use serde_json::{Map, Value, json};

/// The most names of one object that are listed.
const NAMES_MAX: usize = 64;
/// The most bytes of all of them.
const NAMES_BYTES: usize = 4096;

/// Lists the members of a closed object whose `patternProperties` have few names. Where the
/// object's members are counted, which a grammar can do for patterns only, it gets their
/// number as its limit instead.
pub(super) fn list_members(members: &mut Map<String, Value>) {
    if members.get("additionalProperties") != Some(&Value::Bool(false)) {
        return;
    }
    let Some(listed) = members.get("patternProperties").and_then(listed) else {
        return;
    };
    let properties = members.get("properties").and_then(Value::as_object);
    let mut properties = properties.cloned().unwrap_or_default();
    if members.contains_key("minProperties") || members.contains_key("maxProperties") {
        let others = properties.keys().filter(|name| !listed.contains_key(*name));
        let n_names = (listed.len() + others.count()) as u64;
        let most = members.get("maxProperties").and_then(Value::as_u64);
        let most = most.map_or(n_names, |most| most.min(n_names));
        members.insert("maxProperties".to_owned(), Value::from(most));
        return;
    }
    for (name, mut schemas) in listed {
        schemas.extend(properties.get(&name).cloned());
        let schema = match schemas.len() {
            1 => schemas.remove(0),
            _ => json!({"allOf": schemas}),
        };
        properties.insert(name, schema);
    }
    members.insert("properties".to_owned(), Value::Object(properties));
    members.shift_remove("patternProperties");
}

/// The schemas of each name, if the names of all patterns are few.
fn listed(patterns: &Value) -> Option<BTreeMap<String, Vec<Value>>> {
    let mut listed: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (pattern, schema) in patterns.as_object()? {
        for name in names(pattern)? {
            listed.entry(name).or_default().push(schema.clone());
        }
    }
    (!listed.is_empty() && listed.len() <= NAMES_MAX).then_some(listed)
}

/// The texts that a pattern fits, read as the check reads it, if they are few.
fn names(pattern: &str) -> Option<Vec<String>> {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
    let mut names = whole_texts(&Parser::new().parse(&translated).ok()?)?;
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The texts of a pattern that is bound to both ends of a text.
fn whole_texts(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Capture(capture) => whole_texts(&capture.sub),
        HirKind::Concat(parts) => {
            let (first, rest) = parts.split_first()?;
            let (last, inner) = rest.split_last()?;
            let is_whole = *first.kind() == HirKind::Look(Look::Start)
                && *last.kind() == HirKind::Look(Look::End);
            if is_whole { sequences(inner) } else { None }
        }
        _ => None,
    }
}

fn texts(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty => Some(vec![String::new()]),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            Some(vec![text.to_owned()])
        }
        HirKind::Class(Class::Unicode(class)) => {
            let chars = class.iter().flat_map(|range| range.start()..=range.end());
            let chars: Vec<String> = chars.take(NAMES_MAX + 1).map(String::from).collect();
            few(chars)
        }
        HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => None,
        HirKind::Repetition(repetition) => {
            let most = repetition.max.filter(|most| *most as usize <= NAMES_MAX)?;
            let once = texts(&repetition.sub)?;
            let mut so_often = vec![String::new()];
            let mut all = Vec::new();
            for n_times in 0..=most {
                if n_times >= repetition.min {
                    all.extend_from_slice(&so_often);
                }
                if n_times < most {
                    so_often = longer(&so_often, &once)?;
                }
            }
            few(all)
        }
        HirKind::Capture(capture) => texts(&capture.sub),
        HirKind::Concat(parts) => sequences(parts),
        HirKind::Alternation(parts) => {
            let all: Option<Vec<_>> = parts.iter().map(texts).collect();
            few(all?.concat())
        }
    }
}

/// One text of each part, in every combination.
fn sequences(parts: &[Hir]) -> Option<Vec<String>> {
    let mut all = vec![String::new()];
    for part in parts {
        all = longer(&all, &texts(part)?)?;
    }
    Some(all)
}

/// Each of these texts with each of those behind it.
fn longer(begins: &[String], ends: &[String]) -> Option<Vec<String>> {
    if begins.len() * ends.len() > NAMES_MAX {
        return None;
    }
    let of_one = |begin: &String| -> Vec<String> {
        let ends = ends.iter();
        ends.map(|end| format!("{begin}{end}")).collect()
    };
    few(begins.iter().flat_map(of_one).collect())
}

fn few(texts: Vec<String>) -> Option<Vec<String>> {
    let n_bytes: usize = texts.iter().map(String::len).sum();
    (texts.len() <= NAMES_MAX && n_bytes <= NAMES_BYTES).then_some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_patterns_of_few_names_are_listed() {
        let rows: [(&str, Option<&[&str]>); 18] = [
            ("^x_[a-c]$", Some(&["x_a", "x_b", "x_c"])),
            ("^(a|b)$", Some(&["a", "b"])),
            (
                r"^n\d$",
                Some(&["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]),
            ),
            ("^[ab]{2}$", Some(&["aa", "ab", "ba", "bb"])),
            ("^ab?$", Some(&["a", "ab"])),
            ("^$", Some(&[""])),
            ("^ä|ö$", None),
            ("^[a-z]{2}$", None),
            ("^a*$", None),
            ("a", None),
            ("^a", None),
            (r"^\w{2}$", None),
            ("^(", None),
            ("^[[ab]]$", Some(&["[]", "a]", "b]"])),
            ("^[a&&b]$", Some(&["&", "a", "b"])),
            (r"^[^\s]$", None),
            ("^a{0,2}$", Some(&["", "a", "aa"])),
            ("^((((((a{64}){64}){64}){64}){64}){64}$", None),
        ];
        for (pattern, expect) in rows {
            let names = names(pattern);
            let names = names
                .as_ref()
                .map(|names| names.iter().map(String::as_str).collect());
            assert_eq!(names, expect.map(<[&str]>::to_vec), "{pattern}");
        }
    }

    #[test]
    fn m5_few_names_are_members_or_their_number() {
        let bound = |mut schema: Value| {
            list_members(schema.as_object_mut().unwrap());
            schema
        };
        let few = json!({"^[ab]$": {"type": "null"}});
        let closed = json!({"patternProperties": few, "additionalProperties": false,
            "properties": {"b": {"type": ["null", "string"]}}});
        let expect = json!({"additionalProperties": false, "properties": {
            "b": {"allOf": [{"type": "null"}, {"type": ["null", "string"]}]},
            "a": {"type": "null"}}});
        assert_eq!(bound(closed), expect);
        let counted = json!({"patternProperties": few, "additionalProperties": false,
            "minProperties": 1});
        assert_eq!(bound(counted)["maxProperties"], json!(2));
        let open = json!({"patternProperties": few});
        assert_eq!(bound(open.clone()), open);
    }
}
