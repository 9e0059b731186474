//! `twopass serve` as a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::run::Place;

const PATIENCE: Duration = Duration::from_secs(60);

/// The running binary; killed if a test fails.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) address: String,
    messages: Receiver<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    /// The same with further flags.
    pub(crate) fn start_with(place: &Place, flags: &[&str]) -> Self {
        let mut command = place.command(&["serve", "--port", "0"]);
        command.args(flags);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().rsplit("//").next().unwrap().to_owned();
        let (sender, messages) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            let lines = stderr.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self {
            child,
            address,
            messages,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }

    /// The next line on stderr.
    pub(crate) fn message(&self) -> String {
        self.messages.recv_timeout(PATIENCE).unwrap()
    }

    /// Sends a request and gives its connection.
    pub(crate) fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn ask(&self, model: &str, stream: bool) -> TcpStream {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"Hi"}}]}}"#
        );
        self.open(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// The names that can be called.
    pub(crate) fn models(&self) -> Vec<String> {
        let request = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let reply = rest(self.open(request));
        let body = reply.split_once("\r\n\r\n").unwrap().1;
        let list: Value = serde_json::from_str(body).unwrap();
        let data = list["data"].as_array().unwrap();
        let ids = data
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned());
        ids.collect()
    }
}

pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}
