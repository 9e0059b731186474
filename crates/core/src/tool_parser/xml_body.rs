//! Bodies in which every argument has an element of its own.

use super::calls::Calls;
use super::input::{At, ENDED, Head, Input, Place, Progress};
use super::object_args::ObjectArgs;
use super::xml_values::{CDATA_OPEN, ValueFraming, ValueTyping};
use crate::chat::{CallErrorKind, Event};
use crate::text::{Marker, MarkerScanner, Scan, prefix_within};

/// Longest name or key, with what frames it, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// The elements of a dialect.
#[derive(Debug, Clone)]
pub(crate) struct XmlRules {
    pub(crate) section_open: Option<String>,
    /// What closes a group of calls, or the message that they stand in.
    pub(crate) section_closes: Vec<String>,
    pub(crate) call_open: String,
    /// What ends the name. Empty: the name ends with its line or where a tag begins.
    pub(crate) name_end: String,
    pub(crate) call_close: String,
    pub(crate) param_open: String,
    pub(crate) key_end: String,
    /// Stands between key and value, white space around it.
    pub(crate) value_open: String,
    /// Empty: the element is named after its key.
    pub(crate) param_close: String,
    pub(crate) typing: ValueTyping,
    pub(crate) framing: ValueFraming,
    /// Texts between calls that mean nothing.
    pub(crate) noise: Vec<String>,
}

enum State {
    Seek,
    Name,
    Params,
    Key,
    ValueOpen { key: String, is_text: Option<bool> },
    Value(Box<OpenValue>),
}

struct OpenValue {
    key: String,
    is_text: Option<bool>,
    from: usize,
    ends: MarkerScanner,
    cdata: bool,
}

pub(crate) struct XmlBody {
    state: State,
    in_section: bool,
    begins_at: usize,
    arguments: ObjectArgs,
}

impl XmlRules {
    /// Whether calls begin at the input's position, behind the marker `opened_by`.
    pub(crate) fn head(
        &self,
        opened_by: &str,
        place: Place,
        input: &Input<'_>,
        calls: &Calls,
    ) -> Head<XmlBody> {
        let in_section = self.section_open.as_deref() == Some(opened_by);
        let mut ahead = Input {
            text: input.text,
            pos: input.pos,
            at_end: input.at_end,
        };
        if in_section {
            while let Some(noise) = self.noise.iter().find(|noise| ahead.at(noise) == At::Yes) {
                ahead.pos += noise.len();
                ahead.skip_space();
            }
            if self.noise.iter().any(|noise| ahead.at(noise) == At::Cut) {
                return Head::More;
            }
            match ahead.at(&self.call_open) {
                At::Yes => ahead.pos += self.call_open.len(),
                At::Cut => return Head::More,
                At::No => return Head::No,
            }
        }
        match self.name_end(&ahead) {
            Name::Ends { name, after } => {
                if !is_name(name.trim()) {
                    return Head::No;
                }
                ahead.pos = after;
                ahead.skip_space();
                match ahead.peek() {
                    None => return Head::More,
                    Some(b'<' | b']') => {}
                    Some(_) => return Head::No,
                }
                // A bare word after a marker in the middle of a line is a mention.
                if self.name_end.is_empty() && place == Place::MidLine && !calls.is_tool(name) {
                    return Head::No;
                }
                Head::Yes(XmlBody {
                    state: if in_section { State::Seek } else { State::Name },
                    in_section,
                    begins_at: input.pos,
                    arguments: ObjectArgs::default(),
                })
            }
            Name::Cut => Head::More,
            Name::Wrong => Head::No,
        }
    }

    fn name_end<'a>(&self, input: &Input<'a>) -> Name<'a> {
        let longest = MAX_NAME_BYTES + self.name_end.len().max(1);
        let all = &input.text[input.pos..];
        let rest = prefix_within(all, longest);
        let found = if self.name_end.is_empty() {
            let at = rest.find(['\n', '<']);
            // A line end belongs to the framing, a tag does not belong to the name.
            at.map(|at| (at, at + usize::from(rest.as_bytes()[at] == b'\n')))
        } else {
            rest.find(&self.name_end)
                .map(|at| (at, at + self.name_end.len()))
        };
        match found {
            Some((at, after)) if looks_like_name(&rest[..at]) => Name::Ends {
                name: &rest[..at],
                after: input.pos + after,
            },
            None if all.len() < longest && looks_like_name(rest) => Name::Cut,
            _ => Name::Wrong,
        }
    }

    /// The marker that closes a group of calls here.
    fn section_close_at(&self, input: &Input<'_>) -> Option<&str> {
        let mut closes = self.section_closes.iter();
        let close = closes.find(|close| input.at(close) == At::Yes)?;
        Some(close.as_str())
    }

    /// The markers that may end the value of `key`.
    fn value_ends(&self, key: &str) -> MarkerScanner {
        let mut ends = if self.param_close.is_empty() {
            let open = self.param_open.trim_end_matches('<');
            vec![Marker::exact(format!("{open}</{key}>"))]
        } else {
            vec![Marker::exact(self.param_close.clone())]
        };
        if self.framing == ValueFraming::Lines {
            ends.push(Marker::exact(format!("\n{}", self.param_open)));
            ends.push(Marker::exact(format!("\n{}", self.call_close)));
        }
        MarkerScanner::new(ends)
    }
}

enum Name<'a> {
    Ends { name: &'a str, after: usize },
    Cut,
    Wrong,
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !matches!(c, '<' | '>' | '{' | '}'))
}

/// True if this may be a name, or the start of one and of what ends it. What is true of a
/// text is true of all its beginnings, so that it does not matter how the text is cut.
fn looks_like_name(text: &str) -> bool {
    let name = text.split(['<', '"', '>']).next().unwrap_or_default();
    name.trim()
        .chars()
        .all(|c| !c.is_whitespace() && !matches!(c, '{' | '}'))
}

impl XmlBody {
    /// A reader of the parameters of a call whose name was read elsewhere.
    pub(crate) fn in_call(begins_at: usize) -> Self {
        Self {
            state: State::Params,
            in_section: false,
            begins_at,
            arguments: ObjectArgs::default(),
        }
    }

    pub(crate) fn read(
        &mut self,
        xml: &XmlRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            let step = match &mut self.state {
                State::Seek => self.read_seek(xml, input, calls, out),
                State::Name => self.read_name(xml, input, calls, out),
                State::Params => self.read_params(xml, input, calls, out),
                State::Key => self.read_key(xml, input),
                State::ValueOpen { key, is_text } => {
                    let (key, is_text) = (std::mem::take(key), *is_text);
                    self.read_value_open(key, is_text, xml, input)
                }
                State::Value(_) => self.read_value(xml, input, calls, out),
            };
            match step {
                None => {}
                Some(Progress::Need) if self.ends_with_turn(xml, input, calls) => {
                    self.end_call(calls, out);
                    input.pos = input.text.len();
                    return ENDED;
                }
                Some(Progress::Need) if input.at_end => {
                    let from = self.begins_at.min(input.text.len());
                    let raw = &input.text[from..];
                    // Behind its closing marker a call is over, whatever is wrong with it.
                    if raw.contains(&xml.call_close) && !calls.is_cut() {
                        let message = "the call is closed, but its elements are not";
                        calls.reject_block(CallErrorKind::MalformedArguments, raw, message, out);
                    } else {
                        calls.reject_truncated(raw, out);
                    }
                    input.pos = input.text.len();
                    return ENDED;
                }
                Some(progress) => return progress,
            }
        }
    }

    /// True if the call is whole and only its closing token is missing. Where the call has
    /// no name of its own that is a stop token, which servers leave out.
    fn ends_with_turn(&self, xml: &XmlRules, input: &Input<'_>, calls: &Calls) -> bool {
        let is_whole = matches!(self.state, State::Params) && input.rest().trim().is_empty();
        input.at_end && is_whole && xml.call_open.is_empty() && !calls.is_cut()
    }

    /// Only text that was read is reported: what else is there depends on how it came.
    fn refuse(
        &self,
        message: &str,
        input: &Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let raw = &input.text[self.begins_at.min(input.pos)..input.pos];
        calls.reject_block(CallErrorKind::MalformedArguments, raw, message, out);
        Some(Progress::Broken)
    }

    /// Between calls.
    fn read_seek(
        &mut self,
        xml: &XmlRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let from = input.pos;
        loop {
            input.skip_space();
            if input.peek().is_none() {
                if input.at_end {
                    return Some(ENDED);
                }
                input.pos = from;
                return Some(Progress::Need);
            }
            if input.at(&xml.call_open) == At::Yes {
                self.begins_at = input.pos;
                input.pos += xml.call_open.len();
                self.state = State::Name;
                return None;
            }
            if let Some(close) = xml.section_close_at(input) {
                input.pos += close.len();
                calls.settle(false, out);
                return Some(ENDED);
            }
            if let Some(noise) = xml.noise.iter().find(|noise| input.at(noise) == At::Yes) {
                input.pos += noise.len();
                continue;
            }
            let mut known = std::iter::once(&xml.call_open)
                .chain(&xml.section_closes)
                .chain(&xml.noise);
            let is_cut = known.any(|known| input.at(known) == At::Cut);
            input.pos = from;
            if is_cut && !input.at_end {
                return Some(Progress::Need);
            }
            calls.settle(false, out);
            return Some(Progress::Ended { owed_close: true });
        }
    }

    fn read_name(
        &mut self,
        xml: &XmlRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        match xml.name_end(input) {
            Name::Ends { name, after } => {
                self.arguments = ObjectArgs::default();
                calls.begin(name, None, out);
                input.pos = after;
                self.state = State::Params;
                None
            }
            Name::Cut => Some(Progress::Need),
            Name::Wrong => self.refuse("the call has no name", input, calls, out),
        }
    }

    /// Between the parameters of a call.
    fn read_params(
        &mut self,
        xml: &XmlRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let from = input.pos;
        input.skip_space();
        if input.at(&xml.call_close) == At::Yes {
            input.pos += xml.call_close.len();
            self.end_call(calls, out);
            return self.after_call();
        }
        let tag_close =
            xml.param_close.is_empty() && input.at(&format!("{}/", xml.param_open)) != At::No;
        if input.at(&xml.param_open) == At::Yes && !tag_close {
            input.pos += xml.param_open.len();
            self.state = State::Key;
            return None;
        }
        // A group that closes before its call does.
        if let Some(close) = xml.section_close_at(input) {
            input.pos += close.len();
            self.end_call(calls, out);
            calls.settle(false, out);
            return Some(ENDED);
        }
        let mut known = [&xml.call_close, &xml.param_open]
            .into_iter()
            .chain(&xml.section_closes);
        if input.peek().is_none() || known.any(|known| input.at(known) == At::Cut) {
            input.pos = from;
            return Some(Progress::Need);
        }
        self.refuse("a parameter expected", input, calls, out)
    }

    fn after_call(&mut self) -> Option<Progress> {
        if self.in_section {
            self.state = State::Seek;
            return None;
        }
        Some(Progress::Ended { owed_close: true })
    }

    fn end_call(&mut self, calls: &mut Calls, out: &mut Vec<Event>) {
        self.arguments.end("", calls, out);
    }

    fn read_key(&mut self, xml: &XmlRules, input: &mut Input<'_>) -> Option<Progress> {
        let longest = MAX_NAME_BYTES + xml.key_end.len();
        let rest = prefix_within(input.rest(), longest);
        let Some(at) = rest.find(&xml.key_end) else {
            if input.rest().len() < longest {
                return Some(Progress::Need);
            }
            // No end in sight: what follows is taken for an empty key's value.
            self.state = State::ValueOpen {
                key: String::new(),
                is_text: None,
            };
            return None;
        };
        let header = &rest[..at];
        let (key, attributes) = match header.split_once('"') {
            Some((key, attributes)) => (key, attributes),
            None => (header, ""),
        };
        let is_text = match (
            attributes.contains("\"true"),
            attributes.contains("\"false"),
        ) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let key = key.trim().to_owned();
        input.pos += at + xml.key_end.len();
        self.state = State::ValueOpen { key, is_text };
        None
    }

    fn read_value_open(
        &mut self,
        key: String,
        is_text: Option<bool>,
        xml: &XmlRules,
        input: &mut Input<'_>,
    ) -> Option<Progress> {
        if !xml.value_open.is_empty() {
            let from = input.pos;
            input.skip_space();
            match input.at(&xml.value_open) {
                At::Yes => input.pos += xml.value_open.len(),
                At::Cut => {
                    input.pos = from;
                    self.state = State::ValueOpen { key, is_text };
                    return Some(Progress::Need);
                }
                At::No => input.pos = from,
            }
        }
        let cdata = xml.framing == ValueFraming::Cdata;
        if cdata && input.at(CDATA_OPEN) == At::Cut && !input.at_end {
            self.state = State::ValueOpen { key, is_text };
            return Some(Progress::Need);
        }
        let in_cdata = cdata && input.at(CDATA_OPEN) == At::Yes;
        self.state = State::Value(Box::new(OpenValue {
            ends: if in_cdata {
                MarkerScanner::new(vec![Marker::exact("]]>")])
            } else {
                xml.value_ends(&key)
            },
            key,
            is_text,
            from: input.pos,
            cdata: in_cdata,
        }));
        None
    }

    fn read_value(
        &mut self,
        xml: &XmlRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let State::Value(value) = &mut self.state else {
            return None;
        };
        let bytes = input.text.as_bytes();
        match value.ends.scan(bytes, input.pos, input.at_end) {
            Scan::None => {
                input.pos = bytes.len();
                return Some(Progress::Need);
            }
            Scan::Partial(at) => {
                input.pos = at;
                return Some(Progress::Need);
            }
            Scan::Found { at, len, .. } if value.cdata => {
                // The element closes after the CDATA section.
                value.cdata = false;
                value.ends = xml.value_ends(&value.key);
                input.pos = at + len;
                return None;
            }
            Scan::Found { at, idx, len } => {
                let mut after = Input {
                    text: input.text,
                    pos: at + len,
                    at_end: input.at_end,
                };
                if idx == 0 {
                    match xml.follows_value(&mut after) {
                        Some(true) => {}
                        Some(false) => {
                            input.pos = at + len;
                            return None;
                        }
                        None => {
                            input.pos = at;
                            return Some(Progress::Need);
                        }
                    }
                }
                let text = &input.text[value.from.min(at)..at];
                let read = xml.read_text(text, &value.key, value.is_text, calls.open_schema());
                let key = std::mem::take(&mut value.key);
                self.arguments.add(key, read, calls, out);
                // A missing closing tag: the next element is read as such.
                input.pos = if idx == 0 { at + len } else { at };
                self.state = State::Params;
            }
        }
        None
    }
}

impl XmlRules {
    /// True if what follows shows that the closing tag before it was one: another element, or
    /// the end of the call. `None`: more text is needed.
    fn follows_value(&self, input: &mut Input<'_>) -> Option<bool> {
        input.skip_space();
        if input.peek().is_none() {
            return input.at_end.then_some(true);
        }
        let known = [&self.param_open, &self.call_close]
            .into_iter()
            .chain(&self.section_closes);
        match known.map(|known| input.at(known)).max() {
            Some(At::Yes) => Some(true),
            Some(At::Cut) => input.at_end.then_some(true),
            _ => Some(false),
        }
    }
}
