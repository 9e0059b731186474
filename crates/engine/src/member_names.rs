//! What no grammar over tokens can say of JSON: that an object has each member once.

use std::collections::HashSet;

use twopass_core::text::{JsonBoundary, JsonEvent};

/// Deepest JSON that is followed.
const MAX_DEPTH: usize = 256;

/// Follows the JSON objects in a text that a grammar binds, and knows the members that the
/// open ones have already.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemberNames {
    /// What must have come before an object counts; empty: every object does.
    opens_at: Vec<u8>,
    /// How much of it stands at the end of the text; all of it: it came.
    n_opened: usize,
    /// The object being read; outside of it text is passed over to the next brace.
    json: Option<JsonBoundary>,
    /// Names of the open objects' members, by the members' level.
    seen: Vec<HashSet<String>>,
}

impl MemberNames {
    /// Follows every object, or one behind each of these texts.
    pub(crate) fn new(opens_at: Option<&str>) -> Self {
        Self {
            opens_at: opens_at.unwrap_or_default().as_bytes().to_vec(),
            ..Self::default()
        }
    }

    /// True if no name that ends within these bytes is one that its object has already.
    pub(crate) fn admits(&self, bytes: &[u8]) -> bool {
        // A name ends by its quotation mark.
        !bytes.contains(&b'"') || self.clone().push(bytes)
    }

    /// What is known behind these bytes, if a member's key is open there and its object has
    /// members: then the name may become one of theirs.
    pub(crate) fn open_key(&self, bytes: &[u8]) -> Option<Self> {
        let in_key = |names: &Self| names.json.as_ref().is_some_and(JsonBoundary::in_key);
        // A key opens behind a comma.
        if !in_key(self) && !bytes.contains(&b',') {
            return None;
        }
        let mut names = self.clone();
        names.push(bytes);
        let level = names.json.as_ref()?.depth();
        let has_members = names.seen.get(level).is_some_and(|seen| !seen.is_empty());
        (has_members && in_key(&names)).then_some(names)
    }

    /// The object that is being read.
    pub(crate) fn json(&self) -> Option<&JsonBoundary> {
        self.json.as_ref()
    }

    /// How many of these pieces may follow each other, by what [`Self::admits`] each.
    pub(crate) fn n_admitted<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut names = self.clone();
        pieces.take_while(|piece| names.push(piece)).count()
    }

    /// Reads on; false if an object got a member twice.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let mut is_new = true;
        loop {
            let json = match &mut self.json {
                Some(json) => json,
                None => {
                    let Some(at) = self.begin_of_object(rest) else {
                        return is_new;
                    };
                    rest = &rest[at..];
                    self.json.insert(JsonBoundary::new(u32::MAX, MAX_DEPTH))
                }
            };
            let (taken, event) = json.feed(rest);
            rest = &rest[taken..];
            match event {
                JsonEvent::More => return is_new,
                JsonEvent::Begin { level, first: b'{' } => {
                    self.seen.resize_with(level as usize + 2, HashSet::new);
                    self.seen[level as usize + 1].clear();
                }
                JsonEvent::Key { level } => {
                    let name = json.key();
                    let seen = self.seen.get_mut(level as usize);
                    is_new &= seen.is_none_or(|seen| seen.insert(name));
                }
                JsonEvent::End { level: 0 } | JsonEvent::Error => {
                    self.json = None;
                    self.seen.clear();
                    self.n_opened = 0;
                    // What cannot stand in JSON is not looked at again.
                    if event == JsonEvent::Error {
                        rest = rest.get(1..).unwrap_or_default();
                    }
                }
                JsonEvent::Begin { .. } | JsonEvent::End { .. } => {}
            }
        }
    }

    /// Where the next object that counts begins.
    fn begin_of_object(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.n_opened == self.opens_at.len() {
                if byte == b'{' {
                    return Some(at);
                }
                continue;
            }
            // The longest beginning of the text that this byte ends. The texts are markers:
            // short, and none begins again within itself.
            self.n_opened = match self.opens_at.get(self.n_opened) {
                Some(&next) if next == byte => self.n_opened + 1,
                _ => usize::from(self.opens_at.first() == Some(&byte)),
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whatever pieces: the text is refused just at the piece that ends the second name.
    #[test]
    fn m5_free_text_repeats_what_it_likes() {
        let mut names = MemberNames::new(Some("<call>"));
        assert!(names.push(br#"{"a": 1, "a": 2} <<ca"#));
        assert!(names.push(br#"ll> {"a": 1}</call> {"a": 1, "a": 2}"#));
        assert!(!names.push(br#"<call>{"a": 1, "a""#));
    }

    #[test]
    fn m5_a_key_is_open_from_the_comma_to_its_end() {
        let rows = [
            (r#"{""#, "a", false),
            (r#"{"a": 1"#, ",", true),
            (r#"{"a": 1"#, r#", "b"#, true),
            (r#"{"a": 1"#, r#", "b":"#, false),
            (r#"{"a": 1, "b"#, "c", true),
            (r#"{"a": [1"#, ",", false),
            (r#"{"a": "x"#, ",", false),
            (r#"{"a": {"#, "\"", false),
            (r#"{"a": {"b": 1}"#, ",", true),
        ];
        for (text, piece, expect) in rows {
            let mut names = MemberNames::default();
            names.push(text.as_bytes());
            let open = names.open_key(piece.as_bytes());
            assert_eq!(open.is_some(), expect, "{text} {piece}");
        }
    }

    #[test]
    fn m5_members_come_once() {
        let rows = [
            (r#"<tool_call>{"a": 1, "b": {"a": {"b": 2}}}"#, None),
            (r#"{"a": 1, "a": 2}"#, Some(11)),
            (r#"[TOOL] f {"x": [{"a": 1}, {"a": 2, "a""#, Some(37)),
            (r#"{"a": {"c": 1}, "b": {"c": 1, "c": 1}}"#, Some(32)),
            ("{\"\\u0061\": 1, \"a\": 2}", Some(16)),
            (r#"{"a": "a", "b": "\"a\": 1, \"a\": 1"}"#, None),
            (r#"{"a": 1} {"a": 1}"#, None),
            (r#"{"a" 1} {"b": 1, "b": 1}"#, Some(19)),
        ];
        for (text, expect) in rows {
            for step in 1..=text.len() {
                let mut names = MemberNames::default();
                let mut at = 0;
                let mut refused = None;
                for piece in text.as_bytes().chunks(step) {
                    if !names.admits(piece) {
                        refused = Some(at);
                        break;
                    }
                    assert!(names.push(piece));
                    at += piece.len();
                }
                let expect = expect.map(|end: usize| end / step * step);
                assert_eq!(refused, expect, "{text} by {step}");
            }
        }
    }
}
