//! Where schemas stand within a schema.

use serde_json::Value;

/// How the schemas of a keyword stand in its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As the members of an object.
    Members,
    /// As the items of a list.
    Items,
    /// The value is one.
    Value,
}

impl Place {
    /// How schemas stand in the value of this keyword (JSON Schema draft 2020-12 and older
    /// ones); `None` if none do.
    #[must_use]
    pub fn of(keyword: &str, value: &Value) -> Option<Self> {
        match (keyword, value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(_),
            ) => Some(Self::Members),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(_)) => {
                Some(Self::Items)
            }
            (
                "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else",
                _,
            ) => Some(Self::Value),
            _ => None,
        }
    }
}
