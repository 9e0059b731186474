use std::borrow::Cow;

use super::ByteSet;

/// Spaces or tabs that a tag marker may have before its `>`.
pub const MAX_TAG_SPACES: usize = 2;

/// One string to look for in model text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    text: Cow<'static, str>,
    is_tag: bool,
}

impl Marker {
    /// A marker that matches byte for byte.
    #[must_use]
    pub fn exact(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            is_tag: false,
        }
    }

    /// A marker that matches in any ASCII case and, if it ends in `>`, with up to
    /// [`MAX_TAG_SPACES`] spaces or tabs before it.
    #[must_use]
    pub fn tag(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            is_tag: true,
        }
    }

    /// The marker in its plain spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The longest text that it matches, in bytes.
    #[must_use]
    pub fn max_len(&self) -> usize {
        let spaces = self.is_tag && self.text.ends_with('>');
        self.text.len() + if spaces { MAX_TAG_SPACES } else { 0 }
    }

    /// The bytes that it can begin with.
    fn first_bytes(&self) -> impl Iterator<Item = u8> + use<> {
        let is_tag = self.is_tag;
        let first = self.text.as_bytes().first().copied();
        first.into_iter().flat_map(move |byte| {
            let (low, high) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
            if is_tag { [low, high] } else { [byte; 2] }
        })
    }

    fn match_at(&self, bytes: &[u8]) -> One {
        let text = self.text.as_bytes();
        if !self.is_tag {
            let n = text.len().min(bytes.len());
            return match (bytes[..n] == text[..n], n == text.len()) {
                (true, true) => One::Full(n),
                (true, false) => One::Partial,
                (false, _) => One::No,
            };
        }
        let gap = text.last() == Some(&b'>');
        let fixed = if gap { &text[..text.len() - 1] } else { text };
        let n = fixed.len().min(bytes.len());
        if !bytes[..n].eq_ignore_ascii_case(&fixed[..n]) {
            return One::No;
        }
        if n < fixed.len() {
            return One::Partial;
        }
        if !gap {
            return One::Full(n);
        }
        for (idx, &byte) in bytes[n..].iter().take(MAX_TAG_SPACES + 1).enumerate() {
            match byte {
                b'>' => return One::Full(n + idx + 1),
                b' ' | b'\t' if idx < MAX_TAG_SPACES => {}
                _ => return One::No,
            }
        }
        One::Partial
    }
}

enum One {
    Full(usize),
    Partial,
    No,
}

/// What stands at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerMatch {
    /// Marker `idx`, `len` bytes long. The longest one wins.
    Full {
        /// Which marker.
        idx: usize,
        /// Its length here.
        len: usize,
    },
    /// Perhaps a marker: more bytes are needed.
    Partial,
    /// No marker.
    No,
}

/// Where the next marker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Marker `idx` stands at `at`.
    Found {
        /// Offset of its first byte.
        at: usize,
        /// Which marker.
        idx: usize,
        /// Its length here.
        len: usize,
    },
    /// From this offset on the text may be the start of a marker; nothing before it is.
    Partial(usize),
    /// No marker, whole or partial.
    None,
}

/// Looks for a set of markers: the only place that decides what text must be held back.
///
/// It keeps no text. A caller keeps what follows [`Scan::Partial`], at most
/// `longest marker - 1` bytes, and asks again with more.
#[derive(Debug, Clone)]
pub struct MarkerScanner {
    markers: Vec<Marker>,
    first: ByteSet,
    max_len: usize,
}

impl MarkerScanner {
    /// A scanner for these markers. Empty ones are ignored.
    #[must_use]
    pub fn new(markers: Vec<Marker>) -> Self {
        let first = ByteSet::new(markers.iter().flat_map(Marker::first_bytes));
        let max_len = markers.iter().map(Marker::max_len).max().unwrap_or(0);
        Self {
            markers,
            first,
            max_len,
        }
    }

    /// The markers, by the index that matches report.
    #[must_use]
    pub fn markers(&self) -> &[Marker] {
        &self.markers
    }

    /// The longest text that a marker matches, in bytes.
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// The bytes that a marker can begin with.
    pub(crate) fn first_bytes(&self) -> impl Iterator<Item = u8> {
        self.markers.iter().flat_map(Marker::first_bytes)
    }

    /// What stands at the start of `bytes`. `at_end`: no more bytes will come.
    #[must_use]
    pub fn match_at(&self, bytes: &[u8], at_end: bool) -> MarkerMatch {
        let Some(&first) = bytes.first() else {
            return MarkerMatch::No;
        };
        if !self.first.contains(first) {
            return MarkerMatch::No;
        }
        let mut best = MarkerMatch::No;
        for (idx, marker) in self.markers.iter().enumerate() {
            match marker.match_at(bytes) {
                One::Full(len) => {
                    if !matches!(best, MarkerMatch::Full { len: old, .. } if old >= len) {
                        best = MarkerMatch::Full { idx, len };
                    }
                }
                // A longer marker may still come.
                One::Partial if !at_end && !marker.text.is_empty() => return MarkerMatch::Partial,
                One::Partial | One::No => {}
            }
        }
        match best {
            MarkerMatch::Full { len: 0, .. } => MarkerMatch::No,
            best => best,
        }
    }

    /// The next marker at or after `from`.
    #[must_use]
    pub fn scan(&self, bytes: &[u8], from: usize, at_end: bool) -> Scan {
        let mut at = self.first.find(bytes, from);
        while at < bytes.len() {
            match self.match_at(&bytes[at..], at_end) {
                MarkerMatch::Full { idx, len } => return Scan::Found { at, idx, len },
                MarkerMatch::Partial => return Scan::Partial(at),
                MarkerMatch::No => {}
            }
            at = self.first.find(bytes, at + 1);
        }
        Scan::None
    }
}
