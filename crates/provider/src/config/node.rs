//! YAML as a tree whose every value knows its line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

/// A place in the file, both counted from 1; 0 = unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

/// One value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Place, Node)>),
}

impl NodeKind {
    /// What the value is, for messages: scalars as they stand, the rest by kind.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Whole(value) => format!("`{value}`"),
            Self::Float(value) => format!("`{value}`"),
            Self::Text(text) if text.chars().count() > 60 => "a longer text".to_owned(),
            Self::Text(text) => format!("`{text}`"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }

    /// The value of this key, if this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Self::Map(entries) = self else {
            return None;
        };
        let (_, _, node) = entries.iter().find(|(name, ..)| name == key)?;
        Some(node)
    }

    /// The value as JSON, for parts that only pass through.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Whole(value) => i64::try_from(*value)
                .map(Value::from)
                .or_else(|_| u64::try_from(*value).map(Value::from))
                .unwrap_or_else(|_| value.to_string().into()),
            Self::Float(value) => (*value).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(|item| item.kind.to_json()).collect(),
            Self::Map(entries) => {
                let object: Map<_, _> = entries
                    .iter()
                    .map(|(key, _, node)| (key.clone(), node.kind.to_json()))
                    .collect();
                Value::Object(object)
            }
        }
    }
}

/// Reads one YAML document. Duplicate keys, several documents, and alias bombs are refused
/// by the parser.
///
/// # Errors
/// What is wrong and where.
pub(super) fn parse(text: &str) -> Result<Node, (Place, String)> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Option<Node>>(text, options) {
        Ok(Some(node)) => Ok(node),
        Ok(None) => Ok(Node {
            kind: NodeKind::Null,
            place: Place::default(),
        }),
        Err(error) => {
            let place = error.location().map(Place::from).unwrap_or_default();
            let message = error.to_string();
            // The place is told apart from the message, and the parser's hints are for
            // programmers: both go.
            let message = message.split(" at line ").next().unwrap_or_default();
            let message = message.split(", set ").next().unwrap_or_default();
            Err((place, plain(message.trim_end_matches(['.', ',', ' ']))))
        }
    }
}

/// What the parser says in words of its grammar, and what it means.
const IN_PLAIN_WORDS: [(&str, &str); 12] = [
    (
        "mapping values are not allowed",
        "a second `key: value` stands in this line, put text that holds `: ` into quotes",
    ),
    (
        "parsing a block collection",
        "the line is indented otherwise than the list above it",
    ),
    (
        "parsing a block mapping",
        "the line is indented otherwise than the keys above it",
    ),
    ("simple key expected ':'", "a key needs a `:` behind it"),
    ("tabs disallowed", "tabs cannot indent, use spaces"),
    (
        "unexpected character",
        "text cannot begin with this character, put it into quotes",
    ),
    (
        "references unknown anchor",
        "`*` refers to an anchor that is not there, put text that begins with `*` into quotes",
    ),
    ("recursive references", "an anchor refers to itself"),
    (
        "did not find expected hexadecimal number",
        "an escape in double quotes needs hexadecimal digits",
    ),
    (
        "parsing an implicit flow mapping",
        "a key needs a `:` and a value between `{` and `}`",
    ),
    (
        "YAML directive",
        "a line that begins with `%` is no setting",
    ),
    (
        "budget breached",
        "the file is too large or nested too deep",
    ),
];

fn plain(message: &str) -> String {
    let mut rows = IN_PLAIN_WORDS.iter();
    let found = rows.find(|(part, _)| message.contains(part));
    found.map_or(message, |(_, plain)| plain).to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<NodeKind>::deserialize(deserializer)?;
        Ok(Self {
            place: spanned.referenced.into(),
            kind: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for NodeKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = NodeKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<NodeKind, E> {
        Ok(NodeKind::Null)
    }

    fn visit_none<E>(self) -> Result<NodeKind, E> {
        Ok(NodeKind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeKind, D::Error> {
        NodeKind::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeKind, E> {
        Ok(NodeKind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeKind, E> {
        Ok(NodeKind::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NodeKind, E> {
        Ok(NodeKind::Whole(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<NodeKind, E> {
        Ok(NodeKind::Whole(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeKind, E> {
        Ok(NodeKind::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeKind, E> {
        Ok(NodeKind::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<NodeKind, E> {
        Ok(NodeKind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NodeKind, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(NodeKind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeKind, A::Error> {
        let mut entries: Vec<(String, Place, Node)> = Vec::new();
        while let Some(key) = map.next_key::<Node>()? {
            let name = match key.kind {
                NodeKind::Text(name) => name,
                other => {
                    return Err(A::Error::custom(format!(
                        "a key must be text, got {}",
                        other.brief()
                    )));
                }
            };
            entries.push((name, key.place, map.next_value()?));
        }
        Ok(NodeKind::Map(entries))
    }
}
