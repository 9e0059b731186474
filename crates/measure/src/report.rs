//! What the turns of a sweep say.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::stats::{self, Estimate};
use crate::sweep::{Plan, Record};

/// How the numbers come about, for readers of JSON.
const METHOD: &str = "95 % intervals over questions, repeats averaged first. Accuracy: Wilson \
    score, repeats at their effective number. Tokens: mean, Student's t. Latency: median, order \
    statistics. less_than_best: paired by question, Bonett-Price. smallest_within_one_error: the \
    smallest budget whose less_than_best is at most its standard error.";

/// One budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The cap on the thought, in tokens.
    pub budget: u32,
    /// Questions that were answered at least once.
    pub n_items: usize,
    /// The share of right answers.
    pub accuracy: Estimate,
    /// How much smaller it is than the best budget's, over the same questions.
    pub less_than_best: Estimate,
    /// Tokens of the thought, the mean.
    pub thinking_tokens: Estimate,
    /// Tokens of the answer, the mean.
    pub response_tokens: Estimate,
    /// From request to end, the median.
    pub latency_ms: Estimate,
    /// From request to the answer's first text, the median of those that have some.
    pub first_text_ms: Estimate,
    /// The share of thoughts that the budget ended.
    pub thoughts_cut: f64,
    /// The share of answers that their cap ended.
    pub answers_cut: f64,
    /// By what means the budget was kept, each that occurred.
    pub means: Vec<String>,
}

/// All budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What was asked.
    pub plan: Plan,
    /// The dataset's name.
    pub dataset: String,
    /// Its questions.
    pub n_items: usize,
    /// Turns that failed; they are in no number.
    pub n_failed: usize,
    /// In the order of the budgets; those without any answer are missing.
    pub rows: Vec<Row>,
    best: usize,
    smallest: usize,
}

/// The means of one question's repeats.
#[derive(Debug, Clone, Copy, Default)]
struct Means {
    n_records: f64,
    correct: f64,
    thinking_tokens: f64,
    response_tokens: f64,
    latency_ms: f64,
    n_texts: f64,
    first_text_ms: f64,
}

impl Report {
    /// Counts the records of the plan's budgets and repeats. `None`: there are none.
    ///
    /// `about` is the dataset's name and its number of questions.
    #[must_use]
    pub fn new(plan: &Plan, records: &[Record], about: (&str, usize)) -> Option<Self> {
        let mut budgets = plan.budgets.clone();
        budgets.sort_unstable();
        let by_budget: Vec<_> = budgets
            .iter()
            .map(|budget| {
                let asked =
                    |record: &&Record| record.budget == *budget && record.repeat < plan.repeats;
                records.iter().filter(asked).collect::<Vec<_>>()
            })
            .filter(|records| !records.is_empty())
            .collect();
        let means: Vec<_> = by_budget.iter().map(|records| by_item(records)).collect();
        let mut rows: Vec<_> = by_budget
            .iter()
            .zip(&means)
            .map(|(records, means)| row(records, means, plan.repeats))
            .collect();
        // The smallest of equals.
        let best = (0..rows.len()).reduce(|best, next| {
            if rows[next].accuracy.value > rows[best].accuracy.value {
                next
            } else {
                best
            }
        })?;
        for (row, own) in rows.iter_mut().zip(&means) {
            let pairs = own.iter().filter_map(|(item, own)| {
                let best = means[best].get(item)?;
                Some((own.correct, best.correct))
            });
            row.less_than_best = stats::paired_loss(&pairs.collect::<Vec<_>>());
        }
        let smallest = rows.iter().position(|row| {
            row.less_than_best.value <= row.less_than_best.error || row.budget == rows[best].budget
        });
        Some(Self {
            plan: plan.clone(),
            dataset: about.0.to_owned(),
            n_items: about.1,
            n_failed: 0,
            best,
            smallest: smallest.unwrap_or(best),
            rows,
        })
    }

    /// The budget with the most right answers; of equals the smallest. `None` if no answer was
    /// right at any budget: then there is nothing to choose by.
    #[must_use]
    pub fn best(&self) -> Option<&Row> {
        Some(&self.rows[self.best]).filter(|row| row.accuracy.value > 0.0)
    }

    /// The smallest budget that is at most one standard error worse than the best, the standard
    /// error of the paired difference. `None` if there is no best.
    #[must_use]
    pub fn smallest(&self) -> Option<&Row> {
        self.best().map(|_| &self.rows[self.smallest])
    }

    /// Tens of percent around the intervals of all accuracies, for drawings.
    pub(crate) fn range(&self) -> (f64, f64) {
        let ends = self.rows.iter().map(|row| row.accuracy);
        let low = ends.clone().map(|share| share.low).fold(1.0, f64::min);
        let high = ends.map(|share| share.high).fold(0.0, f64::max);
        let low = (low * 10.0).floor().min(9.0) * 10.0;
        (low, ((high * 10.0).ceil() * 10.0).max(low + 10.0))
    }

    /// All of it for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let settings = &self.plan.settings;
        let rows = self.rows.iter().map(|row| {
            json!({
                "budget": row.budget,
                "questions": row.n_items,
                "accuracy": estimate(row.accuracy),
                "less_than_best": estimate(row.less_than_best),
                "thinking_tokens": estimate(row.thinking_tokens),
                "response_tokens": estimate(row.response_tokens),
                "latency_ms": estimate(row.latency_ms),
                "first_text_ms": estimate(row.first_text_ms),
                "thoughts_cut": row.thoughts_cut,
                "answers_cut": row.answers_cut,
                "means": row.means,
            })
        });
        json!({
            "dataset": self.dataset,
            "questions": self.n_items,
            "provider": settings.provider,
            "model": settings.model,
            "repeats": self.plan.repeats,
            "seed": settings.seed,
            "temperature": settings.temperature,
            "max_response_tokens": settings.max_response_tokens,
            "concurrency": settings.concurrency,
            "failed": self.n_failed,
            "budgets": rows.collect::<Vec<_>>(),
            "best": self.best().map(|row| row.budget),
            "smallest_within_one_error": self.smallest().map(|row| row.budget),
            "method": METHOD,
        })
    }
}

fn estimate(estimate: Estimate) -> Value {
    if estimate.value.is_nan() {
        return Value::Null;
    }
    json!({
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "error": estimate.error,
    })
}

fn by_item<'a>(records: &[&'a Record]) -> BTreeMap<&'a str, Means> {
    let mut sums: BTreeMap<&str, Means> = BTreeMap::new();
    for record in records {
        let sum = sums.entry(&record.item).or_default();
        sum.n_records += 1.0;
        sum.correct += f64::from(u8::from(record.correct));
        sum.thinking_tokens += record.thinking_tokens as f64;
        sum.response_tokens += record.response_tokens as f64;
        sum.latency_ms += record.latency_ms;
        if let Some(first_text_ms) = record.first_text_ms {
            sum.n_texts += 1.0;
            sum.first_text_ms += first_text_ms;
        }
    }
    for sum in sums.values_mut() {
        sum.correct /= sum.n_records;
        sum.thinking_tokens /= sum.n_records;
        sum.response_tokens /= sum.n_records;
        sum.latency_ms /= sum.n_records;
        sum.first_text_ms /= sum.n_texts;
    }
    sums
}

fn row(records: &[&Record], means: &BTreeMap<&str, Means>, repeats: u32) -> Row {
    let values = |get: fn(&Means) -> f64| means.values().map(get).collect::<Vec<_>>();
    let share = |is: fn(&Record) -> bool| {
        records.iter().filter(|record| is(record)).count() as f64 / records.len() as f64
    };
    let mut first_texts = values(|means| means.first_text_ms);
    first_texts.retain(|value| !value.is_nan());
    let mut names: Vec<_> = records
        .iter()
        .filter_map(|record| record.means.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    let accuracy = stats::accuracy(&values(|means| means.correct), repeats);
    Row {
        budget: records.first().map_or(0, |record| record.budget),
        n_items: means.len(),
        accuracy,
        less_than_best: accuracy,
        thinking_tokens: stats::mean(&values(|means| means.thinking_tokens)),
        response_tokens: stats::mean(&values(|means| means.response_tokens)),
        latency_ms: stats::median(&values(|means| means.latency_ms)),
        first_text_ms: stats::median(&first_texts),
        thoughts_cut: share(|record| record.thought_cut),
        answers_cut: share(|record| record.answer_cut),
        means: names,
    }
}
