//! Dialects that a user defines.

use std::fmt;

use super::dialects::{Body, JsonLayout, ToolDialect, XmlForm, dialect};
use super::named_body::NameStyle;
use super::table::ROW;
use super::xml_values::{ValueFraming, ValueTyping};

/// A dialect that differs from a known one only in its markers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CustomDialect {
    /// Its name in the configuration.
    pub name: String,
    /// The marker that opens a block.
    pub open: String,
    /// The marker that closes it; empty if nothing does.
    pub close: String,
    /// For a JSON body: what stands between the tool's name and its arguments. Empty: the
    /// name is a key of the JSON.
    pub separator: String,
    /// What stands between the markers.
    pub body: CustomBody,
    /// The key of the name, or the element of a call. Default `name`, or `function`.
    pub name_key: String,
    /// The key of the arguments, or the element of one. Default `arguments`, or `parameter`.
    pub arguments_key: String,
}

/// The bodies that a user's dialect may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CustomBody {
    /// JSON.
    #[default]
    Json,
    /// `<function=f><parameter=x>1</parameter></function>`, typed by the schema.
    XmlParameters,
    /// `[f(x=1)]`.
    Pythonic,
}

impl CustomBody {
    /// Every body, in the order of the documentation.
    pub const ALL: &'static [Self] = &[Self::Json, Self::XmlParameters, Self::Pythonic];

    /// The name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::XmlParameters => "xml-parameters",
            Self::Pythonic => "pythonic",
        }
    }
}

/// A dialect that cannot be read, and the key at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadDialect {
    /// The key.
    pub key: &'static str,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for BadDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.message)
    }
}

impl std::error::Error for BadDialect {}

impl CustomDialect {
    /// The dialect as a row like those of the table, which reads and writes.
    ///
    /// Its strings are kept for the life of the process, so build it once for each
    /// configuration, not for each turn.
    ///
    /// # Errors
    /// The name is missing, taken or no word; a marker is missing, or the two are equal; a
    /// key holds markup of its own.
    pub fn to_dialect(&self) -> Result<ToolDialect, BadDialect> {
        let bad = |key, message: &str| {
            let message = message.to_owned();
            Err(BadDialect { key, message })
        };
        if self.name.trim().is_empty() {
            return bad("name", "a dialect needs a name");
        }
        let is_taken = ["auto", "openai", "none"].contains(&self.name.as_str());
        if is_taken || dialect(&self.name).is_some() {
            return bad("name", "is the name of a dialect already");
        }
        if self.name.contains(|c: char| c == '+' || c.is_whitespace()) {
            return bad("name", "must be one word without `+`");
        }
        if self.open.trim().is_empty() {
            return bad("open", "a dialect needs an opening marker");
        }
        if self.open == self.close {
            return bad("close", "must differ from the opening marker");
        }
        if self.close.is_empty() && self.body == CustomBody::XmlParameters {
            return bad("close", "a body of xml-parameters needs a closing marker");
        }
        let is_word = |key: &str| {
            key.chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.'))
        };
        if !is_word(&self.name_key) {
            return bad("name_key", "must be one word");
        }
        if !is_word(&self.arguments_key) {
            return bad("arguments_key", "must be one word");
        }
        Ok(ToolDialect {
            name: kept(&self.name),
            models: "by configuration",
            opens: kept_list(&self.open),
            closes: if self.close.is_empty() {
                &[]
            } else {
                kept_list(&self.close)
            },
            body: self.kept_body(),
            in_auto: false,
            source: "configuration",
            ..ROW
        })
    }

    fn kept_body(&self) -> Body {
        let or =
            |text: &str, default: &'static str| if text.is_empty() { default } else { kept(text) };
        match self.body {
            CustomBody::Json if self.separator.is_empty() => Body::Json {
                name_key: or(&self.name_key, "name"),
                arguments_key: or(&self.arguments_key, "arguments"),
                layout: JsonLayout::Each,
                frame: ("", ""),
            },
            CustomBody::Json => Body::Named {
                style: NameStyle::Plain,
                call_open: kept(&self.open),
                separators: kept_list(&self.separator),
                call_close: kept(&self.close),
            },
            CustomBody::XmlParameters => {
                let call = or(&self.name_key, "function");
                let parameter = or(&self.arguments_key, "parameter");
                Body::Xml(Box::leak(Box::new(XmlForm {
                    call_open: kept(&format!("<{call}=")),
                    name_end: ">",
                    call_close: kept(&format!("</{call}>")),
                    param_open: kept(&format!("<{parameter}=")),
                    key_end: ">",
                    value_open: "",
                    param_close: kept(&format!("</{parameter}>")),
                    typing: ValueTyping::Schema,
                    framing: ValueFraming::Lines,
                    noise: &[],
                    gap: "\n",
                    one_group: false,
                })))
            }
            CustomBody::Pythonic => Body::Python { in_list: true },
        }
    }
}

fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn kept_list(text: &str) -> &'static [&'static str] {
    Box::leak(Box::new([kept(text)]))
}
