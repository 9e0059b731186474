use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::places::Place;
use super::{MAX_SCHEMA_DEPTH, depth_over};

/// Most schema nodes that inlining may write; beyond it the references stay.
const MAX_INLINED_NODES: usize = 4096;

/// How a provider wants its tool schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ProviderForm {
    /// JSON Schema with an object at the root.
    #[default]
    JsonSchema,
    /// The OpenAPI 3.0 subset: no type lists, `nullable: true` instead.
    OpenapiNullable,
    /// Closed objects with every property required, as strict function calling demands;
    /// optional properties become nullable.
    Strict,
}

impl ProviderForm {
    /// The form of this name: `json_schema`, `openapi_nullable` or `strict`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "json_schema" | "openai" | "anthropic" => Self::JsonSchema,
            "openapi_nullable" | "gemini" => Self::OpenapiNullable,
            "strict" | "openai_strict" => Self::Strict,
            _ => return None,
        })
    }
}

/// A tool's schema as a provider takes it: always an object schema with `properties`.
#[must_use]
pub fn to_provider(schema: &Value, form: ProviderForm) -> Value {
    let mut schema = match schema {
        Value::Object(members) => members.clone(),
        _ => Map::new(),
    };
    if depth_over(&Value::Object(schema.clone()), MAX_SCHEMA_DEPTH) {
        schema = Map::new();
    }
    if !["$ref", "anyOf", "oneOf", "allOf"]
        .iter()
        .any(|key| schema.contains_key(*key))
    {
        let mut root = Map::new();
        if !schema.get("type").is_some_and(Value::is_string) {
            schema.shift_remove("type");
            root.insert("type".to_owned(), json!("object"));
        }
        root.append(&mut schema);
        root.entry("properties").or_insert_with(|| json!({}));
        schema = root;
    }
    let mut schema = Value::Object(schema);
    match form {
        ProviderForm::JsonSchema => {}
        ProviderForm::OpenapiNullable => {
            schema = inline_refs(&schema);
            rewrite(&mut schema, &mut nullable);
        }
        ProviderForm::Strict => rewrite(&mut schema, &mut strict),
    }
    schema
}

/// Which of these keywords any schema inside `schema` uses, in the order of `keywords`.
#[must_use]
pub fn keywords_used(schema: &Value, keywords: &[&'static str]) -> Vec<&'static str> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    rewrite(&mut schema.clone(), &mut |members| {
        used.extend(keywords.iter().filter(|key| members.contains_key(**key)));
    });
    let in_order = keywords.iter().filter(|key| used.contains(*key));
    in_order.copied().collect()
}

/// Closes every object that lists its members and says nothing of others, so that a model
/// that is bound by the schema cannot invent or repeat members. One that demands a member
/// beside the listed ones stays open. What fits the result fits `schema`.
#[must_use]
pub fn close_objects(schema: &Value) -> Value {
    const OPEN: [&str; 7] = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ];
    let mut closed = schema.clone();
    // A member that `allOf` names beside another schema is unknown to that one.
    if keywords_used(schema, &["allOf"]).is_empty() {
        rewrite(&mut closed, &mut |members| {
            if lists_all_required(members) && !OPEN.iter().any(|key| members.contains_key(*key)) {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        });
    }
    closed
}

/// True if the object lists members, those that it demands among them.
fn lists_all_required(members: &Map<String, Value>) -> bool {
    let Some(Value::Object(listed)) = members.get("properties") else {
        return members.contains_key("properties");
    };
    let required = members.get("required").and_then(Value::as_array);
    let mut names = required.into_iter().flatten().filter_map(Value::as_str);
    names.all(|name| listed.contains_key(name))
}

/// The schema with OpenAPI's `nullable: true` in JSON Schema's words.
pub(super) fn without_nullable(schema: &Value) -> Cow<'_, Value> {
    if keywords_used(schema, &["nullable"]).is_empty() {
        return Cow::Borrowed(schema);
    }
    let mut plain = schema.clone();
    rewrite(&mut plain, &mut |members| {
        if members.get("nullable") != Some(&Value::Bool(true)) {
            return;
        }
        if let Some(Value::String(name)) = members.get("type") {
            let name = name.clone();
            members.insert("type".to_owned(), json!([name, "null"]));
        }
        for (key, null) in [
            ("enum", Value::Null),
            ("anyOf", json!({"type": "null"})),
            ("oneOf", json!({"type": "null"})),
        ] {
            if let Some(Value::Array(list)) = members.get_mut(key)
                && !list.contains(&null)
            {
                list.push(null);
            }
        }
    });
    Cow::Owned(plain)
}

/// Calls `change` on every schema inside `schema`, innermost first.
pub(super) fn rewrite(schema: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(members) = schema else {
        return;
    };
    for (key, value) in members.iter_mut() {
        match (Place::of(key, value), value) {
            (Some(Place::Members), Value::Object(named)) => {
                for schema in named.values_mut() {
                    rewrite(schema, change);
                }
            }
            (Some(Place::Items), Value::Array(list)) => {
                for schema in list {
                    rewrite(schema, change);
                }
            }
            (Some(Place::Value), schema) => rewrite(schema, change),
            _ => {}
        }
    }
    change(members);
}

fn nullable(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get("type") {
        let (nulls, others): (Vec<_>, Vec<_>) =
            types.clone().into_iter().partition(|name| name == "null");
        let is_nullable = !nulls.is_empty();
        if let [only] = others.as_slice() {
            schema.insert("type".to_owned(), only.clone());
        } else {
            schema.shift_remove("type");
            let branches = others
                .into_iter()
                .map(|name| json!({"type": name}))
                .collect();
            schema.insert("anyOf".to_owned(), Value::Array(branches));
        }
        if is_nullable {
            schema.insert("nullable".to_owned(), json!(true));
        }
    }
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = schema.get(key) else {
            continue;
        };
        let is_null = |branch: &Value| branch.get("type") == Some(&json!("null"));
        if !branches.iter().any(is_null) {
            continue;
        }
        let rest: Vec<Value> = branches
            .iter()
            .filter(|branch| !is_null(branch))
            .cloned()
            .collect();
        if let [Value::Object(only)] = rest.as_slice() {
            let only = only.clone();
            schema.shift_remove(key);
            for (key, value) in only {
                schema.entry(key).or_insert(value);
            }
        } else {
            schema.insert(key.to_owned(), Value::Array(rest));
        }
        schema.insert("nullable".to_owned(), json!(true));
    }
}

fn strict(schema: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get("properties").cloned() else {
        return;
    };
    let required: Vec<Value> = schema
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut all = Map::new();
    for (name, mut property) in properties {
        if !required.iter().any(|key| key == name.as_str()) {
            property = with_null(property);
        }
        all.insert(name, property);
    }
    let names: Vec<Value> = all.keys().map(|name| json!(name)).collect();
    schema.insert("properties".to_owned(), Value::Object(all));
    schema.insert("required".to_owned(), Value::Array(names));
    schema.insert("additionalProperties".to_owned(), json!(false));
}

fn with_null(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(name))
            if !schema.as_object().is_some_and(|s| s.contains_key("enum")) =>
        {
            let types = json!([name, "null"]);
            schema["type"] = types;
            schema
        }
        Some(Value::Array(names)) if names.iter().any(|name| name == "null") => schema,
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// Puts definitions in the place of local references, because models cannot follow them.
///
/// Keywords beside a reference are kept. Circular references stay, together with the
/// definitions that they need; so do all references if the result would be too large.
#[must_use]
pub fn inline_refs(schema: &Value) -> Value {
    if depth_over(schema, MAX_SCHEMA_DEPTH) {
        return schema.clone();
    }
    let mut inliner = Inliner {
        root: schema,
        open: Vec::new(),
        kept: BTreeSet::new(),
        nodes_left: MAX_INLINED_NODES,
    };
    let Some(mut inlined) = inliner.inline(schema, 0) else {
        return schema.clone();
    };
    let kept = inliner.kept;
    if let Value::Object(members) = &mut inlined {
        members.shift_remove("$defs");
        members.shift_remove("definitions");
    }
    if !kept.is_empty() {
        for name in reachable(schema, &kept) {
            keep_definition(schema, &mut inlined, &name);
        }
    }
    inlined
}

struct Inliner<'a> {
    root: &'a Value,
    open: Vec<&'a str>,
    kept: BTreeSet<String>,
    nodes_left: usize,
}

impl<'a> Inliner<'a> {
    /// `None`: the result is too large.
    fn inline(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        self.nodes_left = self.nodes_left.checked_sub(1)?;
        if depth > 2 * MAX_SCHEMA_DEPTH {
            return None;
        }
        match schema {
            Value::Array(items) => items
                .iter()
                .map(|item| self.inline(item, depth + 1))
                .collect::<Option<Vec<_>>>()
                .map(Value::Array),
            Value::Object(members) => {
                let Some(Value::String(reference)) = members.get("$ref") else {
                    return self.members(members, depth).map(Value::Object);
                };
                let target = reference
                    .strip_prefix('#')
                    .and_then(|pointer| self.root.pointer(pointer));
                let Some(target) = target else {
                    return Some(schema.clone());
                };
                if reference == "#" || self.open.contains(&reference.as_str()) {
                    self.kept.insert(reference.clone());
                    return Some(schema.clone());
                }
                self.open.push(reference);
                let inlined = self.inline(target, depth + 1);
                self.open.pop();
                let mut inlined = inlined?;
                let mut beside = self.members(members, depth)?;
                beside.shift_remove("$ref");
                if let Value::Object(inlined) = &mut inlined {
                    inlined.append(&mut beside);
                }
                Some(inlined)
            }
            other => Some(other.clone()),
        }
    }

    fn members(
        &mut self,
        members: &'a Map<String, Value>,
        depth: usize,
    ) -> Option<Map<String, Value>> {
        let mut inlined = Map::new();
        for (key, value) in members {
            let is_data = matches!(key.as_str(), "enum" | "const" | "default" | "examples");
            let is_definitions = depth == 0 && matches!(key.as_str(), "$defs" | "definitions");
            let value = if is_data || is_definitions {
                value.clone()
            } else {
                self.inline(value, depth + 1)?
            };
            inlined.insert(key.clone(), value);
        }
        Some(inlined)
    }
}

/// All references that the definitions behind `names` need.
fn reachable(root: &Value, names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = names.clone();
    let mut open: Vec<String> = names.iter().cloned().collect();
    while let Some(name) = open.pop() {
        let Some(target) = name
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer))
        else {
            continue;
        };
        let mut values = vec![target];
        while let Some(value) = values.pop() {
            match value {
                Value::Array(items) => values.extend(items),
                Value::Object(members) => {
                    if let Some(Value::String(reference)) = members.get("$ref")
                        && all.insert(reference.clone())
                    {
                        open.push(reference.clone());
                    }
                    values.extend(members.values());
                }
                _ => {}
            }
        }
    }
    all
}

/// Copies the top-level definition that a reference needs.
fn keep_definition(root: &Value, inlined: &mut Value, reference: &str) {
    let mut steps = reference.split('/').skip(1);
    let (Some(group @ ("$defs" | "definitions")), Some(name)) = (steps.next(), steps.next()) else {
        return;
    };
    let name = name.replace("~1", "/").replace("~0", "~");
    let Some(definition) = root
        .get(group)
        .and_then(|definitions| definitions.get(&name))
    else {
        return;
    };
    if let Value::Object(members) = inlined {
        let definitions = members.entry(group).or_insert_with(|| json!({}));
        if let Value::Object(definitions) = definitions {
            definitions.insert(name, definition.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::CompiledSchema;

    #[test]
    fn nullable_takes_null_and_nothing_else_more() {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string", "nullable": true},
            "one": {"type": "string", "enum": ["a"], "nullable": true},
            "any": {"anyOf": [{"type": "integer"}], "nullable": true},
            "not": {"type": "string", "nullable": false},
            // A member of this name is no keyword.
            "nullable": {"type": "boolean"},
        }});
        let compiled = CompiledSchema::new(&schema).unwrap();
        let fits = |value: Value| compiled.check(&value).is_empty();
        assert!(fits(json!({"text": null, "one": null, "any": null})));
        assert!(fits(
            json!({"text": "b", "one": "a", "any": 1, "nullable": true})
        ));
        assert!(!fits(json!({"text": 1})));
        assert!(!fits(json!({"one": "b"})));
        assert!(!fits(json!({"not": null})));
        assert!(!fits(json!({"nullable": "yes"})));
        assert_eq!(compiled.schema(), &schema);
    }
}
