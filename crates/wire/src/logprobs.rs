//! Probabilities of tokens, as Chat Completions and the old Completions have them.
//!
//! Source: OpenAI's API reference, `logprobs` of both, read 2026-01.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use twopass_core::chat::{BadRequest, MAX_TOP_LOGPROBS, TokenLogprob, TopLogprob};

use crate::json::{Fields, Lenient};

/// What is written for a probability of 0: JSON knows no infinity.
const LEAST_LOGPROB: f32 = -9999.0;

/// Reads `logprobs` (a switch) and `top_logprobs` (a number) of Chat Completions.
pub(crate) fn read_switch(fields: &Fields<'_>) -> Result<Option<u32>, BadRequest> {
    let is_on = fields.boolean("logprobs")?.unwrap_or(false);
    let n_top = fields.whole("top_logprobs", 0, u64::from(MAX_TOP_LOGPROBS))?;
    match n_top {
        Some(n_top) if n_top > 0 && !is_on => Err(BadRequest::new(
            "top_logprobs",
            format!("needs `logprobs: true`, got {n_top} without it"),
        )),
        _ => Ok(is_on.then(|| count(n_top.unwrap_or(0)))),
    }
}

/// Reads `logprobs` (a number) of Completions.
pub(crate) fn read_number(fields: &Fields<'_>) -> Result<Option<u32>, BadRequest> {
    let n_top = fields.whole("logprobs", 0, u64::from(MAX_TOP_LOGPROBS))?;
    Ok(n_top.map(count))
}

fn count(n_top: u64) -> u32 {
    u32::try_from(n_top).unwrap_or(MAX_TOP_LOGPROBS)
}

/// The `logprobs` of a choice of Chat Completions as JSON text; null without tokens.
pub(crate) fn chat_json(tokens: &[TokenLogprob]) -> Cow<'static, str> {
    if tokens.is_empty() {
        return "null".into();
    }
    let one = |bytes: &[u8], logprob: f32| json!({"token": String::from_utf8_lossy(bytes), "logprob": number(logprob), "bytes": bytes});
    let content = tokens.iter().map(|token| {
        let top = token.top.iter().map(|top| one(&top.bytes, top.logprob));
        let mut entry = one(&token.bytes, token.logprob);
        entry["top_logprobs"] = top.collect();
        entry
    });
    let content: Vec<Value> = content.collect();
    json!({"content": content, "refusal": null})
        .to_string()
        .into()
}

/// Reads the tokens of a choice of Chat Completions; what cannot be read is left out.
pub(crate) fn read_tokens(logprobs: &Lenient<'_>) -> Vec<TokenLogprob> {
    let content = logprobs.list("content").into_iter();
    let tokens = content.filter_map(|token| {
        let token = Lenient::read(token)?;
        let top = token.list("top_logprobs").into_iter();
        let top = top.filter_map(|top| {
            let (bytes, logprob) = read_token(&Lenient::read(top)?)?;
            Some(TopLogprob { bytes, logprob })
        });
        let (bytes, logprob) = read_token(&token)?;
        Some(TokenLogprob {
            bytes,
            logprob,
            top: top.collect(),
        })
    });
    tokens.collect()
}

/// Reads the tokens of the field `logprobs`, if there is one.
pub(crate) fn read_field(fields: &Fields<'_>) -> Vec<TokenLogprob> {
    let logprobs = fields.raw("logprobs").and_then(Lenient::read);
    logprobs.map_or_else(Vec::new, |logprobs| read_tokens(&logprobs))
}

/// A token's bytes, where they are told, else its text's.
fn read_token(token: &Lenient<'_>) -> Option<(Vec<u8>, f32)> {
    let bytes = token
        .raw("bytes")
        .and_then(|raw| serde_json::from_str(raw).ok());
    let bytes = bytes.or_else(|| token.text("token").map(String::into_bytes))?;
    Some((bytes, serde_json::from_str(token.raw("logprob")?).ok()?))
}

/// The `logprobs` of a choice of Completions; null without tokens. `start`: characters of the
/// text before them.
pub(crate) fn completion_json(tokens: &[TokenLogprob], start: usize) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    let mut offset = start;
    let offsets = tokens.iter().map(|token| {
        let at = offset;
        offset += n_characters(&token.bytes);
        at
    });
    let offsets: Vec<usize> = offsets.collect();
    let texts: Vec<_> = tokens.iter().map(|token| text(&token.bytes)).collect();
    let logprobs: Vec<_> = tokens.iter().map(|token| number(token.logprob)).collect();
    let tops: Vec<Value> = tokens.iter().map(|token| top_map(&token.top)).collect();
    let has_top = tokens.iter().any(|token| !token.top.is_empty());
    json!({
        "tokens": texts,
        "token_logprobs": logprobs,
        "top_logprobs": if has_top { tops.into() } else { Value::Null },
        "text_offset": offsets,
    })
}

/// Characters that begin in these bytes: all of a text's, however it is cut into tokens.
pub(crate) fn n_characters(bytes: &[u8]) -> usize {
    let is_start = |byte: &&u8| **byte & 0b1100_0000 != 0b1000_0000;
    bytes.iter().filter(is_start).count()
}

fn top_map(top: &[TopLogprob]) -> Value {
    let mut map = Map::new();
    // Of parts of characters that read alike the likeliest counts.
    for token in top {
        map.entry(text(&token.bytes))
            .or_insert_with(|| number(token.logprob));
    }
    map.into()
}

/// Bytes as text; what is no character of its own as OpenAI spells it (`bytes:\xe2\x82`).
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", escaped.collect::<String>())
        }
    }
}

fn number(logprob: f32) -> Value {
    // The shortest decimal that reads back as the same single.
    let finite = logprob.max(LEAST_LOGPROB);
    crate::json::decimal(if finite.is_nan() {
        LEAST_LOGPROB
    } else {
        finite
    })
}
