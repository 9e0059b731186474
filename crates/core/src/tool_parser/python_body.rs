//! Bodies that are Python calls: `[f(x=1), g()]`, or one call per line.

use super::block::{BlockRules, read_close};
use super::calls::Calls;
use super::input::{At, ENDED, Head, Input, Progress};
use super::object_args::ObjectArgs;
use crate::chat::{CallErrorKind, Event};
use crate::text::read_lenient;

/// Longest function name, in bytes.
const MAX_NAME_BYTES: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct PythonRules {
    /// The calls stand in a list; otherwise each has a line.
    pub(crate) in_list: bool,
}

enum State {
    Seek,
    Arguments,
    AfterList,
}

pub(crate) struct PythonBody {
    state: State,
    /// Nothing was called yet and no marker vouches for the body.
    is_doubtful: bool,
    call_at: usize,
    argument_at: usize,
    brackets: Vec<u8>,
    quote: Option<u8>,
    escaped: bool,
    arguments: ObjectArgs,
}

impl PythonRules {
    /// Whether calls begin at the input's position.
    pub(crate) fn head(
        &self,
        has_marker: bool,
        input: &Input<'_>,
        calls: &Calls,
    ) -> Head<PythonBody> {
        let mut ahead = Input {
            text: input.text,
            pos: input.pos,
            at_end: input.at_end,
        };
        if self.in_list {
            match ahead.peek() {
                None => return Head::More,
                Some(b'[') => ahead.pos += 1,
                Some(_) => return Head::No,
            }
            ahead.skip_space();
        }
        let name = ahead.identifier();
        match ahead.text.as_bytes().get(ahead.pos + name.len()) {
            None if name.len() <= MAX_NAME_BYTES => Head::More,
            Some(b'(') if !name.is_empty() && (has_marker || calls.is_tool(name)) => {
                Head::Yes(PythonBody::new(input.pos, !has_marker))
            }
            // An empty list calls nothing.
            Some(b']') if name.is_empty() && has_marker => {
                Head::Yes(PythonBody::new(input.pos, false))
            }
            _ => Head::No,
        }
    }
}

impl PythonBody {
    fn new(at: usize, is_doubtful: bool) -> Self {
        Self {
            state: State::Seek,
            is_doubtful,
            call_at: at,
            argument_at: at,
            brackets: Vec::new(),
            quote: None,
            escaped: false,
            arguments: ObjectArgs::default(),
        }
    }

    pub(crate) fn is_committed(&self) -> bool {
        !self.is_doubtful
    }

    pub(crate) fn read(
        &mut self,
        rules: &BlockRules,
        python: &PythonRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Progress {
        loop {
            let step = match self.state {
                State::Seek => self.read_seek(rules, python, input, calls, out),
                State::Arguments => self.read_arguments(input, calls, out),
                State::AfterList => Some(read_close(rules, input, calls, out)),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    /// Between calls.
    fn read_seek(
        &mut self,
        rules: &BlockRules,
        python: &PythonRules,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        loop {
            let from = input.pos;
            input.skip_space();
            match input.peek() {
                None if input.at_end => return Some(ENDED),
                None => {
                    input.pos = from;
                    return Some(Progress::Need);
                }
                Some(b',' | b';') => {
                    input.pos += 1;
                    continue;
                }
                Some(b'[') if python.in_list => {
                    input.pos += 1;
                    continue;
                }
                Some(b']') if python.in_list => {
                    input.pos += 1;
                    self.state = State::AfterList;
                    return None;
                }
                Some(_) => {}
            }
            if !python.in_list {
                match input.at_any(rules.closes()) {
                    At::Yes => {
                        self.state = State::AfterList;
                        return None;
                    }
                    At::Cut if !input.at_end => {
                        input.pos = from;
                        return Some(Progress::Need);
                    }
                    At::Cut | At::No => {}
                }
            }
            let name = input.identifier();
            let len = name.len();
            match input.text.as_bytes().get(input.pos + len) {
                None if !input.at_end && len <= MAX_NAME_BYTES => {
                    input.pos = from;
                    return Some(Progress::Need);
                }
                Some(b'(') if len > 0 => {}
                _ if self.is_doubtful => return Some(Progress::NotACall),
                _ => {
                    let kind = if input.at_end && input.rest().len() == len {
                        CallErrorKind::TruncatedToolCall
                    } else {
                        CallErrorKind::MalformedArguments
                    };
                    calls.reject_block(kind, name, "a function call expected", out);
                    return Some(Progress::Broken);
                }
            }
            self.is_doubtful = false;
            self.call_at = input.pos;
            calls.begin(name, None, out);
            input.pos += len + 1;
            self.argument_at = input.pos;
            self.arguments = ObjectArgs::default();
            self.state = State::Arguments;
            return None;
        }
    }

    fn read_arguments(
        &mut self,
        input: &mut Input<'_>,
        calls: &mut Calls,
        out: &mut Vec<Event>,
    ) -> Option<Progress> {
        let bytes = input.text.as_bytes();
        while let Some(&byte) = bytes.get(input.pos) {
            input.pos += 1;
            if let Some(quote) = self.quote {
                if self.escaped {
                    self.escaped = false;
                } else if byte == b'\\' {
                    self.escaped = true;
                } else if byte == quote {
                    self.quote = None;
                }
                continue;
            }
            match byte {
                b'"' | b'\'' => self.quote = Some(byte),
                b'(' | b'[' | b'{' => self.brackets.push(byte),
                b',' if self.brackets.is_empty() => {
                    self.take_argument(&input.text[self.argument_at..input.pos - 1], calls, out);
                    self.argument_at = input.pos;
                }
                b')' if self.brackets.is_empty() => {
                    self.take_argument(&input.text[self.argument_at..input.pos - 1], calls, out);
                    self.arguments
                        .end(&input.text[self.call_at..input.pos], calls, out);
                    self.state = State::Seek;
                    return None;
                }
                b')' | b']' | b'}' => {
                    let open = if byte == b')' { b'(' } else { byte - 2 };
                    if self.brackets.pop() != Some(open) {
                        let raw = &input.text[self.call_at..input.pos];
                        calls.reject_block(
                            CallErrorKind::MalformedArguments,
                            raw,
                            "brackets do not match",
                            out,
                        );
                        return Some(Progress::Broken);
                    }
                }
                _ => {}
            }
        }
        let raw = &input.text[self.call_at..];
        if !input.at_end {
            return Some(Progress::Need);
        }
        calls.reject_truncated(raw, out);
        Some(ENDED)
    }

    fn take_argument(&mut self, text: &str, calls: &mut Calls, out: &mut Vec<Event>) {
        let text = text.trim();
        if text.is_empty() || self.arguments.is_faulty() {
            return;
        }
        let (key, value) = match text.split_once('=') {
            Some((key, value)) if is_identifier(key.trim()) => {
                (key.trim().to_owned(), value.trim())
            }
            _ => {
                // A value without a name: the schema's parameter at this place.
                let names = calls
                    .open_schema()
                    .and_then(|schema| schema.get("properties")?.as_object());
                let name = names.and_then(|names| names.keys().nth(self.arguments.n_read()));
                match name {
                    Some(name) => (name.clone(), text),
                    None => {
                        let place = self.arguments.n_read() + 1;
                        self.arguments.fail(format!("argument {place} has no name"));
                        return;
                    }
                }
            }
        };
        let depth = calls.limits().arguments.max_depth;
        match read_lenient(value, depth) {
            Ok((read, len)) if value[len..].trim().is_empty() => {
                self.arguments.add(key, read, calls, out);
            }
            Ok(_) => {
                let message = format!("the value of `{key}` is no literal");
                self.arguments.fail(message);
            }
            Err(error) => {
                let message = format!("the value of `{key}` is no literal: {error}");
                self.arguments.fail(message);
            }
        }
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}
