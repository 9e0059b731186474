//! Where in its schema a JSON text stands that could not go on.

use std::collections::HashSet;

use serde_json::Value;
use twopass_core::schema::pointer_step;

/// Most schemas that one value is looked up in.
const MAX_CANDIDATES: usize = 64;
/// What may be to blame, the most likely first.
const KEYWORDS: [&str; 22] = [
    "pattern",
    "format",
    "multipleOf",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "patternProperties",
    "additionalProperties",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "required",
    "prefixItems",
    "items",
    "properties",
    "type",
];

/// The keyword that most likely stopped a text that begins with the JSON of a value of this
/// schema, and the JSON pointer of the schema that has it.
pub(super) fn keyword_at_end(schema: &Value, text: &str) -> Option<(&'static str, String)> {
    let steps = open_steps(text);
    // Where a member is not known, the object that has it.
    let mut found = vec![(String::new(), schema)];
    for step in &steps {
        let inner: Vec<_> = expanded(schema, &found)
            .into_iter()
            .flat_map(|(path, at)| below(&path, at, step))
            .take(MAX_CANDIDATES)
            .collect();
        if inner.is_empty() {
            break;
        }
        found = inner;
    }
    let found = expanded(schema, &found);
    KEYWORDS.iter().find_map(|keyword| {
        let (path, _) = found.iter().find(|(_, at)| at.get(keyword).is_some())?;
        Some((*keyword, path.clone()))
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Item(usize),
}

/// The members and items that are open at the end of a JSON text.
fn open_steps(text: &str) -> Vec<Step> {
    let mut open: Vec<Step> = Vec::new();
    // Of the open string: where it began.
    let mut string: Option<usize> = None;
    let mut is_escaped = false;
    let mut last = "";
    for (at, c) in text.char_indices() {
        if let Some(begin) = string {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => {
                    last = &text[begin..=at];
                    string = None;
                }
                _ => {}
            }
            continue;
        }
        match c {
            '"' => string = Some(at),
            '{' => open.push(Step::Member(String::new())),
            '[' => open.push(Step::Item(0)),
            ':' => {
                if let Some(Step::Member(name)) = open.last_mut() {
                    *name = serde_json::from_str(last).unwrap_or_default();
                }
            }
            ',' => match open.last_mut() {
                Some(Step::Member(name)) => name.clear(),
                Some(Step::Item(idx)) => *idx += 1,
                None => {}
            },
            '}' | ']' => {
                open.pop();
            }
            _ => {}
        }
    }
    // Between two members it is the object that goes on.
    if open.last() == Some(&Step::Member(String::new())) {
        open.pop();
    }
    open
}

/// These schemas and what they refer to and combine.
fn expanded<'a>(root: &'a Value, schemas: &[(String, &'a Value)]) -> Vec<(String, &'a Value)> {
    let mut all: Vec<(String, &Value)> = Vec::new();
    let mut seen = HashSet::new();
    let mut open = schemas.to_vec();
    while let Some((path, at)) = open.pop() {
        if all.len() >= MAX_CANDIDATES || !seen.insert(path.clone()) {
            continue;
        }
        let to = at.get("$ref").and_then(Value::as_str);
        if let Some(to) = to.and_then(|to| to.strip_prefix('#'))
            && let Some(target) = root.pointer(to)
        {
            open.push((to.to_owned(), target));
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let options = at.get(keyword).and_then(Value::as_array);
            for (idx, option) in options.into_iter().flatten().enumerate() {
                open.push((format!("{path}/{keyword}/{idx}"), option));
            }
        }
        all.push((path, at));
    }
    all
}

/// What a schema says of a member or an item.
fn below<'a>(path: &str, schema: &'a Value, step: &Step) -> Vec<(String, &'a Value)> {
    let at = |pointer: String| {
        let found = schema.pointer(&pointer)?;
        found
            .is_object()
            .then(|| (format!("{path}{pointer}"), found))
    };
    let found = match step {
        Step::Member(name) => at(format!("/properties/{}", pointer_step(name))),
        Step::Item(idx) => at(format!("/prefixItems/{idx}")),
    };
    if let Some(found) = found {
        return vec![found];
    }
    let rest = match step {
        Step::Member(_) => at("/additionalProperties".to_owned()),
        Step::Item(_) => at("/items".to_owned()),
    };
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.filter(|_| matches!(step, Step::Member(_)));
    let names = patterns.into_iter().flat_map(|patterns| patterns.keys());
    let named = names.filter_map(|name| at(format!("/patternProperties/{}", pointer_step(name))));
    named.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m5_the_place_of_a_text_in_its_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a/b": {"type": "string", "pattern": "x"},
                "list": {"type": "array", "prefixItems": [{"type": "null"}],
                    "items": {"$ref": "#/$defs/n"}},
            },
            "minProperties": 2,
            "$defs": {"n": {"anyOf": [{"type": "number", "multipleOf": 3}, {"type": "null"}]}},
        });
        for (text, keyword, path) in [
            (r#"{"a/b": "12"#, "pattern", "/properties/a~1b"),
            (r#"{"a/b": "x", "#, "minProperties", ""),
            (r#"{"list": [null, 3, "#, "multipleOf", "/$defs/n/anyOf/0"),
            (
                r#"{"list": [null, {"]": "#,
                "multipleOf",
                "/$defs/n/anyOf/0",
            ),
            ("", "minProperties", ""),
        ] {
            let found = keyword_at_end(&schema, text);
            assert_eq!(found, Some((keyword, path.to_owned())), "{text}");
        }
        assert_eq!(keyword_at_end(&json!({}), "{"), None);
    }
}
