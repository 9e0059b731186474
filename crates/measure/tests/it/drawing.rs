//! Reports of made-up turns, as text, JSON and picture.

use twopass_measure::chart::{Style, text};
use twopass_measure::report::{Report, Row};
use twopass_measure::svg::svg;
use twopass_measure::sweep::{Plan, Record, Settings};

const N_ITEMS: u32 = 40;

fn plan(budgets: &[u32]) -> Plan {
    Plan {
        settings: Settings {
            dataset_sha256: String::new(),
            provider: "local".to_owned(),
            model: "/models/small <&> model.gguf".to_owned(),
            seed: 7,
            temperature: None,
            max_response_tokens: Some(32),
            concurrency: 2,
        },
        budgets: budgets.to_vec(),
        repeats: 1,
    }
}

/// So many right answers, the first ones of the same order of questions.
fn turns(budget: u32, n_correct: u32) -> impl Iterator<Item = Record> {
    (0..N_ITEMS).map(move |item| {
        let thinking_tokens = u64::from(budget.min(90 + item));
        Record {
            item: item.to_string(),
            budget,
            repeat: 0,
            correct: item < n_correct,
            thinking_tokens,
            response_tokens: u64::from(4 + item % 3),
            latency_ms: 80.0 + 15.0 * thinking_tokens as f64 + f64::from(item),
            first_text_ms: (item != 3).then_some(40.0),
            thought_cut: budget > 0 && thinking_tokens == u64::from(budget),
            answer_cut: budget == 0 && item < 10,
            means: Some("one_sequence".to_owned()),
            response: String::new(),
        }
    })
}

fn report() -> Report {
    let plan = plan(&[0, 32, 64, 128, 256]);
    let records: Vec<Record> = [(0, 10), (32, 15), (64, 21), (128, 22), (256, 21)]
        .into_iter()
        .flat_map(|(budget, n_correct)| turns(budget, n_correct))
        .collect();
    Report::new(&plan, &records, ("logic & sums.jsonl", N_ITEMS as usize)).unwrap()
}

#[test]
fn text_fits_80_columns() {
    let plain = text(
        &report(),
        Style {
            width: 80,
            colour: false,
        },
    );
    for line in plain.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
    insta::assert_snapshot!(plain);
    // Colours change nothing but colours.
    let coloured = text(
        &report(),
        Style {
            width: 80,
            colour: true,
        },
    );
    let mut bare = coloured.clone();
    for code in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[0m"] {
        bare = bare.replace(code, "");
    }
    assert!(bare == plain && coloured != plain);
}

#[test]
fn the_smallest_budget_is_one_that_the_best_does_not_clearly_beat() {
    let report = report();
    let budget_of = |row: Option<&Row>| row.map(|row| row.budget);
    let found = (budget_of(report.best()), budget_of(report.smallest()));
    assert_eq!(found, (Some(128), Some(64)));
    // Seven questions that only the best solves are more than a standard error.
    let budgets = plan(&[0, 8]);
    for (n_correct, smallest) in [(22, 0), (21, 0), (15, 8)] {
        let records: Vec<_> = turns(0, n_correct).chain(turns(8, 22)).collect();
        let report = Report::new(&budgets, &records, ("d", 40)).unwrap();
        assert_eq!(budget_of(report.smallest()), Some(smallest), "{n_correct}");
    }
    // Where nothing was right nothing is chosen.
    let records: Vec<_> = turns(0, 0).chain(turns(8, 0)).collect();
    let none = Report::new(&budgets, &records, ("d", 40)).unwrap();
    assert!(none.best().is_none() && none.smallest().is_none());
    assert_eq!(none.to_json()["best"], serde_json::Value::Null);
    let style = Style {
        width: 80,
        colour: false,
    };
    let shown = text(&none, style);
    assert!(
        shown.contains("no answer was right at any budget"),
        "{shown}"
    );
    assert!(!shown.contains("within one standard error"), "{shown}");
    assert!(svg(&none).contains("No answer was right at any budget"));
    assert!(Report::new(&budgets, &[], ("d", 40)).is_none());
    // Of a run that stopped at once.
    let one: Vec<_> = turns(8, 1).take(1).collect();
    let report = Report::new(&budgets, &one, ("d", 40)).unwrap();
    assert_eq!(report.rows.len(), 1);
    assert!(!svg(&report).contains("NaN"));
    assert!(
        !text(
            &report,
            Style {
                width: 80,
                colour: false
            }
        )
        .contains("NaN")
    );
}

#[test]
fn json_has_every_number() {
    let json = report().to_json();
    assert_eq!(json["best"], 128);
    assert_eq!(json["smallest_within_one_error"], 64);
    let row = &json["budgets"][2];
    assert_eq!(row["accuracy"]["value"], 0.525);
    assert_eq!(row["thoughts_cut"], 1.0);
    assert_eq!(row["questions"], 40);
    assert!(row["latency_ms"]["low"].as_f64() < row["latency_ms"]["high"].as_f64());
}

#[test]
fn the_picture_is_whole() {
    let picture = svg(&report());
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
    assert!(picture.contains("logic &amp; sums.jsonl") && !picture.contains("logic & sums"));
    assert!(picture.contains("small &lt;&amp;&gt; model.gguf"));
    for tag in ["text", "title"] {
        let opened = picture.matches(&format!("<{tag} ")).count()
            + picture.matches(&format!("<{tag}>")).count();
        assert_eq!(
            opened,
            picture.matches(&format!("</{tag}>")).count(),
            "{tag}"
        );
    }
    insta::assert_snapshot!(picture);
}
