//! Grammars of forced calls, in llguidance's Lark dialect.

use serde_json::{Value, json};

use crate::chat::{ToolChoice, ToolSpec};
use crate::schema::{close_objects, keywords_used, narrow_numbers};
use crate::tool_parser::{Body, DIALECTS, JsonLayout, NameStyle, RawStart, ToolDialect};

/// Most calls that a constrained turn may make.
const MAX_CONSTRAINED_CALLS: usize = 8;

/// References that are followed from a schema's root.
const MAX_ROOT_HOPS: usize = 16;

/// [`CallFormat::grammar`] for Hermes calls, in which tools are explained to templates that
/// know none.
#[must_use]
pub fn call_grammar(tools: &[ToolSpec], choice: &ToolChoice, parallel: bool) -> Option<String> {
    CallFormat::hermes()?.grammar(tools, choice, parallel)
}

/// A grammar of an answer that is JSON of this schema.
#[must_use]
pub fn form_grammar(schema: &Value) -> String {
    format!("start: %json {}\n", guided(close_objects(schema)))
}

/// How one model is to write a forced call.
#[derive(Debug)]
pub struct CallFormat<'a> {
    frame: Frame,
    control_tokens: &'a [(u32, String)],
}

impl<'a> CallFormat<'a> {
    /// The format of this dialect; `None` if its calls are not JSON between fixed texts.
    #[must_use]
    pub fn new(dialect: &ToolDialect) -> Option<Self> {
        let frame = Frame::of(dialect)?;
        let control_tokens = &[];
        Some(Self {
            frame,
            control_tokens,
        })
    }

    pub(crate) fn hermes() -> Option<Self> {
        Self::new(DIALECTS.iter().find(|row| row.name == "hermes")?)
    }

    /// Writes these texts as the tokens of these numbers: a grammar's plain text never spells
    /// a control token.
    #[must_use]
    pub fn with_control_tokens(self, control_tokens: &'a [(u32, String)]) -> Self {
        Self {
            control_tokens,
            ..self
        }
    }

    /// A grammar of the turn's calls, for a choice that demands one; `None` if the choice
    /// leaves the model free.
    ///
    /// The JSON is bound to each tool's schema and to the spacing that models were trained on.
    /// A named choice is one call; `Required` with `parallel` is up to eight.
    #[must_use]
    pub fn grammar(
        &self,
        tools: &[ToolSpec],
        choice: &ToolChoice,
        parallel: bool,
    ) -> Option<String> {
        choice
            .forces_call()
            .then(|| self.forced(tools, choice, parallel))
    }

    fn forced(&self, tools: &[ToolSpec], choice: &ToolChoice, parallel: bool) -> String {
        let frame = &self.frame;
        let literal = |text: &str| self.literal(text);
        let allowed: Vec<&ToolSpec> = tools
            .iter()
            .filter(|tool| choice.only_tool().is_none_or(|name| name == tool.name))
            .collect();
        let names: Vec<String> = (0..allowed.len())
            .map(|idx| format!("call_{idx}"))
            .collect();
        let more = if parallel && *choice == ToolChoice::Required {
            let between = literal(frame.between);
            format!(" ({between} call){{0,{}}}", MAX_CONSTRAINED_CALLS - 1)
        } else {
            String::new()
        };
        let mut grammar = format!(
            "start: {}call{more}{}\ncall: {}\n",
            literal(&frame.start),
            literal(&frame.end),
            names.join(" | ")
        );
        for (idx, tool) in allowed.iter().enumerate() {
            let head = format!(
                "{}{}{}",
                frame.before_name,
                frame.name(&tool.name),
                frame.after_name
            );
            grammar.push_str(&format!(
                "call_{idx}: {}args_{idx}{}\nargs_{idx}: %json {}\n",
                literal(&head),
                literal(&frame.after_arguments),
                bound_schema(&tool.parameters),
            ));
        }
        grammar
    }

    /// A text as terminals with the space around them; nothing if it is empty.
    fn literal(&self, text: &str) -> String {
        let mut written = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let tokens = self.control_tokens.iter();
            let found =
                tokens.filter_map(|(id, token)| Some((rest.find(token.as_str())?, id, token)));
            // The first one; of two that begin there the longer one.
            let first = found.min_by_key(|(at, _, token)| (*at, usize::MAX - token.len()));
            let before = first.map_or(rest, |(at, ..)| &rest[..at]);
            if !before.is_empty() {
                written.push_str(&format!(" {} ", json!(before)));
            }
            rest = match first {
                Some((at, id, token)) => {
                    written.push_str(&format!(" <[{id}]> "));
                    &rest[at + token.len()..]
                }
                None => "",
            };
        }
        written
    }
}

/// The fixed texts around the names and arguments of a turn's calls.
#[derive(Debug)]
pub(super) struct Frame {
    start: String,
    before_name: String,
    is_json_name: bool,
    after_name: String,
    after_arguments: String,
    between: &'static str,
    end: String,
}

impl Frame {
    pub(super) fn of(dialect: &ToolDialect) -> Option<Self> {
        let (open, close) = match dialect.raw {
            RawStart::No => (dialect.call_open(), dialect.call_close()),
            RawStart::AnswerStart | RawStart::LineStart => ("", ""),
        };
        match dialect.body {
            Body::Json {
                name_key,
                arguments_key,
                layout,
                frame,
            } => {
                let (open, close) = (format!("{open}{}", frame.0), format!("{}{close}", frame.1));
                Some(Self::of_json(
                    (name_key, arguments_key),
                    layout,
                    open,
                    close,
                ))
            }
            Body::Named {
                style: NameStyle::Plain | NameStyle::Mistral | NameStyle::Deepseek,
                call_open,
                separators,
                call_close,
            } => {
                let is_grouped = open != call_open;
                Some(Self {
                    start: if is_grouped { open } else { "" }.to_owned(),
                    before_name: call_open.to_owned(),
                    is_json_name: false,
                    after_name: separators.first().copied().unwrap_or_default().to_owned(),
                    after_arguments: call_close.to_owned(),
                    between: "",
                    end: if is_grouped { close } else { "" }.to_owned(),
                })
            }
            // Names that are more than the tool's, or arguments that are no JSON.
            Body::Named { .. }
            | Body::Xml(_)
            | Body::Python { .. }
            | Body::Gemma { .. }
            | Body::Channels(_) => None,
        }
    }

    /// Call objects with these keys between these texts.
    fn of_json(keys: (&str, &str), layout: JsonLayout, open: String, close: String) -> Self {
        let (before_name, after_name) = match keys {
            ("", _) => ("{".to_owned(), ": ".to_owned()),
            (name, arguments) => (
                format!("{{{}: ", json!(name)),
                format!(", {}: ", json!(arguments)),
            ),
        };
        let call = Self {
            start: open,
            before_name,
            is_json_name: true,
            after_name,
            after_arguments: "}".to_owned(),
            between: "\n",
            end: close,
        };
        match layout {
            // Each call has markers of its own.
            JsonLayout::Each => Self {
                before_name: format!("{}{}", call.start, call.before_name),
                after_arguments: format!("{}{}", call.after_arguments, call.end),
                start: String::new(),
                end: String::new(),
                ..call
            },
            JsonLayout::Lines => call,
            JsonLayout::Semicolons => Self {
                between: "; ",
                ..call
            },
            JsonLayout::Array => Self {
                start: format!("{}[", call.start),
                between: ", ",
                end: format!("]{}", call.end),
                ..call
            },
        }
    }

    fn name(&self, name: &str) -> String {
        if self.is_json_name {
            json!(name).to_string()
        } else {
            name.to_owned()
        }
    }

    /// A turn of one call.
    #[cfg(test)]
    pub(super) fn write(&self, name: &str, arguments: &str) -> String {
        [
            self.start.as_str(),
            &self.before_name,
            &self.name(name),
            &self.after_name,
            arguments,
            &self.after_arguments,
            &self.end,
        ]
        .concat()
    }
}

/// Keywords that llguidance 1.9 does not bind, or only roughly (`oneOf` as `anyOf`).
const UNBOUND_KEYWORDS: [&str; 13] = [
    "oneOf",
    "not",
    "if",
    "uniqueItems",
    "contains",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// What a forced call's grammar leaves to the check afterwards: the tool's name and its
/// schema's keywords, for each tool that has any.
#[must_use]
pub fn unbound_keywords(tools: &[ToolSpec]) -> Vec<(&str, Vec<&'static str>)> {
    tools
        .iter()
        .map(|tool| {
            let used = keywords_used(&tool.parameters, &UNBOUND_KEYWORDS);
            (tool.name.as_str(), used)
        })
        .filter(|(_, used)| !used.is_empty())
        .collect()
}

fn bound_schema(schema: &Value) -> Value {
    let mut schema = close_objects(schema);
    follow_root(&mut schema);
    if let Value::Object(object) = &mut schema {
        object.entry("type").or_insert_with(|| json!("object"));
    }
    guided(schema)
}

/// Puts what the root refers to in its place: beside a reference that comes back to itself
/// no type can be bound. A reference that leads only to itself stays.
fn follow_root(schema: &mut Value) {
    for _ in 0..MAX_ROOT_HOPS {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| reference.strip_prefix('#'));
        let target = target.and_then(|target| schema.pointer(target));
        let Some(Value::Object(target)) = target.cloned() else {
            return;
        };
        if let Value::Object(root) = schema {
            // Both hold: that needs the reference itself.
            if target
                .keys()
                .any(|key| key != "$ref" && root.contains_key(key))
            {
                return;
            }
            root.shift_remove("$ref");
            for (key, value) in target {
                root.entry(key).or_insert(value);
            }
        }
    }
}

/// The schema with llguidance's options: the separators of Python's `json.dumps`, and
/// keywords that it does not know passed over.
fn guided(schema: Value) -> Value {
    let mut schema = narrow_numbers(&schema);
    if let Value::Object(object) = &mut schema {
        object.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_flexible": false, "lenient": true, "item_separator": ", ", "key_separator": ": "}),
        );
    }
    schema
}
