//! What keeps a run on its way: which turns may go on, which are sent back with a nudge, and
//! when to give up (row L1).
//!
//! A caller of its own loop asks [`Guardrails::check`] about each turn and tells
//! [`Guardrails::record`] what the calls gave; neither does any IO.

use std::collections::HashSet;

use twopass_core::chat::{DiagnosticKind, Reply, StopReason, ToolCall};
use twopass_tools::ToolOutput;

use crate::EndReason;
use crate::nudge::{Nudge, NudgeKind, NudgeTexts};
use crate::repetition::Repetition;

/// The limits and duties of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How often the model may be asked. 10.
    pub max_steps: u32,
    /// How many tokens, in and out, the run may take; `None` = as many as its steps take.
    pub max_tokens: Option<u64>,
    /// Whether text that reads as calls in another dialect is taken for them. On.
    pub rescue: bool,
    /// How many turns in a row may hold nothing readable before the run ends. 3.
    pub max_retries: u32,
    /// How often an empty turn is asked for again. 1.
    pub max_empty: u32,
    /// How many steps in a row may have failing calls only. 2: the third ends the run.
    pub max_tool_errors: u32,
    /// How often in a row the same calls may give the same results. 3: then comes a nudge,
    /// and the fourth time ends the run.
    pub max_repeats: u32,
    /// Tools that must have succeeded before an answer or a terminal tool counts.
    pub required_steps: Vec<String>,
    /// Whether the model's turns are bound, by tool choice, to the next required step. Off.
    pub force_required: bool,
    /// Tools whose success ends the run; their result is the answer.
    pub terminal_tools: Vec<String>,
    /// How often the model may answer too early. 3.
    pub max_premature: u32,
    /// What has to come before what.
    pub prerequisites: Vec<Prerequisite>,
    /// How often a prerequisite may be skipped. 2.
    pub max_prerequisite_errors: u32,
    /// What the model is told.
    pub texts: NudgeTexts,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_steps: 10,
            max_tokens: None,
            rescue: true,
            max_retries: 3,
            max_empty: 1,
            max_tool_errors: 2,
            max_repeats: 3,
            required_steps: Vec::new(),
            force_required: false,
            terminal_tools: Vec::new(),
            max_premature: 3,
            prerequisites: Vec::new(),
            max_prerequisite_errors: 2,
            texts: NudgeTexts::default(),
        }
    }
}

/// A tool that may be called only after another one has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prerequisite {
    /// The tool that has to wait.
    pub tool: String,
    /// The tool that comes first.
    pub needs: String,
    /// An argument that must have had the same value in both calls.
    pub same_argument: Option<String>,
}

/// What is to be done with a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Its calls run, the invalid ones are reported, and [`Guardrails::record`] hears of all.
    Execute,
    /// It is the answer.
    Answer,
    /// The model is told, by a user message, and asked again.
    Retry(Nudge),
    /// None of its calls runs; each is answered with this.
    Blocked(Nudge),
    /// The run is over.
    Stop(EndReason),
}

/// What follows a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The model is asked again.
    Continue,
    /// The model is told something first.
    Nudge(Nudge),
    /// A terminal tool succeeded: the result with this index is the answer.
    Finished(usize),
    /// The run is over.
    Stop(EndReason),
}

/// The guardrails of one run.
#[derive(Debug, Clone)]
pub struct Guardrails {
    rules: Rules,
    /// The calls that succeeded.
    done: Vec<ToolCall>,
    n_unreadable: u32,
    n_empty: u32,
    n_failed_steps: u32,
    n_premature: u32,
    n_prerequisite_errors: u32,
    repetition: Repetition,
}

impl Guardrails {
    /// The guardrails of a run that has not begun.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            repetition: Repetition::new(rules.max_repeats),
            rules,
            done: Vec::new(),
            n_unreadable: 0,
            n_empty: 0,
            n_failed_steps: 0,
            n_premature: 0,
            n_prerequisite_errors: 0,
        }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Judges a turn before anything of it is carried out. Calls decide, not the stop
    /// reason that the model gave.
    pub fn check(&mut self, reply: &Reply) -> Verdict {
        if !reply.tool_calls.is_empty() {
            return self.check_calls(&reply.tool_calls);
        }
        let mut invalid = reply.invalid_tool_calls.iter();
        if invalid.clone().any(|call| call.name.is_some()) {
            return Verdict::Execute;
        }
        if let Some(call) = invalid.next() {
            let text = self.rules.texts.unreadable(&call.message);
            return self.retry_unreadable(NudgeKind::UnreadableCall, text);
        }
        if reply.content.trim().is_empty() {
            return self.check_empty(&reply.stop_reason);
        }
        if !self.missing_steps().is_empty() {
            return self.premature(Verdict::Retry);
        }
        let lacks_call = |kind| kind == DiagnosticKind::MissingToolCall;
        if reply.diagnostics.iter().any(|note| lacks_call(note.kind)) {
            let text = self.rules.texts.call_needed.clone();
            return self.retry_unreadable(NudgeKind::CallNeeded, text);
        }
        Verdict::Answer
    }

    /// Takes what the calls of a turn gave, invalid ones included, in call order.
    pub fn record(&mut self, results: &[(ToolCall, ToolOutput)]) -> Progress {
        let succeeded = results.iter().filter(|(_, output)| !output.is_error());
        self.done.extend(succeeded.map(|(call, _)| call.clone()));
        let is_terminal = |(call, output): &(ToolCall, ToolOutput)| {
            !output.is_error() && self.rules.terminal_tools.contains(&call.name)
        };
        if let Some(at) = results.iter().position(is_terminal) {
            return Progress::Finished(at);
        }
        if results.iter().all(|(_, output)| output.is_error()) {
            self.n_failed_steps += 1;
            if self.n_failed_steps > self.rules.max_tool_errors {
                return Progress::Stop(EndReason::RepeatedFailures);
            }
            return Progress::Continue;
        }
        self.n_failed_steps = 0;
        self.n_unreadable = 0;
        self.n_empty = 0;
        match self.repetition.record(results) {
            0 => Progress::Continue,
            1 => Progress::Nudge(Nudge {
                kind: NudgeKind::Repetition,
                level: 1,
                text: self.rules.texts.repetition.clone(),
            }),
            _ => Progress::Stop(EndReason::LoopDetected),
        }
    }

    fn check_calls(&mut self, calls: &[ToolCall]) -> Verdict {
        let ends = |call: &ToolCall| self.rules.terminal_tools.contains(&call.name);
        if calls.iter().any(ends) && !self.missing_steps().is_empty() {
            return self.premature(Verdict::Blocked);
        }
        let broken = calls.iter().find_map(|call| {
            let mut rules = self.rules.prerequisites.iter();
            let rule = rules.find(|rule| rule.tool == call.name && !self.is_met(rule, call))?;
            Some(self.rules.texts.prerequisite(rule))
        });
        let Some(text) = broken else {
            return Verdict::Execute;
        };
        self.n_prerequisite_errors += 1;
        if self.n_prerequisite_errors > self.rules.max_prerequisite_errors {
            return Verdict::Stop(EndReason::PrerequisiteMissing);
        }
        Verdict::Blocked(Nudge {
            kind: NudgeKind::Prerequisite,
            level: level(self.n_prerequisite_errors),
            text,
        })
    }

    fn check_empty(&mut self, stop_reason: &StopReason) -> Verdict {
        self.n_empty += 1;
        // What a provider withholds once, it withholds again.
        let is_withheld = *stop_reason == StopReason::ContentFilter;
        if is_withheld || self.n_empty > self.rules.max_empty {
            return Verdict::Stop(EndReason::EmptyAnswer);
        }
        let text = match stop_reason {
            StopReason::Length => &self.rules.texts.cut_short,
            _ => &self.rules.texts.empty,
        };
        Verdict::Retry(Nudge {
            kind: NudgeKind::EmptyAnswer,
            level: level(self.n_empty),
            text: text.clone(),
        })
    }

    fn retry_unreadable(&mut self, kind: NudgeKind, text: String) -> Verdict {
        self.n_unreadable += 1;
        if self.n_unreadable > self.rules.max_retries {
            return Verdict::Stop(EndReason::RepeatedFailures);
        }
        let level = level(self.n_unreadable);
        Verdict::Retry(Nudge { kind, level, text })
    }

    fn premature(&mut self, verdict: impl FnOnce(Nudge) -> Verdict) -> Verdict {
        self.n_premature += 1;
        if self.n_premature > self.rules.max_premature {
            return Verdict::Stop(EndReason::StepsMissing);
        }
        let level = level(self.n_premature);
        verdict(Nudge {
            kind: NudgeKind::StepsMissing,
            level,
            text: self.rules.texts.steps_missing(level, &self.missing_steps()),
        })
    }

    /// The tool that the next turn has to call, if turns are bound to the required steps.
    #[must_use]
    pub fn forced_tool(&self) -> Option<&str> {
        let missing = self.missing_steps();
        missing
            .first()
            .copied()
            .filter(|_| self.rules.force_required)
    }

    fn missing_steps(&self) -> Vec<&str> {
        let done: HashSet<&str> = self.done.iter().map(|call| call.name.as_str()).collect();
        let required = self.rules.required_steps.iter().map(String::as_str);
        required.filter(|step| !done.contains(step)).collect()
    }

    fn is_met(&self, rule: &Prerequisite, call: &ToolCall) -> bool {
        let value = |call: &ToolCall, name: &str| call.arguments.as_object().get(name).cloned();
        self.done.iter().any(|earlier| {
            earlier.name == rule.needs
                && rule
                    .same_argument
                    .as_deref()
                    .is_none_or(|name| value(earlier, name) == value(call, name))
        })
    }
}

/// Nudges have three levels; later ones keep the last.
fn level(nth: u32) -> u8 {
    u8::try_from(nth).unwrap_or(3).clamp(1, 3)
}
