//! One call block: from its opening marker to its end, whatever body it has.

use std::sync::Arc;

use super::calls::Calls;
use super::gemma_body::{GemmaBody, GemmaRules};
use super::input::{At, ENDED, Head, Input, Place, Progress};
use super::json_body::{JsonBody, JsonRules};
use super::named_body::{NamedBody, NamedRules};
use super::python_body::{PythonBody, PythonRules};
use super::xml_body::{XmlBody, XmlRules};
use crate::chat::{CallErrorKind, Event};
use crate::text::{Marker, MarkerMatch, MarkerScanner, Scan, prefix_within};

/// Prose that may stand between an opening marker and the body (row E8), in bytes.
const MAX_PRELUDE_BYTES: usize = 256;

/// Text between a body and its closing marker that still belongs to the block, in bytes.
pub(crate) const MAX_JUNK_BYTES: usize = 4096;

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

    /// True if a body without an opening marker may begin with this byte.
    pub(crate) fn raw_may_start_with(&self, byte: u8) -> bool {
        match &self.body {
            BodyRules::Json(json) => json.may_start_with(byte),
            BodyRules::Python(_) => byte == b'[',
            BodyRules::Named(_) => byte.is_ascii_alphabetic() || byte == b'_',
            BodyRules::Xml(_) | BodyRules::Gemma(_) => false,
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
    Named(NamedRules),
    Xml(XmlRules),
    Python(PythonRules),
    Gemma(GemmaRules),
}

/// Reads one block.
pub(crate) struct BlockReader {
    candidates: Vec<Arc<BlockRules>>,
    place: Place,
    /// The marker that opened the block; empty if there was none.
    opened_by: String,
    /// Where the text after the opening marker begins.
    content_at: usize,
    prose: bool,
    /// Calls of the turn before this block's.
    n_calls_before: usize,
    body: Option<(Arc<BlockRules>, Body)>,
    /// Only the end of the block is looked for.
    is_skipping: bool,
}

enum Body {
    Json(JsonBody),
    Named(NamedBody),
    Xml(XmlBody),
    Python(PythonBody),
    Gemma(GemmaBody),
}

impl BlockReader {
    /// A reader of the text after an opening marker that begins blocks of these kinds.
    pub(crate) fn after_open(
        candidates: Vec<Arc<BlockRules>>,
        place: Place,
        opened_by: &str,
        content_at: usize,
    ) -> Self {
        Self {
            candidates,
            place,
            opened_by: opened_by.to_owned(),
            content_at,
            prose: false,
            n_calls_before: 0,
            body: None,
            is_skipping: false,
        }
    }

    /// A reader of the parameters of a call that was begun before the block. The rules are
    /// those of an XML-like body.
    pub(crate) fn of_parameters(rules: Arc<BlockRules>, content_at: usize) -> Self {
        let body = Body::Xml(XmlBody::in_call(content_at));
        Self {
            body: Some((rules, body)),
            ..Self::after_open(Vec::new(), Place::Special, "", content_at)
        }
    }

    /// A reader of a body that has no opening marker; `None` if no body begins so.
    pub(crate) fn raw(candidates: Vec<Arc<BlockRules>>, first: u8, at: usize) -> Option<Self> {
        let mut candidates = candidates;
        candidates.retain(|rules| rules.raw_may_start_with(first));
        (!candidates.is_empty()).then(|| Self::after_open(candidates, Place::MidLine, "", at))
    }

    /// True if what was read so far is a call for certain, so that its events may be shown.
    pub(crate) fn is_committed(&self) -> bool {
        match &self.body {
            Some((_, Body::Json(body))) => body.is_committed(),
            Some((_, Body::Python(body))) => body.is_committed(),
            Some(_) => true,
            None => false,
        }
    }

    /// True if the reader needs nothing of the text before `pos` any more.
    pub(crate) fn is_skipping(&self) -> bool {
        let is_over_limit =
            matches!(&self.body, Some((_, Body::Json(body))) if body.is_over_limit());
        self.is_skipping || is_over_limit
    }

    /// Reads on. Beyond the byte limit the block is refused and skipped.
    pub(crate) fn read(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        let most = calls.limits().max_block_bytes;
        let limit = self.content_at.saturating_add(most);
        if self.is_skipping() || input.text.len() <= limit {
            return self.read_within(input, calls, out);
        }
        // However the text comes, the same bytes are read before the limit.
        let within = prefix_within(input.text, limit);
        let mut view = Input {
            text: within,
            pos: input.pos,
            at_end: false,
        };
        let progress = self.read_within(&mut view, calls, out);
        input.pos = view.pos;
        if progress != Progress::Need {
            return progress;
        }
        let Some((_, body)) = &mut self.body else {
            return Progress::NotACall;
        };
        // JSON ends where its brackets do, whatever markers its strings hold.
        self.is_skipping = match body {
            Body::Json(body) => !body.begin_over_limit(),
            Body::Named(_) | Body::Xml(_) | Body::Python(_) | Body::Gemma(_) => true,
        };
        let raw = &within[self.content_at.min(within.len())..];
        let message = format!("the block has more than {most} bytes");
        calls.reject_block(CallErrorKind::ArgumentsTooLarge, raw, &message, out);
        self.read_within(input, calls, out)
    }

    fn read_within(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            if let Some((rules, body)) = &mut self.body {
                if self.is_skipping {
                    return skip_to_close(rules, input);
                }
                let progress = match (body, &rules.body) {
                    (Body::Json(body), BodyRules::Json(json)) => {
                        body.read(rules, json, input, calls, out)
                    }
                    (Body::Named(body), BodyRules::Named(named)) => {
                        body.read(named, input, calls, out)
                    }
                    (Body::Xml(body), BodyRules::Xml(xml)) => body.read(xml, input, calls, out),
                    (Body::Python(body), BodyRules::Python(python)) => {
                        body.read(rules, python, input, calls, out)
                    }
                    (Body::Gemma(body), BodyRules::Gemma(gemma)) => {
                        body.read(rules, gemma, input, calls, out)
                    }
                    // A body is only ever made from its own rules.
                    _ => ENDED,
                };
                if progress == Progress::Broken {
                    self.is_skipping = true;
                    continue;
                }
                let no_call = calls.n_started() == self.n_calls_before;
                if matches!(progress, Progress::Ended { .. }) && self.prose && no_call {
                    let raw = input.text[self.content_at..input.pos].trim();
                    reject_empty(raw, calls, out);
                }
                return progress;
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
            return Some(self.head_at_end(false, input, calls, out));
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
        let at = input.pos;
        for rules in &self.candidates {
            input.pos = at;
            match self.head_of(rules, input, calls) {
                // An earlier kind that may still fit goes first, however the text is cut.
                Head::Yes(body) if !wait || input.at_end => {
                    self.n_calls_before = calls.n_started();
                    self.body = Some((rules.clone(), body));
                    return None;
                }
                Head::Yes(_) | Head::More => wait = true,
                Head::No => {}
            }
        }
        if wait {
            input.pos = at;
            return Some(self.head_at_end(true, input, calls, out));
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

    /// 0: the opening marker stands here again; 1: a closing one.
    fn match_marker(&self, input: &Input<'_>) -> MarkerMatch {
        if !self.opened_by.is_empty() {
            match input.at(&self.opened_by) {
                At::Yes => {
                    return MarkerMatch::Full {
                        idx: 0,
                        len: self.opened_by.len(),
                    };
                }
                At::Cut if !input.at_end => return MarkerMatch::Partial,
                At::Cut | At::No => {}
            }
        }
        for rules in &self.candidates {
            // Here a code fence frames the JSON; it closes nothing.
            if input.peek() == Some(b'`') {
                continue;
            }
            match input.at_any(rules.closes()) {
                At::Yes => {
                    let len = input.len_of_any(rules.closes());
                    return MarkerMatch::Full { idx: 1, len };
                }
                At::Cut if !input.at_end => return MarkerMatch::Partial,
                At::Cut | At::No => {}
            }
        }
        MarkerMatch::No
    }

    /// Whether a body of these rules begins at the input's position.
    fn head_of(&self, rules: &BlockRules, input: &mut Input<'_>, calls: &Calls) -> Head<Body> {
        let has_marker = !self.opened_by.is_empty();
        match &rules.body {
            BodyRules::Json(json) => match json.head(self.place, has_marker, input) {
                Some(Some(at)) => {
                    input.pos = at;
                    Head::Yes(Body::Json(JsonBody::new(at, has_marker, calls)))
                }
                Some(None) => Head::No,
                None => Head::More,
            },
            BodyRules::Named(named) => named.head(&self.opened_by, input, calls).map(Body::Named),
            BodyRules::Xml(xml) => xml
                .head(&self.opened_by, self.place, input, calls)
                .map(Body::Xml),
            BodyRules::Python(python) => python.head(has_marker, input, calls).map(Body::Python),
            BodyRules::Gemma(gemma) => gemma.head(input).map(Body::Gemma),
        }
    }

    fn head_at_end(
        &self,
        began: bool,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        if !input.at_end {
            return Progress::Need;
        }
        // A marker in the middle of the last line may be a mention, unless the cap cut it off.
        let is_call = self.place != Place::MidLine || began || calls.is_cut();
        if !is_call || self.prose || self.opened_by.is_empty() {
            return Progress::NotACall;
        }
        let raw = input.text[self.content_at..].trim();
        calls.reject_truncated(raw, out);
        input.pos = input.text.len();
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
        if self.prose {
            let raw = input.text[self.content_at..input.pos].trim();
            reject_empty(raw, calls, out);
        }
        input.pos += len;
        ENDED
    }
}

/// A block of text only: nothing of it is a call.
pub(crate) fn reject_empty(raw: &str, calls: &mut Calls, out: &mut Vec<Event>) {
    let message = "the block holds no call";
    calls.reject_block(CallErrorKind::MalformedArguments, raw, message, out);
}

/// Skips broken text up to the end of its block, or to the next one.
fn skip_to_close(rules: &BlockRules, input: &mut Input<'_>) -> Progress {
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

/// The calls are over: the closing marker, if the block has one.
pub(crate) fn read_close(
    rules: &BlockRules,
    input: &mut Input<'_>,
    calls: &mut Calls,
    out: &mut Vec<Event>,
) -> Progress {
    if !rules.has_close() {
        return ENDED;
    }
    let from = input.pos;
    input.skip_space();
    match input.at_any(rules.closes()) {
        At::Yes => {
            input.pos += input.len_of_any(rules.closes());
            calls.settle(false, out);
            ENDED
        }
        At::Cut if !input.at_end => {
            input.pos = from;
            Progress::Need
        }
        _ if input.peek().is_none() && !input.at_end => {
            input.pos = from;
            Progress::Need
        }
        At::Cut | At::No => {
            input.pos = from;
            Progress::Ended { owed_close: true }
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
