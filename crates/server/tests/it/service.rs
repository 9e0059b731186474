//! A chat service that plays what it is told, and our server before it.

use serde_json::{Value, json};
use twopass_replay::{Answer, Pace, Server};
use twopass_server::ServerOptions;

use crate::client::{Reply, post, send};
use crate::harness::{Running, configured, options};

pub(crate) struct Before {
    pub(crate) upstream: Server,
    pub(crate) running: Running,
}

/// A service whose field for thinking is `reasoning_effort` answers every request so.
pub(crate) async fn start(answers: Vec<Answer>) -> Before {
    start_with(answers, json!({"preset": "groq"}), options()).await
}

/// The same with these keys in the provider's entry, and these options.
pub(crate) async fn start_with(
    answers: Vec<Answer>,
    keys: Value,
    options: ServerOptions,
) -> Before {
    let upstream = Server::start(answers, Pace::Whole).await.unwrap();
    let mut entry = json!({"name": "m", "provider_backend": "openai", "model_name": "far-model"});
    for (name, value) in keys.as_object().unwrap() {
        entry[name] = value.clone();
    }
    let provider = configured(&upstream.url(), entry);
    let running = Running::start(options, vec![provider]).await;
    Before { upstream, running }
}

impl Before {
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Reply {
        send(self.running.addr, &post(path, &body.to_string())).await
    }

    /// What the service was asked last.
    pub(crate) fn asked(&self) -> Value {
        self.upstream.requests().pop().unwrap().json()
    }
}

/// What a service says in one piece.
pub(crate) fn whole(message: Value, finish_reason: &str) -> Answer {
    let body = json!({
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": 9, "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    });
    Answer::json(200, &body)
}

/// What a service says as a stream of these deltas.
pub(crate) fn streamed(deltas: &[Value], finish_reason: &str) -> Answer {
    let deltas = deltas
        .iter()
        .map(|delta| json!({"choices": [{"index": 0, "delta": delta}]}));
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}});
    let events = deltas.chain([end, usage]);
    let events = events.map(|event| format!("data: {event}\n\n"));
    Answer::events(events.chain(["data: [DONE]\n\n".to_owned()]))
}
