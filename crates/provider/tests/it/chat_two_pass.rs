//! Two passes over chat services. Rows B16, D1, D6-D11, D13, D14, M4, X1.

use std::sync::Arc;

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, Reply};
use twopass_provider::backend::Chat;
use twopass_provider::config::{OnError, TwoPassMode};
use twopass_provider::{CallOptions, ErrorKind, Provider, Thinking, ToolChoice};
use twopass_replay::{Answer, Server};

use crate::chat::{provider, time_tool};
use crate::native::hello;
use crate::play;

const BUDGET: &str = "    generation_config: {two_pass: true, max_thinking_tokens: 8, max_response_tokens: 32, stop: [END]}\n";

fn delta(delta: &Value, finish: &Value, tokens: u64) -> Answer {
    let choice = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": tokens}});
    Answer::events([format!(
        "data: {choice}\n\ndata: {usage}\n\ndata: [DONE]\n\n"
    )])
}

fn text(text: &str, finish: &str) -> Answer {
    delta(&json!({"content": text}), &json!(finish), 4)
}

async fn reply(provider: &Provider) -> Reply {
    provider.client().invoke(hello()).await.unwrap().reply
}

fn bodies(server: &Server) -> Vec<Value> {
    server.requests().iter().map(|asked| asked.json()).collect()
}

fn last_message(body: &Value) -> &Value {
    body["messages"]
        .as_array()
        .and_then(|all| all.last())
        .unwrap()
}

// Rows D6-D9, D11, D13: the service cut the closing tag off; the second request ends in the
// closed block and nothing else, and each pass has its own cap and stops.
#[tokio::test]
async fn d7_d8_append_message() {
    let server = play(vec![text("<think>plan", "stop"), text("Yes.", "stop")]).await;
    let reply = reply(&provider(&server, "openai", BUDGET)).await;
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("plan", "Yes.")
    );
    assert_eq!(reply.diagnostics, []);
    assert!(!reply.reasoning_truncated);
    let passes: Vec<_> = reply
        .passes
        .iter()
        .map(|p| (p.name, p.means, p.max_tokens))
        .collect();
    assert_eq!(
        passes,
        [
            ("thinking", "append_message", Some(8)),
            ("answer", "append_message", Some(32))
        ]
    );
    assert_eq!(
        (reply.usage.thinking_tokens, reply.usage.response_tokens),
        (4, 4)
    );
    let bodies = bodies(&server);
    assert_eq!(bodies[0]["max_tokens"], 8);
    assert_eq!(bodies[0]["stop"], json!(["</think>", "</thinking>"]));
    assert!(
        bodies[0]["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("<think>")
    );
    assert_eq!(bodies[1]["max_tokens"], 32);
    assert_eq!(bodies[1]["stop"], json!(["END"]));
    assert_eq!(
        *last_message(&bodies[1]),
        json!({"role": "assistant", "content": "<think>plan</think>\n\n"})
    );
    let n = |body: &Value| body["messages"].as_array().unwrap().len();
    assert_eq!(n(&bodies[1]), n(&bodies[0]) + 1);
}

// Row D7: no opening tag, so there is one call and its text is the answer.
#[tokio::test]
async fn d7_no_tag_returns_after_one_call() {
    let server = play(vec![text("Just so.", "stop")]).await;
    let reply = reply(&provider(&server, "openai", BUDGET)).await;
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("", "Just so.")
    );
    assert_eq!(server.requests().len(), 1);
}

// Row D3: the cap cuts the thought; it is closed and says so.
#[tokio::test]
async fn d3_cap_closes_the_thought() {
    let server = play(vec![text("<think>long", "length"), text("Yes.", "stop")]).await;
    let reply = reply(&provider(&server, "openai", BUDGET)).await;
    assert!(reply.reasoning_truncated);
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("long", "Yes.")
    );
}

// Row D10: vLLM continues the closed thought with thinking switched off; its own reasoning
// field is the same thought.
#[tokio::test]
async fn d10_chat_prefill() {
    let thought = delta(&json!({"reasoning": "plan"}), &json!("stop"), 3);
    let server = play(vec![thought, text("Yes.", "stop")]).await;
    let budget = BUDGET.replace('}', ", chat_template_kwargs: {enable_thinking: true}}");
    let lines = format!("    preset: vllm\n{budget}");
    let reply = reply(&provider(&server, "openai", &lines)).await;
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("plan", "Yes.")
    );
    assert_eq!(reply.passes[1].means, "chat_prefill");
    let bodies = bodies(&server);
    assert_eq!(last_message(&bodies[0])["content"], "<think>");
    assert_eq!(
        last_message(&bodies[1])["content"],
        "<think>plan</think>\n\n"
    );
    for body in &bodies {
        assert_eq!(body["continue_final_message"], true);
        assert_eq!(body["add_generation_prompt"], false);
    }
    assert_eq!(
        bodies[0]["chat_template_kwargs"],
        json!({"enable_thinking": true})
    );
    assert_eq!(
        bodies[1]["chat_template_kwargs"],
        json!({"enable_thinking": false})
    );
}

// A refused prefill falls to the next means, in either pass, and says so.
#[tokio::test]
async fn d10_refused_prefill_falls_to_the_next_means() {
    let no = || {
        Answer::json(
            400,
            &json!({"error": "continue_final_message is not supported"}),
        )
    };
    let rows = [
        (
            vec![no(), text("<think>plan", "stop"), text("Yes.", "stop")],
            3,
        ),
        (vec![text("plan", "stop"), no(), text("Yes.", "stop")], 3),
    ];
    for (answers, n_calls) in rows {
        let server = play(answers).await;
        let lines = format!("    preset: vllm\n{BUDGET}");
        let reply = reply(&provider(&server, "openai", &lines)).await;
        assert_eq!(
            (reply.reasoning.as_str(), reply.content.as_str()),
            ("plan", "Yes.")
        );
        assert_eq!(reply.passes[1].means, "append_message");
        assert_eq!(reply.diagnostics.len(), 1);
        assert_eq!(reply.diagnostics[0].kind, DiagnosticKind::Degraded);
        assert!(reply.diagnostics[0].message.contains("`chat_prefill`"));
        let bodies = bodies(&server);
        assert_eq!(bodies.len(), n_calls);
        assert_eq!(bodies[2].get("continue_final_message"), None);
    }
}

// Row M4: the service's own budget, as a number or as an effort; an endpoint that has none
// for this model gets two requests.
/// The budget that goes out is the one that was asked for, however thinking was asked for.
#[tokio::test]
async fn m4_the_budget_asked_for_is_the_budget_sent() {
    let (on, by_config) = (Thinking::On, Thinking::ByConfig);
    let two = Some(TwoPassMode::On);
    // Preset, thinking, two passes, the call's budget; where it goes.
    let rows = [
        (
            "openrouter",
            on,
            two,
            Some(8),
            "/reasoning",
            json!({"max_tokens": 8}),
        ),
        (
            "openrouter",
            by_config,
            two,
            Some(8),
            "/reasoning",
            json!({"max_tokens": 8}),
        ),
        (
            "openrouter",
            on,
            None,
            Some(8),
            "/reasoning",
            json!({"max_tokens": 8}),
        ),
        (
            "openrouter",
            by_config,
            None,
            Some(8),
            "/reasoning",
            json!({"max_tokens": 8}),
        ),
        (
            "openrouter",
            on,
            None,
            None,
            "/reasoning",
            json!({"max_tokens": 5}),
        ),
        (
            "anthropic",
            on,
            two,
            Some(2000),
            "/thinking/budget_tokens",
            json!(2000),
        ),
        (
            "anthropic",
            on,
            None,
            Some(2000),
            "/thinking/budget_tokens",
            json!(2000),
        ),
        ("ollama", by_config, None, Some(0), "/think", json!(false)),
        ("ollama", on, two, Some(0), "/think", json!(false)),
    ];
    for (preset, thinking, two_pass, budget, pointer, value) in rows {
        let server = play(vec![Answer::json(400, &json!({}))]).await;
        let backend = match preset {
            "anthropic" | "ollama" => preset,
            _ => "openai",
        };
        let lines = format!(
            "    preset: {preset}\n    generation_config: {{max_thinking_tokens: 5, max_tokens: 8000}}\n"
        );
        let provider = provider(&server, backend, &lines);
        let options = CallOptions {
            thinking,
            two_pass,
            max_thinking_tokens: budget,
            max_response_tokens: Some(8000),
            ..CallOptions::default()
        };
        provider
            .client()
            .with_options(options)
            .invoke(hello())
            .await
            .unwrap_err();
        let body = &bodies(&server)[0];
        assert_eq!(
            body.pointer(pointer),
            Some(&value),
            "{preset} {thinking:?} {two_pass:?} {body}"
        );
    }
}

#[tokio::test]
async fn m4_native_budgets() {
    let rows = [
        ("openrouter", "/reasoning", json!({"max_tokens": 8}), 0),
        ("openai", "/reasoning_effort", json!("low"), 1),
    ];
    for (preset, field, value, n_notes) in rows {
        let server = play(vec![text("Yes.", "stop")]).await;
        let lines = format!("    preset: {preset}\n{BUDGET}");
        let reply = reply(&provider(&server, "openai", &lines)).await;
        let means: Vec<_> = reply.passes.iter().map(|pass| pass.means).collect();
        assert_eq!(means, ["native_budget", "native_budget"]);
        assert_eq!(reply.diagnostics.len(), n_notes, "{:?}", reply.diagnostics);
        assert_eq!(bodies(&server)[0].pointer(field), Some(&value));
    }
    let refusal = json!({"error": {"message": "Unsupported parameter: 'reasoning_effort' is not supported with this model."}});
    let server = play(vec![
        Answer::json(400, &refusal),
        text("<think>plan", "stop"),
        text("Yes.", "stop"),
    ])
    .await;
    let lines = format!("    preset: openai\n{BUDGET}");
    let reply = reply(&provider(&server, "openai", &lines)).await;
    assert_eq!(reply.content, "Yes.");
    assert_eq!(reply.passes[0].means, "append_message");
    assert!(reply.diagnostics[0].message.contains("`native_budget`"));
}

// Row D14: the second pass fails, the thought is kept and the answer is the error's text.
#[tokio::test]
async fn d14_failed_second_pass_keeps_the_thought() {
    let server = play(vec![
        text("<think>plan", "stop"),
        Answer::json(500, &json!({"error": "boom"})),
    ])
    .await;
    let raising = provider(&server, "openai", BUDGET);
    let error = raising.client().invoke(hello()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpstreamError);
    assert!(!error.is_retryable());
    assert_eq!(error.partial().unwrap().reasoning, "plan");
    let server = play(vec![
        text("<think>plan", "stop"),
        Answer::json(500, &json!({"error": "boom"})),
    ])
    .await;
    // Row B1: the facade gives both texts on this path as well.
    let mut config = provider(&server, "openai", BUDGET).config().clone();
    config.on_error = OnError::Message;
    let backend = Chat::new(&config).unwrap();
    let facade = Provider::new(config, Arc::new(backend));
    let said = facade.invoke(hello(), true).await.unwrap();
    assert_eq!(said.thinking, "plan");
    assert_eq!(said.response, "Error: provider `c`: HTTP 500: boom");
}

// Rows B16, X1: bound tools keep the native single pass, thinking=false too.
#[tokio::test]
async fn b16_tools_and_plain_turns_are_one_pass() {
    let server = play(vec![text("Yes.", "stop")]).await;
    let provider = provider(&server, "openai", BUDGET);
    let client = provider
        .client()
        .bind_tools(vec![time_tool()], ToolChoice::Auto);
    client.invoke(hello()).await.unwrap();
    let options = CallOptions {
        thinking: Thinking::Off,
        ..CallOptions::default()
    };
    provider.invoke_with(hello(), options).await.unwrap();
    let bodies = bodies(&server);
    assert_eq!(bodies.len(), 2);
    assert!(bodies.iter().all(|body| body["stop"] == json!(["END"])));
    assert_eq!(bodies[0]["tools"][0]["function"]["name"], "get_time");
    assert_eq!(bodies[1].get("chat_template_kwargs"), None);
}

// Rows X1, B5: two passes with tools where they are asked for; structured calls come through.
#[tokio::test]
async fn x1_two_passes_with_tools() {
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "get_time", "arguments": "{\"tz\":\"UTC\"}"}}]});
    let server = play(vec![
        text("<think>plan", "stop"),
        delta(&call, &json!("tool_calls"), 5),
    ])
    .await;
    let lines = format!("{BUDGET}    two_pass_with_tools: true\n");
    let provider = provider(&server, "openai", &lines);
    let client = provider
        .client()
        .bind_tools(vec![time_tool()], ToolChoice::Required);
    let message = client.invoke(hello()).await.unwrap();
    assert_eq!(message.thinking, "plan");
    assert_eq!(message.tool_calls[0].id, "c1");
    assert_eq!(message.reply.stop_reason.as_str(), "tool_calls");
    assert_eq!(message.reply.diagnostics, []);
    // Row M7: one that does not hold is in the reply too.
    let broken = json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "get_date", "arguments": "{}"}}]});
    let server = play(vec![
        text("<think>plan", "stop"),
        delta(&broken, &json!("tool_calls"), 5),
    ])
    .await;
    let provider = self::provider(&server, "openai", &lines);
    let client = provider
        .client()
        .bind_tools(vec![time_tool()], ToolChoice::Auto);
    let reply = client.invoke(hello()).await.unwrap().reply;
    let names: Vec<_> = reply
        .invalid_tool_calls
        .iter()
        .map(|call| call.name.as_deref())
        .collect();
    assert_eq!(
        (reply.tool_calls, names),
        (Vec::new(), vec![Some("get_date")])
    );
}
