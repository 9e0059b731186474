//! A run as JSON lines: one object per event, each with the member `event`.
//!
//! ```text
//! start        kind, provider, model, tools, task
//! step         step                                    the model is asked
//! turn         step, and the body of a /generate reply: thinking, response, tool_calls, ...
//! tool_call    id, name, arguments                     it runs
//! tool_result  id, name, is_error, error_kind, content, truncated, duration_ms
//! nudge        kind, level, text
//! compacted    tier, tokens_before, tokens_after, n_dropped
//! context      percent
//! memory       attempt, error, revision, usage
//! end          stop_reason, answer, n_steps, usage, error
//! ```
//! The shape is the same whatever the provider (row I10).

use serde_json::{Value, json};
use twopass_core::chat::{ToolCall, Usage};
use twopass_tools::ToolOutput;
use twopass_wire::generate::encode_reply;

use crate::{AgentEvent, Conversation, Outcome};

/// The first line of a trace.
#[must_use]
pub fn start_line(conversation: &Conversation, task: &str) -> String {
    let agent = conversation.agent();
    let specs = agent.tools().specs();
    let tools: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    json!({
        "event": "start",
        "kind": conversation.kind().as_str(),
        "provider": agent.provider().name(),
        "model": agent.provider().model_name(),
        "tools": tools,
        "task": task,
    })
    .to_string()
}

/// The line of an event; `None` for those that other lines hold: deltas, questions for
/// consent.
#[must_use]
pub fn event_line(event: &AgentEvent) -> Option<String> {
    let value = match event {
        AgentEvent::Delta(_) | AgentEvent::ConsentNeeded { .. } => return None,
        AgentEvent::StepStarted { step } => json!({"event": "step", "step": step}),
        AgentEvent::StepFinished { step, reply } => {
            let head = json!({"event": "turn", "step": step});
            return Some(joined(&head, &encode_reply(reply)));
        }
        AgentEvent::CallStarted { call } => return Some(call_line(call)),
        AgentEvent::CallFinished { call, output } => result_value(call, output),
        AgentEvent::Nudged(nudge) => json!({
            "event": "nudge", "kind": nudge.kind.as_str(), "level": nudge.level,
            "text": nudge.text,
        }),
        AgentEvent::Compacted(done) => json!({
            "event": "compacted", "tier": done.tier, "tokens_before": done.tokens_before,
            "tokens_after": done.tokens_after, "n_dropped": done.n_dropped,
        }),
        AgentEvent::ContextFilling { percent } => json!({"event": "context", "percent": percent}),
        AgentEvent::MemoryUpdated {
            attempt,
            error,
            revision,
            usage,
        } => json!({
            "event": "memory", "attempt": attempt, "error": error, "revision": revision,
            "usage": usage_value(usage),
        }),
        AgentEvent::Ended(outcome) => end_value(outcome),
    };
    Some(value.to_string())
}

/// The outcome as one object, also for `--json`.
#[must_use]
pub fn end_value(outcome: &Outcome) -> Value {
    let error = outcome
        .error
        .as_ref()
        .map(|error| json!({"kind": error.kind().as_str(), "message": error.to_string()}));
    json!({
        "event": "end",
        "stop_reason": outcome.end.as_str(),
        "answer": outcome.answer,
        "n_steps": outcome.n_steps,
        "usage": usage_value(&outcome.usage),
        "error": error,
    })
}

/// The arguments as the model wrote them: numbers beyond 64 bits stay what they are.
fn call_line(call: &ToolCall) -> String {
    let head = json!({"event": "tool_call", "id": call.id, "name": call.name});
    let arguments = format!("{{\"arguments\":{}}}", call.arguments.as_text());
    joined(&head, &arguments)
}

fn result_value(call: &ToolCall, output: &ToolOutput) -> Value {
    json!({
        "event": "tool_result",
        "id": call.id,
        "name": call.name,
        "is_error": output.is_error(),
        "error_kind": output.error.map(|kind| kind.as_str()),
        "content": output.text,
        "truncated": output.truncated,
        "duration_ms": u64::try_from(output.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

fn usage_value(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "thinking_tokens": usage.thinking_tokens,
        "response_tokens": usage.response_tokens,
        "cached_tokens": usage.cached_tokens,
    })
}

/// Two objects that are not empty as one, the second one's text untouched.
fn joined(head: &Value, object: &str) -> String {
    let head = head.to_string();
    let (head, tail) = (head.trim_end_matches('}'), object.trim_start_matches('{'));
    format!("{head},{tail}")
}
