//! What the client components have in common: requests from cases, and checks of bodies.

use std::collections::BTreeMap;
use std::time::Instant;

use regex::Regex;
use serde_json::{Map, Value, json};
use twopass_core::chat::{
    Arguments, Diagnostic, Message, OpaqueItem, OpaqueKind, Request, Role, ToolCall, TurnBudget,
};
use twopass_core::text::{JsonLimits, decode_arguments};
use twopass_provider::preset::PRESETS;
use twopass_wire::facts::{
    IdFormat, MaxTokensField, ReasoningField, ReasoningReplay, ThinkingField, WireFacts,
};
use twopass_wire::{
    Thinking, WireRequest, anthropic_messages, ollama_chat, openai_chat, openai_responses,
};

use crate::Verdict;
use crate::case::{choice_of, tools_of};
use crate::expect::{any_of, in_time};
use crate::matchers::{check, same, shorten};

/// The outside format that a component speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Chat,
    Responses,
    Anthropic,
    Ollama,
}

impl Format {
    pub(crate) fn of_component(component: &str) -> Option<Self> {
        Some(match component {
            "chat_client" => Self::Chat,
            "responses_client" => Self::Responses,
            "anthropic_client" => Self::Anthropic,
            "ollama_client" => Self::Ollama,
            _ => return None,
        })
    }

    /// The `provider_backend` that speaks it.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    fn item_kind(self) -> OpaqueKind {
        match self {
            Self::Chat | Self::Ollama => OpaqueKind::ReasoningDetail,
            Self::Responses => OpaqueKind::ResponsesItem,
            Self::Anthropic => OpaqueKind::AnthropicBlock,
        }
    }
}

/// Builds the body of a request; nothing is sent.
pub(super) fn build_request(format: Format, case: &Value) -> Verdict {
    let started = Instant::now();
    let request = request_of(format, &case["input"]);
    let facts = facts_of(format, &case["input"]["profile"]);
    let encoded = match format {
        Format::Chat => openai_chat::encode_request(&request, &facts),
        Format::Responses => openai_responses::encode_request(&request, &facts),
        Format::Anthropic => anthropic_messages::encode_request(&request, &facts),
        Format::Ollama => ollama_chat::encode_request(&request, &facts),
    };
    let elapsed_ms = started.elapsed().as_secs_f64() * 1000.0;
    let mut expect = case["expect"].clone();
    let result = times_of(&mut expect, elapsed_ms).and_then(|()| match encoded {
        Ok(encoded) => meets(&expect, &encoded.body, &encoded.diagnostics),
        Err(error) => refused(&expect, &error.to_string()),
    });
    match result {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(why),
    }
}

/// Takes the limits of time out of an `expect`, once they hold.
fn times_of(expect: &mut Value, elapsed_ms: f64) -> Result<(), String> {
    let Value::Object(keys) = expect else {
        return Ok(());
    };
    ["max_ms", "min_elapsed_ms"].iter().try_for_each(|key| {
        let wanted = keys.shift_remove(*key);
        wanted.map_or(Ok(()), |wanted| in_time(key, &wanted, elapsed_ms))
    })
}

/// Checks a request that cannot be built.
fn refused(expect: &Value, message: &str) -> Result<(), String> {
    if let Some(choices) = expect.get("one_of") {
        return any_of(choices, |one| refused(one, message));
    }
    for (key, wanted) in expect["error"].as_object().ok_or(message)? {
        match key.as_str() {
            "message_contains" => every(wanted, |text| message.contains(text)),
            "retryable" => check(wanted, Some(&json!(false)), wanted),
            "kind" => check(
                &json!({"$in": ["bad_request", "config"]}),
                Some(wanted),
                wanted,
            ),
            _ => Err("a request that is not sent has none".to_owned()),
        }
        .map_err(|why| format!("{key}: {why} in {message}"))?;
    }
    Ok(())
}

/// The facts of a case's `profile`, over those of the plain format.
pub(crate) fn facts_of(format: Format, profile: &Value) -> WireFacts {
    let facts = match format {
        Format::Chat => WireFacts::CHAT,
        Format::Responses => WireFacts::RESPONSES,
        Format::Anthropic => WireFacts::ANTHROPIC,
        Format::Ollama => WireFacts::OLLAMA,
    };
    with_profile(facts, profile)
}

/// The preset of a format that has the facts of a `profile`, beside the replay policy, which
/// is a setting; `None` within if the plain format has them, `Err` if none has.
pub(super) fn preset_of(format: Format, profile: &Value) -> Result<Option<&'static str>, String> {
    let fits = |facts: WireFacts| {
        let asked = with_profile(facts, profile);
        let reasoning_replay = facts.reasoning_replay;
        facts
            == WireFacts {
                reasoning_replay,
                ..asked
            }
    };
    if fits(facts_of(format, &Value::Null)) {
        return Ok(None);
    }
    let mut rows = PRESETS.iter();
    let row = rows.find(|row| row.backend.as_str() == format.backend() && fits(row.facts));
    match row {
        Some(row) => Ok(Some(row.name)),
        None => Err(format!(
            "no endpoint of this format has the profile {profile}"
        )),
    }
}

fn with_profile(mut facts: WireFacts, profile: &Value) -> WireFacts {
    let text = |name: &str| profile[name].as_str();
    let set = |into: &mut bool, name: &str| {
        if let Some(on) = profile[name].as_bool() {
            *into = on;
        }
    };
    set(&mut facts.temperature, "supports_temperature");
    set(&mut facts.developer_role, "supports_developer_role");
    set(&mut facts.system_first_only, "system_first_only");
    set(
        &mut facts.previous_response_id,
        "supports_previous_response_id",
    );
    if let Some(field) = text("max_tokens_field").and_then(MaxTokensField::from_name) {
        facts.max_tokens_field = field;
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
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        facts.tool_call_id = facts.tool_call_id.with_max_len(most);
    }
    facts.store = profile["store"].as_bool().or(facts.store);
    if profile["thinking"] == false {
        facts.thinking = ThinkingField::None;
    }
    facts
}

/// The request of a case: its messages (one short user message if it has none), tools and
/// parameters.
pub(crate) fn request_of(format: Format, input: &Value) -> WireRequest {
    let params = &input["params"];
    let messages = match input["messages"].as_array() {
        Some(messages) => messages
            .iter()
            .map(|message| message_of(format, message))
            .collect(),
        None => vec![Message::text(Role::User, "Hi")],
    };
    let mut request = Request::new(messages);
    if let Some(tools) = tools_of(input) {
        request.tools = tools.specs().cloned().collect();
    }
    request.tool_choice = choice_of(&input["tool_choice"]);
    let cap = |name: &str| params[name].as_u64().and_then(|n| u32::try_from(n).ok());
    request.budget = TurnBudget::OnePass {
        max_tokens: cap("max_tokens"),
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sampling values need no more"
    )]
    let number = |name: &str| params[name].as_f64().map(|value| value as f32);
    request.sampling.temperature = number("temperature");
    request.sampling.top_p = number("top_p");
    request.sampling.seed = params["seed"].as_u64();
    if let Some(stop) = params["stop"].as_array() {
        let stop = stop.iter().filter_map(Value::as_str);
        request.stop = stop.map(str::to_owned).collect();
    }
    let mut wire = WireRequest::new(params["model"].as_str().unwrap_or("m"), request);
    wire.stream = input["op"] == "stream";
    wire.include_usage = wire.stream;
    wire.thinking = match (cap("max_thinking_tokens"), params["think"].as_bool()) {
        (Some(budget), _) => Thinking::Budget(budget),
        (None, Some(true)) => Thinking::On,
        (None, Some(false)) => Thinking::Off,
        (None, None) => Thinking::Default,
    };
    wire.previous_response_id = input["previous_response_id"].as_str().map(str::to_owned);
    wire
}

/// One message of a neutral history.
pub(crate) fn message_of(format: Format, value: &Value) -> Message {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let role = text("role").and_then(|role| Role::from_name(&role));
    let mut message = Message::text(
        role.unwrap_or(Role::User),
        text("content").unwrap_or_default(),
    );
    message.reasoning = text("thinking");
    message.tool_call_id = text("tool_call_id");
    message.is_error = value["is_error"] == true;
    for call in value["tool_calls"].as_array().into_iter().flatten() {
        // Arguments that nobody can read become the empty object, as on every wire.
        let raw = match call["raw_arguments"].as_str() {
            Some(raw) => raw.to_owned(),
            None => call["arguments"].to_string(),
        };
        let arguments = decode_arguments(&raw, &JsonLimits::default())
            .map_or_else(|_| Map::new(), |decoded| decoded.object);
        message.tool_calls.push(ToolCall {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            name: call["name"].as_str().unwrap_or_default().to_owned(),
            arguments: Arguments::from_object(arguments),
        });
    }
    for item in value["provider_items"].as_array().into_iter().flatten() {
        message
            .provider_items
            .push(OpaqueItem::new(format.item_kind(), item.to_string()));
    }
    message
}

/// Checks a body and its warnings against the `expect` of a request.
fn meets(expect: &Value, body: &str, diagnostics: &[Diagnostic]) -> Result<(), String> {
    let Value::Object(keys) = expect else {
        return Err("`expect` is no object".to_owned());
    };
    let value: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let links = Links::read(&value);
    for (key, wanted) in keys {
        let result = match key.as_str() {
            "one_of" => any_of(wanted, |one| meets(one, body, diagnostics)),
            "request" => check_request(wanted, &value),
            "body_contains" => every(wanted, |text| body.contains(text)),
            "body_not_contains" => every(wanted, |text| !body.contains(text)),
            "warnings_contain" => every(wanted, |text| {
                diagnostics.iter().any(|d| d.message.contains(text))
            }),
            "panics" => Ok(()),
            key => links.check(key, wanted),
        };
        result.map_err(|why| format!("{key}: {why} in {}", shorten(body)))?;
    }
    Ok(())
}

/// `{equals: {pointer: value}, absent: [pointer]}` on a body.
pub(crate) fn check_request(wanted: &Value, body: &Value) -> Result<(), String> {
    for (pointer, wanted) in wanted["equals"].as_object().into_iter().flatten() {
        check(wanted, body.pointer(pointer), body).map_err(|why| format!("{pointer} {why}"))?;
    }
    for pointer in wanted["absent"].as_array().into_iter().flatten() {
        let pointer = pointer.as_str().unwrap_or_default();
        if body.pointer(pointer).is_some() {
            return Err(format!("{pointer} is there"));
        }
    }
    Ok(())
}

/// Checks one key of an `expect` against a body that was sent.
pub(super) fn check_body(key: &str, wanted: &Value, body: &str) -> Result<(), String> {
    meets(&json!({key: wanted}), body, &[])
}

fn every(texts: &Value, holds: impl Fn(&str) -> bool) -> Result<(), String> {
    let mut texts = texts
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    match texts.find(|text| !holds(text)) {
        Some(text) => Err(format!("`{text}` fails")),
        None => Ok(()),
    }
}

/// Calls and results as they are linked in a body of any format.
#[derive(Debug, Default)]
struct Links {
    /// Ids in order, and the arguments of each.
    ids: Vec<String>,
    calls: BTreeMap<String, Value>,
    /// Call id, text, marked as a failure.
    results: Vec<(String, String, bool)>,
    tool_names: Vec<String>,
}

impl Links {
    fn read(body: &Value) -> Self {
        let mut links = Self::default();
        for tool in body["tools"].as_array().into_iter().flatten() {
            let name = tool.pointer("/function/name").or_else(|| tool.get("name"));
            links
                .tool_names
                .extend(name.and_then(Value::as_str).map(str::to_owned));
        }
        for list in ["messages", "input"] {
            links.walk(&body[list]);
        }
        links
    }

    fn walk(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.walk(item)),
            Value::Object(fields) => {
                self.take(value);
                fields.values().for_each(|field| self.walk(field));
            }
            _ => {}
        }
    }

    fn take(&mut self, object: &Value) {
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let mut call = |id: String, arguments: &Value| {
            self.ids.push(id.clone());
            self.calls.insert(id, parsed(arguments));
        };
        if let Some(arguments) = object.pointer("/function/arguments") {
            call(text("id"), arguments);
        }
        match object["type"].as_str() {
            Some("function_call") => call(text("call_id"), &object["arguments"]),
            Some("tool_use") => call(text("id"), &object["input"]),
            Some("function_call_output") => {
                let output = text("output");
                let failed = output.starts_with("Error");
                self.results.push((text("call_id"), output, failed));
            }
            Some("tool_result") => {
                let failed = object["is_error"] == true;
                self.results
                    .push((text("tool_use_id"), text("content"), failed));
            }
            _ => {}
        }
        if object["role"] == "tool" {
            let content = text("content");
            let failed = content.starts_with("Error");
            self.results.push((text("tool_call_id"), content, failed));
        }
    }

    fn check(&self, key: &str, wanted: &Value) -> Result<(), String> {
        let results = |id: &str| self.results.iter().filter(|(of, _, _)| of == id).count() as u64;
        match key {
            "wire_pairs" => {
                for pair in wanted.as_array().into_iter().flatten() {
                    self.check_pair(pair)?;
                }
                Ok(())
            }
            "wire_ids_unique" => {
                let mut ids = self.ids.clone();
                ids.sort_unstable();
                ids.dedup();
                let is_good = ids.len() == self.ids.len() && !ids.iter().any(String::is_empty);
                if is_good == (*wanted == true) {
                    Ok(())
                } else {
                    Err(format!("ids are {:?}", self.ids))
                }
            }
            "outputs_per_call" => match self
                .ids
                .iter()
                .find(|id| Some(results(id)) != wanted.as_u64())
            {
                None => Ok(()),
                Some(id) => Err(format!("`{id}` has {} outputs", results(id))),
            },
            "missing_result_is_error" => {
                let ids = match wanted {
                    Value::Array(ids) => ids.as_slice(),
                    one => std::slice::from_ref(one),
                };
                let is_failure = |id: &&Value| {
                    self.results
                        .iter()
                        .any(|(of, _, failed)| *failed && Some(of.as_str()) == id.as_str())
                };
                match ids.iter().find(|id| !is_failure(id)) {
                    None => Ok(()),
                    Some(id) => Err(format!("{id} has no error result")),
                }
            }
            "wire_tool_names" => check(wanted, Some(&json!(self.tool_names)), &Value::Null),
            "wire_name_regex" => {
                let regex = Regex::new(wanted.as_str().unwrap_or_default())
                    .map_err(|error| error.to_string())?;
                match self.tool_names.iter().find(|name| !regex.is_match(name)) {
                    None => Ok(()),
                    Some(name) => Err(format!("`{name}` does not fit")),
                }
            }
            other => Err(format!("no such expectation of a request: {other}")),
        }
    }

    fn check_pair(&self, pair: &Value) -> Result<(), String> {
        let result = pair[0].as_str().unwrap_or_default();
        let arguments = parsed(&pair[1]);
        let linked = self.results.iter().filter(|(id, text, _)| {
            // A wire without a mark for failures says so in the text.
            let is_text = text == result || text.strip_prefix("Error: ") == Some(result);
            is_text
                && self
                    .calls
                    .get(id)
                    .is_some_and(|call| same(call, &arguments))
        });
        match linked.count() {
            1 => Ok(()),
            n => Err(format!("{pair} is linked {n} times: {:?}", self.results)),
        }
    }
}

/// Arguments as a value, from their JSON text if that is how they stand.
fn parsed(arguments: &Value) -> Value {
    match arguments.as_str() {
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        None => arguments.clone(),
    }
}
