//! Bodies that are JSON: one call object, an array of them, or several in a row.

use super::block::{BlockRules, read_junk, reject_empty};
use super::call_object::{CallObject, Member};
use super::calls::Calls;
use super::input::{ENDED, Input, Place, Progress};
use crate::chat::{CallErrorKind, Diagnostic, DiagnosticKind, Event};
use crate::text::{JsonBoundary, JsonEvent, MarkerMatch, read_lenient};

/// Tries to find the JSON behind a false start such as `{{`.
const MAX_RESTARTS: u32 = 8;

/// Keys that a call object may hold beside its name and arguments.
const OTHER_CALL_KEYS: &[&str] = &["id", "type", "index", "tool_call_id", "call_id", "function"];

/// How a call is written in JSON.
#[derive(Debug, Clone)]
pub(crate) struct JsonRules {
    /// Keys that hold the tool's name; the first one is written.
    pub(crate) name_keys: Vec<String>,
    /// Keys that hold the arguments; the first one is written.
    pub(crate) argument_keys: Vec<String>,
    /// The object's key is the tool's name and its value the arguments.
    pub(crate) key_is_name: bool,
    /// What may stand between two values of a block that has no closing marker.
    pub(crate) separator: Option<u8>,
    /// Only an array may stand here.
    pub(crate) array_only: bool,
}

impl JsonRules {
    pub(crate) fn may_start_with(&self, first: u8) -> bool {
        first == b'[' || (first == b'{' && !self.array_only)
    }

    /// Looks for the JSON at the input's position, behind a code fence if there is one.
    /// `None`: more text is needed; `Some(None)`: no JSON here.
    pub(crate) fn head(
        &self,
        place: Place,
        has_marker: bool,
        input: &Input<'_>,
    ) -> Option<Option<usize>> {
        let bytes = input.text.as_bytes();
        let mut at = input.pos;
        if bytes[at] == b'`' {
            while bytes.get(at) == Some(&b'`') {
                at += 1;
            }
            // The language of the fence, such as `json`.
            while bytes
                .get(at)
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            {
                at += 1;
            }
            while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
        }
        let first = *bytes.get(at)?;
        if !self.may_start_with(first) {
            return Some(None);
        }
        if place != Place::MidLine {
            return Some(Some(at));
        }
        // In the middle of a line only what begins like a call counts.
        let mut next = at + 1;
        while bytes.get(next).is_some_and(u8::is_ascii_whitespace) {
            next += 1;
        }
        match bytes.get(next) {
            None => None,
            // Without a marker an array must hold objects.
            Some(byte) if !has_marker && first == b'[' => Some((*byte == b'{').then_some(at)),
            Some(b'"' | b'\'' | b'}' | b']' | b'{') => Some(Some(at)),
            Some(byte) if byte.is_ascii_alphabetic() => Some(Some(at)),
            Some(_) => Some(None),
        }
    }
}

enum State {
    Value,
    Between,
    Junk {
        at: usize,
    },
    /// The block is over the limit: its end is found without keeping anything.
    OverLimit,
}

pub(crate) struct JsonBody {
    state: State,
    boundary: JsonBoundary,
    value_at: usize,
    is_array: bool,
    object: Option<CallObject>,
    committed: bool,
    has_marker: bool,
    restarts: u32,
    any_call: bool,
    /// Calls of the turn before this body's.
    n_calls_before: usize,
}

impl JsonBody {
    /// A body that begins at `at`. Without a marker it counts only once a known tool was named.
    pub(crate) fn new(at: usize, has_marker: bool, calls: &Calls) -> Self {
        Self {
            state: State::Value,
            boundary: JsonBoundary::new(1, calls.limits().arguments.max_depth),
            value_at: at,
            is_array: false,
            object: None,
            committed: has_marker,
            has_marker,
            restarts: 0,
            any_call: false,
            n_calls_before: calls.n_started(),
        }
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.committed
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        matches!(self.state, State::OverLimit)
    }

    pub(crate) fn read(
        &mut self,
        rules: &BlockRules,
        json: &JsonRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            let step = match self.state {
                State::Value => self.read_value(rules, json, input, calls, out),
                State::Between => self.read_between(rules, json, input, calls, out),
                State::Junk { at } => Some(self.read_junk(rules, at, input, calls, out)),
                State::OverLimit => self.read_over_limit(input),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    fn begin_value(&mut self, at: usize, calls: &Calls) {
        self.state = State::Value;
        self.boundary = JsonBoundary::new(1, calls.limits().arguments.max_depth);
        self.value_at = at;
        self.is_array = false;
        self.object = None;
    }

    fn read_value(
        &mut self,
        rules: &BlockRules,
        json: &JsonRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        loop {
            let from = input.pos;
            let (taken, event) = self.boundary.feed(&input.text.as_bytes()[from..]);
            input.pos += taken;
            if let Some(object) = &mut self.object {
                object.capture(&input.text[from..input.pos], calls, out);
            }
            match event {
                JsonEvent::More => {
                    if input.at_end {
                        return Some(self.cut(input, calls, out));
                    }
                    return Some(Progress::Need);
                }
                JsonEvent::Begin { level, first } => {
                    if !self.on_begin(level, first, input.pos) {
                        return self.broken(rules, input, calls, out);
                    }
                }
                JsonEvent::Key { level } => {
                    if !self.on_key(level, json, calls, out) {
                        return Some(Progress::NotACall);
                    }
                }
                JsonEvent::End { level } => {
                    if !self.on_end(level, input, json, calls, out) {
                        return Some(Progress::NotACall);
                    }
                    if level == 0 {
                        self.state = State::Between;
                        return None;
                    }
                }
                JsonEvent::Error => return self.broken(rules, input, calls, out),
            }
        }
    }

    /// False if no call can look so.
    fn on_begin(&mut self, level: u32, first: u8, at: usize) -> bool {
        if level == 0 {
            self.is_array = first == b'[';
            if self.is_array {
                self.boundary.set_watch(2);
            } else {
                self.object = Some(CallObject::new(0, at));
            }
            return matches!(first, b'[' | b'{');
        }
        if self.is_array && level == 1 {
            self.boundary.reset_lenient();
            self.object = Some(CallObject::new(1, at));
            return first == b'{';
        }
        let Some(object) = &mut self.object else {
            return true;
        };
        if level != object.level + 1 {
            return true;
        }
        match object.member {
            Member::Wrapped if first == b'{' && !object.wrapped => {
                object.wrapped = true;
                object.level += 1;
                object.member = Member::None;
                self.boundary.set_watch(object.level + 1);
            }
            // `"function": "f"` names the tool.
            Member::Wrapped if !object.named => {
                object.member = Member::Name;
                object.capturing = true;
            }
            Member::Name => {
                object.name_text.clear();
                object.capturing = true;
            }
            Member::Arguments => {
                object.arguments.clear();
                object.arguments_bytes = 0;
                object.n_sent = 0;
                object.arguments_first = first;
                object.capturing = true;
            }
            _ => {}
        }
        true
    }

    /// False if this is no call after all.
    fn on_key(
        &mut self,
        level: u32,
        json: &JsonRules,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let key = self.boundary.key();
        let Some(object) = &mut self.object else {
            return true;
        };
        if level != object.level + 1 || object.done {
            return true;
        }
        if json.key_is_name {
            if !self.committed && !calls.is_tool(&key) {
                return false;
            }
            self.committed = true;
            self.any_call = true;
            calls.begin(&key, None, out);
            let level = object.level;
            let begins_at = object.begins_at;
            *object = CallObject::new(level, begins_at);
            object.named = true;
            object.member = Member::Arguments;
            return true;
        }
        object.member = if json.name_keys.contains(&key) {
            Member::Name
        } else if json.argument_keys.contains(&key) {
            Member::Arguments
        } else if key == "function" {
            Member::Wrapped
        } else {
            if !self.committed && !OTHER_CALL_KEYS.contains(&key.as_str()) {
                return false;
            }
            Member::Other
        };
        true
    }

    /// False if this is no call after all.
    fn on_end(
        &mut self,
        level: u32,
        input: &Input<'_>,
        json: &JsonRules,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> bool {
        let Some(object) = &mut self.object else {
            return true;
        };
        if level == object.level + 1 {
            let was_capturing = std::mem::take(&mut object.capturing);
            let member = std::mem::replace(&mut object.member, Member::None);
            if json.key_is_name && member == Member::Arguments {
                let lenient = self.boundary.lenient();
                object.end_call(lenient, calls, out);
                return true;
            }
            if member == Member::Name && was_capturing && !object.named {
                return self.on_name(calls, out);
            }
            return true;
        }
        if level != object.level {
            return true;
        }
        if object.wrapped {
            // The inner object is the call; what else the outer one holds does not matter.
            object.wrapped = false;
            object.level -= 1;
            self.boundary.set_watch(object.level + 1);
        }
        if object.done || json.key_is_name {
            return true;
        }
        object.done = true;
        if object.named {
            let lenient = self.boundary.lenient();
            object.end_call(lenient, calls, out);
            return true;
        }
        if !self.committed {
            return false;
        }
        let raw = &input.text[object.begins_at..input.pos];
        calls.reject_block(
            CallErrorKind::MalformedArguments,
            raw,
            "the call has no name",
            out,
        );
        true
    }

    fn on_name(&mut self, calls: &mut Calls, out: &mut Vec<Event>) -> bool {
        let Some(object) = &mut self.object else {
            return true;
        };
        let name = match read_lenient(&object.name_text, 1) {
            Ok((serde_json::Value::String(name), _)) => name,
            _ => return true,
        };
        if !self.committed && !calls.is_tool(&name) {
            return false;
        }
        self.committed = true;
        self.any_call = true;
        object.named = true;
        calls.begin(&name, None, out);
        if object.is_streamable() {
            calls.delta(&object.arguments, out);
            object.n_sent = object.arguments.len();
        }
        true
    }

    /// The text ended inside the value.
    fn cut(&mut self, input: &Input<'_>, calls: &mut Calls, out: &mut Vec<Event>) -> Progress {
        if !self.committed {
            return Progress::NotACall;
        }
        let raw = self.raw_of_call(input);
        calls.reject_truncated(&raw, out);
        ENDED
    }

    fn raw_of_call(&self, input: &Input<'_>) -> String {
        match &self.object {
            Some(object) if object.named => object.arguments.clone(),
            Some(object) if !object.done => input.text[object.begins_at..input.pos].to_owned(),
            _ => input.text[self.value_at..input.pos].to_owned(),
        }
    }

    /// The next byte cannot stand in a call.
    fn broken(
        &mut self,
        rules: &BlockRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        if !self.committed || (!self.has_marker && !self.any_call) {
            return Some(Progress::NotACall);
        }
        let bytes = input.text.as_bytes();
        if !self.boundary.keys_seen() && self.restarts < MAX_RESTARTS && !calls.is_open() {
            let after = self.value_at + 1;
            let next = bytes[after..]
                .iter()
                .position(|byte| matches!(byte, b'{' | b'['));
            if let Some(next) = next.filter(|next| after + next <= input.pos) {
                self.restarts += 1;
                self.begin_value(after + next, calls);
                input.pos = after + next;
                return None;
            }
        }
        let raw = self.raw_of_call(input);
        let message = format!(
            "not JSON: unexpected text {} bytes into the block",
            input.pos - self.value_at
        );
        calls.reject_block(CallErrorKind::MalformedArguments, &raw, &message, out);
        // A string that was never closed may have run past the end of its block.
        if let Some(at) = rules.find_close(&input.text[..input.pos], self.value_at)
            && at < input.pos
            && calls.may_reread(input.pos - at)
        {
            input.pos = at;
        }
        Some(Progress::Broken)
    }

    /// Text after the last value. Where the values held no call, it would be lost unseen.
    fn read_junk(
        &self,
        rules: &BlockRules,
        at: usize,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        let progress = read_junk(rules, at, input);
        if progress != ENDED {
            return progress;
        }
        if calls.n_started() == self.n_calls_before {
            reject_empty(input.text[self.value_at..input.pos].trim(), calls, out);
            return progress;
        }
        // The end of a code fence is no text of its own.
        let is_frame = |c: char| c == '`' || c.is_whitespace();
        let junk = input.text[at..input.pos].trim_start_matches(is_frame);
        if !matches!(
            rules.edges.match_at(junk.as_bytes(), true),
            MarkerMatch::Full { .. }
        ) {
            out.push(Event::Diagnostic(Diagnostic::new(
                DiagnosticKind::RepairedJson,
                "text behind the JSON of a call was passed over",
            )));
        }
        progress
    }

    /// The block is over the limit and was refused. True inside a value: its end is found
    /// first, so that markers in its strings end nothing.
    pub(crate) fn begin_over_limit(&mut self) -> bool {
        let in_value = matches!(self.state, State::Value);
        if in_value {
            self.committed = true;
            self.object = None;
            self.boundary.set_watch(0);
            self.state = State::OverLimit;
        }
        in_value
    }

    fn read_over_limit(&mut self, input: &mut Input<'_>) -> Option<Progress> {
        loop {
            let (taken, event) = self.boundary.feed(&input.text.as_bytes()[input.pos..]);
            input.pos += taken;
            match event {
                JsonEvent::More if input.at_end => return Some(ENDED),
                JsonEvent::More => return Some(Progress::Need),
                JsonEvent::End { level: 0 } | JsonEvent::Error => {
                    return Some(Progress::Broken);
                }
                JsonEvent::Begin { .. } | JsonEvent::Key { .. } | JsonEvent::End { .. } => {}
            }
        }
    }

    /// After a value: another one, the closing marker, or something that is neither.
    fn read_between(
        &mut self,
        rules: &BlockRules,
        json: &JsonRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let has_close = self.has_marker && rules.has_close();
        if !has_close && json.separator.is_none() {
            return Some(ENDED);
        }
        let from = input.pos;
        let mut separated = false;
        loop {
            input.skip_space();
            match rules.edges.match_at(input.rest().as_bytes(), input.at_end) {
                MarkerMatch::Full { idx, len } if has_close => {
                    // Another opening marker ends the block as well.
                    input.pos += if idx >= rules.n_opens { len } else { 0 };
                    calls.settle(false, out);
                    return Some(ENDED);
                }
                MarkerMatch::Partial if has_close => {
                    input.pos = from;
                    return Some(Progress::Need);
                }
                _ => {}
            }
            match input.peek() {
                None if input.at_end => return Some(ENDED),
                None => {
                    input.pos = from;
                    return Some(Progress::Need);
                }
                Some(b'{' | b'[') if has_close || separated => {
                    calls.settle(false, out);
                    self.begin_value(input.pos, calls);
                    return None;
                }
                Some(byte) if json.separator == Some(byte) || (has_close && byte == b',') => {
                    separated = true;
                    input.pos += 1;
                }
                // Slips: a bracket too many, the end of a code fence.
                Some(b'}' | b']' | b'`') if has_close => input.pos += 1,
                Some(_) => {
                    input.pos = from;
                    if !has_close {
                        return Some(ENDED);
                    }
                    calls.settle(false, out);
                    self.state = State::Junk { at: from };
                    return None;
                }
            }
        }
    }
}
