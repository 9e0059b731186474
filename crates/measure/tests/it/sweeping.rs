//! Sweeps over a Chat Completions service, which keeps a budget in a second request.

use serde_json::{Value, json};
use twopass_measure::dataset::Dataset;
use twopass_measure::sweep::{Outcome, Plan, Record, Settings, Sweep};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{ErrorKind, Provider, ProviderError};
use twopass_replay::{Answer, Pace, Server};

fn provider(url: &str) -> Provider {
    let config = json!({"providers": [{
        "name": "service", "provider_backend": "openai", "preset": "custom", "model_name": "m",
        "api_config": {"base_url": format!("{url}/v1"), "max_retries": 0},
    }]});
    let config = Config::parse(&config.to_string(), "the test", Environment::of_pairs([])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

fn dataset() -> Dataset {
    let text = "{\"id\": \"a\", \"prompt\": \"2+2?\", \"answer\": 4}\n\
                {\"id\": \"b\", \"prompt\": \"3+3?\", \"answer\": 6}\n";
    Dataset::read(text, "d.jsonl").unwrap()
}

fn plan(budgets: &[u32]) -> Plan {
    Plan {
        settings: Settings {
            dataset_sha256: dataset().sha256,
            provider: "service".to_owned(),
            model: "m".to_owned(),
            seed: 40,
            temperature: Some(0.5),
            max_response_tokens: Some(16),
            concurrency: 1,
        },
        budgets: budgets.to_vec(),
        repeats: 1,
    }
}

struct Ran {
    records: Vec<Record>,
    failures: Vec<ErrorKind>,
    end: Result<(), ProviderError>,
    bodies: Vec<Value>,
}

async fn run(answers: Vec<Answer>, plan: &Plan, done: &[Record]) -> Ran {
    let server = Server::start(answers, Pace::Whole).await.unwrap();
    let provider = provider(&server.url());
    let dataset = dataset();
    let sweep = Sweep {
        provider: &provider,
        dataset: &dataset,
        plan,
    };
    sweep.check().unwrap();
    let (mut records, mut failures) = (Vec::new(), Vec::new());
    let ran = sweep.run(done, |outcome| {
        match outcome {
            Outcome::Answered(record) => records.push(record),
            Outcome::Failed(error) => failures.push(error.kind()),
        }
        Ok(())
    });
    let end = ran.await;
    let requests = server.requests();
    let bodies = requests
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap());
    Ran {
        records,
        failures,
        end,
        bodies: bodies.collect(),
    }
}

fn says(content: &str) -> Answer {
    Answer::chat_turn(&json!({ "content": content }))
}

#[tokio::test]
async fn budgets_take_turns_and_share_the_seed() {
    let thought =
        || Answer::chat_turn(&json!({"content": "<think>so many", "finish_reason": "length"}));
    // Question a: budgets 0, 8; question b: 8, 0.
    let answers = vec![
        says("5"),
        thought(),
        says("It is 4."),
        thought(),
        says("6"),
        says("6"),
    ];
    let ran = run(answers, &plan(&[0, 8]), &[]).await;
    ran.end.unwrap();
    let seen: Vec<_> = ran
        .records
        .iter()
        .map(|record| {
            (
                record.item.as_str(),
                record.budget,
                record.correct,
                record.response.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a", 0, false, "5"),
            ("a", 8, true, "It is 4."),
            ("b", 8, true, "6"),
            ("b", 0, true, "6")
        ]
    );
    assert_eq!(
        ran.bodies.len(),
        6,
        "a second request where there is a budget"
    );
    assert!(
        ran.bodies.iter().all(|body| body["seed"] == 40),
        "{:?}",
        ran.bodies
    );
    assert_eq!(ran.bodies[1]["max_tokens"], 8);
    assert_eq!(ran.bodies[2]["max_tokens"], 16);
    assert!(
        ran.records
            .iter()
            .all(|record| record.first_text_ms <= Some(record.latency_ms))
    );
}

#[tokio::test]
async fn what_is_done_is_not_asked_again() {
    let ran = run(vec![says("4")], &plan(&[0]), &[]).await;
    assert_eq!(ran.bodies.len(), 2);
    let known = &ran.records[..1];
    let again = run(vec![says("6")], &plan(&[0]), known).await;
    assert_eq!(again.bodies.len(), 1);
    assert_eq!(again.records[0].item, "b");
    let never = run(vec![says("6")], &plan(&[0]), &ran.records).await;
    assert!(never.bodies.is_empty() && never.end.is_ok());
}

#[tokio::test]
async fn a_failed_turn_is_told_apart_from_a_wrong_answer() {
    let failing =
        |kind: &str| Answer::chat_turn(&json!({"error": {"kind": kind, "message": "no"}}));
    let ran = run(vec![failing("overloaded"), says("6")], &plan(&[0]), &[]).await;
    assert_eq!(ran.failures, [ErrorKind::Overloaded]);
    assert_eq!(ran.records.len(), 1);
    ran.end.unwrap();
    // What every turn would meet ends the run.
    let ran = run(vec![failing("auth")], &plan(&[0]), &[]).await;
    assert_eq!(ran.end.unwrap_err().kind(), ErrorKind::Auth);
    assert_eq!(ran.bodies.len(), 1);
    let mut many = plan(&[0]);
    many.repeats = 20;
    let ran = run(vec![failing("overloaded")], &many, &[]).await;
    assert_eq!(ran.failures.len(), 9, "the tenth in a row ends it");
    assert_eq!(ran.end.unwrap_err().kind(), ErrorKind::Overloaded);
}
