use std::path::{Path, PathBuf};
use std::process::ExitCode;

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use twopass_core::calendar::civil_date;
use twopass_provider::config::{KeyEntry, KeyLimits, KeyScope};
use twopass_server::{NewKey, add_key, read_keys};

use super::serve::failure;
use crate::args::{KeyScopeArg, KeysAction, KeysArgs, NewKeyArgs, Shared};
use crate::failure::{Failure, say};
use crate::{output, setup};

/// Lists the keys of the server, or makes one.
pub(crate) fn run(shared: &Shared, args: KeysArgs) -> Result<ExitCode, Failure> {
    let file = keys_file(shared, args.keys_file)?;
    match args.action.unwrap_or(KeysAction::List) {
        KeysAction::List => list(shared.json, &file)?,
        KeysAction::New(new) => make(shared.json, &file, new)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn keys_file(shared: &Shared, named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(file) = named {
        return Ok(file);
    }
    let configured = setup::config(shared, None, None)?.server.keys_file;
    configured.ok_or_else(|| {
        Failure::new("no keys file is configured: `server.keys_file` names none")
            .with_param("--keys-file")
            .with_hint("`--keys-file FILE` names one")
    })
}

fn make(as_json: bool, file: &Path, new: NewKeyArgs) -> Result<(), Failure> {
    let made = NewKey::make().map_err(failure)?;
    let entry = KeyEntry::new(&new.name, made.digest);
    let entry = entry.map_err(|allowed| {
        Failure::new(format!("the name of a key {allowed}")).with_param("--name")
    })?;
    let entry = KeyEntry {
        scopes: new.scopes.into_iter().map(scope).collect(),
        models: new.models,
        limits: KeyLimits {
            requests_per_minute: new.requests_per_minute,
            tokens_per_minute: new.tokens_per_minute,
            tokens_per_day: new.tokens_per_day,
        },
        expires_day: new.expires,
        ..entry
    };
    add_key(file, &entry).map_err(failure)?;
    let key = made.key.expose_secret();
    if as_json {
        let mut line = entry_json(&entry);
        line["key"] = key.into();
        return output::line(&line.to_string());
    }
    output::line(key)?;
    say(&format!(
        "the key `{}` is shown this once; {} has its hash. A running server takes it at SIGHUP",
        entry.name,
        file.display()
    ));
    Ok(())
}

fn scope(scope: KeyScopeArg) -> KeyScope {
    match scope {
        KeyScopeArg::Chat => KeyScope::Chat,
        KeyScopeArg::Embeddings => KeyScope::Embeddings,
        KeyScopeArg::Metrics => KeyScope::Metrics,
    }
}

fn list(as_json: bool, file: &Path) -> Result<(), Failure> {
    let entries = read_keys(file).map_err(failure)?;
    if as_json {
        let entries: Vec<Value> = entries.iter().map(entry_json).collect();
        return output::line(&Value::from(entries).to_string());
    }
    let title = [
        "name",
        "scopes",
        "requests/min",
        "tokens/min",
        "tokens/day",
        "expires",
        "models",
    ];
    let title = title.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(title)
        .chain(entries.iter().map(row))
        .collect();
    output::line(&output::table(&rows))
}

fn row(entry: &KeyEntry) -> Vec<String> {
    let limits = &entry.limits;
    let limit = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| limit.to_string());
    let models = entry.models.as_ref();
    vec![
        entry.name.clone(),
        scopes(entry).join(","),
        limit(limits.requests_per_minute.map(u64::from)),
        limit(limits.tokens_per_minute),
        limit(limits.tokens_per_day),
        expires(entry).unwrap_or_else(|| "-".to_owned()),
        models.map_or_else(|| "*".to_owned(), |models| models.join(",")),
    ]
}

/// The entry without its hash.
fn entry_json(entry: &KeyEntry) -> Value {
    let limits = &entry.limits;
    json!({
        "name": entry.name,
        "scopes": scopes(entry),
        "models": entry.models,
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "tokens_per_day": limits.tokens_per_day,
        "expires": expires(entry),
    })
}

fn scopes(entry: &KeyEntry) -> Vec<&'static str> {
    entry.scopes.iter().map(|scope| scope.as_str()).collect()
}

fn expires(entry: &KeyEntry) -> Option<String> {
    let (year, month, day) = civil_date(entry.expires_day?);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}
