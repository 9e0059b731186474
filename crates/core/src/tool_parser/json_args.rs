//! A call's JSON arguments where the name stands outside of them.

use super::calls::{ArgumentBody, Calls};
use super::input::Input;
use crate::chat::{CallErrorKind, Event};
use crate::text::{JsonBoundary, JsonEvent, prefix_within};

/// How far the arguments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgsStep {
    /// More text is needed.
    Need,
    /// The arguments are complete and the call has its verdict.
    Done,
    /// The call was refused; `pos` stands where reading stopped.
    Refused,
}

/// Reads one JSON value, shows it as it comes and ends the open call with it.
pub(crate) struct JsonArgs {
    boundary: JsonBoundary,
    text: String,
    n_bytes: usize,
    begun: bool,
}

impl JsonArgs {
    pub(crate) fn new(calls: &Calls) -> Self {
        Self {
            boundary: JsonBoundary::new(0, calls.limits().arguments.max_depth),
            text: String::new(),
            n_bytes: 0,
            begun: false,
        }
    }

    pub(crate) fn read(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> ArgsStep {
        loop {
            let from = input.pos;
            // The same bytes are read before the limit however they come.
            let left = calls.limits().max_block_bytes.saturating_sub(self.n_bytes);
            let part = prefix_within(&input.text[from..], left);
            let is_over = part.len() < input.text.len() - from;
            let (taken, event) = self.boundary.feed(part.as_bytes());
            input.pos += taken;
            self.keep(&input.text[from..input.pos], calls, out);
            match event {
                JsonEvent::Begin { first, .. } => {
                    self.begun = first == b'{';
                    if !matches!(first, b'{' | b'"' | b'\'' | b'[' | b'n' | b'N') {
                        return self.refuse(
                            CallErrorKind::MalformedArguments,
                            "the arguments are no JSON object",
                            calls,
                            out,
                        );
                    }
                }
                JsonEvent::End { .. } => {
                    self.end(calls, out);
                    return ArgsStep::Done;
                }
                JsonEvent::Key { .. } => {}
                JsonEvent::Error => {
                    return self.refuse(
                        CallErrorKind::MalformedArguments,
                        "the arguments are not JSON",
                        calls,
                        out,
                    );
                }
                JsonEvent::More if is_over => {
                    return self.refuse(
                        CallErrorKind::ArgumentsTooLarge,
                        "the block is over the byte limit",
                        calls,
                        out,
                    );
                }
                JsonEvent::More if input.at_end => {
                    return self.refuse(
                        CallErrorKind::TruncatedToolCall,
                        "the turn ended before the call did",
                        calls,
                        out,
                    );
                }
                JsonEvent::More => return ArgsStep::Need,
            }
        }
    }

    fn keep(&mut self, text: &str, calls: &mut Calls, out: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        let is_whole = self.n_bytes == self.text.len();
        self.n_bytes += text.len();
        if !is_whole {
            return;
        }
        let left = calls
            .limits()
            .arguments
            .max_bytes
            .saturating_sub(self.text.len());
        let text = prefix_within(text, left);
        self.text.push_str(text);
        if self.begun {
            calls.delta(text, out);
        }
    }

    fn end(&mut self, calls: &mut Calls, out: &mut Vec<Event>) {
        let text = std::mem::take(&mut self.text);
        let lenient = self.boundary.lenient();
        let body = if self.n_bytes > calls.limits().arguments.max_bytes {
            ArgumentBody::TooLarge {
                raw: text,
                bytes: self.n_bytes,
            }
        } else {
            ArgumentBody::Text { text, lenient }
        };
        calls.end(body, out);
    }

    fn refuse(
        &mut self,
        kind: CallErrorKind,
        message: &str,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> ArgsStep {
        let raw = std::mem::take(&mut self.text);
        calls.reject_block(kind, &raw, message, out);
        ArgsStep::Refused
    }
}
