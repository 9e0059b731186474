//! What a turn reports when it is over.

use std::time::Instant;

use twopass_core::chat::{PassReport, StopReason, Usage};
use twopass_core::control::ThinkingBudget;

use super::Turn;
use crate::Error;
use crate::request::Outcome;

impl Turn {
    /// What the turn was, ended so.
    pub(super) fn outcome(&self, stop: Result<StopReason, Error>) -> Outcome {
        let now = Instant::now();
        let start = self.started.unwrap_or(now);
        let millis = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
        let is_whole = !matches!(stop, Err(_) | Ok(StopReason::Length));
        let total_reason = stop.as_ref().cloned().unwrap_or(StopReason::Cancelled);
        let prefilled = (self.prompt_len - self.counts.cached) as u64;
        let cached = self.counts.cached as u64;
        let truncated = self.budget.as_ref().is_some_and(ThinkingBudget::truncated);
        let usage = Usage {
            prompt_tokens: self.prompt_len as u64,
            thinking_tokens: self
                .budget
                .as_ref()
                .map_or(0, |b| u64::from(b.thinking_tokens())),
            response_tokens: u64::from(self.counts.answer),
            cached_tokens: cached,
        };
        let mut passes = Vec::new();
        if let Some(budget_tokens) = self.budget_tokens {
            let closed = self
                .closed
                .unwrap_or(if budget_tokens == 0 { start } else { now });
            passes.push(PassReport {
                name: "thinking",
                means: "engine_rule",
                max_tokens: Some(budget_tokens),
                prefill_tokens: prefilled,
                cached_tokens: cached,
                decode_tokens: u64::from(self.counts.thinking),
                duration_ms: millis(start, closed),
                stop_reason: self.thinking_stop(&total_reason, truncated),
            });
            passes.push(PassReport {
                name: "answer",
                means: "engine_rule",
                max_tokens: self.effective_cap(self.counts.at_close),
                prefill_tokens: self.counts.forced as u64,
                cached_tokens: self.counts.at_close as u64,
                decode_tokens: u64::from(self.counts.answer),
                duration_ms: millis(closed, now),
                stop_reason: total_reason,
            });
        } else {
            passes.push(PassReport {
                name: "single",
                means: "single",
                max_tokens: self.effective_cap(self.prompt_len),
                prefill_tokens: prefilled,
                cached_tokens: cached,
                decode_tokens: u64::from(self.counts.answer),
                duration_ms: millis(start, now),
                stop_reason: total_reason,
            });
        }
        Outcome {
            stop,
            passes,
            usage,
            thinking_truncated: truncated || self.context_cut,
            ended_in_thought: self.ended_in_thought,
            grammar_failure: self.grammar_failure.clone(),
            is_hurried: self.ending.is_hurried && is_whole,
        }
    }

    /// The answer's cap, or the room behind `start` where that is less.
    fn effective_cap(&self, start: usize) -> Option<u32> {
        let room = self.limit_tokens.saturating_sub(start + self.counts.forced);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        self.max_tokens.map(|cap| cap.min(room))
    }

    fn thinking_stop(&self, total: &StopReason, truncated: bool) -> StopReason {
        if truncated || self.context_cut || self.budget_tokens == Some(0) {
            StopReason::Length
        } else if self.ended_in_thought {
            StopReason::EndTurn
        } else if self.closed.is_some() {
            StopReason::StopSequence(self.close_tag.to_owned())
        } else {
            total.clone()
        }
    }
}
