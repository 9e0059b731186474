//! One stream of one server, timed.

use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::client::{self, Event};
use crate::server::Server;

use super::machine::cpu_seconds;

/// Who is asked.
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) server: Server,
    pub(super) is_ours: bool,
    /// Streams that it works on at a time, at most.
    pub(super) max_streams: usize,
    /// The model's name there.
    pub(super) model: &'static str,
}

/// What is asked, beside the prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// Any text; nothing that was computed before is used.
    Text,
    /// Any text; what is cached may be used.
    Cached,
    /// Text bound to a schema that cannot end before the cap.
    Grammar,
    /// A thought of at most so many tokens, then the answer. Others are asked for as many
    /// tokens in one pass.
    Thinking(u32),
}

/// A conversation with its caps.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) system: Option<String>,
    pub(super) prompt: String,
    pub(super) tokens: u32,
    pub(super) mode: Mode,
}

/// What one stream did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) started: Instant,
    pub(super) first: Instant,
    pub(super) ended: Instant,
    pub(super) prompt_tokens: u64,
    pub(super) tokens: u64,
}

/// What all streams of a run did together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// Prompt tokens per second, until each stream has its first token.
    pub(super) prefill: f64,
    /// Tokens per second: of one stream after its first token, of several from the start.
    pub(super) generation: f64,
    /// Until each stream has its first token.
    pub(super) first_ms: f64,
    pub(super) total_ms: f64,
    /// Prompt tokens computed.
    pub(super) prompt_tokens: u64,
    pub(super) tokens: u64,
    /// Processor seconds of the server for all of it.
    pub(super) cpu: f64,
}

/// Tokens that are asked for where only the first one is measured.
pub(super) const FIRST_TOKENS: u32 = 8;

/// Asks a server all questions at once.
pub(super) fn measure(side: &Side, questions: &[Question]) -> anyhow::Result<Rates> {
    let cpu = cpu_seconds(side.server.pid())?;
    let timings: Vec<Timing> = std::thread::scope(|scope| {
        let streams: Vec<_> = questions
            .iter()
            .map(|question| scope.spawn(move || ask(side, question)))
            .collect();
        streams
            .into_iter()
            .map(|stream| stream.join().unwrap_or_else(|_| bail!("a stream panicked")))
            .collect::<anyhow::Result<_>>()
    })
    .with_context(|| format!("{} failed", side.name))?;
    let cpu = cpu_seconds(side.server.pid())? - cpu;
    let rates = rates(&timings).context("no stream was measured")?;
    Ok(Rates { cpu, ..rates })
}

fn rates(timings: &[Timing]) -> Option<Rates> {
    let started = timings.iter().map(|timing| timing.started).min()?;
    let all_first = timings.iter().map(|timing| timing.first).max()?;
    let ended = timings.iter().map(|timing| timing.ended).max()?;
    let prompt_tokens: u64 = timings.iter().map(|timing| timing.prompt_tokens).sum();
    let tokens: u64 = timings.iter().map(|timing| timing.tokens).sum();
    let first = (all_first - started).as_secs_f64();
    let total = (ended - started).as_secs_f64();
    let generation = match timings {
        // The first token belongs to the prefill.
        [one] => one.tokens.saturating_sub(1) as f64 / (one.ended - one.first).as_secs_f64(),
        _ => tokens as f64 / total,
    };
    Some(Rates {
        prefill: prompt_tokens as f64 / first,
        generation,
        first_ms: first * 1000.0,
        total_ms: total * 1000.0,
        prompt_tokens,
        tokens,
        cpu: 0.0,
    })
}

fn ask(side: &Side, question: &Question) -> anyhow::Result<Timing> {
    let (path, body) = request(side, question);
    let started = Instant::now();
    let (mut first, mut last, mut usage) = (None, started, None);
    client::post(&side.server.address, path, &body, |event| {
        if event.name == "error" || event.data.get("error").is_some() {
            bail!("the server reported {}", event.data);
        }
        last = event.at;
        if has_output(&event) {
            first.get_or_insert(event.at);
        }
        if event.data["usage"].is_object() {
            usage = Some(event.data["usage"].clone());
        }
        Ok(())
    })?;
    let usage = usage.context("the server reported no usage")?;
    let (prompt_tokens, tokens) = counts(&usage);
    // A server may hold a demanded form back until it is whole.
    let first = first.unwrap_or(last);
    // A model may end its turn at once; then the end came when the first token would have.
    if tokens < 2 && question.tokens > FIRST_TOKENS {
        bail!("the server generated {tokens} token(s), too few to measure");
    }
    Ok(Timing {
        started,
        first,
        ended: last,
        prompt_tokens,
        tokens,
    })
}

/// Path and body of a question. Two passes are asked for by our own format, everything else by
/// Chat Completions, as of all others.
fn request(side: &Side, question: &Question) -> (&'static str, Value) {
    let mut messages = vec![json!({"role": "user", "content": question.prompt})];
    if let Some(system) = &question.system {
        messages.insert(0, json!({"role": "system", "content": system}));
    }
    let mut body = json!({
        "model": side.model,
        "messages": messages,
        "stream": true,
        "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 7,
    });
    if let (Mode::Thinking(budget), true) = (question.mode, side.is_ours) {
        body["two_pass"] = json!(true);
        body["max_thinking_tokens"] = json!(budget);
        body["max_response_tokens"] = json!(question.tokens);
        return ("/generate", body);
    }
    let thought = match question.mode {
        Mode::Thinking(budget) => budget,
        _ => 0,
    };
    body["max_tokens"] = json!(question.tokens + thought);
    body["stream_options"] = json!({"include_usage": true});
    if question.mode == Mode::Grammar {
        let schema = json!({
            "type": "object", "required": ["chapters"], "additionalProperties": false,
            "properties": {"chapters": {"type": "array", "items": {"type": "string"}, "minItems": 500}},
        });
        let form = json!({"name": "story", "schema": schema, "strict": true});
        body["response_format"] = json!({"type": "json_schema", "json_schema": form});
    } else if !side.is_ours {
        body["ignore_eos"] = json!(true);
    }
    if !side.is_ours {
        body["cache_prompt"] = json!(question.mode == Mode::Cached);
    }
    ("/v1/chat/completions", body)
}

/// A piece of text or of a thought, in either format.
fn has_output(event: &Event) -> bool {
    let delta = &event.data["choices"][0]["delta"];
    matches!(event.name.as_str(), "text" | "thinking")
        || delta["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        || delta["reasoning_content"].is_string()
}

/// Prompt tokens that were computed, and tokens generated, in either format.
fn counts(usage: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cached =
        number(&usage["cached_tokens"]) + number(&usage["prompt_tokens_details"]["cached_tokens"]);
    let tokens = match &usage["completion_tokens"] {
        Value::Null => number(&usage["thinking_tokens"]) + number(&usage["response_tokens"]),
        tokens => number(tokens),
    };
    (
        number(&usage["prompt_tokens"]).saturating_sub(cached),
        tokens,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_of_one_and_of_several_streams() {
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let timing = |first, ended| Timing {
            started,
            first: at(first),
            ended: at(ended),
            prompt_tokens: 100,
            tokens: 21,
        };
        let one = rates(&[timing(2, 12)]).unwrap();
        assert!((one.prefill - 50.0).abs() < 1e-9 && (one.generation - 2.0).abs() < 1e-9);
        assert!((one.first_ms - 2000.0).abs() < 1e-9 && (one.total_ms - 12_000.0).abs() < 1e-9);
        let two = rates(&[timing(1, 6), timing(4, 12)]).unwrap();
        assert!((two.prefill - 50.0).abs() < 1e-9 && (two.generation - 3.5).abs() < 1e-9);
        assert!(rates(&[]).is_none());
    }

    #[test]
    fn usage_of_both_formats() {
        let own = json!({"prompt_tokens": 90, "cached_tokens": 40, "thinking_tokens": 8, "response_tokens": 4});
        assert_eq!(counts(&own), (50, 12));
        let chat = json!({"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}});
        assert_eq!(counts(&chat), (80, 7));
    }
}
