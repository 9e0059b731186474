//! The values of XML-like bodies.

use serde_json::{Map, Value};

use super::xml_body::XmlRules;
use crate::schema::text_to_value;
use crate::text::whole_json;

pub(super) const CDATA_OPEN: &str = "<![CDATA[";

/// Deepest nesting of elements in a value.
const MAX_NESTED: usize = 16;

/// Where the type of a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueTyping {
    /// From the schema; a parameter without one is a string.
    Schema,
    /// From the schema; a parameter without one is JSON if it reads as JSON.
    SchemaOrJson,
    /// From the element's `string="true"` or `string="false"`.
    Attribute,
}

/// How the text of a value stands in its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueFraming {
    /// One line end at each side is framing.
    Lines,
    /// Every character counts.
    Verbatim,
    /// As verbatim, and `<![CDATA[..]]>` is taken off.
    Cdata,
}

impl XmlRules {
    /// The value that the text of an element stands for.
    pub(super) fn read_text(
        &self,
        text: &str,
        key: &str,
        is_text: Option<bool>,
        schema: Option<&Value>,
    ) -> Value {
        let text = match self.framing {
            ValueFraming::Verbatim => text,
            ValueFraming::Lines => {
                let text = text.strip_prefix('\n').unwrap_or(text);
                text.strip_suffix('\n').unwrap_or(text)
            }
            ValueFraming::Cdata => {
                let inner = text
                    .trim()
                    .strip_prefix(CDATA_OPEN)
                    .and_then(|text| text.strip_suffix("]]>"));
                inner.unwrap_or(text)
            }
        };
        if self.typing == ValueTyping::Attribute
            && let Some(is_text) = is_text
        {
            let json = (!is_text).then(|| whole_json(text)).flatten();
            return json.unwrap_or_else(|| Value::from(text));
        }
        let property = schema.and_then(|schema| schema.get("properties")?.get(key));
        if self.param_close.is_empty() && text.trim_start().starts_with(&self.param_open) {
            return self.read_nested(text, property, 0);
        }
        match (schema, property) {
            (Some(root), Some(property)) => text_to_value(root, Some(property), text),
            _ if self.typing == ValueTyping::Schema => Value::from(text),
            _ => whole_json(text).unwrap_or_else(|| Value::from(text)),
        }
    }

    /// Elements inside a value: an object, or an array if all have the name `item`.
    fn read_nested(&self, text: &str, schema: Option<&Value>, depth: usize) -> Value {
        let mut members = Map::new();
        let mut items = Vec::new();
        let mut rest = text.trim_start();
        let prefix = self.param_open.trim_end_matches('<');
        while let Some(inner) = rest.strip_prefix(self.param_open.as_str()) {
            let Some((key, after)) = inner.split_once('>') else {
                break;
            };
            let close = format!("{prefix}</{key}>");
            let Some((value, after)) = after.split_once(close.as_str()) else {
                break;
            };
            let part = schema.and_then(|schema| {
                schema
                    .get("properties")?
                    .get(key)
                    .or_else(|| schema.get("items"))
            });
            let value = if depth < MAX_NESTED && value.trim_start().starts_with(&self.param_open) {
                self.read_nested(value, part, depth + 1)
            } else {
                match part {
                    Some(part) => text_to_value(part, Some(part), value),
                    None => whole_json(value).unwrap_or_else(|| Value::from(value)),
                }
            };
            if key == "item" {
                items.push(value.clone());
            }
            members.insert(key.to_owned(), value);
            rest = after.trim_start();
        }
        if !items.is_empty() && members.len() == 1 {
            Value::Array(items)
        } else {
            Value::Object(members)
        }
    }
}
