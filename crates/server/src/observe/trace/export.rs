//! Sends spans to the collector: OTLP over HTTP, as JSON.
//!
//! Source: the OTLP specification 1.8, "OTLP/HTTP": `POST /v1/traces`; 429, 502, 503 and 504
//! may be tried again, everything else is lost.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use prometheus_client::metrics::counter::Counter;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use twopass_provider::HttpClient;
use twopass_provider::config::TracesConfig;

use super::span::text;
use super::{Inner, Traces};
use crate::Error;

/// Requests whose spans wait.
const WAITING_MAX: usize = 2048;
/// Requests in one message to the collector.
const BATCH_MAX: usize = 256;
/// A batch leaves after this time, however small.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Time for one message.
const SEND_TIME: Duration = Duration::from_secs(5);
/// Times that one message is sent.
const ATTEMPTS: u32 = 3;
/// Time for what is left when the server ends.
const LAST_TIME: Duration = Duration::from_secs(3);

/// The sender of spans; [`Exporter::run`] must be polled for them to leave.
#[derive(Debug)]
pub(crate) struct Exporter {
    client: HttpClient,
    config: TracesConfig,
    requests: Receiver<Vec<Value>>,
    n_lost: Counter,
}

impl Traces {
    /// Traces for this collector. Opens no connection. `n_lost` counts requests whose spans
    /// never arrived.
    ///
    /// # Errors
    /// TLS cannot start.
    pub(crate) fn new(config: TracesConfig, n_lost: Counter) -> Result<(Self, Exporter), Error> {
        let (sender, requests) = channel(WAITING_MAX);
        let traces = Self(Arc::new(Inner {
            requests: sender,
            with_content: config.content,
            n_lost: n_lost.clone(),
        }));
        let client = HttpClient::new(SEND_TIME).map_err(Error::provider)?;
        let exporter = Exporter {
            client,
            config,
            requests,
            n_lost,
        };
        Ok((traces, exporter))
    }
}

impl Exporter {
    /// Sends until `done`, then what is left, for a short while.
    pub(crate) async fn run(mut self, done: &CancellationToken) {
        let late = async {
            done.cancelled().await;
            sleep(LAST_TIME).await;
        };
        tokio::select! {
            () = self.send_all(done) => {}
            () = late => {}
        }
    }

    async fn send_all(&mut self, done: &CancellationToken) {
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                _ = self.requests.recv_many(&mut batch, 1) => {}
                () = done.cancelled() => return,
            }
            if batch.is_empty() {
                return;
            }
            // What comes in the meantime goes along.
            tokio::select! {
                () = done.cancelled() => {}
                () = sleep(BATCH_TIME) => {}
            }
            while batch.len() < BATCH_MAX
                && let Ok(spans) = self.requests.try_recv()
            {
                batch.push(spans);
            }
            self.send(batch).await;
        }
    }

    async fn send(&self, batch: Vec<Vec<Value>>) {
        let n_requests = batch.len();
        let body = message(batch.into_iter().flatten().collect());
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(BATCH_TIME * attempt).await;
            }
            match self.post(body.clone()).await {
                Some(200..=299) => return,
                None | Some(429 | 502 | 503 | 504) => {}
                Some(_) => break,
            }
        }
        self.n_lost.inc_by(n_requests as u64);
    }

    /// The status; `None` if there was no answer.
    async fn post(&self, body: String) -> Option<u16> {
        let mut request = Request::post(self.config.traces_url().as_str());
        for (name, value) in &self.config.headers {
            request = request.header(name, value.expose_secret());
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        let sending = self.client.send(request.body(body.into()).ok()?);
        let answer = timeout(SEND_TIME, sending).await.ok()?;
        Some(answer.ok()?.status().as_u16())
    }
}

/// The message of these spans.
fn message(spans: Vec<Value>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        text("service.name", Some("twopass")),
        text("service.version", Some(version)),
    ];
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "twopass", "version": version}, "spans": spans}],
    }]})
    .to_string()
}
