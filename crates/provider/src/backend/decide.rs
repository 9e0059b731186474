//! Choices of the configuration that change how a turn ends, on every backend alike
//! (X3, X19).

use futures_util::stream::{StreamExt, iter};
use twopass_core::chat::{
    CallErrorKind, DiagnosticKind, Event, InvalidToolCall, Reply, StopReason, TurnBudget,
};

use super::{TurnItem, TurnStream};
use crate::ProviderError;
use crate::config::{Decisions, ProviderConfig, UnterminatedThink};

/// The answer of a turn that ended inside its thought, where an error text is wished.
const UNFINISHED_TEXT: &str = "The reply ended inside its reasoning; there is no answer.";

/// The stream with the entry's choices carried out and its name in errors.
pub(crate) fn decide(
    stream: TurnStream,
    config: &ProviderConfig,
    budget: TurnBudget,
) -> TurnStream {
    let stream = stream.of_provider(&config.name);
    let Decisions {
        reject_partial_tool_call,
        unterminated_think,
        ..
    } = &config.decisions;
    if stand_in(*unterminated_think).is_none() && !reject_partial_tool_call {
        return stream;
    }
    let mut rules = Rules {
        decisions: config.decisions.clone(),
        is_single: matches!(budget, TurnBudget::OnePass { .. }),
        held: None,
    };
    TurnStream::new(stream.flat_map(move |item| iter(rules.apply(item))))
}

/// What stands for the answer of a turn that ended inside its thought; `None`: nothing.
fn stand_in(choice: Option<UnterminatedThink>) -> Option<fn(&Reply) -> String> {
    match choice {
        None | Some(UnterminatedThink::Empty | UnterminatedThink::Continue) => None,
        Some(UnterminatedThink::Error) => Some(|_| UNFINISHED_TEXT.to_owned()),
        Some(UnterminatedThink::Direct) => Some(|reply| reply.reasoning.clone()),
    }
}

struct Rules {
    decisions: Decisions,
    is_single: bool,
    /// A finished call that the end of the turn may still reject.
    held: Option<Event>,
}

impl Rules {
    fn apply(
        &mut self,
        item: Result<TurnItem, ProviderError>,
    ) -> Vec<Result<TurnItem, ProviderError>> {
        let mut out = Vec::new();
        match item {
            Err(error) => {
                out.extend(self.held.take().map(|event| Ok(TurnItem::Event(event))));
                out.push(Err(error));
            }
            Ok(TurnItem::Event(event)) => {
                // What a turn tells at its end is no output after the call.
                let is_account = matches!(
                    event,
                    Event::PassFinished(_) | Event::Diagnostic(_) | Event::ProviderItem(_)
                );
                if self.decisions.reject_partial_tool_call {
                    let holds = matches!(event, Event::CallFinished { .. });
                    if holds || !is_account {
                        out.extend(self.held.take().map(|held| Ok(TurnItem::Event(held))));
                    }
                    if holds {
                        self.held = Some(event);
                        return out;
                    }
                }
                out.push(Ok(TurnItem::Event(event)));
            }
            Ok(TurnItem::Done(mut reply)) => {
                let mut events = Vec::new();
                self.cut_call(&mut reply, &mut events);
                self.unfinished(&mut reply, &mut events);
                out.extend(events.into_iter().map(|event| Ok(TurnItem::Event(event))));
                out.push(Ok(TurnItem::Done(reply)));
            }
        }
        out
    }

    /// `partial_tool_call: reject`: a call at the very end of a turn that the cap cut does not
    /// count (X19).
    fn cut_call(&mut self, reply: &mut Reply, out: &mut Vec<Event>) {
        match self.held.take() {
            Some(Event::CallFinished { call_idx, call })
                if reply.stop_reason == StopReason::Length =>
            {
                reply.tool_calls.retain(|kept| kept.id != call.id);
                let call = InvalidToolCall {
                    id: call.id,
                    name: Some(call.name),
                    arguments: call.arguments.as_text().to_owned(),
                    kind: CallErrorKind::TruncatedToolCall,
                    path: None,
                    message: "the turn was cut by the token cap right after the call".to_owned(),
                };
                reply.invalid_tool_calls.push(call.clone());
                out.push(Event::CallRejected { call_idx, call });
            }
            held => out.extend(held),
        }
    }

    /// `unterminated_think`: what a single pass that ended inside its thought leaves as the
    /// answer (X3).
    fn unfinished(&self, reply: &mut Reply, out: &mut Vec<Event>) {
        let is_open = reply
            .diagnostics
            .iter()
            .any(|note| note.kind == DiagnosticKind::UnclosedReasoning);
        if !self.is_single || !is_open || !reply.answer_missing() {
            return;
        }
        let Some(answer) = stand_in(self.decisions.unterminated_think) else {
            return;
        };
        let answer = answer(reply);
        out.push(Event::TextDelta(answer.clone()));
        reply.content = answer;
    }
}
