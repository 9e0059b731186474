//! One turn in one or two passes, as a state machine.
//!
//! ```text
//!  state      what ended the pass                        next
//!  Start      -                                          Send(thinking) or Send(answer)
//!  Thinking   closing tag (stop string or text)          put the tag back, Send(answer)
//!             cap                                        write the close, Send(answer)
//!             end of turn inside the thought             write the close, Send(answer)
//!             end of turn, no thought was opened         Done: the text is the answer
//!             cap, no thought was opened                 Send(answer) after the text so far
//!             failure                                    Failed
//!  Answering  our call marker inside an open JSON string put it back, Send(answer) again
//!             a caller's stop string inside a thought    put it back, Send(answer) without it
//!             a caller's stop string in the answer       Done; nothing after it counts
//!             anything else                              Done
//!             failure                                    Failed, the thought is kept
//! ```
//! With [`Means::EngineRule`] there is one send: the engine keeps the budget and writes the
//! close itself, so the turn goes from `Start` to `Answering` at once.

use std::collections::VecDeque;

use super::budget::ThinkingRule;
use super::turn_parser::{AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions};
use super::visible_logprobs::VisibleLogprobs;
use crate::chat::{
    CallErrorKind, Diagnostic, DiagnosticKind, Event, InvalidToolCall, PassReport, Reply,
    StopReason, ThinkTag, TokenLogprob, TurnBudget, Usage,
};
use crate::chat_template::ThinkFraming;
use crate::text::StopMatcher;

/// Times that a call marker inside a JSON string may be put back before the turn ends.
const MAX_CALL_RESUMES: u32 = 8;

/// The answer of a turn that was cut inside its only call.
const CUT_CALL_TEXT: &str = "The reply ended before its tool call was complete.";

/// How a capped thought is made to happen on a text engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The engine in this process keeps the budget as a rule in its sampler.
    EngineRule,
    /// Two requests, the second of which continues the text of the first.
    Continuation,
}

/// Everything a turn needs to know before its first pass.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    /// The caps.
    pub budget: TurnBudget,
    /// How a capped thought is made.
    pub means: Means,
    /// The tag that the prompt already leaves open (row D12).
    pub opened_by_template: Option<ThinkTag>,
    /// Whether to open the block ourselves where the prompt does not. False for upstreams
    /// that take no text after the assistant boundary in pass 1 (row D11).
    pub open_block: bool,
    /// True if the prompt ends in a whole empty block: there is nothing to think.
    pub closed_by_template: bool,
    /// The template's own spacing around a thought.
    pub framing: ThinkFraming,
    /// The caller's stop strings; they apply to the answer only.
    pub stop: Vec<String>,
    /// The marker that ends a call, as a further stop string of the answer (row E4).
    pub call_stop: Option<String>,
    /// The texts that open and close a call, if a call inside the thought may end the turn.
    pub call_markers: Option<(String, String)>,
    /// True if a grammar binds the answer to calls: then no text of it is an answer.
    pub only_calls: bool,
    /// The parser of this turn. Its `prompt_opened` is set by the plan.
    pub parser: TurnParserOptions,
}

/// One pass to run: the prompt, then `continuation`, then what the model writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassRequest {
    /// `thinking` or `answer`.
    pub name: &'static str,
    /// Text of the assistant's turn so far, right after the assistant boundary.
    pub continuation: String,
    /// The cap. With `thinking` set it is the answer's cap alone.
    pub max_tokens: Option<u32>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The budget that the engine keeps, for [`Means::EngineRule`].
    pub thinking: Option<ThinkingRule>,
}

/// What a driver does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Open this pass.
    Send(PassRequest),
    /// Wait for more of the open pass and report it.
    Read,
    /// Hand this on.
    Emit(Event),
    /// The turn is over.
    Done(Box<Reply>),
}

/// How a pass ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PassEnd {
    /// Why.
    pub stop_reason: StopReason,
    /// What the engine counted, one entry per pass that it ran (two for an engine rule).
    pub reports: Vec<PassReport>,
    /// Tokens; an engine with a rule splits thinking and answer itself, for the others
    /// `response_tokens` holds all that the pass generated.
    pub usage: Usage,
    /// True if an engine's rule closed the thought at the cap.
    pub thinking_truncated: bool,
    /// True if an engine's rule closed a thought in which the model had ended its turn.
    pub ended_in_thought: bool,
}

/// A turn under way.
pub struct TwoPass {
    plan: TurnPlan,
    state: State,
    parser: TurnParser,
    reply: ReplyAssembler,
    logprobs: VisibleLogprobs,
    events: VecDeque<Event>,
    /// The assistant's text so far, as the model is made to see it.
    written: String,
    usage: Usage,
    truncated: bool,
    resumes: u32,
    /// Looks for the caller's stop strings in the answer, for engines that do not.
    stops: StopMatcher,
    /// The stop string that was found so.
    cut_by: Option<String>,
    /// False once a stop string was met inside a thought: from then on only we look for them.
    engine_stops: bool,
    finished: Option<Box<Reply>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Thinking,
    /// The pass ended; the answer pass is to be opened.
    ToAnswer,
    Answering,
    Done,
}

impl TwoPass {
    /// A turn at its start.
    #[must_use]
    pub fn new(mut plan: TurnPlan) -> Self {
        let mut written = String::new();
        if let TurnBudget::TwoPass {
            tag,
            max_thinking_tokens,
            ..
        } = plan.budget
        {
            plan.framing = plan
                .framing
                .with_tag(plan.opened_by_template.unwrap_or(tag));
            let opens = plan.opened_by_template.is_some() || plan.open_block;
            if plan.opened_by_template.is_none() && plan.open_block && !plan.closed_by_template {
                written.push_str(&plan.framing.open);
            }
            if max_thinking_tokens == 0 && opens && !plan.closed_by_template {
                written.push_str(plan.framing.close.trim_start());
            }
        }
        let parser_opened = plan.opened_by_template.is_some() || !written.is_empty();
        let mut options = plan.parser.clone();
        if parser_opened {
            options.prompt_opened = Some(true);
        } else if plan.closed_by_template {
            options.prompt_opened = Some(false);
        }
        if options.answer_form == AnswerForm::Bound
            && matches!(plan.budget, TurnBudget::OnePass { .. })
        {
            // Without a budget nothing closes a block that the template opened: the grammar
            // holds from the first token on.
            options.prompt_opened = Some(false);
        }
        let mut turn = Self {
            parser: TurnParser::new(options),
            stops: StopMatcher::new(plan.stop.clone()),
            cut_by: None,
            engine_stops: true,
            plan,
            state: State::Start,
            reply: ReplyAssembler::default(),
            logprobs: VisibleLogprobs::default(),
            events: VecDeque::new(),
            written,
            usage: Usage::default(),
            truncated: false,
            resumes: 0,
            finished: None,
        };
        if turn.plan.budget_is_zero() && parser_opened {
            let close = turn.plan.framing.close.trim_start().to_owned();
            turn.parse(&close);
        }
        turn
    }

    /// What to do next.
    pub fn poll(&mut self) -> Step {
        if let Some(event) = self.events.pop_front() {
            return Step::Emit(event);
        }
        match self.state {
            State::Start => Step::Send(self.first_pass()),
            State::ToAnswer => Step::Send(self.answer_pass()),
            State::Thinking | State::Answering => Step::Read,
            State::Done => Step::Done(self.finished.take().unwrap_or_default()),
        }
    }

    /// Adds a diagnostic of the caller's to the turn.
    pub fn handle_note(&mut self, note: Diagnostic) {
        self.emit(Event::Diagnostic(note));
    }

    /// True inside the thought.
    #[must_use]
    pub fn in_thought(&self) -> bool {
        self.parser.in_reasoning()
    }

    /// Reports the tokens of text that comes next, if the engine was asked for them. Those of
    /// the answer that is shown are handed on.
    pub fn handle_logprobs(&mut self, tokens: Vec<TokenLogprob>) {
        self.logprobs.push(tokens);
    }

    /// Reports text of the open pass.
    pub fn handle_text(&mut self, text: &str) {
        if self.state != State::Done {
            self.write(text);
        }
    }

    /// Reports the end of the open pass.
    pub fn handle_pass_end(&mut self, end: PassEnd) {
        if self.state == State::Done {
            return;
        }
        self.count(&end);
        match self.state {
            State::Thinking => self.end_thinking(&end),
            State::Start | State::ToAnswer | State::Answering | State::Done => {
                self.end_answer(&end);
            }
        }
    }

    /// Reports that the open pass failed. The reply that follows holds what was received;
    /// a thought that was complete is kept (row D14).
    pub fn handle_failure(&mut self, message: &str) {
        let what = if self.state == State::Thinking {
            "thinking"
        } else {
            "answer"
        };
        self.emit(Event::Diagnostic(Diagnostic::new(
            DiagnosticKind::PassFailed,
            format!("the {what} pass failed: {message}"),
        )));
        self.finish(StopReason::Unknown("error".to_owned()), None);
    }

    fn first_pass(&mut self) -> PassRequest {
        match self.plan.budget {
            TurnBudget::TwoPass {
                max_thinking_tokens,
                ..
            } if max_thinking_tokens > 0 && !self.plan.closed_by_template => {
                if self.plan.means == Means::EngineRule {
                    return self.engine_pass();
                }
                self.state = State::Thinking;
                PassRequest {
                    name: "thinking",
                    continuation: self.written.clone(),
                    max_tokens: Some(max_thinking_tokens),
                    stop: [ThinkTag::Think, ThinkTag::Thinking]
                        .map(|tag| tag.close().to_owned())
                        .to_vec(),
                    thinking: None,
                }
            }
            TurnBudget::OnePass { .. } | TurnBudget::TwoPass { .. } => self.answer_pass(),
        }
    }

    fn engine_pass(&mut self) -> PassRequest {
        let mut request = self.answer_pass();
        if let TurnBudget::TwoPass {
            max_thinking_tokens,
            ..
        } = self.plan.budget
        {
            let markers = self.plan.call_markers.clone();
            request.thinking = Some(ThinkingRule {
                tag: self.plan.framing.tag,
                budget_tokens: max_thinking_tokens,
                close_text: self.plan.framing.close.clone(),
                call_open: markers.as_ref().map(|(open, _)| open.clone()),
                call_close: markers.map(|(_, close)| close),
            });
        }
        request
    }

    fn answer_pass(&mut self) -> PassRequest {
        self.state = State::Answering;
        let stop = self.plan.stop.iter().filter(|_| self.engine_stops);
        let stop = stop.chain(&self.plan.call_stop).cloned().collect();
        PassRequest {
            name: "answer",
            continuation: self.written.clone(),
            max_tokens: self.left_tokens(),
            stop,
            thinking: None,
        }
    }

    fn end_thinking(&mut self, end: &PassEnd) {
        self.state = State::ToAnswer;
        if let StopReason::StopSequence(tag) = &end.stop_reason {
            // The matched stop string is not part of the text: put the tag back.
            let close = if self.parser.in_reasoning() {
                self.plan.framing.close.trim_start().to_owned()
            } else {
                tag.clone()
            };
            self.write(&close);
            return;
        }
        if self.parser.in_call() {
            // A call began inside the thought: it is never cut by a close.
            return;
        }
        if self.parser.in_reasoning() {
            if end.stop_reason == StopReason::Length {
                self.truncated = true;
            } else {
                self.ended_in_thought();
            }
            let close = self.plan.framing.close.clone();
            self.write(&close);
        } else if end.stop_reason != StopReason::Length {
            // The whole turn came in one pass: there is nothing left to ask for.
            self.finish(end.stop_reason.clone(), None);
        }
    }

    fn end_answer(&mut self, end: &PassEnd) {
        if end.thinking_truncated {
            self.truncated = true;
        }
        if end.ended_in_thought {
            self.ended_in_thought();
        }
        let StopReason::StopSequence(met) = &end.stop_reason else {
            self.finish(end.stop_reason.clone(), None);
            return;
        };
        // What was matched is not part of the text.
        if Some(met) == self.plan.call_stop.as_ref() {
            // Put back, the marker ends the call, or it was data inside an open JSON string
            // and the call goes on.
            self.write(met);
            if self.state == State::Done {
                return;
            }
            if self.parser.in_call() && self.resumes < MAX_CALL_RESUMES {
                self.resumes += 1;
                self.go_on();
            } else {
                self.finish(StopReason::EndTurn, None);
            }
        } else if self.parser.in_reasoning() && self.engine_stops && self.plan.stop.contains(met) {
            self.write(met);
            self.engine_stops = false;
            self.go_on();
        } else {
            self.finish(end.stop_reason.clone(), Some(met.clone()));
        }
    }

    /// Goes on with the answer after a stop that was none, if the cap leaves anything.
    fn go_on(&mut self) {
        if self.left_tokens() == Some(0) {
            self.finish(StopReason::Length, None);
        } else {
            self.state = State::ToAnswer;
        }
    }

    /// What the cap of the answer leaves after what was counted of it.
    fn left_tokens(&self) -> Option<u32> {
        let cap = match self.plan.budget {
            TurnBudget::OnePass { max_tokens } => max_tokens?,
            TurnBudget::TwoPass {
                max_response_tokens,
                ..
            } => max_response_tokens,
        };
        let used = u32::try_from(self.usage.response_tokens).unwrap_or(u32::MAX);
        Some(cap.saturating_sub(used))
    }

    fn ended_in_thought(&mut self) {
        self.emit(Event::Diagnostic(Diagnostic::new(
            DiagnosticKind::EndedInThought,
            "the model ended its turn inside the thought; the close was supplied",
        )));
    }

    fn count(&mut self, end: &PassEnd) {
        let thinking = self.state == State::Thinking;
        self.usage.prompt_tokens += end.usage.prompt_tokens;
        self.usage.cached_tokens += end.usage.cached_tokens;
        self.usage.thinking_tokens += end.usage.thinking_tokens;
        if thinking {
            self.usage.thinking_tokens += end.usage.response_tokens;
        } else {
            self.usage.response_tokens += end.usage.response_tokens;
        }
        for report in &end.reports {
            self.emit(Event::PassFinished(report.clone()));
        }
    }

    /// Text of the assistant's turn, the model's or ours: part of the continuation and of the
    /// parse.
    fn write(&mut self, text: &str) {
        self.written.push_str(text);
        self.parse(text);
    }

    fn parse(&mut self, text: &str) {
        let mut events = Vec::new();
        self.parser.push(text, &mut events);
        self.emit_all(events);
        if let Some(met) = self.cut_by.clone() {
            self.finish(StopReason::StopSequence(met.clone()), Some(met));
        }
    }

    /// Hands on what the parser found, up to a stop string in the answer.
    fn emit_all(&mut self, events: Vec<Event>) {
        for event in events {
            if self.cut_by.is_some() {
                return;
            }
            let mut text = String::new();
            match &event {
                Event::TextDelta(delta) => {
                    let met = self.stops.push(delta, &mut text);
                    self.cut_by = met.map(str::to_owned);
                }
                _ => self.stops.finish(&mut text),
            }
            if !text.is_empty() {
                self.emit(Event::TextDelta(text));
            }
            if !matches!(event, Event::TextDelta(_)) {
                self.emit(event);
            }
        }
    }

    fn emit(&mut self, event: Event) {
        if let Some(tokens) = self.logprobs.of(&event) {
            self.reply.handle(&tokens);
            self.events.push_back(tokens);
        }
        self.reply.handle(&event);
        self.events.push_back(event);
    }

    /// A turn that was cut inside its only call says so instead of being empty (rows E13, E15,
    /// X19), and the call is visible as an invalid one (row M7).
    fn explain_cut_call(&mut self, reply: &mut Reply) {
        if !reply.answer_missing() {
            return;
        }
        if self.plan.only_calls && reply.invalid_tool_calls.is_empty() {
            let call = InvalidToolCall {
                id: "call_1".to_owned(),
                name: None,
                arguments: String::new(),
                kind: CallErrorKind::TruncatedToolCall,
                path: None,
                message: "the turn ended before the call did".to_owned(),
            };
            self.events.push_back(Event::CallRejected {
                call_idx: 0,
                call: call.clone(),
            });
            reply.invalid_tool_calls.push(call);
        }
        let cut = |call: &InvalidToolCall| call.kind == CallErrorKind::TruncatedToolCall;
        if reply.invalid_tool_calls.iter().any(cut) {
            CUT_CALL_TEXT.clone_into(&mut reply.content);
            self.events
                .push_back(Event::TextDelta(CUT_CALL_TEXT.to_owned()));
        }
    }

    fn finish(&mut self, stop_reason: StopReason, stop_string: Option<String>) {
        let mut events = Vec::new();
        let end = TurnEnd {
            stop_reason,
            stop_string,
        };
        let stop_reason = self.parser.finish(&end, &mut events);
        if self.plan.only_calls {
            // What is left is the beginning of a call's marker.
            events.retain(|event| !matches!(event, Event::TextDelta(_)));
        }
        self.emit_all(events);
        let mut rest = String::new();
        if self.cut_by.is_none() {
            self.stops.finish(&mut rest);
        }
        if !rest.is_empty() {
            self.emit(Event::TextDelta(rest));
        }
        let stop_reason = match (&self.cut_by, stop_reason) {
            (Some(met), StopReason::EndTurn) => StopReason::StopSequence(met.clone()),
            (_, reason) => reason,
        };
        let mut reply = std::mem::take(&mut self.reply).finish(stop_reason);
        self.explain_cut_call(&mut reply);
        reply.reasoning_truncated = self.truncated;
        reply.usage = self.usage;
        self.finished = Some(Box::new(reply));
        self.state = State::Done;
    }
}

impl TurnPlan {
    /// Says that a grammar binds the answer, from its first character on. A form is text then:
    /// nothing is looked for in it, and no marker of a call ends it.
    pub fn bind_answer(&mut self) {
        if !self.only_calls {
            self.parser.answer_form = AnswerForm::Bound;
            self.call_stop = None;
        }
    }

    fn budget_is_zero(&self) -> bool {
        matches!(
            self.budget,
            TurnBudget::TwoPass {
                max_thinking_tokens: 0,
                ..
            }
        )
    }
}

#[cfg(test)]
mod tests;
