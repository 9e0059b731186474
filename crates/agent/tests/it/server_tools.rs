//! Tools that the server carries out, over a real provider and a real local server.
//! Rows I3, L7.

use std::sync::Arc;

use serde_json::{Value, json};
use twopass_agent::with_server_tools;
use twopass_core::chat::{Event, Message, Role, StopReason, ToolChoice, ToolSpec};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{CallOptions, Provider, TurnItem};
use twopass_replay::{Answer, Pace, Server};
use twopass_tools::memory::{Memory, NewMemory};
use twopass_tools::{Policy, ToolContext, ToolRegistry, Workspace};

struct Set {
    server: Server,
    provider: Provider,
    memory: Memory,
}

/// A provider of these turns that has the tools of a memory.
async fn set(turns: &[Value]) -> Set {
    let mut answers: Vec<Answer> = turns.iter().map(Answer::chat_turn).collect();
    answers.push(Answer::chat_turn(&json!({"content": "ok"})));
    let server = Server::start(answers, Pace::Whole).await.unwrap();
    let config = json!({"providers": [{
        "name": "it", "provider_backend": "openai", "model_name": "m",
        "api_config": {"base_url": server.url(), "max_retries": 0},
    }]});
    let config = Config::parse(&config.to_string(), "the test", Environment::of_pairs([])).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let memory = Memory::in_process(None).unwrap();
    let tools = ToolRegistry::new();
    memory.register(&tools).unwrap();
    tools.set_default_policy(Policy::Auto);
    let context = ToolContext::new(Workspace::open(".").unwrap());
    Set {
        provider: with_server_tools(provider, &Arc::new(tools), &context),
        server,
        memory,
    }
}

fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

fn turn(calls: &[Value]) -> Value {
    json!({"content": "Let me see.", "thinking": "hm", "tool_calls": calls, "finish_reason": "tool_calls"})
}

fn weather() -> ToolSpec {
    ToolSpec {
        name: "weather".to_owned(),
        description: "Tells the weather.".to_owned(),
        parameters: json!({"type": "object", "properties": {}}),
    }
}

async fn events(set: &Set, options: CallOptions) -> Vec<TurnItem> {
    let messages = vec![Message::text(Role::User, "What did I say?")];
    let request = set.provider.request(messages, options).unwrap();
    let mut stream = set.provider.stream(request).await.unwrap();
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.unwrap());
    }
    items
}

fn names_sent(request: &Value) -> Vec<&str> {
    let tools = request["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let names = tools
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap());
    names.collect()
}

// The client sent no tools: calls run on the server, and what it sees is one turn.
#[tokio::test]
async fn l7_memory_works_for_clients_without_tools() {
    let recall = call("c1", "recall_memory", json!({"query": "colour"}));
    let bad = call("c2", "recall_memory", json!({"nothing": 1}));
    let answer = json!({"thinking": "so", "content": "You like green."});
    let set = set(&[turn(&[bad]), turn(&[recall]), answer]).await;
    let memory = NewMemory {
        content: "The user's colour is green.".to_owned(),
        importance: 0.5,
        tags: Vec::new(),
    };
    set.memory.store(memory).await.unwrap();
    let items = events(&set, CallOptions::default()).await;
    let Some(TurnItem::Done(reply)) = items.last() else {
        panic!("{items:?}");
    };
    assert_eq!(
        reply.content,
        "Let me see.\n\nLet me see.\n\nYou like green."
    );
    assert_eq!(reply.reasoning, "hm\nhm\nso");
    assert_eq!(reply.stop_reason, StopReason::EndTurn);
    assert!(reply.tool_calls.is_empty() && reply.invalid_tool_calls.is_empty());
    let is_call = |item: &TurnItem| {
        matches!(
            item,
            TurnItem::Event(
                Event::CallStarted { .. }
                    | Event::ArgumentsDelta { .. }
                    | Event::CallFinished { .. }
                    | Event::CallRejected { .. }
            )
        )
    };
    assert!(!items.iter().any(is_call), "{items:?}");
    let requests: Vec<Value> = set.server.requests().iter().map(|one| one.json()).collect();
    assert_eq!(names_sent(&requests[0]), ["recall_memory", "store_memory"]);
    let last = requests[2]["messages"].as_array().unwrap();
    assert!(
        last.last().unwrap()["content"]
            .as_str()
            .unwrap()
            .contains("green")
    );
    assert_eq!(requests.len(), 3);
}

// A client's own calls come back to it, renumbered; the server's own run beside them.
#[tokio::test]
async fn l7_a_clients_calls_are_its_own() {
    let store = call("c1", "store_memory", json!({"content": "It rains."}));
    let theirs = call("c2", "weather", json!({}));
    let set = set(&[turn(&[store, theirs])]).await;
    let options = CallOptions {
        tools: vec![weather()],
        ..CallOptions::default()
    };
    let items = events(&set, options).await;
    let Some(TurnItem::Done(reply)) = items.last() else {
        panic!("{items:?}");
    };
    let names: Vec<&str> = reply
        .tool_calls
        .iter()
        .map(|call| call.name.as_str())
        .collect();
    assert_eq!(
        (names, reply.stop_reason.clone()),
        (vec!["weather"], StopReason::ToolCalls)
    );
    let finished = items.iter().find_map(|item| match item {
        TurnItem::Event(Event::CallFinished { call_idx, .. }) => Some(*call_idx),
        _ => None,
    });
    assert_eq!(finished, Some(0));
    assert_eq!(set.memory.count().await.unwrap(), 1);
    assert_eq!(set.server.requests().len(), 1);
}

// What a client demands of calls stays as it is, and the model cannot go on for ever.
#[tokio::test]
async fn l7_demands_and_limits_are_kept() {
    let set_of = |n: usize| {
        let recall = call("c1", "recall_memory", json!({"query": "x"}));
        vec![turn(&[recall]); n]
    };
    let set = set(&set_of(20)).await;
    for (tool_choice, names) in [
        (ToolChoice::None, vec![]),
        (ToolChoice::Required, vec!["weather"]),
    ] {
        let options = CallOptions {
            tools: vec![weather()],
            tool_choice,
            ..CallOptions::default()
        };
        let messages = vec![Message::text(Role::User, "x")];
        let request = set.provider.request(messages, options).unwrap();
        let _ = set.provider.generate(request).await;
        let requests = set.server.requests();
        let sent = requests.last().unwrap().json();
        let own = |name: &&str| name.ends_with("_memory");
        let sent = names_sent(&sent);
        assert!(!sent.iter().any(own), "{names:?}: {sent:?}");
    }
    let before = set.server.requests().len();
    let items = events(&set, CallOptions::default()).await;
    assert_eq!(set.server.requests().len() - before, 6);
    let Some(TurnItem::Done(reply)) = items.last() else {
        panic!("{items:?}");
    };
    assert_eq!(reply.stop_reason, StopReason::EndTurn);
    assert!(
        reply
            .diagnostics
            .iter()
            .any(|note| note.message.contains("own tools"))
    );
}
