//! Many streams at once: fairness, cancelling, slow readers, limits.

use std::time::{Duration, Instant};

use twopass_core::chat::StopReason;
use twopass_engine::{Engine, ErrorKind, Generation, Output};

use crate::support::{
    Alone, chat, collect, fresh, long_prompt, options, random_qwen3, real, real_model, request,
    run, thinking,
};

fn wait_until(limit: Duration, is_true: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < limit, "not within {limit:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

#[test]
fn d3_eight_at_once_keep_their_budgets() {
    let Alone { engine, .. } = &real();
    let before = engine.stats();
    let turns: Vec<_> = (0..8)
        .map(|n| {
            let budget = [0, 1, 2, 8, 16, 3, 5, 12][n];
            let request = thinking(&format!("Question {n}?"), budget, 10);
            (budget, engine.generate(request).unwrap())
        })
        .collect();
    for (budget, turn) in turns {
        let seen = collect(turn);
        assert!(seen.outcome.usage.thinking_tokens <= u64::from(budget));
        assert!(!seen.answer.trim().is_empty());
        let n_closes = seen.thinking.matches("</think>").count();
        assert_eq!(n_closes, usize::from(budget > 0));
    }
    let after = engine.stats();
    assert_eq!(after.finished - before.finished, 8);
    assert!(after.batch_streams_max > 1);
    assert_eq!((after.running, after.queued), (0, 0));
}

#[test]
fn cancelling_frees_the_slot_in_every_state() {
    let mut options = options(real_model());
    options.max_streams = 1;
    let Alone { engine, .. } = &fresh(options);
    let limit = Duration::from_millis(250);

    // While it generates.
    let mut endless = request(chat("Hi."), 4000);
    endless.recite = Some("word ".repeat(3000));
    let mut turn = engine.generate(endless.clone()).unwrap();
    assert!(turn.blocking_next().is_some());
    turn.cancel();
    wait_until(limit, || engine.stats().running == 0);
    let seen = collect(turn);
    assert_eq!(*seen.stop(), StopReason::Cancelled);
    assert_eq!(seen.outcome.passes.len(), 1);

    // During a long prompt: the step is aborted.
    let turn = engine.generate(request(long_prompt(3000, "p"), 4)).unwrap();
    wait_until(Duration::from_secs(5), || engine.stats().running == 1);
    std::thread::sleep(Duration::from_millis(100));
    drop(turn);
    wait_until(limit, || engine.stats().running == 0);

    // While it waits.
    let mut first = engine.generate(endless).unwrap();
    assert!(first.blocking_next().is_some());
    let second = engine.generate(request(chat("Second."), 4)).unwrap();
    drop(second);
    wait_until(limit, || engine.stats().queued == 0);
    drop(first);
    wait_until(limit, || engine.stats().running == 0);
    assert_eq!(engine.stats().cancelled, 4);

    // The engine is as good as new.
    let seen = run(engine, request(chat("Hi."), 4));
    assert!(seen.outcome.stop.is_ok());
}

#[test]
fn a_slow_reader_does_not_stall_the_others() {
    let mut options = options(random_qwen3());
    options.output_tokens = 4;
    let Alone { engine, .. } = &fresh(options);
    let text = "one two three ".repeat(20);
    let mut slow = request(chat("Hi."), 200);
    slow.recite = Some(text.clone());
    let slow = engine.generate(slow).unwrap();
    let mut fast = request(chat("Ho."), 200);
    fast.recite = Some(text.clone());
    assert_eq!(run(engine, fast).answer, text);
    // Nothing was read from the slow one; it sat out and kept its place.
    assert_eq!(engine.stats().running, 1);
    let seen = collect(slow);
    assert_eq!(seen.answer, text);
}

#[test]
fn a_full_queue_is_refused_and_recovers() {
    let mut options = options(random_qwen3());
    options.max_streams = 1;
    options.queue_len = 2;
    options.output_tokens = 1;
    let Alone { engine, .. } = &fresh(options);
    let stuck = || {
        let mut turn = request(chat("Hi."), 50);
        turn.recite = Some("one two three four".to_owned());
        turn
    };
    let first = engine.generate(stuck()).unwrap();
    wait_until(Duration::from_secs(5), || engine.stats().running == 1);
    let queued = [
        engine.generate(stuck()).unwrap(),
        engine.generate(stuck()).unwrap(),
    ];
    let error = engine.generate(stuck()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    drop(first);
    for turn in queued {
        assert_eq!(collect(turn).answer, "one two three four");
    }
}

/// As many as may run and wait come at once, time and again.
#[test]
fn a_burst_that_there_is_room_for_is_taken() {
    let mut options = options(random_qwen3());
    options.max_streams = 2;
    options.queue_len = 3;
    let Alone { engine, .. } = &fresh(options);
    for _ in 0..20 {
        let turns: Vec<_> = (0..5)
            .map(|_| engine.generate(request(chat("Hi."), 1)).unwrap())
            .collect();
        for turn in turns {
            collect(turn);
        }
    }
}

#[test]
fn dropping_the_engine_ends_every_turn() {
    let alone = fresh(options(real_model()));
    let engine = alone.engine;
    let mut endless = request(chat("Hi."), 4000);
    endless.recite = Some("word ".repeat(3000));
    let mut running = engine.generate(endless).unwrap();
    assert!(running.blocking_next().is_some());
    let prefilling = engine.generate(request(long_prompt(2000, "x"), 5)).unwrap();
    let start = Instant::now();
    drop(engine);
    assert!(start.elapsed() < Duration::from_secs(2));
    for turn in [running, prefilling] {
        let error = collect(turn).outcome.stop.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
    }
}

#[test]
fn streams_that_outgrow_the_cache_wait_and_come_back() {
    let mut options = options(random_qwen3());
    options.context_tokens = 512;
    options.max_streams = 4;
    let Alone { engine, .. } = &fresh(options);
    let turns: Vec<_> = (0..4)
        .map(|n| {
            // Admission counts on 256 tokens beyond the prompt; these take more.
            let text = format!(" {n} one two three").repeat(60);
            let mut turn = request(chat(&format!("{n}?")), 400);
            turn.recite = Some(text.clone());
            (text, engine.generate(turn).unwrap())
        })
        .collect();
    for (text, turn) in turns {
        let seen = collect(turn);
        assert_eq!(seen.answer, text);
    }
}

#[test]
fn a_long_prompt_lets_running_streams_go_on() {
    let Alone { engine, .. } = &fresh(options(real_model()));
    let mut talker = request(chat("Hi."), 4000);
    talker.recite = Some("word ".repeat(3000));
    let mut talker = engine.generate(talker).unwrap();
    assert!(talker.blocking_next().is_some());
    let before = engine.stats();
    let long = engine
        .generate(request(long_prompt(1000, "long"), 1))
        .unwrap();
    let mut n_tokens = 0;
    while engine.stats().finished == before.finished {
        if let Some(Output::Text { n_tokens: n, .. }) = talker.blocking_next() {
            n_tokens += n;
        }
    }
    assert!(collect(long).outcome.stop.is_ok());
    // A chunk of at most 64 prompt tokens, and a token of the talker after each.
    assert!(n_tokens >= 1000 / 64, "{n_tokens}");
}

#[test]
fn prompts_of_every_size_end_in_small_steps() {
    let mut options = options(real_model());
    options.step_tokens = 32;
    let Alone { engine, .. } = &fresh(options);
    for n_tokens in [20, 40, 50, 62, 63, 64, 65, 100] {
        let alone = engine.generate(request(long_prompt(n_tokens, "alone"), 2));
        assert!(collect(alone.unwrap()).outcome.stop.is_ok(), "{n_tokens}");
    }
    let many: Vec<_> = [20, 40, 50, 62, 63, 64, 65, 100]
        .map(|n| engine.generate(request(long_prompt(n, &format!("many {n}")), 8)))
        .into_iter()
        .collect();
    for one in many {
        assert!(collect(one.unwrap()).outcome.stop.is_ok());
    }
}

#[test]
fn a_short_prompt_passes_a_long_one() {
    let Alone { engine, .. } = &fresh(options(real_model()));
    for talks in [false, true] {
        let talker = talks.then(|| {
            let mut talker = request(chat("Hi."), 4000);
            talker.recite = Some("word ".repeat(3000));
            let mut talker = engine.generate(talker).unwrap();
            assert!(talker.blocking_next().is_some());
            talker
        });
        let long = engine
            .generate(request(long_prompt(1500, "long"), 1))
            .unwrap();
        let short = engine
            .generate(request(long_prompt(150, "short"), 1))
            .unwrap();
        let before = engine.stats();
        assert!(collect(short).outcome.stop.is_ok());
        let computed = engine.stats().prefill_tokens - before.prefill_tokens;
        // A chunk of each in turn, not the whole long one first.
        assert!(
            computed < 1000,
            "{computed} tokens, beside a talker: {talks}"
        );
        assert!(collect(long).outcome.stop.is_ok());
        drop(talker);
    }
}

#[test]
fn async_readers_need_no_particular_runtime() {
    let Alone { engine, .. } = &real();
    let mut turn = request(chat("Hi."), 20);
    turn.recite = Some("one two three".to_owned());
    let mut turn = engine.generate(turn).unwrap();
    let text = pollster(async {
        let mut text = String::new();
        while let Some(output) = turn.next().await {
            if let Output::Text { text: piece, .. } = output {
                text.push_str(&piece);
            }
        }
        text
    });
    assert_eq!(text, "one two three");
}

/// The smallest executor: parks the thread until it is woken.
fn pollster<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

/// A xorshift: reproducible, and good enough to mix requests.
struct Mix(u64);

impl Mix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// 1,000 requests of mixed size with random cancels; 10,000 with `TWOPASS_SLOW` set.
#[test]
fn mixed_requests_with_random_cancels_leave_no_stuck_slot() {
    let n_requests = if std::env::var_os("TWOPASS_SLOW").is_some() {
        10_000
    } else {
        1_000
    };
    let mut options = options(random_qwen3());
    options.context_tokens = 4096;
    let Alone { engine, .. } = &fresh(options);
    let mut mix = Mix(0x9E37_79B9_7F4A_7C15);
    let mut open: Vec<(Generation, u64)> = Vec::new();
    let (mut n_done, mut n_dropped) = (0_u64, 0_u64);
    for n in 0..n_requests {
        let turn = match mix.below(3) {
            0 => thinking(&format!("Question {}?", n % 7), 1 + n % 9, 1 + n % 13),
            1 => request(chat(&format!("Question {}?", n % 5)), 1 + n % 17),
            _ => request(long_prompt(20 + mix.below(200) as usize, "mix"), 1 + n % 5),
        };
        while open.len() >= 24 {
            settle(&mut open, &mut mix, &mut n_done, &mut n_dropped);
        }
        open.push((engine.generate(turn).unwrap(), mix.below(4)));
    }
    while !open.is_empty() {
        settle(&mut open, &mut mix, &mut n_done, &mut n_dropped);
    }
    wait_until(Duration::from_secs(10), || engine.stats().running == 0);
    let stats = engine.stats();
    assert_eq!((stats.running, stats.queued, stats.failed), (0, 0, 0));
    assert_eq!(n_done + n_dropped, u64::from(n_requests));
    assert!(stats.cancelled <= n_dropped && stats.finished >= n_done);
    assert!(n_dropped > u64::from(n_requests) / 10);
    after_all(engine);
}

/// Reads one of the open turns to its end, or reads a little and drops it.
fn settle(open: &mut Vec<(Generation, u64)>, mix: &mut Mix, done: &mut u64, dropped: &mut u64) {
    let idx = mix.below(open.len() as u64) as usize;
    let (mut turn, fate) = open.swap_remove(idx);
    if fate == 0 {
        for _ in 0..mix.below(3) {
            let _ = turn.blocking_next();
        }
        drop(turn);
        *dropped += 1;
    } else {
        assert!(collect(turn).outcome.stop.is_ok());
        *done += 1;
    }
}

fn after_all(engine: &Engine) {
    let mut turn = request(chat("Still there?"), 20);
    turn.recite = Some("yes, still here".to_owned());
    assert_eq!(run(engine, turn).answer, "yes, still here");
}
