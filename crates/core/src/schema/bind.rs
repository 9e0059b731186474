//! Schemas as a grammar can bind them.
//!
//! The grammar engine (llguidance 1.9) takes most of JSON Schema. [`for_grammar`] rewrites what
//! it would bind too loosely, so that whatever fits the result fits the schema;
//! [`unbound_keywords`] tells what stays beyond it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::forms::{close_objects, rewrite};
use super::numbers::narrow_numbers;

/// Keywords that no grammar binds here.
const UNBOUND: [&str; 10] = [
    "not",
    "if",
    "contains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
];

/// A keyword that a grammar cannot hold a value to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundKeyword {
    /// The keyword.
    pub keyword: &'static str,
    /// JSON pointer of the schema that has it, `""` for the whole.
    pub path: String,
}

/// A schema of which a grammar binds more: objects that list their members are closed, and
/// bounds of numbers are ones that floats hold exactly, moved inwards where they were not.
/// What fits the result fits `schema`.
#[must_use]
pub fn for_grammar(schema: &Value) -> Value {
    let mut bound = narrow_numbers(&close_objects(schema));
    rewrite(&mut bound, &mut |members| {
        if let Some(Value::Array(values)) = members.get_mut("enum")
            && !values.iter().all(is_inexact)
        {
            values.retain(|value| !is_inexact(value));
        }
        short_fractions(members);
    });
    bound
}

/// The keywords of a schema, in order, that a grammar made of [`for_grammar`] does not bind.
#[must_use]
pub fn unbound_keywords(schema: &Value) -> Vec<UnboundKeyword> {
    let mut found = Vec::new();
    visit(schema, &mut String::new(), &mut |members, path| {
        let mut add = |keyword| {
            let path = path.to_owned();
            found.push(UnboundKeyword { keyword, path });
        };
        for keyword in UNBOUND {
            if members.contains_key(keyword) {
                add(keyword);
            }
        }
        if members.get("uniqueItems") == Some(&Value::Bool(true)) {
            add("uniqueItems");
        }
        for keyword in ["minProperties", "maxProperties"] {
            if members.contains_key(keyword) && !counts_members(members) {
                add(keyword);
            }
        }
        if let Some(Value::Array(options)) = members.get("oneOf")
            && !are_disjoint(schema, options)
        {
            add("oneOf");
        }
        if members.get("const").is_some_and(is_inexact) {
            add("const");
        }
        let values = members.get("enum").and_then(Value::as_array);
        if values.is_some_and(|values| !values.is_empty() && values.iter().all(is_inexact)) {
            add("enum");
        }
    });
    found
}

/// Calls `look` with every schema inside `schema` and its JSON pointer, outermost first.
fn visit(schema: &Value, path: &mut String, look: &mut impl FnMut(&Map<String, Value>, &str)) {
    let Value::Object(members) = schema else {
        return;
    };
    look(members, path);
    let len = path.len();
    let mut within = |steps: &[&str], schema: &Value| {
        for step in steps {
            path.push('/');
            path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        visit(schema, path, look);
        path.truncate(len);
    };
    for (key, value) in members {
        match (key.as_str(), value) {
            (
                "properties" | "$defs" | "definitions" | "patternProperties",
                Value::Object(named),
            ) => {
                for (name, schema) in named {
                    within(&[key, name], schema);
                }
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(list)) => {
                for (idx, schema) in list.iter().enumerate() {
                    within(&[key, &idx.to_string()], schema);
                }
            }
            ("items" | "additionalProperties", schema) => within(&[key], schema),
            _ => {}
        }
    }
}

/// True if the grammar engine counts the members of such an object: none that is listed is
/// optional, or the object is closed and the count is one.
fn counts_members(members: &Map<String, Value>) -> bool {
    let Some(Value::Object(listed)) = members.get("properties") else {
        return true;
    };
    let required = members.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|r| r.iter().any(|r| r == name));
    let n_required = required.map_or(0, Vec::len) as u64;
    if listed.keys().all(is_required) {
        return true;
    }
    let count = |keyword| members.get(keyword).and_then(Value::as_u64);
    let least = count("minProperties").unwrap_or(0);
    let most = count("maxProperties");
    let is_open = members.contains_key("patternProperties")
        || members
            .get("additionalProperties")
            .is_some_and(|more| *more != Value::Bool(false));
    !is_open
        && least.saturating_sub(n_required) <= 1
        && most.is_none_or(|most| most.saturating_sub(n_required) == 1)
}

/// True if no value fits two of these schemas, as far as their types and tags tell.
fn are_disjoint(root: &Value, options: &[Value]) -> bool {
    let options: Vec<&Value> = options
        .iter()
        .map(|option| resolved(root, option))
        .collect();
    let mut pairs = options
        .iter()
        .enumerate()
        .flat_map(|(idx, a)| options[idx + 1..].iter().map(move |b| (a, b)));
    pairs.all(|(a, b)| has_other_type(a, b) || has_other_tag(root, a, b))
}

/// What a local reference leads to.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    const MAX_STEPS: usize = 8;
    let mut schema = schema;
    for _ in 0..MAX_STEPS {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|to| root.pointer(to.strip_prefix('#')?));
        let Some(target) = target else {
            break;
        };
        schema = target;
    }
    schema
}

/// The values that a schema lists.
fn listed(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

fn types(schema: &Value) -> Option<HashSet<&str>> {
    if let Some(values) = listed(schema) {
        return Some(values.into_iter().map(type_of).collect());
    }
    let name = |name: &'static str, given: &str| (name == given).then_some(name);
    let known = |given: &Value| {
        let given = given.as_str()?;
        // A whole number is a number too.
        let given = if given == "integer" { "number" } else { given };
        ["null", "boolean", "number", "string", "array", "object"]
            .into_iter()
            .find_map(|known| name(known, given))
    };
    match schema.get("type")? {
        Value::Array(names) => names.iter().map(known).collect(),
        one => known(one).map(|one| HashSet::from([one])),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn has_other_type(a: &Value, b: &Value) -> bool {
    match (types(a), types(b)) {
        (Some(a), Some(b)) => a.is_disjoint(&b),
        _ => false,
    }
}

/// True if a member that both objects must have takes other values in each.
fn has_other_tag(root: &Value, a: &Value, b: &Value) -> bool {
    let tag = |schema: &'_ Value, name: &str| -> Option<Vec<Value>> {
        let required = schema.get("required")?.as_array()?;
        let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
        let is_required = required.iter().any(|r| r == name);
        let member = resolved(root, schema.get("properties")?.get(name)?);
        let values = listed(member)?.into_iter().cloned().collect();
        (is_object && is_required).then_some(values)
    };
    let names = a.get("properties").and_then(Value::as_object);
    names.is_some_and(|names| {
        names.keys().any(|name| match (tag(a, name), tag(b, name)) {
            (Some(a), Some(b)) => a.iter().all(|value| !b.contains(value)),
            _ => false,
        })
    })
}

/// True for a whole number that no float holds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the loss is what is looked for; the values are below 2^65"
)]
fn is_inexact(value: &Value) -> bool {
    let whole = value.as_i64().map(i128::from);
    let whole = whole.or_else(|| value.as_u64().map(i128::from));
    whole.is_some_and(|n| (n as f64) as i128 != n)
}

/// Bounds the digits behind a second's point: a model at a high temperature finds no end.
fn short_fractions(members: &mut Map<String, Value>) {
    const SHORT: &str = "^[0-9tT:-]*([.][0-9]{1,9})?([zZ]|[+-][0-9]{2}:[0-9]{2})$";
    let format = members.get("format").and_then(Value::as_str);
    if matches!(format, Some("time" | "date-time")) && !members.contains_key("pattern") {
        members.insert("pattern".to_owned(), Value::from(SHORT));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m5_what_a_grammar_reads_wrongly_is_left_out() {
        let listed = json!({"enum": [9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64, "a"]});
        let expect = json!({"enum": [9_007_199_254_740_992_u64, "a"]});
        assert_eq!(for_grammar(&listed), expect);
        let time = for_grammar(&json!({"format": "time"}));
        assert!(time["pattern"].is_string(), "{time}");
    }

    #[test]
    fn m5_what_no_grammar_binds_is_named_with_its_place() {
        let tag = |name: &str| json!({"type": "object", "properties": {"t": {"const": name}}, "required": ["t"]});
        let rows: [(Value, &[(&str, &str)]); 10] = [
            (
                json!({"type": "object", "properties": {"a": {"not": {}}}}),
                &[("not", "/properties/a")],
            ),
            (
                json!({"items": {"uniqueItems": true}}),
                &[("uniqueItems", "/items")],
            ),
            (json!({"items": {"uniqueItems": false}}), &[]),
            (json!({"properties": {"if": {}, "not": {}}}), &[]),
            (
                json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
                &[],
            ),
            (
                json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
                &[("oneOf", "")],
            ),
            (
                json!({"oneOf": [{"$ref": "#/$defs/a~1"}, tag("b")], "$defs": {"a/": tag("a")}}),
                &[],
            ),
            (json!({"oneOf": [tag("a"), tag("a")]}), &[("oneOf", "")]),
            (
                json!({"minProperties": 2, "properties": {"a": {}, "b": {}, "c": {}}}),
                &[("minProperties", "")],
            ),
            (
                json!({"anyOf": [{"const": 9_007_199_254_740_993_u64}]}),
                &[("const", "/anyOf/0")],
            ),
        ];
        for (schema, expect) in rows {
            let found = unbound_keywords(&schema);
            let found: Vec<(&str, &str)> =
                found.iter().map(|f| (f.keyword, f.path.as_str())).collect();
            assert_eq!(found, expect, "{schema}");
        }
    }
}
