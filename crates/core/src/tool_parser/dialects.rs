//! The table of tool dialects. A dialect that differs only in markers is a row here.

use super::ToolSyntax;
use super::block::{BlockRules, BodyRules, RawStart};
use super::channels::ChannelKind;
use super::gemma_body::GemmaRules;
use super::json_body::JsonRules;
use super::named_body::{NameStyle, NamedRules};
use super::python_body::PythonRules;
use super::table::DIALECTS;
use super::xml_body::XmlRules;
use super::xml_values::{ValueFraming, ValueTyping};
use crate::text::{Marker, MarkerScanner};

/// One row of the table of tool dialects.
#[derive(Debug, Clone, Copy)]
pub struct ToolDialect {
    /// The name that configuration and case files use.
    pub name: &'static str,
    /// Other names of the same dialect.
    pub aliases: &'static [&'static str],
    /// Model families that write it.
    pub models: &'static str,
    /// Markers that open a block; the first one is written.
    pub opens: &'static [&'static str],
    /// Markers that close it; the first one is written. None: it ends with its body.
    pub closes: &'static [&'static str],
    /// What stands between them.
    pub body: Body,
    /// Whether the body may stand without the opening marker.
    pub raw: RawStart,
    /// The reasoning dialect that its models write.
    pub reasoning: &'static str,
    /// `auto` looks for it.
    pub in_auto: bool,
    /// What frames a tool's result in the history.
    pub result: (&'static str, &'static str),
    /// Where the format is defined, with the date read.
    pub source: &'static str,
}

/// How several calls are laid out in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonLayout {
    /// A block for each call.
    Each,
    /// One array in one block.
    Array,
    /// One object per line in one block.
    Lines,
    /// Objects with a semicolon between them.
    Semicolons,
}

/// The kinds of body.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// Call objects in JSON.
    Json {
        /// The key of the tool's name; empty: the object's key is the name.
        name_key: &'static str,
        /// The key of the arguments.
        arguments_key: &'static str,
        /// How several calls stand together.
        layout: JsonLayout,
        /// What frames the JSON inside the markers.
        frame: (&'static str, &'static str),
    },
    /// The name outside the JSON of its arguments.
    Named {
        /// How they are set apart.
        style: NameStyle,
        /// What opens a call.
        call_open: &'static str,
        /// What ends the name; the first one is written.
        separators: &'static [&'static str],
        /// What closes a call; empty: nothing.
        call_close: &'static str,
    },
    /// An element for each argument.
    Xml(&'static XmlForm),
    /// Python calls.
    Python {
        /// In a list, or one per line.
        in_list: bool,
    },
    /// Gemma's `call:f{..}` with this token around strings.
    Gemma {
        /// The token.
        quote: &'static str,
    },
    /// The whole output is framed.
    Channels(ChannelKind),
}

/// The elements of an XML-like dialect.
#[derive(Debug, Clone, Copy)]
pub struct XmlForm {
    /// What opens a call, up to its name.
    pub call_open: &'static str,
    /// What ends the name; empty: its line.
    pub name_end: &'static str,
    /// What closes a call.
    pub call_close: &'static str,
    /// What opens a parameter, up to its key.
    pub param_open: &'static str,
    /// What ends the key.
    pub key_end: &'static str,
    /// What stands before the value, if anything does.
    pub value_open: &'static str,
    /// What closes a parameter; empty: the element is named after its key.
    pub param_close: &'static str,
    /// Where types come from.
    pub typing: ValueTyping,
    /// How a value is framed.
    pub framing: ValueFraming,
    /// Texts between calls that mean nothing.
    pub noise: &'static [&'static str],
    /// What is written between the elements.
    pub gap: &'static str,
    /// All calls of a turn are written into one group.
    pub one_group: bool,
}

impl XmlForm {
    pub(super) fn rules(&self, section_open: Option<String>, section_closes: &[&str]) -> XmlRules {
        XmlRules {
            section_open,
            section_closes: section_closes
                .iter()
                .map(|close| (*close).to_owned())
                .collect(),
            call_open: self.call_open.to_owned(),
            name_end: self.name_end.to_owned(),
            call_close: self.call_close.to_owned(),
            param_open: self.param_open.to_owned(),
            key_end: self.key_end.to_owned(),
            value_open: self.value_open.to_owned(),
            param_close: self.param_close.to_owned(),
            typing: self.typing,
            framing: self.framing,
            noise: self.noise.iter().map(|noise| (*noise).to_owned()).collect(),
        }
    }
}

/// Keys that models use for the name and for the arguments; all are read everywhere.
const NAME_KEYS: &[&str] = &["name", "tool_name", "tool"];
const ARGUMENT_KEYS: &[&str] = &["arguments", "parameters", "args"];

impl ToolDialect {
    /// True if its argument text is shown as it comes, not only per finished parameter.
    #[must_use]
    pub fn streams_arguments(&self) -> bool {
        match self.body {
            Body::Json { .. } | Body::Named { .. } => true,
            Body::Channels(kind) => kind.streams_arguments(),
            Body::Xml(_) | Body::Python { .. } | Body::Gemma { .. } => false,
        }
    }

    /// The syntax that reads this dialect alone.
    #[must_use]
    pub fn syntax(&self) -> ToolSyntax {
        let mut syntax = ToolSyntax::none();
        syntax.add(self);
        syntax
    }

    pub(crate) fn channel(&self) -> Option<ChannelKind> {
        match self.body {
            Body::Channels(kind) => Some(kind),
            _ => None,
        }
    }

    pub(crate) fn rules(&self) -> Vec<BlockRules> {
        let markers = |list: &[&'static str]| {
            list.iter()
                .map(|text| Marker::exact(*text))
                .collect::<Vec<_>>()
        };
        let owned = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        // A call that opens without its group is a block as well.
        let group = |call_open: &str| {
            self.opens
                .iter()
                .find(|open| **open != call_open)
                .copied()
                .unwrap_or_default()
        };
        let body = match self.body {
            Body::Json {
                name_key,
                arguments_key,
                layout,
                ..
            } => BodyRules::Json(JsonRules {
                name_keys: with_first(name_key, NAME_KEYS),
                argument_keys: with_first(arguments_key, ARGUMENT_KEYS),
                key_is_name: name_key.is_empty(),
                separator: (layout == JsonLayout::Semicolons).then_some(b';'),
                array_only: layout == JsonLayout::Array
                    && (self.raw != RawStart::No || self.name == "mistral"),
            }),
            Body::Named {
                style,
                call_open,
                separators,
                call_close,
            } => BodyRules::Named(NamedRules {
                style,
                section_open: owned(group(call_open)),
                section_close: self
                    .closes
                    .iter()
                    .find(|close| **close != call_close)
                    .and_then(|close| owned(close)),
                call_open: call_open.to_owned(),
                separators: MarkerScanner::new(markers(separators)),
                call_close: owned(call_close),
            }),
            Body::Xml(form) => {
                let mut closes = self.closes.iter().copied();
                let close = closes.find(|close| *close != form.call_close);
                BodyRules::Xml(form.rules(owned(group(form.call_open)), close.as_slice()))
            }
            Body::Python { in_list } => BodyRules::Python(PythonRules { in_list }),
            Body::Gemma { quote } => BodyRules::Gemma(GemmaRules {
                quote: quote.to_owned(),
            }),
            Body::Channels(_) => return Vec::new(),
        };
        let rules = BlockRules::new(markers(self.opens), markers(self.closes), body, self.raw);
        let mut all = vec![rules];
        if matches!(self.body, Body::Python { .. }) {
            // Asked for JSON, these models put it between the same markers.
            let json = BodyRules::Json(plain_json());
            all.push(BlockRules::new(
                markers(self.opens),
                markers(self.closes),
                json,
                RawStart::No,
            ));
        }
        all
    }
}

/// Call objects under the usual keys.
fn plain_json() -> JsonRules {
    JsonRules {
        name_keys: with_first("name", NAME_KEYS),
        argument_keys: with_first("arguments", ARGUMENT_KEYS),
        key_is_name: false,
        separator: None,
        array_only: false,
    }
}

fn with_first(first: &str, all: &[&str]) -> Vec<String> {
    let others = all.iter().filter(|key| **key != first);
    std::iter::once(&first)
        .chain(others)
        .map(|key| (*key).to_owned())
        .collect()
}

/// The dialect of this name or alias.
#[must_use]
pub fn dialect(name: &str) -> Option<&'static ToolDialect> {
    DIALECTS
        .iter()
        .find(|row| row.name == name || row.aliases.contains(&name))
}
