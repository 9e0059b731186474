//! The agent loop, over a real provider and a real local server that plays the model's turns
//! as a Chat Completions service streams them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_agent::{Agent, AgentEvent, AgentOptions, LoopOptions, Outcome, Rules};
use twopass_core::chat::{Message, Reply, Role, ToolSpec};
use twopass_replay::{Answer, Pace, Request, Server};
use twopass_tools::{
    Effect, FnTool, Limits, ToolContext, ToolError, ToolOutput, ToolRegistry, Workspace,
};

use super::client::{Format, check_body, message_of};
use super::live::{provider, runtime};
use crate::Verdict;
use crate::case::{text_of, tools_of};
use crate::expect::{any_of, in_time};
use crate::matchers::{check, same};

/// No case runs longer.
const MAX_RUN: Duration = Duration::from_secs(60);

/// Runs `run`: with whole packets, then with one byte per packet.
pub(super) fn run(case: &Value) -> Verdict {
    let paces = [Pace::Whole, Pace::OneByte];
    let all = paces.iter().try_for_each(|pace| {
        let ran = runtime()?.block_on(async {
            let ran = tokio::time::timeout(MAX_RUN, play(&case["input"], *pace)).await;
            ran.map_err(|_| format!("no end within {} s", MAX_RUN.as_secs()))?
        })?;
        ran.meets(&case["expect"])
            .map_err(|why| format!("{pace:?}: {why}"))
    });
    match all {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(why),
    }
}

/// What a run did.
struct Ran {
    outcome: Outcome,
    /// The calls that ran, in the order in which they began.
    executed: Vec<Value>,
    turns: Vec<Reply>,
    requests: Vec<Request>,
    elapsed: Duration,
}

type Executed = Arc<Mutex<Vec<Value>>>;

async fn play(input: &Value, pace: Pace) -> Result<Ran, String> {
    let script = input["model_script"].as_array().into_iter().flatten();
    let mut answers: Vec<Answer> = script.map(turn_of).collect();
    answers.push(turn_of(&json!({"content": "ok", "finish_reason": "stop"})));
    let server = Server::start(answers, pace).await;
    let server = server.map_err(|error| error.to_string())?;
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    let executed = Executed::default();
    let provider = provider(&entry(input, &server.url())).map_err(|error| error.to_string())?;
    let tools = registry(input, &executed).map_err(|error| error.to_string())?;
    let workspace = Workspace::open(folder).map_err(|error| error.to_string())?;
    let context = ToolContext {
        limits: tool_limits(&input["limits"]),
        ..ToolContext::new(workspace)
    };
    let agent = Agent::new(provider, Arc::new(tools), context, options(input));
    let started = Instant::now();
    let mut run = agent.start(messages(input));
    let mut turns = Vec::new();
    let mut outcome = None;
    while let Some(event) = run.next().await {
        match event {
            AgentEvent::StepFinished { reply, .. } => turns.push(*reply),
            AgentEvent::Ended(ended) => outcome = Some(*ended),
            _ => {}
        }
    }
    let executed = executed.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Ran {
        outcome: outcome.ok_or("the run did not say how it ended")?,
        executed: executed.clone(),
        turns,
        requests: server.requests(),
        elapsed: started.elapsed(),
    })
}

/// A turn of the script, its large texts written out.
fn turn_of(turn: &Value) -> Answer {
    let mut turn = turn.clone();
    for key in ["content", "thinking"] {
        if let Some(text) = text_of(&turn, key) {
            turn[key] = text.into();
        }
    }
    Answer::chat_turn(&turn)
}

/// The provider's entry. What the script says may be tried again is tried again.
fn entry(input: &Value, url: &str) -> Value {
    let script = input["model_script"].as_array().into_iter().flatten();
    let n_retries = script
        .filter(|turn| turn["error"]["retryable"] == true)
        .count();
    let mut entry = json!({
        "name": "case", "provider_backend": "openai", "model_name": "m", "on_error": "raise",
        "api_config": {"base_url": url, "max_retries": n_retries},
    });
    for key in ["tool_parser", "reasoning_replay", "parsing_format"] {
        if let Some(value) = input.get(key) {
            entry[key] = value.clone();
        }
    }
    entry
}

fn options(input: &Value) -> AgentOptions {
    let limit = |key: &str| {
        let value = input["limits"][key].as_u64()?;
        u32::try_from(value).ok()
    };
    let usual = Rules::default();
    let rules = Rules {
        max_steps: limit("max_steps").unwrap_or(usual.max_steps),
        max_retries: limit("max_retries").unwrap_or(usual.max_retries),
        max_tool_errors: limit("max_tool_errors").unwrap_or(usual.max_tool_errors),
        max_repeats: limit("max_repeats").unwrap_or(usual.max_repeats),
        ..usual
    };
    AgentOptions {
        turns: LoopOptions {
            rules,
            context_tokens: input["limits"]["context_tokens"].as_u64(),
            ..LoopOptions::default()
        },
        ..AgentOptions::default()
    }
}

fn tool_limits(limits: &Value) -> Limits {
    let usual = Limits::default();
    let count = |key: &str| limits[key].as_u64();
    let max_chars = count("max_tool_result_chars").and_then(|n| usize::try_from(n).ok());
    Limits {
        timeout: count("tool_timeout_ms").map_or(usual.timeout, Duration::from_millis),
        max_output_chars: max_chars.unwrap_or(usual.max_output_chars),
    }
}

fn messages(input: &Value) -> Vec<Message> {
    let system = input["system"].as_str();
    let mut messages: Vec<Message> = system
        .map(|text| Message::text(Role::System, text))
        .into_iter()
        .collect();
    let given = input["messages"].as_array().into_iter().flatten();
    messages.extend(given.map(|message| message_of(Format::Chat, message)));
    let user = input["user"].as_str();
    messages.extend(user.map(|text| Message::text(Role::User, text)));
    messages
}

/// The tools of a case, which only look at things: they may run side by side.
fn registry(input: &Value, executed: &Executed) -> Result<ToolRegistry, ToolError> {
    let registry = ToolRegistry::new();
    let specs = tools_of(input);
    let specs = specs.iter().flat_map(|tools| tools.specs());
    let tools = input["tools"].as_array().into_iter().flatten();
    for (spec, tool) in specs.zip(tools) {
        registry.add(Arc::new(scripted(spec.clone(), tool, executed)))?;
    }
    Ok(registry)
}

fn scripted(spec: ToolSpec, tool: &Value, executed: &Executed) -> FnTool {
    let (tool, executed) = (tool.clone(), Arc::clone(executed));
    let name = spec.name.clone();
    FnTool::new(spec, Effect::Reads, move |arguments, _| {
        let (tool, executed, name) = (tool.clone(), Arc::clone(&executed), name.clone());
        async move {
            let arguments = Value::Object(arguments);
            executed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(json!([name, arguments]));
            let delay = tool["delay_ms"].as_u64().unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(delay)).await;
            assert!(tool["panics"] != true, "the tool of the case panics");
            match tool["raises"].as_str() {
                Some(text) => Err(ToolError::failed(text)),
                None if tool["echo"] == true => Ok(ToolOutput::text(arguments.to_string())),
                None => Ok(ToolOutput::text(result_of(&tool))),
            }
        }
    })
}

/// A result is text, or any JSON value, which becomes its text.
fn result_of(tool: &Value) -> String {
    match (text_of(tool, "result"), &tool["result"]) {
        (Some(text), _) => text,
        (None, Value::Null) => String::new(),
        (None, value) => value.to_string(),
    }
}

impl Ran {
    fn meets(&self, expect: &Value) -> Result<(), String> {
        self.keeps_pairs()?;
        for (key, wanted) in expect.as_object().into_iter().flatten() {
            self.one(key, wanted)
                .map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(())
    }

    /// What holds for every request of every run: each call has one result, ids are unique.
    fn keeps_pairs(&self) -> Result<(), String> {
        for request in &self.requests {
            let body = String::from_utf8_lossy(&request.body);
            check_body("outputs_per_call", &json!(1), &body)?;
            check_body("wire_ids_unique", &json!(true), &body)?;
        }
        Ok(())
    }

    fn one(&self, key: &str, wanted: &Value) -> Result<(), String> {
        let is = |got: Value| check(wanted, Some(&got), &Value::Null);
        match key {
            "one_of" => any_of(wanted, |one| self.meets(one)),
            "executed" => match same(wanted, &json!(self.executed)) {
                true => Ok(()),
                false => Err(format!("expected {wanted}, ran {:?}", self.executed)),
            },
            "executed_count" => is(json!(self.executed.len())),
            "model_calls" => is(json!(self.requests.len())),
            "tool_results" => self.check_results(wanted),
            "results_in_call_order" => is(json!(self.in_call_order())),
            "final" => self.check_final(wanted),
            "trace_thinking" => {
                let thoughts = self.turns.iter().map(|turn| turn.reasoning.trim());
                is(json!(thoughts.collect::<Vec<_>>()))
            }
            "second_request_contains" => {
                let second = self.requests.get(1).ok_or("there is no second request")?;
                let body = String::from_utf8_lossy(&second.body);
                check_body("body_contains", wanted, &body)
            }
            "history_ids_unique" => self.check_last("wire_ids_unique", wanted),
            "history_pairs" => self.check_last("wire_pairs", wanted),
            "max_ms" | "min_elapsed_ms" => {
                in_time(key, wanted, self.elapsed.as_secs_f64() * 1000.0)
            }
            "panics" => Ok(()),
            other => Err(format!("no such expectation of a run: {other}")),
        }
    }

    fn check_last(&self, key: &str, wanted: &Value) -> Result<(), String> {
        let last = self.requests.last().ok_or("nothing was sent")?;
        check_body(key, wanted, &String::from_utf8_lossy(&last.body))
    }

    fn results(&self) -> impl Iterator<Item = &Message> {
        let messages = self.outcome.messages.iter();
        messages.filter(|message| message.role == Role::Tool)
    }

    fn check_results(&self, wanted: &Value) -> Result<(), String> {
        let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
        let n_got = self.results().count();
        if wanted.len() != n_got {
            return Err(format!("expected {}, got {n_got}", wanted.len()));
        }
        for (wanted, result) in wanted.iter().zip(self.results()) {
            let text = result.content_text();
            let got = json!({
                "id": result.tool_call_id, "content": text, "is_error": result.is_error,
                "max_len": text.chars().count(), "content_contains": text,
            });
            for (key, wanted) in wanted.as_object().into_iter().flatten() {
                let wanted = match key.as_str() {
                    "max_len" => &json!({"$lte": wanted}),
                    "content_contains" => match wanted {
                        Value::Array(_) => &json!({"$contains_all": wanted}),
                        _ => &json!({"$contains": wanted}),
                    },
                    _ => wanted,
                };
                check(wanted, got.get(key), &got).map_err(|why| format!("{key} {why}"))?;
            }
        }
        Ok(())
    }

    /// True if the results of every turn stand in the order of its calls.
    fn in_call_order(&self) -> bool {
        let messages = &self.outcome.messages;
        messages.iter().enumerate().all(|(at, message)| {
            let after = messages[at + 1..].iter().map(|m| m.tool_call_id.as_deref());
            let calls = message.tool_calls.iter().map(|call| Some(call.id.as_str()));
            calls.eq(after.take(message.tool_calls.len()))
        })
    }

    fn check_final(&self, wanted: &Value) -> Result<(), String> {
        let outcome = &self.outcome;
        let got = json!({
            "content": outcome.answer.trim(),
            "thinking": outcome.last.reasoning.trim(),
            "stop_reason": outcome.end.as_str(),
            "error_kind": outcome.error.as_ref().map(|error| error.kind().as_str()),
        });
        for (key, wanted) in wanted.as_object().into_iter().flatten() {
            let wanted = match wanted {
                Value::String(text) => &json!(text.trim()),
                wanted => wanted,
            };
            check(wanted, got.get(key), &got).map_err(|why| format!("{key} {why} in {got}"))?;
        }
        Ok(())
    }
}
