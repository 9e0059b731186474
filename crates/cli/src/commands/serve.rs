use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use secrecy::ExposeSecret;
use serde_json::json;
use twopass_agent::with_server_tools;
use twopass_provider::config::{BackendKind, Environment};
use twopass_provider::{Config, ErrorKind, Provider};
use twopass_server::{AccessLog, Fresh, ReadFresh, Reload, ServerOptions, Store, serve};
use twopass_tools::memory::Memory;
use twopass_tools::{Policy, ToolContext, ToolRegistry, Workspace};

use crate::agents;
use crate::args::{ServeArgs, Shared};
use crate::failure::{Failure, say, warn};
use crate::{heap, output, setup};

/// Serves every configured provider (or the one that is named) until a stop signal.
pub(crate) async fn run(shared: &Shared, args: ServeArgs) -> Result<ExitCode, Failure> {
    let config = setup::config(shared, args.provider.clone(), args.model.clone())?;
    let log = config.server.access_log.then(AccessLog::stderr);
    let log = log.transpose().map_err(|error| {
        Failure::of(
            ErrorKind::Io,
            format!("the access log cannot start: {error}"),
        )
    })?;
    let options = ServerOptions {
        keys_file: keys_file(&config, &args),
        host: args
            .host
            .clone()
            .unwrap_or_else(|| config.server.host.clone()),
        port: args.port.unwrap_or(config.server.port),
        default_provider: Some(config.default_provider.clone()),
        access_log: log,
        store: store(&config).await?,
        ..ServerOptions::from(&config.server)
    };
    pull(&config, &args).await?;
    let own_tools = OwnTools::open(&config).await?;
    let providers = Provider::from_entries(&config, &names(&config, &args))?;
    let providers = with_tools(providers, own_tools.as_ref());
    let reload = Reload {
        read: read_again(shared.clone(), args, own_tools.clone(), config),
        say: Box::new(say),
    };
    let as_json = shared.json;
    let served = providers.clone();
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
        served.iter().for_each(warn);
    };
    let served = tokio::select! {
        served = serve(options, providers, reload, ready) => served,
        never = heap::give_back() => match never {},
    };
    if let Some(own) = own_tools {
        own.memory.flush().await?;
    }
    served.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// The tools that the server carries out itself: those of `server.memory` (row L7).
#[derive(Clone)]
struct OwnTools {
    tools: Arc<ToolRegistry>,
    context: ToolContext,
    memory: Memory,
}

impl OwnTools {
    async fn open(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(memory) = agents::memory(config.server.memory, config).await? else {
            return Ok(None);
        };
        let tools = ToolRegistry::new();
        memory.register(&tools)?;
        // Nobody is there to ask.
        tools.set_default_policy(Policy::Auto);
        Ok(Some(Self {
            tools: Arc::new(tools),
            context: ToolContext::new(Workspace::open(config.agent.workspace.clone())?),
            memory,
        }))
    }
}

fn with_tools(providers: Vec<Provider>, own: Option<&OwnTools>) -> Vec<Provider> {
    let Some(OwnTools { tools, context, .. }) = own else {
        return providers;
    };
    let all = providers.into_iter();
    all.map(|provider| with_server_tools(provider, tools, context))
        .collect()
}

/// Opens the place of stored responses: as configured, else a file in the user's data folder,
/// else, where there is none, the memory of this process.
async fn store(config: &Config) -> Result<Store, Failure> {
    let folder = Environment::of_process().data_folder();
    let default = folder.map(|folder| folder.join("responses.db").display().to_string());
    let configured = config.server.store.as_ref();
    let configured = configured.map(|place| place.expose_secret().to_owned());
    let Some(place) = configured.or(default) else {
        return Ok(Store::memory());
    };
    let opened = Store::open(&place).await;
    opened.map_err(|error| Failure::of(ErrorKind::Io, error.to_string()).with_param("server.store"))
}

/// Who is served.
fn names<'a>(config: &'a Config, args: &ServeArgs) -> Vec<&'a str> {
    if args.provider.is_some() {
        return vec![&config.default_provider];
    }
    let entries = config.providers.iter();
    entries.map(|entry| entry.name.as_str()).collect()
}

fn keys_file(config: &Config, args: &ServeArgs) -> Option<PathBuf> {
    let configured = || config.server.keys_file.clone();
    args.keys_file.clone().or_else(configured)
}

/// Pulls the models that are missing, those of fallbacks and of vectors too.
async fn pull(config: &Config, args: &ServeArgs) -> Result<(), Failure> {
    let names = names(config, args);
    let served = config.providers.iter();
    let served = served.filter(|entry| names.contains(&entry.name.as_str()));
    let fallbacks = served.clone().flat_map(|entry| &entry.fallbacks);
    let fallbacks: Vec<_> = fallbacks.collect();
    let needed: Vec<_> = config
        .providers
        .iter()
        .filter(|entry| names.contains(&entry.name.as_str()) || fallbacks.contains(&&entry.name))
        .collect();
    setup::pull_missing(config, &needed).await?;
    if served
        .into_iter()
        .any(|entry| entry.backend == BackendKind::Embedded)
        && let Err(failure) = setup::pull_embedder(config).await
        && let Some(message) = failure.message()
    {
        // Turns need no vectors.
        say(&format!("without embeddings: {message}"));
    }
    Ok(())
}

/// What a running server does not follow, of all that differs: the rest of `server`, as far as
/// no flag decides it.
fn at_next_start(before: &Config, now: &Config, args: &ServeArgs) -> Vec<String> {
    let is_fixed = |key: &String| match key.as_str() {
        "server.keys_file" => false,
        "server.host" => args.host.is_none(),
        "server.port" => args.port.is_none(),
        key => key.starts_with("server."),
    };
    let keys = before.keys_that_differ(now).into_iter();
    keys.filter(is_fixed).collect()
}

/// Reads the configuration as these flags ask for it. Nothing is pulled, and the server's own
/// tools stay those of the start.
fn read_again(
    shared: Shared,
    args: ServeArgs,
    own_tools: Option<OwnTools>,
    started: Config,
) -> Box<ReadFresh> {
    let read = move |running: &[Provider]| {
        let config = setup::config(&shared, args.provider.clone(), args.model.clone())?;
        let providers = Provider::reopen(&config, &names(&config, &args), running)?;
        Ok(Fresh {
            providers: with_tools(providers, own_tools.as_ref()),
            default_provider: Some(config.default_provider.clone()),
            keys_file: keys_file(&config, &args),
            at_next_start: at_next_start(&started, &config, &args),
        })
    };
    Box::new(move |running| {
        read(running).map_err(|failure: Failure| failure.message().unwrap_or_default())
    })
}

pub(super) fn failure(error: twopass_server::Error) -> Failure {
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
