//! The calls of one turn, put together from fragments that come in any order.
//!
//! A fragment names its call by index, by id, by both or by neither, and brings a piece of
//! the name, of the arguments, or the whole. What others do wrong here stands in the rules
//! of [`Calls::find`].

use twopass_core::chat::{
    Arguments, CallErrorKind, Diagnostic, DiagnosticKind, Event, InvalidToolCall, OpaqueItem,
    OpaqueKind, ToolCall,
};
use twopass_core::text::{ArgumentError, DecodedArguments, JsonLimits, decode_arguments};

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

#[derive(Debug, Default)]
struct Partial {
    index: Option<u64>,
    /// The id as the stream gives it.
    wire_id: Option<String>,
    /// The id that the call has here.
    id: String,
    name: Option<String>,
    arguments: String,
    /// The arguments came as an object, whole.
    is_whole: bool,
    too_large: bool,
    /// Bytes of the arguments that were handed out as deltas.
    n_sent: usize,
    started: bool,
    extra: Option<String>,
}

impl Partial {
    fn is_complete(&self) -> bool {
        self.is_whole || (self.arguments.ends_with('}') && is_object(&self.arguments))
    }
}

fn is_object(text: &str) -> bool {
    Arguments::from_text(text).is_ok()
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
        let call_idx = match self.find(&fragment) {
            Some(idx) => idx,
            None if self.partials.len() >= self.context.rules.limits.max_calls => {
                self.n_dropped += 1;
                return;
            }
            None => {
                self.partials.push(Partial {
                    index: fragment.index,
                    ..Partial::default()
                });
                self.partials.len() - 1
            }
        };
        let known_tools = &self.context;
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
                Some(name) if *name == piece => {}
                Some(name) => {
                    let is_tool = known_tools.is_offered(name);
                    if partial.arguments.is_empty() && !partial.started && !is_tool {
                        name.push_str(&piece);
                    }
                }
            }
        }
        if let Some(extra) = fragment.extra {
            partial.extra = Some(extra.to_owned());
        }
        if let Some(arguments) = fragment.arguments {
            let max_bytes = self.context.rules.limits.arguments.max_bytes;
            take_arguments(partial, arguments, max_bytes);
        }
        self.announce(call_idx, out);
    }

    /// The call that a fragment belongs to; `None` = a new one.
    ///
    /// - An id that is known belongs to its call; an id that is new opens a call, even on an
    ///   index in use, unless that call has none yet.
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
            return match self.partials[idx].wire_id {
                None => goes_on(idx),
                Some(_) => None,
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

    fn announce(&mut self, call_idx: usize, out: &mut Vec<Event>) {
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
        if partial.n_sent < partial.arguments.len() {
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
            let partial = &mut self.partials[call_idx];
            if partial.wire_id.is_none() {
                partial.wire_id = Some(free_id(&self.context));
            }
            if partial.name.is_some() && partial.arguments.is_empty() {
                partial.arguments.push_str("{}");
                partial.is_whole = true;
            }
            self.announce(call_idx, out);
            let mut partial = std::mem::take(&mut self.partials[call_idx]);
            if !partial.started {
                partial.id = partial.wire_id.take().unwrap_or_default();
                self.context.rules.taken_ids.insert(partial.id.clone());
            }
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
            let message = "the call names no tool";
            return reject(None, raw, CallErrorKind::MalformedArguments, message);
        };
        let is_last = call_idx + 1 == self.partials.len();
        let cut = end == End::Cut && is_last;
        self.context.rules.judge(&id, &name, &raw, cut)
    }
}

fn take_arguments(partial: &mut Partial, raw: &str, max_bytes: usize) {
    if partial.too_large {
        return;
    }
    let piece = if raw.starts_with('"') {
        match string(raw) {
            Some(piece) => piece,
            None => return,
        }
    } else {
        // The object itself: it replaces the empty object that some streams begin with.
        if partial.n_sent == 0 {
            partial.arguments.clear();
        }
        partial.is_whole = true;
        raw.to_owned()
    };
    // Some servers send the whole arguments again at the end.
    if piece.len() > 1 && piece == partial.arguments && partial.is_complete() {
        return;
    }
    if partial.arguments.len() + piece.len() > max_bytes {
        partial.too_large = true;
        return;
    }
    partial.arguments.push_str(&piece);
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
