//! Formats in which the whole output is framed: reasoning, answer and calls are channels.

mod envelope;
mod inkling;
mod kimi_k3;

use super::calls::Calls;
use super::input::Input;
use crate::chat::{Diagnostic, DiagnosticKind, Event, ToolChoice};
use crate::text::{MarkerScanner, Scan};
use envelope::Envelope;
pub(super) use envelope::{BEAM_PARAMETERS, MUSE_INVOKES};
use inkling::Inkling;
use kimi_k3::KimiK3;

/// The framed formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// gpt-oss: `<|channel|>analysis<|message|>..<|end|>`.
    Harmony,
    /// Kimi K3: `<|open|>think<|sep|>..<|close|>think<|sep|>`.
    KimiK3,
    /// Inkling: `<|message_model|><|content_text|>..<|end_message|>`.
    Inkling,
    /// Beam: gpt-oss's channels, with calls as ` to=f<|channel|>analysis <|constrain|>xml`.
    Beam,
    /// Muse: `<|start|>assistant to=self<|message|>..<|eom|>`.
    Muse,
}

impl ChannelKind {
    /// True if a call's argument text is shown as it comes, not only per finished argument.
    #[must_use]
    pub fn streams_arguments(self) -> bool {
        matches!(self, Self::Harmony | Self::Inkling)
    }

    /// Markers that show the format in a text that need not have it; none where another
    /// format has the same ones.
    pub(crate) fn unmistakable(self) -> &'static [&'static str] {
        match self {
            Self::Harmony => &["<|channel|>", "<|start|>assistant"],
            Self::KimiK3 => &["<|open|>"],
            Self::Inkling => &[
                "<|message_model|>",
                "<|content_thinking|>",
                "<|content_text|>",
            ],
            Self::Beam | Self::Muse => &[],
        }
    }
}

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Reasoning,
    Text,
}

/// Reads a framed output from its first byte or from its first marker on.
pub(crate) struct ChannelReader {
    format: Format,
    show: Show,
}

enum Format {
    Envelope(Envelope),
    KimiK3(KimiK3),
    Inkling(Box<Inkling>),
}

impl ChannelReader {
    /// A reader. `in_reasoning`: the prompt ended inside the reasoning channel. `after_text`:
    /// answer text was shown before.
    pub(crate) fn new(kind: ChannelKind, in_reasoning: bool, after_text: bool) -> Self {
        let envelope = |form| Format::Envelope(Envelope::new(form, in_reasoning));
        let format = match kind {
            ChannelKind::Harmony => envelope(&envelope::HARMONY),
            ChannelKind::Beam => envelope(&envelope::BEAM),
            ChannelKind::Muse => envelope(&envelope::MUSE),
            ChannelKind::KimiK3 => Format::KimiK3(KimiK3::new(in_reasoning)),
            ChannelKind::Inkling => Format::Inkling(Box::new(Inkling::new(in_reasoning))),
        };
        let show = Show {
            any_text: after_text,
            ..Show::default()
        };
        Self { format, show }
    }

    /// True if text before `pos` is still needed.
    pub(crate) fn keeps_text(&self) -> bool {
        match &self.format {
            Format::Envelope(format) => format.keeps_text(),
            Format::KimiK3(_) => false,
            Format::Inkling(format) => format.keeps_text(),
        }
    }

    /// True inside the reasoning channel.
    pub(crate) fn in_reasoning(&self) -> bool {
        self.show.in_reasoning
    }

    /// Reads all that is there.
    pub(crate) fn read(&mut self, input: &mut Input<'_>, calls: &mut Calls, out: &mut Vec<Event>) {
        match &mut self.format {
            Format::Envelope(format) => format.read(input, &mut self.show, calls, out),
            Format::KimiK3(format) => format.read(input, &mut self.show, calls, out),
            Format::Inkling(format) => format.read(input, &mut self.show, calls, out),
        }
    }
}

/// Shows text, without the white space that frames it.
#[derive(Default)]
struct Show {
    any_text: bool,
    any_in_block: bool,
    in_reasoning: bool,
    told_not_allowed: bool,
}

impl Show {
    fn text(&mut self, route: Route, text: &str, out: &mut Vec<Event>) {
        let begun = match route {
            Route::Reasoning => {
                self.in_reasoning = true;
                &mut self.any_in_block
            }
            Route::Text => &mut self.any_text,
        };
        let text = if *begun { text } else { text.trim_start() };
        if text.is_empty() {
            return;
        }
        *begun = true;
        out.push(match route {
            Route::Reasoning => Event::ReasoningDelta(text.to_owned()),
            Route::Text => Event::TextDelta(text.to_owned()),
        });
    }

    fn begin(&mut self, route: Route) {
        self.in_reasoning = route == Route::Reasoning;
    }

    fn end(&mut self, route: Route, out: &mut Vec<Event>) {
        if route == Route::Reasoning {
            self.in_reasoning = false;
            self.any_in_block = false;
            out.push(Event::ReasoningBlockEnd);
        }
    }

    /// False if the choice allows no calls: the call's text is shown.
    fn may_call(&mut self, calls: &Calls, out: &mut Vec<Event>) -> bool {
        if calls.rules().choice != ToolChoice::None {
            return true;
        }
        if !std::mem::replace(&mut self.told_not_allowed, true) {
            let message = "a call was written although none was allowed; it is kept as text";
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::CallNotAllowed,
                message,
            )));
        }
        false
    }
}

/// Takes the text up to the next token that is no mention, and that token. `prev` is the byte
/// before the input's position.
fn take_text<'a>(
    tokens: &MarkerScanner,
    prev: &mut u8,
    input: &mut Input<'a>,
) -> (&'a str, Option<usize>) {
    let from = input.pos;
    let bytes = input.text.as_bytes();
    let mut search = from;
    let (end, found) = loop {
        match tokens.scan(bytes, search, input.at_end) {
            Scan::None => break (bytes.len(), None),
            Scan::Partial(at) => break (at, None),
            Scan::Found { at, idx, len } => {
                let before = if at > from { bytes[at - 1] } else { *prev };
                match is_mention(input, before, at, len) {
                    Some(true) => search = at + len,
                    Some(false) => break (at, Some((idx, len))),
                    None => break (at, None),
                }
            }
        }
    };
    input.pos = end;
    let text = &input.text[from..end];
    match found {
        Some((idx, len)) => {
            input.pos += len;
            *prev = 0;
            (text, Some(idx))
        }
        None => {
            *prev = text.as_bytes().last().copied().unwrap_or(*prev);
            (text, None)
        }
    }
}

/// True if the marker at `at` is wrapped in backticks. `None`: the next byte decides.
fn is_mention(input: &Input<'_>, prev: u8, at: usize, len: usize) -> Option<bool> {
    if prev != b'`' {
        return Some(false);
    }
    match input.text.as_bytes().get(at + len) {
        Some(&next) => Some(next == b'`'),
        None => input.at_end.then_some(false),
    }
}
