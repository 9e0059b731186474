//! What came of the requests, and whether it is what the case expects.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Reply;
use super::engine::Log;
use super::stream;
use crate::expect::{any_of, in_time};
use crate::matchers::{check, shorten};

/// All that can be told of a run.
pub(super) struct Outcome {
    pub(super) replies: Vec<Reply>,
    pub(super) elapsed: Duration,
    /// How long after the client's leaving the engine was free.
    pub(super) cancelled: Option<Duration>,
    pub(super) log: Log,
    pub(super) is_alive: bool,
}

impl Outcome {
    /// `Err` tells the first difference from the case's `expect`.
    pub(super) fn meets(&self, expect: &Value) -> Result<(), String> {
        let Value::Object(keys) = expect else {
            return Err("`expect` is no object".to_owned());
        };
        for (key, wanted) in keys {
            self.one(key, wanted).map_err(|why| {
                let bodies = self.replies.iter().map(|reply| reply.text());
                let bodies: Vec<String> = bodies.collect();
                format!("{key}: {why} in {}", shorten(&bodies.join(" / ")))
            })?;
        }
        Ok(())
    }

    fn one(&self, key: &str, wanted: &Value) -> Result<(), String> {
        let last = self.replies.last().ok_or("nothing was sent")?;
        match key {
            "one_of" => any_of(wanted, |one| self.meets(one)),
            "status" => self
                .replies
                .iter()
                .try_for_each(|reply| check(wanted, Some(&json!(reply.status)), wanted)),
            "headers" => {
                let headers: Value = last.headers.iter().cloned().collect();
                for (name, wanted) in wanted.as_object().into_iter().flatten() {
                    check(wanted, headers.get(name.to_ascii_lowercase()), wanted)
                        .map_err(|why| format!("{name}: {why}"))?;
                }
                Ok(())
            }
            "body" => {
                let body = last.json()?;
                for (pointer, wanted) in wanted.as_object().into_iter().flatten() {
                    check(wanted, body.pointer(pointer), &body)
                        .map_err(|why| format!("{pointer}: {why}"))?;
                }
                Ok(())
            }
            "body_is_json" => {
                let is_json = last.json().is_ok();
                check(wanted, Some(&json!(is_json)), wanted)
            }
            "body_contains" => every(wanted, |text| last.text().contains(text)),
            "body_not_contains" => every(wanted, |text| !last.text().contains(text)),
            "warnings_contain" => {
                let body = last.json()?;
                let warnings = format!("{} {}", body["diagnostics"], body["invalid_tool_calls"]);
                every(wanted, |text| warnings.contains(text))
            }
            "sse" => stream::meets(wanted, &last.body),
            "prompt_contains" => every(wanted, |text| self.in_prompts(text)),
            "prompt_not_contains" => every(wanted, |text| !self.in_prompts(text)),
            "calls" => check(wanted, Some(&json!(self.log.passes.len())), wanted),
            "distinct_pointers" => self.distinct(wanted),
            "server_alive" => check(wanted, Some(&json!(self.is_alive)), wanted),
            "engine_cancelled_within_ms" => {
                let cancelled = self
                    .cancelled
                    .ok_or("the turn went on without its client")?;
                let took = json!(cancelled.as_secs_f64() * 1000.0);
                check(&json!({"$lte": wanted}), Some(&took), wanted)
            }
            "max_ms" | "min_elapsed_ms" => {
                in_time(key, wanted, self.elapsed.as_secs_f64() * 1000.0)
            }
            "panics" | "exact" => Ok(()),
            _ => Err("this adapter does not know it".to_owned()),
        }
    }

    /// True if the path is none of the server's.
    pub(super) fn is_absent(&self) -> bool {
        self.replies.iter().any(|reply| reply.status == 404)
    }

    fn in_prompts(&self, text: &str) -> bool {
        self.log.prompts.iter().any(|prompt| prompt.contains(text))
    }

    /// No two answers have the same at a pointer, and none has nothing.
    fn distinct(&self, pointers: &Value) -> Result<(), String> {
        for pointer in pointers
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let mut seen = HashSet::new();
            for reply in &self.replies {
                let body = reply.json()?;
                let value = body.pointer(pointer).filter(|value| !value.is_null());
                let value = value.ok_or_else(|| format!("nothing at `{pointer}`"))?;
                if !seen.insert(value.to_string()) {
                    return Err(format!("{value} twice at `{pointer}`"));
                }
            }
        }
        Ok(())
    }
}

impl Reply {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("no JSON: {error}"))
    }
}

fn every(texts: &Value, holds: impl Fn(&str) -> bool) -> Result<(), String> {
    let texts = match texts {
        Value::Array(texts) => texts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut texts = texts.iter().filter_map(Value::as_str);
    match texts.find(|text| !holds(text)) {
        Some(text) => Err(format!("`{text}` does not hold")),
        None => Ok(()),
    }
}
