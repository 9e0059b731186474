use std::sync::{Arc, OnceLock};

use super::markers::{self, Markers};
use crate::reasoning_parser::ReasoningSyntax;
use crate::tool_parser::ToolSyntax;

/// What turns are read with: think tags and call formats. Clones share what is worked out of
/// them once, so whoever reads many turns keeps one.
#[derive(Debug, Clone, Default)]
pub struct TurnSyntax(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    reasoning: ReasoningSyntax,
    tools: ToolSyntax,
    /// With think tags; without.
    in_text: [OnceLock<Arc<Markers>>; 2],
    /// With call markers; without.
    in_reasoning: [OnceLock<Arc<Markers>>; 2],
    raw_blocks: OnceLock<Arc<ToolSyntax>>,
}

impl TurnSyntax {
    /// These tags and these formats.
    #[must_use]
    pub fn new(reasoning: ReasoningSyntax, tools: ToolSyntax) -> Self {
        Self(Arc::new(Shared {
            reasoning,
            tools,
            ..Shared::default()
        }))
    }

    /// The think tags.
    #[must_use]
    pub fn reasoning(&self) -> &ReasoningSyntax {
        &self.0.reasoning
    }

    /// The call formats.
    #[must_use]
    pub fn tools(&self) -> &ToolSyntax {
        &self.0.tools
    }

    /// The markers of answer text; `splits`: think tags are markers.
    pub(super) fn in_text(&self, splits: bool) -> Arc<Markers> {
        let Shared {
            reasoning, tools, ..
        } = &*self.0;
        let make = || Arc::new(markers::in_text(splits.then_some(reasoning), tools));
        self.0.in_text[usize::from(!splits)]
            .get_or_init(make)
            .clone()
    }

    /// The markers of reasoning; `calls`: so are those of calls.
    pub(super) fn in_reasoning(&self, calls: bool) -> Arc<Markers> {
        let Shared {
            reasoning, tools, ..
        } = &*self.0;
        let none = ToolSyntax::none();
        let tools = if calls { tools } else { &none };
        let make = || Arc::new(markers::in_reasoning(reasoning, tools));
        self.0.in_reasoning[usize::from(!calls)]
            .get_or_init(make)
            .clone()
    }

    /// The blocks whose body may stand without an opening marker.
    pub(super) fn raw_blocks(&self) -> Arc<ToolSyntax> {
        let make = || Arc::new(self.0.tools.raw_only());
        self.0.raw_blocks.get_or_init(make).clone()
    }
}
