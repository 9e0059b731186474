//! `twopass serve` at SIGHUP: what is new counts, what runs goes on, what is faulty changes
//! nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use twopass_replay::{Answer, Step};

use crate::run::Place;
use crate::served::Served;

const PATIENCE: Duration = Duration::from_secs(60);
const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
const REST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// The running binary; killed if a test fails.
struct Serving {
    child: Child,
    address: String,
    messages: Receiver<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["serve", "--port", "0"]);
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

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }

    /// The next line on stderr.
    fn message(&self) -> String {
        self.messages.recv_timeout(PATIENCE).unwrap()
    }

    /// Sends a request and gives its connection.
    fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, model: &str, stream: bool) -> TcpStream {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"Hi"}}]}}"#
        );
        self.open(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// The names that can be called.
    fn models(&self) -> Vec<String> {
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

fn rest(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.contains(text) {
        stream.read_exact(&mut byte).unwrap();
        seen.push(char::from(byte[0]));
    }
    seen
}

fn config(name: &str, url: &str) -> String {
    format!(
        "providers:\n  - {{name: {name}, provider_backend: openai, model_name: m, parsing_format: direct_response, api_config: {{base_url: {url}}}}}\nserver: {{access_log: true}}\n"
    )
}

#[test]
#[cfg(unix)]
fn streams_go_on_while_the_configuration_changes() {
    let slow = Answer::events([FIRST])
        .then(Step::Wait(Duration::from_secs(3)))
        .then(Step::Send(REST.as_bytes().to_vec()));
    let upstream = Served::start(slow);
    let place = Place::new();
    place.write("twopass.yaml", config("one", &upstream.url()));
    let serving = Serving::start(&place);
    assert_eq!(serving.models(), ["one", "one/m"]);
    let logged: Value = serde_json::from_str(&serving.message()).unwrap();
    assert_eq!(
        (&logged["route"], &logged["outcome"]),
        (&"/v1/models".into(), &"ok".into())
    );

    let mut stream = serving.ask("one", true);
    until(&mut stream, "Par");
    place.write("twopass.yaml", config("two", &upstream.url()));
    serving.signal("HUP");
    assert_eq!(
        serving.message(),
        "the configuration was read again, serving: two"
    );
    assert_eq!(serving.models(), ["two", "two/m"]);
    assert!(serving.message().contains("/v1/models"));
    assert!(rest(serving.ask("one", false)).starts_with("HTTP/1.1 404"));
    assert!(serving.message().contains("not_found"));
    let end = rest(stream);
    assert!(end.contains("is") && end.contains("[DONE]"), "{end}");
    assert!(serving.message().contains("\"outcome\":\"ok\""));

    for (faulty, why) in [
        (
            "providers: [{name: 3}]\n".to_owned(),
            "twopass.yaml:1:20: `providers[0].name`",
        ),
        (
            config("three", "nowhere"),
            "`providers[0].api_config.base_url`",
        ),
        (
            format!(
                "{}  keys_file: none\n",
                config("four", &upstream.url()).replace("server: {access_log: true}", "server:")
            ),
            "cannot read keys_file",
        ),
    ] {
        place.write("twopass.yaml", faulty);
        serving.signal("HUP");
        let said = serving.message();
        assert!(
            said.starts_with("the configuration stays as it was: "),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
        assert_eq!(serving.models(), ["two", "two/m"]);
        serving.message();
    }
    serving.signal("TERM");
    let mut serving = serving;
    assert!(serving.child.wait().unwrap().success());
}
