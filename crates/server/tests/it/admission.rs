//! Requests beyond what the server works on at one time.

use std::time::Duration;

use twopass_server::{Limits, ServerOptions};

use crate::client::{Connection, get, post, send};
use crate::harness::{Running, native_provider, options};
use crate::upstream::Upstream;

const ASK: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
const ASK_STREAM: &str = r#"{"stream": true, "messages": [{"role": "user", "content": "Hi"}]}"#;

async fn one_at_a_time(queue: usize) -> (Upstream, Running) {
    let upstream = Upstream::start().await;
    let limits = Limits {
        requests: 1,
        queue,
        queue_time: Duration::from_millis(200),
        ..Limits::default()
    };
    let options = ServerOptions {
        limits,
        ..options()
    };
    let running = Running::start(options, vec![native_provider("far", upstream.addr)]).await;
    (upstream, running)
}

/// A place is held until the last byte of a stream, and given back when its client leaves.
#[tokio::test]
async fn a_full_server_says_429_and_when_to_come_again() {
    for queue in [0, 1] {
        let (upstream, running) = one_at_a_time(queue).await;
        let mut first = Connection::open(running.addr).await;
        first.post("/generate", ASK_STREAM).await;
        let mut call = upstream.call().await;
        call.begin_stream().await;
        call.write("event: text\ndata: {\"text\":\"Y\"}\n\n").await;
        let head = first.head().await;
        first.chunk(&head).await.unwrap();

        let refused = send(running.addr, &post("/generate", ASK)).await;
        assert_eq!(refused.error(), "429 queue_full -");
        assert_eq!(refused.header("retry-after"), Some("1"));
        // What costs no work is answered all the same.
        assert_eq!(get(running.addr, "/v1/models").await.status, 200);

        drop(first);
        call.closed().await;
        // The place is free a moment after the upstream's connection.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let request = post("/generate", ASK);
        let (reply, ()) = tokio::join!(send(running.addr, &request), async {
            let call = upstream.call().await;
            call.answer("200 OK", "", r#"{"response": "ok"}"#).await;
        });
        assert_eq!(reply.status, 200);
    }
}

/// Who waits gets the next place.
#[tokio::test]
async fn a_request_waits_its_time() {
    let (upstream, running) = one_at_a_time(1).await;
    let request = post("/generate", ASK);
    let (first, second, ()) = tokio::join!(
        send(running.addr, &request),
        send(running.addr, &request),
        async {
            for _ in 0..2 {
                let call = upstream.call().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                call.answer("200 OK", "", r#"{"response": "ok"}"#).await;
            }
        }
    );
    assert_eq!((first.status, second.status), (200, 200));
}
