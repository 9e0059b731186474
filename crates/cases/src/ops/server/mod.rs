//! Requests over a real socket to the real server, whose model's words are the case's.

mod client;
mod engine;
mod outcome;
mod stream;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use twopass_provider::Provider;
use twopass_provider::config::{Config, Environment};
use twopass_replay::{Answer, Pace, Server as Upstream};
use twopass_server::{Server, ServerOptions, Shutdown};

use self::client::{Leave, Sent};
use self::engine::Engine;
use self::outcome::Outcome;
use super::live::runtime;
use crate::Verdict;
use crate::case::text_of;

/// No case runs longer.
const MAX_RUN: Duration = Duration::from_secs(60);
/// How long after its client's leaving a turn may go on before the wait is given up.
const MAX_CANCEL: Duration = Duration::from_secs(5);
/// The model of requests that name none.
const MODEL: &str = "m";

/// Settings of a case that this adapter knows; another one would be ignored silently.
const KNOWN: &[&str] = &[
    "op",
    "request",
    "requests",
    "engine",
    "reasoning_model",
    "disconnect_after_events",
    "disconnect_after_ms",
    "optional",
];

/// Runs `http` or `http_sequence`.
pub(super) fn run(case: &Value) -> Verdict {
    let ran = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let ran = tokio::time::timeout(MAX_RUN, play(&case["input"])).await;
            ran.map_err(|_| format!("no end within {} s", MAX_RUN.as_secs()))?
        })
    });
    let is_optional = case["input"]["optional"] == true;
    match ran {
        Ok(outcome) if is_optional && outcome.is_absent() => Verdict::Skipped {
            op: "server/http".to_owned(),
            reason: "there is no such endpoint".to_owned(),
        },
        Ok(outcome) => match outcome.meets(&case["expect"]) {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        },
        Err(why) => Verdict::Failed(why),
    }
}

async fn play(input: &Value) -> Result<Outcome, String> {
    for key in input.as_object().into_iter().flat_map(|keys| keys.keys()) {
        if !KNOWN.contains(&key.as_str()) {
            return Err(format!("`{key}` is no setting that this adapter knows"));
        }
    }
    let requests: Vec<Sent> = match &input["requests"] {
        Value::Array(requests) => requests.iter().map(request_of).collect(),
        _ => vec![request_of(&input["request"])],
    };
    let running = Running::start(input, &requests).await?;
    let leave = Leave {
        after_events: input["disconnect_after_events"].as_u64(),
        after: input["disconnect_after_ms"]
            .as_u64()
            .map(Duration::from_millis),
    };
    let started = Instant::now();
    let mut replies = Vec::new();
    for request in &requests {
        replies.push(client::exchange(running.address, request, leave).await?);
    }
    let elapsed = started.elapsed();
    let left = replies.last().and_then(|reply| reply.left);
    let cancelled = match left {
        Some(left) => running.engine.cancelled_since(left, MAX_CANCEL).await,
        None => None,
    };
    let alive = client::exchange(running.address, &normal_request(), Leave::default()).await;
    Ok(Outcome {
        replies,
        elapsed,
        cancelled,
        log: running.engine.log(),
        is_alive: alive.is_ok_and(|reply| reply.status == 200),
    })
}

fn request_of(value: &Value) -> Sent {
    let headers = value["headers"].as_object().into_iter().flatten();
    let mut headers: Vec<(String, String)> = headers
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value.as_str()?.to_owned())))
        .collect();
    let body = match text_of(value, "raw_body") {
        Some(raw) => Some(raw),
        None => Some(&value["body"])
            .filter(|body| !body.is_null())
            .map(Value::to_string),
    };
    if body.is_some() && !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    Sent {
        method: value["method"].as_str().unwrap_or("POST").to_owned(),
        path: value["path"].as_str().unwrap_or("/").to_owned(),
        headers,
        body: body.unwrap_or_default(),
    }
}

/// A request that any server of a case can answer.
fn normal_request() -> Sent {
    Sent {
        method: "GET".to_owned(),
        path: "/v1/models".to_owned(),
        headers: Vec::new(),
        body: String::new(),
    }
}

/// A server under test; dropping it ends it.
struct Running {
    address: std::net::SocketAddr,
    engine: Engine,
    task: JoinHandle<()>,
    /// Answers for vectors.
    _upstream: Option<Upstream>,
}

impl Running {
    async fn start(input: &Value, requests: &[Sent]) -> Result<Self, String> {
        let script = input["engine"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = Vec::new();
        // A case that scripts nothing asks for nothing that is served.
        for request in requests.iter().filter(|_| !script.is_empty()) {
            let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
            let name = body["model"].as_str().unwrap_or_default();
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if names.is_empty() {
            names.push(MODEL.to_owned());
        }
        let mut upstream = None;
        let engine = Engine::new(script.clone())?;
        let mut providers = Vec::new();
        let asks = |request: &Sent| request.path.ends_with("/embeddings");
        let has_vectors = !script.is_empty() && requests.iter().any(asks);
        if has_vectors {
            let server = vectors_server(&script).await?;
            for name in &names {
                providers.push(embedding_provider(name, &server)?);
            }
            upstream = Some(server);
        } else {
            for name in &names {
                providers.push(engine.provider(name));
            }
        }
        let options = ServerOptions {
            port: 0,
            ..ServerOptions::default()
        };
        let server = Server::bind(options, providers).await;
        let server = server.map_err(|error| error.to_string())?;
        let address = server.local_addr();
        Ok(Self {
            address,
            engine,
            task: tokio::spawn(async move { server.run(&Shutdown::new()).await }),
            _upstream: upstream,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A service that gives the case's vectors, or fails as the case says.
async fn vectors_server(script: &[Value]) -> Result<Upstream, String> {
    let answers = script.iter().map(|entry| match entry.get("fail") {
        Some(fail) => {
            let status = fail["status"]
                .as_u64()
                .and_then(|s| u16::try_from(s).ok())
                .unwrap_or(500);
            Answer::json(status, &json!({"error": {"message": fail["message"]}}))
        }
        None => {
            let vectors = entry["vectors"].as_array().into_iter().flatten();
            let data: Vec<Value> = vectors
                .enumerate()
                .map(|(index, vector)| json!({"index": index, "embedding": vector}))
                .collect();
            Answer::json(200, &json!({"data": data, "usage": {"prompt_tokens": 1}}))
        }
    });
    let server = Upstream::start(answers.collect(), Pace::Whole).await;
    server.map_err(|error| error.to_string())
}

fn embedding_provider(name: &str, upstream: &Upstream) -> Result<Provider, String> {
    let config = json!({
        "providers": [{
            "name": name, "provider_backend": "openai", "model_name": name,
            "api_config": {"base_url": upstream.url(), "max_retries": 0},
        }],
        "embeddings": {"model": name},
    });
    let config = Config::parse(&config.to_string(), "the case", Environment::of_pairs([]));
    let provider = config.and_then(|config| Provider::from_entry(&config, None));
    provider.map_err(|error| error.to_string())
}
