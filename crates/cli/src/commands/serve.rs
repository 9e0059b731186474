use std::error::Error as _;
use std::io;
use std::process::ExitCode;

use serde_json::json;
use twopass_provider::config::BackendKind;
use twopass_provider::{ErrorKind, Provider, ProviderConfig};
use twopass_server::{ServerOptions, serve};

use crate::args::{ServeArgs, Shared};
use crate::failure::{Failure, say};
use crate::{output, setup};

/// Serves every configured provider (or the one that is named) until a stop signal.
pub(crate) async fn run(shared: &Shared, args: ServeArgs) -> Result<ExitCode, Failure> {
    let only = args.provider.is_some();
    let config = setup::config(shared, args.provider, args.model)?;
    let entries: Vec<_> = config
        .providers
        .iter()
        .filter(|entry| !only || entry.name == config.default_provider)
        .collect();
    let options = ServerOptions {
        host: args.host.unwrap_or_else(|| config.server.host.clone()),
        port: args.port.unwrap_or(config.server.port),
        keys_file: config.server.keys_file.clone(),
        default_provider: Some(config.default_provider.clone()),
        ..ServerOptions::default()
    };
    setup::pull_missing(&config, &entries).await?;
    let serves_here = |entry: &&ProviderConfig| entry.backend == BackendKind::Embedded;
    if entries.iter().any(serves_here)
        && let Err(failure) = setup::pull_embedder(&config).await
        && let Some(message) = failure.message()
    {
        // Turns need no vectors.
        say(&format!("without embeddings: {message}"));
    }
    let providers = entries
        .iter()
        .map(|entry| Provider::from_entry(&config, Some(&entry.name)))
        .collect::<Result<Vec<_>, _>>()?;
    let as_json = shared.json;
    let ready = |address: std::net::SocketAddr| {
        let line = if as_json {
            json!({"address": format!("http://{address}")}).to_string()
        } else {
            format!("listening on http://{address}")
        };
        // A server whose start nobody watches serves all the same.
        if output::line(&line).is_err() {
            say(&line);
        }
    };
    serve(options, providers, ready).await.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn failure(error: twopass_server::Error) -> Failure {
    let kind = match error.kind() {
        twopass_server::ErrorKind::Config => ErrorKind::Config,
        twopass_server::ErrorKind::Provider => ErrorKind::Model,
        _ => ErrorKind::Io,
    };
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let is_taken = cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::AddrInUse);
    let failure = Failure::of(kind, error.to_string());
    if is_taken {
        return failure
            .with_param("--port")
            .with_hint("`--port 0` takes a free port");
    }
    failure
}
