//! Choices of the configuration over chat services: presets, reasoning that goes back, tools
//! in the text, ends of turns. Rows A3, A7, A12, A15, A16, B9-B11, B17, C2, E18, G1-G9,
//! L13, X3, X8, X9, X16, X19.

use serde_json::{Value, json};
use twopass_core::chat::{Media, MediaSource, Message, Part, Role, StopReason};
use twopass_provider::config::{BackendKind, Config, Environment, TwoPassMode, notices};
use twopass_provider::preset::{PRESETS, Preset};
use twopass_provider::{
    CallOptions, ChatMessage, Delivery, ErrorKind, Provider, Thinking, ToolChoice,
};
use twopass_replay::{Answer, Server};

use crate::chat::{provider, time_tool};
use crate::native::hello;
use crate::play;

fn chat(message: &Value, finish: &str) -> Answer {
    Answer::json(
        200,
        &json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}),
    )
}

async fn ask(provider: &Provider, messages: Vec<Message>) -> ChatMessage {
    let options = CallOptions {
        delivery: Delivery::Whole,
        ..CallOptions::default()
    };
    let client = provider.client().with_options(options);
    let client = client.bind_tools(vec![time_tool()], ToolChoice::Auto);
    client.invoke(messages).await.unwrap()
}

fn last_body(server: &Server) -> Value {
    server.requests().pop().unwrap().json()
}

// Rows A12, A15: every row can be found, and its address is one.
#[test]
fn a12_presets_are_found_by_name_and_by_host() {
    let readme = include_str!("../../../../README.md");
    for preset in PRESETS {
        assert!(
            readme.contains(&format!("`{}`", preset.name)),
            "README: {}",
            preset.name
        );
        assert!(Preset::from_name(preset.name).is_some());
        assert!(!preset.means.is_empty(), "{}", preset.name);
        let Some(base) = preset.base_url else {
            continue;
        };
        let url = base.parse().unwrap();
        assert_eq!(preset.is_at(&url), preset.host.is_some(), "{}", preset.name);
        let found = Preset::of(preset.backend, None, Some(&url));
        if preset.host.is_some() {
            assert_eq!(found, preset);
        }
    }
    let foreign = "https://api.openai.com.attacker.example/v1"
        .parse()
        .unwrap();
    assert_eq!(
        Preset::of(BackendKind::OpenAi, None, Some(&foreign)).name,
        "custom"
    );
}

// Case rule 24 and rows A6, A7: addresses and keys.
#[test]
fn a6_addresses_and_headers() {
    let rows = [
        (
            "openai",
            "http://127.0.0.1:8000/v1/",
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        (
            "openai",
            "http://127.0.0.1:8000",
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        (
            "openai",
            "https://h/api/v3/chat/completions",
            "https://h/api/v3/chat/completions",
        ),
        (
            "openai",
            "http://h/chat/completions",
            "http://h/chat/completions",
        ),
        ("openai_responses", "http://h", "http://h/v1/responses"),
        ("anthropic", "http://h", "http://h/v1/messages"),
        ("ollama", "http://h:11434/v1", "http://h:11434/api/chat"),
        ("vllm_native", "http://h/generate", "http://h/generate"),
    ];
    let parse = |lines: &str, env: &[(&str, &str)]| {
        let yaml = format!("providers:\n  - {{name: a, model_name: m, {lines}}}\n");
        let environment = Environment::of_pairs(env.iter().copied());
        Config::parse(&yaml, "t.yaml", environment).unwrap()
    };
    for (backend, base, url) in rows {
        let lines =
            format!("provider_backend: {backend}, api_config: {{base_url: '{base}', auth: none}}");
        let config = parse(&lines, &[("OPENAI_API_KEY", "sk-openai")]);
        let entry = config.provider(None).unwrap();
        assert_eq!(entry.turn_url().unwrap().as_str(), url);
        let names: Vec<_> = entry
            .request_headers()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert!(!names.contains(&"authorization".to_owned()), "{backend}");
    }
    // A service that goes on after a message at an address of its own: there, and nowhere else.
    for (base, url) in [
        (
            "https://api.deepseek.com/v1",
            "https://api.deepseek.com/beta/chat/completions",
        ),
        (
            "https://api.deepseek.com/beta",
            "https://api.deepseek.com/beta/chat/completions",
        ),
        ("http://h/v1", "http://h/v1/chat/completions"),
    ] {
        let lines = format!("preset: deepseek, api_config: {{base_url: '{base}', auth: none}}");
        let config = parse(&lines, &[]);
        let entry = config.provider(None).unwrap();
        assert_eq!(entry.continue_url().unwrap().as_str(), url, "{base}");
    }
    let env = [("OPENAI_API_KEY", "sk-openai"), ("GROQ_API_KEY", "sk-groq")];
    let config = parse("preset: groq", &env);
    let entry = config.provider(None).unwrap();
    assert_eq!(
        entry.models_url().unwrap().as_str(),
        "https://api.groq.com/openai/v1/models"
    );
    let header = entry.request_headers().remove(0);
    assert_eq!(header.0, "authorization");
    assert_eq!(
        secrecy::ExposeSecret::expose_secret(&header.1),
        "Bearer sk-groq"
    );
    // The preset's key goes to the preset's host only.
    let proxied = parse(
        "preset: groq, api_config: {base_url: 'https://proxy.test/v1'}",
        &env,
    );
    let error = Provider::from_entry(&proxied, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

// Rows A16, B17: GPT-OSS over OpenRouter, as the README has it.
#[tokio::test]
async fn a16_gpt_oss_over_openrouter() {
    let message = json!({"content": "4", "reasoning": "Two and two.", "reasoning_details": [{"type": "reasoning.text", "text": "Two and two.", "signature": "S=="}]});
    let server = play(vec![chat(&message, "stop")]).await;
    let lines = "    preset: openrouter\n    parsing_format: direct_response\n    tool_parser: openai\n    generation_config: {include_reasoning: true}\n";
    let answer = ask(&provider(&server, "openai", lines), hello()).await;
    assert_eq!(
        (answer.content.as_str(), answer.thinking.as_str()),
        ("4", "Two and two.")
    );
    let body = last_body(&server);
    assert_eq!(body["model"], "org/m.1");
    assert_eq!(body["tools"][0]["type"], "function");
    assert_eq!(body["include_reasoning"], true);
    for absent in ["reasoning", "chat_template_kwargs", "stop"] {
        assert_eq!(body.get(absent), None, "{absent}");
    }
}

// Rows G1, G8: what of past reasoning goes back, opaque entries byte for byte.
#[tokio::test]
async fn g8_replay_by_policy() {
    let detail = r#"{"type":"reasoning.encrypted","data":"ENC==","z":1,"a":2}"#;
    let message = format!(
        r#"{{"choices":[{{"index":0,"finish_reason":"tool_calls","message":{{"content":"","reasoning_content":"hm","reasoning_details":[{detail}],"tool_calls":[{{"id":"c1","function":{{"name":"get_time","arguments":"{{\"tz\":\"UTC\"}}"}}}}]}}}}]}}"#
    );
    let rows = [
        ("", Value::Null, false),
        ("    reasoning_replay: none\n", Value::Null, false),
        ("    reasoning_replay: keep-last\n", json!("hm"), true),
        ("    reasoning_replay: full\n", json!("hm"), true),
        ("    reasoning_replay: required\n", json!("hm"), true),
    ];
    for (lines, reasoning, keeps) in rows {
        let first = Answer::new(200, "application/json", message.clone());
        let server = play(vec![first, chat(&json!({"content": "ok"}), "stop")]).await;
        let provider = provider(&server, "openai", lines);
        let mut messages = hello();
        messages.push(ask(&provider, messages.clone()).await.to_message());
        messages.push(Message::tool_result("c1", "12:00"));
        ask(&provider, messages).await;
        let sent = server.requests().pop().unwrap();
        let text = String::from_utf8(sent.body.clone()).unwrap();
        assert_eq!(text.contains(detail), keeps, "{lines}{text}");
        assert_eq!(
            sent.json()["messages"][1]["reasoning_content"],
            reasoning,
            "{lines}"
        );
    }
}

// Rows G3, G4: local servers may leave the thought in the content; text without tags stays text.
#[tokio::test]
async fn g4_local_servers_may_leave_thoughts_in_the_content() {
    let call =
        json!([{"id": "c1", "function": {"name": "get_time", "arguments": "{\"tz\":\"UTC\"}"}}]);
    for preset in ["vllm", "llamacpp", "lmstudio"] {
        for (content, thinking) in [("<think>hm</think>\nNoon.", "hm"), ("Noon.", "")] {
            let message = json!({"content": content, "tool_calls": call});
            let server = play(vec![chat(&message, "tool_calls")]).await;
            let provider = provider(&server, "openai", &format!("    preset: {preset}\n"));
            let reply = ask(&provider, hello()).await.reply;
            assert_eq!(reply.reasoning, thinking, "{preset}: {content}");
            assert_eq!(reply.content, "Noon.", "{preset}: {content}");
            assert_eq!(reply.tool_calls.len(), 1, "{preset}: {content}");
        }
    }
}

// Rows G5, G7: whether a turn may think does not decide what goes back, and what does goes
// back once, with the first of several calls.
#[tokio::test]
async fn g5_g7_the_policy_alone_decides_and_reasoning_goes_back_once() {
    let calls = |arguments: Value| {
        ["c1", "c2"]
            .map(|id| json!({"id": id, "function": {"name": "get_time", "arguments": arguments}}))
    };
    let openai = json!({"reasoning_content": "past", "content": "", "tool_calls": calls(json!("{\"tz\":\"UTC\"}"))});
    let ollama = |message: Value| Answer::json(200, &json!({"done": true, "message": message}));
    let thought =
        json!({"thinking": "past", "content": "", "tool_calls": calls(json!({"tz": "UTC"}))});
    for (backend, first, last) in [
        (
            "openai",
            chat(&openai, "tool_calls"),
            chat(&json!({"content": "ok"}), "stop"),
        ),
        ("ollama", ollama(thought), ollama(json!({"content": "ok"}))),
    ] {
        for (policy, n_times) in [("full", 1), ("none", 0)] {
            for thinking in [Thinking::On, Thinking::Off, Thinking::ByConfig] {
                let server = play(vec![first.clone(), last.clone()]).await;
                let lines = format!("    reasoning_replay: {policy}\n");
                let provider = provider(&server, backend, &lines);
                let mut messages = hello();
                messages.push(ask(&provider, hello()).await.to_message());
                messages.extend(["c1", "c2"].map(|id| Message::tool_result(id, "12:00")));
                let options = CallOptions {
                    thinking,
                    two_pass: Some(TwoPassMode::Off),
                    delivery: Delivery::Whole,
                    ..CallOptions::default()
                };
                let client = provider.client().with_options(options);
                client.invoke(messages).await.unwrap();
                let sent = last_body(&server)["messages"].clone();
                let shown = format!("{backend}, {policy}, {thinking:?}: {sent}");
                assert_eq!(sent.to_string().matches("past").count(), n_times, "{shown}");
                let sent_calls = sent[1]["tool_calls"].as_array().unwrap();
                assert_eq!(sent_calls.len(), 2, "{shown}");
            }
        }
    }
}

// Row G8: an unclosed think block of a past turn is no answer and does not go back.
#[tokio::test]
async fn g8_raw_think_text_of_the_history_does_not_go_back() {
    let server = play(vec![chat(&json!({"content": "ok"}), "stop")]).await;
    let mut messages = hello();
    messages.push(Message::text(
        Role::Assistant,
        "<think>secret</think>\nShown.",
    ));
    messages.push(Message::text(Role::User, "And?"));
    messages.push(Message::text(Role::Assistant, "<think>secret, cut"));
    messages.push(Message::text(Role::User, "Well?"));
    ask(&provider(&server, "openai", ""), messages).await;
    let body = last_body(&server).to_string();
    assert!(!body.contains("secret"), "{body}");
    assert!(body.contains("Shown."));
}

// Row G9: reasoning that is no text is an error, not turned into text.
#[tokio::test]
async fn g9_reasoning_must_be_text() {
    let server = play(vec![chat(
        &json!({"content": "x", "reasoning_content": 3}),
        "stop",
    )])
    .await;
    let provider = provider(&server, "openai", "");
    let error = provider.client().invoke(hello()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidResponse);
}

const IN_TEXT: &str =
    "Sure.\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"tz\": \"UTC\"}}\n</tool_call>";

// Rows B9, B10, B11, X8, E18: who writes the tools and who reads the calls.
#[tokio::test]
async fn b11_hermes_injection() {
    let rows = [
        // (lines, tools in the field, tools in the prompt, calls found)
        ("", true, false, 0),
        ("    tool_parser: hermes\n", true, false, 1),
        ("    hermes_injection: client\n", false, true, 1),
        (
            "    tool_parser: hermes\n    hermes_injection: client\n",
            false,
            true,
            1,
        ),
        ("    hermes_injection: auto\n", true, false, 1),
    ];
    for (lines, in_field, in_prompt, n_calls) in rows {
        let server = play(vec![chat(&json!({"content": IN_TEXT}), "stop")]).await;
        let answer = ask(&provider(&server, "openai", lines), hello()).await;
        assert_eq!(answer.tool_calls.len(), n_calls, "{lines}");
        let body = last_body(&server);
        assert_eq!(body.get("tools").is_some(), in_field, "{lines}");
        assert_eq!(body.to_string().contains("<tools>"), in_prompt, "{lines}");
    }
    // `auto`: the service refuses tools, so they go into the prompt, calls and results too.
    let refusal = Answer::json(400, &json!({"error": "m does not support tools"}));
    let server = play(vec![refusal, chat(&json!({"content": IN_TEXT}), "stop")]).await;
    let auto = provider(&server, "openai", "    hermes_injection: auto\n");
    let first = ask(&auto, hello()).await;
    assert_eq!(
        (first.content.as_str(), first.tool_calls.len()),
        ("Sure.", 1)
    );
    assert_eq!(first.reply.stop_reason, StopReason::ToolCalls);
    assert!(first.reply.diagnostics[0].message.contains("refused tools"));
    let server = play(vec![chat(&json!({"content": "12"}), "stop")]).await;
    let mut messages = hello();
    messages.push(first.to_message());
    messages.push(Message::tool_result(
        first.tool_calls[0].id.clone(),
        "12:00",
    ));
    ask(
        &provider(&server, "openai", "    hermes_injection: client\n"),
        messages.clone(),
    )
    .await;
    let shown = last_body(&server)["messages"].to_string();
    assert!(
        shown.contains("<tool_call>") && shown.contains("<tool_response>"),
        "{shown}"
    );
    // Row X16: results as a user's text although the tools are offered structured.
    ask(
        &provider(&server, "openai", "    tool_result_role: user\n"),
        messages,
    )
    .await;
    let body = last_body(&server);
    let roles: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].clone())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(body.get("tools").is_some());
}

// Rows A3, C2, X3, X9, X19: what the text of a reply is read as.
#[tokio::test]
async fn x3_x9_x19_ends_of_turns() {
    let call = json!({"content": "", "tool_calls": [{"id": "c1", "function": {"name": "get_time", "arguments": "{\"tz\":\"UTC\"}"}}]});
    let text = |text: &str| json!({"content": text});
    // (lines, message, finish, content, thinking, calls, invalid calls)
    let rows = [
        ("", text("<think>a"), "stop", "", "a", 0, 0),
        (
            "    unterminated_think: empty\n",
            text("<think>a"),
            "stop",
            "",
            "a",
            0,
            0,
        ),
        (
            "    unterminated_think: direct\n",
            text("<think>a"),
            "stop",
            "a",
            "a",
            0,
            0,
        ),
        (
            "    unterminated_think: error\n",
            text("<think>a"),
            "length",
            "The reply ended inside its reasoning; there is no answer.",
            "a",
            0,
            0,
        ),
        (
            "    parsing_format: direct_response\n",
            text("<think>a"),
            "stop",
            "<think>a",
            "",
            0,
            0,
        ),
        (
            "    think_tags: [reasoning]\n",
            text("<think>a</think>b"),
            "stop",
            "<think>a</think>b",
            "",
            0,
            0,
        ),
        (
            "    think_tags: ['[THINK]', think]\n",
            text("[THINK]a[/THINK]b"),
            "stop",
            "b",
            "a",
            0,
            0,
        ),
        ("", call.clone(), "length", "", "", 1, 0),
        (
            "    partial_tool_call: reject\n",
            call.clone(),
            "length",
            "",
            "",
            0,
            1,
        ),
        (
            "    partial_tool_call: reject\n",
            call,
            "stop",
            "",
            "",
            1,
            0,
        ),
    ];
    for (lines, message, finish, content, thinking, n_calls, n_invalid) in rows {
        let server = play(vec![chat(&message, finish)]).await;
        let answer = ask(&provider(&server, "openai", lines), hello()).await;
        assert_eq!(
            (answer.content.as_str(), answer.thinking.as_str()),
            (content, thinking),
            "{lines}"
        );
        let invalid = answer.reply.invalid_tool_calls.len();
        assert_eq!(
            (answer.tool_calls.len(), invalid),
            (n_calls, n_invalid),
            "{lines}"
        );
    }
}

// Row L13: pictures pass through on every wire.
#[tokio::test]
async fn l13_images_pass() {
    for backend in ["openai", "openai_responses", "anthropic", "ollama"] {
        let server = play(vec![Answer::json(500, &json!({}))]).await;
        let mut image = Media::new(MediaSource::Base64("QUJD".to_owned()));
        image.media_type = Some("image/png".to_owned());
        let mut messages = hello();
        messages[0].content.push(Part::Image(image));
        let provider = provider(&server, backend, "");
        provider.client().invoke(messages).await.unwrap_err();
        let body = last_body(&server).to_string();
        assert!(body.contains("QUJD"), "{backend}: {body}");
    }
}

// Row M4: an effort is sent as the endpoint names it.
#[tokio::test]
async fn m4_reasoning_effort() {
    let rows = [
        ("openai", "openai", "/reasoning_effort", json!("high")),
        (
            "openrouter",
            "openai",
            "/reasoning",
            json!({"effort": "high"}),
        ),
        ("ollama", "ollama", "/think", json!("high")),
        (
            "openai",
            "openai_responses",
            "/reasoning/effort",
            json!("high"),
        ),
        ("anthropic", "anthropic", "/thinking/type", json!("enabled")),
    ];
    for (preset, backend, pointer, value) in rows {
        let server = play(vec![Answer::json(500, &json!({}))]).await;
        let lines = format!(
            "    preset: {preset}\n    generation_config: {{reasoning_effort: high, max_tokens: 32768}}\n"
        );
        let provider = provider(&server, backend, &lines);
        provider.client().invoke(hello()).await.unwrap_err();
        assert_eq!(
            last_body(&server).pointer(pointer),
            Some(&value),
            "{preset}"
        );
    }
}

#[test]
fn keys_without_effect_are_noticed() {
    let yaml = "providers:\n  - {name: a, provider_backend: ollama, model_name: m, unterminated_think: continue, generation_config: {two_pass: true}}\nagent: {max_rounds: 3, memory: session}\nserver: {reasoning_memory: false}\n";
    let config = Config::parse(yaml, "t.yaml", Environment::default()).unwrap();
    let notices = notices(&config).join("\n");
    for key in ["unterminated_think", "two_pass"] {
        assert!(notices.contains(key), "{key}: {notices}");
    }
    for key in ["agent", "reasoning_memory"] {
        assert!(!notices.contains(key), "{notices}");
    }
    let bad = "providers:\n  - {name: a, provider_backend: ollama, model_name: m, think_tags: [thinkk]}\n";
    let error = Config::parse(bad, "t.yaml", Environment::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`thinkk`, did you mean `think`?"),
        "{error}"
    );
}

/// Markup that the service's own parser left in the text stays text, and the turn says so.
#[tokio::test]
async fn b9_calls_that_the_service_did_not_find_are_noticed() {
    let content =
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"tz\": \"UTC\"}}\n</tool_call>";
    let body = json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]});
    for (tools, n_notes) in [(vec![time_tool()], 1), (Vec::new(), 0)] {
        let server = play(vec![Answer::json(200, &body)]).await;
        let client = provider(&server, "openai", "").client();
        let client = client.bind_tools(tools, ToolChoice::Auto);
        let reply = client.invoke(hello()).await.unwrap().reply;
        assert_eq!(reply.content, content);
        let notes: Vec<_> = reply.diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), n_notes, "{notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.contains("reads as a call of `get_time`"))
        );
    }
}
