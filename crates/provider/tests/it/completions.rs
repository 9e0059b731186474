//! The raw completions of vLLM and llama.cpp's server, replayed. Rows D2-D4, D14, F6, M2, M5,
//! M6.

use serde_json::{Value, json};
use twopass_core::chat::{DiagnosticKind, ResponseFormat, StopReason};
use twopass_provider::{CallOptions, ErrorKind, Message, Role, ToolChoice};
use twopass_replay::{Answer, Server};

use crate::chat::{provider, time_tool};
use crate::play;

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const TWO_PASS: &str =
    "    generation_config: {max_thinking_tokens: 4, max_response_tokens: 9, temperature: 0}\n";

fn ok(body: Value) -> Answer {
    Answer::json(200, &body)
}

fn tokens(ids: &[u32]) -> Answer {
    ok(json!({ "tokens": ids }))
}

fn props() -> Answer {
    ok(json!({"chat_template": CHATML, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}))
}

/// llama.cpp's last event.
fn ended(text: &str, ids: &[u32], stop: &str) -> Answer {
    let event = json!({"content": text, "tokens": ids, "stop": true, "stop_type": stop,
        "stopping_word": if stop == "word" { "</think>" } else { "" },
        "tokens_evaluated": 20, "tokens_predicted": ids.len(), "timings": {"cache_n": 7}});
    Answer::events([format!("data: {event}\n\n")])
}

fn vllm_ended(text: &str, ids: &[u32], finish: &str, stop: Value) -> Answer {
    let event = json!({"choices": [{"index": 0, "text": text, "token_ids": ids, "finish_reason": finish, "stop_reason": stop}],
        "usage": {"prompt_tokens": 20, "completion_tokens": ids.len(), "prompt_tokens_details": {"cached_tokens": 7}}});
    Answer::events([format!("data: {event}\n\ndata: [DONE]\n\n")])
}

fn asked(text: &str) -> Vec<Message> {
    vec![Message::text(Role::User, text)]
}

/// The bodies of the requests to a path.
fn bodies(server: &Server, path: &str) -> Vec<Value> {
    let requests = server.requests();
    let ours = requests.iter().filter(|request| request.path == path);
    ours.map(|request| request.json()).collect()
}

#[tokio::test]
async fn m2_pass_two_goes_on_from_the_very_ids_of_a_cut_thought() {
    let server = play(vec![
        props(),
        tokens(&[1, 2, 3]),
        tokens(&[10]),
        ended("one two three four", &[21, 22, 23, 24], "limit"),
        ok(json!({"content": "one two three four"})),
        tokens(&[30, 31]),
        ended("Yes.", &[40, 41], "eos"),
    ])
    .await;
    let provider = provider(&server, "completions", TWO_PASS);
    let reply = provider.client().invoke(asked("Hi")).await.unwrap().reply;
    assert_eq!(reply.reasoning, "one two three four");
    assert_eq!(reply.content, "Yes.");
    assert!(reply.reasoning_truncated);
    assert_eq!(
        (reply.usage.prompt_tokens, reply.usage.cached_tokens),
        (20, 7)
    );
    assert_eq!(
        (reply.usage.thinking_tokens, reply.usage.response_tokens),
        (4, 2)
    );
    let passes = bodies(&server, "/completion");
    assert_eq!(passes[0]["prompt"], json!([1, 2, 3, 10]));
    assert_eq!(passes[0]["n_predict"], 4);
    assert_eq!(
        passes[1]["prompt"],
        json!([1, 2, 3, 10, 21, 22, 23, 24, 30, 31])
    );
    assert_eq!(passes[1]["n_predict"], 9);
    let texts: Vec<_> = bodies(&server, "/tokenize")
        .iter()
        .map(|b| b["content"].clone())
        .collect();
    assert_eq!(texts[1], "<think>");
    assert_eq!(texts[2], "</think>\n\n");
    assert!(
        reply
            .passes
            .iter()
            .all(|pass| pass.means == "completions_exact")
    );
}

#[tokio::test]
async fn d2_a_closed_thought_keeps_its_ids_without_the_tag() {
    let server = play(vec![
        Answer::json(404, &json!({"detail": "Not Found"})),
        ok(json!({"version": "0.32.0"})),
        ok(json!({"chat_template": CHATML, "eos_token": "<|im_end|>"})),
        tokens(&[1, 2, 3]),
        tokens(&[10]),
        vllm_ended("a b\n", &[21, 22, 99], "stop", json!("</think>")),
        tokens(&[99]),
        ok(json!({"prompt": "a b\n"})),
        tokens(&[99, 31]),
        vllm_ended("Yes.", &[40, 41], "stop", Value::Null),
    ])
    .await;
    let provider = provider(&server, "completions", TWO_PASS);
    let reply = provider.client().invoke(asked("Hi")).await.unwrap().reply;
    assert_eq!(
        (reply.reasoning.trim(), reply.content.as_str()),
        ("a b", "Yes.")
    );
    assert!(!reply.reasoning_truncated);
    assert_eq!(reply.stop_reason, StopReason::EndTurn);
    let passes = bodies(&server, "/v1/completions");
    assert_eq!(passes[0]["stop"], json!(["</think>", "</thinking>"]));
    assert_eq!(passes[1]["prompt"], json!([1, 2, 3, 10, 21, 22, 99, 31]));
    assert!(passes[1].get("stop").is_none());
    assert_eq!(reply.diagnostics, []);
}

#[tokio::test]
async fn m6_control_strings_of_a_user_are_tokenized_in_parts() {
    let server = play(vec![
        Answer::json(404, &json!({})),
        ok(json!({"version": "0.32.0"})),
        ok(json!({"chat_template": CHATML, "eos_token": "<|im_end|>"})),
        tokens(&[1]),
        tokens(&[2]),
        tokens(&[3]),
        tokens(&[4]),
        vllm_ended("ok", &[5, 6], "stop", Value::Null),
    ])
    .await;
    let provider = provider(
        &server,
        "completions",
        "    generation_config: {two_pass: false}\n",
    );
    provider
        .client()
        .invoke(asked("a <|im_end|> b"))
        .await
        .unwrap();
    let texts: Vec<_> = bodies(&server, "/tokenize");
    let texts: Vec<_> = texts
        .iter()
        .map(|b| b["prompt"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(texts[1..3], ["<", "|im_end|>"]);
    assert_eq!(
        bodies(&server, "/v1/completions")[0]["prompt"],
        json!([1, 2, 3, 4])
    );
}

#[tokio::test]
async fn m5_a_forced_call_is_bound_by_its_schema() {
    let call = "{\"name\": \"get_time\", \"arguments\": {\"tz\": \"UTC\"}}";
    let server = play(vec![
        props(),
        tokens(&[1]),
        tokens(&[8, 9]),
        ended(call, &[40, 41], "eos"),
    ])
    .await;
    let provider = provider(
        &server,
        "completions",
        "    generation_config: {two_pass: false}\n",
    );
    let client = provider
        .client()
        .bind_tools(vec![time_tool()], ToolChoice::Required);
    let message = client.invoke(asked("Time?")).await.unwrap();
    assert_eq!(message.tool_calls.len(), 1);
    assert_eq!(
        message.tool_calls[0].arguments.as_text(),
        "{\"tz\": \"UTC\"}"
    );
    let body = &bodies(&server, "/completion")[0];
    assert_eq!(body["prompt"], json!([1, 8, 9]));
    assert_eq!(
        body["json_schema"]["properties"]["name"],
        json!({"const": "get_time"})
    );
}

// Row A4: what the default does not read is said, wherever the text came from.
#[tokio::test]
async fn a4_a_call_in_a_format_that_nobody_looked_for_is_told() {
    let call = "{\"name\": \"get_time\", \"arguments\": {\"tz\": \"UTC\"}}";
    let fenced = format!("Sure.\n```json\n{call}\n```");
    let tildes = fenced.replace("```", "~~~").replace("Sure", "As ``` says");
    let broken = call.replace("{\"tz\": \"UTC\"}", "[\"UTC\"]");
    let unknown = fenced.replace("get_time", "get_date");
    let rows = [
        (fenced.as_str(), ToolChoice::Auto, true),
        (call, ToolChoice::Auto, true),
        (call, ToolChoice::None, false),
        (unknown.as_str(), ToolChoice::Auto, false),
        (broken.as_str(), ToolChoice::Auto, true),
        (tildes.as_str(), ToolChoice::Auto, true),
        ("It is noon.", ToolChoice::Auto, false),
    ];
    let one_pass = "    generation_config: {two_pass: false}\n";
    let budgeted = "    generation_config: {two_pass: true, max_thinking_tokens: 8}\n    two_pass_with_tools: true\n";
    for (text, choice, is_told) in rows {
        let script = vec![props(), tokens(&[1]), ended(text, &[40, 41], "eos")];
        let completions = play(script).await;
        let body = json!({"choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}},
        ]});
        let chat = play(vec![ok(body.clone())]).await;
        let thought = json!({"choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "<think>plan"}},
        ]});
        let passes = play(vec![ok(thought), ok(body)]).await;
        let rows = [
            (&completions, "completions", one_pass),
            (&chat, "openai", one_pass),
            (&passes, "openai", budgeted),
        ];
        for (server, backend, lines) in rows {
            let provider = provider(server, backend, lines);
            let client = provider
                .client()
                .bind_tools(vec![time_tool()], choice.clone());
            let message = client.invoke(asked("Time?")).await.unwrap();
            assert_eq!(message.content, text, "{backend}");
            let n_passes = if lines == budgeted { 2 } else { 1 };
            assert_eq!(message.reply.passes.len(), n_passes, "{backend}");
            let notes = message.reply.diagnostics.iter();
            let told = notes.filter(|note| note.kind == DiagnosticKind::UnreadToolCall);
            assert_eq!(
                told.count(),
                usize::from(is_told),
                "{backend}, {choice:?}: {text}"
            );
        }
    }
}

// Row A4: a form that was asked for is no call, whatever its members are called.
#[tokio::test]
async fn a4_a_demanded_form_is_no_unread_call() {
    let form = "{\"name\": \"get_time\", \"arguments\": {\"tz\": \"UTC\"}}";
    let body = json!({"choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": form}},
    ]});
    let one_pass = "    generation_config: {two_pass: false}\n";
    for (response_format, n_told) in [(ResponseFormat::Text, 1), (ResponseFormat::JsonObject, 0)] {
        let server = play(vec![ok(body.clone())]).await;
        let provider = provider(&server, "openai", one_pass);
        let options = CallOptions {
            tools: vec![time_tool()],
            response_format,
            ..CallOptions::default()
        };
        let request = provider.request(asked("Time?"), options).unwrap();
        let reply = provider.generate(request).await.unwrap();
        assert_eq!(reply.content, form);
        assert_eq!(reply.diagnostics.len(), n_told, "{:?}", reply.diagnostics);
    }
}

#[tokio::test]
async fn d14_a_failed_answer_keeps_the_thought() {
    let server = play(vec![
        props(),
        tokens(&[1]),
        tokens(&[10]),
        ended("one two", &[21, 22, 23, 24], "limit"),
        ok(json!({"content": "one two"})),
        tokens(&[30]),
        Answer::json(
            500,
            &json!({"error": {"message": "engine died", "code": 500}}),
        ),
    ])
    .await;
    let provider = provider(&server, "completions", TWO_PASS);
    let options = CallOptions::default();
    let request = provider.request(asked("Hi"), options).unwrap();
    let reply = provider.generate(request).await.unwrap();
    assert_eq!(reply.reasoning, "one two");
    assert!(reply.answer_missing());
    let told: Vec<_> = reply.diagnostics.iter().map(|d| d.to_string()).collect();
    assert!(
        told.iter().any(|text| text.contains("engine died")),
        "{told:?}"
    );
}

#[tokio::test]
async fn f6_a_server_that_is_no_engine_is_named() {
    let none = || Answer::json(404, &json!({}));
    let server = play(vec![none(), none()]).await;
    let error = provider(&server, "completions", "")
        .client()
        .invoke(asked("Hi"))
        .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("neither vLLM nor llama.cpp"),
        "{error}"
    );

    let models = json!({"data": [{"id": "m", "root": "org/m"}]});
    let server = play(vec![
        none(),
        ok(json!({"version": "1"})),
        none(),
        ok(models),
    ])
    .await;
    let error = provider(&server, "completions", "")
        .client()
        .invoke(asked("Hi"))
        .await;
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.param()),
        (ErrorKind::Config, Some("chat_template"))
    );
}

#[tokio::test]
async fn a_configured_template_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"chat_template": CHATML, "bos_token": {"content": "<s>"},
        "added_tokens_decoder": {"7": {"content": "<tool_call>"}}});
    std::fs::write(
        folder.path().join("tokenizer_config.json"),
        config.to_string(),
    )
    .unwrap();
    let models = json!({"data": [{"id": "m", "root": folder.path()}]});
    let none = || Answer::json(404, &json!({}));
    let server = play(vec![
        none(),
        ok(json!({"version": "1"})),
        none(),
        ok(models),
        tokens(&[1]),
        vllm_ended("ok", &[5, 6], "stop", Value::Null),
    ])
    .await;
    let lines = "    generation_config: {two_pass: false}\n";
    let reply = provider(&server, "completions", lines)
        .client()
        .invoke(asked("Hi"))
        .await;
    assert_eq!(reply.unwrap().content, "ok");
    let prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(bodies(&server, "/tokenize")[0]["prompt"], prompt);
}
