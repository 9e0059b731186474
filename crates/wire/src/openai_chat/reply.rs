use serde::Serialize;
use twopass_core::chat::{Reply, StopReason, Usage};

use super::request::encode_call;
use super::stream::StreamDecoder;
use crate::fault::Fault;
use crate::invalid_calls::{INVALID_CALLS, some_invalid_calls};
use crate::json::{Lenient, Object, array, text_of};
use crate::logprobs;
use crate::request::{DecodeContext, ReplyMeta};

/// Reads a whole answer. It is read as a stream of one piece, so that both agree.
///
/// # Errors
/// The body is not JSON, holds an error, or has no choices.
pub fn decode_reply(body: &[u8], context: DecodeContext) -> Result<Reply, Fault> {
    let mut decoder = StreamDecoder::new(context);
    decoder.push_whole(body, &mut Vec::new())?;
    decoder.finish(&mut Vec::new())
}

/// Writes a whole answer: the server side. Reasoning stands in `reasoning_content` and in
/// `reasoning`, since clients look for either.
#[must_use]
pub fn encode_reply(reply: &Reply, meta: &ReplyMeta) -> String {
    encode_choices(std::slice::from_ref(reply), meta)
}

/// Writes the whole answers to a request for several (`n`). The prompt counts once.
#[must_use]
pub fn encode_choices(replies: &[Reply], meta: &ReplyMeta) -> String {
    let choices: Vec<String> = replies.iter().enumerate().map(encode_choice).collect();
    let mut body = Object::default();
    body.text("id", &meta.id);
    body.text("object", "chat.completion");
    body.count("created", meta.created_s);
    body.text("model", &meta.model);
    body.raw("choices", &array(&choices));
    let usages = replies.iter().map(|reply| reply.usage);
    body.raw("usage", &text_of(&usage_body(&Usage::of_choices(usages))));
    body.finish()
}

fn encode_choice((idx, reply): (usize, &Reply)) -> String {
    let mut message = Object::default();
    message.text("role", "assistant");
    if reply.content.is_empty() && !reply.tool_calls.is_empty() {
        message.raw("content", "null");
    } else {
        message.text("content", &reply.content);
    }
    message.raw("refusal", "null");
    if !reply.reasoning.is_empty() {
        message.text("reasoning_content", &reply.reasoning);
        message.text("reasoning", &reply.reasoning);
    }
    if !reply.tool_calls.is_empty() {
        let calls: Vec<_> = reply
            .tool_calls
            .iter()
            .map(|call| encode_call(&call.id, &call.name, call.arguments.as_text(), None))
            .collect();
        message.raw("tool_calls", &array(&calls));
    }
    if let Some(calls) = some_invalid_calls(reply) {
        message.value(INVALID_CALLS, &calls);
    }
    let mut choice = Object::default();
    choice.count("index", idx as u64);
    choice.raw("message", &message.finish());
    choice.raw("logprobs", &logprobs::chat_json(&reply.logprobs));
    choice.text("finish_reason", finish_reason(&reply.stop_reason));
    choice.finish()
}

/// The finish reason on OpenAI's wires, which know no others than these.
pub(crate) fn finish_reason(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::Length => "length",
        StopReason::ToolCalls => "tool_calls",
        StopReason::ContentFilter => "content_filter",
        _ => "stop",
    }
}

/// Reads a finish reason in any spelling that was seen (row H11). `None` = none yet.
pub(crate) fn read_stop(reason: &str, stop_string: Option<String>) -> Option<StopReason> {
    Some(match reason {
        "" => return None,
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "complete" | "completed"
        | "finished" => match stop_string {
            Some(stop) => StopReason::StopSequence(stop),
            None => StopReason::EndTurn,
        },
        "length"
        | "max_tokens"
        | "model_length"
        | "max_output_tokens"
        | "limit"
        | "model_context_window_exceeded" => StopReason::Length,
        "tool_calls" | "tool_use" | "function_call" | "tool_call" => StopReason::ToolCalls,
        "content_filter" | "safety" | "refusal" | "recitation" | "sensitive" => {
            StopReason::ContentFilter
        }
        "abort" | "cancelled" | "canceled" => StopReason::Cancelled,
        other => StopReason::Unknown(other.to_owned()),
    })
}

pub(crate) fn usage_body(usage: &Usage) -> UsageBody {
    let completion_tokens = usage.thinking_tokens + usage.response_tokens;
    UsageBody {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens,
        total_tokens: usage.prompt_tokens + completion_tokens,
        prompt_tokens_details: PromptTokens {
            cached_tokens: usage.cached_tokens,
        },
        completion_tokens_details: CompletionTokens {
            reasoning_tokens: usage.thinking_tokens,
        },
    }
}

/// Usage as OpenAI's wires have it.
#[derive(Serialize)]
pub(crate) struct UsageBody {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokens,
    completion_tokens_details: CompletionTokens,
}

#[derive(Serialize)]
struct PromptTokens {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct CompletionTokens {
    reasoning_tokens: u64,
}

/// Reads usage in OpenAI's form and its relatives'. Some count reasoning outside of the
/// completion; the total shows it.
pub(crate) fn read_usage(usage: &Lenient<'_>) -> Usage {
    let first = |names: &[&str]| names.iter().find_map(|name| usage.count(name));
    let nested = |outer: &[&str], name: &str| {
        outer
            .iter()
            .find_map(|outer| usage.object(outer)?.count(name))
    };
    let prompt = first(&["prompt_tokens", "input_tokens"]).unwrap_or(0);
    let completion = first(&["completion_tokens", "output_tokens"]).unwrap_or(0);
    let details = ["completion_tokens_details", "output_tokens_details"];
    let reasoning = nested(&details, "reasoning_tokens")
        .or_else(|| usage.count("reasoning_tokens"))
        .unwrap_or(0);
    let is_outside =
        reasoning > 0 && usage.count("total_tokens") == Some(prompt + completion + reasoning);
    Usage {
        prompt_tokens: prompt,
        thinking_tokens: if is_outside {
            reasoning
        } else {
            reasoning.min(completion)
        },
        response_tokens: if is_outside {
            completion
        } else {
            completion.saturating_sub(reasoning)
        },
        cached_tokens: nested(
            &["prompt_tokens_details", "input_tokens_details"],
            "cached_tokens",
        )
        .or_else(|| first(&["prompt_cache_hit_tokens", "cached_tokens"]))
        .unwrap_or(0),
    }
}
