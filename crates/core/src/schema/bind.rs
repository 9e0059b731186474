//! Schemas as a grammar can bind them.
//!
//! The grammar engine (llguidance 1.9) takes most of JSON Schema. [`for_grammar`] rewrites what
//! it would bind too loosely, so that whatever fits the result fits the schema;
//! [`unbound_keywords`] tells what stays beyond it.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::finite_names::list_members;
use super::forms::{close_objects, rewrite};
use super::numbers::{is_inexact, narrow_numbers, unkept_bound};
use super::patterns::narrow_patterns;
use super::references;

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
    // A list of members would take the place that such a reference leads to.
    let lists_members = !schema.to_string().contains("/patternProperties/");
    let tightened = |schema: &Value| tightened(schema, lists_members);
    let mut bound = tightened(&close_objects(schema));
    for path in references::visit_all(schema, &mut |_, _| {}) {
        if let Some(part) = bound.pointer_mut(&path) {
            *part = tightened(part);
        }
    }
    bound
}

/// What is misread in the schemas inside one, in words that are not.
fn tightened(schema: &Value, lists_members: bool) -> Value {
    let mut bound = narrow_numbers(schema);
    rewrite(&mut bound, &mut |members| {
        whole_counts(members);
        if let Some(Value::Array(values)) = members.get_mut("enum")
            && !values.iter().all(is_inexact)
        {
            values.retain(|value| !is_inexact(value));
        }
        narrow_times(members);
        if lists_members {
            list_members(members);
        }
        narrow_patterns(members, lists_members);
    });
    bound
}

/// The keywords of a schema, in order, that a grammar made of [`for_grammar`] does not bind.
#[must_use]
pub fn unbound_keywords(schema: &Value) -> Vec<UnboundKeyword> {
    let mut found = Vec::new();
    references::visit_all(schema, &mut |members, path| {
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
        if let Some(keyword) = unkept_bound(members) {
            add(keyword);
        }
        if members.get("multipleOf").is_some_and(has_many_digits) {
            add("multipleOf");
        }
        // How draft 4 spells an exclusive bound.
        for keyword in ["exclusiveMinimum", "exclusiveMaximum"] {
            if members.get(keyword) == Some(&Value::Bool(true)) {
                add(keyword);
            }
        }
    });
    let endless = references::endless(schema);
    found.extend(endless.map(|path| UnboundKeyword {
        keyword: "$ref",
        path,
    }));
    found
}

/// Counts written as `2.0` in the way in which the grammar engine reads them.
fn whole_counts(members: &mut Map<String, Value>) {
    const COUNTS: [&str; 6] = [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ];
    for keyword in COUNTS {
        if let Some(count) = members.get_mut(keyword)
            && let Some(number) = count.as_f64().filter(|_| count.is_f64())
            && number.fract() == 0.0
            && (0.0..=f64::from(u32::MAX)).contains(&number)
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and in range"
            )]
            let whole = number as u64;
            *count = Value::from(whole);
        }
    }
}

/// True for a `multipleOf` with more digits than the grammar engine counts in: it multiplies
/// by ten until nothing is left behind the point, and counts in 32 bits.
fn has_many_digits(step: &Value) -> bool {
    const MAX_PLACES: i32 = 9;
    let Some(mut units) = step.as_f64() else {
        return false;
    };
    let mut places = 0;
    while units.fract() != 0.0 {
        units *= 10.0;
        places += 1;
        if places > MAX_PLACES {
            return true;
        }
    }
    units * 10_f64.powi(places) > f64::from(u32::MAX)
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
        .map(|option| references::resolved(root, option))
        .collect();
    let mut pairs = options
        .iter()
        .enumerate()
        .flat_map(|(idx, a)| options[idx + 1..].iter().map(move |b| (a, b)));
    pairs.all(|(a, b)| has_other_type(a, b) || has_other_tag(root, a, b))
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
        let member = references::resolved(root, schema.get("properties")?.get(name)?);
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

/// A day that is there: of 29 February only those of leap years.
const DAY: &str = "([0-9]{4}-(0[13-9]|1[0-2])-[0-9]{2}|[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|\
     ([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
/// A time without leap seconds, which are there at some midnights only, and with few digits
/// behind its point: a model at a high temperature finds no end.
const TIME: &str = "[0-9]{2}:[0-9]{2}:[0-5][0-9]([.][0-9]{1,9})?([zZ]|[+-][0-9]{2}:[0-9]{2})";

/// Binds dates and times further than the grammar's own reading of their formats does.
fn narrow_times(members: &mut Map<String, Value>) {
    let pattern = match members.get("format").and_then(Value::as_str) {
        Some("date") => format!("^{DAY}$"),
        Some("time") => format!("^{TIME}$"),
        Some("date-time") => format!("^{DAY}[tT]{TIME}$"),
        _ => return,
    };
    if !members.contains_key("pattern") {
        members.insert("pattern".to_owned(), Value::from(pattern));
        return;
    }
    let all = members.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({"pattern": pattern}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_what_a_grammar_reads_wrongly_is_left_out() {
        let listed = json!({"enum": [9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64, "a"]});
        let expect = json!({"enum": [9_007_199_254_740_992_u64, "a"]});
        assert_eq!(for_grammar(&listed), expect);
        let counted = json!({"minLength": 2.0, "maxItems": 2.5});
        let expect = json!({"minLength": 2, "maxItems": 2.5});
        assert_eq!(for_grammar(&counted), expect);
        let open = json!({"properties": {"a": {}}, "required": ["a", "b"]});
        assert_eq!(for_grammar(&open), open);
        let hidden = json!({"items": {"$ref": "#/x-more"}, "x-more": {"minLength": 2.0}});
        let hidden = for_grammar(&hidden);
        assert!(hidden["x-more"]["minLength"].is_u64(), "{hidden}");
    }

    #[test]
    fn m5_days_and_times_are_bound_to_those_that_are_there() {
        for (format, text, fits) in [
            ("date", "2024-02-29", true),
            ("date", "2023-02-29", false),
            ("date", "1900-02-29", false),
            ("date", "2000-02-29", true),
            ("date", "2023-02-28", true),
            ("date", "2023-11-30", true),
            ("time", "23:25:60.6-14:16", false),
            ("time", "23:59:59Z", true),
            ("time", "12:00:00.1234567890Z", false),
            ("date-time", "2024-02-29T10:00:00.5+01:00", true),
            ("date-time", "2022-02-29T10:00:00Z", false),
        ] {
            let bound = for_grammar(&json!({"format": format}));
            let pattern = json!({"pattern": bound["pattern"]});
            let bound = jsonschema::is_valid(&pattern, &json!(text));
            assert_eq!(bound, fits, "{format} {text}");
        }
    }

    #[test]
    fn m5_what_no_grammar_binds_is_named_with_its_place() {
        let tag = |name: &str| json!({"type": "object", "properties": {"t": {"const": name}}, "required": ["t"]});
        let rows: [(Value, &[(&str, &str)]); 19] = [
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
            (
                json!({"const": {"x": [9_007_199_254_740_993_u64]}}),
                &[("const", "")],
            ),
            (
                json!({"properties": {"a": {"$ref": "#/x-more/q%20r"}}, "x-more": {"q r": {"not": {}}}}),
                &[("not", "/x-more/q r")],
            ),
            (
                json!({"items": {"$ref": "#here"}, "x-more": [{"$anchor": "here", "contains": {}}]}),
                &[("contains", "/x-more/0")],
            ),
            (
                json!({"$defs": {"a": {"not": {}}}, "items": {"$ref": "#/$defs/a"}}),
                &[("not", "/$defs/a")],
            ),
            (
                json!({"minimum": 3, "exclusiveMinimum": true}),
                &[("exclusiveMinimum", "")],
            ),
            (json!({"multipleOf": 1e-10}), &[("multipleOf", "")]),
            (json!({"multipleOf": 0.01}), &[]),
            (
                json!({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}),
                &[("$ref", "/properties/n")],
            ),
            (
                json!({"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#"}, {}]}}, "required": ["n"]}),
                &[],
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
