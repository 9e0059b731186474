//! Vectors through the facade, against a real local server.

use std::time::Instant;

use serde_json::{Value, json};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{Embeddings, Provider, ProviderError};
use twopass_replay::{Answer, Pace, Server};

use super::live::runtime;
use super::outcome::check_error;
use crate::Verdict;
use crate::expect::{any_of, in_time};
use crate::matchers::{check, shorten};

/// Asks for the vectors of the case's `inputs`, with whole packets and byte by byte.
pub(super) fn run(case: &Value) -> Verdict {
    for pace in [Pace::Whole, Pace::OneByte] {
        let result = runtime().and_then(|runtime| runtime.block_on(embed(&case["input"], pace)));
        let checked = result.and_then(|embedded| {
            meets(&case["expect"], &embedded).map_err(|why| format!("{pace:?}: {why}"))
        });
        if let Err(why) = checked {
            return Verdict::Failed(why);
        }
    }
    Verdict::Passed
}

struct Embedded {
    vectors: Result<Embeddings, ProviderError>,
    elapsed_ms: f64,
    n_calls: usize,
}

async fn embed(input: &Value, pace: Pace) -> Result<Embedded, String> {
    let mut answers = Vec::new();
    for entry in input["upstream"].as_array().into_iter().flatten() {
        answers.push(Answer::from_json(entry)?);
    }
    if answers.is_empty() {
        // Nothing should be asked; what is asked all the same fails and is counted.
        answers.push(Answer::json(
            500,
            &json!({"error": {"message": "not scripted"}}),
        ));
    }
    let server = Server::start(answers, pace).await;
    let server = server.map_err(|error| error.to_string())?;
    let mut embeddings = json!({"model": "e"});
    for (key, value) in input["config"].as_object().into_iter().flatten() {
        embeddings[key] = value.clone();
    }
    let config = json!({
        "providers": [{
            "name": "case", "provider_backend": "openai", "model_name": "m",
            "api_config": {"base_url": server.url()},
        }],
        "embeddings": embeddings,
    });
    let environment = Environment::of_pairs([]);
    let config = Config::parse(&config.to_string(), "the case", environment);
    let provider = config.and_then(|config| Provider::from_entry(&config, None));
    let provider = provider.map_err(|error| error.to_string())?;
    let texts = input["inputs"].as_array().into_iter().flatten();
    let texts: Vec<String> = texts.filter_map(Value::as_str).map(str::to_owned).collect();
    let started = Instant::now();
    Ok(Embedded {
        vectors: provider.embed(&texts).await,
        elapsed_ms: started.elapsed().as_secs_f64() * 1000.0,
        n_calls: server.requests().len(),
    })
}

fn meets(expect: &Value, embedded: &Embedded) -> Result<(), String> {
    let none = Embeddings::default();
    let got = embedded.vectors.as_ref().unwrap_or(&none);
    // As the shortest decimals that read back the same, so that 0.1 stays 0.1.
    let vectors: Vec<Vec<f64>> = got
        .vectors
        .iter()
        .map(|vector| vector.iter().map(|value| as_written(*value)).collect())
        .collect();
    let actual = json!({
        "vectors": vectors, "model": got.model, "fallback_used": got.fallback_used,
        "upstream_calls": embedded.n_calls,
    });
    for (key, wanted) in expect.as_object().into_iter().flatten() {
        let result = match (key.as_str(), &embedded.vectors) {
            ("one_of", _) => any_of(wanted, |one| meets(one, embedded)),
            ("panics", _) => Ok(()),
            (key @ ("max_ms" | "min_elapsed_ms"), _) => in_time(key, wanted, embedded.elapsed_ms),
            ("upstream_calls", _) => check(wanted, actual.get("upstream_calls"), &actual),
            ("error", Err(error)) => check_error(wanted, error),
            ("error", Ok(_)) => Err("there is none".to_owned()),
            (_, Err(error)) => Err(format!("the call failed: {error}")),
            (key, Ok(_)) => check(wanted, actual.get(key), &actual),
        };
        result.map_err(|why| format!("{key}: {why} in {}", shorten(&actual.to_string())))?;
    }
    Ok(())
}

fn as_written(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::NAN)
}
