/// Finds the first of several strings in text that comes in pieces.
///
/// Holds back only what may still become one: the longest end of the text that begins a stop
/// string.
#[derive(Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Looks for these strings; empty ones are not looked for.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty());
        Self {
            stops: stops.collect(),
            held: String::new(),
        }
    }

    /// Adds text. Text that is certain is appended to `out`; if a string was met it is
    /// returned, and neither it nor what followed is part of the text.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
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
    pub fn finish(&mut self, out: &mut String) {
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
    use crate::text::Utf8Assembler;

    fn check(stops: &[&str], text: &str, expect: &str, met: Option<&str>) {
        for step in 1..=text.len().max(1) {
            let mut utf8 = Utf8Assembler::new();
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
}
