//! Numbers for Prometheus, named after OpenTelemetry's conventions for generative AI.
//!
//! Source of the names and buckets: OpenTelemetry semantic conventions 1.37, "GenAI metrics";
//! Prometheus writes `.` as `_` and appends the unit.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Facts, OK, Used};

/// What [`Metrics::text`] is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const REQUEST_SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const FIRST_TOKEN_SECONDS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const PER_TOKEN_SECONDS: [f64; 12] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0,
];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    route: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Served {
    gen_ai_provider_name: String,
    gen_ai_request_model: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServedOrNot {
    gen_ai_provider_name: String,
    gen_ai_request_model: String,
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Spent {
    gen_ai_provider_name: String,
    gen_ai_request_model: String,
    gen_ai_token_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KeyOutcome {
    key: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KeySpent {
    key: String,
    token_type: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The numbers of one server. Clones count into the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<Outcome, Counter>,
    active: Gauge<i64, AtomicI64>,
    duration: Histograms<ServedOrNot>,
    first_token: Histograms<Served>,
    per_token: Histograms<Served>,
    tokens: Histograms<Spent>,
    traces_lost: Counter,
    key_requests: Family<KeyOutcome, Counter>,
    key_tokens: Family<KeySpent, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut inner = Inner {
            registry: Registry::with_labels(std::iter::empty()),
            requests: Family::default(),
            active: Gauge::default(),
            duration: histograms(|| Histogram::new(REQUEST_SECONDS)),
            first_token: histograms(|| Histogram::new(FIRST_TOKEN_SECONDS)),
            per_token: histograms(|| Histogram::new(PER_TOKEN_SECONDS)),
            tokens: histograms(|| Histogram::new(TOKENS)),
            traces_lost: Counter::default(),
            key_requests: Family::default(),
            key_tokens: Family::default(),
        };
        inner.register();
        Self(Arc::new(inner))
    }

    /// Requests whose traces the collector did not take.
    pub(crate) fn traces_lost(&self) -> Counter {
        self.0.traces_lost.clone()
    }

    /// A request came.
    pub(super) fn opened(&self) {
        self.0.active.inc();
    }

    /// A request ended.
    pub(super) fn closed(&self, facts: &Facts, outcome: &'static str) {
        let numbers = &*self.0;
        numbers.active.dec();
        let route = facts.route.clone();
        let counted = Outcome { route, outcome };
        numbers.requests.get_or_create(&counted).inc();
        let (Some(provider), Some(model)) = (&facts.provider, &facts.model) else {
            return;
        };
        let took = facts.started.elapsed();
        let served = Served {
            gen_ai_provider_name: provider.clone(),
            gen_ai_request_model: model.clone(),
        };
        let duration = ServedOrNot {
            gen_ai_provider_name: provider.clone(),
            gen_ai_request_model: model.clone(),
            error_type: if outcome == OK { "" } else { outcome },
        };
        let duration = numbers.duration.get_or_create(&duration);
        duration.observe(took.as_secs_f64());
        let n_written = facts.usage.thinking_tokens + facts.usage.response_tokens;
        if let Some(first) = facts.first_output {
            let seconds = numbers.first_token.get_or_create(&served);
            seconds.observe(first.as_secs_f64());
            if n_written > 1 {
                let rest = took.saturating_sub(first).as_secs_f64();
                let per_token = numbers.per_token.get_or_create(&served);
                per_token.observe(rest / (n_written - 1) as f64);
            }
        }
        for (gen_ai_token_type, n_tokens) in
            [("input", facts.usage.prompt_tokens), ("output", n_written)]
        {
            if n_tokens > 0 {
                let spent = Spent {
                    gen_ai_provider_name: provider.clone(),
                    gen_ai_request_model: model.clone(),
                    gen_ai_token_type,
                };
                let tokens = numbers.tokens.get_or_create(&spent);
                tokens.observe(n_tokens as f64);
            }
        }
    }

    /// A request with a key ended.
    pub(super) fn used(&self, key: &str, used: Used, outcome: &'static str) {
        let numbers = &*self.0;
        let key = key.to_owned();
        for (token_type, n_tokens) in [
            ("input", used.prompt_tokens),
            ("output", used.completion_tokens),
        ] {
            if n_tokens > 0 {
                let key = key.clone();
                let spent = KeySpent { key, token_type };
                numbers.key_tokens.get_or_create(&spent).inc_by(n_tokens);
            }
        }
        let counted = KeyOutcome { key, outcome };
        numbers.key_requests.get_or_create(&counted).inc();
    }

    /// All numbers as OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}

impl Inner {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "twopass_requests",
            "Requests that ended, by path and outcome: every request is counted once",
            self.requests.clone(),
        );
        registry.register(
            "twopass_requests_active",
            "Requests that have not ended",
            self.active.clone(),
        );
        registry.register(
            "twopass_traces_lost",
            "Requests whose traces the collector did not take",
            self.traces_lost.clone(),
        );
        registry.register(
            "twopass_key_requests",
            "Requests that ended, by the name of their key and outcome",
            self.key_requests.clone(),
        );
        registry.register(
            "twopass_key_tokens",
            "Tokens by the name of the key that they count for",
            self.key_tokens.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_request_duration",
            "From the head of a request to the last byte of its reply",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_time_to_first_token",
            "From the head of a request to its first output, thoughts included",
            Unit::Seconds,
            self.first_token.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_time_per_output_token",
            "Between the tokens after the first",
            Unit::Seconds,
            self.per_token.clone(),
        );
        registry.register(
            "gen_ai_client_token_usage",
            "Tokens of a request, read and written",
            self.tokens.clone(),
        );
    }
}

fn histograms<L: Clone + std::hash::Hash + Eq>(make: fn() -> Histogram) -> Histograms<L> {
    Family::new_with_constructor(make)
}
