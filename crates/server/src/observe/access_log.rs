//! The access log: one JSON object per request, when it has ended.
//!
//! Lines hold names, numbers and outcomes, never a key, a prompt or an answer. Writing has a
//! thread of its own, so that a reader of the log that stops reading stops nobody else: what
//! it has no room for is left out, and counted in the next line.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use twopass_core::calendar::civil_date;

use super::Facts;

/// Lines that wait for their writer.
const WAITING_MAX: usize = 4096;

/// Where the lines of ended requests go. Clones write to the same place.
#[derive(Clone)]
pub struct AccessLog(Arc<Inner>);

struct Inner {
    lines: SyncSender<String>,
    n_lost: AtomicU64,
}

impl AccessLog {
    /// A log on the standard error stream.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn stderr() -> io::Result<Self> {
        Self::to(io::stderr())
    }

    /// A log on this writer. A line that it refuses is lost.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        // It ends when the last clone of the log is gone.
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&waiting, out))?;
        let n_lost = AtomicU64::new(0);
        Ok(Self(Arc::new(Inner { lines, n_lost })))
    }

    /// A request ended.
    pub(super) fn closed(&self, facts: &Facts, outcome: &str) {
        let lost = self.0.n_lost.swap(0, Ordering::Relaxed);
        let sent = self.0.lines.try_send(line(facts, outcome, lost));
        if sent.is_err() {
            self.0.n_lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

fn write_all(lines: &Receiver<String>, mut out: impl Write) {
    while let Ok(line) = lines.recv() {
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// `{time, method, route, status, outcome, duration_ms, ..}`: what is not known is left out.
fn line(facts: &Facts, outcome: &str, lost: u64) -> String {
    let millis = |time: std::time::Duration| Value::from((time.as_secs_f64() * 1e6).round() / 1e3);
    let tokens = |n: u64| Some(n).filter(|n| *n > 0).map(Value::from);
    let usage = &facts.usage;
    let fields = [
        ("time", Some(rfc3339(SystemTime::now()).into())),
        ("method", Some(facts.method.into())),
        ("route", Some(facts.route.as_str().into())),
        ("status", facts.status.map(Value::from)),
        ("outcome", Some(outcome.into())),
        ("duration_ms", Some(millis(facts.started.elapsed()))),
        ("first_output_ms", facts.first_output.map(millis)),
        ("key", facts.key.as_deref().map(|key| key.name().into())),
        ("provider", facts.provider.as_deref().map(Value::from)),
        ("model", facts.model.as_deref().map(Value::from)),
        ("prompt_tokens", tokens(usage.prompt_tokens)),
        ("cached_tokens", tokens(usage.cached_tokens)),
        ("thinking_tokens", tokens(usage.thinking_tokens)),
        ("response_tokens", tokens(usage.response_tokens)),
        ("lines_lost", tokens(lost)),
    ];
    let fields = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let mut line = Value::Object(fields.collect::<Map<_, _>>()).to_string();
    line.push('\n');
    line
}

/// The time as `2026-11-28T09:21:15.042Z`; one before 1970 is the first moment of it.
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil_date(days.try_into().unwrap_or(i64::MAX / 2));
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        // `date -u -d @N +%FT%TZ`
        for (seconds, expect) in [
            (0, "1970-01-01T00:00:00.042Z"),
            (951_782_399, "2000-02-28T23:59:59.042Z"),
            (951_868_799, "2000-02-29T23:59:59.042Z"),
            (1_795_857_675, "2026-11-28T09:21:15.042Z"),
            (4_107_542_399, "2100-02-28T23:59:59.042Z"),
            (4_107_542_400, "2100-03-01T00:00:00.042Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 42);
            assert_eq!(rfc3339(time), expect);
        }
    }

    #[test]
    fn a_reader_that_stops_stops_nobody() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (_held, stuck) = std::sync::mpsc::channel();
        let log = AccessLog::to(Stuck(stuck)).unwrap();
        let watch = super::super::Watch::new(&axum::http::Method::GET, "/health".to_owned());
        for _ in 0..WAITING_MAX + 10 {
            log.closed(&watch.facts(), "ok");
        }
        assert!(log.0.n_lost.load(Ordering::Relaxed) >= 9);
    }
}
