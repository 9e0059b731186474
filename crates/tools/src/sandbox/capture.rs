//! Output of any length in bounded memory: its beginning and its end.

use std::collections::VecDeque;

/// Keeps the first and the last bytes of what is pushed.
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    max_head: usize,
    max_tail: usize,
    n_bytes: u64,
}

impl Capture {
    /// Keeps at most `max_bytes`, half of them from the beginning.
    pub(super) fn new(max_bytes: usize) -> Self {
        let max_head = max_bytes / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            max_head,
            max_tail: max_bytes - max_head,
            n_bytes: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.n_bytes += bytes.len() as u64;
        let n_head = bytes.len().min(self.max_head - self.head.len());
        self.head.extend_from_slice(&bytes[..n_head]);
        let rest = &bytes[n_head..];
        let rest = &rest[rest.len().saturating_sub(self.max_tail)..];
        let n_over = (self.tail.len() + rest.len()).saturating_sub(self.max_tail);
        self.tail.drain(..n_over);
        self.tail.extend(rest);
    }

    /// The text, with a line that says how much is missing, and whether any is.
    pub(super) fn into_text(self) -> (String, bool) {
        let n_left = self.n_bytes - (self.head.len() + self.tail.len()) as u64;
        let tail = Vec::from(self.tail);
        if n_left == 0 {
            let whole = [self.head, tail].concat();
            return (String::from_utf8_lossy(&whole).into_owned(), false);
        }
        // The cuts may go through a character.
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(&tail);
        let head = head.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let tail = tail.trim_start_matches(char::REPLACEMENT_CHARACTER);
        let gap = if head.ends_with('\n') { "" } else { "\n" };
        (
            format!("{head}{gap}[{n_left} bytes left out]\n{tail}"),
            true,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_however_the_bytes_are_cut() {
        let cases: [(&str, usize, &str); 6] = [
            ("", 4, ""),
            ("abcd", 4, "abcd"),
            ("abcdefgh", 4, "ab\n[4 bytes left out]\ngh"),
            ("ab\ndefgh", 6, "ab\n[2 bytes left out]\nfgh"),
            ("äöüßä", 6, "ä\n[4 bytes left out]\nä"),
            ("abc", 0, "\n[3 bytes left out]\n"),
        ];
        for (text, max, expect) in cases {
            for n_chunk in 1..=text.len().max(1) {
                let mut capture = Capture::new(max);
                text.as_bytes()
                    .chunks(n_chunk)
                    .for_each(|chunk| capture.push(chunk));
                assert_eq!(capture.into_text().0, expect, "{text} in {n_chunk}");
            }
        }
    }
}
