//! The calls of one turn, put together from fragments that come in any order.
//!
//! A fragment names its call by index, by id, by both or by neither, and brings a piece of
//! the name, of the arguments, or the whole. What others do wrong here stands in the rules
//! of [`Calls::find`].

use std::borrow::Cow;

use twopass_core::chat::{
    Arguments, CallErrorKind, Diagnostic, DiagnosticKind, Event, InvalidToolCall, OpaqueItem,
    OpaqueKind, ToolCall,
};
use twopass_core::text::{
    ArgumentError, DecodedArguments, JsonBoundary, JsonEvent, JsonLimits, decode_arguments,
};

use crate::json::string;
use crate::request::DecodeContext;

/// One fragment.
#[derive(Debug, Default)]
pub(crate) struct Fragment<'a> {
    /// The key that the stream gives; a key, not a position.
    pub(crate) index: Option<u64>,
    /// Not empty.
    pub(crate) id: Option<String>,
    /// Not empty.
    pub(crate) name: Option<String>,
    /// JSON text: a string that holds a piece of the argument text, or the argument object.
    pub(crate) arguments: Option<&'a str>,
    /// JSON text to be kept with the call.
    pub(crate) extra: Option<&'a str>,
}

#[derive(Debug)]
struct Partial {
    index: Option<u64>,
    /// The id as the stream gives it.
    wire_id: Option<String>,
    /// The id that the call has here.
    id: String,
    name: Option<String>,
    arguments: String,
    /// Reads along in the arguments, so that their end is known without reading them again.
    reader: JsonBoundary,
    state: ArgumentState,
    too_large: bool,
    /// The name came once more after the arguments were complete.
    named_again: bool,
    /// Opened for an argument object that came after a call's first.
    is_second: bool,
    /// Bytes of the arguments that were handed out as deltas.
    n_sent: usize,
    started: bool,
    extra: Option<String>,
}

/// How far the arguments of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArgumentState {
    /// The object is not complete, or there is none.
    Open,
    /// The object is complete; white space may follow.
    Complete,
    /// Something else than a further object stands behind it.
    Trailed,
}

impl Partial {
    fn new(index: Option<u64>, max_depth: usize) -> Self {
        Self {
            index,
            wire_id: None,
            id: String::new(),
            name: None,
            arguments: String::new(),
            reader: JsonBoundary::new(0, max_depth),
            state: ArgumentState::Open,
            too_large: false,
            named_again: false,
            is_second: false,
            n_sent: 0,
            started: false,
            extra: None,
        }
    }

    fn is_complete(&self) -> bool {
        self.state != ArgumentState::Open
    }

    /// True while the arguments may still be the empty object that some streams begin with,
    /// to be replaced by the real one.
    fn may_be_empty_object(&self) -> bool {
        self.n_sent == 0 && "{}".starts_with(self.arguments.trim())
    }

    /// Takes argument text up to the end of the object and gives back what begins another.
    fn take_arguments<'a>(&mut self, text: &'a str, limits: &JsonLimits) -> Option<&'a str> {
        // Some servers send the whole arguments again at the end.
        let is_repeat = self.state == ArgumentState::Complete && text == self.arguments;
        let mut rest = text;
        while !self.too_large && !is_repeat && !rest.is_empty() {
            if self.state == ArgumentState::Complete && rest.trim_start().starts_with('{') {
                if !self.may_be_empty_object() {
                    return Some(rest);
                }
                self.arguments.clear();
                self.reader = JsonBoundary::new(0, limits.max_depth);
                self.state = ArgumentState::Open;
            }
            let len = match self.state {
                ArgumentState::Open => self.read_along(rest),
                ArgumentState::Complete if rest.trim_start().is_empty() => rest.len(),
                ArgumentState::Complete | ArgumentState::Trailed => {
                    self.state = ArgumentState::Trailed;
                    rest.len()
                }
            };
            let (mine, behind) = rest.split_at(len);
            self.too_large = self.arguments.len() + mine.len() > limits.max_bytes;
            if !self.too_large {
                self.arguments.push_str(mine);
            }
            rest = behind;
        }
        None
    }

    /// Follows the object; how much of the text belongs to it.
    fn read_along(&mut self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        loop {
            let (taken, event) = self.reader.feed(&bytes[at..]);
            at += taken;
            match event {
                JsonEvent::End { level: 0 } => {
                    self.state = ArgumentState::Complete;
                    // White space behind it tells nothing and is taken along.
                    return text.len() - text[at..].trim_start().len();
                }
                JsonEvent::More | JsonEvent::Error => return bytes.len(),
                _ => {}
            }
        }
    }
}

/// How the calls of a turn end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The turn is complete.
    Whole,
    /// The turn was cut by the token cap (case rule 11).
    Cut,
}

/// The calls of one turn.
#[derive(Debug)]
pub(crate) struct Calls {
    context: DecodeContext,
    partials: Vec<Partial>,
    n_dropped: usize,
}

/// What came of the calls.
#[derive(Debug, Default)]
pub(crate) struct FinishedCalls {
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) invalid: Vec<InvalidToolCall>,
    pub(crate) items: Vec<OpaqueItem>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Calls {
    pub(crate) fn new(context: DecodeContext) -> Self {
        Self {
            context,
            partials: Vec::new(),
            n_dropped: 0,
        }
    }

    /// Takes a fragment and says what can be said already: a call is announced when its
    /// name and id are known.
    pub(crate) fn push(&mut self, fragment: Fragment<'_>, out: &mut Vec<Event>) {
        let found = self.find(&fragment);
        let Some(call_idx) = found.or_else(|| self.open(fragment.index)) else {
            return;
        };
        let has_id = fragment.id.is_some();
        let partial = &mut self.partials[call_idx];
        partial.index = partial.index.or(fragment.index);
        if partial.wire_id.is_none() {
            partial.wire_id = fragment.id;
        }
        if let Some(piece) = fragment.name {
            match &mut partial.name {
                None => partial.name = Some(piece),
                // Repeated whole names are common, names in pieces are rare: a piece is
                // appended only to what is no tool yet.
                Some(name) if *name == piece => {
                    partial.named_again = partial.state == ArgumentState::Complete && !has_id;
                }
                Some(name) => {
                    let is_tool = self.context.is_offered(name);
                    if partial.arguments.is_empty() && !partial.started && !is_tool {
                        name.push_str(&piece);
                    }
                }
            }
        }
        if let Some(extra) = fragment.extra {
            partial.extra = Some(extra.to_owned());
        }
        self.take_arguments(call_idx, fragment.arguments, out);
    }

    /// Takes the whole arguments of a call whose pieces did not make a whole: one was lost.
    pub(crate) fn whole_arguments(&mut self, index: u64, json: &str) {
        let limits = self.context.rules.limits.arguments;
        let partial = self.partials.iter_mut().rev();
        let mut partial = partial.filter(|partial| partial.index == Some(index));
        let (Some(partial), Some(text)) = (partial.next(), string(json)) else {
            return;
        };
        if !partial.is_complete() && !partial.too_large {
            partial.arguments.clear();
            partial.reader = JsonBoundary::new(0, limits.max_depth);
            partial.take_arguments(&text, &limits);
            // What was handed out piece by piece stays out; the finished call counts.
            if partial.n_sent > 0 {
                partial.n_sent = partial.arguments.len();
            }
        }
    }

    /// Opens a call; `None` if there are too many.
    fn open(&mut self, index: Option<u64>) -> Option<usize> {
        let limits = &self.context.rules.limits;
        if self.partials.len() >= limits.max_calls {
            self.n_dropped += 1;
            return None;
        }
        let max_depth = limits.arguments.max_depth;
        self.partials.push(Partial::new(index, max_depth));
        Some(self.partials.len() - 1)
    }

    /// Gives the call its piece of argument text. A further object opens a call of its own: the
    /// next of the same tool if the tool was named again, else one that will be rejected,
    /// since nothing says which tool is meant.
    fn take_arguments(&mut self, call_idx: usize, raw: Option<&str>, out: &mut Vec<Event>) {
        let text = match raw {
            Some(raw) if raw.starts_with('"') => string(raw).map(Cow::Owned),
            raw => raw.map(Cow::Borrowed),
        };
        let mut rest = text.as_deref();
        let mut call_idx = call_idx;
        loop {
            let limits = self.context.rules.limits.arguments;
            let partial = &mut self.partials[call_idx];
            rest = rest.and_then(|rest| partial.take_arguments(rest, &limits));
            let named_again = rest.is_some() && std::mem::take(&mut partial.named_again);
            let name = partial.name.clone().filter(|_| named_again);
            let (index, wire_id) = (partial.index, partial.wire_id.clone());
            self.announce(call_idx, false, out);
            let Some(next) = rest.and_then(|_| self.open(index)) else {
                return;
            };
            call_idx = next;
            let partial = &mut self.partials[call_idx];
            partial.is_second = name.is_none();
            partial.name = name;
            partial.wire_id = wire_id;
        }
    }

    /// The call that a fragment belongs to; `None` = a new one.
    ///
    /// - An id that is known belongs to its call; an id that is new opens a call, even on an
    ///   index in use, unless that call has none yet, or no name comes and its arguments are
    ///   open: some servers make a new id for every piece.
    /// - An index without id is the newest call of that index, unless a name comes and the
    ///   arguments there are complete: then it is the next call on the same index.
    /// - With neither, the newest call goes on, unless a name comes that differs or that
    ///   finds complete arguments.
    fn find(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let newest = |wanted: &dyn Fn(&Partial) -> bool| self.partials.iter().rposition(wanted);
        let same_index = |partial: &Partial| partial.index == fragment.index;
        let goes_on = |idx: usize| {
            let partial = &self.partials[idx];
            let is_next = match (&fragment.name, &partial.name) {
                (Some(new), Some(old)) => {
                    let has_arguments = fragment
                        .arguments
                        .is_some_and(|raw| !matches!(raw, "\"\"" | "{}"));
                    (partial.is_complete() && (has_arguments || new != old))
                        || (fragment.index.is_none() && new != old)
                }
                _ => false,
            };
            (!is_next).then_some(idx)
        };
        if fragment.id.is_some() {
            let is_same = |partial: &Partial| {
                partial.wire_id == fragment.id
                    && (partial.index.is_none()
                        || fragment.index.is_none()
                        || partial.index == fragment.index)
            };
            if let Some(idx) = newest(&is_same) {
                return Some(idx);
            }
            let idx = match fragment.index {
                Some(_) => newest(&same_index)?,
                None => self.partials.len().checked_sub(1)?,
            };
            let partial = &self.partials[idx];
            let is_piece = fragment.name.is_none()
                && partial.name.is_some()
                && !partial.arguments.is_empty()
                && !partial.is_complete();
            return match partial.wire_id {
                None => goes_on(idx),
                Some(_) => is_piece.then_some(idx),
            };
        }
        let last = self.partials.len().checked_sub(1);
        match fragment.index {
            Some(_) => match newest(&same_index) {
                Some(idx) => goes_on(idx),
                // The call began without an index and goes on with one.
                None => last.filter(|&idx| {
                    let partial = &self.partials[idx];
                    fragment.name.is_none() && partial.index.is_none() && !partial.is_complete()
                }),
            },
            None => goes_on(last?),
        }
    }

    /// `is_over`: nothing more will come for this call.
    fn announce(&mut self, call_idx: usize, is_over: bool, out: &mut Vec<Event>) {
        let partial = &mut self.partials[call_idx];
        let Some(name) = &partial.name else { return };
        if !partial.started {
            let Some(wire_id) = &partial.wire_id else {
                return;
            };
            // The name may still grow until the arguments begin.
            let is_tool = self.context.is_offered(name);
            if partial.arguments.is_empty() && !is_tool {
                return;
            }
            partial.id = if self.context.rules.taken_ids.insert(wire_id.clone()) {
                wire_id.clone()
            } else {
                fresh_id(&mut self.context)
            };
            partial.started = true;
            out.push(Event::CallStarted {
                call_idx,
                id: partial.id.clone(),
                name: self.context.own_name(name),
            });
        }
        let may_send = is_over || !partial.may_be_empty_object();
        if may_send && partial.n_sent < partial.arguments.len() {
            out.push(Event::ArgumentsDelta {
                call_idx,
                text: partial.arguments[partial.n_sent..].to_owned(),
            });
            partial.n_sent = partial.arguments.len();
        }
    }

    /// Ends the calls: each is finished or rejected, in order.
    pub(crate) fn finish(&mut self, end: End, out: &mut Vec<Event>) -> FinishedCalls {
        let mut finished = FinishedCalls::default();
        for call_idx in 0..self.partials.len() {
            let partial = self.close(call_idx, out);
            if let Some(extra) = &partial.extra {
                let item =
                    OpaqueItem::of_call(OpaqueKind::CallExtra, partial.id.clone(), extra.clone());
                out.push(Event::ProviderItem(item.clone()));
                finished.items.push(item);
            }
            match self.check(call_idx, partial, end) {
                Ok((call, repaired)) => {
                    if repaired {
                        let diagnostic = Diagnostic::new(
                            DiagnosticKind::RepairedJson,
                            format!(
                                "the arguments of the call of `{}` were readable only by the \
                                 lenient reader",
                                call.name
                            ),
                        );
                        out.push(Event::Diagnostic(diagnostic.clone()));
                        finished.diagnostics.push(diagnostic);
                    }
                    out.push(Event::CallFinished {
                        call_idx,
                        call: call.clone(),
                    });
                    finished.calls.push(call);
                }
                Err(call) => {
                    finished.invalid.push((*call).clone());
                    out.push(Event::CallRejected {
                        call_idx,
                        call: *call,
                    });
                }
            }
        }
        if self.n_dropped > 0 {
            let max_calls = self.context.rules.limits.max_calls;
            let call = InvalidToolCall {
                id: fresh_id(&mut self.context),
                name: None,
                arguments: String::new(),
                kind: CallErrorKind::TooManyCalls,
                path: None,
                message: format!("at most {max_calls} calls are allowed in one turn"),
            };
            out.push(Event::CallRejected {
                call_idx: self.partials.len(),
                call: call.clone(),
            });
            finished.invalid.push(call);
        }
        self.partials.clear();
        finished
    }

    /// Nothing more comes for this call: it has its id, and its arguments are told whole.
    fn close(&mut self, call_idx: usize, out: &mut Vec<Event>) -> Partial {
        let partial = &mut self.partials[call_idx];
        if partial.wire_id.is_none() {
            partial.wire_id = Some(free_id(&self.context));
        }
        if partial.name.is_some() && partial.arguments.is_empty() {
            partial.arguments.push_str("{}");
        }
        self.announce(call_idx, true, out);
        let mut partial = std::mem::replace(&mut self.partials[call_idx], Partial::new(None, 0));
        if !partial.started {
            partial.id = partial.wire_id.take().unwrap_or_default();
            if !self.context.rules.taken_ids.insert(partial.id.clone()) {
                partial.id = fresh_id(&mut self.context);
            }
        }
        partial
    }

    /// The call, and true if only the lenient reader could read it (case rules 10, 11).
    fn check(
        &self,
        call_idx: usize,
        partial: Partial,
        end: End,
    ) -> Result<(ToolCall, bool), Box<InvalidToolCall>> {
        let Partial {
            id,
            name,
            arguments: raw,
            too_large,
            is_second,
            ..
        } = partial;
        let name = name.map(|name| self.context.own_name(&name));
        let reject = |name, arguments, kind, message: &str| {
            Err(Box::new(InvalidToolCall {
                id: id.clone(),
                name,
                arguments,
                kind,
                path: None,
                message: message.to_owned(),
            }))
        };
        if too_large {
            let most = self.context.rules.limits.arguments.max_bytes;
            let message = format!("arguments are larger than {most} bytes");
            return reject(name, raw, CallErrorKind::ArgumentsTooLarge, &message);
        }
        let Some(name) = name else {
            let message = match is_second {
                true => "a further argument object came for one call",
                false => "the call names no tool",
            };
            return reject(None, raw, CallErrorKind::MalformedArguments, message);
        };
        let is_last = call_idx + 1 == self.partials.len();
        let cut = end == End::Cut && is_last;
        self.context.rules.judge(&id, &name, &raw, cut)
    }
}

/// Argument text of a call, and true if only the lenient reader could read it.
///
/// # Errors
/// It is no object, even read leniently.
pub(crate) fn read_call_arguments(text: &str) -> Result<(Arguments, bool), ArgumentError> {
    let DecodedArguments {
        object,
        text,
        repaired,
    } = decode_arguments(text, &JsonLimits::default())?;
    // The text as it was written keeps integers beyond 64 bits.
    let arguments = text
        .and_then(|text| Arguments::from_text(text).ok())
        .unwrap_or_else(|| Arguments::from_object(object));
    Ok((arguments, repaired))
}

/// An id that no call of the conversation bears; it is taken from now on.
fn fresh_id(context: &mut DecodeContext) -> String {
    let id = free_id(context);
    context.rules.taken_ids.insert(id.clone());
    id
}

fn free_id(context: &DecodeContext) -> String {
    let rules = &context.rules;
    let mut n = 1_u64;
    loop {
        let id = format!("call_{}{n}", rules.id_salt);
        if !rules.taken_ids.contains(&id) {
            return id;
        }
        n += 1;
    }
}
