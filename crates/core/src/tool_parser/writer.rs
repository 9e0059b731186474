//! The dialects read backwards: past calls and results as the model would have seen them.

use serde_json::Value;

use super::channels::{BEAM_PARAMETERS, ChannelKind, MUSE_INVOKES};
use super::dialects::{Body, JsonLayout, ToolDialect, XmlForm};
use super::named_body::NameStyle;
use super::xml_values::{ValueFraming, ValueTyping};
use crate::chat::ToolCall;
use crate::text::to_python_json;

impl ToolDialect {
    /// The marker that opens a call block; empty if nothing does.
    #[must_use]
    pub fn call_open(&self) -> &'static str {
        self.opens.first().copied().unwrap_or_default()
    }

    /// The marker that closes a call block; empty if nothing does.
    #[must_use]
    pub fn call_close(&self) -> &'static str {
        self.closes.first().copied().unwrap_or_default()
    }

    /// Past calls in the dialect's notation, as one run of text (row E18).
    ///
    /// Reading it back gives the same calls, save where the notation cannot say it: XML-like
    /// values hold no closing tag of their own parameter followed by another tag, and keys
    /// of Python calls are identifiers.
    #[must_use]
    pub fn write_calls(&self, calls: &[ToolCall]) -> String {
        if calls.is_empty() {
            return String::new();
        }
        match self.body {
            Body::Json {
                name_key,
                arguments_key,
                layout,
                frame,
            } => {
                let objects = calls
                    .iter()
                    .map(|call| json_object(call, name_key, arguments_key));
                self.write_json(&objects.collect::<Vec<_>>(), layout, frame)
            }
            Body::Named {
                style,
                call_open,
                separators,
                call_close,
            } => {
                let separator = separators.first().copied().unwrap_or_default();
                self.write_named(calls, style, call_open, separator, call_close)
            }
            Body::Xml(form) => self.write_xml(calls, form),
            Body::Python { in_list } => {
                let written: Vec<String> = calls.iter().map(python_call).collect();
                let body = if in_list {
                    format!("[{}]", written.join(", "))
                } else {
                    format!("\n{}\n", written.join("\n"))
                };
                self.framed(&body)
            }
            Body::Gemma { quote } => {
                let written = calls
                    .iter()
                    .map(|call| self.framed(&gemma_call(call, quote)));
                written.collect::<Vec<_>>().concat()
            }
            Body::Channels(kind) => channel_calls(calls, kind),
        }
    }

    /// A tool's result in the dialect's frame. The content is not changed: whoever renders
    /// a prompt marks it as untrusted.
    #[must_use]
    pub fn write_result(&self, content: &str) -> String {
        format!("{}{content}{}", self.result.0, self.result.1)
    }

    /// How to call, for a system text (row E3).
    #[must_use]
    pub fn write_instruction(&self, example: &ToolCall) -> String {
        let example = self.write_calls(std::slice::from_ref(example));
        format!(
            "To call a function, reply in exactly this form, with the function's name and its arguments:\n{example}"
        )
    }

    /// Raw dialects are written without a marker, as their models do.
    fn framed(&self, body: &str) -> String {
        if self.raw != super::RawStart::No {
            return body.to_owned();
        }
        format!("{}{body}{}", self.call_open(), self.call_close())
    }

    fn write_json(&self, objects: &[String], layout: JsonLayout, frame: (&str, &str)) -> String {
        let block = |body: &str| self.framed(&format!("{}{body}{}", frame.0, frame.1));
        match layout {
            JsonLayout::Each => objects
                .iter()
                .map(|object| block(object))
                .collect::<Vec<_>>()
                .join("\n"),
            JsonLayout::Array => block(&format!("[{}]", objects.join(", "))),
            JsonLayout::Lines => block(&objects.join("\n")),
            JsonLayout::Semicolons => block(&objects.join("; ")),
        }
    }

    fn write_named(
        &self,
        calls: &[ToolCall],
        style: NameStyle,
        call_open: &str,
        separator: &str,
        call_close: &str,
    ) -> String {
        let written = calls.iter().enumerate().map(|(idx, call)| {
            let (name, arguments) = (&call.name, call.arguments.as_text());
            match style {
                NameStyle::Kimi => {
                    let own = format!("functions.{name}:");
                    let id = if call.id.starts_with(&own) { call.id.clone() } else { format!("{own}{idx}") };
                    format!("{call_open}{id}{separator}{arguments}{call_close}")
                }
                NameStyle::DeepseekFenced => {
                    format!("{call_open}function{separator}{name}\n```json\n{arguments}\n```{call_close}")
                }
                NameStyle::Recipient => {
                    let open = if idx == 0 { "" } else { call_open };
                    format!("{open}{name}{separator}{arguments}\n")
                }
                NameStyle::Plain | NameStyle::Mistral | NameStyle::Deepseek => {
                    format!("{call_open}{name}{separator}{arguments}{call_close}")
                }
            }
        });
        let gap = if style == NameStyle::DeepseekFenced {
            "\n"
        } else {
            ""
        };
        let body = written.collect::<Vec<_>>().join(gap);
        if self.call_open() == call_open {
            return body;
        }
        format!("{}{body}{}", self.call_open(), self.call_close())
    }

    fn write_xml(&self, calls: &[ToolCall], form: &XmlForm) -> String {
        let gap = form.gap;
        let (before, after) = match form.noise {
            [open, kind, separator, close] => {
                (format!("{open}{kind}{separator}"), (*close).to_owned())
            }
            _ => (String::new(), String::new()),
        };
        let written = calls.iter().map(|call| {
            let name_gap = if form.name_end.is_empty() && gap.is_empty() {
                ""
            } else {
                "\n"
            };
            let name_gap = if form.name_end.is_empty() {
                name_gap
            } else {
                gap
            };
            let mut text = format!(
                "{before}{}{}{}{name_gap}",
                form.call_open, call.name, form.name_end
            );
            for (key, value) in call.arguments.as_object() {
                text.push_str(&parameter(form, key, value));
                text.push_str(gap);
            }
            format!("{text}{}{after}", form.call_close)
        });
        let written: Vec<String> = written.collect();
        if self.call_open() == form.call_open {
            return written.join("\n");
        }
        let group =
            |body: &str| format!("{}{gap}{body}{gap}{}", self.call_open(), self.call_close());
        if form.one_group {
            group(&written.join(gap))
        } else {
            written
                .iter()
                .map(|body| group(body))
                .collect::<Vec<_>>()
                .join("\n")
        }
    }
}

fn json_object(call: &ToolCall, name_key: &str, arguments_key: &str) -> String {
    let name = Value::from(call.name.as_str());
    let arguments = call.arguments.as_text();
    if name_key.is_empty() {
        return format!("{{{name}: {arguments}}}");
    }
    format!("{{\"{name_key}\": {name}, \"{arguments_key}\": {arguments}}}")
}

fn parameters(form: &XmlForm, call: &ToolCall) -> Vec<String> {
    let arguments = call.arguments.as_object().iter();
    arguments
        .map(|(key, value)| parameter(form, key, value))
        .collect()
}

fn parameter(form: &XmlForm, key: &str, value: &Value) -> String {
    let (text, is_text) = match value {
        Value::String(text) => (text.clone(), true),
        other => (to_python_json(other, None), false),
    };
    let text = match form.framing {
        ValueFraming::Lines => format!("\n{text}\n"),
        ValueFraming::Cdata if is_text => format!("<![CDATA[{text}]]>"),
        ValueFraming::Verbatim | ValueFraming::Cdata => text,
    };
    let attribute = match (form.typing, is_text) {
        (ValueTyping::Attribute, true) => "\" string=\"true\"",
        (ValueTyping::Attribute, false) => "\" string=\"false\"",
        _ => "",
    };
    let value_gap = if form.value_open.is_empty() {
        ""
    } else {
        form.gap
    };
    let close = if form.param_close.is_empty() {
        format!("{}</{key}>", form.param_open.trim_end_matches('<'))
    } else {
        form.param_close.to_owned()
    };
    format!(
        "{}{key}{attribute}{}{value_gap}{}{text}{close}",
        form.param_open, form.key_end, form.value_open
    )
}

fn python_call(call: &ToolCall) -> String {
    let arguments = call
        .arguments
        .as_object()
        .iter()
        .map(|(key, value)| format!("{key}={}", python_literal(value)));
    format!(
        "{}({})",
        call.name,
        arguments.collect::<Vec<_>>().join(", ")
    )
}

fn python_literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!(
            "[{}]",
            items
                .iter()
                .map(python_literal)
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| {
                format!("{}: {}", Value::from(key.as_str()), python_literal(value))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn gemma_call(call: &ToolCall, quote: &str) -> String {
    let members = gemma_members(call.arguments.as_object(), quote);
    format!("call:{}{{{members}}}", call.name)
}

fn gemma_members(members: &serde_json::Map<String, Value>, quote: &str) -> String {
    let members = members
        .iter()
        .map(|(key, value)| format!("{key}:{}", gemma_value(value, quote)));
    members.collect::<Vec<_>>().join(",")
}

fn gemma_value(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => format!(
            "[{}]",
            items
                .iter()
                .map(|item| gemma_value(item, quote))
                .collect::<Vec<_>>()
                .join(",")
        ),
        Value::Object(members) => format!("{{{}}}", gemma_members(members, quote)),
        other => other.to_string(),
    }
}

fn channel_calls(calls: &[ToolCall], kind: ChannelKind) -> String {
    let written = calls.iter().enumerate().map(|(idx, call)| {
        let (name, arguments) = (&call.name, call.arguments.as_text());
        match kind {
            ChannelKind::Harmony => {
                let start = if idx == 0 { "" } else { "<|start|>assistant" };
                format!("{start}<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>")
            }
            ChannelKind::Beam => {
                let start = if idx == 0 { "" } else { "<|start|>assistant" };
                let parameters = parameters(&BEAM_PARAMETERS, call).join(BEAM_PARAMETERS.gap);
                format!("{start} to={name}<|channel|>analysis <|constrain|>xml<|message|>{parameters}<|call|>")
            }
            ChannelKind::Muse => {
                let start = if idx == 0 { "" } else { "<|start|>assistant" };
                let mut lines = vec![
                    "<atem:function_calls>".to_owned(),
                    format!("{}{name}{}", MUSE_INVOKES.call_open, MUSE_INVOKES.name_end),
                ];
                lines.extend(parameters(&MUSE_INVOKES, call));
                lines.push(MUSE_INVOKES.call_close.to_owned());
                lines.push("</atem:function_calls>".to_owned());
                format!("{start} to={name}<|message|>{}<|eom|>", lines.join(MUSE_INVOKES.gap))
            }
            ChannelKind::Inkling => {
                let object = json_object(call, "name", "args");
                format!("<|message_model|>{name}<|content_invoke_tool_json|>{object}<|end_message|>")
            }
            ChannelKind::KimiK3 => {
                let mut text = format!("<|open|>call tool=\"{name}\" index=\"{}\"<|sep|>", idx + 1);
                for (key, value) in call.arguments.as_object() {
                    let (kind, value) = k3_value(value);
                    text.push_str(&format!(
                        "<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>{value}<|close|>argument<|sep|>"
                    ));
                }
                format!("{text}<|close|>call<|sep|>")
            }
        }
    });
    let body = written.collect::<Vec<_>>().concat();
    match kind {
        ChannelKind::KimiK3 => format!("<|open|>tools<|sep|>{body}<|close|>tools<|sep|>"),
        _ => body,
    }
}

fn k3_value(value: &Value) -> (&'static str, String) {
    match value {
        Value::String(text) => ("string", text.clone()),
        Value::Number(number) => ("number", number.to_string()),
        Value::Bool(is) => ("boolean", is.to_string()),
        Value::Null => ("null", "null".to_owned()),
        Value::Array(_) => ("array", to_python_json(value, None)),
        Value::Object(_) => ("object", to_python_json(value, None)),
    }
}
