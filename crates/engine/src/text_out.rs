//! Tokens' bytes into texts for the reader: whole characters, stop strings held back.

/// Joins bytes into whole characters; broken ones become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    /// Appends to `out` what is whole; keeps at most three bytes back.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut start = 0;
        loop {
            match std::str::from_utf8(&self.pending[start..]) {
                Ok(text) => {
                    out.push_str(text);
                    start = self.pending.len();
                    break;
                }
                Err(e) => {
                    let valid = start + e.valid_up_to();
                    out.push_str(&String::from_utf8_lossy(&self.pending[start..valid]));
                    let Some(broken) = e.error_len() else {
                        start = valid;
                        break;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    start = valid + broken;
                }
            }
        }
        self.pending.drain(..start);
    }

    /// The input is over: an unfinished character becomes U+FFFD.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Finds the first of several strings in text that comes in pieces.
///
/// Holds back only what may still become one: the longest end of the text that begins a stop
/// string.
#[derive(Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Looks for these strings, none of them empty.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self {
            stops,
            held: String::new(),
        }
    }

    /// Adds text. Text that is certain is appended to `out`; if a string was met it is
    /// returned, and neither it nor what followed is part of the text.
    pub(crate) fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        if self.stops.is_empty() {
            out.push_str(text);
            return None;
        }
        self.held.push_str(text);
        // The match that ends first counts, as if the text had come byte by byte; of two
        // that end together the longer.
        let met = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at, stop)))
            .min_by_key(|(at, stop)| (at + stop.len(), *at));
        if let Some((at, stop)) = met {
            out.push_str(&self.held[..at]);
            self.held.clear();
            return Some(stop);
        }
        let keep = self.open_end();
        let cut = self.held.len() - keep;
        out.push_str(&self.held[..cut]);
        self.held.drain(..cut);
        None
    }

    /// The input is over: what was held back is text.
    pub(crate) fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// Length of the longest end of `held` that begins a stop string.
    fn open_end(&self) -> usize {
        let held = self.held.as_bytes();
        self.stops
            .iter()
            .map(|stop| {
                let most = held.len().min(stop.len() - 1);
                (1..=most)
                    .rev()
                    .find(|&n| stop.as_bytes().starts_with(&held[held.len() - n..]))
                    .unwrap_or(0)
            })
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stops: &[&str], text: &str, expect: &str, met: Option<&str>) {
        for step in 1..=text.len().max(1) {
            let mut utf8 = Utf8::default();
            let mut matcher = StopMatcher::new(stops.iter().map(|&s| s.to_owned()).collect());
            let (mut out, mut found) = (String::new(), None);
            for piece in text.as_bytes().chunks(step) {
                let mut whole = String::new();
                utf8.push(piece, &mut whole);
                if let Some(stop) = matcher.push(&whole, &mut out) {
                    found = Some(stop.to_owned());
                    break;
                }
            }
            if found.is_none() {
                matcher.finish(&mut out);
            }
            assert_eq!((out.as_str(), found.as_deref()), (expect, met), "{step}");
        }
    }

    #[test]
    fn stop_strings_are_found_however_the_text_is_cut() {
        check(&[], "plain", "plain", None);
        check(&["STOP"], "abSTOPcd", "ab", Some("STOP"));
        check(&["STOP"], "abSTOcd", "abSTOcd", None);
        check(&["STOP"], "abSTO", "abSTO", None);
        check(&["aab"], "aaaab", "aa", Some("aab"));
        check(&["é!", "ü"], "caf\u{e9}!x", "caf", Some("é!"));
        check(&["xyz", "y"], "axyz", "ax", Some("y"));
        check(&["bc", "abc"], "zabc", "z", Some("abc"));
        check(&["\n\n"], "a\nb\n\nc", "a\nb", Some("\n\n"));
    }

    #[test]
    fn only_a_possible_beginning_is_held_back() {
        let mut matcher = StopMatcher::new(vec!["STOP".to_owned()]);
        let mut out = String::new();
        assert_eq!(matcher.push("hello ST", &mut out), None);
        assert_eq!(out, "hello ");
        assert_eq!(matcher.push("ART", &mut out), None);
        assert_eq!(out, "hello START");
    }

    #[test]
    fn broken_bytes_are_replaced_and_whole_characters_wait() {
        let mut utf8 = Utf8::default();
        let mut out = String::new();
        utf8.push(&[b'a', 0xF0, 0x9F], &mut out);
        assert_eq!(out, "a");
        utf8.push(&[0x98, 0x80, 0xFF, b'b', 0xC3], &mut out);
        assert_eq!(out, "a\u{1F600}\u{FFFD}b");
        utf8.finish(&mut out);
        assert_eq!(out, "a\u{1F600}\u{FFFD}b\u{FFFD}");
    }
}
