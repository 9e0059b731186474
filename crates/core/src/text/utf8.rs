/// Puts characters together from bytes that may be cut anywhere.
///
/// Holds at most 3 bytes between two pushes. Bytes that can never become a character are
/// replaced by U+FFFD, one for each maximal bad run as the standard library does it, and
/// [`Self::replaced`] says so; the result is the same however the bytes are cut.
#[derive(Debug, Clone, Default)]
pub struct Utf8Assembler {
    held: [u8; 4],
    held_len: usize,
    replaced: bool,
}

impl Utf8Assembler {
    /// An assembler that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends to `out` every character that is complete after these bytes.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        let mut bytes = bytes;
        while self.held_len > 0 && !bytes.is_empty() {
            // One byte at a time until the held character is complete or known to be bad.
            self.held[self.held_len] = bytes[0];
            self.held_len += 1;
            bytes = &bytes[1..];
            let held = self.held;
            let len = self.held_len;
            self.held_len = 0;
            self.take(&held[..len], out);
        }
        if self.held_len == 0 {
            self.take(bytes, out);
        }
    }

    /// Ends the input: a cut character becomes U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if self.held_len > 0 {
            self.held_len = 0;
            self.replaced = true;
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// True once any byte had to be replaced.
    #[must_use]
    pub fn replaced(&self) -> bool {
        self.replaced
    }

    /// True if the last character is still incomplete.
    #[must_use]
    pub fn holds_partial(&self) -> bool {
        self.held_len > 0
    }

    fn take(&mut self, bytes: &[u8], out: &mut String) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    return;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(good).unwrap_or_default());
                    let Some(len) = error.error_len() else {
                        self.held[..bad.len()].copy_from_slice(bad);
                        self.held_len = bad.len();
                        return;
                    };
                    self.replaced = true;
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[len..];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_bytes_are_replaced_and_whole_characters_wait() {
        let mut utf8 = Utf8Assembler::new();
        let mut out = String::new();
        utf8.push(&[b'a', 0xF0, 0x9F], &mut out);
        assert_eq!(out, "a");
        utf8.push(&[0x98, 0x80, 0xFF, b'b', 0xC3], &mut out);
        assert_eq!(out, "a\u{1F600}\u{FFFD}b");
        utf8.finish(&mut out);
        assert_eq!(out, "a\u{1F600}\u{FFFD}b\u{FFFD}");
    }
}
