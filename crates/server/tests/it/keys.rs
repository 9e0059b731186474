//! Keys with scopes and budgets, over sockets.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use twopass_replay::{Answer, Step};
use twopass_server::{AccessLog, Server, ServerOptions, Store};

use crate::client::{Connection, Reply, send};
use crate::harness::{Running, options, temp_file};
use crate::observed::Lines;
use crate::service::{self, Before, streamed, whole};

const CHAT: &str = "/v1/chat/completions";
const GENERATE: &str = "/generate";

/// A keys file of these entries: name, and further lines of it. The key of NAME is `NAME-key`.
fn keys_file(test: &str, entries: &[(&str, &str)]) -> PathBuf {
    let mut text = "keys:\n".to_owned();
    for (name, more) in entries {
        let digest = Sha256::digest(format!("{name}-key"));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(text, "  - name: {name}\n    hash: sha256:{hex}\n{more}").unwrap();
    }
    temp_file(test, &text)
}

/// A service that answers with 9 and 5 tokens, behind these keys.
async fn guarded(test: &str, entries: &[(&str, &str)]) -> Before {
    let options = ServerOptions {
        keys_file: Some(keys_file(test, entries)),
        ..options()
    };
    service::start_with(vec![answer()], json!({"preset": "groq"}), options).await
}

fn answer() -> Answer {
    whole(json!({"role": "assistant", "content": "4"}), "stop")
}

/// A body that the path takes, if it takes one.
fn body(path: &str) -> Option<String> {
    let messages = json!([{"role": "user", "content": "2+2?"}]);
    let body = match path {
        GENERATE | CHAT => json!({"messages": messages}),
        "/v1/messages" | "/v1/messages/count_tokens" => {
            json!({"max_tokens": 9, "messages": messages})
        }
        "/v1/responses" | "/v1/embeddings" => json!({"input": "2+2?"}),
        "/v1/completions" => json!({"prompt": "2+2="}),
        _ => return None,
    };
    Some(body.to_string())
}

fn request(name: &str, method: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {name}-key\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn ask(running: &Running, name: &str, path: &str) -> Reply {
    let request = match body(path) {
        Some(body) => request(name, "POST", path, &body),
        None => request(name, "GET", path, ""),
    };
    send(running.addr, &request).await
}

/// Who may what; refusals have the form of their face.
#[tokio::test]
async fn scopes_open_paths() {
    let server = guarded(
        "scopes",
        &[
            ("plain", ""),
            ("chat", "    scopes: [chat]\n"),
            ("vectors", "    scopes: [embeddings]\n"),
            ("numbers", "    scopes: [metrics]\n"),
            ("none", "    scopes: []\n"),
            ("old", "    expires: 2026-01-01\n"),
            ("young", "    expires: 9999-01-01\n"),
        ],
    )
    .await;
    for (name, path, expect) in [
        ("plain", CHAT, "200"),
        ("plain", "/v1/models", "200"),
        ("plain", "/metrics", "403 forbidden -"),
        ("chat", GENERATE, "200"),
        ("chat", "/v1/embeddings", "403 forbidden -"),
        ("vectors", CHAT, "403 forbidden -"),
        ("vectors", GENERATE, "403 forbidden -"),
        ("vectors", "/v1/completions", "403 forbidden -"),
        ("vectors", "/v1/responses", "403 forbidden -"),
        ("vectors", "/v1/responses/resp_1", "403 forbidden -"),
        ("vectors", "/v1/messages", "403 permission_error -"),
        (
            "vectors",
            "/v1/messages/count_tokens",
            "403 permission_error -",
        ),
        ("numbers", "/metrics", "200"),
        ("numbers", CHAT, "403 forbidden -"),
        ("none", "/v1/models", "200"),
        ("none", "/nothing", "404 not_found -"),
        ("old", CHAT, "401 invalid_api_key -"),
        ("young", CHAT, "200"),
        ("stranger", CHAT, "401 invalid_api_key -"),
        ("stranger", "/v1/messages", "401 authentication_error -"),
        ("stranger", GENERATE, "401 unauthorized -"),
        ("stranger", "/health", "200"),
    ] {
        let reply = ask(&server.running, name, path).await;
        let seen = match reply.status {
            200 => "200".to_owned(),
            _ => reply.error(),
        };
        assert_eq!(seen, expect, "{name} {path}: {reply:?}");
        assert!(!reply.text().contains("-key"), "{}", reply.text());
    }
}

/// A key is for the models that it names, by any of their names, and sees no others.
#[tokio::test]
async fn keys_are_for_models() {
    let server = guarded(
        "models",
        &[
            ("short", "    models: [m]\n"),
            ("long", "    models: [\"*/far-*\"]\n"),
            ("other", "    models: [n, \"far*\"]\n"),
        ],
    )
    .await;
    for (name, callable) in [("short", true), ("long", true), ("other", false)] {
        let list = ask(&server.running, name, "/v1/models").await.json();
        let n_models = list["data"].as_array().unwrap().len();
        assert_eq!(n_models > 0, callable, "{name}");
        for model in [Value::Null, json!("m"), json!("m/far-model")] {
            let body = json!({"model": model, "messages": [{"role": "user", "content": "?"}]});
            let request = request(name, "POST", CHAT, &body.to_string());
            let reply = send(server.running.addr, &request).await;
            if callable {
                assert_eq!(reply.status, 200, "{name} {model}");
            } else {
                assert_eq!(reply.error(), "403 forbidden model", "{name} {model}");
                assert!(
                    reply.text().contains("callable: nothing"),
                    "{}",
                    reply.text()
                );
            }
        }
        let known = ask(&server.running, name, "/v1/models/m").await;
        assert_eq!(known.status, if callable { 200 } else { 403 }, "{name}");
    }
}

/// The last request that fits is served, the next one is told when to come again; others go on.
#[tokio::test]
async fn limits_of_a_minute_are_told_and_kept() {
    let entries = [
        ("two", "    requests_per_minute: 2\n"),
        ("tokens", "    tokens_per_minute: 14\n"),
        ("free", ""),
    ];
    let server = guarded("minute", &entries).await;
    let two = ask(&server.running, "two", CHAT).await;
    for (header, expect) in [
        ("x-ratelimit-limit-requests", "2"),
        ("x-ratelimit-remaining-requests", "1"),
        ("x-ratelimit-reset-requests", "30s"),
    ] {
        assert_eq!(two.header(header), Some(expect), "{header}");
    }
    assert_eq!(two.header("x-ratelimit-limit-tokens"), None);
    assert_eq!(ask(&server.running, "two", GENERATE).await.status, 200);
    for (path, expect) in [
        (CHAT, "429 rate_limit_exceeded -"),
        ("/v1/messages", "429 rate_limit_error -"),
        (GENERATE, "429 rate_limited -"),
    ] {
        let refused = ask(&server.running, "two", path).await;
        assert_eq!(refused.error(), expect, "{path}");
        let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
        assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
    }
    assert_eq!(ask(&server.running, "two", "/v1/models").await.status, 200);

    assert_eq!(ask(&server.running, "tokens", CHAT).await.status, 200);
    let refused = until(&server.running, "tokens", 429).await;
    assert_eq!(refused.error(), "429 rate_limit_exceeded -");
    assert_eq!(refused.header("x-ratelimit-limit-tokens"), Some("14"));
    assert_eq!(refused.header("x-ratelimit-remaining-tokens"), Some("0"));
    for _ in 0..3 {
        assert_eq!(ask(&server.running, "free", CHAT).await.status, 200);
    }
}

/// Asks until the answer has this status: what was used counts when a reply has ended.
async fn until(running: &Running, name: &str, status: u16) -> Reply {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let reply = ask(running, name, CHAT).await;
        if reply.status == status {
            return reply;
        }
        assert!(Instant::now() < limit, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One sum for servers that share a store, before and after a restart.
#[tokio::test]
async fn a_day_is_shared_and_outlives_the_server() {
    let folder = temp_file("a-day", "");
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let place = folder.join("store.sqlite").display().to_string();
    let file = keys_file("day", &[("day", "    tokens_per_day: 40\n"), ("free", "")]);
    let start = async || {
        let options = ServerOptions {
            keys_file: Some(file.clone()),
            store: Store::open(&place).await.unwrap(),
            ..options()
        };
        service::start_with(vec![answer()], json!({"preset": "groq"}), options).await
    };
    let (one, two) = (start().await, start().await);
    let first = ask(&one.running, "day", CHAT).await;
    assert_eq!(first.header("x-ratelimit-remaining-tokens"), Some("40"));
    assert_eq!(ask(&one.running, "day", CHAT).await.status, 200);
    one.running.shutdown.stop();
    one.running.task.await.unwrap();
    // 28 of 40 are used; with 42 the day is over, here and in the next server.
    let third = ask(&two.running, "day", CHAT).await;
    assert_eq!(third.header("x-ratelimit-remaining-tokens"), Some("12"));
    let refused = until(&two.running, "day", 429).await;
    assert_eq!(refused.error(), "429 insufficient_quota -");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=24 * 60 * 60).contains(&wait), "{wait}");
    two.running.shutdown.stop();
    two.running.task.await.unwrap();
    let three = start().await;
    assert_eq!(ask(&three.running, "day", CHAT).await.status, 429);
    assert_eq!(ask(&three.running, "free", CHAT).await.status, 200);
}

/// Numbers and log name the key; the key itself, its digest included, is nowhere.
#[tokio::test]
async fn usage_is_told_by_name_and_no_key_leaks() {
    let log = Lines::default();
    let entries = [("ann", ""), ("ops", "    scopes: [metrics]\n")];
    let options = ServerOptions {
        keys_file: Some(keys_file("names", &entries)),
        access_log: Some(AccessLog::to(log.clone()).unwrap()),
        ..options()
    };
    let server = service::start_with(vec![answer()], json!({"preset": "groq"}), options).await;
    let replies = [
        ask(&server.running, "ann", CHAT).await,
        ask(&server.running, "ann", "/metrics").await,
        ask(&server.running, "guessed", CHAT).await,
    ];
    assert_eq!(
        replies.each_ref().map(|reply| reply.status),
        [200, 403, 401]
    );
    let lines = log.first(3).await;
    let keys: Vec<_> = lines.iter().map(|line| line["key"].clone()).collect();
    assert_eq!(keys, [json!("ann"), json!("ann"), Value::Null]);
    let numbers = ask(&server.running, "ops", "/metrics").await.text();
    for expect in [
        "twopass_key_requests_total{key=\"ann\",outcome=\"ok\"} 1",
        "twopass_key_requests_total{key=\"ann\",outcome=\"forbidden\"} 1",
        "twopass_key_tokens_total{key=\"ann\",token_type=\"input\"} 9",
        "twopass_key_tokens_total{key=\"ann\",token_type=\"output\"} 5",
    ] {
        assert!(numbers.contains(expect), "{expect}\n{numbers}");
    }
    let texts = [numbers, log.text()];
    let replies = replies
        .iter()
        .map(|reply| format!("{:?} {}", reply.headers, reply.text()));
    for text in texts.into_iter().chain(replies) {
        for key in ["ann-key", "guessed-key", "ops-key"] {
            let digest = Sha256::digest(key);
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(!text.contains(key) && !text.contains(&hex), "{text}");
        }
    }
}

/// A client that leaves before the usage is told pays for what was seen.
#[tokio::test]
async fn a_turn_that_breaks_off_counts_too() {
    let deltas = ["a", "b", "c"].map(|text| json!({"content": text}));
    let begun = streamed(&deltas, "stop");
    let text = String::from_utf8(begun.body()).unwrap();
    let events: Vec<_> = text
        .split_inclusive("\n\n")
        .take(3)
        .map(str::to_owned)
        .collect();
    let slow = Answer::events(events).then(Step::Wait(Duration::from_secs(60)));
    let options = ServerOptions {
        keys_file: Some(keys_file(
            "leaves",
            &[("ann", "    scopes: [chat, metrics]\n")],
        )),
        ..options()
    };
    let server = service::start_with(vec![slow], json!({"preset": "groq"}), options).await;
    let question = "a".repeat(40);
    let body = json!({"stream": true, "messages": [{"role": "user", "content": question}]});
    let mut client = Connection::open(server.running.addr).await;
    client
        .write(&request("ann", "POST", CHAT, &body.to_string()))
        .await;
    let head = client.head().await;
    let mut seen = String::new();
    while !seen.contains("\"c\"") {
        seen.push_str(&String::from_utf8(client.chunk(&head).await.unwrap()).unwrap());
    }
    drop(client);
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let numbers = ask(&server.running, "ann", "/metrics").await.text();
        let written = "twopass_key_tokens_total{key=\"ann\",token_type=\"output\"} 3";
        if numbers.contains(written) {
            let read = "twopass_key_tokens_total{key=\"ann\",token_type=\"input\"} 10";
            assert!(numbers.contains(read), "{numbers}");
            return;
        }
        assert!(Instant::now() < limit, "{numbers}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Faults name the place, never what stands there.
#[tokio::test]
async fn faulty_entries_are_named_and_not_shown() {
    let hash = format!("sha256:{}", "0".repeat(64));
    let provider = || {
        vec![crate::harness::native_provider(
            "far",
            "127.0.0.1:1".parse().unwrap(),
        )]
    };
    for (text, expect) in [
        (
            "keys: {}\n".to_owned(),
            ":1:7: `keys`: must be a list of keys, got a map",
        ),
        ("keys: []\n".to_owned(), " holds no key"),
        (
            "keys:\n  - name: a\n".to_owned(),
            ":2:5: `keys[0].hash`: is missing: a key has a `name` and a `hash`",
        ),
        (
            "keys:\n  - {name: a, hash: tp-secret}\n".to_owned(),
            ":2:21: `keys[0].hash`: must be `sha256:` and the 64 hexadecimal digits of the key's SHA-256",
        ),
        (
            format!("keys:\n  - {{name: \"a b\", hash: {hash}}}\n"),
            ":2:12: `keys[0].name`: must be 1 to 64 letters, digits, `.`, `_` or `-`",
        ),
        (
            format!("keys:\n  - {{name: a, hash: {hash}}}\n  - {{name: b, hash: {hash}}}\n"),
            ":3:5: `keys[1].hash`: is the hash of keys[0] already",
        ),
        (
            format!("keys:\n  - {{name: a, hash: {hash}, scopes: [all]}}\n"),
            "`keys[0].scopes`: must be a list of chat, embeddings, metrics, got a list",
        ),
        (
            format!("keys:\n  - {{name: a, hash: {hash}, expires: 2026-02-30}}\n"),
            "`keys[0].expires`: must be a date YYYY-MM-DD, the first day without the key, got `2026-02-30`",
        ),
        (
            format!("keys:\n  - {{name: a, hash: {hash}, tokens_per_day: 0}}\n"),
            "`keys[0].tokens_per_day`: must be a whole number of at least 1, got `0`",
        ),
        (
            format!("keys:\n  - {{name: a, hash: {hash}, limit: 0}}\n"),
            "`keys[0].limit`: unknown key",
        ),
    ] {
        let path = temp_file("faulty-keys", &text);
        let options = ServerOptions {
            keys_file: Some(path.clone()),
            ..options()
        };
        let error = Server::bind(options, provider())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(expect), "{text}{error}");
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(
            !error.contains("secret") && !error.contains(&hash),
            "{error}"
        );
    }
}
