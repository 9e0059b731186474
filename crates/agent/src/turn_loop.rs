//! The loop of one run, as a state machine without IO (row I9).
//!
//! ```text
//!  state     what came                    next
//!  Ready     -                            compact if needed; steps and tokens left: Asking,
//!                                         else Ended
//!  Asking    a turn with calls            Running; blocked by a guardrail: Ready, every call
//!                                         answered with the reason
//!            a turn with an answer        Ended
//!            an empty or broken turn      Ready, after a nudge; too often: Ended
//!            failure                      Ended; context full for the first time: Ready,
//!                                         after a compaction
//!  Running   the last result              Ready; a terminal tool, too many failures, a
//!                                         circle: Ended
//!  any       cancel                       Ended; calls without a result get one
//! ```

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use twopass_core::chat::{
    Arguments, CallErrorKind, Event, InvalidToolCall, Message, Reply, ToolCall, Usage,
};
use twopass_core::tool_parser::ToolSet;
use twopass_provider::{ErrorKind, ProviderError};
use twopass_tools::{ErrorKind as ToolErrorKind, ToolError, ToolOutput};

use crate::compaction::{Entry, TokenGauge, compact};
use crate::guardrails::{Guardrails, Progress, Rules, Verdict};
use crate::{AgentEvent, Compaction, EndReason, Nudge, NudgeKind, Outcome, rescue};

/// Parts of the context, in per cent, whose filling is told.
const FILLING_PERCENT: [u8; 3] = [50, 65, 80];
/// Tokens of the context that is assumed when a service says only that it is full: what was
/// sent, and this part of it is to remain.
const ASSUMED_PART: f64 = 0.6;

/// How a run goes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoopOptions {
    /// Limits and duties.
    pub rules: Rules,
    /// What happens when the history fills the context.
    pub compaction: Compaction,
    /// Tokens of the model's context; `None` = not known: then the history is made shorter
    /// only when the model says that it is full.
    pub context_tokens: Option<u64>,
    /// Calls that fail their checks are dropped instead of reported back (X17).
    pub drop_invalid_calls: bool,
}

/// What a driver does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Hand this on.
    Emit(AgentEvent),
    /// Ask the model with these messages; report its events and its reply, or the failure.
    Ask(Vec<Message>),
    /// Run these calls; report each result.
    Run(Vec<ToolCall>),
    /// Wait for what was asked for and report it.
    Wait,
    /// The run is over, and all of it has been handed on.
    Done,
}

/// A run under way.
pub struct TurnLoop {
    options: LoopOptions,
    tools: Arc<ToolSet>,
    guardrails: Guardrails,
    state: State,
    history: Vec<Entry>,
    gauge: TokenGauge,
    /// Ids of all calls, those of dropped messages included.
    ids: HashSet<String>,
    /// The turn's call ids, in the order of the model's output.
    call_order: Vec<(usize, String)>,
    events: VecDeque<AgentEvent>,
    n_steps: u32,
    usage: Usage,
    last: Reply,
    n_fillings_told: usize,
    was_full: bool,
}

enum State {
    Ready,
    Asking { sent: bool },
    Running(Round),
    Ended(Box<Outcome>),
}

/// The calls of a turn and their results so far.
struct Round {
    calls: Vec<ToolCall>,
    outputs: Vec<Option<ToolOutput>>,
    sent: bool,
    /// What the model is told after the results.
    note: Option<Nudge>,
}

impl TurnLoop {
    /// A run over this conversation with these tools.
    #[must_use]
    pub fn new(options: LoopOptions, messages: Vec<Message>, tools: Arc<ToolSet>) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        let ids = calls.map(|call| call.id.clone()).collect();
        let entry = |message| Entry {
            message,
            is_nudge: false,
        };
        Self {
            guardrails: Guardrails::new(options.rules.clone()),
            options,
            tools,
            state: State::Ready,
            history: messages.into_iter().map(entry).collect(),
            gauge: TokenGauge::default(),
            ids,
            call_order: Vec::new(),
            events: VecDeque::new(),
            n_steps: 0,
            usage: Usage::default(),
            last: Reply::default(),
            n_fillings_told: 0,
            was_full: false,
        }
    }

    /// What to do next.
    pub fn poll(&mut self) -> Step {
        if let State::Ready = self.state {
            self.begin_step();
        }
        if let Some(event) = self.events.pop_front() {
            return Step::Emit(event);
        }
        match &mut self.state {
            State::Asking { sent: sent @ false } => {
                *sent = true;
                Step::Ask(self.messages())
            }
            State::Running(round) if !round.sent => {
                round.sent = true;
                Step::Run(round.open_calls())
            }
            State::Ready | State::Asking { .. } | State::Running(_) => Step::Wait,
            State::Ended(_) => Step::Done,
        }
    }

    /// The tool that the next turn has to call, if the rules bind it.
    #[must_use]
    pub fn forced_tool(&self) -> Option<&str> {
        self.guardrails.forced_tool()
    }

    /// The tools that are offered from the next step on.
    pub fn set_tools(&mut self, tools: Arc<ToolSet>) {
        self.tools = tools;
    }

    /// Replaces the first message, which holds the instructions, from the next step on.
    pub fn set_instructions(&mut self, message: Message) {
        match self.history.first_mut() {
            Some(first) if first.message.role == message.role => first.message = message,
            _ => self.history.insert(
                0,
                Entry {
                    message,
                    is_nudge: false,
                },
            ),
        }
    }

    /// Reports an event of the model's turn.
    pub fn handle_event(&mut self, event: Event) {
        match &event {
            Event::CallFinished { call_idx, call } => {
                self.call_order.push((*call_idx, call.id.clone()));
            }
            Event::CallRejected { call_idx, call } => {
                self.call_order.push((*call_idx, call.id.clone()));
            }
            Event::Reclassified => self.call_order.clear(),
            _ => {}
        }
        self.events.push_back(AgentEvent::Delta(event));
    }

    /// Reports the whole turn.
    pub fn handle_reply(&mut self, mut reply: Reply) {
        if !matches!(self.state, State::Asking { .. }) {
            return;
        }
        self.count(&reply.usage);
        if self.options.rules.rescue {
            let history: Vec<&Message> = self.history.iter().map(|entry| &entry.message).collect();
            rescue::rescue(&mut reply, &self.tools, &self.ids, &history);
        }
        if self.options.drop_invalid_calls {
            reply.invalid_tool_calls.clear();
        }
        self.own_ids(&mut reply);
        self.events.push_back(AgentEvent::StepFinished {
            step: self.n_steps,
            reply: Box::new(reply.clone()),
        });
        let verdict = self.guardrails.check(&reply);
        let (calls, outputs) = self.calls_of(&reply);
        self.push(Message {
            tool_calls: calls.clone(),
            ..reply.to_message()
        });
        let note = (!calls.is_empty()).then(|| self.note_of(&reply)).flatten();
        self.last = reply;
        let mut round = Round {
            calls,
            outputs,
            sent: false,
            note,
        };
        match verdict {
            Verdict::Execute => {
                self.tell_results(&round);
                self.state = State::Running(round);
                self.end_round();
            }
            Verdict::Answer => {
                let answer = self.last.content.clone();
                self.end(EndReason::Answer, answer, None);
            }
            Verdict::Retry(nudge) => {
                self.nudge(nudge);
                self.state = State::Ready;
            }
            Verdict::Blocked(nudge) => {
                round.refuse(ToolErrorKind::Refused, &nudge.text);
                self.tell_results(&round);
                self.push_results(round);
                self.events.push_back(AgentEvent::Nudged(nudge));
                self.state = State::Ready;
            }
            Verdict::Stop(reason) => {
                round.refuse(ToolErrorKind::Refused, "the run ended before this call");
                self.tell_results(&round);
                self.push_results(round);
                self.end(reason, String::new(), None);
            }
        }
    }

    /// Reports that the model could not be asked, or failed in the middle of its turn.
    pub fn handle_failure(&mut self, error: ProviderError) {
        if !matches!(self.state, State::Asking { .. }) {
            return;
        }
        self.call_order.clear();
        if error.kind() == ErrorKind::ContextLength && !self.was_full && self.shrink() {
            self.was_full = true;
            self.state = State::Ready;
            return;
        }
        if let Some(partial) = error.partial() {
            self.count(&partial.usage);
            self.last = partial.clone();
        }
        self.end(EndReason::Error, String::new(), Some(Arc::new(error)));
    }

    /// Reports the result of a call. The first one counts.
    pub fn handle_result(&mut self, call_id: &str, output: ToolOutput) {
        let State::Running(round) = &mut self.state else {
            return;
        };
        let open = round.calls.iter().zip(&mut round.outputs);
        for (call, slot) in open {
            if call.id == call_id && slot.is_none() {
                self.events.push_back(AgentEvent::CallFinished {
                    call: call.clone(),
                    output: output.clone(),
                });
                *slot = Some(output);
                break;
            }
        }
        self.end_round();
    }

    /// Ends the run. Calls that have no result get one that says so.
    pub fn handle_cancel(&mut self) {
        match std::mem::replace(&mut self.state, State::Ready) {
            ended @ State::Ended(_) => {
                self.state = ended;
                return;
            }
            State::Running(mut round) => {
                let open = round.open_calls();
                round.refuse(ToolErrorKind::Failed, "the user interrupted this call");
                for (call, output) in round.results() {
                    if open.iter().any(|one| one.id == call.id) {
                        self.events
                            .push_back(AgentEvent::CallFinished { call, output });
                    }
                }
                self.push_results(round);
            }
            State::Ready | State::Asking { .. } => {}
        }
        self.end(EndReason::Cancelled, String::new(), None);
    }

    /// What the run came to; a run that is not over is cancelled.
    #[must_use]
    pub fn into_outcome(mut self) -> Outcome {
        self.handle_cancel();
        match self.state {
            State::Ended(outcome) => *outcome,
            _ => self.outcome_so_far(EndReason::Cancelled),
        }
    }

    /// The conversation so far, as the model sees it.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let messages = self.history.iter().map(|entry| entry.message.clone());
        messages.collect()
    }

    fn begin_step(&mut self) {
        let spent = self.usage.prompt_tokens + self.usage.thinking_tokens;
        let spent = spent + self.usage.response_tokens;
        if self.n_steps >= self.options.rules.max_steps {
            return self.end(EndReason::MaxSteps, String::new(), None);
        }
        if self
            .options
            .rules
            .max_tokens
            .is_some_and(|max| spent >= max)
        {
            return self.end(EndReason::BudgetSpent, String::new(), None);
        }
        if let Some(context) = self.options.context_tokens {
            self.fit(context);
        }
        self.n_steps += 1;
        self.call_order.clear();
        self.state = State::Asking { sent: false };
        let step = self.n_steps;
        self.events.push_back(AgentEvent::StepStarted { step });
    }

    /// Tells how full the context is, and makes the history shorter if it is too full.
    fn fit(&mut self, context: u64) {
        let tokens = self.gauge.tokens(&self.history);
        let is_reached = |percent: &&u8| tokens * 100 >= context * u64::from(**percent);
        let n_reached = FILLING_PERCENT.iter().take_while(is_reached).count();
        for percent in &FILLING_PERCENT[self.n_fillings_told.min(n_reached)..n_reached] {
            self.events
                .push_back(AgentEvent::ContextFilling { percent: *percent });
        }
        self.n_fillings_told = self.n_fillings_told.max(n_reached);
        let how = self.options.compaction;
        if let Some(done) = compact(&mut self.history, how, context, self.gauge) {
            self.events.push_back(AgentEvent::Compacted(done));
        }
    }

    /// Makes the history shorter than what the service just refused; false if it cannot be.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an estimate, never negative"
    )]
    fn shrink(&mut self) -> bool {
        let how = self.options.compaction;
        let assumed = (self.gauge.tokens(&self.history) as f64 * ASSUMED_PART) as u64;
        let done = compact(&mut self.history, how, assumed.max(1), self.gauge);
        self.events.extend(done.map(AgentEvent::Compacted));
        done.is_some()
    }

    fn count(&mut self, usage: &Usage) {
        self.gauge.learn(&self.history, usage.prompt_tokens);
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.thinking_tokens += usage.thinking_tokens;
        self.usage.response_tokens += usage.response_tokens;
        self.usage.cached_tokens += usage.cached_tokens;
    }

    /// Ids are unique over the whole conversation, also where a provider saw only a part of
    /// it.
    fn own_ids(&mut self, reply: &mut Reply) {
        let valid = reply.tool_calls.iter_mut().map(|call| &mut call.id);
        let invalid = reply.invalid_tool_calls.iter_mut().map(|call| &mut call.id);
        for id in valid.chain(invalid) {
            if id.is_empty() || self.ids.contains(id.as_str()) {
                let free = (1..).map(|n| format!("call_{n}"));
                let mut free = free.filter(|id| !self.ids.contains(id));
                let new = free.next().unwrap_or_default();
                for (_, old) in &mut self.call_order {
                    if *old == *id {
                        old.clone_from(&new);
                        break;
                    }
                }
                *id = new;
            }
            self.ids.insert(id.clone());
        }
    }

    /// The calls of a turn in the order in which they were written, with the results that
    /// are known without running them.
    fn calls_of(&self, reply: &Reply) -> (Vec<ToolCall>, Vec<Option<ToolOutput>>) {
        let valid = reply.tool_calls.iter().map(|call| (call.clone(), None));
        let invalid = reply.invalid_tool_calls.iter().filter_map(|call| {
            let shown = ToolCall {
                id: call.id.clone(),
                name: call.name.clone()?,
                arguments: Arguments::from_text(call.arguments.clone())
                    .unwrap_or_else(|_| Arguments::from_object(serde_json::Map::new())),
            };
            Some((shown, Some(self.report(call))))
        });
        let mut calls: Vec<_> = valid.chain(invalid).collect();
        let place = |id: &str| {
            let known = self.call_order.iter().find(|(_, known)| known == id);
            known.map_or(usize::MAX, |(call_idx, _)| *call_idx)
        };
        calls.sort_by_key(|(call, _)| place(&call.id));
        calls.into_iter().unzip()
    }

    /// What the model is told about a call that failed its checks.
    fn report(&self, call: &InvalidToolCall) -> ToolOutput {
        let kind = match call.kind {
            CallErrorKind::UnknownTool => ToolErrorKind::UnknownTool,
            CallErrorKind::ArgumentsTooLarge => ToolErrorKind::TooLarge,
            CallErrorKind::ToolChoiceViolation | CallErrorKind::TooManyCalls => {
                ToolErrorKind::Refused
            }
            _ => ToolErrorKind::InvalidArguments,
        };
        let name = call.name.as_deref().unwrap_or_default();
        let place = call.path.as_deref().filter(|path| !path.is_empty());
        let place = place.map_or_else(String::new, |path| format!(" at `{path}`"));
        let message = match call.kind {
            CallErrorKind::UnknownTool => {
                let names: Vec<_> = self.tools.names().map(|name| format!("`{name}`")).collect();
                match names.is_empty() {
                    true => format!("unknown tool `{name}`, there are no tools"),
                    false => format!("unknown tool `{name}`, the tools are {}", names.join(", ")),
                }
            }
            CallErrorKind::TruncatedToolCall => format!(
                "the call of `{name}` was truncated by the token limit and did not run: write \
                 less in one call"
            ),
            _ => format!("bad call of `{name}`{place}: {}", call.message),
        };
        ToolError::new(kind, message).into()
    }

    /// What the model is told about calls that have not even a name, beside its other calls.
    fn note_of(&self, reply: &Reply) -> Option<Nudge> {
        let mut invalid = reply.invalid_tool_calls.iter();
        let call = invalid.find(|call| call.name.is_none())?;
        Some(Nudge {
            kind: NudgeKind::UnreadableCall,
            level: 1,
            text: self.options.rules.texts.unreadable(&call.message),
        })
    }

    /// Hands on the results that are there before anything ran.
    fn tell_results(&mut self, round: &Round) {
        for (call, output) in round.results() {
            self.events
                .push_back(AgentEvent::CallFinished { call, output });
        }
    }

    /// Goes on if every call of the step has its result.
    fn end_round(&mut self) {
        let State::Running(round) = &self.state else {
            return;
        };
        if round.outputs.iter().any(Option::is_none) {
            return;
        }
        let State::Running(mut round) = std::mem::replace(&mut self.state, State::Ready) else {
            return;
        };
        let results = round.results();
        let note = round.note.take();
        self.push_results(round);
        match self.guardrails.record(&results) {
            Progress::Continue => note.into_iter().for_each(|nudge| self.nudge(nudge)),
            Progress::Nudge(nudge) => self.nudge(nudge),
            Progress::Finished(at) => {
                let answer = results[at].1.text.clone();
                self.end(EndReason::Answer, answer, None);
            }
            Progress::Stop(reason) => self.end(reason, String::new(), None),
        }
    }

    fn push_results(&mut self, round: Round) {
        for (call, output) in round.results() {
            self.push(Message {
                is_error: output.is_error(),
                ..Message::tool_result(call.id, output.text)
            });
        }
    }

    fn nudge(&mut self, nudge: Nudge) {
        self.history.push(Entry {
            message: Message::text(twopass_core::chat::Role::User, nudge.text.clone()),
            is_nudge: true,
        });
        self.events.push_back(AgentEvent::Nudged(nudge));
    }

    fn push(&mut self, message: Message) {
        let is_empty = message.content.is_empty()
            && message.tool_calls.is_empty()
            && message.reasoning.is_none();
        if !is_empty {
            self.history.push(Entry {
                message,
                is_nudge: false,
            });
        }
    }

    fn end(&mut self, end: EndReason, answer: String, error: Option<Arc<ProviderError>>) {
        let outcome = Box::new(Outcome {
            answer,
            error,
            ..self.outcome_so_far(end)
        });
        self.state = State::Ended(outcome.clone());
        self.events.push_back(AgentEvent::Ended(outcome));
    }

    fn outcome_so_far(&mut self, end: EndReason) -> Outcome {
        Outcome {
            end,
            answer: String::new(),
            last: std::mem::take(&mut self.last),
            messages: self.messages(),
            n_steps: self.n_steps,
            usage: self.usage,
            error: None,
        }
    }
}

impl Round {
    fn open_calls(&self) -> Vec<ToolCall> {
        let slots = self.calls.iter().zip(&self.outputs);
        let open = slots.filter(|(_, output)| output.is_none());
        open.map(|(call, _)| call.clone()).collect()
    }

    /// The calls that have a result, with it.
    fn results(&self) -> Vec<(ToolCall, ToolOutput)> {
        let slots = self.calls.iter().zip(&self.outputs);
        let done = slots.filter_map(|(call, output)| Some((call.clone(), output.clone()?)));
        done.collect()
    }

    /// Answers every open call with this failure.
    fn refuse(&mut self, kind: ToolErrorKind, why: &str) {
        for output in self.outputs.iter_mut().filter(|output| output.is_none()) {
            *output = Some(ToolError::new(kind, why).into());
        }
    }
}
