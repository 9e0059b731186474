//! OpenTelemetry traces: one span for each request, one below it for each pass of its turns.
//!
//! ```text
//!  head -> begin -> Traced (notes of the way) -> closed -> spans -> queue -> Exporter -> OTLP
//! ```
//! Spans hold names and numbers. What was asked, thought and answered is in them only where
//! the configuration says so. Nothing waits for the collector: requests whose spans find no
//! room are counted as lost.

mod content;
mod context;
mod export;
mod span;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::http::HeaderMap;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use twopass_core::chat::{Message, PassReport, Reply};

use super::Facts;
use context::TraceContext;

pub(crate) use export::Exporter;

/// Where the spans of ended requests go. Clones send to the same collector.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: Sender<Vec<Value>>,
    with_content: bool,
    n_lost: Counter,
}

/// What is known of a request that is traced, beside its [`Facts`].
#[derive(Debug, Clone)]
pub(super) struct Traced {
    context: TraceContext,
    began: SystemTime,
    passes: Vec<Pass>,
    finish_reasons: Vec<&'static str>,
    with_content: bool,
    asked: Option<Value>,
    answers: Vec<Value>,
}

/// A pass and its time, counted from the request's beginning.
#[derive(Debug, Clone)]
struct Pass {
    from: Duration,
    to: Duration,
    report: PassReport,
}

impl Traces {
    /// A request comes with these headers; `None` if its trace is not to be recorded.
    pub(super) fn begin(&self, headers: &HeaderMap) -> Option<Traced> {
        let context = TraceContext::of(headers);
        context.is_sampled.then(|| Traced {
            context,
            began: SystemTime::now(),
            passes: Vec::new(),
            finish_reasons: Vec::new(),
            with_content: self.0.with_content,
            asked: None,
            answers: Vec::new(),
        })
    }

    /// A request ended.
    pub(super) fn closed(&self, facts: &Facts, outcome: &'static str) {
        let Some(traced) = &facts.traced else { return };
        let spans = span::of_request(traced, facts, outcome);
        if self.0.requests.try_send(spans).is_err() {
            self.0.n_lost.inc();
        }
    }
}

impl Traced {
    /// The conversation as its provider gets it.
    pub(super) fn asked(&mut self, messages: &[Message]) {
        if self.with_content {
            self.asked = Some(content::asked(messages));
        }
    }

    /// A turn of the request that began at `started` has ended now.
    pub(super) fn answered(&mut self, reply: &Reply, started: Instant) {
        let mut to = started.elapsed();
        for report in reply.passes.iter().rev() {
            let took = Duration::try_from_secs_f64(report.duration_ms / 1e3).unwrap_or_default();
            let from = to.saturating_sub(took);
            let report = report.clone();
            self.passes.push(Pass { from, to, report });
            to = from;
        }
        self.finish_reasons.push(reply.stop_reason.as_str());
        if self.with_content {
            self.answers.push(content::answered(reply));
        }
    }
}
