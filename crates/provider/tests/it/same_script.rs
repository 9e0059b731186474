//! The same agent script over every kind of backend: two tools, three turns, reasoning kept.
//! Rows B4, B5, B18, G1, H12, J11.
//!
//! Each remote kind is served over a loopback socket by the server side of its own format.

use serde_json::{Value, json};
use twopass_core::chat::{
    Arguments, Event, Message, Reply, Role, StopReason, ToolCall, ToolSpec, Usage,
};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, Delivery, Provider, ToolChoice};
use twopass_replay::Answer;
use twopass_wire::generate::GenerateRequest;
use twopass_wire::{
    ReplyMeta, anthropic_messages, generate, ollama_chat, openai_chat, openai_responses,
};

use crate::chat::time_tool;
use crate::play;

fn weather_tool() -> ToolSpec {
    ToolSpec {
        name: "get_weather".to_owned(),
        description: "Tells the weather.".to_owned(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    }
}

/// What the model says, turn by turn: thought, text, calls.
fn script() -> Vec<Reply> {
    let call = |id: &str, name: &str, arguments: Value| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::from_text(arguments.to_string()).unwrap(),
    };
    let turn = |reasoning: &str, content: &str, tool_calls: Vec<ToolCall>| Reply {
        reasoning: reasoning.to_owned(),
        content: content.to_owned(),
        stop_reason: match tool_calls.is_empty() {
            true => StopReason::EndTurn,
            false => StopReason::ToolCalls,
        },
        tool_calls,
        usage: Usage {
            prompt_tokens: 9,
            thinking_tokens: 2,
            response_tokens: 5,
            cached_tokens: 0,
        },
        ..Reply::default()
    };
    vec![
        turn(
            "Two cities, two tools.",
            "Let me look.",
            vec![
                call("id_a", "get_time", json!({"tz": "UTC"})),
                call("id_b", "get_weather", json!({"city": "Oslo"})),
            ],
        ),
        turn(
            "One more.",
            "",
            vec![call("id_c", "get_time", json!({"tz": "JST"}))],
        ),
        turn("Enough.", "It rains.", Vec::new()),
    ]
}

fn events(reply: &Reply) -> Vec<Event> {
    let mut events = vec![
        Event::ReasoningDelta(reply.reasoning.clone()),
        Event::ReasoningBlockEnd,
    ];
    if !reply.content.is_empty() {
        events.push(Event::TextDelta(reply.content.clone()));
    }
    for (call_idx, call) in reply.tool_calls.iter().enumerate() {
        events.push(Event::CallStarted {
            call_idx,
            id: call.id.clone(),
            name: call.name.clone(),
        });
        events.push(Event::ArgumentsDelta {
            call_idx,
            text: call.arguments.as_text().to_owned(),
        });
        events.push(Event::CallFinished {
            call_idx,
            call: call.clone(),
        });
    }
    events
}

/// A stream encoder of any format, run over a whole turn.
macro_rules! stream_of {
    ($encoder:expr, $reply:expr) => {{
        let (mut encoder, mut out) = ($encoder, String::new());
        for event in events($reply) {
            encoder.encode(&event, &mut out);
        }
        encoder.encode_done($reply, &mut out);
        out
    }};
}

/// The script as this kind of server answers it.
fn answers(kind: &str, delivery: Delivery) -> Vec<Answer> {
    let meta = ReplyMeta {
        id: "r1".to_owned(),
        created_s: 1,
        model: "m".to_owned(),
        ..ReplyMeta::default()
    };
    let answer = |reply: &Reply| {
        let whole = delivery == Delivery::Whole;
        let meta = meta.clone();
        let body = match (kind, whole) {
            ("openai", true) => openai_chat::encode_reply(reply, &meta),
            ("openai", false) => stream_of!(openai_chat::StreamEncoder::new(meta, true), reply),
            ("openai_responses", true) => openai_responses::encode_reply(reply, &meta),
            ("openai_responses", false) => {
                stream_of!(openai_responses::StreamEncoder::new(meta), reply)
            }
            ("anthropic", true) => anthropic_messages::encode_reply(reply, &meta, true),
            ("anthropic", false) => {
                stream_of!(anthropic_messages::StreamEncoder::new(meta, true), reply)
            }
            ("ollama", true) => ollama_chat::encode_reply(reply, &meta),
            ("ollama", false) => stream_of!(ollama_chat::StreamEncoder::new(meta), reply),
            (_, true) => generate::encode_reply(reply),
            (_, false) => stream_of!(generate::StreamEncoder::new(), reply),
        };
        match (kind, whole) {
            (_, true) => Answer::new(200, "application/json", body),
            ("ollama", false) => Answer::new(200, "application/x-ndjson", body),
            (_, false) => Answer::events([body]),
        }
    };
    script().iter().map(answer).collect()
}

/// The messages that this kind of server read from a request.
fn read_back(kind: &str, body: &[u8]) -> Vec<Message> {
    let wire = match kind {
        "openai" => openai_chat::decode_request(body),
        "openai_responses" => openai_responses::decode_request(body),
        "anthropic" => anthropic_messages::decode_request(body),
        "ollama" => ollama_chat::decode_request(body),
        _ => return GenerateRequest::from_json(body).unwrap().messages,
    };
    wire.unwrap().request.messages
}

/// One line per message; ids become numbers in the order of the calls.
fn normalised(messages: &[Message], with_reasoning: bool) -> String {
    let mut ids: Vec<String> = Vec::new();
    let mut out = String::new();
    for message in messages {
        out += message.role.as_str();
        if let Some(id) = &message.tool_call_id {
            let n = ids.iter().position(|known| known == id);
            out += &format!(" #{}", n.map_or("?".to_owned(), |n| n.to_string()));
        }
        if let Some(reasoning) = message.reasoning.as_ref().filter(|_| with_reasoning) {
            out += &format!(" ({reasoning})");
        }
        out += &format!(" {:?}", message.content_text());
        for call in &message.tool_calls {
            out += &format!(" #{} {}{}", ids.len(), call.name, call.arguments.as_text());
            ids.push(call.id.clone());
        }
        out.push('\n');
    }
    out
}

/// Runs the agent: its tools answer with their own arguments.
async fn run(provider: &Provider, delivery: Delivery) -> Vec<Message> {
    let mut messages = vec![
        Message::text(Role::System, "Be brief."),
        Message::text(Role::User, "Time and weather?"),
    ];
    let options = CallOptions {
        delivery,
        ..CallOptions::default()
    };
    let client = provider
        .client()
        .with_options(options)
        .bind_tools(vec![time_tool(), weather_tool()], ToolChoice::Auto);
    for _ in 0..script().len() {
        let answer = client.invoke(messages.clone()).await.unwrap();
        messages.push(answer.to_message());
        for call in &answer.tool_calls {
            let result = format!("{} says {}", call.name, call.arguments.as_text());
            messages.push(Message::tool_result(call.id.clone(), result));
        }
    }
    messages
}

#[tokio::test]
async fn b18_every_backend_gives_the_same_messages() {
    let kinds = [
        "openai",
        "openai_responses",
        "anthropic",
        "ollama",
        "vllm_native",
    ];
    let mut seen: Option<(String, String)> = None;
    for kind in kinds {
        for delivery in [Delivery::Stream, Delivery::Whole] {
            let server = play(answers(kind, delivery)).await;
            let yaml = format!(
                "providers:\n  - {{name: s, provider_backend: {kind}, model_name: m, on_error: raise, reasoning_replay: full, api_config: {{base_url: '{}', max_retries: 0}}}}\n",
                server.url()
            );
            let config = Config::parse(&yaml, "t.yaml", Environment::default()).unwrap();
            let provider = Provider::from_entry(&config, None).unwrap();
            let history = normalised(&run(&provider, delivery).await, true);
            let last = server.requests().pop().unwrap();
            // Row H12: where the service takes tools, they are sent as tools.
            let body: Value = serde_json::from_slice(&last.body).unwrap();
            assert_eq!(body["tools"].as_array().map(Vec::len), Some(2), "{kind}");
            let sent = normalised(&read_back(kind, &last.body), false);
            match &seen {
                None => {
                    insta::assert_snapshot!("same_script_history", history);
                    insta::assert_snapshot!("same_script_sent", sent);
                    seen = Some((history, sent));
                }
                Some((first_history, first_sent)) => {
                    assert_eq!(history, *first_history, "{kind} {delivery:?}");
                    assert_eq!(sent, *first_sent, "{kind} {delivery:?}");
                }
            }
        }
    }
}

/// The text of a turn's answer as a Hermes model writes it.
fn hermes_text(reply: &Reply) -> String {
    let calls = reply.tool_calls.iter().map(|call| {
        let (name, arguments) = (&call.name, call.arguments.as_text());
        format!("\n<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    });
    let calls: String = calls.collect();
    format!("{}{calls}", reply.content)
}

#[tokio::test]
async fn b18_raw_completions_give_the_same_messages() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
    let tokens = |ids: &[u32]| Answer::json(200, &json!({ "tokens": ids }));
    let ended = |text: &str, ids: &[u32], stop: &str| {
        let event = json!({"content": text, "tokens": ids, "stop": true, "stop_type": stop,
            "stopping_word": if stop == "word" { "</think>" } else { "" }});
        Answer::events([format!("data: {event}\n\n")])
    };
    let props = json!({"chat_template": template, "eos_token": "<|im_end|>"});
    let mut answers = vec![Answer::json(200, &props)];
    for reply in script() {
        let thought = format!("{}\n", reply.reasoning);
        answers.extend([
            tokens(&[1]),
            tokens(&[2]),
            ended(&thought, &[3, 9], "word"),
            tokens(&[9]),
            Answer::json(200, &json!({ "content": thought })),
            tokens(&[9, 4]),
            ended(&hermes_text(&reply), &[5], "eos"),
        ]);
    }
    let server = play(answers).await;
    let provider = crate::chat::provider(&server, "completions", "");
    let history = run(&provider, Delivery::Stream).await;
    insta::assert_snapshot!("same_script_history", normalised(&history, true));
    // Row H12: raw completions take no tools; they are in the prompt, calls are read from text.
    let bodies = server.requests().into_iter().skip(1);
    let bodies = bodies.map(|request| serde_json::from_slice(&request.body).unwrap());
    let bodies: Vec<Value> = bodies.collect();
    assert!(bodies.iter().all(|body| body.get("tools").is_none()));
    let prompts = bodies.iter().filter_map(|body| body["content"].as_str());
    assert!(
        prompts
            .into_iter()
            .any(|prompt| prompt.contains("get_weather"))
    );
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn b18_the_embedded_engine_gives_the_same_messages() {
    use std::sync::Arc;

    use twopass_provider::ProviderConfig;
    use twopass_provider::backend::Embedded;

    let path = std::env::var_os("TWOPASS_TEST_QWEN3");
    let path = path.expect("TWOPASS_TEST_QWEN3 is not set: run `cargo xtask test`, which sets it");
    let path = std::path::PathBuf::from(path);
    let config = ProviderConfig::embedded("local", &path.display().to_string());
    let backend = Embedded::new(&config, path).unwrap().reciting(|request| {
        let turns = request.messages.iter();
        let n = turns
            .filter(|message| message.role == Role::Assistant)
            .count();
        let reply = script().into_iter().nth(n)?;
        Some(format!(
            "{}</think>\n\n{}",
            reply.reasoning,
            hermes_text(&reply)
        ))
    });
    let provider = Provider::new(config, Arc::new(backend));
    let history = run(&provider, Delivery::Stream).await;
    insta::assert_snapshot!("same_script_history", normalised(&history, true));
}
