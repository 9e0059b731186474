//! One entry over several servers: `base_urls`. The same on every backend that has addresses.

use std::time::{Duration, Instant};

use serde_json::json;
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, ErrorKind, Message, Provider, Role};
use twopass_replay::{Answer, Listener, Pace, Server};

use crate::play;

fn reply(text: &str) -> Answer {
    Answer::json(
        200,
        &json!({"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}),
    )
}

fn busy() -> Answer {
    Answer::json(503, &json!({"error": {"message": "later"}}))
}

/// A provider over these addresses that never waits to try again.
fn over(urls: &[String], lines: &str) -> Provider {
    let yaml = format!(
        "providers:\n  - name: c\n    provider_backend: openai\n    model_name: m\n    on_error: raise\n    api_config:\n      base_urls: [{}]\n      max_retries: 0\n      timeout_s: {{connect: 2, first_token: 2, idle: 2, total: 5}}\n{lines}",
        urls.join(", ")
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

async fn ask(provider: &Provider, text: &str) -> Result<String, ErrorKind> {
    let message = vec![Message::text(Role::User, text)];
    let request = provider.request(message, CallOptions::default()).unwrap();
    let reply = provider.generate(request).await;
    reply
        .map(|reply| reply.content)
        .map_err(|error| error.kind())
}

/// Turns that a server was asked for, without probes.
fn n_turns(server: &Server) -> usize {
    let requests = server.requests();
    requests
        .iter()
        .filter(|request| request.method == "POST")
        .count()
}

#[tokio::test]
async fn sessions_stay_and_new_ones_spread() {
    let servers = [play(vec![reply("a")]).await, play(vec![reply("b")]).await];
    let provider = over(&servers.each_ref().map(Server::url), "");
    for n in 0..16 {
        let hello = format!("question {n}");
        let first = ask(&provider, &hello).await.unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&provider, &hello).await.as_ref(), Ok(&first));
        }
    }
    for server in &servers {
        assert!(n_turns(server) >= 8, "{} of 64", n_turns(server));
    }
}

// What one server fails before its first output another one answers, without a wait.
#[tokio::test]
async fn a_failure_moves_on() {
    let closed = {
        let gone = play(vec![busy()]).await;
        gone.url()
    };
    let server = play(vec![reply("here")]).await;
    for urls in [[closed.clone(), server.url()], [server.url(), closed]] {
        let provider = over(&urls, "");
        for n in 0..8 {
            let started = Instant::now();
            assert_eq!(ask(&provider, &n.to_string()).await.as_deref(), Ok("here"));
            assert!(started.elapsed().as_millis() < 400);
        }
    }
}

#[tokio::test]
async fn a_busy_server_is_not_out() {
    let first = play(vec![busy(), reply("a")]).await;
    let second = play(vec![busy(), reply("b")]).await;
    let provider = over(&[first.url(), second.url()], "");
    // Both fail it, and nothing is left.
    assert_eq!(ask(&provider, "x").await, Err(ErrorKind::Overloaded));
    assert_eq!((n_turns(&first), n_turns(&second)), (1, 1));
    // One failure is no verdict.
    assert!(ask(&provider, "x").await.is_ok());
}

// The caller's fault is nobody's failure: no other server is asked.
#[tokio::test]
async fn a_wrong_request_stays_where_it_is() {
    let wrong = || Answer::json(400, &json!({"error": {"message": "no such field"}}));
    let servers = [play(vec![wrong()]).await, play(vec![wrong()]).await];
    let provider = over(&servers.each_ref().map(Server::url), "");
    assert_eq!(ask(&provider, "x").await, Err(ErrorKind::BadRequest));
    assert_eq!(n_turns(&servers[0]) + n_turns(&servers[1]), 1);
}

// A server that is out is asked for its health, and gets turns again once it answers.
#[tokio::test]
async fn a_dead_server_comes_back() {
    let address = {
        let gone = play(vec![busy()]).await;
        gone.address()
    };
    let living = play(vec![reply("b")]).await;
    let provider = over(&[format!("http://{address}"), living.url()], "");
    for n in 0..8 {
        assert_eq!(ask(&provider, &n.to_string()).await.as_deref(), Ok("b"));
    }
    let listener = Listener::bind_to(address).await.unwrap();
    let back = async {
        let mut connection = listener.accept().await.unwrap();
        let probe = connection.read_request().await.unwrap().unwrap();
        assert_eq!(
            (probe.method.as_str(), probe.path.as_str()),
            ("GET", "/health")
        );
        assert_eq!(probe.header("authorization"), None, "a probe needs no key");
        connection
            .play(&Answer::json(404, &json!({})), Pace::Whole)
            .await
            .unwrap();
    };
    let asking = async {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(
            ask(&provider, "0").await.as_deref(),
            Ok("b"),
            "asked in the background"
        );
    };
    tokio::join!(back, asking);
}

// A name for the conversation counts more than how it begins.
#[tokio::test]
async fn a_named_session_stays_whatever_it_says() {
    let servers = [play(vec![reply("a")]).await, play(vec![reply("b")]).await];
    let provider = over(&servers.each_ref().map(Server::url), "");
    for n in 0..12 {
        let message = vec![Message::text(Role::User, n.to_string())];
        let options = CallOptions {
            session: Some("one".to_owned()),
            ..CallOptions::default()
        };
        let planned = provider.request(message, options).unwrap();
        provider.generate(planned).await.unwrap();
    }
    let n_turns = servers.each_ref().map(n_turns);
    assert!(n_turns == [12, 0] || n_turns == [0, 12], "{n_turns:?}");
}
