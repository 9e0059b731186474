//! A call written as a JSON object, while it is read.

use super::calls::{ArgumentBody, Calls};
use crate::chat::Event;
use crate::text::prefix_within;

/// Longest JSON text of a tool's name that is kept, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// What the member that is being read means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    None,
    Name,
    Arguments,
    /// `function`: the call itself, or the tool's name.
    Wrapped,
    Other,
}

/// The call object that is being read.
pub(super) struct CallObject {
    /// How deep the object stands in its value.
    pub(super) level: u32,
    /// Where its text begins.
    pub(super) begins_at: usize,
    pub(super) member: Member,
    pub(super) capturing: bool,
    /// The call stands in a member `function` of the outer object.
    pub(super) wrapped: bool,
    pub(super) done: bool,
    pub(super) name_text: String,
    /// The call was begun under its name.
    pub(super) named: bool,
    /// The arguments' text, up to the limit.
    pub(super) arguments: String,
    /// Their first byte: only an object can be shown as it comes.
    pub(super) arguments_first: u8,
    /// Their whole length.
    pub(super) arguments_bytes: usize,
    /// So much of them was shown.
    pub(super) n_sent: usize,
}

impl CallObject {
    pub(super) fn new(level: u32, begins_at: usize) -> Self {
        Self {
            level,
            begins_at,
            member: Member::None,
            capturing: false,
            wrapped: false,
            done: false,
            name_text: String::new(),
            named: false,
            arguments: String::new(),
            arguments_first: 0,
            arguments_bytes: 0,
            n_sent: 0,
        }
    }

    /// True if the arguments can be shown as they come.
    pub(super) fn is_streamable(&self) -> bool {
        self.arguments_first == b'{'
    }

    /// Keeps the text of the member that is being read; shows arguments as they come.
    pub(super) fn capture(&mut self, text: &str, calls: &mut Calls, out: &mut Vec<Event>) {
        if !self.capturing || text.is_empty() {
            return;
        }
        if self.member == Member::Name {
            if self.name_text.len() < MAX_NAME_BYTES {
                self.name_text.push_str(text);
            }
            return;
        }
        let is_whole = self.arguments_bytes == self.arguments.len();
        self.arguments_bytes += text.len();
        if !is_whole {
            return;
        }
        let most = calls.limits().arguments.max_bytes;
        let left = most.saturating_sub(self.arguments.len());
        self.arguments.push_str(prefix_within(text, left));
        if self.named && self.is_streamable() {
            calls.delta(&self.arguments[self.n_sent..], out);
            self.n_sent = self.arguments.len();
        }
    }

    /// The call is complete.
    pub(super) fn end_call(&mut self, lenient: bool, calls: &mut Calls, out: &mut Vec<Event>) {
        let text = std::mem::take(&mut self.arguments);
        let body = if self.arguments_bytes > calls.limits().arguments.max_bytes {
            ArgumentBody::TooLarge {
                raw: text,
                bytes: self.arguments_bytes,
            }
        } else {
            ArgumentBody::Text { text, lenient }
        };
        calls.end(body, out);
    }
}
