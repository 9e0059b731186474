//! How models write tool calls: the dialects, each of which renders as well as parses.

mod block;
mod call_object;
mod calls;
mod channels;
mod custom;
mod dialects;
mod gemma_body;
mod input;
mod json_args;
mod json_body;
mod judge;
mod named_body;
mod object_args;
mod python_body;
mod table;
mod tool_set;
mod writer;
mod xml_body;
mod xml_forms;
mod xml_values;

use std::sync::Arc;

pub use block::RawStart;
pub(crate) use block::{BlockReader, BlockRules};
pub use calls::{CallRules, ParserLimits};
pub(crate) use calls::{Calls, Snapshot};
pub use channels::ChannelKind;
pub(crate) use channels::ChannelReader;
pub use custom::{BadDialect, CustomBody, CustomDialect};
pub use dialects::{Body, JsonLayout, ToolDialect, XmlForm, dialect};
pub(crate) use input::{Input, Place, Progress};
pub use named_body::NameStyle;
pub use table::DIALECTS;
pub use tool_set::{ToolSet, normalize_name};
pub use xml_values::{ValueFraming, ValueTyping};

/// The dialects that one turn is read with.
#[derive(Debug, Clone, Default)]
pub struct ToolSyntax {
    pub(crate) blocks: Vec<Arc<BlockRules>>,
    /// The dialect that was named first: a forced call is written in it, if that can be bound.
    pub(crate) first: Option<ToolDialect>,
    /// The framed format of the whole output, if that is known.
    pub(crate) channel: Option<ChannelKind>,
    /// Framed formats to switch to where their markers show.
    pub(crate) watched_channels: Vec<ChannelKind>,
}

impl ToolSyntax {
    /// The blocks whose body may stand without an opening marker.
    pub(crate) fn raw_only(&self) -> Self {
        let blocks = self.blocks.iter().filter(|block| block.raw != RawStart::No);
        Self {
            blocks: blocks.cloned().collect(),
            ..Self::none()
        }
    }

    /// No call markup: calls come structured, or not at all (`openai`).
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// True if no call markup is looked for.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.blocks.is_empty() && self.channel.is_none() && self.watched_channels.is_empty()
    }

    /// The syntax of a name: a row of the table, `auto`, `openai` or `none`, or several of
    /// these joined by `+`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_name_with(name, &[])
    }

    /// [`Self::from_name`] where the name may also be one of these dialects of a user's own.
    #[must_use]
    pub fn from_name_with(name: &str, own: &[ToolDialect]) -> Option<Self> {
        let mut syntax = Self::none();
        for part in name.split('+') {
            match part.trim() {
                "none" | "openai" => {}
                "auto" => {
                    for row in DIALECTS.iter().filter(|row| row.in_auto) {
                        syntax.blocks.extend(row.rules().into_iter().map(Arc::new));
                        syntax.watched_channels.extend(row.channel());
                    }
                }
                // Both spellings of one family: its tokenizer says which suffix the markers have.
                part @ ("hy_v3" | "hy_v4") => {
                    syntax.add(dialect(part)?);
                    syntax.add(dialect(&format!("{part}_plain"))?);
                }
                part => syntax.add(own.iter().find(|row| row.name == part).or(dialect(part))?),
            }
        }
        Some(syntax)
    }

    /// Reads this dialect as well.
    pub fn add(&mut self, row: &ToolDialect) {
        self.first.get_or_insert(*row);
        self.blocks.extend(row.rules().into_iter().map(Arc::new));
        self.channel = self.channel.or(row.channel());
    }
}
