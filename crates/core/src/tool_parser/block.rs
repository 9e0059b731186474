//! One call block: from its opening marker to its end, whatever body it has.

use std::sync::Arc;

use super::calls::Calls;
use super::json_body::{JsonBody, JsonRules};
use crate::chat::{CallErrorKind, Event};
use crate::text::{Marker, MarkerMatch, MarkerScanner, Scan};

/// Prose that may stand between an opening marker and the body (row E8), in bytes.
const MAX_PRELUDE_BYTES: usize = 256;

/// Text between a body and its closing marker that still belongs to the block, in bytes.
pub(crate) const MAX_JUNK_BYTES: usize = 4096;

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

    /// Skips one whole character.
    pub(crate) fn skip_char(&mut self) {
        self.pos += self.rest().chars().next().map_or(0, char::len_utf8);
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

/// Whether a body may begin without an opening marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RawStart {
    /// Never.
    #[default]
    No,
    /// At the start of the answer or right after another block, if a known tool is named.
    AnswerStart,
    /// At the start of any line, if a known tool is named.
    LineStart,
}

/// The markers and the body of one kind of block.
#[derive(Debug, Clone)]
pub(crate) struct BlockRules {
    /// Opening markers first, then closing ones.
    pub(crate) edges: MarkerScanner,
    pub(crate) n_opens: usize,
    pub(crate) body: BodyRules,
    pub(crate) raw: RawStart,
}

impl BlockRules {
    pub(crate) fn new(
        opens: Vec<Marker>,
        closes: Vec<Marker>,
        body: BodyRules,
        raw: RawStart,
    ) -> Self {
        let n_opens = opens.len();
        let edges = MarkerScanner::new(opens.into_iter().chain(closes).collect());
        Self {
            edges,
            n_opens,
            body,
            raw,
        }
    }

    pub(crate) fn opens(&self) -> &[Marker] {
        &self.edges.markers()[..self.n_opens]
    }

    pub(crate) fn closes(&self) -> &[Marker] {
        &self.edges.markers()[self.n_opens..]
    }

    /// Bytes that a body without an opening marker may begin with.
    pub(crate) fn raw_first_bytes(&self) -> Vec<u8> {
        match &self.body {
            BodyRules::Json(json) => b"{["
                .iter()
                .copied()
                .filter(|&byte| json.may_start_with(byte))
                .collect(),
        }
    }

    pub(crate) fn has_close(&self) -> bool {
        self.edges.markers().len() > self.n_opens
    }

    /// The next closing marker from `from` on.
    pub(crate) fn find_close(&self, text: &str, from: usize) -> Option<usize> {
        let mut from = from;
        while let Scan::Found { at, idx, len } = self.edges.scan(text.as_bytes(), from, true) {
            if idx >= self.n_opens {
                return Some(at);
            }
            from = at + len;
        }
        None
    }
}

#[derive(Debug, Clone)]
pub(crate) enum BodyRules {
    Json(JsonRules),
}

/// Reads one block.
pub(crate) struct BlockReader {
    candidates: Vec<Arc<BlockRules>>,
    place: Place,
    /// Where the text after the opening marker begins.
    content_at: usize,
    prose: bool,
    body: Option<(Arc<BlockRules>, Body)>,
}

enum Body {
    Json(JsonBody),
}

enum Head {
    Yes(Body),
    No,
    More,
}

impl BlockReader {
    /// A reader of the text after an opening marker that begins blocks of these kinds.
    pub(crate) fn after_open(
        candidates: Vec<Arc<BlockRules>>,
        place: Place,
        content_at: usize,
    ) -> Self {
        Self {
            candidates,
            place,
            content_at,
            prose: false,
            body: None,
        }
    }

    /// A reader of a body that has no opening marker; `None` if no body begins so.
    pub(crate) fn raw(
        candidates: &[Arc<BlockRules>],
        first: u8,
        at: usize,
        calls: &Calls,
    ) -> Option<Self> {
        let rules = candidates.iter().find(|rules| match &rules.body {
            BodyRules::Json(json) => json.may_start_with(first),
        })?;
        let body = match &rules.body {
            BodyRules::Json(_) => Body::Json(JsonBody::new(at, false, calls)),
        };
        Some(Self {
            candidates: vec![rules.clone()],
            place: Place::BlockStart,
            content_at: at,
            prose: false,
            body: Some((rules.clone(), body)),
        })
    }

    /// True if what was read so far is a call for certain, so that its events may be shown.
    pub(crate) fn is_committed(&self) -> bool {
        match &self.body {
            Some((_, Body::Json(body))) => body.is_committed(),
            None => false,
        }
    }

    /// True if the reader needs nothing of the text before `pos` any more.
    pub(crate) fn is_skipping(&self) -> bool {
        match &self.body {
            Some((_, Body::Json(body))) => body.is_skipping(),
            None => false,
        }
    }

    pub(crate) fn read(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            if let Some((rules, body)) = &mut self.body {
                let Body::Json(body) = body;
                let BodyRules::Json(json) = &rules.body;
                return body.read(rules, json, input, calls, out);
            }
            if let Some(progress) = self.read_head(input, calls, out) {
                return progress;
            }
        }
    }

    /// Reads up to the body; `None` if the body was found.
    fn read_head(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        input.skip_space();
        if input.peek().is_none() {
            return Some(self.head_at_end(input, calls, out));
        }
        match self.match_marker(input) {
            MarkerMatch::Partial => return Some(Progress::Need),
            // The opening marker once more: a stutter.
            MarkerMatch::Full { idx: 0, len } => {
                input.pos += len;
                self.content_at = input.pos;
                return None;
            }
            MarkerMatch::Full { len, .. } => {
                return Some(self.closed_in_head(input, len, calls, out));
            }
            MarkerMatch::No => {}
        }
        let mut wait = false;
        for rules in &self.candidates {
            match head_of(rules, self.place, input, calls) {
                Head::Yes(body) => {
                    self.body = Some((rules.clone(), body));
                    return None;
                }
                Head::More => wait = true,
                Head::No => {}
            }
        }
        if wait {
            return Some(Progress::Need);
        }
        // Row E8: prose before the JSON, but only where the marker cannot be a mention.
        let may_skip =
            self.place != Place::MidLine && input.pos - self.content_at < MAX_PRELUDE_BYTES;
        if !may_skip {
            return Some(Progress::NotACall);
        }
        self.prose = true;
        input.skip_char();
        None
    }

    fn match_marker(&self, input: &Input<'_>) -> MarkerMatch {
        for rules in &self.candidates {
            match rules.edges.match_at(input.rest().as_bytes(), input.at_end) {
                MarkerMatch::Full { idx, len } => {
                    let idx = usize::from(idx >= rules.n_opens);
                    return MarkerMatch::Full { idx, len };
                }
                MarkerMatch::Partial => return MarkerMatch::Partial,
                MarkerMatch::No => {}
            }
        }
        MarkerMatch::No
    }

    fn head_at_end(&self, input: &Input<'_>, calls: &mut Calls, out: &mut Vec<Event>) -> Progress {
        if !input.at_end {
            return Progress::Need;
        }
        if self.place == Place::MidLine || self.prose {
            return Progress::NotACall;
        }
        calls.reject_block(
            CallErrorKind::TruncatedToolCall,
            "",
            "the turn ended before the call did",
            out,
        );
        ENDED
    }

    fn closed_in_head(
        &self,
        input: &mut Input<'_>,
        len: usize,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        if self.place == Place::MidLine || (self.place == Place::BlockStart && !self.prose) {
            return Progress::NotACall;
        }
        let raw = &input.text[self.content_at..input.pos];
        if self.prose {
            calls.reject_block(
                CallErrorKind::MalformedArguments,
                raw.trim(),
                "the block holds no call",
                out,
            );
        }
        input.pos += len;
        ENDED
    }
}

/// Whether a body of these rules begins at the input's position.
fn head_of(rules: &BlockRules, place: Place, input: &mut Input<'_>, calls: &Calls) -> Head {
    match &rules.body {
        BodyRules::Json(json) => match json.head(place, input) {
            Some(Some(at)) => {
                input.pos = at;
                Head::Yes(Body::Json(JsonBody::new(at, true, calls)))
            }
            Some(None) => Head::No,
            None => Head::More,
        },
    }
}

/// Skips broken text up to the end of its block, or to the next one.
pub(crate) fn skip_to_close(rules: &BlockRules, input: &mut Input<'_>) -> Progress {
    match rules
        .edges
        .scan(input.text.as_bytes(), input.pos, input.at_end)
    {
        Scan::Found { at, idx, len } => {
            input.pos = if idx < rules.n_opens { at } else { at + len };
            ENDED
        }
        Scan::Partial(at) => {
            input.pos = at;
            Progress::Need
        }
        Scan::None => {
            input.pos = input.text.len();
            if input.at_end { ENDED } else { Progress::Need }
        }
    }
}

/// Text after the body, from `at` on: part of the block if the closing marker still comes.
pub(crate) fn read_junk(rules: &BlockRules, at: usize, input: &mut Input<'_>) -> Progress {
    let end = match rules
        .edges
        .scan(input.text.as_bytes(), input.pos, input.at_end)
    {
        Scan::Found { at: end, idx, len } if idx >= rules.n_opens && end - at <= MAX_JUNK_BYTES => {
            input.pos = end + len;
            return ENDED;
        }
        Scan::Found { .. } => None,
        Scan::Partial(end) => Some(end),
        Scan::None => Some(input.text.len()),
    };
    match end {
        Some(end) if !input.at_end && end - at <= MAX_JUNK_BYTES => {
            input.pos = end;
            Progress::Need
        }
        _ => {
            input.pos = at;
            Progress::Ended { owed_close: true }
        }
    }
}
