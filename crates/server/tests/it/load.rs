//! `/generate` on real models under load: clients that leave, full queues, huge prompts.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use twopass_provider::Provider;
use twopass_server::{Limits, ServerOptions, Shutdown};

use crate::client::{Connection, get, post, send};
use crate::harness::{Running, embedded_provider, options, qwen3, smollm2};
use crate::model::{TURN, ask, engine, start, stat, until_idle, whole};

/// A client that goes away frees its slot within this time.
const GONE: Duration = Duration::from_millis(250);

async fn until_running(provider: &Provider, n_streams: u64) {
    let start = Instant::now();
    while stat(provider, "running") < n_streams {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            provider.backend().stats()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A client that goes away frees its slot within 250 ms, streamed or not, also
/// while it waits in the queue or its prompt is being read.
#[tokio::test(flavor = "multi_thread")]
async fn s4_a_client_that_goes_away_frees_its_slot() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(2, 8), false);
    let running = start(&provider).await;
    let long = "all work and no play ".repeat(250);
    for (streamed, content) in [(false, "Hi"), (true, "Hi"), (false, &*long), (true, &*long)] {
        // The machine has other work: the best of three counts.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(time_to_free(&provider, &running, streamed, content).await);
            if best < GONE {
                break;
            }
        }
        assert!(
            best < GONE,
            "streamed {streamed}, {} bytes: {best:?}",
            content.len()
        );
    }
    assert!(
        stat(&provider, "cancelled") >= 8,
        "{:?}",
        provider.backend().stats()
    );
    let reply = send(
        running.addr,
        &ask(
            "Hi",
            json!({"max_response_tokens": 4, "max_thinking_tokens": 4}),
        ),
    )
    .await;
    assert_eq!(reply.status, 200);
}

/// Starts four turns in two slots, loses their clients, waits until the slots are free.
async fn time_to_free(
    provider: &Provider,
    running: &Running,
    streamed: bool,
    content: &str,
) -> Duration {
    let more = json!({"two_pass": false, "max_tokens": 5000, "stream": streamed, "seed": 1});
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Connection::open(running.addr).await;
        client.write(&ask(content, more.clone())).await;
        clients.push(client);
    }
    until_running(provider, 2).await;
    if streamed && content == "Hi" {
        let head = clients[0].head().await;
        clients[0].chunk(&head).await.unwrap();
    }
    drop(clients);
    until_idle(provider).await
}

/// Section 4: a full queue is 429 with Retry-After, and nothing sticks.
#[tokio::test(flavor = "multi_thread")]
async fn s4_200_requests_at_once_leave_no_stuck_slot() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(4, 16), false);
    let running = start(&provider).await;
    let one = |idx: usize| async move {
        let more = json!({
            "two_pass": idx.is_multiple_of(2), "max_thinking_tokens": 8, "max_response_tokens": 24,
            "stream": idx.is_multiple_of(3), "seed": idx,
        });
        let mut client = Connection::open(running.addr).await;
        client.write(&ask("Hi", more)).await;
        if idx % 10 == 9 {
            // Some lose patience.
            let _ = tokio::time::timeout(Duration::from_millis(20), client.head()).await;
            return None;
        }
        Some((idx, client.reply().await))
    };
    let replies = join_all((0..200).map(one)).await;
    let (mut n_done, mut n_refused) = (0, 0);
    for (idx, reply) in replies.into_iter().flatten() {
        if reply.status == 200 {
            let reply = whole(&reply.text(), idx.is_multiple_of(3));
            assert!(
                reply["usage"]["response_tokens"].as_u64().unwrap() <= 24,
                "{reply}"
            );
            n_done += 1;
        } else {
            assert_eq!(reply.error(), "429 queue_full -");
            assert_eq!(reply.header("retry-after"), Some("1"));
            n_refused += 1;
        }
    }
    assert!(
        n_done >= 4 && n_refused > 0,
        "{n_done} done, {n_refused} refused"
    );
    until_idle(&provider).await;
    let reply = send(running.addr, &ask("Hi", json!({"max_response_tokens": 4}))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// What the engine cannot take is a 400 that says so.
#[tokio::test(flavor = "multi_thread")]
async fn f5_a_prompt_over_the_context_is_refused() {
    let _turn = TURN.lock().await;
    let mut small = engine(2, 4);
    small.context_tokens = Some(512);
    let provider = embedded_provider(&smollm2(), small, false);
    let running = start(&provider).await;
    for streamed in [false, true] {
        let reply = send(
            running.addr,
            &ask(&"word ".repeat(5000), json!({"stream": streamed})),
        )
        .await;
        assert_eq!(
            reply.error().split(' ').take(2).collect::<Vec<_>>(),
            ["400", "context_length"]
        );
        let huge = send(
            running.addr,
            &ask(&"x".repeat(8 << 20), json!({"stream": streamed})),
        )
        .await;
        assert_eq!(
            huge.error().split(' ').take(2).collect::<Vec<_>>(),
            ["400", "context_length"]
        );
    }
    assert_eq!(get(running.addr, "/health").await.json()["status"], "ok");
    until_idle(&provider).await;
}

/// An adapter that is not there, and one that is no name.
#[tokio::test(flavor = "multi_thread")]
async fn f5_unknown_adapters_are_refused() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(1, 4), false);
    let running = start(&provider).await;
    for (lora, expect) in [
        (json!("polite"), "unknown adapter `polite`, loaded: none"),
        (
            json!([{"id": 0, "scale": 1}]),
            "must be the name of an adapter",
        ),
    ] {
        let body = json!({"model": "local", "lora": lora,
                          "messages": [{"role": "user", "content": "Hi"}]});
        for path in ["/v1/chat/completions", "/generate"] {
            let reply = send(running.addr, &post(path, &body.to_string())).await;
            assert_eq!(
                (reply.status, reply.json()["error"]["param"].as_str()),
                (400, Some("lora")),
                "{path}"
            );
            assert!(reply.text().contains(expect), "{}", reply.text());
        }
    }
}

/// Large prompts take seconds to read; nobody else waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn huge_prompts_do_not_hold_up_others() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&smollm2(), engine(2, 4), false);
    let running = start(&provider).await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = Connection::open(running.addr).await;
        client.write(&ask(&"a b ".repeat(200_000), json!({}))).await;
        clients.push(client);
    }
    for _ in 0..10 {
        let asked = Instant::now();
        assert_eq!(get(running.addr, "/health").await.status, 200);
        assert!(
            asked.elapsed() < Duration::from_secs(1),
            "{:?}",
            asked.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for mut client in clients {
        let kind = client.reply().await.error();
        assert!(kind.starts_with("400 context_length"), "{kind}");
    }
}

/// A stream that waits for its slot shows that it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_stream_sends_comments() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(1, 4), false);
    provider.prepare().await.unwrap();
    let limits = Limits {
        heartbeat: Duration::from_millis(50),
        ..Limits::default()
    };
    let running = Running::start(
        ServerOptions {
            limits,
            ..options()
        },
        vec![provider.clone()],
    )
    .await;
    let more = json!({"two_pass": false, "max_tokens": 5000, "stream": true});
    let mut first = Connection::open(running.addr).await;
    first.write(&ask("Hi", more.clone())).await;
    until_running(&provider, 1).await;
    let mut second = Connection::open(running.addr).await;
    second.write(&ask("Hi", more)).await;
    let head = second.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(second.chunk(&head).await.unwrap(), b": keep-alive\n\n");
    assert_eq!(stat(&provider, "queued"), 1);
}

/// The end of the server frees what runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_stop_frees_running_slots_at_once() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(2, 8), false);
    let running = start(&provider).await;
    let shutdown: Shutdown = running.shutdown.clone();
    let mut clients = Vec::new();
    for streamed in [false, true, false] {
        let mut client = Connection::open(running.addr).await;
        let more = json!({"two_pass": false, "max_tokens": 5000, "stream": streamed});
        client.write(&ask("Hi", more)).await;
        clients.push(client);
    }
    until_running(&provider, 2).await;
    shutdown.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(stat(&provider, "running"), 2, "a drain lets turns go on");
    shutdown.stop();
    tokio::time::timeout(Duration::from_secs(2), running.task)
        .await
        .expect("it ends")
        .unwrap();
    let took = until_idle(&provider).await;
    assert!(took < 4 * GONE, "{took:?}");
}

/// Many requests of mixed size, some of whose clients leave at random.
#[tokio::test(flavor = "multi_thread")]
async fn mixed_requests_with_random_cancels_leave_nothing_behind() {
    let _turn = TURN.lock().await;
    let provider = embedded_provider(&qwen3(), engine(8, 64), false);
    let running = start(&provider).await;
    let n_requests: usize = if std::env::var_os("TWOPASS_SLOW").is_some() {
        10_000
    } else {
        300
    };
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || async {
        let mut n_done = 0;
        loop {
            let idx = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if idx >= n_requests {
                return n_done;
            }
            // A fixed mix without a pattern that the worker count could share.
            let dice = idx.wrapping_mul(2_654_435_761) >> 7;
            let content = "some words of a prompt ".repeat(1 + dice % 23);
            let more = json!({
                "two_pass": dice.is_multiple_of(2), "max_thinking_tokens": dice % 9, "max_response_tokens": 1 + dice % 17,
                "max_tokens": 1 + dice % 17, "stream": dice.is_multiple_of(3), "seed": idx,
            });
            let mut client = Connection::open(running.addr).await;
            client.write(&ask(&content, more)).await;
            if dice.is_multiple_of(4) {
                tokio::time::sleep(Duration::from_millis((dice % 40) as u64)).await;
                continue;
            }
            let reply = client.reply().await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            whole(&reply.text(), dice.is_multiple_of(3));
            n_done += 1;
        }
    };
    let done: usize = join_all((0..12).map(|_| worker())).await.into_iter().sum();
    assert!(done > n_requests / 2, "{done}");
    let took = until_idle(&provider).await;
    assert!(took < 4 * GONE, "{took:?}");
}
