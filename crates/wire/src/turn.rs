use twopass_core::chat::{Event, OpaqueItem, Reply, StopReason, Usage};

use crate::calls::{Calls, End, Fragment};
use crate::request::DecodeContext;

/// A turn while it is read: every decoder tells it what came, in order; it writes the
/// events and keeps the reply.
///
/// Text is handed on as it came. If it may hold tags or call markup, the reader of the
/// events runs the turn parser over it.
#[derive(Debug)]
pub(crate) struct Turn {
    reply: Reply,
    calls: Calls,
    /// A think block has text and has not ended.
    in_reasoning: bool,
    /// The next reasoning belongs to another block.
    new_block: bool,
}

impl Turn {
    pub(crate) fn new(context: DecodeContext) -> Self {
        Self {
            reply: Reply::default(),
            calls: Calls::new(context),
            in_reasoning: false,
            new_block: false,
        }
    }

    /// What came so far; no calls, since none is complete before the end.
    pub(crate) fn partial(&self) -> &Reply {
        &self.reply
    }

    pub(crate) fn usage(&mut self) -> &mut Usage {
        &mut self.reply.usage
    }

    pub(crate) fn reasoning(&mut self, text: &str, out: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.new_block) {
            self.reply.reasoning.push('\n');
        }
        self.in_reasoning = true;
        self.reply.reasoning.push_str(text);
        out.push(Event::ReasoningDelta(text.to_owned()));
    }

    /// A think block ended, if one was open.
    pub(crate) fn end_reasoning(&mut self, out: &mut Vec<Event>) {
        if std::mem::take(&mut self.in_reasoning) {
            self.new_block = true;
            out.push(Event::ReasoningBlockEnd);
        }
    }

    pub(crate) fn text(&mut self, text: &str, out: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        self.end_reasoning(out);
        self.reply.content.push_str(text);
        out.push(Event::TextDelta(text.to_owned()));
    }

    /// Says what the whole arguments of the call of this index are.
    pub(crate) fn whole_arguments(&mut self, index: u64, json: &str) {
        self.calls.whole_arguments(index, json);
    }

    pub(crate) fn call(&mut self, fragment: Fragment<'_>, out: &mut Vec<Event>) {
        self.end_reasoning(out);
        self.calls.push(fragment, out);
    }

    pub(crate) fn item(&mut self, item: OpaqueItem, out: &mut Vec<Event>) {
        out.push(Event::ProviderItem(item.clone()));
        self.reply.provider_items.push(item);
    }

    /// Ends the turn. Calls decide the stop reason (case rule 14).
    pub(crate) fn finish(&mut self, stop: StopReason, out: &mut Vec<Event>) -> Reply {
        let end = if stop == StopReason::Length {
            End::Cut
        } else {
            End::Whole
        };
        let finished = self.calls.finish(end, out);
        let mut reply = std::mem::take(&mut self.reply);
        reply.provider_items.extend(finished.items);
        reply.diagnostics.extend(finished.diagnostics);
        reply.tool_calls = finished.calls;
        reply.invalid_tool_calls = finished.invalid;
        reply.stop_reason = match stop {
            StopReason::Length => StopReason::Length,
            _ if !reply.tool_calls.is_empty() => StopReason::ToolCalls,
            StopReason::ToolCalls => StopReason::EndTurn,
            other => other,
        };
        reply
    }
}
