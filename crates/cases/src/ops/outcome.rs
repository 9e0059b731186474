//! What came of a client's turns, and whether it is what the case expects.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use twopass_core::chat::Reply;
use twopass_provider::ProviderError;
use twopass_replay::Request;

use super::client::{check_body, check_request};
use crate::expect::{any_of, calls, in_time};
use crate::matchers::{check, shorten};

/// How one turn ended.
pub(super) struct Ended {
    pub(super) reply: Result<Reply, ProviderError>,
}

/// All that can be told of a run.
pub(super) struct Outcome {
    /// The last turn.
    pub(super) ended: Ended,
    /// The first of two turns.
    pub(super) first_message: Option<Ended>,
    pub(super) elapsed: Duration,
    pub(super) requests: Vec<Request>,
}

impl Outcome {
    /// `Err` tells the first difference from the case's `expect`.
    pub(super) fn meets(&self, expect: &Value) -> Result<(), String> {
        let Value::Object(keys) = expect else {
            return Err("`expect` is no object".to_owned());
        };
        let may_fail = ["error", "one_of"]
            .iter()
            .any(|key| keys.contains_key(*key));
        if let (Err(error), false) = (&self.ended.reply, may_fail) {
            return Err(format!(
                "the turn failed: {}: {error}",
                error.kind().as_str()
            ));
        }
        for (key, wanted) in keys {
            self.one(key, wanted)
                .map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(())
    }

    fn one(&self, key: &str, wanted: &Value) -> Result<(), String> {
        let empty = Reply::default();
        let reply = self.ended.reply.as_ref().unwrap_or(&empty);
        match key {
            "one_of" => any_of(wanted, |one| self.meets(one)),
            "message" => check_message(wanted, reply),
            "first_message" => match &self.first_message {
                Some(Ended { reply: Ok(reply) }) => check_message(wanted, reply),
                _ => Err("there is no first answer".to_owned()),
            },
            "error" => match &self.ended.reply {
                Err(error) => check_error(wanted, error),
                Ok(reply) => Err(format!("expected an error, got {}", message_json(reply))),
            },
            "partial" => match &self.ended.reply {
                Err(error) => check_message(wanted, error.partial().unwrap_or(&empty)),
                Ok(_) => Err("the turn did not fail".to_owned()),
            },
            "answer_missing" => check(wanted, Some(&json!(reply.answer_missing())), wanted),
            "ids_unique" => {
                let ids: HashSet<_> = reply.tool_calls.iter().map(|call| &call.id).collect();
                let all =
                    ids.len() == reply.tool_calls.len() && ids.iter().all(|id| !id.is_empty());
                check(wanted, Some(&json!(all)), wanted)
            }
            "invalid_tool_calls" => {
                let got: Vec<Value> = reply
                    .invalid_tool_calls
                    .iter()
                    .map(|call| json!({"id": call.id, "name": call.name, "error_kind": call.kind.as_str()}))
                    .collect();
                check(wanted, Some(&json!(got)), wanted)
            }
            "replayable_contains" => every(wanted, |text| {
                let items = reply.to_message().provider_items;
                items.iter().any(|item| item.json.contains(text))
            }),
            "warnings_contain" => every(wanted, |text| {
                reply.diagnostics.iter().any(|d| d.message.contains(text))
            }),
            "upstream_calls" => check(wanted, Some(&json!(self.requests.len())), wanted),
            "requests" => {
                for (idx, wanted) in wanted.as_array().into_iter().flatten().enumerate() {
                    let request = self.requests.get(idx);
                    let request = request.ok_or_else(|| format!("request {idx} was not sent"))?;
                    check_request(wanted, &request.json())
                        .map_err(|why| format!("request {idx}: {why}"))?;
                }
                Ok(())
            }
            "max_ms" | "min_elapsed_ms" => {
                in_time(key, wanted, self.elapsed.as_secs_f64() * 1000.0)
            }
            "panics" | "exact" => Ok(()),
            key => {
                let last = self.requests.last().ok_or("nothing was sent")?;
                check_body(key, wanted, &String::from_utf8_lossy(&last.body))
            }
        }
    }

    /// `Err` tells where another run of the same case gave something else.
    pub(super) fn same(&self, whole: &Self, how: &str) -> Result<(), String> {
        let bodies =
            |outcome: &Self| -> Vec<Value> { outcome.requests.iter().map(Request::json).collect() };
        if bodies(self) != bodies(whole) {
            return Err(format!("{how} other requests leave"));
        }
        if let (Some(first), Some(first_whole)) = (&self.first_message, &whole.first_message) {
            first.same(first_whole, how)?;
        }
        self.ended.same(&whole.ended, how)
    }
}

impl Ended {
    /// `Err` tells what is not as in another run.
    pub(super) fn same(&self, whole: &Self, how: &str) -> Result<(), String> {
        let (got, wanted) = (ended_json(&self.reply), ended_json(&whole.reply));
        if got == wanted {
            return Ok(());
        }
        let (got, wanted) = (got.to_string(), wanted.to_string());
        Err(format!(
            "{how} it gives {}, whole {}",
            shorten(&got),
            shorten(&wanted)
        ))
    }
}

fn ended_json(reply: &Result<Reply, ProviderError>) -> Value {
    match reply {
        Ok(reply) => message_json(reply),
        Err(error) => json!({
            "kind": error.kind().as_str(), "message": without_ports(error.message()),
            "partial": error.partial().map(message_json),
        }),
    }
}

/// A message that names the server's address is the same for every server.
fn without_ports(message: &str) -> String {
    message
        .split_inclusive(' ')
        .filter(|word| !word.contains("127.0.0.1:"))
        .collect()
}

fn message_json(reply: &Reply) -> Value {
    let usage = &reply.usage;
    let calls = reply.tool_calls.iter().map(
        |call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.as_object()}),
    );
    json!({
        "content": reply.content,
        "thinking": reply.reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
        "invalid": reply.invalid_tool_calls.len(),
        "finish_reason": reply.stop_reason.as_str(),
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.thinking_tokens + usage.response_tokens,
            "reasoning_tokens": usage.thinking_tokens,
        },
    })
}

fn check_message(wanted: &Value, reply: &Reply) -> Result<(), String> {
    let got = message_json(reply);
    for (key, wanted) in wanted.as_object().into_iter().flatten() {
        let result = match (key.as_str(), wanted) {
            ("content" | "thinking", Value::String(text)) => {
                let got = got[key].as_str().unwrap_or_default();
                match text.trim() == got.trim() {
                    true => Ok(()),
                    false => Err(format!("expected `{text}`, got `{}`", shorten(got))),
                }
            }
            ("tool_calls", wanted) => calls(wanted, &got["tool_calls"]),
            (key, wanted) => check(wanted, got.get(key), &got),
        };
        result.map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(())
}

pub(super) fn check_error(wanted: &Value, error: &ProviderError) -> Result<(), String> {
    let message = error.message();
    let got = json!({
        "kind": error.kind().as_str(),
        "status": error.status(),
        "retryable": error.is_retryable(),
        "retry_after_s": error.retry_after().map(|wait| wait.as_secs_f64()),
        "message": message,
    });
    for (key, wanted) in wanted.as_object().into_iter().flatten() {
        let result = match key.as_str() {
            "message_contains" => every(wanted, |text| message.contains(text)),
            "message_max_len" => check(&json!({"$max_len": wanted}), got.get("message"), &got),
            key => check(wanted, got.get(key), &got),
        };
        result.map_err(|why| format!("{key}: {why} in {got}"))?;
    }
    Ok(())
}

fn every(texts: &Value, holds: impl Fn(&str) -> bool) -> Result<(), String> {
    let texts = match texts {
        Value::Array(texts) => texts.as_slice(),
        one => std::slice::from_ref(one),
    };
    for text in texts.iter().filter_map(Value::as_str) {
        if !holds(text) {
            return Err(format!("`{text}` is not there"));
        }
    }
    Ok(())
}
