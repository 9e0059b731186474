//! Which replica takes the next request: a state machine without sockets or a clock.
//!
//! ```text
//!            refused, or 3 failures in a row         pause over
//!  Healthy ---------------------------------> Out ----------------> Probing
//!     ^                                        ^                       |
//!     |                                        '-- no answer, pause x2-'
//!     '------------------------ any answer ----------------------------'
//! ```
//! A session goes to the replica that it was with, since the beginning of its prompt lies in
//! that one's cache, unless the replica is out or has far more to do than another. A new
//! session goes to the one with the fewest running requests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use crate::ErrorKind;

/// Failures in a row that put a replica out although it accepts connections.
const FAILURES_MAX: u32 = 3;
/// The first pause of a replica that is out; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session leaves its replica when that one runs this many requests more than the idlest:
/// waiting there costs more than reading the prompt again.
const HOME_LEAD: usize = 4;
/// Sessions that are remembered, 16 bytes each. One whose place another took is a new one.
const HOMES: usize = 4096;

/// The replicas of one entry and what they are doing.
#[derive(Debug)]
pub(super) struct Pool {
    replicas: Vec<Replica>,
    /// Where sessions are, by their number modulo the length.
    homes: Vec<Option<Home>>,
    /// Requests without a session so far.
    n_loose: u64,
}

#[derive(Debug, Clone, Copy)]
struct Home {
    session: u64,
    idx: usize,
}

#[derive(Debug)]
struct Replica {
    running: usize,
    /// Failures since the last answer.
    failures: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Healthy,
    Out { until: Instant, pause: Duration },
    Probing { pause: Duration },
}

impl Pool {
    pub(super) fn new(n_replicas: usize) -> Self {
        let replica = || Replica {
            running: 0,
            failures: 0,
            state: State::Healthy,
        };
        Self {
            replicas: (0..n_replicas.max(1)).map(|_| replica()).collect(),
            homes: vec![None; if n_replicas > 1 { HOMES } else { 0 }],
            n_loose: 0,
        }
    }

    /// Takes a place at a replica for a request that these have failed already. When all are
    /// out, the one whose pause ends first has to do: a wrong verdict must not close the door.
    pub(super) fn begin(&mut self, session: Option<u64>, failed: &[usize]) -> usize {
        let idx = match self.replicas.len() {
            1 => 0,
            _ => self.choose(session, failed),
        };
        self.replicas[idx].running += 1;
        idx
    }

    /// The request is over, however it ended.
    pub(super) fn end(&mut self, idx: usize) {
        let replica = &mut self.replicas[idx];
        replica.running = replica.running.saturating_sub(1);
    }

    fn choose(&mut self, session: Option<u64>, failed: &[usize]) -> usize {
        let untried = |idx: usize| !failed.contains(&idx);
        let able = self.indexes(|idx, state| state == State::Healthy && untried(idx));
        if able.is_empty() {
            let rest = self.indexes(|idx, _| untried(idx));
            return rest
                .into_iter()
                .min_by_key(|idx| self.due(*idx))
                .unwrap_or(0);
        }
        let running = |idx: usize| self.replicas[idx].running;
        let least = able.iter().map(|idx| running(*idx)).min().unwrap_or(0);
        let home = session.and_then(|session| self.home(session));
        if let Some(idx) =
            home.filter(|idx| able.contains(idx) && running(*idx) < least + HOME_LEAD)
        {
            return idx;
        }
        self.n_loose += u64::from(session.is_none());
        // Among equals the session decides, so that several of us choose alike.
        let key = session.unwrap_or(self.n_loose);
        let idlest = able.into_iter().filter(|idx| running(*idx) == least);
        let idx = idlest.max_by_key(|idx| weight(key, *idx)).unwrap_or(0);
        if let Some(session) = session {
            self.homes[slot(session)] = Some(Home { session, idx });
        }
        idx
    }

    fn home(&self, session: u64) -> Option<usize> {
        let home = self.homes[slot(session)].filter(|home| home.session == session);
        home.map(|home| home.idx)
    }

    fn indexes(&self, allow: impl Fn(usize, State) -> bool) -> Vec<usize> {
        let states = self.replicas.iter().enumerate();
        let allowed = states.filter(|(idx, replica)| allow(*idx, replica.state));
        allowed.map(|(idx, _)| idx).collect()
    }

    /// When a replica that is out may be asked again; `None` = it is being asked.
    fn due(&self, idx: usize) -> Option<Instant> {
        match self.replicas[idx].state {
            State::Out { until, .. } => Some(until),
            State::Healthy | State::Probing { .. } => None,
        }
    }

    /// The replica answered, be it that the request is wrong or the queue full.
    pub(super) fn handle_answer(&mut self, idx: usize) {
        let replica = &mut self.replicas[idx];
        replica.failures = 0;
        replica.state = State::Healthy;
    }

    /// A request failed with this kind.
    pub(super) fn handle_failure(&mut self, idx: usize, kind: ErrorKind, now: Instant) {
        let replica = &mut self.replicas[idx];
        match kind {
            ErrorKind::Connect | ErrorKind::TimeoutConnect => replica.failures = FAILURES_MAX,
            ErrorKind::UpstreamError
            | ErrorKind::Overloaded
            | ErrorKind::TimeoutFirstToken
            | ErrorKind::TimeoutIdle
            | ErrorKind::StreamTruncated
            | ErrorKind::InvalidResponse => replica.failures += 1,
            // Ours, or an answer.
            _ => return self.handle_answer(idx),
        }
        if replica.failures >= FAILURES_MAX && replica.state == State::Healthy {
            replica.state = State::Out {
                until: now + FIRST_PAUSE,
                pause: FIRST_PAUSE,
            };
        }
    }

    /// The next replica whose pause is over, to be asked whether it lives.
    pub(super) fn poll_probe(&mut self, now: Instant) -> Option<usize> {
        self.replicas
            .iter_mut()
            .enumerate()
            .find_map(|(idx, replica)| match replica.state {
                State::Out { until, pause } if until <= now => {
                    replica.state = State::Probing { pause };
                    Some(idx)
                }
                _ => None,
            })
    }

    /// What the probe brought.
    pub(super) fn handle_probe(&mut self, idx: usize, lives: bool, now: Instant) {
        let replica = &mut self.replicas[idx];
        match replica.state {
            State::Probing { .. } if lives => self.handle_answer(idx),
            State::Probing { pause } => {
                let pause = (pause * 2).min(LONGEST_PAUSE);
                replica.state = State::Out {
                    until: now + pause,
                    pause,
                };
            }
            // A request was faster.
            State::Healthy | State::Out { .. } => {}
        }
    }
}

fn slot(session: u64) -> usize {
    usize::try_from(session % HOMES as u64).unwrap_or(0)
}

/// A number that is the same in every process.
fn weight(session: u64, idx: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (session, idx).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to three replicas, one word per step:
    ///
    /// `A=1` session A is sent to replica 1, `-=1` a request without a session,
    /// `A!0=1` the same after replica 0 failed it, `end1` a request ends there,
    /// `refuse1`, `break1`, `busy1`, `ok1` how one ended, `+1s` time, `probe1` the one whose
    /// probe is due (`probe-` none), `alive1`, `dead1` what it brought. `?` = any replica.
    fn play(script: &str) {
        let mut pool = Pool::new(3);
        let mut now = Instant::now();
        for step in script.split_whitespace() {
            let idx = || step.chars().last().and_then(|c| c.to_digit(10)).unwrap() as usize;
            let word = step.trim_end_matches(|c: char| c.is_ascii_digit());
            match word {
                "end" => pool.end(idx()),
                "refuse" => pool.handle_failure(idx(), ErrorKind::Connect, now),
                "break" => pool.handle_failure(idx(), ErrorKind::UpstreamError, now),
                "busy" => pool.handle_failure(idx(), ErrorKind::RateLimited, now),
                "ok" => pool.handle_answer(idx()),
                "alive" => pool.handle_probe(idx(), true, now),
                "dead" => pool.handle_probe(idx(), false, now),
                "probe" => assert_eq!(pool.poll_probe(now), Some(idx()), "{step} in {script}"),
                "probe-" => assert_eq!(pool.poll_probe(now), None, "{step} in {script}"),
                _ if step.starts_with('+') => {
                    let seconds = step.trim_matches(['+', 's']).parse().unwrap();
                    now += Duration::from_secs(seconds);
                }
                _ => {
                    let (request, expect) = step.split_once('=').unwrap();
                    let (session, failed) = request.split_once('!').unwrap_or((request, ""));
                    let failed = failed.chars().filter_map(|c| c.to_digit(10));
                    let failed: Vec<_> = failed.map(|idx| idx as usize).collect();
                    let session = (session != "-").then(|| u64::from(session.as_bytes()[0]));
                    let got = pool.begin(session, &failed);
                    assert!(
                        expect == "?" || expect == got.to_string(),
                        "{step}: {got} in {script}"
                    );
                }
            }
        }
    }

    /// The replicas that these requests went to when nothing else ran.
    fn homes(sessions: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut pool = Pool::new(3);
        let place = |session| {
            let idx = pool.begin(Some(session), &[]);
            pool.end(idx);
            idx
        };
        sessions.map(place).collect()
    }

    #[test]
    fn requests_without_a_session_spread() {
        let mut pool = Pool::new(3);
        let mut counts = [0; 3];
        for _ in 0..30 {
            counts[pool.begin(None, &[])] += 1;
        }
        assert_eq!(counts, [10; 3], "each goes where the fewest run");
    }

    #[test]
    fn sessions_stay_and_spread_alike_everywhere() {
        let first = homes(0..300);
        assert_eq!(first, homes(0..300), "another process chooses the same");
        for idx in 0..3 {
            let n = first.iter().filter(|home| **home == idx).count();
            assert!((60..140).contains(&n), "replica {idx} has {n} of 300");
        }
        let mut pool = Pool::new(3);
        for session in 0..300 {
            let home = pool.begin(Some(session), &[]);
            // Its second request finds another one idler, and goes home all the same.
            assert_eq!(pool.begin(Some(session), &[]), home);
            pool.end(home);
            pool.end(home);
        }
    }

    #[test]
    fn a_busy_home_is_left() {
        let mut pool = Pool::new(2);
        let home = pool.begin(Some(7), &[]);
        for _ in 1..HOME_LEAD {
            assert_eq!(pool.begin(Some(7), &[]), home);
        }
        assert_ne!(
            pool.begin(Some(7), &[]),
            home,
            "4 run there, none elsewhere"
        );
    }

    // Row by row: see `play`.
    #[test]
    fn what_fails_is_out_until_it_answers() {
        for script in [
            // Refused once; the others serve; its pause is over after a second; it lives.
            "refuse1 -!1=? +0s probe- +1s probe1 probe- alive1 +9s probe-",
            // Still dead: the pause doubles.
            "refuse1 +1s probe1 dead1 +1s probe- +1s probe1 dead1 +3s probe- +1s probe1",
            // Three failures in a row, and not two and an answer, nor a full queue.
            "break2 break2 ok2 break2 break2 busy2 break2 break2 +60s probe- break2 +1s probe2",
            // One is left: everything goes there.
            "refuse0 refuse2 A=1 B=1 C=1 D=1 -=1 -=1",
            // A request that one failed goes elsewhere although it is healthy.
            "A!01=2 B!02=1 C!12=0 D!02=1",
            // All are out: the one whose pause ends first has to do, unless it failed this one.
            "refuse1 +1s refuse0 refuse2 A=1 A!1=0 A!10=2",
            // An answer in the meantime counts more than the probe.
            "refuse0 +1s probe0 ok0 dead0 +60s probe- refuse1 refuse2 A=0",
        ] {
            play(script);
        }
    }
}
