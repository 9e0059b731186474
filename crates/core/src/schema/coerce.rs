use serde_json::{Map, Value};

use super::MAX_SCHEMA_DEPTH;
use crate::text::{read_json, read_lenient};

/// References that are followed before a schema is taken for circular.
const MAX_REF_HOPS: usize = 16;

/// Deepest JSON text that is read out of a string.
const MAX_TEXT_DEPTH: usize = 64;

/// Brings a model's value into the types of a schema where that loses nothing; true if
/// anything changed.
///
/// The schema decides, never the look of the value: a string becomes an integer, number,
/// boolean, null, array or object only where the schema wants that and takes no string.
/// `null` in an optional property that takes no null means that the property is absent.
/// Numbers never become strings.
pub fn coerce(schema: &Value, value: &mut Value) -> bool {
    Coercion { root: schema }.apply(schema, value, 0)
}

/// Reads the text of one untyped parameter, as XML-like dialects write it.
///
/// With a schema, the schema decides; `null` and `None` are null where it names that type,
/// since such text has no quotes to tell them apart. Without one the text stays a string.
#[must_use]
pub fn text_to_value(root: &Value, schema: Option<&Value>, text: &str) -> Value {
    let Some(schema) = schema else {
        return Value::String(text.to_owned());
    };
    let mut value = Value::String(text.to_owned());
    let coercion = Coercion { root };
    if matches!(text.trim(), "null" | "None") && coercion.names_null(schema, 0) {
        return Value::Null;
    }
    coercion.apply(schema, &mut value, 0);
    value
}

struct Coercion<'a> {
    root: &'a Value,
}

impl<'a> Coercion<'a> {
    fn apply(&self, schema: &'a Value, value: &mut Value, depth: usize) -> bool {
        if depth > MAX_SCHEMA_DEPTH {
            return false;
        }
        let schema = self.resolve(schema);
        let mut changed = match value {
            Value::String(text) => match self.read_string(schema, text) {
                Some(read) => {
                    *value = read;
                    true
                }
                None => false,
            },
            _ => false,
        };
        match value {
            Value::Object(members) => changed |= self.apply_members(schema, members, depth),
            Value::Array(items) => {
                for (idx, item) in items.iter_mut().enumerate() {
                    if let Some(schema) = self.item_schema(schema, idx) {
                        changed |= self.apply(schema, item, depth + 1);
                    }
                }
            }
            _ => {}
        }
        changed
    }

    fn apply_members(
        &self,
        schema: &'a Value,
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> bool {
        let mut changed = false;
        let required = self.required(schema);
        let optional_nulls: Vec<String> = members
            .iter()
            .filter(|(key, value)| value.is_null() && !required.contains(&key.as_str()))
            .filter(|(key, _)| {
                self.member_schema(schema, key)
                    .is_some_and(|schema| !self.takes(schema, "null", 0))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in optional_nulls {
            members.shift_remove(&key);
            changed = true;
        }
        for (key, value) in members.iter_mut() {
            if let Some(schema) = self.member_schema(schema, key) {
                changed |= self.apply(schema, value, depth + 1);
            }
        }
        changed
    }

    /// What a string stands for, if the schema takes no string.
    fn read_string(&self, schema: &'a Value, text: &str) -> Option<Value> {
        if self.takes(schema, "string", 0) {
            return self.read_for_enum(schema, text);
        }
        let word = text.trim();
        for kind in ["integer", "number", "boolean", "null", "array", "object"] {
            if !self.takes(schema, kind, 0) {
                continue;
            }
            let read = match kind {
                "integer" | "number" => {
                    read_json(word, 1)
                        .ok()
                        .filter(Value::is_number)
                        .or_else(|| {
                            let (value, len) = read_lenient(word, 1).ok()?;
                            (value.is_number() && len == word.len()).then_some(value)
                        })
                }
                "boolean" => match word.to_ascii_lowercase().as_str() {
                    "true" => Some(Value::Bool(true)),
                    "false" => Some(Value::Bool(false)),
                    _ => None,
                },
                "null" => matches!(word, "null" | "None" | "none" | "NULL").then_some(Value::Null),
                _ => read_whole(word).filter(|value| {
                    (kind == "array" && value.is_array()) || (kind == "object" && value.is_object())
                }),
            };
            if let Some(value) = read
                && !(kind == "integer"
                    && value.as_f64().is_some_and(|number| number.fract() != 0.0))
            {
                return Some(value);
            }
        }
        None
    }

    /// An `enum` or `const` of numbers, booleans or null, met by a string that spells one.
    fn read_for_enum(&self, schema: &'a Value, text: &str) -> Option<Value> {
        if schema.get("type").is_some() {
            return None;
        }
        let allowed: Vec<&Value> = match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(values)), _) => values.iter().collect(),
            (_, Some(value)) => vec![value],
            _ => return None,
        };
        if allowed.iter().any(|value| value.as_str() == Some(text)) {
            return None;
        }
        let read = read_whole(text.trim())?;
        (!read.is_string() && allowed.contains(&&read)).then_some(read)
    }

    /// True if the schema may take a value of this type. Unknown keywords take everything.
    fn takes(&self, schema: &'a Value, kind: &str, depth: usize) -> bool {
        if depth > MAX_REF_HOPS {
            return true;
        }
        let schema = self.resolve(schema);
        let named = |name: &str| name == kind || (name == "number" && kind == "integer");
        let by_type = match schema.get("type") {
            Some(Value::String(name)) => named(name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(named),
            _ => true,
        };
        let nullable = kind == "null" && schema.get("nullable") == Some(&Value::Bool(true));
        let by_branch = ["anyOf", "oneOf"].iter().all(|key| match schema.get(key) {
            Some(Value::Array(branches)) => branches
                .iter()
                .any(|branch| self.takes(branch, kind, depth + 1)),
            _ => true,
        });
        let by_all = match schema.get("allOf") {
            Some(Value::Array(parts)) => parts.iter().all(|part| self.takes(part, kind, depth + 1)),
            _ => true,
        };
        nullable || (by_type && by_branch && by_all)
    }

    /// True if the schema says that null is one of its values.
    fn names_null(&self, schema: &'a Value, depth: usize) -> bool {
        if depth > MAX_REF_HOPS {
            return false;
        }
        let schema = self.resolve(schema);
        let in_list =
            |list: &Value, null: &Value| list.as_array().is_some_and(|list| list.contains(null));
        let in_branch = |key: &str| {
            let branches = schema.get(key).and_then(Value::as_array);
            branches.is_some_and(|all| all.iter().any(|one| self.names_null(one, depth + 1)))
        };
        let null = Value::from("null");
        schema
            .get("type")
            .is_some_and(|kind| *kind == null || in_list(kind, &null))
            || schema
                .get("enum")
                .is_some_and(|all| in_list(all, &Value::Null))
            || schema.get("nullable") == Some(&Value::Bool(true))
            || in_branch("anyOf")
            || in_branch("oneOf")
    }

    fn required(&self, schema: &'a Value) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for part in self.parts(schema) {
            if let Some(Value::Array(list)) = part.get("required") {
                names.extend(list.iter().filter_map(Value::as_str));
            }
        }
        names
    }

    fn member_schema(&self, schema: &'a Value, key: &str) -> Option<&'a Value> {
        let parts = self.parts(schema);
        parts
            .iter()
            .find_map(|part| part.get("properties")?.get(key))
            .or_else(|| {
                parts
                    .iter()
                    .find_map(|part| part.get("additionalProperties").filter(|s| s.is_object()))
            })
    }

    fn item_schema(&self, schema: &'a Value, idx: usize) -> Option<&'a Value> {
        self.parts(schema).iter().find_map(|part| {
            let prefix = part
                .get("prefixItems")
                .and_then(Value::as_array)
                .and_then(|list| list.get(idx));
            prefix.or_else(|| match part.get("items") {
                Some(Value::Array(list)) => list.get(idx),
                other => other,
            })
        })
    }

    /// The schema and the branches that describe it further.
    fn parts(&self, schema: &'a Value) -> Vec<&'a Value> {
        let mut parts = vec![schema];
        for key in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(key) {
                parts.extend(branches.iter().map(|branch| self.resolve(branch)));
            }
        }
        parts
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..MAX_REF_HOPS {
            let Some(Value::String(reference)) = schema.get("$ref") else {
                break;
            };
            let Some(target) = reference
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer))
            else {
                break;
            };
            schema = target;
        }
        schema
    }
}

fn read_whole(text: &str) -> Option<Value> {
    if let Ok(value) = read_json(text, MAX_TEXT_DEPTH) {
        return Some(value);
    }
    let (value, len) = read_lenient(text, MAX_TEXT_DEPTH).ok()?;
    text[len..].trim().is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Row E10: text without quotes.
    #[test]
    fn null_as_text_is_null_where_the_schema_names_it() {
        let maybe = [
            json!({"type": ["string", "null"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "string", "nullable": true}),
            json!({"enum": ["a", null]}),
        ];
        for schema in &maybe {
            for word in ["null", "None", " null\n"] {
                assert_eq!(text_to_value(schema, Some(schema), word), Value::Null);
            }
        }
        for schema in [json!({"type": "string"}), json!({}), json!(true)] {
            assert_eq!(text_to_value(&schema, Some(&schema), "null"), "null");
        }
        let schema = &maybe[0];
        assert_eq!(text_to_value(schema, Some(schema), "nullable"), "nullable");
    }
}
