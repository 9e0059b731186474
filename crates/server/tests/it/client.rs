//! A raw HTTP/1.1 client: it sends what it is told, also what no client library would.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Longer than anything a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// One reply, or its head while the body is still coming.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// `status kind param` of an error reply, after checking its shape: the native one,
    /// OpenAI's, whose kind is its code, or Anthropic's, whose kind is its type.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        let body = self.json();
        let error = body["error"]
            .as_object()
            .unwrap_or_else(|| panic!("no error: {body}"));
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        let kind = match keys.as_slice() {
            ["kind", "message", "param"] => "kind",
            ["message", "type", "param", "code"] => "code",
            ["type", "message"] if body["type"] == "error" => "type",
            _ => panic!("an unknown shape: {body}"),
        };
        assert!(!error["message"].as_str().unwrap().is_empty(), "{body}");
        let param = error.get("param").and_then(Value::as_str).unwrap_or("-");
        let kind = error[kind].as_str().unwrap();
        format!("{} {kind} {param}", self.status)
    }
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).await.unwrap();
    }

    /// Writes as long as the server takes it.
    pub(crate) async fn write_while_open(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes).await;
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) {
        self.write(&post(path, body)).await;
    }

    /// True if the server has closed, within `wait`.
    pub(crate) async fn is_closed_within(&mut self, wait: Duration) -> bool {
        let mut byte = [0];
        match tokio::time::timeout(wait, self.stream.read(&mut byte)).await {
            Ok(read) => read.map_or(true, |n| n == 0),
            Err(_) => false,
        }
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        while let Some(chunk) = self.chunk(&reply).await {
            reply.body.extend_from_slice(&chunk);
        }
        reply
    }

    pub(crate) async fn head(&mut self) -> Reply {
        tokio::time::timeout(PATIENCE, async {
            let status = self.line().await;
            let status = status
                .split(' ')
                .nth(1)
                .unwrap_or_else(|| panic!("no status: {status:?}"));
            let mut headers = Vec::new();
            loop {
                let line = self.line().await;
                let Some((name, value)) = line.split_once(':') else {
                    break;
                };
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            Reply {
                status: status.parse().unwrap(),
                headers,
                body: Vec::new(),
            }
        })
        .await
        .expect("a head in time")
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self, head: &Reply) -> Option<Vec<u8>> {
        let chunked = head.header("transfer-encoding") == Some("chunked");
        let n_bytes = if chunked {
            let line = tokio::time::timeout(PATIENCE, self.line())
                .await
                .expect("a chunk in time");
            usize::from_str_radix(line.trim(), 16)
                .unwrap_or_else(|_| panic!("broken off: {line:?}"))
        } else {
            head.header("content-length")
                .map_or(0, |n| n.parse().unwrap())
                - head.body.len()
        };
        let mut bytes = vec![0; n_bytes];
        self.stream.read_exact(&mut bytes).await.unwrap();
        if chunked {
            assert_eq!(self.line().await, "");
        }
        (n_bytes > 0).then_some(bytes)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }
}

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) async fn send(addr: SocketAddr, raw: &[u8]) -> Reply {
    let mut connection = Connection::open(addr).await;
    connection.write_while_open(raw).await;
    connection.reply().await
}

pub(crate) async fn get(addr: SocketAddr, path: &str) -> Reply {
    send(
        addr,
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes(),
    )
    .await
}

/// The events of a whole stream: name and data. Comments are left out.
pub(crate) fn events(body: &str) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for block in body.split("\n\n") {
        let (mut name, mut data) = ("message", Vec::new());
        for line in block.lines() {
            match line.split_once(':') {
                Some(("event", value)) => name = value.trim_start(),
                Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value)),
                Some(("", _)) => {}
                _ => panic!("no SSE line: {line:?}"),
            }
        }
        if !data.is_empty() {
            out.push((
                name.to_owned(),
                serde_json::from_str(&data.join("\n")).unwrap(),
            ));
        }
    }
    out
}
