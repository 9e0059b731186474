//! Turns of one and of two passes against a scripted engine.

use std::time::Instant;

use serde_json::{Value, json};
use twopass_core::chat::{Reply, ThinkTag, TurnBudget, Usage};
use twopass_core::chat_template::ThinkFraming;
use twopass_core::control::{
    AnswerForm, Means, PassEnd, PassRequest, Step, TurnParserOptions, TurnPlan, TurnSyntax, TwoPass,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::ToolSyntax;
use twopass_wire::fault::Fault;

use super::values::verdict;
use crate::Verdict;
use crate::case::{bytes_of, call_rules_of, end_of, text_of};
use crate::matchers::check;

/// Characters per piece of text, in the runs that must all give the same.
const PIECES: [usize; 4] = [usize::MAX, 1, 3, 7];

pub(super) fn two_pass(case: &Value) -> Verdict {
    let script: Vec<Value> = case["input"]["engine"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    judge(case, plan_of(&case["input"]), &script)
}

/// A turn of one pass whose engine knows nothing of the caller's stop strings.
pub(super) fn single_pass_stop(case: &Value) -> Verdict {
    let input = &case["input"];
    let script = match input["engine"].as_array() {
        Some(script) => script.clone(),
        None => {
            let (bytes, _) = bytes_of(input);
            let mut answer = input.clone();
            answer["text"] = String::from_utf8_lossy(&bytes).into();
            vec![answer]
        }
    };
    let plan = plan_of(input).map(|mut plan| {
        let cap = input["params"]["max_tokens"].as_u64();
        plan.budget = TurnBudget::OnePass {
            max_tokens: cap.and_then(|cap| u32::try_from(cap).ok()),
        };
        plan
    });
    judge(case, plan, &script)
}

fn judge(case: &Value, plan: Result<TurnPlan, String>, script: &[Value]) -> Verdict {
    let started = Instant::now();
    let judged = plan.and_then(|plan| {
        let mut runs = PIECES.iter().map(|piece| run(plan.clone(), script, *piece));
        let whole = runs.next().unwrap_or_else(|| Err("no run".to_owned()))?;
        match runs.find(|run| run.as_ref() != Ok(&whole)) {
            Some(other) => Err(format!("in pieces it gives {other:?}, whole {whole}")),
            None => Ok(whole),
        }
    });
    let run = match judged {
        Ok(run) => run,
        Err(why) => return Verdict::Failed(why),
    };
    let none = Vec::new();
    let wanted = case["expect"]["passes"].as_array().unwrap_or(&none);
    for (idx, wanted) in wanted.iter().enumerate() {
        if let Err(why) = same_pass(wanted, &run["passes"][idx]) {
            return Verdict::Failed(format!("passes[{idx}]: {why}"));
        }
    }
    let mut rest = case.clone();
    if let Some(keys) = rest["expect"].as_object_mut() {
        keys.shift_remove("passes");
    }
    verdict(&rest, &run, started)
}

/// Compares one engine call with the keys that the case files use for it.
fn same_pass(wanted: &Value, got: &Value) -> Result<(), String> {
    let keys = wanted.as_object().ok_or("no object")?;
    for (key, wanted) in keys {
        let has_stop = |stop: &Value| got["stop"].as_array().is_some_and(|all| all.contains(stop));
        let list = wanted.as_array().map_or(&[][..], Vec::as_slice);
        let holds = match key.as_str() {
            "stop_includes" => list.iter().all(has_stop),
            "stop_excludes" => !list.iter().any(has_stop),
            "continues_from_suffix" => {
                let text = got["continues_from"].as_str().unwrap_or_default();
                text.trim_end()
                    .ends_with(wanted.as_str().unwrap_or_default().trim_end())
            }
            _ => check(wanted, got.get(key), got).is_ok(),
        };
        if !holds {
            return Err(format!("{key}: expected {wanted}, got {got}"));
        }
    }
    Ok(())
}

fn cap(input: &Value, key: &str, default: u32) -> u32 {
    let value = input
        .pointer(&format!("/config/{key}"))
        .and_then(Value::as_u64);
    value
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(default)
}

fn plan_of(input: &Value) -> Result<TurnPlan, String> {
    let tag = input
        .pointer("/config/think_tag")
        .and_then(Value::as_str)
        .unwrap_or("think");
    let tag = ThinkTag::from_name(tag).ok_or_else(|| format!("unknown think tag `{tag}`"))?;
    let opened = input["template_opens_think"] == true || input["prompt_opened"] == true;
    let stops = ["user_stop", "stop"].map(|key| &input[key]);
    let stops = stops.into_iter().flat_map(|stops| match stops {
        Value::Array(stops) => stops.as_slice(),
        stop => std::slice::from_ref(stop),
    });
    let has_tools = input.get("tools").is_some();
    let dialect = input["format"].as_str().unwrap_or("hermes");
    let tools = match has_tools {
        true => ToolSyntax::from_name(dialect).ok_or_else(|| format!("no dialect `{dialect}`"))?,
        false => ToolSyntax::none(),
    };
    Ok(TurnPlan {
        budget: TurnBudget::TwoPass {
            tag,
            max_thinking_tokens: cap(input, "max_thinking_tokens", 256),
            max_response_tokens: cap(input, "max_response_tokens", 1024),
        },
        means: Means::Continuation,
        opened_by_template: opened.then_some(tag),
        open_block: false,
        closed_by_template: false,
        framing: ThinkFraming::bare(tag),
        stop: stops.filter_map(Value::as_str).map(str::to_owned).collect(),
        call_stop: has_tools.then(|| "</tool_call>".to_owned()),
        call_markers: None,
        only_calls: false,
        parser: TurnParserOptions {
            syntax: TurnSyntax::new(ReasoningSyntax::auto(), tools),
            calls: call_rules_of(input),
            prompt_opened: input["prompt_opened"].as_bool(),
            thinking_off: input["thinking_enabled"] == false,
            answer_form: AnswerForm::Free,
        },
    })
}

/// Plays the script, each text in pieces of so many characters.
fn run(plan: TurnPlan, script: &[Value], piece: usize) -> Result<Value, String> {
    let mut turn = TwoPass::new(plan);
    let mut passes: Vec<PassRequest> = Vec::new();
    let mut error = Value::Null;
    let mut has_output = false;
    let reply = loop {
        match turn.poll() {
            Step::Emit(event) => has_output |= event.is_output(),
            Step::Done(reply) => break reply,
            Step::Send(pass) => passes.push(pass),
            Step::Read => {
                let answer = script
                    .get(passes.len() - 1)
                    .ok_or("the script is too short")?;
                if let Some(status) = answer["http_status"].as_u64() {
                    let status = u16::try_from(status).unwrap_or(500);
                    let body = json!({"error": {"message": answer["error"]}}).to_string();
                    let fault = Fault::from_response(status, [], body.as_bytes(), 0.0);
                    error = json!({
                        "kind": fault.kind.as_str(), "status": status,
                        // What was handed out cannot be taken back.
                        "retryable": fault.is_retryable() && !has_output,
                        "message": fault.message,
                    });
                    turn.handle_failure(fault.kind.as_str());
                    continue;
                }
                let text: Vec<char> = text_of(answer, "text")
                    .unwrap_or_default()
                    .chars()
                    .collect();
                for piece in text.chunks(piece.min(text.len().max(1))) {
                    turn.handle_text(&piece.iter().collect::<String>());
                }
                let usage = |key: &str| {
                    answer
                        .pointer(&format!("/usage/{key}"))
                        .and_then(Value::as_u64)
                        .unwrap_or(0)
                };
                turn.handle_pass_end(PassEnd {
                    stop_reason: end_of(answer).stop_reason,
                    usage: Usage {
                        prompt_tokens: usage("prompt_tokens"),
                        response_tokens: usage("completion_tokens"),
                        ..Usage::default()
                    },
                    ..PassEnd::default()
                });
            }
        }
    };
    Ok(outcome(&reply, &passes, &error))
}

/// A turn in the words of the case files.
fn outcome(reply: &Reply, passes: &[PassRequest], error: &Value) -> Value {
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.as_object()}))
        .collect();
    let errors = reply
        .invalid_tool_calls
        .iter()
        .map(|call| json!({"kind": call.kind.as_str(), "name": call.name, "path": call.path}));
    json!({
        "thinking": reply.reasoning,
        "response": reply.content,
        "content": reply.content,
        "thinking_truncated": reply.reasoning_truncated,
        "answer_missing": reply.answer_missing(),
        "finish_reason": reply.stop_reason.as_str(),
        "tool_calls": calls,
        "errors": errors.collect::<Vec<_>>(),
        "calls": passes.len(),
        "passes": passes.iter().map(pass_value).collect::<Vec<_>>(),
        "usage": {
            "prompt_tokens": reply.usage.prompt_tokens,
            "completion_tokens": reply.usage.thinking_tokens + reply.usage.response_tokens,
            "reasoning_tokens": reply.usage.thinking_tokens,
        },
        "error": error,
    })
}

fn pass_value(pass: &PassRequest) -> Value {
    let text = pass.continuation.to_ascii_lowercase();
    let closes = [ThinkTag::Think, ThinkTag::Thinking].map(|tag| text.matches(tag.close()).count());
    json!({
        "max_tokens": pass.max_tokens,
        "stop": pass.stop,
        "continues_from": pass.continuation,
        "close_tags_in_continuation": closes.iter().sum::<usize>(),
    })
}
