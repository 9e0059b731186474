//! JSON lines as bytes: an incremental decoder.
//!
//! Lines end in LF or CRLF; empty lines are not delivered, and neither is a byte order mark in
//! front. Bytes that are not UTF-8 become
//! replacement characters, line by line, so that a character cut between two reads survives.
//! Cost: each byte is looked at once; one line is held, up to the limit.

use crate::sse::{EventTooLarge, MAX_EVENT_BYTES};

/// Reads lines from bytes cut anywhere.
#[derive(Debug)]
pub struct Decoder {
    /// Nothing was delivered yet, so that a byte order mark may still come.
    is_first: bool,
    line: Vec<u8>,
    max_line_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl Decoder {
    /// A decoder at the start of a stream. `max_line_bytes` is also the most memory that it
    /// holds; the default is [`MAX_EVENT_BYTES`].
    #[must_use]
    pub fn new(max_line_bytes: usize) -> Self {
        Self {
            is_first: true,
            line: Vec::new(),
            max_line_bytes,
        }
    }

    /// Takes the next bytes and appends the lines that they complete.
    ///
    /// # Errors
    /// The line that is being read is over the limit. The stream is of no further use.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<String>) -> Result<(), EventTooLarge> {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + piece.len() > self.max_line_bytes {
                return Err(EventTooLarge {
                    max_event_bytes: self.max_line_bytes,
                });
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { return Ok(()) };
            bytes = &bytes[end + 1..];
            self.finish(out);
        }
        Ok(())
    }

    /// Notes the end of the input: a last line without line end is delivered. Calling it
    /// twice is harmless.
    pub fn finish(&mut self, out: &mut Vec<String>) {
        let line = String::from_utf8_lossy(&self.line);
        let mut line = line.trim();
        if self.is_first {
            line = line.strip_prefix('\u{feff}').unwrap_or(line).trim_start();
        }
        if !line.is_empty() {
            self.is_first = false;
            out.push(line.to_owned());
        }
        self.line.clear();
    }
}
