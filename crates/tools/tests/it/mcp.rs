//! Tool servers that others wrote: the reference server "everything" of the Model Context
//! Protocol, over both of its ways (its `index.js` is named by `TWOPASS_TEST_MCP_EVERYTHING`),
//! and servers that misbehave (`testdata/mcp_server.sh`). Our own side as a server.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use twopass_tools::mcp::{McpServer, McpTarget, Registered, serve};
use twopass_tools::{
    Decision, ErrorKind, Policy, Sandbox, ToolContext, ToolOutput, ToolRegistry, Workspace,
};

use crate::escapes::runs;

fn everything() -> Option<String> {
    let path = std::env::var("TWOPASS_TEST_MCP_EVERYTHING").ok();
    if path.is_none() {
        eprintln!("skipped: TWOPASS_TEST_MCP_EVERYTHING is not set");
    }
    path
}

struct Connected {
    server: McpServer,
    registry: Arc<ToolRegistry>,
}

impl Connected {
    async fn new(target: &str) -> Self {
        let target = McpTarget::from_text(target).unwrap();
        let server = McpServer::connect("every", &target).await.unwrap();
        let registry = Arc::new(ToolRegistry::new());
        assert!(server.register(&registry).await.unwrap().n_tools >= 5);
        Self { server, registry }
    }

    async fn run(&self, name: &str, arguments: Value) -> ToolOutput {
        let context = ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap());
        crate::run(&self.registry, &context, name, &arguments.to_string()).await
    }

    /// What every way must do.
    async fn check(self) {
        // What a server says of its effects is not believed.
        assert_eq!(self.registry.decide("mcp__every__echo"), Decision::Ask);
        let refused = self.run("mcp__every__echo", json!({"message": "hi"})).await;
        assert_eq!(refused.error, Some(ErrorKind::Refused));
        self.registry.set_default_policy(Policy::Auto);
        let echo = self
            .run("mcp__every__echo", json!({"message": "grüß dich"}))
            .await;
        assert_eq!((echo.text.as_str(), echo.error), ("Echo: grüß dich", None));
        let sum = self
            .run("mcp__every__get-sum", json!({"a": 2, "b": "40"}))
            .await;
        assert!(sum.text.contains("42"), "{}", sum.text);
        let image = self.run("mcp__every__get-tiny-image", json!({})).await;
        assert!(
            image.text.contains("[image image/png is not shown]"),
            "{}",
            image.text
        );
        let bad = self.run("mcp__every__get-sum", json!({"a": 2})).await;
        assert_eq!(bad.error, Some(ErrorKind::InvalidArguments), "{}", bad.text);
        // Calls run beside each other.
        let calls = (0..8).map(|n| self.run("mcp__every__echo", json!({"message": n.to_string()})));
        for (n, output) in futures_util::future::join_all(calls)
            .await
            .iter()
            .enumerate()
        {
            assert_eq!(output.text, format!("Echo: {n}"));
        }
        let registry = Arc::clone(&self.registry);
        self.server.close().await;
        // A server that has gone is a failed result.
        let context = ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap());
        let late = crate::run(
            &registry,
            &context,
            "mcp__every__echo",
            r#"{"message": "x"}"#,
        )
        .await;
        assert_eq!(late.error, Some(ErrorKind::Unavailable), "{}", late.text);
    }
}

// Row I2: tools that come at run time.
#[tokio::test]
async fn i2_the_reference_server_over_stdio() {
    let Some(path) = everything() else { return };
    Connected::new(&format!("node {path} stdio"))
        .await
        .check()
        .await;
}

#[tokio::test]
async fn i2_the_reference_server_over_http() {
    let Some(path) = everything() else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = tokio::process::Command::new("node")
        .args([path.as_str(), "streamableHttp"])
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .is_err()
    {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the server does not start"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Connected::new(&format!("http://127.0.0.1:{port}/mcp"))
        .await
        .check()
        .await;
    server.kill().await.unwrap();
}

#[tokio::test]
async fn servers_that_are_none_are_errors() {
    for target in [
        "/no/such/program",
        "true",
        "cat /dev/null",
        "http://127.0.0.1:9/mcp",
    ] {
        let target = McpTarget::from_text(target).unwrap();
        let error = McpServer::connect("none", &target).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            error
                .to_string()
                .starts_with("the tool server `none` cannot be used: ")
        );
        // Types of the program tell a person nothing.
        assert!(!error.to_string().contains("::"), "{error}");
    }
    assert_eq!(McpTarget::from_text("  "), None);
}

/// A server that misbehaves in this way, and the registry that its tools are in.
struct Hostile {
    server: McpServer,
    registry: ToolRegistry,
    registered: Registered,
}

impl Hostile {
    async fn new(args: &[&str]) -> Self {
        let server = McpServer::connect("s", &hostile(args)).await.unwrap();
        let registry = ToolRegistry::new();
        registry.set_default_policy(Policy::Auto);
        let registered = server.register(&registry).await.unwrap();
        Self {
            server,
            registry,
            registered,
        }
    }

    async fn run(&self, name: &str) -> ToolOutput {
        let context = ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap());
        crate::run(&self.registry, &context, name, "{}").await
    }
}

fn hostile(args: &[&str]) -> McpTarget {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/mcp_server.sh");
    bash(&[&[script], args].concat())
}

fn bash(args: &[&str]) -> McpTarget {
    McpTarget::Command {
        program: "bash".into(),
        args: args.iter().map(Into::into).collect(),
        pass_env: Vec::new(),
    }
}

#[tokio::test]
async fn i2_a_tool_that_cannot_be_used_is_left_out_alone() {
    let hostile = Hostile::new(&["unusable"]).await;
    let names: Vec<String> = hostile
        .registry
        .specs()
        .into_iter()
        .map(|spec| spec.name)
        .collect();
    assert_eq!(names.len(), hostile.registered.n_tools);
    assert_eq!(names[..2], ["mcp__s__good", "mcp__s__a_b"]);
    let remote = ["good", "a.b", "a/b"].map(str::to_owned);
    let long = ["1", "2"].map(|end| "n".repeat(80) + end);
    let remote: Vec<String> = remote.into_iter().chain(long).collect();
    for (name, remote) in names.iter().zip(&remote) {
        assert_eq!(hostile.run(name).await.text, *remote, "{name}");
    }
    assert_eq!(names.len(), remote.len(), "{names:?}");
    let left_out = hostile.registered.left_out;
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert_eq!(
        left_out[0],
        "the tool `good` of `s` is left out: the server lists another one of this name"
    );
    assert!(
        left_out[1].starts_with("the tool `bad` of `s` is left out: tool `mcp__s__bad`: "),
        "{left_out:?}"
    );
}

#[tokio::test]
async fn i2_a_list_without_end_is_cut() {
    let registered = Hostile::new(&["endless"]).await.registered;
    assert_eq!(registered.n_tools, 256);
    assert_eq!(registered.left_out.len(), 1, "{:?}", registered.left_out);
    assert!(registered.left_out[0].starts_with("`s` lists more than 256 tools"));
}

#[tokio::test]
async fn i2_a_list_that_does_not_come_is_said_in_words() {
    let server = McpServer::connect("s", &hostile(&["silent"]))
        .await
        .unwrap();
    tokio::time::pause();
    let error = server.register(&ToolRegistry::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tool server `s` cannot be used: its list of tools has not come within 30 s"
    );
}

#[tokio::test]
async fn i2_an_answer_that_is_too_long_ends_its_call_at_once() {
    for mode in ["large-first", "large-last"] {
        let hostile = Hostile::new(&[mode]).await;
        // The second shows that the connection goes on.
        for _ in 0..2 {
            let started = std::time::Instant::now();
            let output = hostile.run("mcp__s__call").await;
            assert_eq!(output.error, Some(ErrorKind::TooLarge), "{}", output.text);
            assert!(
                output.text.contains("bytes, at most 8388608"),
                "{}",
                output.text
            );
            assert!(started.elapsed() < Duration::from_secs(20), "it waited");
        }
    }
}

/// What a server inherits and leaves.
#[tokio::test(flavor = "multi_thread")]
async fn i2_a_server_gets_no_open_files_and_leaves_no_processes() {
    use std::os::fd::AsRawFd;

    let file = std::fs::File::open("/dev/null").unwrap();
    let inherited = rustix::io::dup(&file).unwrap();
    let number = inherited.as_raw_fd().to_string();
    let hostile = Hostile::new(&["inherited", &number]).await;
    assert_eq!(hostile.run("mcp__s__call").await.text, "closed");

    let children = Hostile::new(&["children"]).await;
    assert!(runs("sleep 4712.1"));
    children.server.close().await;
    assert!(!runs("sleep 4712.1"), "a child lives on");

    // Neither reads what it is told: one says nothing, one has closed its output.
    let mute = bash(&["-c", "sleep 4712.2; true"]);
    let waiting = McpServer::connect("s", &mute);
    let waited = tokio::time::timeout(Duration::from_millis(500), waiting).await;
    assert!(waited.is_err() && !runs("sleep 4712.2"), "it lives on");
    let closed = bash(&["-c", "exec >&-; sleep 4712.3; true"]);
    assert!(McpServer::connect("s", &closed).await.is_err());
    assert!(!runs("sleep 4712.3"), "it lives on");
}

/// Our own side: a call that the client cancels is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn i2_a_cancelled_call_is_stopped() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

    let folder = tempfile::tempdir().unwrap();
    let registry = ToolRegistry::new();
    twopass_tools::builtin::register(&registry, Sandbox::default()).unwrap();
    registry.set_default_policy(Policy::Auto);
    let context = ToolContext::new(Workspace::open(folder.path()).unwrap());
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    let served = tokio::spawn(serve(Arc::new(registry), context, input, output));
    let (from, mut to) = tokio::io::split(ours);
    let mut lines = tokio::io::BufReader::new(from).lines();
    let mut say = async |message: Value| {
        to.write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    };
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    });
    say(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).await;
    assert!(lines.next_line().await.unwrap().is_some());
    say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let call = |id: u32, command: &str| {
        let params = json!({"name": "execute_bash", "arguments": {"command": command}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    say(call(2, "touch begun; sleep 4712.4; touch done")).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !folder.path().join("begun").exists() {
        assert!(std::time::Instant::now() < deadline, "it does not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let cancel = json!({"requestId": 2, "reason": "enough"});
    say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})).await;
    while runs("sleep 4712.4") {
        assert!(std::time::Instant::now() < deadline, "it runs on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The next answer is the next call's.
    say(call(3, "ls")).await;
    let answer = lines.next_line().await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["id"], 3);
    assert_eq!(answer["result"]["content"][0]["text"], "begun\n");
    drop((lines, to));
    served.await.unwrap().unwrap();
}
