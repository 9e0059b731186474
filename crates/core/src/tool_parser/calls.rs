use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::tool_set::{ToolSet, normalize_name};
use crate::chat::{
    Arguments, CallErrorKind, Diagnostic, DiagnosticKind, Event, InvalidToolCall, ToolCall,
    ToolChoice,
};
use crate::text::{JsonLimits, decode_arguments, prefix_within};

/// Limits of one turn's parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParserLimits {
    /// Longest call block, in bytes. Default 4 MiB. A longer one is refused and skipped;
    /// no more than this is ever held.
    pub max_block_bytes: usize,
    /// Limits of one call's arguments. Default 1 MiB, 128 levels.
    pub arguments: JsonLimits,
    /// Most calls that one turn may make. Default 256; further ones are refused.
    pub max_calls: usize,
}

impl Default for ParserLimits {
    fn default() -> Self {
        Self {
            max_block_bytes: 4 << 20,
            arguments: JsonLimits::default(),
            max_calls: 256,
        }
    }
}

/// What may be called in a turn, and how much.
#[derive(Debug, Clone, Default)]
pub struct CallRules {
    /// The offered tools; `None` if they are not known: then every name is taken and
    /// arguments are not checked against a schema.
    pub tools: Option<Arc<ToolSet>>,
    /// Which calls are allowed.
    pub choice: ToolChoice,
    /// Ids that the conversation used already.
    pub taken_ids: HashSet<String>,
    /// Put into the ids of calls that come without one: `call_{salt}1`.
    pub id_salt: String,
    /// Keep `null` in an optional parameter that takes none, where it is otherwise taken
    /// for an absent parameter.
    pub keep_optional_nulls: bool,
    /// Limits.
    pub limits: ParserLimits,
}

/// The arguments of a call when it is complete.
pub(crate) enum ArgumentBody {
    /// Argument text as written; `lenient`: what stood around it needed the lenient reader.
    Text { text: String, lenient: bool },
    /// Arguments read from a format of their own.
    Object {
        object: Map<String, Value>,
        repaired: bool,
    },
    /// Arguments that could not be read.
    Malformed { raw: String, message: String },
    /// Arguments over the byte limit.
    TooLarge { raw: String, bytes: usize },
}

impl ArgumentBody {
    fn into_raw(self) -> String {
        match self {
            Self::Text { text: raw, .. }
            | Self::Malformed { raw, .. }
            | Self::TooLarge { raw, .. } => raw,
            Self::Object { object, .. } => Value::Object(object).to_string(),
        }
    }
}

/// Why a call's arguments are not accepted.
struct Fault {
    kind: CallErrorKind,
    path: Option<String>,
    message: String,
}

impl Fault {
    fn new(kind: CallErrorKind, message: String) -> Self {
        Self {
            kind,
            path: None,
            message,
        }
    }

    fn into_call(self, id: &str, name: &str, raw: &str) -> InvalidToolCall {
        InvalidToolCall {
            id: id.to_owned(),
            name: Some(name.to_owned()),
            arguments: raw.to_owned(),
            kind: self.kind,
            path: self.path,
            message: self.message,
        }
    }
}

/// Everything that is known of the calls of a turn: numbers them, names them, checks them.
pub(crate) struct Calls {
    rules: CallRules,
    allotted: Vec<String>,
    next_id: usize,
    n_started: usize,
    n_finished: usize,
    current: Option<Current>,
    pending: Option<Pending>,
    reread_left: usize,
    cut: bool,
}

/// Bytes of broken blocks that may be read a second time, per byte of input. Keeps the
/// whole linear whatever the input is.
const REREAD_PER_BYTE: usize = 4;

struct Current {
    idx: usize,
    id: String,
    name: String,
    refused: Option<(CallErrorKind, String)>,
    any_delta: bool,
}

/// A call whose verdict depends on whether the turn was cut right after it (case rule 11).
struct Pending {
    idx: usize,
    verdict: Result<(ToolCall, bool), InvalidToolCall>,
    id: String,
    name: String,
    raw: String,
}

/// A place to go back to when a draft turns out not to be calls.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    n_allotted: usize,
    next_id: usize,
    n_started: usize,
    n_finished: usize,
}

impl Calls {
    pub(crate) fn new(rules: CallRules) -> Self {
        Self {
            rules,
            allotted: Vec::new(),
            next_id: 1,
            n_started: 0,
            n_finished: 0,
            current: None,
            pending: None,
            reread_left: 4096,
            cut: false,
        }
    }

    /// Notes new input, which pays for reading broken blocks again.
    pub(crate) fn note_input(&mut self, bytes: usize) {
        self.reread_left = self
            .reread_left
            .saturating_add(bytes.saturating_mul(REREAD_PER_BYTE));
    }

    /// Notes that the text ends here; `cut`: by the token cap.
    pub(crate) fn note_end(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// True if the text ended by the token cap.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Asks to read so many bytes a second time.
    pub(crate) fn may_reread(&mut self, bytes: usize) -> bool {
        match self.reread_left.checked_sub(bytes) {
            Some(left) => {
                self.reread_left = left;
                true
            }
            None => false,
        }
    }

    pub(crate) fn rules(&self) -> &CallRules {
        &self.rules
    }
    pub(crate) fn limits(&self) -> &ParserLimits {
        &self.rules.limits
    }

    /// Calls that were accepted.
    pub(crate) fn n_finished(&self) -> usize {
        self.n_finished
    }

    /// Calls that were read, good or bad.
    pub(crate) fn n_started(&self) -> usize {
        self.n_started
    }

    /// True if this name, as written, is a tool that was offered (or none are known).
    pub(crate) fn is_tool(&self, written: &str) -> bool {
        match &self.rules.tools {
            Some(tools) => tools.get(&normalize_name(written, tools.names())).is_some(),
            None => true,
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            n_allotted: self.allotted.len(),
            next_id: self.next_id,
            n_started: self.n_started,
            n_finished: self.n_finished,
        }
    }

    /// The state before the first call.
    pub(crate) fn start(&self) -> Snapshot {
        Snapshot {
            n_allotted: 0,
            next_id: 1,
            n_started: 0,
            n_finished: 0,
        }
    }

    pub(crate) fn restore(&mut self, snapshot: Snapshot) {
        for id in self.allotted.drain(snapshot.n_allotted..) {
            self.rules.taken_ids.remove(&id);
        }
        self.next_id = snapshot.next_id;
        self.n_started = snapshot.n_started;
        self.n_finished = snapshot.n_finished;
        self.current = None;
        self.pending = None;
    }

    /// A call's name was read.
    pub(crate) fn begin(&mut self, written: &str, id: Option<&str>, out: &mut Vec<Event>) {
        self.settle(false, out);
        let name = match &self.rules.tools {
            Some(tools) => normalize_name(written, tools.names()),
            None => normalize_name(written, []),
        };
        let refused = self.refusal(&name);
        let idx = self.n_started;
        self.n_started += 1;
        let id = self.allot(id);
        if refused.is_none() {
            out.push(Event::CallStarted {
                call_idx: idx,
                id: id.clone(),
                name: name.clone(),
            });
        }
        self.current = Some(Current {
            idx,
            id,
            name,
            refused,
            any_delta: false,
        });
    }

    /// True between `begin` and `end`.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// The schema of the open call's tool.
    pub(crate) fn open_schema(&self) -> Option<&Value> {
        let current = self.current.as_ref()?;
        Some(&self.rules.tools.as_ref()?.get(&current.name)?.parameters)
    }

    /// More argument text of the open call.
    pub(crate) fn delta(&mut self, text: &str, out: &mut Vec<Event>) {
        if let Some(current) = &mut self.current
            && current.refused.is_none()
            && !text.is_empty()
        {
            current.any_delta = true;
            out.push(Event::ArgumentsDelta {
                call_idx: current.idx,
                text: text.to_owned(),
            });
        }
    }

    /// The open call is complete.
    pub(crate) fn end(&mut self, body: ArgumentBody, out: &mut Vec<Event>) {
        let Some(current) = self.current.take() else {
            return;
        };
        let Current {
            idx,
            id,
            name,
            refused,
            any_delta,
        } = current;
        let is_refused = refused.is_some();
        let (fitting, raw) = match refused {
            Some((kind, message)) => (Err(Fault::new(kind, message)), body.into_raw()),
            None => {
                let (decoded, raw) = self.decode(body);
                let fitting = decoded
                    .and_then(|(arguments, repaired)| Ok((self.fit(&name, arguments)?, repaired)));
                (fitting, raw)
            }
        };
        let raw = self.capped(raw);
        let verdict = match fitting {
            Ok((arguments, repaired)) => {
                if !any_delta {
                    let text = arguments.as_text().to_owned();
                    out.push(Event::ArgumentsDelta {
                        call_idx: idx,
                        text,
                    });
                }
                let (id, name) = (id.clone(), name.clone());
                Ok((
                    ToolCall {
                        id,
                        name,
                        arguments,
                    },
                    repaired,
                ))
            }
            Err(fault) => Err(fault.into_call(&id, &name, &raw)),
        };
        let is_certain = is_refused || matches!(verdict, Ok((_, false)));
        let pending = Pending {
            idx,
            verdict,
            id,
            name,
            raw,
        };
        if is_certain {
            self.announce(pending, out);
        } else {
            self.pending = Some(pending);
        }
    }

    /// The arguments and whether they were repaired; and their text as written.
    fn decode(&self, body: ArgumentBody) -> (Result<(Arguments, bool), Fault>, String) {
        match body {
            ArgumentBody::Text { text, lenient } => {
                let decoded = decode_arguments(&text, &self.rules.limits.arguments);
                let arguments = decoded.map(|decoded| {
                    let arguments = match decoded.text {
                        Some(text) => Arguments::from_parts(text, decoded.object),
                        None => Arguments::from_object(decoded.object),
                    };
                    (arguments, decoded.repaired || lenient)
                });
                (
                    arguments.map_err(|error| Fault::new(error.kind, error.message)),
                    text,
                )
            }
            ArgumentBody::Object { object, repaired } => {
                let arguments = Arguments::from_object(object);
                let raw = arguments.as_text().to_owned();
                (Ok((arguments, repaired)), raw)
            }
            ArgumentBody::Malformed { raw, message } => (
                Err(Fault::new(CallErrorKind::MalformedArguments, message)),
                raw,
            ),
            ArgumentBody::TooLarge { raw, bytes } => {
                let most = self.rules.limits.arguments.max_bytes;
                let message = format!("arguments have {bytes} bytes, at most {most} are allowed");
                (
                    Err(Fault::new(CallErrorKind::ArgumentsTooLarge, message)),
                    raw,
                )
            }
        }
    }

    /// A call, or a block that should have held one, that could not be read at all.
    pub(crate) fn reject_block(
        &mut self,
        kind: CallErrorKind,
        raw: &str,
        message: &str,
        out: &mut Vec<Event>,
    ) {
        self.settle(false, out);
        let (idx, id, name) = match self.current.take() {
            Some(current) => (current.idx, current.id, Some(current.name)),
            None => {
                let idx = self.n_started;
                self.n_started += 1;
                (idx, self.allot(None), None)
            }
        };
        let call = InvalidToolCall {
            id,
            name,
            arguments: self.capped(raw.to_owned()),
            kind,
            path: None,
            message: message.to_owned(),
        };
        out.push(Event::CallRejected {
            call_idx: idx,
            call,
        });
    }

    /// The text ended inside a call.
    pub(crate) fn reject_truncated(&mut self, raw: &str, out: &mut Vec<Event>) {
        let message = "the turn ended before the call did";
        self.reject_block(CallErrorKind::TruncatedToolCall, raw, message, out);
    }

    /// Decides what was left open after the last call. `cut`: the turn ended right there, by
    /// the token cap.
    pub(crate) fn settle(&mut self, cut: bool, out: &mut Vec<Event>) {
        let Some(mut pending) = self.pending.take() else {
            return;
        };
        if cut {
            let message =
                "the turn was cut by the token cap and the call is not complete as it stands";
            let fault = Fault::new(CallErrorKind::TruncatedToolCall, message.to_owned());
            pending.verdict = Err(fault.into_call(&pending.id, &pending.name, &pending.raw));
        }
        self.announce(pending, out);
    }

    fn announce(&mut self, pending: Pending, out: &mut Vec<Event>) {
        let call_idx = pending.idx;
        match pending.verdict {
            Ok((call, repaired)) => {
                if repaired {
                    out.push(Event::Diagnostic(Diagnostic::new(
                        DiagnosticKind::RepairedJson,
                        format!(
                            "the call of `{}` was readable only by the lenient reader",
                            call.name
                        ),
                    )));
                }
                self.n_finished += 1;
                out.push(Event::CallFinished { call_idx, call });
            }
            Err(call) => out.push(Event::CallRejected { call_idx, call }),
        }
    }

    fn refusal(&self, name: &str) -> Option<(CallErrorKind, String)> {
        if self.n_started >= self.rules.limits.max_calls {
            let most = self.rules.limits.max_calls;
            return Some((
                CallErrorKind::TooManyCalls,
                format!("at most {most} calls are allowed in one turn"),
            ));
        }
        if let Some(only) = self.rules.choice.only_tool()
            && only != name
        {
            return Some((
                CallErrorKind::ToolChoiceViolation,
                format!("only `{only}` may be called, not `{name}`"),
            ));
        }
        let tools = self.rules.tools.as_ref()?;
        if tools.get(name).is_some() {
            return None;
        }
        let known: Vec<String> = tools.names().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        Some((
            CallErrorKind::UnknownTool,
            format!("unknown tool `{name}`, offered: {known}"),
        ))
    }

    /// The arguments in the types of the tool's schema, or the first violation.
    fn fit(&self, name: &str, arguments: Arguments) -> Result<Arguments, Fault> {
        let Some(schema) = self
            .rules
            .tools
            .as_ref()
            .and_then(|tools| tools.schema(name))
        else {
            return Ok(arguments);
        };
        let violation = |path, message| Fault {
            kind: CallErrorKind::SchemaViolation,
            path,
            message,
        };
        let schema = schema.map_err(|error| {
            violation(
                None,
                format!("the schema of tool `{name}` cannot be used: {error}"),
            )
        })?;
        let value = Value::Object(arguments.as_object().clone());
        let (coerced, violations) = schema.check_coerced(&value);
        if let Some(first) = violations.first() {
            let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return Err(violation(Some(first.path.clone()), all.join("; ")));
        }
        match coerced {
            Some(Value::Object(mut object)) => {
                if self.rules.keep_optional_nulls {
                    let written = arguments.as_object().iter();
                    let nulls = written
                        .filter(|(key, value)| value.is_null() && !object.contains_key(*key));
                    let nulls: Vec<String> = nulls.map(|(key, _)| key.clone()).collect();
                    object.extend(nulls.into_iter().map(|key| (key, Value::Null)));
                }
                Ok(Arguments::from_object(object))
            }
            _ => Ok(arguments),
        }
    }

    fn allot(&mut self, wanted: Option<&str>) -> String {
        let id = match wanted {
            Some(id) if !id.is_empty() && !self.rules.taken_ids.contains(id) => id.to_owned(),
            _ => loop {
                let id = format!("call_{}{}", self.rules.id_salt, self.next_id);
                self.next_id += 1;
                if !self.rules.taken_ids.contains(&id) {
                    break id;
                }
            },
        };
        self.rules.taken_ids.insert(id.clone());
        self.allotted.push(id.clone());
        id
    }

    fn capped(&self, mut raw: String) -> String {
        raw.truncate(prefix_within(&raw, self.rules.limits.arguments.max_bytes).len());
        raw
    }
}
