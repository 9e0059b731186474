//! Vectors through a real local server. Rows J1, J10, L12; case rule 23.

use serde_json::{Value, json};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{Embeddings, ErrorKind, Provider, ProviderError};
use twopass_replay::{Answer, Server};

use crate::play;

fn vectors(model: &str, vectors: &[&[f32]]) -> Answer {
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| json!({"index": index, "embedding": vector}))
        .collect();
    Answer::json(200, &json!({"model": model, "data": data}))
}

fn refusal(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"error": {"message": message}}))
}

/// Asks an entry of this backend; `section` is the `embeddings` section.
async fn embed(
    server: &Server,
    backend: &str,
    section: &str,
    texts: &[&str],
) -> Result<Embeddings, ProviderError> {
    let yaml = format!(
        "providers:\n  - name: n\n    provider_backend: {backend}\n    model_name: m\n    api_config: {{base_url: {}, api_key: sk-vectors, max_retries: 0}}\n{section}",
        server.url()
    );
    let config = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap();
    let provider = Provider::from_entry(&config, None).unwrap();
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    provider.embed(&texts).await
}

#[tokio::test]
async fn j1_what_is_asked_and_what_comes_back() {
    for backend in ["openai", "openai_responses", "ollama"] {
        let server = play(vec![vectors("e-1", &[&[0.5, -1.0], &[2.0, 3.0]])]).await;
        let section = "embeddings: {model: e, dimensions: 2}\n";
        let got = embed(&server, backend, section, &["a", "b"]).await.unwrap();
        assert_eq!(got.vectors, [[0.5, -1.0], [2.0, 3.0]]);
        assert_eq!((got.model.as_str(), got.fallback_used), ("e-1", false));
        let request = server.requests().remove(0);
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/embeddings")
        );
        assert_eq!(request.header("authorization"), Some("Bearer sk-vectors"));
        assert_eq!(
            request.json(),
            json!({"model": "e", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2})
        );
    }
}

#[tokio::test]
async fn j10_the_fallback_is_of_equal_size_or_an_error() {
    let missing = refusal(404, "no such model");
    let section = "embeddings: {model: e, dimensions: 2, max_batch: 1, fallback: f}\n";
    // The second batch fails: the fallback makes all vectors.
    let answers = vec![
        vectors("e", &[&[1.0, 1.0]]),
        missing.clone(),
        vectors("f", &[&[2.0, 2.0]]),
        vectors("f", &[&[3.0, 3.0]]),
    ];
    let server = play(answers).await;
    let got = embed(&server, "openai", section, &["a", "b"])
        .await
        .unwrap();
    assert_eq!(got.vectors, [[2.0, 2.0], [3.0, 3.0]]);
    assert_eq!((got.model.as_str(), got.fallback_used), ("f", true));

    let rows = [
        (vectors("f", &[&[1.0]]), ErrorKind::DimensionMismatch),
        (refusal(500, "down"), ErrorKind::NotFound),
    ];
    // Row L12: no error repeats the key.
    let echo = Answer::json(200, &json!({"error": {"message": "bad key sk-vectors"}}));
    for answer in [echo, refusal(401, "bad key sk-vectors")] {
        let server = play(vec![answer]).await;
        let error = embed(&server, "openai", "embeddings: {model: e}\n", &["a"])
            .await
            .unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("sk-vectors"),
            "{error}"
        );
    }
    for (second, kind) in rows {
        let server = play(vec![missing.clone(), second]).await;
        let error = embed(&server, "openai", section, &["a"]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }

    // OpenAI's service without its key is no fallback: the first error stays.
    let section = "embeddings: {model: e, dimensions: 2, fallback: {provider: openai, model: f}}\n";
    let server = play(vec![missing]).await;
    let error = embed(&server, "openai", section, &["a"]).await.unwrap_err();
    assert_eq!(
        (error.kind(), server.requests().len()),
        (ErrorKind::NotFound, 1)
    );
}

#[tokio::test]
async fn sizes_never_mix_and_a_fixed_size_is_not_asked_for() {
    let answers = vec![vectors("e", &[&[1.0]]), vectors("e", &[&[1.0, 2.0]])];
    let server = play(answers).await;
    let section = "embeddings: {model: e, max_batch: 1}\n";
    let error = embed(&server, "openai", section, &["a", "b"])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DimensionMismatch, "{error}");

    let refused = "Model does not support matryoshka representation, changing output \
                   dimensions will lead to poor results.";
    let server = play(vec![refusal(400, refused), vectors("e", &[&[1.0, 2.0]])]).await;
    let section = "embeddings: {model: e, dimensions: 2}\n";
    let got = embed(&server, "openai", section, &["a"]).await.unwrap();
    assert_eq!(got.vectors, [[1.0, 2.0]]);
    assert_eq!(server.requests()[1].json().get("dimensions"), None);
}

/// The folder of the test models, which holds the table of `wordllama-256`.
#[cfg(feature = "embedded")]
fn here(section: &str) -> Provider {
    let model = std::env::var("TWOPASS_TEST_MODEL").expect("`cargo xtask test` sets it");
    let folder = std::path::Path::new(&model).parent().unwrap().to_owned();
    let yaml = format!("providers:\n  - {{name: n, provider_backend: embedded}}\n{section}");
    let environment = Environment::of_pairs([("TWOPASS_MODELS_DIR", folder.to_str().unwrap())]);
    let config = Config::parse(&yaml, "t.yaml", environment).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

/// Expected numbers: the model's own Python package, version 0.4.0.post1.
#[cfg(feature = "embedded")]
#[tokio::test]
async fn j1_vectors_of_this_process() {
    let texts = [
        "The capital of France is Paris.",
        "Paris is the main city of France",
        "a recipe for pancakes",
        " ",
        "naïve 日本語 🦀",
    ]
    .map(str::to_owned);
    let got = here("").embed(&texts).await.unwrap();
    assert_eq!(
        (got.model.as_str(), got.prompt_tokens),
        ("wordllama-256", 34)
    );
    let heads: Vec<Vec<f32>> = got.vectors.iter().map(|v| v[..3].to_vec()).collect();
    let expect = [
        [0.07239, -0.06916, -0.03098],
        [0.04755, -0.07733, -0.02881],
        [0.03434, 0.13612, 0.01707],
        [-0.09048, -0.00687, 0.01959],
        [-0.09554, 0.12518, 0.04719],
    ];
    for (head, expect) in heads.iter().flatten().zip(expect.iter().flatten()) {
        assert!((head - expect).abs() < 1e-4, "{heads:?}");
    }
    let alike = |a: usize, b: usize| -> f32 {
        let pairs = got.vectors[a].iter().zip(&got.vectors[b]);
        pairs.map(|(a, b)| a * b).sum()
    };
    assert!((alike(0, 1) - 0.9051).abs() < 1e-3 && alike(0, 2) < 0.1);

    let small = here("embeddings: {dimensions: 64}\n");
    let vector = small.embed(&texts[..1]).await.unwrap().vectors.remove(0);
    assert!(
        vector.len() == 64 && (vector[0] - 0.12412).abs() < 1e-4,
        "{vector:?}"
    );
    let wrong = here("embeddings: {dimensions: 100}\n");
    let error = wrong.embed(&texts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DimensionMismatch);
    let other = here("embeddings: {model: e}\n");
    let error = other.embed(&texts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error
            .to_string()
            .contains("`e` makes no vectors in this process"),
        "{error}"
    );
    let error = here("").embed(&[String::new()]).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.param()),
        (ErrorKind::BadRequest, Some("input"))
    );
}

/// A service that fails is followed by the model of this process, if that is configured.
#[cfg(feature = "embedded")]
#[tokio::test]
async fn j10_a_model_of_this_process_is_a_fallback() {
    let missing = "embeddings: {dimensions: 64, fallback: {model: wordllama-256}, model: e}\n";
    let got = here(missing).embed(&["a".to_owned()]).await.unwrap();
    assert!(got.fallback_used && got.vectors[0].len() == 64);
}

#[tokio::test]
async fn who_makes_no_vectors_says_so() {
    let server = play(vec![vectors("e", &[&[1.0]])]).await;
    let section = "embeddings: {model: e}\n";
    let error = embed(&server, "anthropic", section, &["a"])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("makes no embeddings"), "{error}");
    assert!(server.requests().is_empty());
    assert!(!format!("{error} {error:?}").contains("sk-vectors"));
}

#[test]
fn j10_wrong_sections_are_named() {
    let rows = [
        (
            "embeddings: {model: e, fallback: f}\n",
            "needs `embeddings.dimensions`",
        ),
        (
            "embeddings: {dimensions: 2, fallback: {provider: n}}\n",
            "`embeddings.fallback.model`: is missing",
        ),
        (
            "embeddings: {dimensions: 2, fallback: {provider: x, model: f}}\n",
            "`embeddings.fallback.provider`: unknown provider `x`",
        ),
        (
            "embeddings: {max_batch: 0}\n",
            "`embeddings.max_batch`: must be a whole number from 1 to 2048",
        ),
        ("embeddings: {dimensions: 0}\n", "`embeddings.dimensions`"),
        ("embeddings: {fallback: [f]}\n", "`embeddings.fallback`"),
    ];
    for (section, expect) in rows {
        let yaml = format!("providers:\n  - {{name: n, provider_backend: embedded}}\n{section}");
        let error = Config::parse(&yaml, "t.yaml", Environment::of_pairs([])).unwrap_err();
        assert!(error.to_string().contains(expect), "{section}: {error}");
    }
}
