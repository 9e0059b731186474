//! The text that readers of bodies work on, and what they say of it.

use crate::text::Marker;

/// Text that a reader works on. `text` is kept from the start of the block on, so offsets
/// stay good while the block is open.
pub(crate) struct Input<'a> {
    pub(crate) text: &'a str,
    pub(crate) pos: usize,
    pub(crate) at_end: bool,
}

impl Input<'_> {
    pub(crate) fn rest(&self) -> &str {
        &self.text[self.pos..]
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    pub(crate) fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.pos += 1;
        }
    }

    /// Whether `marker` stands here.
    pub(crate) fn at(&self, marker: &str) -> At {
        let rest = self.rest().as_bytes();
        let known = rest.len().min(marker.len());
        match (
            rest[..known] == marker.as_bytes()[..known],
            known == marker.len(),
        ) {
            (true, true) => At::Yes,
            (true, false) => At::Cut,
            (false, _) => At::No,
        }
    }

    /// Whether one of the markers stands here.
    pub(crate) fn at_any(&self, markers: &[Marker]) -> At {
        let places = markers.iter().map(|marker| self.at(marker.as_str()));
        places.max().unwrap_or(At::No)
    }

    /// The length of the marker that stands here, 0 if none does.
    pub(crate) fn len_of_any(&self, markers: &[Marker]) -> usize {
        let here = markers
            .iter()
            .find(|marker| self.at(marker.as_str()) == At::Yes);
        here.map_or(0, |marker| marker.as_str().len())
    }

    /// The identifier that begins here; dots and dashes belong to it.
    pub(crate) fn identifier(&self) -> &str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Skips one whole character.
    pub(crate) fn skip_char(&mut self) {
        self.pos += self.rest().chars().next().map_or(0, char::len_utf8);
    }
}

/// Whether something stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    No,
    /// The text ends before that can be told.
    Cut,
    Yes,
}

/// Whether a body begins at a place.
pub(crate) enum Head<T> {
    Yes(T),
    No,
    More,
}

impl<T> Head<T> {
    pub(crate) fn map<U>(self, wrap: impl FnOnce(T) -> U) -> Head<U> {
        match self {
            Self::Yes(body) => Head::Yes(wrap(body)),
            Self::No => Head::No,
            Self::More => Head::More,
        }
    }
}

/// How far a reader came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More text is needed.
    Need,
    /// The block is over; `pos` stands behind it. `owed_close`: its closing marker was not
    /// seen and may still come.
    Ended { owed_close: bool },
    /// It was no call at all: everything since the marker is text.
    NotACall,
    /// The call was refused, and the rest of the body says nothing. From a body only: the block's
    /// reader then looks for the end.
    Broken,
}

pub(crate) const ENDED: Progress = Progress::Ended { owed_close: false };

/// Where an opening marker stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the start of the output or of a line, or after another block.
    BlockStart,
    /// In the middle of a line: only what looks like a call opens a block.
    MidLine,
    /// It was a special token, which is never a mention.
    Special,
}
