//! Grammars of calls, in llguidance's Lark dialect.

use serde_json::{Value, json};

use crate::chat::{ToolChoice, ToolSpec};
use crate::schema::for_grammar;
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
    format!("start: %json {}\n", guided(for_grammar(schema)))
}

/// A grammar of text that may hold calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LazyGrammar {
    /// The grammar in llguidance's Lark dialect.
    pub lark: String,
    /// The text that opens what is bound; outside of it everything is allowed.
    pub marker: String,
}

/// How one model is to write a forced call.
#[derive(Debug)]
pub struct CallFormat<'a> {
    frame: Frame,
    /// The marker that every call or group of calls begins with; empty if there is none.
    marker: &'static str,
    control_tokens: &'a [(u32, String)],
}

impl<'a> CallFormat<'a> {
    /// The format of this dialect; `None` if its calls are not JSON between fixed texts.
    #[must_use]
    pub fn new(dialect: &ToolDialect) -> Option<Self> {
        let frame = Frame::of(dialect)?;
        let marker = match dialect.raw {
            RawStart::No => dialect.call_open(),
            RawStart::AnswerStart | RawStart::LineStart => "",
        };
        Some(Self {
            frame,
            marker,
            control_tokens: &[],
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

    /// A grammar that leaves the model free and binds its calls once they open; `None` if no
    /// tool may be called, or if the format's calls begin with no marker.
    ///
    /// Without `parallel` a second call cannot open. Where the marker is plain text, no line behind
    /// the call begins with the marker's first visible character then, unless that is a letter, a
    /// digit or one that begins lines of Markdown: a marker that is refused at its end only would
    /// stay in the text, all but its end.
    #[must_use]
    pub fn lazy_grammar(
        &self,
        tools: &[ToolSpec],
        choice: &ToolChoice,
        parallel: bool,
    ) -> Option<LazyGrammar> {
        let is_free = matches!(choice, ToolChoice::Auto | ToolChoice::Only(_));
        if !is_free || self.marker.is_empty() {
            return None;
        }
        let is_token = self.control_tokens.iter().any(|(_, t)| t == self.marker);
        let quoted = json!(self.marker);
        // Plain text that ends with the marker is taken as soon as it does, so text that is
        // free never holds it while another call may open.
        let (opened, last) = match is_token {
            true => (
                format!("opened: FREE?{}", self.literal(self.marker)),
                "LAST: FREE".to_owned(),
            ),
            false => {
                let opened = format!("opened[lazy]: OPENED\nOPENED: /(.|\\n)*/ {quoted}");
                let mut last = format!("LAST: FREE & ~(/(.|\\n)*/ {quoted} /(.|\\n)*/)");
                let first = self.marker.trim_start().chars().next();
                let is_prose = |c: char| c.is_alphanumeric() || "`#>-*+|".contains(c);
                if let Some(first) = first.filter(|c| !is_prose(*c)) {
                    let first = json!(first.to_string());
                    let line = format!("/((.|\\n)*\\n)?[ \\t\\r]*/ {first} /(.|\\n)*/");
                    last.push_str(&format!(" & ~({line})"));
                }
                (opened, last)
            }
        };
        let frame = &self.frame;
        let (block, before_name) = match frame.start.strip_prefix(self.marker) {
            Some(rest) => (self.group(rest, parallel), frame.before_name.as_str()),
            None => {
                let rest = frame.before_name.strip_prefix(self.marker)?;
                ("call".to_owned(), rest)
            }
        };
        let start = match parallel {
            true => format!("(opened {block})* FREE?"),
            false => format!("FREE? | opened {block} LAST?"),
        };
        let calls = self.calls(tools, choice, before_name)?;
        let lark = format!("start: {start}\n{opened}\n{last}\nFREE: /(.|\\n)+/\n{calls}");
        let marker = self.marker.to_owned();
        Some(LazyGrammar { lark, marker })
    }

    fn forced(&self, tools: &[ToolSpec], choice: &ToolChoice, parallel: bool) -> String {
        let is_parallel = parallel && *choice == ToolChoice::Required;
        let start = self.group(&self.frame.start, is_parallel);
        let calls = self.calls(tools, choice, &self.frame.before_name);
        format!("start: {start}\n{}", calls.unwrap_or_default())
    }

    /// One call or several between the texts around them.
    fn group(&self, start: &str, is_parallel: bool) -> String {
        let frame = &self.frame;
        let more = if is_parallel {
            let between = self.literal(frame.between);
            // A line's end behind the last call promises no other one.
            let last = match frame.end.is_empty() && frame.between == "\n" {
                true => " \"\\n\"?",
                false => "",
            };
            format!(" ({between} call){{0,{}}}{last}", MAX_CONSTRAINED_CALLS - 1)
        } else {
            String::new()
        };
        format!(
            "{}call{more}{}",
            self.literal(start),
            self.literal(&frame.end)
        )
    }

    /// The rules of each tool's call; `None` if none may be called.
    fn calls(&self, tools: &[ToolSpec], choice: &ToolChoice, before_name: &str) -> Option<String> {
        let frame = &self.frame;
        let literal = |text: &str| self.literal(text);
        let allowed: Vec<&ToolSpec> = tools
            .iter()
            .filter(|tool| choice.only_tool().is_none_or(|name| name == tool.name))
            .collect();
        let names: Vec<String> = (0..allowed.len())
            .map(|idx| format!("call_{idx}"))
            .collect();
        let mut grammar = format!("call: {}\n", names.join(" | "));
        for (idx, tool) in allowed.iter().enumerate() {
            let head = format!(
                "{before_name}{}{}",
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
        (!allowed.is_empty()).then_some(grammar)
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

fn bound_schema(schema: &Value) -> Value {
    let mut schema = for_grammar(schema);
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

/// True if a text of this schema may have to have a control character that JSON writes by its
/// code. Everywhere else such escapes are left out: a name could be spelled by them that the
/// grammar takes for another one.
fn needs_code_escapes(schema: &Value) -> bool {
    let text = schema.to_string();
    let has_control = text.contains(r"\u00") || text.contains('\u{7f}');
    let by_code = [
        r"\\x", r"\\u", r"\\c", r"\\0", r"\\p", r"\\v", r"\\s", r"\\P",
    ];
    has_control || by_code.iter().any(|code| text.contains(code))
}

/// The schema with llguidance's options: the separators of Python's `json.dumps`, and
/// keywords that it does not know passed over.
fn guided(mut schema: Value) -> Value {
    let escapes = match needs_code_escapes(&schema) {
        true => "nrbtf\\\"u",
        false => "nrbtf\\\"",
    };
    if let Value::Object(object) = &mut schema {
        object.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_flexible": false, "lenient": true, "item_separator": ", ", "key_separator": ": ", "json_allowed_escapes": escapes}),
        );
    }
    schema
}
