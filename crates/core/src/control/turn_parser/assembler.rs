use crate::chat::{Diagnostic, Event, InvalidToolCall, Reply, StopReason, TokenLogprob, ToolCall};

/// Collects the events of a turn into a whole reply.
///
/// White space at both ends of the answer and of each think block is dropped.
#[derive(Debug, Clone, Default)]
pub struct ReplyAssembler {
    text: String,
    blocks: Vec<String>,
    open_block: bool,
    calls: Vec<ToolCall>,
    invalid_calls: Vec<InvalidToolCall>,
    diagnostics: Vec<Diagnostic>,
    reply: Reply,
}

impl ReplyAssembler {
    /// An assembler of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The answer so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes one event.
    pub fn handle(&mut self, event: &Event) {
        match event {
            Event::ReasoningDelta(text) => {
                if !std::mem::replace(&mut self.open_block, true) {
                    self.blocks.push(String::new());
                }
                if let Some(block) = self.blocks.last_mut() {
                    block.push_str(text);
                }
            }
            Event::ReasoningBlockEnd => self.open_block = false,
            Event::TextDelta(text) => self.text.push_str(text),
            Event::Logprobs(tokens) => self.reply.logprobs.extend_from_slice(tokens),
            Event::Reclassified => {
                let text = std::mem::take(&mut self.text);
                self.blocks.push(text);
                self.open_block = true;
                self.reply.logprobs.clear();
                self.calls.clear();
                self.invalid_calls.clear();
            }
            Event::CallStarted { .. } | Event::ArgumentsDelta { .. } => {}
            Event::CallFinished { call, .. } => self.calls.push(call.clone()),
            Event::CallRejected { call, .. } => self.invalid_calls.push(call.clone()),
            Event::Diagnostic(diagnostic) => self.diagnostics.push(diagnostic.clone()),
            Event::ProviderItem(item) => self.reply.provider_items.push(item.clone()),
            Event::PassFinished(report) => self.reply.passes.push(report.clone()),
        }
    }

    /// The think blocks so far, trimmed, without empty ones.
    #[must_use]
    pub fn reasoning_blocks(&self) -> Vec<String> {
        let trimmed = self.blocks.iter().map(|block| block.trim());
        trimmed
            .filter(|block| !block.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The reply. Usage and `reasoning_truncated` are left for the caller to fill.
    #[must_use]
    pub fn finish(mut self, stop_reason: StopReason) -> Reply {
        trim_logprobs(&mut self.reply.logprobs);
        let reasoning = self.reasoning_blocks().join("\n");
        Reply {
            content: self.text.trim().to_owned(),
            reasoning,
            tool_calls: self.calls,
            invalid_tool_calls: self.invalid_calls,
            stop_reason,
            diagnostics: self.diagnostics,
            ..self.reply
        }
    }
}

/// Drops the tokens of the white space at both ends of an answer.
fn trim_logprobs(tokens: &mut Vec<TokenLogprob>) {
    let shows = |token: &TokenLogprob| !token.bytes.trim_ascii().is_empty();
    tokens.truncate(tokens.iter().rposition(shows).map_or(0, |last| last + 1));
    tokens.drain(..tokens.iter().position(shows).unwrap_or(0));
}
