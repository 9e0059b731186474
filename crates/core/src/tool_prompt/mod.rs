//! Tools, past calls and past results, put before a model whose template does not do it.
//!
//! The one way in is [`with_tools`]: messages and tools in, template messages out. A template
//! that writes tools itself keeps them as they are and only gets the `tool_choice` wording.

mod grammar;
mod hermes;

pub use grammar::{CallFormat, LazyGrammar, call_grammar, form_grammar};

use crate::chat::{Message, Role, ToolChoice, ToolSpec};
use crate::chat_template::{Piece, TemplateMessage};

/// How the tools' list is laid out (row E2, X5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolsLayout {
    /// One JSON object per line, as Qwen's templates do.
    #[default]
    Lines,
    /// One JSON array.
    Array,
}

/// Where the preamble goes in the system message (row E1, X20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreamblePlace {
    /// After the caller's system text.
    #[default]
    After,
    /// Before it.
    Before,
}

/// How many call blocks a turn is asked for (row E4, X4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallBlocks {
    /// One block per call.
    #[default]
    Multiple,
    /// One block; an array for several calls.
    Single,
}

/// How tools are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolPromptOptions {
    /// The list's layout.
    pub layout: ToolsLayout,
    /// The preamble's place.
    pub place: PreamblePlace,
    /// The number of blocks.
    pub blocks: CallBlocks,
    /// True if the template writes tools, calls and results itself.
    pub template_writes_tools: bool,
}

/// The conversation as the template is to see it.
///
/// Our own wording is trusted text; everything that came from a caller, a tool or a schema
/// is not, so that a control token in a tool's description stays text (row M6).
#[must_use]
pub fn with_tools(
    messages: &[Message],
    tools: &[ToolSpec],
    choice: &ToolChoice,
    options: &ToolPromptOptions,
) -> Vec<TemplateMessage> {
    let mut out: Vec<TemplateMessage> = if options.template_writes_tools {
        messages.iter().map(TemplateMessage::untrusted).collect()
    } else {
        hermes::history(messages)
    };
    if tools.is_empty() {
        return out;
    }
    let mut preamble = Vec::new();
    if !options.template_writes_tools {
        preamble.extend(hermes::tool_list(tools, options.layout));
        preamble.push(Piece::Trusted(hermes::call_instruction(options.blocks)));
    }
    preamble.extend(choice_wording(choice, preamble.is_empty()));
    if !preamble.is_empty() {
        into_system(&mut out, preamble, options.place);
    }
    out
}

/// What the model is told about its freedom to call (rows E5, E6).
fn choice_wording(choice: &ToolChoice, is_first: bool) -> Vec<Piece> {
    let (before, name, after) = match choice {
        ToolChoice::Auto => return Vec::new(),
        ToolChoice::None => ("Do not call any tools; reply normally.", None, ""),
        ToolChoice::Required => ("You MUST call at least one tool.", None, ""),
        ToolChoice::Named(name) => ("You MUST call the tool `", Some(name), "`."),
        ToolChoice::Only(name) => (
            "If you call a tool, it MUST be `",
            Some(name),
            "`; otherwise reply normally.",
        ),
    };
    let gap = if is_first { "" } else { "\n\n" };
    let mut pieces = vec![Piece::Trusted(format!("{gap}{before}"))];
    if let Some(name) = name {
        pieces.push(Piece::Untrusted(name.clone()));
        pieces.push(Piece::Trusted(after.to_owned()));
    }
    pieces
}

/// Puts the preamble into the first system message, or makes one.
fn into_system(messages: &mut Vec<TemplateMessage>, preamble: Vec<Piece>, place: PreamblePlace) {
    let is_system = |m: &TemplateMessage| matches!(m.head.role, Role::System | Role::Developer);
    if !messages.first().is_some_and(is_system) {
        let mut system = TemplateMessage::untrusted(&Message::text(Role::System, ""));
        system.content = preamble;
        messages.insert(0, system);
        return;
    }
    let gap = Piece::Trusted("\n\n".to_owned());
    let content = &mut messages[0].content;
    match place {
        PreamblePlace::After => {
            content.push(gap);
            content.extend(preamble);
        }
        PreamblePlace::Before => {
            let own = std::mem::replace(content, preamble);
            content.push(gap);
            content.extend(own);
        }
    }
}

#[cfg(test)]
mod tests;
