//! Tool servers that others wrote: the reference server "everything" of the Model Context
//! Protocol, over both of its ways. Its `index.js` is named by `TWOPASS_TEST_MCP_EVERYTHING`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use twopass_tools::mcp::{McpServer, McpTarget};
use twopass_tools::{
    Decision, ErrorKind, Policy, ToolContext, ToolOutput, ToolRegistry, Workspace,
};

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
        assert!(server.register(&registry).await.unwrap() >= 5);
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
    }
    assert_eq!(McpTarget::from_text("  "), None);
}
