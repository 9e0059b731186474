use super::block::{BlockRules, BodyRules, RawStart};
use super::json_body::JsonRules;
use crate::text::Marker;

/// One row of the table of tool dialects.
#[derive(Debug, Clone, Copy)]
pub struct ToolDialect {
    /// The name that configuration and case files use.
    pub name: &'static str,
    /// Other names of the same dialect.
    pub aliases: &'static [&'static str],
    /// Model families that write it.
    pub models: &'static str,
    /// Markers that open a block.
    pub opens: &'static [&'static str],
    /// Markers that close it; none: it ends with its body.
    pub closes: &'static [&'static str],
    /// What stands between them.
    pub body: Body,
    /// Whether the body may stand without the opening marker.
    pub raw: RawStart,
    /// `auto` looks for it.
    pub in_auto: bool,
    /// Where the format is defined, with the date read.
    pub source: &'static str,
}

/// The kinds of body.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// Call objects in JSON, under these two keys.
    Json {
        /// The key of the tool's name.
        name_key: &'static str,
        /// The key of the arguments.
        arguments_key: &'static str,
    },
}

/// Keys that models use for the name and for the arguments; all are read everywhere.
const NAME_KEYS: &[&str] = &["name", "tool_name", "tool"];
const ARGUMENT_KEYS: &[&str] = &["arguments", "parameters", "args"];

impl ToolDialect {
    pub(crate) fn rules(&self) -> Vec<BlockRules> {
        let markers = |list: &[&'static str]| {
            list.iter()
                .map(|text| Marker::exact(*text))
                .collect::<Vec<_>>()
        };
        let body = match self.body {
            Body::Json {
                name_key,
                arguments_key,
            } => BodyRules::Json(JsonRules {
                name_keys: with_first(name_key, NAME_KEYS),
                argument_keys: with_first(arguments_key, ARGUMENT_KEYS),
                key_is_name: false,
                separator: None,
                array_only: false,
            }),
        };
        vec![BlockRules::new(
            markers(self.opens),
            markers(self.closes),
            body,
            self.raw,
        )]
    }
}

fn with_first(first: &str, all: &[&str]) -> Vec<String> {
    let others = all.iter().filter(|key| **key != first);
    std::iter::once(&first)
        .chain(others)
        .map(|key| (*key).to_owned())
        .collect()
}

const ROW: ToolDialect = ToolDialect {
    name: "",
    aliases: &[],
    models: "",
    opens: &[],
    closes: &[],
    body: Body::Json {
        name_key: "name",
        arguments_key: "arguments",
    },
    raw: RawStart::No,
    in_auto: false,
    source: "",
};

/// All tool dialects.
pub const DIALECTS: &[ToolDialect] = &[ToolDialect {
    name: "hermes",
    models: "Hermes 2 and 3, Qwen2.5, Qwen3, Granite 4",
    opens: &["<tool_call>"],
    closes: &["</tool_call>"],
    in_auto: true,
    source: "Hermes 2 Pro, Qwen2.5 and Qwen3 chat templates, read 2026-11",
    ..ROW
}];

/// The dialect of this name or alias.
#[must_use]
pub fn dialect(name: &str) -> Option<&'static ToolDialect> {
    DIALECTS
        .iter()
        .find(|row| row.name == name || row.aliases.contains(&name))
}
