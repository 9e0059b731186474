//! Sessions over real files and a chat over a real provider that nobody asks.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use twopass_agent::{AgentOptions, Conversation, Kind, Parts};
use twopass_core::chat::Role;
use twopass_provider::Provider;
use twopass_provider::config::{Config, Environment};
use twopass_tools::working_memory::Strategy;
use twopass_tools::{ToolContext, ToolRegistry, Workspace};
use twopass_tui::{Chat, ChatParts, Command, Effect, Happening, Session};

/// What a session begins with.
const HEAD: &str = "{\"event\":\"session\",\"version\":1}\n";

fn chat(path: &Path) -> Chat {
    let entry = json!({"providers": [{
        "name": "it", "provider_backend": "openai", "model_name": "m",
        "api_config": {"base_url": "http://127.0.0.1:9"},
    }]});
    let config = Config::parse(&entry.to_string(), "the test", Environment::of_pairs([])).unwrap();
    let parts = Parts {
        provider: Provider::from_entry(&config, None).unwrap(),
        tools: Arc::new(ToolRegistry::new()),
        context: ToolContext::new(Workspace::open(".").unwrap()),
        options: AgentOptions::default(),
    };
    Chat::new(ChatParts {
        conversation: Conversation::new(Kind::React(Strategy::Overwrite), parts).unwrap(),
        session: Session::new(path.to_path_buf(), "m", "react"),
        memory: None,
        switch: Box::new(|name| Box::pin(async move { Err(format!("no {name}")) })),
        max_thinking_tokens: None,
    })
}

fn lines(list: &[Value]) -> String {
    list.iter().map(|line| format!("{line}\n")).collect()
}

fn message(message: Value) -> Value {
    json!({"event": "message", "reasoning": null, "messages": [message]})
}

#[tokio::test]
async fn a_session_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let call = json!({"id": "c1", "name": "look", "arguments": {"n": 1}});
    let kept = lines(&[
        json!({"event": "session", "version": 1, "model": "m", "kind": "react"}),
        message(json!({"role": "user", "content": "forgotten"})),
        json!({"event": "reset"}),
        json!({"event": "memory", "text": "## Kept"}),
        message(json!({"role": "user", "content": "one"})),
        json!({"event": "message", "reasoning": "why", "messages": [
            {"role": "assistant", "content": "two"},
        ]}),
        message(json!({"role": "user", "content": "three"})),
        message(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
    ]);
    // The last line was cut when the power went.
    fs::write(&path, format!("{kept}{{\"event\": \"mess")).unwrap();
    let mut chat = chat(&path);
    let messages = chat.resume().unwrap();
    let texts: Vec<String> = messages.iter().map(|m| m.content_text()).collect();
    assert_eq!(
        texts,
        ["one", "two", "three"],
        "a call without a result is left out"
    );
    assert_eq!(messages[1].reasoning.as_deref(), Some("why"));
    assert_eq!(messages[2].role, Role::User);
    let told = chat.perform(Effect::Run(Command::Memory)).await;
    assert!(matches!(&told[..], [Happening::Told { text, .. }] if text.contains("## Kept")));

    // What is forgotten is forgotten after the next start, too.
    chat.perform(Effect::Run(Command::Clear)).await;
    let open = self::chat(&path).resume().unwrap_err().to_string();
    assert!(open.contains("another chat has it open"), "{open}");
    drop(chat);
    let mut again = self::chat(&path);
    assert!(again.resume().unwrap().is_empty());
    assert_eq!(
        Session::newest(folder.path()).as_deref(),
        Some(path.as_path())
    );
}

#[tokio::test]
async fn a_file_that_is_no_session_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        ("", None),
        ("hello\n", Some("a.jsonl:1: this is no session")),
        (
            "{\"event\":\"session\",\"version\":2}\n",
            Some("only version 1"),
        ),
        ("hello", Some("a.jsonl:1: this is no session")),
        (
            "{\"event\":\"other\"}\n",
            Some("a.jsonl:1: this is no session"),
        ),
        (
            &format!("{HEAD}{{\"event\":\"other\"}}\n"),
            Some("no event `other`"),
        ),
        (
            &format!("{HEAD}{{\"event\":\"message\",\"messages\":[{{\"role\":\"x\"}}]}}\n"),
            Some("a.jsonl:2: "),
        ),
    ];
    let path = folder.path().join("a.jsonl");
    for (text, fault) in table {
        fs::write(&path, text).unwrap();
        let read = chat(&path).resume();
        match fault {
            None => assert!(read.unwrap().is_empty()),
            Some(fault) => {
                let message = read.unwrap_err().to_string();
                assert!(message.contains(fault), "{message}");
            }
        }
    }
    let missing = chat(&folder.path().join("none.jsonl")).resume();
    assert!(missing.unwrap_err().to_string().contains("cannot be read"));
}

// Half a round cannot go on: one of two calls has no result.
#[tokio::test]
async fn half_a_round_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let call = |id: &str| json!({"id": id, "name": "look", "arguments": {}});
    let lines = lines(&[
        message(json!({"role": "user", "content": "one"})),
        message(json!({"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]})),
        message(json!({"role": "tool", "tool_call_id": "a", "content": "seen"})),
    ]);
    fs::write(&path, format!("{HEAD}{lines}")).unwrap();
    assert_eq!(chat(&path).resume().unwrap().len(), 1);
}

// The file holds what tools gave: nobody else may read it, and pipes are no files.
#[cfg(unix)]
#[tokio::test]
async fn sessions_are_files_of_their_owner() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions/a.jsonl");
    let mut first = chat(&path);
    first.perform(Effect::Send("hello".to_owned())).await;
    while first.is_working() {
        first.next().await;
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let fault = chat(&pipe).resume().unwrap_err().to_string();
    assert!(fault.contains("this is no file"), "{fault}");
    let told = first.perform(Effect::Run(Command::Trace(Some(pipe)))).await;
    assert!(matches!(&told[..], [Happening::Told { is_bad: true, .. }]));
}

#[tokio::test]
async fn another_model_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = chat(&folder.path().join("a.jsonl"));
    let other = || Effect::Run(Command::Model(Some("x".to_owned())));
    assert!(chat.perform(other()).await.is_empty() && chat.is_working());
    let told = chat.next().await;
    assert!(matches!(&told[..], [Happening::ModelChanged(Err(why))] if why == "no x"));
    chat.perform(other()).await;
    let told = chat.perform(Effect::Cancel).await;
    assert!(matches!(&told[..], [Happening::ModelChanged(Err(why))] if why.contains("it/m")));
    assert!(!chat.is_working());
}

#[tokio::test]
async fn commands_that_need_the_world_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = chat(&folder.path().join("a.jsonl"));
    let trace = folder.path().join("t.jsonl");
    let table = [
        (Command::Trace(None), "no trace is written"),
        (Command::Trace(Some(trace.clone())), "runs are written to"),
        (Command::Trace(None), "the trace has ended"),
        (Command::Save(None), "it is kept in"),
        (Command::Save(Some(trace)), "exists"),
    ];
    for (command, expected) in table {
        let shown = format!("{command:?}");
        let told = chat.perform(Effect::Run(command)).await;
        let [Happening::Told { text, .. }] = &told[..] else {
            panic!("{shown}: {told:?}");
        };
        assert!(text.contains(expected), "{shown}: {text}");
    }
}
