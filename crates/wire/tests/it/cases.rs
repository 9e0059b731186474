//! Client cases of a case file given in `TWOPASS_WIRE_CASES`, as far as they need no
//! socket, no clock and no parser of text.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use twopass_core::chat::{
    Arguments, Message, OpaqueItem, OpaqueKind, Reply, Request, Role, ToolCall, ToolChoice,
    ToolSpec, TurnBudget,
};
use twopass_wire::facts::{
    IdFormat, MaxTokensField, ReasoningField, ReasoningReplay, ThinkingField, WireFacts,
};
use twopass_wire::fault::Fault;
use twopass_wire::{
    DecodeContext, Encoded, Thinking, WireRequest, anthropic_messages, ollama_chat, openai_chat,
    openai_responses,
};

use crate::read::{Format, Outcome, read_stream_cut, read_whole};

fn format_of(component: &str) -> Option<Format> {
    match component {
        "chat_client" => Some(Format::Chat),
        "responses_client" => Some(Format::Responses),
        "anthropic_client" => Some(Format::Anthropic),
        "ollama_client" => Some(Format::Ollama),
        _ => None,
    }
}

fn facts_of(format: Format, profile: &Value, params: &Value) -> WireFacts {
    let mut facts = match format {
        Format::Chat => WireFacts::CHAT,
        Format::Responses => WireFacts::RESPONSES,
        Format::Anthropic => WireFacts::ANTHROPIC,
        Format::Ollama => WireFacts::OLLAMA,
    };
    let text = |name: &str| profile[name].as_str();
    if let Some(field) = text("max_tokens_field").and_then(MaxTokensField::from_name) {
        facts.max_tokens_field = field;
    }
    if let Some(on) = profile["supports_temperature"].as_bool() {
        facts.temperature = on;
    }
    if let Some(on) = profile["supports_developer_role"].as_bool() {
        facts.developer_role = on;
    }
    if let Some(on) = profile["system_first_only"].as_bool() {
        facts.system_first_only = on;
    }
    if let Some(policy) = text("reasoning_replay").and_then(ReasoningReplay::from_name) {
        facts.reasoning_replay = policy;
    }
    if let Some(field) = text("reasoning_field").and_then(ReasoningField::from_name) {
        facts.reasoning_field = Some(field);
    }
    if let Some(format) = text("tool_call_id_format").and_then(IdFormat::from_pattern) {
        facts.tool_call_id = format;
    }
    if let Some(most) = profile["tool_call_id_max_len"].as_u64() {
        facts.tool_call_id = facts
            .tool_call_id
            .with_max_len(usize::try_from(most).unwrap());
    }
    if let Some(on) = profile["store"].as_bool() {
        facts.store = Some(on);
    }
    if let Some(on) = profile["supports_previous_response_id"].as_bool() {
        facts.previous_response_id = on;
    }
    if profile["thinking"] == json!(false) {
        facts.thinking = ThinkingField::None;
    }
    let _ = params;
    facts
}

fn message_of(format: Format, value: &Value) -> Message {
    let role = Role::from_name(value["role"].as_str().unwrap()).unwrap();
    let mut message = Message::text(role, value["content"].as_str().unwrap_or_default());
    message.reasoning = value["thinking"].as_str().map(str::to_owned);
    message.tool_call_id = value["tool_call_id"].as_str().map(str::to_owned);
    message.is_error = value["is_error"].as_bool().unwrap_or(false);
    for call in value["tool_calls"].as_array().into_iter().flatten() {
        let arguments = match call["raw_arguments"].as_str() {
            Some(raw) => Arguments::from_text(raw)
                .unwrap_or_else(|_| Arguments::from_object(serde_json::Map::new())),
            None => Arguments::from_text(call["arguments"].to_string()).unwrap(),
        };
        message.tool_calls.push(ToolCall {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            name: call["name"].as_str().unwrap().to_owned(),
            arguments,
        });
    }
    let kind = match format {
        Format::Chat | Format::Ollama => OpaqueKind::ReasoningDetail,
        Format::Responses => OpaqueKind::ResponsesItem,
        Format::Anthropic => OpaqueKind::AnthropicBlock,
    };
    for item in value["provider_items"].as_array().into_iter().flatten() {
        message
            .provider_items
            .push(OpaqueItem::new(kind, item.to_string()));
    }
    message
}

fn request_of(format: Format, input: &Value) -> (WireRequest, WireFacts) {
    let params = &input["params"];
    let default = json!([{"role": "user", "content": "Hi"}]);
    let messages = if input["messages"].is_null() {
        &default
    } else {
        &input["messages"]
    };
    let mut request = Request::new(
        messages
            .as_array()
            .unwrap()
            .iter()
            .map(|value| message_of(format, value))
            .collect(),
    );
    for tool in input["tools"].as_array().into_iter().flatten() {
        request.tools.push(ToolSpec {
            name: tool["name"].as_str().unwrap().to_owned(),
            description: tool["description"].as_str().unwrap_or_default().to_owned(),
            parameters: tool["parameters"].clone(),
        });
    }
    request.tool_choice = match input["tool_choice"].as_str() {
        Some("required") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        _ => ToolChoice::Auto,
    };
    let cap = |name: &str| params[name].as_u64().map(|n| u32::try_from(n).unwrap());
    request.budget = TurnBudget::OnePass {
        max_tokens: cap("max_tokens"),
    };
    #[expect(clippy::cast_possible_truncation, reason = "a sampling value")]
    let temperature = params["temperature"].as_f64().map(|t| t as f32);
    request.sampling.temperature = temperature;
    let mut wire = WireRequest::new("m", request);
    wire.stream = input["op"] == "stream";
    wire.thinking = match (cap("max_thinking_tokens"), params["think"].as_bool()) {
        (Some(budget), _) => Thinking::Budget(budget),
        (None, Some(true)) => Thinking::On,
        (None, Some(false)) => Thinking::Off,
        (None, None) => Thinking::Default,
    };
    wire.previous_response_id = input["previous_response_id"].as_str().map(str::to_owned);
    (wire, facts_of(format, &input["profile"], params))
}

fn encode(format: Format, request: &WireRequest, facts: &WireFacts) -> Encoded {
    let encoded = match format {
        Format::Chat => openai_chat::encode_request(request, facts),
        Format::Responses => openai_responses::encode_request(request, facts),
        Format::Anthropic => anthropic_messages::encode_request(request, facts),
        Format::Ollama => ollama_chat::encode_request(request, facts),
    };
    encoded.unwrap()
}

/// The bytes of an answer, and whether it is a stream.
fn upstream_bytes(upstream: &Value) -> (Vec<u8>, bool) {
    if let Some(sse) = upstream["sse"].as_str() {
        return (sse.as_bytes().to_vec(), true);
    }
    let is_stream = upstream["headers"]["content-type"]
        .as_str()
        .is_some_and(|kind| kind.contains("event-stream") || kind.contains("ndjson"));
    if let Some(steps) = upstream["steps"].as_array() {
        let text: String = steps
            .iter()
            .filter_map(|step| step["text"].as_str())
            .collect();
        return (text.into_bytes(), true);
    }
    if let Some(steps) = upstream["steps_hex"].as_array() {
        let hex: String = steps.iter().filter_map(Value::as_str).collect();
        let bytes = hex.as_bytes().chunks(2);
        let bytes =
            bytes.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
        return (bytes.collect(), true);
    }
    match upstream["text"].as_str() {
        Some(text) => (text.as_bytes().to_vec(), is_stream),
        None => (upstream["body"].to_string().into_bytes(), false),
    }
}

fn answer(format: Format, upstream: &Value, context: &DecodeContext, now: f64) -> Outcome {
    let (bytes, is_stream) = upstream_bytes(upstream);
    let status = u16::try_from(upstream["status"].as_u64().unwrap_or(200)).unwrap();
    if status >= 400 {
        let headers: Vec<(&str, &str)> = upstream["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        return Outcome {
            reply: Err(Fault::from_response(status, headers, &bytes, now)),
            partial: Reply::default(),
            events: Vec::new(),
        };
    }
    if is_stream {
        read_stream_cut(format, &bytes, context)
    } else {
        read_whole(format, &bytes, context.clone())
    }
}

fn matches(expected: &Value, actual: Option<&Value>, root: &Value) -> bool {
    let Value::Object(map) = expected else {
        return match (expected, actual) {
            (Value::Array(want), Some(Value::Array(have))) => {
                want.len() == have.len()
                    && want
                        .iter()
                        .zip(have)
                        .all(|(w, h)| matches(w, Some(h), root))
            }
            (Value::String(want), Some(Value::String(have))) => want.trim() == have.trim(),
            (want, Some(have)) => want == have,
            (_, None) => false,
        };
    };
    let is_matcher = map.keys().any(|key| key.starts_with('$'));
    if !is_matcher {
        let Some(Value::Object(have)) = actual else {
            return false;
        };
        return map
            .iter()
            .all(|(key, want)| matches(want, have.get(key), root));
    }
    let text = actual.and_then(Value::as_str).unwrap_or_default();
    map.iter().all(|(key, want)| match key.as_str() {
        "$nonempty" => !text.is_empty(),
        "$contains" => match actual {
            Some(Value::Array(list)) => list.contains(want),
            _ => text.contains(want.as_str().unwrap()),
        },
        "$contains_all" => want
            .as_array()
            .unwrap()
            .iter()
            .all(|w| text.contains(w.as_str().unwrap())),
        "$json_object" => serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()),
        "$gte" => actual.and_then(Value::as_f64) >= want.as_f64(),
        "$gt_pointer" => {
            actual.and_then(Value::as_f64)
                > root.pointer(want.as_str().unwrap()).and_then(Value::as_f64)
        }
        "$absent_or_equals" => actual.is_none_or(|have| have == want),
        "$regex" => IdFormat::from_pattern(want.as_str().unwrap())
            .unwrap()
            .matches(text),
        "$absent_or_regex" => {
            let start = want.as_str().unwrap().trim_start_matches('^');
            actual.is_none() || text.starts_with(start)
        }
        other => panic!("no such matcher: {other}"),
    })
}

fn check_request(expect: &Value, body: &str, faults: &mut Vec<String>) {
    let body: Value = serde_json::from_str(body).unwrap();
    for (pointer, want) in expect["equals"].as_object().into_iter().flatten() {
        if !matches(want, body.pointer(pointer), &body) {
            faults.push(format!(
                "{pointer}: want {want}, have {:?}",
                body.pointer(pointer)
            ));
        }
    }
    for pointer in expect["absent"].as_array().into_iter().flatten() {
        if let Some(have) = body.pointer(pointer.as_str().unwrap()) {
            faults.push(format!("{pointer} must be absent, is {have}"));
        }
    }
}

/// Pairs of result text and argument text, as they are linked on the wire, and the ids.
fn wire_pairs(body: &Value) -> (Vec<(String, Value)>, Vec<String>) {
    let mut calls = BTreeMap::new();
    let mut ids = Vec::new();
    let mut results = Vec::new();
    walk(body, &mut |object| {
        let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
        if let Some(arguments) = object.get("function").and_then(|f| f.get("arguments")) {
            let id = text("id").unwrap_or_default();
            ids.push(id.clone());
            calls.insert(id, parsed(arguments));
        }
        match text("type").as_deref() {
            Some("function_call") => {
                let id = text("call_id").unwrap_or_default();
                ids.push(id.clone());
                calls.insert(id, parsed(&object["arguments"]));
            }
            Some("tool_use") => {
                let id = text("id").unwrap_or_default();
                ids.push(id.clone());
                calls.insert(id, parsed(&object["input"]));
            }
            Some("function_call_output") => results.push((text("call_id"), text("output"))),
            Some("tool_result") => results.push((text("tool_use_id"), text("content"))),
            _ => {}
        }
        if text("role").as_deref() == Some("tool") {
            results.push((text("tool_call_id"), text("content")));
        }
    });
    let pairs = results.into_iter().map(|(id, output)| {
        let arguments = calls
            .get(&id.unwrap_or_default())
            .cloned()
            .unwrap_or_default();
        (output.unwrap_or_default(), arguments)
    });
    (pairs.collect(), ids)
}

fn parsed(value: &Value) -> Value {
    match value.as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => value.clone(),
    }
}

fn walk(value: &Value, see: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            see(object);
            object.values().for_each(|inner| walk(inner, see));
        }
        Value::Array(items) => items.iter().for_each(|inner| walk(inner, see)),
        _ => {}
    }
}

fn check_built(expect: &Value, encoded: &Encoded, faults: &mut Vec<String>) {
    if let Some(options) = expect["one_of"].as_array() {
        let all: Vec<Vec<String>> = options
            .iter()
            .map(|option| {
                let mut faults = Vec::new();
                check_built(option, encoded, &mut faults);
                if option["error"].is_object() {
                    faults.push("no error".to_owned());
                }
                faults
            })
            .collect();
        if all.iter().all(|faults| !faults.is_empty()) {
            faults.push(format!("none of {all:?}"));
        }
        return;
    }
    check_request(&expect["request"], &encoded.body, faults);
    let body: Value = serde_json::from_str(&encoded.body).unwrap();
    for text in expect["body_contains"].as_array().into_iter().flatten() {
        if !encoded.body.contains(text.as_str().unwrap()) {
            faults.push(format!("the body must hold {text}"));
        }
    }
    for text in expect["body_not_contains"].as_array().into_iter().flatten() {
        if encoded.body.contains(text.as_str().unwrap()) {
            faults.push(format!("the body must not hold {text}"));
        }
    }
    let (pairs, mut ids) = wire_pairs(&body);
    for pair in expect["wire_pairs"].as_array().into_iter().flatten() {
        let want = (pair[0].as_str().unwrap().to_owned(), parsed(&pair[1]));
        let found = pairs
            .iter()
            .filter(|(output, arguments)| output.ends_with(&want.0) && *arguments == want.1)
            .count();
        if found != 1 {
            faults.push(format!("pair {want:?} found {found} times in {pairs:?}"));
        }
    }
    if expect["wire_ids_unique"] == json!(true) {
        let n = ids.len();
        ids.sort();
        ids.dedup();
        if ids.len() < n {
            faults.push("ids are not unique".to_owned());
        }
    }
    for warning in expect["warnings_contain"].as_array().into_iter().flatten() {
        let warning = warning.as_str().unwrap();
        if !encoded
            .diagnostics
            .iter()
            .any(|d| d.message.contains(warning))
        {
            faults.push(format!(
                "no warning names `{warning}`: {:?}",
                encoded.diagnostics
            ));
        }
    }
}

fn message_json(reply: &Reply) -> Value {
    let usage = &reply.usage;
    json!({
        "content": reply.content,
        "thinking": reply.reasoning,
        "tool_calls": reply.tool_calls.iter().map(|call| json!({
            "id": call.id, "name": call.name, "arguments": call.arguments.as_object(),
        })).collect::<Vec<_>>(),
        "finish_reason": reply.stop_reason.as_str(),
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.thinking_tokens + usage.response_tokens,
            "reasoning_tokens": usage.thinking_tokens,
        },
    })
}

fn check_fault(expect: &Value, outcome: &Outcome, fault: &Fault, faults: &mut Vec<String>) {
    let emitted = !outcome.events.is_empty();
    let have = json!({
        "kind": fault.kind.as_str(),
        "status": fault.status,
        "retryable": fault.is_retryable() && !emitted,
    });
    for (key, want) in expect["error"].as_object().unwrap() {
        let good = match key.as_str() {
            "message_contains" => list(want).all(|text| fault.message.contains(text)),
            "message_max_len" => fault.message.len() as u64 <= want.as_u64().unwrap(),
            "retry_after_s" => fault.retry_after_s == want.as_f64(),
            key => have.get(key) == Some(want),
        };
        if !good {
            let message = &fault.message;
            faults.push(format!("error {key}: want {want}, have {have} {message}"));
        }
    }
    let partial = message_json(&outcome.partial);
    let want = &expect["partial"];
    if !want.is_null() && !matches(want, Some(&partial), &partial) {
        faults.push(format!("partial: want {want}, have {partial}"));
    }
}

fn list(value: &Value) -> impl Iterator<Item = &str> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap())
}

fn check_outcome(expect: &Value, outcome: &Outcome, faults: &mut Vec<String>) {
    let reply = match (&outcome.reply, expect["error"].is_object()) {
        (Ok(_), true) => return faults.push(format!("want {}, have a reply", expect["error"])),
        (Err(fault), false) => return faults.push(fault.to_string()),
        (Err(fault), true) => return check_fault(expect, outcome, fault, faults),
        (Ok(reply), false) => reply,
    };
    let have = message_json(reply);
    if !expect["message"].is_null() && !matches(&expect["message"], Some(&have), &have) {
        faults.push(format!("want {}, have {have}", expect["message"]));
    }
    if expect["answer_missing"] == json!(true) && !reply.answer_missing() {
        faults.push("an answer is there".to_owned());
    }
    for want in expect["invalid_tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let found = reply.invalid_tool_calls.iter().any(|call| {
            want["id"] == json!(call.id)
                && want["name"] == json!(call.name)
                && want["error_kind"] == json!(call.kind.as_str())
        });
        if !found {
            let have = &reply.invalid_tool_calls;
            faults.push(format!("no invalid call {want}: {have:?}"));
        }
    }
    for want in list(&expect["replayable_contains"]) {
        if !reply
            .provider_items
            .iter()
            .any(|item| item.json.contains(want))
        {
            faults.push(format!("nothing keeps {want}"));
        }
    }
}

fn roundtrip(format: Format, case: &Value, faults: &mut Vec<String>) {
    let input = &case["input"];
    let expect = &case["expect"];
    let (mut request, facts) = request_of(format, input);
    request.stream = input["mode"] != "complete";
    let first = encode(format, &request, &facts);
    check_request(&expect["requests"][0], &first.body, faults);
    let outcome = answer(format, &input["upstream"][0], &first.context, 0.0);
    let reply = outcome.reply.unwrap();
    let have = message_json(&reply);
    if !expect["first_message"].is_null() && !matches(&expect["first_message"], Some(&have), &have)
    {
        faults.push(format!("first message: {have}"));
    }
    request.request.messages.push(reply.to_message());
    for message in input["then"].as_array().unwrap() {
        request.request.messages.push(message_of(format, message));
    }
    let second = encode(format, &request, &facts);
    check_request(&expect["requests"][1], &second.body, faults);
}

fn run(format: Format, case: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let input = &case["input"];
    let expect = &case["expect"];
    match input["op"].as_str().unwrap() {
        "build_request" => {
            let (request, facts) = request_of(format, input);
            check_built(expect, &encode(format, &request, &facts), &mut faults);
        }
        "stream" | "complete" => {
            let (request, facts) = request_of(format, input);
            let encoded = encode(format, &request, &facts);
            // 2026-10-21T07:28:00Z
            let outcome = answer(
                format,
                &input["upstream"][0],
                &encoded.context,
                1_792_567_680.0,
            );
            check_outcome(expect, &outcome, &mut faults);
        }
        "roundtrip" => roundtrip(format, case, &mut faults),
        "roundtrip_tool_name" => {
            let (request, facts) = request_of(format, input);
            let encoded = encode(format, &request, &facts);
            let body: Value = serde_json::from_str(&encoded.body).unwrap();
            let name = body
                .pointer("/tools/0/function/name")
                .unwrap()
                .as_str()
                .unwrap();
            let upstream = input["upstream"][0].to_string().replace("$WIRE_NAME", name);
            let upstream = serde_json::from_str(&upstream).unwrap();
            check_outcome(
                expect,
                &answer(format, &upstream, &encoded.context, 0.0),
                &mut faults,
            );
        }
        other => faults.push(format!("no such op: {other}")),
    }
    faults
}

/// True for cases of a client that asks again, or that parses tags in the text.
fn needs_more(input: &Value) -> bool {
    let upstream = input["upstream"].as_array();
    let n_answers = upstream.map_or(0, Vec::len);
    let asks_again = n_answers > 1 && input["op"] != "roundtrip" && input["retries"] != 0;
    asks_again || input["upstream"].to_string().contains("<thi")
}

#[test]
fn cases_from_a_file() {
    let Some(file) = std::env::var_os("TWOPASS_WIRE_CASES") else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    let (mut n_good, mut n_left, mut bad) = (0, 0, Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(format) = format_of(case["component"].as_str().unwrap()) else {
            continue;
        };
        if needs_more(&case["input"]) {
            n_left += 1;
            continue;
        }
        let faults = run(format, &case);
        if faults.is_empty() {
            n_good += 1;
        } else {
            bad.push(format!("{}: {}", case["id"], faults.join("\n    ")));
        }
    }
    println!(
        "{n_good} passed, {} failed, {n_left} need more than a wire",
        bad.len()
    );
    assert!(
        bad.is_empty(),
        "{n_good} passed, {} failed\n{}",
        bad.len(),
        bad.join("\n")
    );
}
