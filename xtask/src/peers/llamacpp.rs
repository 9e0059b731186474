//! llama.cpp's own server, as the Python package xllamacpp carries it: no compiler needed.

use std::path::Path;

use serde_json::json;

use super::{Peer, provider};
use crate::fixtures;
use crate::python::{self, Dependencies, python};
use crate::server::{Server, free_port};
use crate::workspace::Workspace;

const VERSION: &str = "2026.10.11549";
const TITLE: &str = "llama.cpp server, SmolLM2-135M-Instruct Q4_1, 1 thread";
const MODEL: &str = "smollm2-135m";

/// How the server is started.
pub(crate) struct LlamaServer {
    pub(crate) threads: u32,
    pub(crate) streams: usize,
    pub(crate) tokens_per_stream: u32,
    /// It makes either turns or vectors.
    pub(crate) embeddings: bool,
}

impl LlamaServer {
    /// Installs the server if need be and starts it on this model.
    pub(crate) fn start(
        &self,
        workspace: &Workspace,
        model: &Path,
        log: &Path,
    ) -> anyhow::Result<Server> {
        let site = python::installed(workspace, "xllamacpp", VERSION, Dependencies::Without)?;
        let script = workspace.root.join("xtask/python/serve_llamacpp.py");
        let mut command = python();
        command.arg(script).arg(model);
        command.args([free_port()?.to_string(), self.threads.to_string()]);
        command.args([self.streams.to_string(), self.tokens_per_stream.to_string()]);
        command.arg(if self.embeddings {
            "embeddings"
        } else {
            "turns"
        });
        command.env("PYTHONPATH", site);
        Server::start(command, log)
    }
}

fn started(workspace: &Workspace, folder: &Path, embeddings: bool) -> anyhow::Result<Server> {
    let server = LlamaServer {
        threads: 1,
        streams: 2,
        tokens_per_stream: 2048,
        embeddings,
    };
    let model = fixtures::smollm2(workspace)?;
    server.start(workspace, &model, &folder.join("llama-server.log"))
}

/// Turns by every means that this server supports.
pub(super) fn turns(workspace: &Workspace, folder: &Path) -> anyhow::Result<Peer> {
    let server = started(workspace, folder, false)?;
    let entry = |means: &str, backend: &str, keys| json!({"means": means, "provider": provider(&server.address, backend, MODEL, keys)});
    let entries = vec![
        json!({
            "means": "completions_exact", "reuses_prefix": true,
            "provider": provider(&server.address, "completions", MODEL, json!({})),
        }),
        entry("chat_prefill", "openai", json!({"preset": "llamacpp"})),
        entry("append_message", "openai", json!({"preset": "custom"})),
    ];
    Ok(Peer {
        server,
        title: TITLE.to_owned(),
        entries,
        embeddings: None,
    })
}

/// Vectors: a server of its own.
pub(super) fn embeddings(workspace: &Workspace, folder: &Path) -> anyhow::Result<Peer> {
    let server = started(workspace, folder, true)?;
    let entry = provider(
        &server.address,
        "openai",
        MODEL,
        json!({"preset": "llamacpp"}),
    );
    Ok(Peer {
        server,
        title: TITLE.to_owned(),
        entries: vec![json!({"checks": "embeddings", "provider": entry})],
        embeddings: Some(json!({"model": MODEL})),
    })
}
