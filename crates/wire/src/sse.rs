//! Server-sent events as bytes: an incremental decoder and an encoder.
//!
//! Source: WHATWG HTML, section "Server-sent events", read 2026-01. Cost: each byte is
//! looked at once; one event's text is held, up to the configured limit.

use std::borrow::Cow;
use std::fmt;

/// The default for [`DecoderOptions::max_event_bytes`]: 8 MiB.
pub const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's name; `message` if the stream gave none.
    pub event: String,
    /// The data lines, joined by a newline. Never empty.
    pub data: String,
}

/// What a [`Decoder`] accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderOptions {
    /// The most bytes that one event may hold, line framing included. Default
    /// [`MAX_EVENT_BYTES`]; it is also the most memory that a decoder holds.
    pub max_event_bytes: usize,
    /// Data that ends the stream at once, such as `[DONE]`. Default none.
    pub end_marker: Option<String>,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self {
            max_event_bytes: MAX_EVENT_BYTES,
            end_marker: None,
        }
    }
}

/// An event, or a line that never ends, went over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge {
    /// The limit that was passed.
    pub max_event_bytes: usize,
}

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an event of the stream is larger than {} bytes",
            self.max_event_bytes
        )
    }
}

impl std::error::Error for EventTooLarge {}

/// Reads events from bytes cut anywhere.
///
/// Lines end in LF, CR or CRLF, nothing else. One byte-order mark at the start is skipped;
/// comments and unknown fields are ignored; events without data are not delivered. Bytes
/// that are not UTF-8 become replacement characters, whole line by whole line, so that a
/// character cut between two reads survives.
#[derive(Debug)]
pub struct Decoder {
    options: DecoderOptions,
    /// The bytes of a line that has not ended yet.
    line: Vec<u8>,
    event: String,
    data: String,
    has_data: bool,
    /// Bytes of the current event, over all its lines.
    n_event_bytes: usize,
    at_start: bool,
    /// The last line ended in CR: an LF that comes next belongs to it.
    after_cr: bool,
    done: bool,
    truncated: bool,
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(options: DecoderOptions) -> Self {
        Self {
            options,
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
            n_event_bytes: 0,
            at_start: true,
            after_cr: false,
            done: false,
            truncated: false,
        }
    }

    /// True once the end marker was read. Everything after it is ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// True if [`Decoder::finish`] found that the input had ended inside a character.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Takes the next bytes and appends the events that they complete.
    ///
    /// # Errors
    /// The event that is being read is over the limit. Events completed before it have been
    /// appended; the stream is of no further use.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        while !bytes.is_empty() && !self.done {
            if self.after_cr {
                self.after_cr = false;
                if bytes[0] == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            let end = bytes
                .iter()
                .position(|&byte| byte == b'\n' || byte == b'\r');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            self.n_event_bytes += piece.len();
            if self.n_event_bytes > self.options.max_event_bytes {
                return Err(EventTooLarge {
                    max_event_bytes: self.options.max_event_bytes,
                });
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { return Ok(()) };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.handle_line(out);
        }
        Ok(())
    }

    /// Notes the end of the input: an event whose lines are complete is delivered even if
    /// the blank line after it is missing. A line that was cut is dropped, save for the end
    /// marker. Calling it twice is harmless.
    pub fn finish(&mut self, out: &mut Vec<SseEvent>) {
        if self.done {
            return;
        }
        if let Err(error) = std::str::from_utf8(&self.line) {
            self.truncated |= error.error_len().is_none();
        }
        let rest = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        self.dispatch(out);
        if let Some(("data", value)) = split_field(&rest)
            && self.is_end_marker(value)
        {
            self.done = true;
        }
    }

    fn is_end_marker(&self, data: &str) -> bool {
        self.options
            .end_marker
            .as_deref()
            .is_some_and(|marker| data.trim() == marker)
    }

    fn handle_line(&mut self, out: &mut Vec<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.dispatch(out);
        } else {
            let text = match std::str::from_utf8(bytes) {
                Ok(text) => Cow::Borrowed(text),
                // Slower, so only where it has something to replace.
                Err(_) => String::from_utf8_lossy(bytes),
            };
            match split_field(&text) {
                Some(("data", value)) => {
                    if self.has_data {
                        self.data.push('\n');
                    }
                    self.data.push_str(value);
                    self.has_data = true;
                }
                Some(("event", value)) => value.clone_into(&mut self.event),
                _ => {
                    // A comment or a field that carries nothing for us: it may come without
                    // end between events, so it does not count against the event's limit.
                    self.n_event_bytes = self.n_event_bytes.saturating_sub(line.len());
                }
            }
        }
        // The buffer is kept for the next line.
        self.line = line;
        self.line.clear();
    }

    fn dispatch(&mut self, out: &mut Vec<SseEvent>) {
        self.n_event_bytes = 0;
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        self.has_data = false;
        if data.is_empty() {
            return;
        }
        if self.is_end_marker(&data) {
            self.done = true;
            return;
        }
        let event = if event.is_empty() {
            "message".to_owned()
        } else {
            event
        };
        out.push(SseEvent { event, data });
    }
}

/// Splits a line into field name and value, one space after the colon removed. `None` for
/// comments.
fn split_field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    if name.is_empty() {
        return None;
    }
    Some((name, value.strip_prefix(' ').unwrap_or(value)))
}

/// Appends one event. `event` `None` leaves the name out (readers then see `message`).
/// Line ends inside the data, of any kind, become line ends of the format.
pub fn encode_event(event: Option<&str>, data: &str, out: &mut String) {
    if let Some(event) = event {
        out.push_str("event: ");
        out.extend(event.chars().filter(|c| !matches!(c, '\n' | '\r')));
        out.push('\n');
    }
    for line in lines(data) {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
}

/// Appends a comment line that readers ignore: a heartbeat.
pub fn encode_comment(text: &str, out: &mut String) {
    for line in lines(text) {
        out.push_str(": ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
}

/// The lines of a text whose line ends are LF, CR or CRLF. At least one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}
