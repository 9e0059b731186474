//! Servers for tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;
use twopass_provider::Provider;
use twopass_provider::backend::VllmNative;
use twopass_provider::config::{
    ApiConfig, BackendKind, ContentMode, Decisions, EngineConfig, GenerationConfig, OnError,
    ParsingFormat, ProviderConfig, ReasoningReplay, ToolParserName,
};
use twopass_server::{Server, ServerOptions, Shutdown};

/// A running server on a free loopback port.
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<()>,
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        port: 0,
        ..ServerOptions::default()
    }
}

impl Running {
    pub(crate) async fn start(options: ServerOptions, providers: Vec<Provider>) -> Self {
        let server = Server::bind(options, providers).await.unwrap();
        let shutdown = Shutdown::new();
        Self {
            addr: server.local_addr(),
            shutdown: shutdown.clone(),
            task: tokio::spawn(async move { server.run(&shutdown).await }),
        }
    }
}

/// A configured entry with nothing but its name, backend and model.
pub(crate) fn entry(name: &str, backend: BackendKind, model_name: &str) -> ProviderConfig {
    ProviderConfig {
        name: name.to_owned(),
        backend,
        model_name: model_name.to_owned(),
        parsing_format: ParsingFormat::ThinkTags,
        tool_parser: ToolParserName("hermes".to_owned()),
        reasoning_replay: ReasoningReplay::None,
        on_error: OnError::Raise,
        content_mode: ContentMode::Raw,
        api: ApiConfig::default(),
        generation: GenerationConfig::default(),
        engine: EngineConfig::default(),
        decisions: Decisions::default(),
    }
}

/// A provider over the `/generate` server at this address.
pub(crate) fn native_provider(name: &str, addr: SocketAddr) -> Provider {
    let mut config = entry(name, BackendKind::VllmNative, "far-model");
    config.api.base_url = Some(format!("http://{addr}").parse().unwrap());
    let backend = VllmNative::new(&config).unwrap();
    Provider::new(config, Arc::new(backend))
}

/// A file in the build's own temporary folder.
pub(crate) fn temp_file(name: &str, text: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}
