use super::byte_set::find_byte;

/// What the boundary reader met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonEvent {
    /// All bytes were taken; the value goes on.
    More,
    /// A value begins at the next byte, which is not yet taken. Level 0 is the whole value,
    /// level 1 its members or elements.
    Begin {
        /// How deep the value stands.
        level: u32,
        /// Its first byte.
        first: u8,
    },
    /// A member's key ended; [`JsonBoundary::key`] has it.
    Key {
        /// The level of the member.
        level: u32,
    },
    /// A value ended with the last byte taken.
    End {
        /// The value's level.
        level: u32,
    },
    /// The next byte cannot stand here, not even in lenient JSON.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    ValueOrClose,
    Key,
    Colon,
    After,
    Text { is_key: bool },
    Literal { is_key: bool },
    Done,
    Failed,
}

/// Finds where a JSON value ends while its bytes arrive, with strings understood.
///
/// Takes strict JSON and what the lenient reader takes: single quotes, trailing commas,
/// unquoted words, raw control characters in strings. Brackets must match. Reports values
/// and keys down to a chosen level; below it only bytes are counted.
/// Holds two bits per nesting level and one key; fails beyond its depth limit.
#[derive(Debug, Clone)]
pub struct JsonBoundary {
    state: State,
    is_object: Vec<bool>,
    max_depth: usize,
    watch: u32,
    quote: u8,
    escaped: bool,
    entered: bool,
    lenient: bool,
    key: Vec<u8>,
    keys_seen: bool,
}

/// Longest key that is kept for [`JsonBoundary::key`]; the keys of interest are short, and
/// the one dialect where a key is a tool's name allows no longer names either.
const MAX_KEY_BYTES: usize = 1024;

impl JsonBoundary {
    /// A reader that reports values and keys down to level `watch` and refuses values that
    /// nest deeper than `max_depth`.
    #[must_use]
    pub fn new(watch: u32, max_depth: usize) -> Self {
        Self {
            state: State::Value,
            is_object: Vec::new(),
            max_depth,
            watch,
            quote: b'"',
            escaped: false,
            entered: false,
            lenient: false,
            key: Vec::new(),
            keys_seen: false,
        }
    }

    /// Changes the level down to which values are reported.
    pub fn set_watch(&mut self, watch: u32) {
        self.watch = watch;
    }

    /// The last reported key, decoded.
    #[must_use]
    pub fn key(&self) -> String {
        let raw = String::from_utf8_lossy(&self.key);
        if raw.contains('\\') {
            let quoted = format!("\"{raw}\"");
            if let Ok(key) = serde_json::from_str(&quoted) {
                return key;
            }
        }
        raw.into_owned()
    }

    /// True if any key was read.
    #[must_use]
    pub fn keys_seen(&self) -> bool {
        self.keys_seen
    }

    /// True if something was met that strict JSON does not allow.
    #[must_use]
    pub fn lenient(&self) -> bool {
        self.lenient
    }

    /// Forgets what [`Self::lenient`] remembers: for the next call of an array.
    pub fn reset_lenient(&mut self) {
        self.lenient = false;
    }

    /// True inside a string.
    #[must_use]
    pub fn in_string(&self) -> bool {
        matches!(self.state, State::Text { .. })
    }

    /// True in an object from where a member may begin to the end of its key.
    #[must_use]
    pub fn in_key(&self) -> bool {
        matches!(
            self.state,
            State::Key | State::Text { is_key: true } | State::Literal { is_key: true }
        )
    }

    /// How many brackets are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.is_object.len()
    }

    /// Reads on until something is to be reported; returns how many bytes were taken.
    pub fn feed(&mut self, bytes: &[u8]) -> (usize, JsonEvent) {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            let event = match self.state {
                State::Text { is_key } => {
                    let (taken, ended) = self.feed_text(&bytes[at..], is_key);
                    at += taken;
                    if !ended {
                        continue;
                    }
                    if is_key {
                        self.end_key()
                    } else {
                        self.end_value()
                    }
                }
                State::Literal { is_key } => {
                    if is_literal(byte) {
                        self.keep_key(&bytes[at..=at], is_key);
                        at += 1;
                        continue;
                    }
                    if is_key {
                        self.end_key()
                    } else {
                        self.end_value()
                    }
                }
                State::Done => return (at, JsonEvent::End { level: 0 }),
                State::Failed => return (at, JsonEvent::Error),
                _ if is_space(byte) => {
                    at += 1;
                    continue;
                }
                _ => {
                    let (taken, event) = self.feed_structure(byte);
                    at += taken;
                    event
                }
            };
            if self.state == State::Failed {
                return (at, JsonEvent::Error);
            }
            if let Some(event) = event {
                return (at, event);
            }
        }
        (at, JsonEvent::More)
    }

    /// Takes a byte outside strings and words, or leaves it if a word begins.
    fn feed_structure(&mut self, byte: u8) -> (usize, Option<JsonEvent>) {
        match self.state {
            State::ValueOrClose if byte == b']' => (1, self.close(byte)),
            State::Value | State::ValueOrClose => match self.begin(byte) {
                Some(event) => (0, Some(event)),
                None => {
                    let left = matches!(self.state, State::Literal { .. } | State::Failed);
                    (usize::from(!left), None)
                }
            },
            State::Key if byte == b'}' => (1, self.close(byte)),
            State::Key => {
                self.begin_key(byte);
                (usize::from(matches!(self.state, State::Text { .. })), None)
            }
            State::Colon if byte == b':' => {
                self.state = State::Value;
                (1, None)
            }
            State::After if byte == b',' => {
                self.next_member();
                (1, None)
            }
            State::After if matches!(byte, b'}' | b']') => (1, self.close(byte)),
            _ => {
                self.state = State::Failed;
                (0, None)
            }
        }
    }

    fn level(&self) -> u32 {
        u32::try_from(self.is_object.len()).unwrap_or(u32::MAX)
    }

    /// Announces a value, or enters it if it was announced.
    fn begin(&mut self, first: u8) -> Option<JsonEvent> {
        let level = self.level();
        if !self.entered && level <= self.watch {
            self.entered = true;
            return Some(JsonEvent::Begin { level, first });
        }
        self.entered = false;
        match first {
            b'{' | b'[' => {
                if self.is_object.len() >= self.max_depth {
                    self.state = State::Failed;
                    return None;
                }
                self.is_object.push(first == b'{');
                self.state = if first == b'{' {
                    State::Key
                } else {
                    State::ValueOrClose
                };
            }
            b'"' | b'\'' => self.open_text(first, false),
            _ if is_literal(first) => self.state = State::Literal { is_key: false },
            _ => self.state = State::Failed,
        }
        None
    }

    fn begin_key(&mut self, first: u8) {
        self.key.clear();
        match first {
            b'"' | b'\'' => self.open_text(first, true),
            _ if is_literal(first) => {
                self.lenient = true;
                self.state = State::Literal { is_key: true };
            }
            _ => self.state = State::Failed,
        }
    }

    fn open_text(&mut self, quote: u8, is_key: bool) {
        self.lenient |= quote == b'\'';
        self.quote = quote;
        self.escaped = false;
        self.state = State::Text { is_key };
    }

    /// Takes bytes of a string; true if its closing quote was taken.
    fn feed_text(&mut self, bytes: &[u8], is_key: bool) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.escaped {
                self.escaped = false;
                self.keep_key(&bytes[at..=at], is_key);
                at += 1;
                continue;
            }
            let run = at;
            let quote = self.quote;
            at += find_byte(&bytes[at..], |byte| {
                (byte == quote) | (byte == b'\\') | (byte < 0x20)
            });
            self.keep_key(&bytes[run..at], is_key);
            let Some(&byte) = bytes.get(at) else { break };
            at += 1;
            if byte == self.quote {
                return (at, true);
            }
            self.keep_key(&[byte], is_key);
            self.escaped = byte == b'\\';
            self.lenient |= byte != b'\\';
        }
        (at, false)
    }

    fn keep_key(&mut self, bytes: &[u8], is_key: bool) {
        if is_key && self.level() <= self.watch && self.key.len() + bytes.len() <= MAX_KEY_BYTES {
            self.key.extend_from_slice(bytes);
        }
    }

    fn end_key(&mut self) -> Option<JsonEvent> {
        self.state = State::Colon;
        self.keys_seen = true;
        let level = self.level();
        (level <= self.watch).then_some(JsonEvent::Key { level })
    }

    fn end_value(&mut self) -> Option<JsonEvent> {
        let level = self.level();
        self.state = if level == 0 {
            State::Done
        } else {
            State::After
        };
        (level <= self.watch).then_some(JsonEvent::End { level })
    }

    fn next_member(&mut self) {
        self.state = match self.is_object.last() {
            Some(true) => State::Key,
            // A trailing comma is left to the lenient reader.
            _ => State::ValueOrClose,
        };
    }

    fn close(&mut self, byte: u8) -> Option<JsonEvent> {
        if self.is_object.pop() != Some(byte == b'}') {
            self.state = State::Failed;
            return None;
        }
        self.end_value()
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_' | b'$')
}
