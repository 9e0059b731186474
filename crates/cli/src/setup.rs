//! Configuration and providers as the flags ask for them.

use std::path::PathBuf;

use twopass_provider::catalogue::Catalogue;
use twopass_provider::config::{BackendKind, Environment, LoadOptions};
use twopass_provider::{Config, ProviderConfig};

use crate::args::Shared;
use crate::failure::{Failure, say};
use crate::models;

/// Reads the configuration; relative model files of `--model` stay relative to the working
/// folder.
pub(crate) fn config(
    shared: &Shared,
    provider: Option<String>,
    model: Option<String>,
) -> Result<Config, Failure> {
    Ok(Config::load_with(LoadOptions {
        path: shared.config.clone(),
        provider,
        model,
        environment: Environment::of_process(),
        ..LoadOptions::default()
    })?)
}

/// Pulls the models that these entries need and that are not here, after saying so.
pub(crate) async fn pull_missing(
    config: &Config,
    entries: &[&ProviderConfig],
) -> Result<(), Failure> {
    let catalogue = Catalogue::new(config);
    for name in catalogue.missing(entries.iter().copied())? {
        pull(&catalogue, &name).await?;
    }
    Ok(())
}

/// Checks that the models that these entries need are here.
pub(crate) fn require_models(config: &Config, entries: &[&ProviderConfig]) -> Result<(), Failure> {
    let missing = Catalogue::new(config).missing(entries.iter().copied())?;
    match missing.first() {
        Some(name) => Err(Failure::new(format!(
            "the model `{name}` is not here yet; `twopass models pull {name}` fetches it"
        ))),
        None => Ok(()),
    }
}

/// Pulls the model that makes vectors, if it runs in this process and is not here.
pub(crate) async fn pull_embedder(config: &Config) -> Result<(), Failure> {
    let catalogue = Catalogue::new(config);
    match catalogue.missing_embedder(config) {
        Some(name) => pull(&catalogue, name).await,
        None => Ok(()),
    }
}

async fn pull(catalogue: &Catalogue, name: &str) -> Result<(), Failure> {
    say(&format!(
        "the model `{name}` is not here yet, fetching it to {}",
        catalogue.folder().display()
    ));
    models::pull(catalogue, name).await?;
    Ok(())
}

/// The file of an embedded entry's model, if it is one and the file is here.
pub(crate) fn model_file(config: &Config, entry: &ProviderConfig) -> Result<PathBuf, Failure> {
    if entry.backend != BackendKind::Embedded {
        return Err(Failure::new(format!(
            "provider `{}`: the prompt of `{}` is rendered by its server",
            entry.name, entry.backend
        ))
        .with_param("--provider"));
    }
    Ok(Catalogue::new(config).model_path(entry)?)
}
