//! Bodies in which the name stands outside the JSON: `name`, a separator, the arguments.

use super::calls::{ArgumentBody, Calls};
use super::input::{At, ENDED, Head, Input, Progress};
use super::json_args::{ArgsStep, JsonArgs};
use crate::chat::Event;
use crate::text::{MarkerScanner, Scan, prefix_within};

/// Longest text before the arguments that is taken for a name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// How name and arguments are set apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameStyle {
    /// `name SEP {..}`.
    Plain,
    /// As plain, or the object follows the name at once; `[CALL_ID]id` may stand between.
    Mistral,
    /// `functions.name:0 SEP {..}`; the whole header is the id.
    Kimi,
    /// `name SEP {..}`; the other DeepSeek form is read as well.
    Deepseek,
    /// `function SEP name NL` and the object in a code fence; the other form is read as well.
    DeepseekFenced,
    /// A line of its own: `name NL {..}`. `all` names the user: what follows is text.
    Recipient,
}

#[derive(Debug, Clone)]
pub(crate) struct NamedRules {
    pub(crate) style: NameStyle,
    /// What opens a group of calls, if anything does.
    pub(crate) section_open: Option<String>,
    pub(crate) section_close: Option<String>,
    pub(crate) call_open: String,
    /// What ends the name.
    pub(crate) separators: MarkerScanner,
    pub(crate) call_close: Option<String>,
}

enum State {
    Seek,
    Name,
    CallId { name: String },
    BeforeArgs { header: String },
    Args(Box<JsonArgs>),
    AfterArgs,
}

pub(crate) struct NamedBody {
    state: State,
    in_section: bool,
    any_call: bool,
    fenced: bool,
}

impl NamedRules {
    /// Whether calls begin at the input's position, behind the marker `opened_by`.
    pub(crate) fn head(
        &self,
        opened_by: &str,
        input: &Input<'_>,
        calls: &Calls,
    ) -> Head<NamedBody> {
        let in_section = self.section_open.as_deref() == Some(opened_by);
        let mut ahead = Input {
            text: input.text,
            pos: input.pos,
            at_end: input.at_end,
        };
        if in_section {
            match ahead.at(&self.call_open) {
                At::Yes => ahead.pos += self.call_open.len(),
                At::No => return Head::No,
                At::Cut => return Head::More,
            }
        }
        let Some((name_end, after)) = self.name_end(&ahead) else {
            // The start of a separator may stand at the end.
            let header = self.header(&ahead);
            let name = match self.separators.scan(header.as_bytes(), 0, false) {
                Scan::Partial(at) => &header[..at],
                _ => header,
            };
            return if name.len() <= MAX_NAME_BYTES && self.is_name(name, true) {
                Head::More
            } else {
                Head::No
            };
        };
        let name = &ahead.text[ahead.pos..name_end];
        if !self.is_name(name, false) {
            return Head::No;
        }
        match self.style {
            NameStyle::Plain => {
                ahead.pos = after;
                ahead.skip_space();
                match ahead.peek() {
                    Some(b'{') => {}
                    None => return Head::More,
                    Some(_) if self.call_open == "<function=" => return Head::No,
                    Some(_) => {}
                }
            }
            NameStyle::Recipient => {
                let is_user = name.trim() == "all";
                match ahead.text.as_bytes().get(after) {
                    None if !is_user => return Head::More,
                    Some(b'{') if calls.is_tool(name) => {}
                    _ if is_user => {}
                    _ => return Head::No,
                }
            }
            NameStyle::Mistral
            | NameStyle::Kimi
            | NameStyle::Deepseek
            | NameStyle::DeepseekFenced => {}
        }
        Head::Yes(NamedBody {
            state: if in_section { State::Seek } else { State::Name },
            in_section,
            any_call: false,
            fenced: false,
        })
    }

    /// Where the name ends and what follows it begins.
    fn name_end(&self, input: &Input<'_>) -> Option<(usize, usize)> {
        let header = self.header(input).as_bytes();
        let brace = match self.style {
            NameStyle::Mistral => header.iter().position(|&byte| byte == b'{'),
            _ => None,
        };
        let before = &header[..brace.unwrap_or(header.len())];
        let is_all = input.at_end || brace.is_some();
        let found = match self.separators.scan(before, 0, is_all) {
            Scan::Found { at, len, .. } => Some((at, at + len)),
            _ => brace.map(|at| (at, at)),
        };
        let (end, after) = found.filter(|(end, _)| *end <= MAX_NAME_BYTES)?;
        Some((input.pos + end, input.pos + after))
    }

    /// As much of the text as a name and its separator can take.
    fn header<'a>(&self, input: &Input<'a>) -> &'a str {
        prefix_within(&input.text[input.pos..], self.max_header_bytes())
    }

    fn max_header_bytes(&self) -> usize {
        MAX_NAME_BYTES + self.separators.max_len()
    }

    /// True if this can be a name; `cut`: the start of one.
    fn is_name(&self, text: &str, cut: bool) -> bool {
        let text = if self.style == NameStyle::Recipient {
            text
        } else {
            text.trim()
        };
        (cut || !text.is_empty())
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '$'))
    }
}

impl NamedBody {
    pub(crate) fn read(
        &mut self,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            let step = match &mut self.state {
                State::Seek => self.read_seek(named, input, calls, out),
                State::Name => self.read_name(named, input, calls, out),
                State::CallId { name } => {
                    let name = std::mem::take(name);
                    self.read_call_id(name, named, input, calls, out)
                }
                State::BeforeArgs { header } => {
                    let header = std::mem::take(header);
                    self.read_before_args(header, named, input, calls, out)
                }
                State::Args(args) => match args.read(input, calls, out) {
                    ArgsStep::Need => Some(Progress::Need),
                    ArgsStep::Done => {
                        self.state = State::AfterArgs;
                        None
                    }
                    ArgsStep::Refused => Some(Progress::Broken),
                },
                State::AfterArgs => self.read_after_args(named, input, calls, out),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    fn read_seek(
        &mut self,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let from = input.pos;
        input.skip_space();
        if input.peek().is_none() {
            if input.at_end {
                return Some(ENDED);
            }
            input.pos = from;
            return Some(Progress::Need);
        }
        match input.at(&named.call_open) {
            At::Yes => {
                input.pos += named.call_open.len();
                self.state = State::Name;
                return None;
            }
            At::Cut => return Some(cut_marker(from, input)),
            At::No => {}
        }
        if let Some(close) = &named.section_close {
            match input.at(close) {
                At::Yes => {
                    input.pos += close.len();
                    calls.settle(false, out);
                    return Some(ENDED);
                }
                At::Cut => return Some(cut_marker(from, input)),
                At::No => {}
            }
        }
        input.pos = from;
        calls.settle(false, out);
        Some(Progress::Ended { owed_close: true })
    }

    fn read_name(
        &mut self,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let Some((end, after)) = named.name_end(input) else {
            // A separator that begins within the limit may still be on its way.
            if input.at_end || input.rest().len() > named.max_header_bytes() {
                let raw = prefix_within(input.rest(), MAX_NAME_BYTES).to_owned();
                let kind = if input.at_end {
                    crate::chat::CallErrorKind::TruncatedToolCall
                } else {
                    crate::chat::CallErrorKind::MalformedArguments
                };
                calls.reject_block(kind, &raw, "the call has no arguments", out);
                return Some(Progress::Broken);
            }
            return Some(Progress::Need);
        };
        let header = input.text[input.pos..end].trim().to_owned();
        let separator = &input.text[end..after];
        input.pos = after;
        self.any_call = true;
        if named.style == NameStyle::Recipient && header == "all" {
            return Some(ENDED);
        }
        self.state = match named.style {
            NameStyle::Mistral if separator == "[CALL_ID]" => State::CallId { name: header },
            NameStyle::Deepseek | NameStyle::DeepseekFenced => State::BeforeArgs { header },
            NameStyle::Kimi => {
                let name = header
                    .rsplit_once(':')
                    .filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
                let name = name.map_or(header.as_str(), |(name, _)| name);
                let name = if calls.is_tool(name) {
                    name
                } else {
                    name.strip_prefix("functions.").unwrap_or(name)
                };
                calls.begin(name, Some(&header), out);
                State::Args(Box::new(JsonArgs::new(calls)))
            }
            _ => {
                calls.begin(&header, None, out);
                State::Args(Box::new(JsonArgs::new(calls)))
            }
        };
        None
    }

    fn read_call_id(
        &mut self,
        name: String,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let Some((end, after)) = named.name_end(input) else {
            let is_long = input.rest().len() > named.max_header_bytes();
            if !input.at_end && !is_long {
                self.state = State::CallId { name };
                return Some(Progress::Need);
            }
            calls.begin(&name, None, out);
            if is_long {
                // No id is that long: what stands here is to be the arguments.
                self.state = State::Args(Box::new(JsonArgs::new(calls)));
                return None;
            }
            calls.reject_truncated("", out);
            return Some(ENDED);
        };
        let id = input.text[input.pos..end].trim().to_owned();
        input.pos = after;
        calls.begin(&name, Some(&id), out);
        self.state = State::Args(Box::new(JsonArgs::new(calls)));
        None
    }

    /// DeepSeek: the header is the name if the object follows, else the kind of call.
    fn read_before_args(
        &mut self,
        header: String,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let bytes = input.text.as_bytes();
        let mut at = input.pos;
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let wait = |body: &mut Self, header| {
            body.state = State::BeforeArgs { header };
            Some(Progress::Need)
        };
        let truncated = |name: &str, calls: &mut Calls, out: &mut Vec<Event>| {
            calls.begin(name, None, out);
            calls.reject_truncated("", out);
            Some(ENDED)
        };
        match bytes.get(at) {
            None if input.at_end => return truncated(&header, calls, out),
            None => return wait(self, header),
            Some(b'{') => {
                input.pos = at;
                calls.begin(&header, None, out);
                self.state = State::Args(Box::new(JsonArgs::new(calls)));
                return None;
            }
            Some(_) => {}
        }
        // The name is a line; the object follows, in a code fence or bare.
        let line = prefix_within(&input.text[at..], named.max_header_bytes());
        let Some(brace) = line.bytes().position(|byte| byte == b'{' || byte == b'<') else {
            if input.text.len() - at > named.max_header_bytes() {
                calls.begin(&header, None, out);
                self.state = State::Args(Box::new(JsonArgs::new(calls)));
                return None;
            }
            if input.at_end {
                let name = input.text[at..]
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                return truncated(&name, calls, out);
            }
            return wait(self, header);
        };
        let head = &input.text[at..at + brace];
        let name = head.split(['\n', '`']).next().unwrap_or_default().trim();
        self.fenced = head.contains('`');
        calls.begin(name, None, out);
        input.pos = at + brace;
        if bytes[input.pos] == b'<' {
            calls.end(
                ArgumentBody::Text {
                    text: String::new(),
                    lenient: false,
                },
                out,
            );
            self.state = State::AfterArgs;
            return None;
        }
        self.state = State::Args(Box::new(JsonArgs::new(calls)));
        None
    }

    fn read_after_args(
        &mut self,
        named: &NamedRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let Some(close) = &named.call_close else {
            return Some(ENDED);
        };
        let from = input.pos;
        loop {
            match input.peek() {
                Some(byte) if byte.is_ascii_whitespace() || (self.fenced && byte == b'`') => {
                    input.pos += 1
                }
                // A bracket too many.
                Some(b'}') => input.pos += 1,
                None if input.at_end => return Some(ENDED),
                None => {
                    input.pos = from;
                    return Some(Progress::Need);
                }
                Some(_) => break,
            }
        }
        match input.at(close) {
            At::Yes => {
                input.pos += close.len();
                calls.settle(false, out);
            }
            At::Cut if !input.at_end => {
                input.pos = from;
                return Some(Progress::Need);
            }
            At::Cut | At::No => {
                if !self.in_section {
                    input.pos = from;
                    calls.settle(false, out);
                    return Some(Progress::Ended { owed_close: true });
                }
            }
        }
        if !self.in_section {
            return Some(ENDED);
        }
        self.fenced = false;
        self.state = State::Seek;
        None
    }
}

/// A marker was begun at the end of the text: the rest may come, or the text is cut there.
fn cut_marker(from: usize, input: &mut Input<'_>) -> Progress {
    if input.at_end {
        input.pos = input.text.len();
        return ENDED;
    }
    input.pos = from;
    Progress::Need
}
