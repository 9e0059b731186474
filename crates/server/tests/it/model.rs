//! `/generate` on real models in the real engine: budgets, equality, calls.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use twopass_provider::Provider;
use twopass_provider::config::EngineConfig;

use crate::client::{events, post, send};
use crate::harness::{Running, embedded_provider, options, qwen3, smollm2};

const BUDGETS: [u32; 6] = [0, 1, 2, 8, 64, 256];
/// Tests of this file take turns: two cores do not carry two engines at full load, and
/// some of them need the engine for themselves.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

pub(crate) fn engine(max_streams: u32, queue_len: u32) -> EngineConfig {
    EngineConfig {
        // Two threads on cores that others use as well are many times slower than one.
        threads: Some(1),
        context_tokens: Some(8192),
        max_streams: Some(max_streams),
        queue_len: Some(queue_len),
        ..EngineConfig::default()
    }
}

pub(crate) async fn start(provider: &Provider) -> Running {
    provider.prepare().await.unwrap();
    Running::start(options(), vec![provider.clone()]).await
}

/// A count that the engine keeps.
#[track_caller]
pub(crate) fn stat(provider: &Provider, name: &str) -> u64 {
    let stats = provider.backend().stats();
    let found = stats.iter().find(|(known, _)| *known == name);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are small and not negative"
    )]
    let value = found
        .unwrap_or_else(|| panic!("no `{name}` in {stats:?}"))
        .1 as u64;
    value
}

/// Waits until the engine runs nothing and nothing waits; how long that took.
pub(crate) async fn until_idle(provider: &Provider) -> Duration {
    let start = Instant::now();
    while stat(provider, "running") + stat(provider, "queued") > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "stuck: {:?}",
            provider.backend().stats()
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

pub(crate) fn ask(content: &str, more: Value) -> Vec<u8> {
    let mut body = json!({"messages": [{"role": "user", "content": content}]});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    post("/generate", &body.to_string())
}

/// The whole reply, from the body or from `done` after checking that the deltas add up.
#[track_caller]
pub(crate) fn whole(text: &str, streamed: bool) -> Value {
    if !streamed {
        return serde_json::from_str(text).unwrap();
    }
    let events = events(text);
    let (name, done) = events.last().unwrap();
    assert_eq!(name, "done", "{text}");
    let (mut thinking, mut answer, mut calls) = (String::new(), String::new(), Vec::new());
    for (name, data) in &events[..events.len() - 1] {
        match name.as_str() {
            "thinking" => thinking += data["text"].as_str().unwrap(),
            "text" => {
                let piece = data["text"].as_str().unwrap();
                assert!(!piece.is_empty());
                answer += piece;
            }
            "tool_call" => calls.push(data.clone()),
            other => panic!("unexpected event `{other}`: {text}"),
        }
    }
    assert_eq!(
        thinking.trim(),
        done["thinking"].as_str().unwrap().trim(),
        "{text}"
    );
    assert_eq!(
        answer.trim(),
        done["response"].as_str().unwrap().trim(),
        "{text}"
    );
    assert_eq!(Value::from(calls), done["tool_calls"], "{text}");
    done.clone()
}

/// What must hold of every two-pass turn with a budget.
#[track_caller]
fn check_budget(reply: &Value, budget: u32, response_cap: u64) {
    let count = |name: &str| {
        reply["usage"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {reply}"))
    };
    let (thinking, response) = (
        reply["thinking"].as_str().unwrap(),
        reply["response"].as_str().unwrap(),
    );
    assert!(
        count("thinking_tokens") <= u64::from(budget),
        "budget {budget}: {reply}"
    );
    assert!(count("response_tokens") <= response_cap, "{reply}");
    assert!(!response.trim().is_empty(), "an empty answer: {reply}");
    // In the middle of a line an opening tag is a mention (row C5); elsewhere it is markup.
    // Inside a thought it is part of the thought: only a closing tag means anything there.
    for marker in ["\n<think", "</think", "<|im_", "<tool_call"] {
        let leaks = |text: &str| format!("\n{text}").contains(marker);
        assert!(
            !leaks(response) && (marker == "\n<think" || !leaks(thinking)),
            "{marker} leaks: {reply}"
        );
    }
    if budget == 0 {
        assert_eq!(thinking, "", "{reply}");
    }
    let passes = reply["passes"].as_array().unwrap();
    let names: Vec<_> = passes.iter().map(|p| p["name"].as_str().unwrap()).collect();
    // Without a budget the prompt holds the closed block, and there is nothing to cap.
    assert_eq!(names.len(), if budget == 0 { 1 } else { 2 }, "{reply}");
    if budget > 0 {
        assert_eq!(names, ["thinking", "answer"], "{reply}");
        // One prefill: the answer's pass computed the forced closing tokens at most.
        assert!(
            passes[1]["prefill_tokens"].as_u64().unwrap() <= 8,
            "{reply}"
        );
    }
    if reply["thinking_truncated"] == true {
        // The pieces of a character that the budget would split are taken back.
        let thinking = count("thinking_tokens");
        assert!(thinking + 3 >= u64::from(budget), "cut early: {reply}");
    }
}

/// Thinking never exceeds its budget, with 8 requests at once.
#[tokio::test(flavor = "multi_thread")]
async fn d3_d6_budgets_hold_with_8_requests_at_once() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(8, 64), false);
    let running = start(&provider).await;
    let questions = [
        "Which is larger, 7 or 11?",
        "Name three rivers of Europe and say where they end.",
        "Why is the sky blue? Explain it to a child.",
        "Write a haiku about tea.",
    ];
    let n_turns: usize = if std::env::var_os("TWOPASS_SLOW").is_some() {
        200
    } else {
        48
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || async {
        let mut n_done = 0;
        loop {
            let idx = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if idx >= n_turns {
                return n_done;
            }
            let budget = BUDGETS[idx % BUDGETS.len()];
            let streamed = idx / BUDGETS.len() % 2 == 1;
            let request = ask(
                questions[idx / 3 % questions.len()],
                json!({
                    "two_pass": true, "max_thinking_tokens": budget, "max_response_tokens": 16,
                    "seed": idx, "stream": streamed, "temperature": 0.8,
                    "think_tag": if idx.is_multiple_of(5) { "thinking" } else { "think" },
                }),
            );
            let reply = send(running.addr, &request).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            check_budget(&whole(&reply.text(), streamed), budget, 16);
            n_done += 1;
        }
    };
    let done: usize = join_all((0..8).map(|_| worker())).await.into_iter().sum();
    assert_eq!(done, n_turns);
    until_idle(&provider).await;
    assert!(
        stat(&provider, "batch_streams_max") >= 2,
        "never two at once: {:?}",
        provider.backend().stats()
    );
}

/// The same seed gives the same text on a lone stream, streamed or not.
#[tokio::test(flavor = "multi_thread")]
async fn m1_streamed_equals_whole_for_one_seed() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(8, 64), false);
    let running = start(&provider).await;
    let mut texts = Vec::new();
    for seed in [1, 2] {
        let mut same = Vec::new();
        for streamed in [false, true, false] {
            let more = json!({
                "two_pass": true, "max_thinking_tokens": 24, "max_response_tokens": 32, "seed": seed,
                "stream": streamed, "temperature": 1.0,
            });
            let reply = send(running.addr, &ask("Tell me about the sea.", more)).await;
            let reply = whole(&reply.text(), streamed);
            let name_them = [
                "thinking",
                "response",
                "tool_calls",
                "finish_reason",
                "thinking_truncated",
            ];
            same.push(name_them.map(|name| reply[name].clone()));
        }
        assert_eq!(same[0], same[1], "streamed differs from whole");
        assert_eq!(same[0], same[2], "the same request twice differs");
        texts.push(same.swap_remove(0));
    }
    assert_ne!(texts[0], texts[1], "the seed does nothing");
}

/// Asks the reciting Qwen3 to say this.
fn say(text: &str, more: Value) -> Vec<u8> {
    ask(&format!("[[say]]{text}[[/say]]"), more)
}

/// Rows C1, D3, D6: real single-token tags, an exact thought, an exact cut.
#[tokio::test(flavor = "multi_thread")]
async fn d3_thoughts_are_cut_at_the_exact_token() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(4, 16), true);
    let running = start(&provider).await;
    for (text, budget, thinking, response, tokens, truncated) in [
        (
            "one two three</think>\n\nHello.",
            64,
            "one two three",
            "Hello.",
            3,
            false,
        ),
        (
            "one two three</think>\n\nHello.",
            3,
            "one two three",
            "Hello.",
            3,
            true,
        ),
        ("one two three four", 2, "one two", "three four", 2, true),
        ("</think>\n\nHello.", 8, "", "Hello.", 0, false),
        ("Hello.", 0, "", "Hello.", 0, false),
    ] {
        for streamed in [false, true] {
            let more = json!({
                "two_pass": true, "max_thinking_tokens": budget, "max_response_tokens": 32, "stream": streamed,
            });
            let reply = send(running.addr, &say(text, more)).await;
            let reply = whole(&reply.text(), streamed);
            check_budget(&reply, budget, 32);
            let got =
                ["thinking", "response", "thinking_truncated"].map(|name| reply[name].clone());
            assert_eq!(
                got,
                [json!(thinking), json!(response), json!(truncated)],
                "{text:?} in {budget}: {reply}"
            );
            assert_eq!(
                reply["usage"]["thinking_tokens"], tokens,
                "{text:?} in {budget}: {reply}"
            );
            assert_eq!(reply["finish_reason"], "stop", "{reply}");
        }
    }
}

const MEMORY_TOOL: &str = r#"[{"name": "overwrite_memory", "description": "Replaces the memory.", "parameters":
    {"type": "object", "properties": {"new_memory": {"type": "string"}}, "required": ["new_memory"]}}]"#;

/// Rows F2-F4, M7: the documented reply from a real engine; calls that fail their checks
/// are visible and not called; no markup in any text.
#[tokio::test(flavor = "multi_thread")]
async fn f4_calls_come_back_typed_and_checked() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(4, 16), true);
    let running = start(&provider).await;
    let call = |arguments: &str| {
        format!(
            "...</think>\n\nI'll update memory.\n<tool_call>\n{{\"name\": \"overwrite_memory\", \"arguments\": {arguments}}}\n</tool_call>"
        )
    };
    let tools: Value = serde_json::from_str(MEMORY_TOOL).unwrap();
    for streamed in [false, true] {
        let more = json!({
            "two_pass": true, "max_thinking_tokens": 16, "max_response_tokens": 96, "stream": streamed, "tools": tools,
        });
        let reply = send(
            running.addr,
            &say(&call(r#"{"new_memory": "..."}"#), more.clone()),
        )
        .await;
        let reply = whole(&reply.text(), streamed);
        let documented = json!({
            "thinking": "...", "response": "I'll update memory.", "pre_tool_text": "I'll update memory.",
            "tool_calls": [{"id": reply["tool_calls"][0]["id"], "name": "overwrite_memory", "arguments": {"new_memory": "..."}}],
        });
        for (name, value) in documented.as_object().unwrap() {
            assert_eq!(&reply[name], value, "{name}: {reply}");
        }
        assert!(
            reply["tool_calls"][0]["id"]
                .as_str()
                .is_some_and(|id| !id.is_empty()),
            "{reply}"
        );
        assert_eq!(reply["finish_reason"], "tool_calls", "{reply}");

        let reply = send(
            running.addr,
            &say(
                &call(r#"{"new_memory": 7, "x": 1}"#).replace("7", "[7]"),
                more,
            ),
        )
        .await;
        let reply = whole(&reply.text(), streamed);
        assert_eq!(reply["tool_calls"], json!([]), "{reply}");
        assert_eq!(
            reply["invalid_tool_calls"][0]["kind"], "schema_violation",
            "{reply}"
        );
        assert_eq!(reply["response"], "I'll update memory.", "{reply}");
    }
}

/// Row M6: markup in a user's text is text: no call, no end of a turn, no thought.
#[tokio::test(flavor = "multi_thread")]
async fn m6_markup_in_a_users_text_stays_text() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(4, 16), true);
    let running = start(&provider).await;
    let tools: Value = serde_json::from_str(MEMORY_TOOL).unwrap();
    let prompt_tokens = |content: &str| {
        let more = json!({"two_pass": true, "max_thinking_tokens": 4, "max_response_tokens": 8, "tools": tools});
        let request = ask(&format!("{content}[[say]]</think>\n\nNo.[[/say]]"), more);
        async move {
            let reply = send(running.addr, &request).await.json();
            assert_eq!(
                [&reply["response"], &reply["tool_calls"]],
                [&json!("No."), &json!([])],
                "{reply}"
            );
            reply["usage"]["prompt_tokens"].as_u64().unwrap()
        }
    };
    let plain = prompt_tokens("").await;
    for markup in [
        "<|im_end|>",
        "<|im_start|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    ] {
        // As a control token it would be one.
        let more = prompt_tokens(&markup.repeat(4)).await - plain;
        assert!(
            more > 8,
            "{markup} became a control token: {more} tokens for 4"
        );
    }
}

/// What never fits is a bad request, not a matter of time. The model is not even loaded.
#[tokio::test]
async fn s4_more_answers_than_there_is_room_for_are_refused_for_good() {
    let provider = embedded_provider(&qwen3(), engine(2, 2), false);
    let server = Running::start(options(), vec![provider]).await;
    let body = json!({"messages": [{"role": "user", "content": "Hi."}], "n": 5});
    let reply = send(
        server.addr,
        &post("/v1/chat/completions", &body.to_string()),
    )
    .await;
    assert_eq!(reply.error(), "400 bad_request n", "{}", reply.text());
}
