//! How models write tool calls: the dialects, each of which renders as well as parses.

mod block;
mod calls;
mod dialects;
mod json_body;
mod tool_set;

use std::sync::Arc;

pub use block::RawStart;
pub(crate) use block::{BlockReader, BlockRules, Input, Place, Progress};
pub use calls::{CallRules, ParserLimits};
pub(crate) use calls::{Calls, Snapshot};
pub use dialects::{DIALECTS, ToolDialect, dialect};
pub use tool_set::{ToolSet, normalize_name};

/// The dialects that one turn is read with.
#[derive(Debug, Clone, Default)]
pub struct ToolSyntax {
    pub(crate) blocks: Vec<Arc<BlockRules>>,
}

impl ToolSyntax {
    /// The blocks whose body may stand without an opening marker.
    pub(crate) fn raw_only(&self) -> Self {
        let blocks = self.blocks.iter().filter(|block| block.raw != RawStart::No);
        Self {
            blocks: blocks.cloned().collect(),
        }
    }

    /// No call markup: calls come structured, or not at all (`openai`).
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The syntax of a name: a row of the table, `auto`, `openai` or `none`, or several of
    /// these joined by `+`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut syntax = Self::none();
        for part in name.split('+') {
            match part.trim() {
                "none" | "openai" => {}
                "auto" => {
                    let rows = DIALECTS.iter().filter(|row| row.in_auto);
                    syntax
                        .blocks
                        .extend(rows.flat_map(ToolDialect::rules).map(Arc::new));
                }
                part => syntax
                    .blocks
                    .extend(dialect(part)?.rules().into_iter().map(Arc::new)),
            }
        }
        Some(syntax)
    }
}
