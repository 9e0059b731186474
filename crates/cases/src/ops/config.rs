//! Configuration: one entry resolved, or a whole file loaded.

use std::time::Instant;

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{Provider, ProviderError};

use crate::Verdict;
use crate::expect::{any_of, in_time};
use crate::matchers::check;

/// Reads the case's `config`, opens every entry, and compares addresses and headers.
pub(super) fn run(case: &Value) -> Verdict {
    let started = Instant::now();
    let mut actual = match resolve(&case["input"]) {
        Ok(actual) => actual,
        Err(error) => json!({
            "error_kind": error.kind().as_str(), "message": error.to_string(), "headers": {},
        }),
    };
    actual["elapsed_ms"] = json!(started.elapsed().as_secs_f64() * 1000.0);
    match meets(&case["expect"], &actual) {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(format!("{why} in {actual}")),
    }
}

fn meets(expect: &Value, actual: &Value) -> Result<(), String> {
    let mut keys = expect.as_object().into_iter().flatten();
    keys.try_for_each(|(key, wanted)| {
        one(key, wanted, actual).map_err(|why| format!("{key}: {why}"))
    })
}

fn resolve(input: &Value) -> Result<Value, ProviderError> {
    let env = input["env"].as_object().into_iter().flatten();
    let env: Vec<(&str, &str)> = env
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .collect();
    // JSON is YAML.
    let text = input["config"].to_string();
    let config = Config::parse(&text, "the case", Environment::of_pairs(env))?;
    for entry in &config.providers {
        Provider::from_entry(&config, Some(&entry.name))?;
    }
    let entry = config.provider(None)?;
    let headers: serde_json::Map<String, Value> = entry
        .request_headers()
        .into_iter()
        .map(|(name, value)| (name, value.expose_secret().into()))
        .collect();
    let url = |url: Option<url::Url>| url.map(String::from);
    Ok(json!({
        "chat_url": url(entry.turn_url()),
        "embeddings_url": url(entry.embeddings_url()),
        "models_url": url(entry.models_url()),
        "headers": headers,
    }))
}

fn one(key: &str, wanted: &Value, actual: &Value) -> Result<(), String> {
    let texts = || {
        wanted
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    };
    let fails = |found: Option<&str>| match found {
        None => Ok(()),
        Some(text) => Err(format!("`{text}` fails")),
    };
    match key {
        "one_of" => any_of(wanted, |one| meets(one, actual)),
        "panics" => Ok(()),
        "max_ms" | "min_elapsed_ms" => in_time(
            key,
            wanted,
            actual["elapsed_ms"].as_f64().unwrap_or_default(),
        ),
        "headers_absent" => fails(texts().find(|name| actual["headers"].get(name).is_some())),
        "headers_not_contain" => {
            let headers = actual["headers"].to_string();
            fails(texts().find(|text| headers.contains(text)))
        }
        "message_contains" => {
            let message = actual["message"].as_str().unwrap_or_default();
            fails(texts().find(|text| !message.contains(text)))
        }
        key => check(wanted, actual.get(key), actual),
    }
}
