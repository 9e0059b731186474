use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Tally;

/// The key of requests whose clients leave, and the key of who reads the numbers.
pub(super) const LEFT: &str = "left";
pub(super) const WATCH: &str = "watch";
/// One request in so many is left, or is no JSON.
const LEAVES: u64 = 10;
const GARBLED: u64 = 50;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client asks for, and how its answers end.
#[derive(Clone, Copy)]
pub(super) struct Face {
    /// Also the name of its key.
    pub(super) name: &'static str,
    path: &'static str,
    body: fn(&str, bool) -> Value,
    /// Stands at the end of a whole stream; empty = it does not stream.
    end: &'static str,
    /// Between two requests.
    pause_ms: u64,
}

const CHAT: Face = Face {
    name: "chat",
    path: "/v1/chat/completions",
    body: |text, stream| json!({"model": "far", "stream": stream, "messages": [{"role": "user", "content": text}]}),
    end: "data: [DONE]",
    pause_ms: 50,
};
const MESSAGES: Face = Face {
    name: "messages",
    path: "/v1/messages",
    body: |text, stream| json!({"model": "far", "stream": stream, "max_tokens": 99, "messages": [{"role": "user", "content": text}]}),
    end: "event: message_stop",
    ..CHAT
};
const RESPONSES: Face = Face {
    name: "responses",
    path: "/v1/responses",
    body: |text, stream| json!({"model": "far", "stream": stream, "input": text}),
    end: "event: response.completed",
    ..CHAT
};
const GENERATE: Face = Face {
    name: "generate",
    path: "/generate",
    end: "event: done",
    ..CHAT
};
const EMBEDDINGS: Face = Face {
    name: "embeddings",
    path: "/v1/embeddings",
    body: |text, _| json!({"input": text}),
    end: "",
    pause_ms: 100,
};
const COUNT: Face = Face {
    name: "count",
    path: "/v1/messages/count_tokens",
    end: "",
    ..MESSAGES
};
/// The small model of this process.
const NEAR: Face = Face {
    name: "near",
    path: "/v1/completions",
    body: |text, stream| json!({"model": "near", "stream": stream, "max_tokens": 8, "prompt": text}),
    pause_ms: 500,
    ..CHAT
};
pub(super) const CLIENTS: [Face; 12] = [
    CHAT, CHAT, CHAT, MESSAGES, MESSAGES, RESPONSES, RESPONSES, GENERATE, GENERATE, EMBEDDINGS,
    COUNT, NEAR,
];

/// How a request ended, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ended {
    Ok,
    /// With this kind of error; `None` where a face has fewer names than we have kinds.
    Failed(Option<String>),
    /// The client left after an answer had begun.
    Left,
    /// The client left before: a busy server may never have read the request.
    LeftUnanswered,
    /// Neither an answer's end nor an error.
    Broken,
}

pub(super) struct Client {
    address: String,
    face: Face,
    random: Random,
    tally: Arc<Mutex<Tally>>,
    keys: HashMap<String, String>,
}

impl Client {
    pub(super) fn new(
        (address, keys): (&str, &HashMap<String, String>),
        face: Face,
        seed: u64,
        tally: Arc<Mutex<Tally>>,
    ) -> Self {
        Self {
            address: address.to_owned(),
            face,
            random: Random(seed),
            tally,
            keys: keys.clone(),
        }
    }

    pub(super) async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            self.turn().await;
            let pause = self.random.below(2 * self.face.pause_ms);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn turn(&mut self) {
        let stream = !self.face.end.is_empty() && self.random.below(2) == 0;
        // Few different texts: what the server remembers of answers is bounded, but large.
        let text = format!("question {}", self.random.below(50));
        let body = match self.random.below(GARBLED) {
            0 => "{".to_owned(),
            _ => (self.face.body)(&text, stream).to_string(),
        };
        if self.random.below(LEAVES) == 0 {
            let request = self.request(LEFT, "POST", self.face.path, &body);
            let after = Duration::from_millis(self.random.below(80));
            let left = leave(&self.address, &request, after).await;
            return self.note(LEFT, left);
        }
        let request = self.request(self.face.name, "POST", self.face.path, &body);
        let reply = ask(&self.address, &request).await;
        let ended = self.ended(&reply);
        let is_ok = ended == Ended::Ok;
        self.note(self.face.name, ended);
        if is_ok && self.face.path == RESPONSES.path && !stream {
            self.read_again(&reply).await;
        }
    }

    /// Fetches a stored response, and deletes every other one.
    async fn read_again(&mut self, reply: &str) {
        let body: Value = serde_json::from_str(body_of(reply)).unwrap();
        let path = format!("/v1/responses/{}", body["id"].as_str().unwrap());
        let methods: &[&str] = match self.random.below(2) {
            0 => &["GET"],
            _ => &["GET", "DELETE"],
        };
        for method in methods {
            let request = self.request(self.face.name, method, &path, "");
            let reply = ask(&self.address, &request).await;
            let ended = self.ended(&reply);
            self.note(self.face.name, ended);
        }
    }

    fn request(&self, key: &str, method: &str, path: &str, body: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.keys[key],
            body.len()
        )
    }

    fn ended(&self, reply: &str) -> Ended {
        let mut errors = reply.lines().filter_map(|line| {
            let line = line.strip_prefix("data: ").unwrap_or(line);
            let value: Value = serde_json::from_str(line).ok()?;
            let error = [&value["error"], &value["response"]["error"]];
            error.into_iter().find(|error| error.is_object()).cloned()
        });
        let Some(error) = errors.next_back() else {
            let is_stream = reply.contains("content-type: text/event-stream");
            let is_whole = reply.starts_with("HTTP/1.1 200") && !is_stream;
            return match is_whole || is_stream && reply.contains(self.face.end) {
                true => Ended::Ok,
                false => Ended::Broken,
            };
        };
        let kind = error.get("kind").or_else(|| error.get("code"));
        Ended::Failed(match kind.and_then(Value::as_str) {
            Some("rate_limit_exceeded") => Some("rate_limited".to_owned()),
            Some("model_not_found") => Some("not_found".to_owned()),
            // A word for many kinds.
            Some("server_error") | None => None,
            Some(kind) => Some(kind.to_owned()),
        })
    }

    fn note(&self, key: &'static str, ended: Ended) {
        *self.tally.lock().unwrap().entry((key, ended)).or_default() += 1;
    }
}

/// The numbers of the server.
pub(super) async fn numbers(address: &str, key: &str) -> String {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {key}\r\n\r\n"
    );
    ask(address, &request).await
}

/// The whole reply; empty if the connection broke or nothing more came.
async fn ask(address: &str, request: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = timeout(PATIENCE, asked).await.ok().and_then(Result::ok);
    String::from_utf8(reply.unwrap_or_default()).unwrap()
}

/// Sends a request and is gone after this time, whatever came.
async fn leave(address: &str, request: &str, after: Duration) -> Ended {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    sleep(after).await;
    match stream.try_read(&mut [0]) {
        Ok(1) => Ended::Left,
        _ => Ended::LeftUnanswered,
    }
}

fn body_of(reply: &str) -> &str {
    reply.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Numbers that look random: xorshift, seeded.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
