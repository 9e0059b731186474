use std::process::ExitCode;

use serde_json::{Value, json};
use twopass_provider::catalogue::Catalogue;
use twopass_provider::config::notices;
use twopass_provider::{Config, Provider, ProviderError};
use twopass_server::ServerOptions;

use crate::args::{ConfigAction, ConfigArgs, Shared};
use crate::failure::{ERROR, Failure, NEGATIVE, say};
use crate::{output, setup};

/// Checks or shows the configuration. Exit code 1: a provider cannot be used.
pub(crate) fn run(shared: &Shared, args: ConfigArgs) -> Result<ExitCode, Failure> {
    let action = args.action.unwrap_or(ConfigAction::Check);
    let config = match setup::config(shared, None, None) {
        Err(failure) if shared.json && matches!(action, ConfigAction::Check) => {
            return unreadable(shared, failure);
        }
        config => config?,
    };
    match action {
        ConfigAction::Check => check(shared.json, &config),
        ConfigAction::Show => {
            show(shared.json, &config)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A configuration that cannot be read is one fault.
fn unreadable(shared: &Shared, failure: Failure) -> Result<ExitCode, Failure> {
    let Some(fault) = failure.message() else {
        return Err(failure);
    };
    let file = shared
        .config
        .as_ref()
        .map(|path| path.display().to_string());
    let body = json!({"file": file, "ok": false, "faults": [fault], "notices": []});
    output::line(&body.to_string())?;
    Ok(ExitCode::from(ERROR))
}

fn show(as_json: bool, config: &Config) -> Result<(), Failure> {
    let settings = config.settings();
    if as_json {
        let rows: Vec<_> = settings
            .iter()
            .map(|setting| json!({"key": setting.key, "value": setting.value, "origin": setting.origin}))
            .collect();
        return output::line(&Value::from(rows).to_string());
    }
    let rows: Vec<_> = settings
        .into_iter()
        .map(|s| vec![s.key, s.value, s.origin])
        .collect();
    output::line(&output::table(&rows))
}

fn check(as_json: bool, config: &Config) -> Result<ExitCode, Failure> {
    let file = config.file.as_ref().map(|path| path.display().to_string());
    let catalogue = Catalogue::new(config);
    let faults = config.providers.iter().flat_map(|entry| {
        let fault = Provider::from_entry(config, Some(&entry.name)).err();
        let is_told = |other: &ProviderError| {
            fault.as_ref().is_some_and(|fault| {
                let (told, other) = (fault.to_string(), other.message());
                told.contains(other) || other.contains(fault.message())
            })
        };
        let mut faults = catalogue.absent(entry);
        faults.retain(|other| !is_told(other));
        fault.into_iter().chain(faults)
    });
    let faults = faults.map(|error| error.to_string());
    let server = ServerOptions::from(&config.server).check().err();
    let server = server.map(|error| format!("server: {error}"));
    let faults: Vec<_> = faults.chain(server).collect();
    let notices = notices(config);
    if as_json {
        let body =
            json!({"file": file, "ok": faults.is_empty(), "faults": faults, "notices": notices});
        output::line(&body.to_string())?;
    } else {
        let shown = file
            .as_deref()
            .unwrap_or("no configuration file, built-in defaults");
        for notice in &notices {
            say(&format!("notice: {notice}"));
        }
        for fault in &faults {
            say(&format!("fault: {fault}"));
        }
        let n_entries = config.providers.len();
        if faults.is_empty() {
            output::line(&format!(
                "{shown}: ok, {n_entries} provider{}",
                if n_entries == 1 { "" } else { "s" }
            ))?;
        } else {
            output::line(&format!(
                "{shown}: {} fault{}, {n_entries} providers",
                faults.len(),
                if faults.len() == 1 { "" } else { "s" }
            ))?;
        }
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NEGATIVE)
    })
}
