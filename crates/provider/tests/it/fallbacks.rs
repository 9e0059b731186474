//! Entries that take over: `fallbacks`.

use serde_json::{Value, json};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, ErrorKind, Message, Provider, Role, TurnItem};
use twopass_replay::{Answer, Server};

use crate::chat_faults::{END, PIECE, error, whole};
use crate::native::hello;
use crate::play;

/// `first` with `second` and `third` to take over. Each has a temperature of its own.
fn chain(servers: [&Server; 3]) -> Provider {
    let entry = |(name, server): (&str, &Server)| {
        format!(
            "  - name: {name}\n    provider_backend: openai\n    model_name: {name}\n    on_error: raise\n    generation_config: {{temperature: 0.{}, max_tokens: 64}}\n    api_config: {{base_url: {}, max_retries: 0}}\n",
            name.len(),
            server.url()
        )
    };
    let entries: String = ["first", "second", "third"]
        .into_iter()
        .zip(servers)
        .map(entry)
        .collect();
    let yaml = format!("default_provider: first\nproviders:\n{entries}").replacen(
        "    on_error",
        "    fallbacks: [second, third]\n    on_error",
        1,
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

/// The turn's text or its error, and how often each server was asked.
async fn outcome(answers: [Answer; 3]) -> (Result<String, String>, [usize; 3]) {
    let [first, second, third] = answers;
    let servers = [
        play(vec![first]).await,
        play(vec![second]).await,
        play(vec![third]).await,
    ];
    let [a, b, c] = &servers;
    let provider = chain([a, b, c]);
    let planned = provider.request(hello(), CallOptions::default()).unwrap();
    let turn = provider.generate(planned).await;
    let said = turn
        .map(|reply| reply.content)
        .map_err(|error| error.to_string());
    (
        said,
        servers.each_ref().map(|server| server.requests().len()),
    )
}

#[tokio::test]
async fn who_answers() {
    let cut = || Answer::events([PIECE]);
    let silent = || Answer::events([": ping\n\n"]);
    let answered = |text: &str| Ok(text.to_owned());
    for (what, answers, expect) in [
        ("nothing failed", [whole(), whole(), whole()], (answered("Hi"), [1, 0, 0])),
        ("busy", [error(503, "later"), whole(), whole()], (answered("Hi"), [1, 1, 0])),
        ("slow", [error(429, "slow"), error(401, "no"), whole()], (answered("Hi"), [1, 1, 1])),
        ("ended before it began", [silent(), whole(), whole()], (answered("Hi"), [1, 1, 0])),
        // After the first output nobody else can go on.
        (
            "cut in the middle",
            [cut(), whole(), whole()],
            (Err("provider `first`: the stream ended before its end: neither a finish reason nor an end marker came".to_owned()), [1, 0, 0]),
        ),
        // What does not pass by itself is for people to mend.
        (
            "no key",
            [error(401, "no"), whole(), whole()],
            (Err("provider `first`: HTTP 401: no".to_owned()), [1, 0, 0]),
        ),
        (
            "a wrong request",
            [error(400, "no such field"), whole(), whole()],
            (Err("provider `first`: HTTP 400: no such field".to_owned()), [1, 0, 0]),
        ),
        (
            "all fail",
            [error(503, "a"), error(500, "b"), error(401, "c")],
            (
                Err("provider `first`: HTTP 503: a; then provider `second`: HTTP 500: b; then provider `third`: HTTP 401: c".to_owned()),
                [1, 1, 1],
            ),
        ),
    ] {
        assert_eq!(outcome(answers).await, expect, "{what}");
    }
}

// The one who failed is told in the stream and in the whole, before any text.
#[tokio::test]
async fn the_turn_tells_who_failed() {
    let failing = play(vec![error(503, "later")]).await;
    let second = play(vec![Answer::events([PIECE, END, "data: [DONE]\n\n"])]).await;
    let provider = chain([&failing, &second, &failing]);
    let mut turn = provider.client().stream(hello()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(item) = turn.next().await {
        seen.push(match item.unwrap() {
            TurnItem::Event(twopass_core::chat::Event::Diagnostic(note)) => note.message,
            TurnItem::Event(twopass_core::chat::Event::TextDelta(text)) => text,
            TurnItem::Event(_) => continue,
            TurnItem::Done(reply) => reply.diagnostics[0].message.clone(),
        });
    }
    let note = "`second` answers: provider `first`: HTTP 503: later";
    assert_eq!(seen, [note, "Par", note]);
}

// What the caller said stays; what the first entry's configuration said does not.
#[tokio::test]
async fn a_fallback_plans_by_its_own_configuration() {
    let failing = play(vec![error(503, "later")]).await;
    let second = play(vec![whole()]).await;
    let provider = chain([&failing, &second, &failing]);
    let options = CallOptions {
        max_tokens: Some(7),
        ..CallOptions::default()
    };
    let mut planned = provider.request(hello(), options).unwrap();
    planned.messages.push(Message::text(Role::User, "Again."));
    planned.sampling.seed = Some(5);
    provider.generate(planned).await.unwrap();
    let sent = |server: &Server| {
        let body = server.requests()[0].json();
        let fields = ["model", "temperature", "max_tokens", "seed"];
        let mut sent: Vec<Value> = fields.iter().map(|field| body[*field].clone()).collect();
        sent.push(body["messages"].as_array().map_or(0, Vec::len).into());
        Value::from(sent)
    };
    assert_eq!(sent(&failing), json!(["first", 0.5, 7, 5, 2]));
    assert_eq!(sent(&second), json!(["second", 0.6, 7, 5, 2]));
}

// Entries may name each other.
#[tokio::test]
async fn fallbacks_have_none_of_their_own() {
    let server = play(vec![error(503, "later"), error(503, "later"), whole()]).await;
    let url = server.url();
    let yaml = format!(
        "providers:\n  - {{name: a, model_name: m, fallbacks: [b], api_config: {{base_url: {url}, max_retries: 0}}}}\n  - {{name: b, model_name: m, fallbacks: [a], api_config: {{base_url: {url}, max_retries: 0}}}}\n"
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    let providers = Provider::from_entries(&config, &["a", "b"]).unwrap();
    let planned = providers[0]
        .request(hello(), CallOptions::default())
        .unwrap();
    let error = providers[0].generate(planned).await.unwrap_err();
    // `b` does not ask `a` again.
    assert_eq!(
        (error.kind(), server.requests().len()),
        (ErrorKind::Overloaded, 2)
    );
}
