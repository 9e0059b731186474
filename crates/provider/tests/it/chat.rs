//! Chat services against real local servers. Rows A12, B9, B17, G1, G2, H5, J2-J4, L12.

use std::time::Duration;

use serde_json::{Value, json};
use twopass_core::chat::{Reply, StopReason};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{
    CallOptions, ChatMessage, Delivery, ErrorKind, Provider, ToolChoice, ToolSpec, TurnItem,
};
use twopass_replay::{Answer, Pace, Server, Step};

use crate::native::hello;
use crate::play;

/// A provider of this backend over the server; `lines` are further lines of the entry.
pub(crate) fn provider(server: &Server, backend: &str, lines: &str) -> Provider {
    let yaml = format!(
        "providers:\n  - name: c\n    provider_backend: {backend}\n    model_name: org/m.1\n    on_error: raise\n    content_mode: clean\n    api_config:\n      base_url: {}\n      api_key_env: K\n      timeout_s: {{connect: 2, first_token: 0.5, idle: 0.5, total: 5}}\n      max_retries: 0\n{lines}",
        server.url()
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([("K", "sk-chat")])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

pub(crate) fn time_tool() -> ToolSpec {
    ToolSpec {
        name: "get_time".to_owned(),
        description: "Tells the time.".to_owned(),
        parameters: json!({"type": "object", "properties": {"tz": {"type": "string"}}, "required": ["tz"]}),
    }
}

async fn whole(provider: &Provider, tools: Vec<ToolSpec>) -> ChatMessage {
    let options = CallOptions {
        delivery: Delivery::Whole,
        ..CallOptions::default()
    };
    let client = provider.client().with_options(options);
    let client = client.bind_tools(tools, ToolChoice::Auto);
    client.invoke(hello()).await.unwrap()
}

/// One whole answer of each format: a thought, a word, a call.
fn answers() -> [(&'static str, &'static str, Value); 4] {
    [
        (
            "openai",
            "/v1/chat/completions",
            json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "Sure.", "reasoning": "Need tz.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": "{\"tz\":\"UTC\"}"}}]}}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 2}}}),
        ),
        (
            "openai_responses",
            "/v1/responses",
            json!({"id": "r", "object": "response", "status": "completed", "output": [
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Need tz."}]},
                {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Sure.", "annotations": []}]},
                {"type": "function_call", "id": "f", "call_id": "c1", "name": "get_time", "arguments": "{\"tz\":\"UTC\"}"}],
                "usage": {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 2}}}),
        ),
        (
            "anthropic",
            "/v1/messages",
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "content": [
                {"type": "thinking", "thinking": "Need tz.", "signature": "SIG=="},
                {"type": "text", "text": "Sure."},
                {"type": "tool_use", "id": "c1", "name": "get_time", "input": {"tz": "UTC"}}],
                "usage": {"input_tokens": 5, "output_tokens": 9}}),
        ),
        (
            "ollama",
            "/api/chat",
            json!({"model": "m", "done": true, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 9, "message": {
                "role": "assistant", "content": "Sure.", "thinking": "Need tz.",
                "tool_calls": [{"id": "c1", "function": {"name": "get_time", "arguments": {"tz": "UTC"}}}]}}),
        ),
    ]
}

// Rows B5, G1, H4, H5, J9: whatever the format, the message is the same.
#[tokio::test]
async fn b5_every_format_gives_the_same_message() {
    for (backend, path, body) in answers() {
        let server = play(vec![Answer::json(200, &body)]).await;
        let provider = provider(&server, backend, "");
        let message = whole(&provider, vec![time_tool()]).await;
        assert_eq!(message.content, "Sure.", "{backend}");
        assert_eq!(message.thinking, "Need tz.", "{backend}");
        assert_eq!(message.tool_calls.len(), 1, "{backend}");
        assert_eq!(message.tool_calls[0].id, "c1", "{backend}");
        assert_eq!(message.tool_calls[0].arguments.as_object()["tz"], "UTC");
        let Reply {
            stop_reason,
            usage,
            passes,
            diagnostics,
            ..
        } = message.reply;
        assert_eq!(stop_reason, StopReason::ToolCalls, "{backend}");
        assert_eq!(usage.prompt_tokens, 5, "{backend}");
        assert_eq!(
            usage.response_tokens + usage.thinking_tokens,
            9,
            "{backend}"
        );
        assert_eq!((passes.len(), passes[0].means), (1, "single"), "{backend}");
        assert_eq!(diagnostics, [], "{backend}");
        let asked = server.requests().remove(0);
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", path));
        let (key, value) = match backend {
            "anthropic" => ("x-api-key", "sk-chat"),
            _ => ("authorization", "Bearer sk-chat"),
        };
        assert_eq!(asked.header(key), Some(value), "{backend}");
        let version = asked.header("anthropic-version");
        assert_eq!(version.is_some(), backend == "anthropic");
        let sent = asked.json();
        assert_eq!(sent["model"], "org/m.1");
        assert_ne!(sent["stream"], true, "{backend}");
    }
}

// Case rule 19, row G2: comments, tags over chunks, the end marker; the connection stays open.
#[tokio::test]
async fn c7_tags_in_a_stream_are_split_and_the_end_marker_ends_it() {
    let text = ": hi\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"<thi\"}}]}\n\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"nk>hm</think>\\nYes\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";
    let open = Answer::events([text]).then(Step::Wait(Duration::from_secs(9)));
    let servers = [
        play(vec![open]).await,
        Server::start(vec![Answer::events([text])], Pace::OneByte)
            .await
            .unwrap(),
    ];
    for server in &servers {
        let provider = provider(server, "openai", "");
        let mut stream = provider.client().stream(hello()).await.unwrap();
        let mut text = String::new();
        let mut reply = None;
        while let Some(item) = stream.next().await {
            match item.unwrap() {
                TurnItem::Event(twopass_core::chat::Event::TextDelta(delta)) => text += &delta,
                TurnItem::Event(_) => {}
                TurnItem::Done(done) => reply = Some(*done),
            }
        }
        let reply = reply.unwrap();
        assert_eq!(
            (
                text.trim(),
                reply.content.as_str(),
                reply.reasoning.as_str()
            ),
            ("Yes", "Yes", "hm")
        );
        assert_eq!(
            (reply.usage.prompt_tokens, reply.usage.response_tokens),
            (3, 4)
        );
    }
}

// Case rules 16, 17: what came before a failure is handed out first.
#[tokio::test]
async fn events_before_a_fault_in_one_chunk_are_kept() {
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\ndata: {\"error\":{\"message\":\"boom\"}}\n\n";
    let server = play(vec![Answer::events([text])]).await;
    let mut stream = provider(&server, "openai", "")
        .client()
        .stream(hello())
        .await
        .unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(
        first,
        TurnItem::Event(twopass_core::chat::Event::TextDelta("Par".to_owned()))
    );
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpstreamError);
    assert!(!error.is_retryable());
}

// A service that knows no thinking is asked again without it.
#[tokio::test]
async fn m4_refused_thinking_is_left_out() {
    let refusal = Answer::json(400, &json!({"error": "\"m\" does not support thinking"}));
    let (_, _, answer) = answers().into_iter().next_back().unwrap();
    let server = play(vec![refusal, Answer::json(200, &answer)]).await;
    let provider = provider(&server, "ollama", "");
    let options = CallOptions {
        thinking: twopass_provider::Thinking::On,
        delivery: Delivery::Whole,
        ..CallOptions::default()
    };
    let client = provider.client().with_options(options);
    let message = client.invoke(hello()).await.unwrap();
    assert!(message.reply.diagnostics[0].message.contains("thinking"));
    let bodies: Vec<Value> = server.requests().iter().map(|asked| asked.json()).collect();
    assert_eq!(bodies[0]["think"], true);
    assert_eq!(bodies[1].get("think"), None);
}
