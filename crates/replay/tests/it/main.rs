//! The replay server, seen through a plain socket.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use twopass_replay::{Answer, Framing, Pace, Server, Step};

const ASK: &[u8] = b"POST /v1/x?y HTTP/1.1\r\nHost: a\r\nX-Key: k\r\nContent-Length: 2\r\n\r\n{}";

/// Everything that comes until the server closes; `None` after a reset.
async fn read(server: &Server, n_requests: usize) -> Option<String> {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    for _ in 0..n_requests {
        stream.write_all(ASK).await.unwrap();
    }
    // A server that keeps the connection waits for more, one that is busy sees nobody.
    tokio::time::sleep(Duration::from_millis(60)).await;
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.ok()?;
    Some(String::from_utf8_lossy(&got).into_owned())
}

#[tokio::test]
async fn framings_and_records() {
    let json = Answer::json(200, &json!({"a": 1}));
    let rows = [
        (
            json.clone(),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n{\"a\":1}",
        ),
        (
            Answer::events(["data: a\n\n", "data: b\n\n"]),
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n",
        ),
        (
            json.clone().framed(Framing::Close),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"a\":1}",
        ),
        (Answer::raw("garbage"), "garbage"),
    ];
    for (answer, expect) in rows {
        for pace in [Pace::Whole, Pace::OneByte] {
            let server = Server::start(vec![answer.clone()], pace).await.unwrap();
            assert_eq!(read(&server, 1).await.unwrap(), expect);
            let request = server.requests().remove(0);
            assert_eq!(
                (request.method.as_str(), request.path.as_str()),
                ("POST", "/v1/x?y")
            );
            assert_eq!(request.header("x-key"), Some("k"));
            assert_eq!(request.json(), json!({}));
        }
    }
}

#[tokio::test]
async fn answers_in_order_on_one_connection() {
    let answers = vec![Answer::new(200, "", "one"), Answer::new(503, "", "two")];
    let server = Server::start(answers, Pace::Whole).await.unwrap();
    let got = read(&server, 3).await.unwrap();
    let one = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none";
    let two = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 3\r\n\r\ntwo";
    assert_eq!(got, format!("{one}{two}{two}"));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn entries_of_case_files() {
    let entry = json!({"status": 429, "headers": {"retry-after": 7}, "framing": "close",
        "steps": [{"text": "a", "delay_ms": 30}, {"repeat": ["bc", 3]}]});
    let answer = Answer::from_json(&entry).unwrap();
    assert_eq!(answer.body(), b"abcbcbc");
    let started = Instant::now();
    let server = Server::start(vec![answer], Pace::Whole).await.unwrap();
    let got = read(&server, 1).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(
        got,
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nconnection: close\r\n\r\nabcbcbc"
    );
    for wrong in [
        json!({"status": "x"}),
        json!({"headers": 1}),
        json!({"steps": [{}]}),
        json!({"steps_hex": ["abc"]}),
        json!({"framing": "none"}),
    ] {
        Answer::from_json(&wrong).unwrap_err();
    }
}

#[tokio::test]
async fn cuts_and_resets_break_the_connection() {
    let abrupt = json!({"steps": [{"text": "a"}, {"close": "abrupt"}]});
    let cut = json!({"text": "abcdef", "cut_after": 3});
    for entry in [abrupt, cut] {
        let answer = Answer::from_json(&entry).unwrap();
        let server = Server::start(vec![answer], Pace::Whole).await.unwrap();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(ASK).await.unwrap();
        let mut got = Vec::new();
        let end = stream.read_to_end(&mut got).await;
        assert!(end.is_err(), "{}", String::from_utf8_lossy(&got));
        assert!(got.ends_with(b"a\r\n") || got.ends_with(b"abc"));
    }
}

#[tokio::test]
async fn gzip_is_flushed_step_by_step() {
    let mut answer = Answer::events(["data: a\n\n"]).then(Step::Wait(Duration::from_secs(9)));
    answer.gzip = true;
    let server = Server::start(vec![answer], Pace::Whole).await.unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(ASK).await.unwrap();
    let mut got = Vec::new();
    while !got.windows(2).any(|two| two == [0x1f, 0x8b]) {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).await.unwrap();
        assert_ne!(n, 0);
        got.extend_from_slice(&piece[..n]);
    }
    let started = Instant::now();
    drop(stream);
    while server.n_ended() == 0 {
        assert!(started.elapsed() < Duration::from_secs(2));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
