//! The vocabulary as plain tables, and prompts into tokens.
//!
//! Invariant (row M6): the tokens of a literal segment spell its text in ordinary tokens;
//! none of them is a control token, nor a token such as `<tool_call>` that the tokenizer
//! would recognise by itself.

use std::sync::Arc;

use twopass_core::chat_template::{Prompt, Segment};

use crate::ffi::{Model, TokenKind, VocabType};
use crate::{Error, ErrorKind, TokenId};

/// Longest prompt text, in bytes.
const PROMPT_LIMIT_BYTES: usize = 64 << 20;

/// Every token's bytes and kind, read once per model.
#[derive(Debug)]
pub(crate) struct Vocab {
    model: Arc<Model>,
    bytes: Vec<u8>,
    /// End of each token's bytes.
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    is_eog: Vec<bool>,
    /// The token that ends a turn when we end it ourselves.
    eog: TokenId,
    /// Tokens that a tokenizer recognises even in plain text and that could act as markup,
    /// in 256 lists by first byte.
    markers: Vec<Vec<Vec<u8>>>,
    adds_space: bool,
    /// Bytes of the longest token, at least 1.
    longest_bytes: usize,
}

impl Vocab {
    /// Reads the tables. Fails for a model without tokenizer.
    pub(crate) fn new(model: Arc<Model>) -> Result<Self, Error> {
        let bad = |what: &str| Error::new(ErrorKind::BadModel, what.to_owned());
        if model.vocab_type() == VocabType::None || model.n_vocab() == 0 {
            return Err(bad("the model file holds no tokenizer"));
        }
        let n_vocab = model.n_vocab();
        let mut vocab = Self {
            bytes: Vec::with_capacity(n_vocab as usize * 8),
            ends: Vec::with_capacity(n_vocab as usize),
            kinds: Vec::with_capacity(n_vocab as usize),
            is_eog: Vec::with_capacity(n_vocab as usize),
            eog: 0,
            markers: vec![Vec::new(); 256],
            adds_space: model.vocab_type() == VocabType::SentencePiece,
            longest_bytes: 1,
            model,
        };
        for token in 0..n_vocab {
            vocab.model.piece(token, &mut vocab.bytes);
            let start = vocab.ends.last().copied().unwrap_or(0);
            vocab.ends.push(vocab.bytes.len());
            vocab.longest_bytes = vocab.longest_bytes.max(vocab.bytes.len() - start);
            vocab.kinds.push(vocab.model.kind(token));
            vocab.is_eog.push(vocab.model.is_eog(token));
        }
        let first_eog = vocab.is_eog.iter().zip(0..).find(|e| *e.0).map(|e| e.1);
        let eos = vocab.model.eos().filter(|&t| vocab.ends_turn(t));
        vocab.eog = eos
            .or(first_eog)
            .ok_or_else(|| bad("the model's vocabulary has no token that ends a turn"))?;
        for token in 0..n_vocab {
            if vocab.is_marker(token) {
                let piece = vocab.piece(token).to_vec();
                vocab.markers[usize::from(piece[0])].push(piece);
            }
        }
        Ok(vocab)
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// The bytes of a token, control tokens spelled out; empty for an unknown id.
    pub(crate) fn piece(&self, token: TokenId) -> &[u8] {
        let idx = token as usize;
        let Some(&end) = self.ends.get(idx) else {
            return &[];
        };
        let start = if idx == 0 { 0 } else { self.ends[idx - 1] };
        &self.bytes[start..end]
    }

    /// The text of a token for people.
    pub(crate) fn text(&self, token: TokenId) -> String {
        String::from_utf8_lossy(self.piece(token)).into_owned()
    }

    /// What a token is for.
    pub(crate) fn kind(&self, token: TokenId) -> TokenKind {
        let kind = self.kinds.get(token as usize).copied();
        kind.unwrap_or(TokenKind::Unknown)
    }

    /// True if the token ends the model's turn.
    pub(crate) fn ends_turn(&self, token: TokenId) -> bool {
        self.is_eog.get(token as usize).copied().unwrap_or(false)
    }

    /// A token that ends the turn.
    pub(crate) fn eog(&self) -> TokenId {
        self.eog
    }

    /// Texts that must not be taken from untrusted text: all tokens that are control tokens
    /// or never split, longer than white space.
    pub(crate) fn control_strings(&self) -> Vec<String> {
        (0..self.len())
            .filter(|&t| self.kind(t) != TokenKind::Ordinary)
            .map(|t| self.text(t))
            .filter(|text| !text.trim().is_empty())
            .collect()
    }

    /// Control tokens that do not end a turn, and their texts.
    pub(crate) fn control_tokens(&self) -> Vec<(TokenId, String)> {
        (0..self.len())
            .filter(|&t| self.kind(t) == TokenKind::Control && !self.ends_turn(t))
            .map(|t| (t, self.text(t)))
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }

    /// True for user-defined tokens that plain text must not spell. White space runs (Gemma
    /// has many) and single characters mark nothing.
    fn is_marker(&self, token: TokenId) -> bool {
        let piece = self.piece(token);
        self.kind(token) == TokenKind::UserDefined
            && !piece.trim_ascii().is_empty()
            && std::str::from_utf8(piece).is_ok_and(|text| text.chars().nth(1).is_some())
    }

    /// A number of tokens that this prompt has at least, known from its bytes alone.
    pub(crate) fn least_tokens(&self, prompt: &Prompt) -> usize {
        let n_bytes: usize = prompt.segments.iter().map(|s| segment_text(s).len()).sum();
        n_bytes / self.longest_bytes
    }

    /// Tokens of a whole prompt, with the begin token where the model wants one and the
    /// text does not bring it.
    pub(crate) fn tokenize_prompt(&self, prompt: &Prompt) -> Result<Vec<TokenId>, Error> {
        let n_bytes: usize = prompt.segments.iter().map(|s| segment_text(s).len()).sum();
        if n_bytes > PROMPT_LIMIT_BYTES {
            return Err(Error::bad_request(
                "prompt",
                format!("must be at most {PROMPT_LIMIT_BYTES} bytes, got {n_bytes}"),
            ));
        }
        let mut tokens = Vec::with_capacity(n_bytes / 3 + 8);
        if self.model.add_bos()
            && let Some(bos) = self.model.bos()
            && !self.starts_with_token(prompt, bos)
        {
            tokens.push(bos);
        }
        let mut is_first = true;
        for segment in &prompt.segments {
            match segment {
                Segment::Markup(text) => self.tokenize_into(text, true, is_first, &mut tokens)?,
                Segment::Literal(text) => self.literal_into(text, is_first, &mut tokens)?,
            }
            is_first &= segment_text(segment).is_empty();
        }
        Ok(tokens)
    }

    /// Tokens of a text that continues another one, control tokens recognised.
    pub(crate) fn tokenize_more(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let mut tokens = Vec::new();
        self.tokenize_into(text, true, false, &mut tokens)?;
        Ok(tokens)
    }

    /// Tokens of a text as a model writes it: a marker such as `<tool_call>` is the one token
    /// that the model knows it by, and nothing is a control token.
    pub(crate) fn tokenize_written(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let mut tokens = Vec::new();
        self.tokenize_into(text, false, false, &mut tokens)?;
        Ok(tokens)
    }

    /// True for a marker that is the same token whatever follows it.
    pub(crate) fn is_whole_marker(&self, token: TokenId) -> bool {
        let piece = self.piece(token);
        let is_longer = |marker: &Vec<u8>| marker.len() > piece.len() && marker.starts_with(piece);
        self.is_marker(token) && !self.markers[usize::from(piece[0])].iter().any(is_longer)
    }

    fn starts_with_token(&self, prompt: &Prompt, token: TokenId) -> bool {
        let piece = self.piece(token);
        match prompt.segments.iter().find(|s| !segment_text(s).is_empty()) {
            Some(Segment::Markup(text)) if !piece.is_empty() => text.as_bytes().starts_with(piece),
            _ => false,
        }
    }

    /// Cuts every marker after its first character, so that the tokenizer cannot see it.
    fn literal_into(
        &self,
        text: &str,
        is_first: bool,
        tokens: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        let bytes = text.as_bytes();
        let mut start = 0;
        for (at, ch) in text.char_indices() {
            let markers = &self.markers[usize::from(bytes[at])];
            let is_marked = markers.iter().any(|m| bytes[at..].starts_with(m));
            if is_marked {
                let cut = at + ch.len_utf8();
                self.tokenize_into(&text[start..cut], false, is_first && start == 0, tokens)?;
                start = cut;
            }
        }
        self.tokenize_into(&text[start..], false, is_first && start == 0, tokens)
    }

    /// `is_first`: the text begins the prompt. SentencePiece puts a space before every text
    /// that it is given; inside a prompt that space is wrong and is taken away.
    fn tokenize_into(
        &self,
        text: &str,
        parse_control: bool,
        is_first: bool,
        tokens: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        let start = tokens.len();
        self.model
            .tokenize(text, parse_control, tokens)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the tokenizer failed"))?;
        let adds_space = self.adds_space && !is_first && !text.starts_with(' ');
        if adds_space && tokens.get(start).is_some_and(|&t| self.piece(t) == b" ") {
            tokens.remove(start);
        }
        Ok(())
    }
}

fn segment_text(segment: &Segment) -> &str {
    match segment {
        Segment::Markup(text) | Segment::Literal(text) => text,
    }
}
