//! How much each key has used, against what it may.
//!
//! The limits of a minute are those of this server: a bucket that holds a minute's worth and
//! fills evenly. What a day may take is kept in the store, so that it survives a restart and is
//! one sum for all servers that share the store. A request that was let in is finished, so what
//! runs at one time may go beyond a limit of tokens; what it used counts against the next.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::sleep;
use twopass_provider::ErrorKind;
use twopass_provider::config::KeyLimits;
use twopass_store::{Store, Usage};

use super::known::{DAY_S, Key};
use crate::api_error::{ApiError, ApiErrorKind};

/// Time between two notes of what was used, and the age of a sum that is read again.
const SYNC: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The ledgers of all keys, by name. Clones are the same ledgers.
#[derive(Clone)]
pub(crate) struct Budgets(Arc<Inner>);

struct Inner {
    store: Store,
    ledgers: Mutex<HashMap<String, Ledger>>,
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets").finish_non_exhaustive()
    }
}

impl Budgets {
    pub(crate) fn new(store: Store) -> Self {
        let ledgers = Mutex::default();
        Self(Arc::new(Inner { store, ledgers }))
    }

    /// Takes one request from what the key may use, if there is something left.
    pub(super) async fn admit(&self, key: &Key) -> (Allowance, Result<(), ApiError>) {
        let (limits, time) = (key.entry().limits, Time::now());
        if limits == KeyLimits::default() {
            return (Allowance::default(), Ok(()));
        }
        if limits.tokens_per_day.is_some()
            && let Err(refused) = self.read_day(key.name(), time).await
        {
            return (Allowance::default(), Err(refused));
        }
        let mut ledgers = self.ledgers();
        let ledger = ledgers.entry(key.name().to_owned()).or_default();
        let admitted = ledger.admit(limits, time);
        let admitted = admitted.map_err(|refusal| refusal.of(key.name()));
        (ledger.allowance(limits, time), admitted)
    }

    /// Takes what a request used. A key without limits has no ledger.
    pub(crate) fn spend(&self, key: &str, usage: Usage) {
        if let Some(ledger) = self.ledgers().get_mut(key) {
            ledger.spend(usage, Time::now());
        }
    }

    /// Stores now and then what was used, until dropped.
    pub(crate) async fn store_used(&self) {
        loop {
            sleep(SYNC).await;
            self.flush().await;
        }
    }

    /// Stores what was used. What a store that does not answer did not take is kept for the
    /// next time.
    pub(crate) async fn flush(&self) {
        let unstored: Vec<_> = self.ledgers().iter_mut().filter_map(unstored).collect();
        for (key, day, usage) in unstored {
            let stored = self.0.store.add_usage(&key, day, usage).await;
            let mut ledgers = self.ledgers();
            let Some(ledger) = ledgers.get_mut(&key).filter(|ledger| ledger.day == day) else {
                continue;
            };
            match stored {
                Ok(()) => ledger.stored += tokens(usage),
                Err(_) => ledger.unstored = ledger.unstored.plus(usage),
            }
        }
    }

    /// Reads what all servers used today, unless that is known.
    async fn read_day(&self, key: &str, time: Time) -> Result<(), ApiError> {
        let is_known = |ledger: &Ledger| ledger.is_known(time);
        if self.ledgers().get(key).is_some_and(is_known) {
            return Ok(());
        }
        let read = self.0.store.usage(key, time.day).await;
        let mut ledgers = self.ledgers();
        let ledger = ledgers.entry(key.to_owned()).or_default();
        ledger.begin(time.day);
        match read {
            Ok(usage) => (ledger.stored, ledger.read) = (tokens(usage), Some(time.now)),
            // What was read today is still a limit; nothing read is none.
            Err(_) if ledger.read.is_some() => {}
            Err(_) => {
                let kind = ApiErrorKind::Provider(ErrorKind::Overloaded);
                return Err(ApiError::new(kind, "the usage of keys cannot be read now"));
            }
        }
        Ok(())
    }

    fn ledgers(&self) -> MutexGuard<'_, HashMap<String, Ledger>> {
        // A panic elsewhere leaves whole ledgers behind.
        self.0
            .ledgers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a ledger has for the store: whose, of which day, how much.
fn unstored((key, ledger): (&String, &mut Ledger)) -> Option<(String, u32, Usage)> {
    let usage = std::mem::take(&mut ledger.unstored);
    (usage != Usage::default()).then(|| (key.clone(), ledger.day, usage))
}

/// One moment by both clocks.
#[derive(Debug, Clone, Copy)]
struct Time {
    now: Instant,
    /// Since 1970.
    day: u32,
    until_midnight: Duration,
}

impl Time {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        Self {
            now: Instant::now(),
            day: u32::try_from(seconds / DAY_S).unwrap_or(u32::MAX),
            until_midnight: Duration::from_secs(DAY_S - seconds % DAY_S),
        }
    }
}

/// What one key has used.
#[derive(Debug, Default)]
struct Ledger {
    requests: Bucket,
    tokens: Bucket,
    /// The limits of its last request: those of a file that was read again count from then on.
    limits: KeyLimits,
    /// The day of what follows.
    day: u32,
    /// Tokens in the store, and when they were read.
    stored: u64,
    read: Option<Instant>,
    unstored: Usage,
}

/// A limit that is reached, and when it is not any more.
struct Refusal {
    kind: ErrorKind,
    limit: &'static str,
    of: u64,
    wait: Duration,
}

impl Refusal {
    fn of(self, key: &str) -> ApiError {
        let message = format!(
            "the key `{key}` has used its {} {}, come again in {} s",
            self.of,
            self.limit,
            seconds(self.wait)
        );
        let mut error = ApiError::new(ApiErrorKind::Provider(self.kind), message);
        error.retry_after_s = Some(seconds(self.wait));
        error
    }
}

impl Ledger {
    fn admit(&mut self, limits: KeyLimits, time: Time) -> Result<(), Refusal> {
        self.limits = limits;
        self.begin(time.day);
        if let Some(of) = limits.tokens_per_day.filter(|of| self.used_today() >= *of) {
            return Err(Refusal {
                kind: ErrorKind::QuotaExhausted,
                limit: "tokens of a day",
                of,
                wait: time.until_midnight,
            });
        }
        let rate_limited = |limit, of, wait| Refusal {
            kind: ErrorKind::RateLimited,
            limit,
            of,
            wait,
        };
        if let Some(of) = limits.tokens_per_minute
            && let Some(wait) = self.tokens.wait(of, time.now)
        {
            return Err(rate_limited("tokens of a minute", of, wait));
        }
        if let Some(of) = limits.requests_per_minute.map(u64::from) {
            if let Some(wait) = self.requests.wait(of, time.now) {
                return Err(rate_limited("requests of a minute", of, wait));
            }
            self.requests.used += 1.0;
        }
        Ok(())
    }

    fn spend(&mut self, usage: Usage, time: Time) {
        self.begin(time.day);
        if let Some(of) = self.limits.tokens_per_minute {
            self.tokens.drain(of, time.now);
            self.tokens.used += as_f64(tokens(usage));
        }
        if self.limits.tokens_per_day.is_some() {
            self.unstored = self.unstored.plus(usage);
        }
    }

    /// A new day begins with nothing.
    fn begin(&mut self, day: u32) {
        if self.day != day {
            (self.day, self.stored, self.read) = (day, 0, None);
        }
    }

    fn used_today(&self) -> u64 {
        self.stored.saturating_add(tokens(self.unstored))
    }

    fn is_known(&self, time: Time) -> bool {
        let read = self.read.filter(|_| self.day == time.day);
        read.is_some_and(|read| time.now.saturating_duration_since(read) < SYNC)
    }

    /// What is left. Of the limits of tokens the one with less.
    fn allowance(&mut self, limits: KeyLimits, time: Time) -> Allowance {
        let of_minute = limits.tokens_per_minute;
        let of_minute = of_minute.map(|of| self.tokens.window(of, time.now));
        let of_day = limits.tokens_per_day.map(|limit| Window {
            limit,
            remaining: limit.saturating_sub(self.used_today()),
            reset: time.until_midnight,
        });
        let windows = of_minute.into_iter().chain(of_day);
        let requests = limits.requests_per_minute.map(u64::from);
        Allowance {
            requests: requests.map(|of| self.requests.window(of, time.now)),
            tokens: windows.min_by_key(|window| window.remaining),
        }
    }
}

/// What was used of a minute's worth, which drains evenly.
#[derive(Debug, Default)]
struct Bucket {
    used: f64,
    at: Option<Instant>,
}

impl Bucket {
    fn drain(&mut self, of: u64, now: Instant) {
        let before = self.at.replace(now).unwrap_or(now);
        let minutes = now.saturating_duration_since(before).as_secs_f64() / MINUTE.as_secs_f64();
        self.used = (self.used - as_f64(of) * minutes).max(0.0);
    }

    /// How long until one fits in; `None` = it does.
    fn wait(&mut self, of: u64, now: Instant) -> Option<Duration> {
        self.drain(of, now);
        let over = self.used + 1.0 - as_f64(of);
        // A millionth of one is a matter of rounding.
        (over > 1e-6).then(|| MINUTE.mul_f64(over / as_f64(of)))
    }

    fn window(&mut self, of: u64, now: Instant) -> Window {
        self.drain(of, now);
        let used = self.used.ceil();
        Window {
            limit: of,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, at least 0 and bounded by saturation"
            )]
            remaining: of.saturating_sub(used as u64),
            reset: MINUTE.mul_f64(self.used / as_f64(of)),
        }
    }
}

/// What is left to a key, for the headers that clients of OpenAI read.
///
/// Source: OpenAI API reference, "Rate limits in headers", read 2026-11.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    requests: Option<Window>,
    tokens: Option<Window>,
}

#[derive(Debug, PartialEq, Eq)]
struct Window {
    limit: u64,
    remaining: u64,
    /// Until nothing counts as used.
    reset: Duration,
}

impl Allowance {
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let mut put = |name: &'static str, value: HeaderValue| {
            headers.insert(HeaderName::from_static(name), value);
        };
        if let Some(Window {
            limit,
            remaining,
            reset,
        }) = &self.requests
        {
            put("x-ratelimit-limit-requests", (*limit).into());
            put("x-ratelimit-remaining-requests", (*remaining).into());
            put("x-ratelimit-reset-requests", duration(*reset));
        }
        if let Some(Window {
            limit,
            remaining,
            reset,
        }) = &self.tokens
        {
            put("x-ratelimit-limit-tokens", (*limit).into());
            put("x-ratelimit-remaining-tokens", (*remaining).into());
            put("x-ratelimit-reset-tokens", duration(*reset));
        }
    }
}

/// As OpenAI writes durations: `6m0s`.
fn duration(duration: Duration) -> HeaderValue {
    let seconds = seconds(duration);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if seconds >= 60 {
        text.push_str(&format!("{minutes}m"));
    }
    text.push_str(&format!("{}s", seconds % 60));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("0s"))
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

fn tokens(usage: Usage) -> u64 {
    usage.prompt_tokens.saturating_add(usage.completion_tokens)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "limits and counts are far below 2^53"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Time {
        Time {
            now: start + Duration::from_secs(seconds),
            day: 7,
            until_midnight: Duration::from_secs(1000),
        }
    }

    fn wait(ledger: &mut Ledger, limits: KeyLimits, time: Time) -> Option<u32> {
        ledger
            .admit(limits, time)
            .err()
            .map(|refusal| seconds(refusal.wait))
    }

    fn used(n_tokens: u64) -> Usage {
        Usage {
            requests: 1,
            prompt_tokens: n_tokens - 1,
            completion_tokens: 1,
        }
    }

    #[test]
    fn requests_of_a_minute_come_back_evenly() {
        let limits = KeyLimits {
            requests_per_minute: Some(6),
            ..KeyLimits::default()
        };
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        // Second and, if it is refused, the seconds to wait.
        for (second, expect) in [
            (0, None),
            (0, None),
            (0, None),
            (0, None),
            (0, None),
            (0, None),
            (0, Some(10)),
            (9, Some(1)),
            (10, None),
            (10, Some(10)),
            (1000, None),
        ] {
            assert_eq!(
                wait(&mut ledger, limits, at(start, second)),
                expect,
                "{second}"
            );
        }
        let left = ledger.allowance(limits, at(start, 1005)).requests.unwrap();
        assert_eq!((left.limit, left.remaining, seconds(left.reset)), (6, 5, 5));
    }

    #[test]
    fn tokens_count_when_they_are_known() {
        let limits = KeyLimits {
            tokens_per_minute: Some(600),
            ..KeyLimits::default()
        };
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), None);
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), None);
        ledger.spend(used(900), at(start, 0));
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), Some(31));
        assert_eq!(wait(&mut ledger, limits, at(start, 30)), Some(1));
        assert_eq!(wait(&mut ledger, limits, at(start, 31)), None);
        let left = ledger.allowance(limits, at(start, 31)).tokens.unwrap();
        assert_eq!((left.limit, left.remaining), (600, 10));
    }

    #[test]
    fn a_day_ends_at_midnight() {
        let limits = KeyLimits {
            tokens_per_day: Some(100),
            tokens_per_minute: Some(1000),
            ..KeyLimits::default()
        };
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), None);
        ledger.spend(used(60), at(start, 0));
        ledger.stored = 30;
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), None);
        let left = ledger.allowance(limits, at(start, 0)).tokens.unwrap();
        assert_eq!((left.limit, left.remaining), (100, 10));
        ledger.spend(used(20), at(start, 0));
        assert_eq!(wait(&mut ledger, limits, at(start, 0)), Some(1000));
        let tomorrow = Time {
            day: 8,
            ..at(start, 2000)
        };
        ledger.unstored = Usage::default();
        assert_eq!(wait(&mut ledger, limits, tomorrow), None);
    }

    #[test]
    fn durations_are_written_as_clients_read_them() {
        for (milliseconds, expect) in [
            (0, "0s"),
            (1200, "2s"),
            (60_000, "1m0s"),
            (3_605_000, "1h0m5s"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), expect);
        }
    }
}
