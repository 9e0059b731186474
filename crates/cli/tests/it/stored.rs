//! Stored responses outlive the process, however it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::Place;
use crate::served::Served;
use crate::serving::{Serving, rest};

const CLIENTS: usize = 4;
/// Acknowledged responses that have to be there before the process is killed.
const LEAST: usize = 40;

/// What the server says to a new question; `None` if the connection broke on the way.
fn ask(address: &str, body: &Value) -> Option<Value> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
}

fn status(serving: &Serving, method: &str, id: &str) -> String {
    let request = format!(
        "{method} /v1/responses/{id} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    let reply = rest(serving.open(&request));
    reply.get(9..12).unwrap_or_default().to_owned()
}

#[test]
#[cfg(unix)]
fn a_killed_server_loses_no_acknowledged_response() {
    let upstream = Served::start(Answer::json(
        200,
        &json!({"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]}),
    ));
    let place = Place::new();
    let config = format!(
        "providers:\n  - {{name: one, model_name: m, parsing_format: direct_response, api_config: {{base_url: {}}}}}\nserver: {{store: kept/responses.db}}\n",
        upstream.url()
    );
    place.write("twopass.yaml", config);
    let mut serving = Serving::start(&place);
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (address, acknowledged) = (serving.address.clone(), &acknowledged);
            scope.spawn(move || {
                let mut previous = Value::Null;
                // Until the process is gone. Each client goes on from its own last response.
                while let Some(reply) = ask(
                    &address,
                    &json!({"input": format!("{client}: 2+2?"), "previous_response_id": previous}),
                ) {
                    previous = reply["id"].clone();
                    let id = previous.as_str().unwrap().to_owned();
                    acknowledged.lock().unwrap().push(id);
                }
            });
        }
        let limit = Instant::now() + Duration::from_secs(60);
        while acknowledged.lock().unwrap().len() < LEAST && Instant::now() < limit {
            thread::sleep(Duration::from_millis(5));
        }
        // SIGKILL.
        serving.child.kill().unwrap();
        serving.child.wait().unwrap();
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() >= LEAST, "{}", acknowledged.len());

    let serving = Serving::start(&place);
    for id in &acknowledged {
        assert_eq!(status(&serving, "GET", id), "200", "{id}");
    }
    let last = acknowledged.last().unwrap();
    let next = ask(
        &serving.address,
        &json!({"input": "And?", "previous_response_id": last}),
    );
    assert_eq!(next.unwrap()["previous_response_id"], json!(last));
    let asked = upstream.requests().last().unwrap().json();
    assert!(asked["messages"].as_array().unwrap().len() >= 3, "{asked}");
    assert_eq!(status(&serving, "DELETE", last), "200");
    assert_eq!(status(&serving, "GET", last), "404");
}
