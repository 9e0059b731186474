//! What an endpoint accepts: plain facts that writers read. Never a provider's name.

use std::collections::HashSet;

pub use twopass_core::control::ReplayPolicy as ReasoningReplay;

/// The facts of one endpoint. Start from the format's constant and change what differs.
///
/// ```
/// use twopass_wire::facts::{MaxTokensField, WireFacts};
///
/// let facts = WireFacts {
///     max_tokens_field: MaxTokensField::MaxCompletionTokens,
///     temperature: false,
///     ..WireFacts::CHAT
/// };
/// assert!(facts.tools_strict.is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireFacts {
    /// The field of the cap on the whole output, on Chat Completions; other wires have one
    /// name for it.
    pub max_tokens_field: MaxTokensField,
    /// The cap to send if the request has none, where one is demanded.
    pub max_tokens_default: Option<u32>,
    /// True if a temperature (and `top_p`) is accepted.
    pub temperature: bool,
    /// True if `top_k` is accepted.
    pub top_k: bool,
    /// True if `min_p` is accepted.
    pub min_p: bool,
    /// True if `seed` is accepted.
    pub seed: bool,
    /// True if `presence_penalty` and `frequency_penalty` are accepted.
    pub penalties: bool,
    /// The field of the multiplied repeat penalty, if it is accepted.
    pub repeat_penalty_field: Option<RepeatPenaltyField>,
    /// True if the role `developer` is known; else it becomes `system`.
    pub developer_role: bool,
    /// True if only the first message may be a system message: all are merged into it.
    pub system_first_only: bool,
    /// True if `chat_template_kwargs` are accepted.
    pub template_kwargs: bool,
    /// Which reasoning of past turns goes back.
    pub reasoning_replay: ReasoningReplay,
    /// The field in which it goes back; `None` = the one that it came in, else none.
    pub reasoning_field: Option<ReasoningField>,
    /// True if past turns with calls must have the reasoning field, be it empty.
    pub calls_need_reasoning: bool,
    /// How thinking is asked for.
    pub thinking: ThinkingField,
    /// What call ids look like.
    pub tool_call_id: IdFormat,
    /// What tool names look like.
    pub tool_name: IdFormat,
    /// The value of each function's `strict` field, if it is sent at all.
    pub tools_strict: Option<bool>,
    /// True if `parallel_tool_calls` is accepted.
    pub parallel_tool_calls: bool,
    /// True if usage must be asked for in a stream (`stream_options.include_usage`).
    pub stream_options: bool,
    /// True if images are accepted; else they are an error.
    pub images: bool,
    /// The value of `store`, if it is sent at all.
    pub store: Option<bool>,
    /// True if `previous_response_id` is accepted; else the whole history goes along.
    pub previous_response_id: bool,
    /// How a last assistant message is marked as text to be continued.
    pub continuation: Continuation,
}

impl WireFacts {
    /// Plain Chat Completions, as most compatible servers take them.
    pub const CHAT: Self = Self {
        max_tokens_field: MaxTokensField::MaxTokens,
        max_tokens_default: None,
        temperature: true,
        top_k: false,
        min_p: false,
        seed: true,
        penalties: true,
        repeat_penalty_field: None,
        developer_role: true,
        system_first_only: false,
        template_kwargs: true,
        reasoning_replay: ReasoningReplay::None,
        reasoning_field: None,
        calls_need_reasoning: false,
        thinking: ThinkingField::None,
        tool_call_id: IdFormat::printable(256),
        tool_name: IdFormat::word(64),
        tools_strict: None,
        parallel_tool_calls: true,
        stream_options: true,
        images: true,
        store: None,
        previous_response_id: false,
        continuation: Continuation::Trailing,
    };

    /// The Responses API.
    pub const RESPONSES: Self = Self {
        max_tokens_field: MaxTokensField::MaxOutputTokens,
        seed: false,
        penalties: false,
        template_kwargs: false,
        reasoning_replay: ReasoningReplay::Required,
        thinking: ThinkingField::ReasoningObject,
        tool_call_id: IdFormat::word(64),
        stream_options: false,
        previous_response_id: true,
        ..Self::CHAT
    };

    /// Anthropic Messages.
    pub const ANTHROPIC: Self = Self {
        max_tokens_default: Some(4096),
        top_k: true,
        seed: false,
        penalties: false,
        template_kwargs: false,
        developer_role: false,
        system_first_only: true,
        reasoning_replay: ReasoningReplay::Required,
        thinking: ThinkingField::AnthropicThinking,
        tool_call_id: IdFormat::word(64),
        tool_name: IdFormat::word(128),
        stream_options: false,
        ..Self::CHAT
    };

    /// Ollama's native chat.
    pub const OLLAMA: Self = Self {
        top_k: true,
        min_p: true,
        repeat_penalty_field: Some(RepeatPenaltyField::RepeatPenalty),
        developer_role: false,
        template_kwargs: false,
        reasoning_field: Some(ReasoningField::Thinking),
        thinking: ThinkingField::OllamaThink,
        parallel_tool_calls: false,
        stream_options: false,
        ..Self::CHAT
    };
}

/// The field of the cap on the whole output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
    /// `max_output_tokens`
    MaxOutputTokens,
}

impl MaxTokensField {
    /// The field's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxOutputTokens => "max_output_tokens",
        }
    }

    /// The field of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::MaxTokens,
            Self::MaxCompletionTokens,
            Self::MaxOutputTokens,
        ]
        .into_iter()
        .find(|field| field.as_str() == name)
    }
}

/// The field of the multiplied repeat penalty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatPenaltyField {
    /// `repeat_penalty`
    RepeatPenalty,
    /// `repetition_penalty`
    RepetitionPenalty,
}

impl RepeatPenaltyField {
    /// The field's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RepeatPenalty => "repeat_penalty",
            Self::RepetitionPenalty => "repetition_penalty",
        }
    }
}

/// The field of separate reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`
    ReasoningContent,
    /// `reasoning`
    Reasoning,
    /// `reasoning_text`
    ReasoningText,
    /// `thinking`
    Thinking,
}

impl ReasoningField {
    /// All of them, the one that is looked for first in front (row G2).
    pub const ALL: [Self; 4] = [
        Self::ReasoningContent,
        Self::Reasoning,
        Self::ReasoningText,
        Self::Thinking,
    ];

    /// The field's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
            Self::ReasoningText => "reasoning_text",
            Self::Thinking => "thinking",
        }
    }

    /// The field of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

/// How thinking is asked for (row M4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingField {
    /// Not at all.
    None,
    /// `reasoning_effort: "low"`
    ReasoningEffort,
    /// `reasoning: {"effort", "max_tokens", "enabled"}`; on Responses `reasoning.effort` only.
    ReasoningObject,
    /// `thinking: {"type": "enabled", "budget_tokens"}`
    AnthropicThinking,
    /// `thinking_token_budget`, and `chat_template_kwargs.enable_thinking` for off.
    ThinkingTokenBudget,
    /// `chat_template_kwargs.enable_thinking` only.
    TemplateKwarg,
    /// `think: true`, `false` or an effort.
    OllamaThink,
    /// `thinking: {"type": "enabled"}` or `disabled`, and `reasoning_effort` for how much.
    Switch,
}

/// How a last assistant message is marked as text to be continued (row D10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuation {
    /// No mark: a last assistant message is always continued.
    Trailing,
    /// `"prefix": true` on the message.
    PrefixFlag,
    /// `continue_final_message: true` and `add_generation_prompt: false`.
    ContinueFlags,
}

/// The most bytes of an [`IdFormat`]'s prefix.
const MAX_PREFIX: usize = 16;

/// What ids or names must look like: a fixed prefix, then characters of one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdFormat {
    prefix: [u8; MAX_PREFIX],
    prefix_len: usize,
    /// One bit per ASCII character.
    alphabet: u128,
    min_len: usize,
    max_len: usize,
}

const fn bits(from: u8, to: u8) -> u128 {
    let mut set = 0;
    let mut at = from;
    while at <= to {
        set |= 1 << at;
        at += 1;
    }
    set
}

const DIGITS: u128 = bits(b'0', b'9');
const LOWER: u128 = bits(b'a', b'z');
const UPPER: u128 = bits(b'A', b'Z');
const ALNUM: u128 = DIGITS | LOWER | UPPER;
const WORD: u128 = ALNUM | 1 << b'_';

impl IdFormat {
    /// Any printable ASCII without spaces, 1 to `max_len` characters.
    #[must_use]
    pub const fn printable(max_len: usize) -> Self {
        Self {
            prefix: [0; MAX_PREFIX],
            prefix_len: 0,
            alphabet: bits(b'!', b'~'),
            min_len: 1,
            max_len,
        }
    }

    /// Letters, digits, `_` and `-`, 1 to `max_len` characters.
    #[must_use]
    pub const fn word(max_len: usize) -> Self {
        Self {
            prefix: [0; MAX_PREFIX],
            prefix_len: 0,
            alphabet: WORD | 1 << b'-',
            min_len: 1,
            max_len,
        }
    }

    /// Letters and digits, exactly `len` characters.
    #[must_use]
    pub const fn alphanumeric(len: usize) -> Self {
        Self {
            prefix: [0; MAX_PREFIX],
            prefix_len: 0,
            alphabet: ALNUM,
            min_len: len,
            max_len: len,
        }
    }

    /// At most this many characters.
    #[must_use]
    pub fn with_max_len(mut self, max_len: usize) -> Self {
        self.max_len = max_len.max(self.prefix_len + 1);
        self.min_len = self.min_len.min(self.max_len);
        self
    }

    /// Reads a regular expression of the form `^prefix[set]{count}$`: literal characters,
    /// one set (or `\w`, `\d`, `.`), then `+`, `*`, `{n}`, `{n,}` or `{n,m}`. `None` for
    /// everything else.
    #[must_use]
    pub fn from_pattern(pattern: &str) -> Option<Self> {
        let body = pattern.strip_prefix('^').unwrap_or(pattern);
        let body = body.strip_suffix('$').unwrap_or(body);
        let at = body.find(['[', '\\', '.'])?;
        let (prefix, rest) = body.split_at(at);
        let (alphabet, count) = if let Some(set) = rest.strip_prefix('[') {
            let end = set.find(']')?;
            (read_set(&set[..end])?, &set[end + 1..])
        } else if let Some(count) = rest.strip_prefix("\\w") {
            (WORD, count)
        } else if let Some(count) = rest.strip_prefix("\\d") {
            (DIGITS, count)
        } else {
            (bits(b'!', b'~'), rest.strip_prefix('.')?)
        };
        let (min_len, max_len) = match count {
            "" => (1, 1),
            "+" => (1, 64),
            "*" => (0, 64),
            _ => {
                let inner = count.strip_prefix('{')?.strip_suffix('}')?;
                match inner.split_once(',') {
                    None => (inner.parse().ok()?, inner.parse().ok()?),
                    Some((low, "")) => (low.parse().ok()?, low.parse::<usize>().ok()?.max(64)),
                    Some((low, high)) => (low.parse().ok()?, high.parse().ok()?),
                }
            }
        };
        if alphabet == 0 || min_len > max_len || max_len == 0 || !prefix.is_ascii() {
            return None;
        }
        let mut held = [0; MAX_PREFIX];
        held.get_mut(..prefix.len())?
            .copy_from_slice(prefix.as_bytes());
        Some(Self {
            prefix: held,
            prefix_len: prefix.len(),
            alphabet,
            min_len: prefix.len() + min_len,
            max_len: prefix.len() + max_len,
        })
    }

    fn prefix(&self) -> &str {
        std::str::from_utf8(&self.prefix[..self.prefix_len]).unwrap_or_default()
    }

    /// True if the text has this format.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        (self.min_len.max(1)..=self.max_len).contains(&text.len())
            && text
                .strip_prefix(self.prefix())
                .is_some_and(|rest| rest.bytes().all(|byte| self.allows(byte)))
    }

    fn allows(&self, byte: u8) -> bool {
        byte < 128 && self.alphabet >> byte & 1 == 1
    }

    /// The text itself if it fits and is free, else one made from it: the same for the same
    /// text and the same `taken`, so that prompts stay cacheable.
    #[must_use]
    pub fn fit(&self, text: &str, taken: &HashSet<String>) -> String {
        let is_free = |candidate: &String| self.matches(candidate) && !taken.contains(candidate);
        let own = text.to_owned();
        if is_free(&own) {
            return own;
        }
        let filler = if self.allows(b'_') { Some('_') } else { None };
        let clean: String = text
            .chars()
            .filter_map(|c| match u8::try_from(c) {
                Ok(byte) if self.allows(byte) => Some(c),
                _ => filler,
            })
            .collect();
        let readable = format!("{}{clean}", self.prefix());
        if clean.chars().any(|c| c.is_ascii_alphanumeric()) {
            let mut candidates = vec![readable.clone()];
            if filler.is_some() {
                candidates.extend((2..=99).map(|n| format!("{readable}_{n}")));
            }
            if let Some(found) = candidates.into_iter().find(is_free) {
                return found;
            }
        }
        // The hash spreads over the set; of 2^64 rounds one is free.
        (0_u64..)
            .map(|round| self.hashed(text, round))
            .find(is_free)
            .unwrap_or(own)
    }

    fn hashed(&self, text: &str, round: u64) -> String {
        let set: Vec<char> = (0..128_u8)
            .filter(|byte| self.alphabet >> byte & 1 == 1 && byte.is_ascii_alphanumeric())
            .map(char::from)
            .collect();
        let set = if set.is_empty() {
            (0..128_u8)
                .filter(|byte| self.allows(*byte))
                .map(char::from)
                .collect()
        } else {
            set
        };
        let len = self.max_len.min(self.min_len.max(self.prefix_len + 24));
        let mut out = self.prefix().to_owned();
        // FNV-1a, stirred once per character.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        while out.len() < len {
            hash ^= hash >> 33;
            hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 29;
            let at = usize::try_from(hash % set.len() as u64).unwrap_or(0);
            out.push(set[at]);
        }
        out
    }
}

fn read_set(set: &str) -> Option<u128> {
    let bytes = set.as_bytes();
    let mut alphabet = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at..] {
            [b'\\', b'w', ..] => (alphabet, at) = (alphabet | WORD, at + 2),
            [b'\\', b'd', ..] => (alphabet, at) = (alphabet | DIGITS, at + 2),
            [b'\\', one, ..] if one.is_ascii() => (alphabet, at) = (alphabet | 1 << one, at + 2),
            [from, b'-', to, ..] if from <= to && to.is_ascii() => {
                (alphabet, at) = (alphabet | bits(from, to), at + 3);
            }
            [one, ..] if one.is_ascii() && one != b'^' => {
                (alphabet, at) = (alphabet | 1 << one, at + 1);
            }
            _ => return None,
        }
    }
    Some(alphabet)
}
