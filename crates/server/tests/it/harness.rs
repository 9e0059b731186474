//! Servers for tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use twopass_provider::Provider;
use twopass_provider::backend::{Embedded, VllmNative};
use twopass_provider::config::{
    ApiConfig, BackendKind, Config, EngineConfig, Environment, OnError, ProviderConfig,
    ToolParserName,
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
        on_error: OnError::Raise,
        tool_parser: ToolParserName("hermes".to_owned()),
        api: ApiConfig::default(),
        ..ProviderConfig::with_defaults(name, backend, model_name)
    }
}

/// A provider over the `/generate` server at this address.
pub(crate) fn native_provider(name: &str, addr: SocketAddr) -> Provider {
    let mut config = entry(name, BackendKind::VllmNative, "far-model");
    config.api.base_url = Some(format!("http://{addr}").parse().unwrap());
    let backend = VllmNative::new(&config).unwrap();
    Provider::new(config, Arc::new(backend))
}

/// A provider of this entry of a configuration file, over the chat service at this address.
pub(crate) fn configured(address: &str, entry: Value) -> Provider {
    configured_with(address, entry, json!({}))
}

/// The same with further sections of the file.
pub(crate) fn configured_with(address: &str, mut entry: Value, mut config: Value) -> Provider {
    entry["api_config"] = json!({"base_url": address, "max_retries": 0});
    config["providers"] = json!([entry]);
    let config = Config::parse(&config.to_string(), "the test", Environment::of_pairs([])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

/// A model of this path in the real engine. With `recites` it says what the last message
/// puts between `[[say]]` and `[[/say]]` instead of its own words.
pub(crate) fn embedded_provider(model: &Path, engine: EngineConfig, recites: bool) -> Provider {
    let mut config = entry("local", BackendKind::Embedded, &model.display().to_string());
    config.engine = engine;
    let mut backend = Embedded::new(&config, model.to_owned()).unwrap();
    if recites {
        backend = backend.reciting(|request| {
            let content = request.messages.last()?.content_text();
            let (_, rest) = content.split_once("[[say]]")?;
            Some(rest.split_once("[[/say]]")?.0.to_owned())
        });
    }
    Provider::new(config, Arc::new(backend))
}

/// SmolLM2-135M-Instruct: a real chat model whose think tags are several tokens.
pub(crate) fn smollm2() -> PathBuf {
    model_path("TWOPASS_TEST_MODEL")
}

/// A random Qwen3 with the real tokenizer: think and call tags are single tokens, and it
/// never ends its turn by itself.
pub(crate) fn qwen3() -> PathBuf {
    model_path("TWOPASS_TEST_QWEN3")
}

fn model_path(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`, which sets it"))
        .into()
}

/// A file in the build's own temporary folder.
pub(crate) fn temp_file(name: &str, text: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}
