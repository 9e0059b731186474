use twopass_core::chat::{Event, Reply, TokenLogprob, Usage};

use super::reply::{finish_reason, usage_body};
use super::stream::END_MARKER;
use crate::error::ErrorBody;
use crate::invalid_calls::{INVALID_CALLS, some_invalid_calls};
use crate::json::{push_text, text_of};
use crate::logprobs;
use crate::request::ReplyMeta;
use crate::sse::encode_event;

/// Writes a turn's events as a stream: the server side.
///
/// Every piece bears the same id. Reasoning stands in `reasoning_content` alone: clients that
/// read two spellings show both. Argument deltas are passed on as they come; calls that come
/// whole are one piece. `Reclassified` has no form here: a server that must be exact holds
/// text back until it is sure. What only the provider can read is not written.
///
/// A piece is written in one go between two texts that are the same for all of them.
#[derive(Debug)]
pub struct StreamEncoder {
    /// Up to the choice's number.
    head: String,
    /// After the last choice.
    tail: &'static str,
    include_usage: bool,
    choices: Vec<Choice>,
}

/// One of the answers of a stream.
#[derive(Debug, Default)]
struct Choice {
    began: bool,
    block_ended: bool,
    /// Of the text that comes next.
    logprobs: Vec<TokenLogprob>,
    /// Calls that were announced, in the order of their indexes.
    calls: Vec<SentCall>,
}

#[derive(Debug)]
struct SentCall {
    call_idx: usize,
    has_arguments: bool,
}

impl StreamEncoder {
    /// An encoder at the start of one answer. `include_usage`: the client asked for usage;
    /// then it is null in every piece, and a last piece tells it.
    #[must_use]
    pub fn new(meta: ReplyMeta, include_usage: bool) -> Self {
        Self::of_choices(meta, include_usage, 1)
    }

    /// An encoder of so many answers to one request (`n`).
    #[must_use]
    pub fn of_choices(meta: ReplyMeta, include_usage: bool, n_choices: usize) -> Self {
        let mut head = String::from("{\"id\":");
        push_text(&meta.id, &mut head);
        head.push_str(",\"object\":\"chat.completion.chunk\",\"created\":");
        head.push_str(&meta.created_s.to_string());
        head.push_str(",\"model\":");
        push_text(&meta.model, &mut head);
        head.push_str(",\"choices\":[");
        Self {
            head,
            tail: if include_usage {
                "],\"usage\":null}"
            } else {
                "]}"
            },
            include_usage,
            choices: (0..n_choices.max(1)).map(|_| Choice::default()).collect(),
        }
    }

    /// Appends what this event adds to the stream, perhaps nothing.
    pub fn encode(&mut self, event: &Event, out: &mut String) {
        self.encode_choice(0, event, out);
    }

    /// Appends what this event of the answer with this number adds to the stream.
    pub fn encode_choice(&mut self, idx: usize, event: &Event, out: &mut String) {
        let Some(choice) = self.choices.get_mut(idx) else {
            return;
        };
        match event {
            Event::ReasoningDelta(text) => {
                let parted = std::mem::take(&mut choice.block_ended);
                self.delta(idx, out, |out| {
                    out.push_str("\"reasoning_content\":");
                    match parted {
                        true => push_text(&format!("\n{text}"), out),
                        false => push_text(text, out),
                    }
                });
            }
            Event::ReasoningBlockEnd => choice.block_ended = true,
            Event::Logprobs(tokens) => choice.logprobs.extend_from_slice(tokens),
            Event::TextDelta(text) => self.delta(idx, out, |out| {
                out.push_str("\"content\":");
                push_text(text, out);
            }),
            Event::CallStarted { call_idx, id, name } => {
                self.begin_call((idx, *call_idx), id, name, out);
            }
            Event::ArgumentsDelta { call_idx, text } => self.arguments((idx, *call_idx), text, out),
            Event::CallFinished { call_idx, call } => {
                let place = (idx, *call_idx);
                if self.sent(place).is_none() {
                    self.begin_call(place, &call.id, &call.name, out);
                }
                if self.sent(place).is_some_and(|sent| !sent.has_arguments) {
                    self.arguments(place, call.arguments.as_text(), out);
                }
            }
            _ => {}
        }
    }

    /// Appends an empty delta: a sign of life that clients with an idle clock count.
    pub fn encode_alive(&mut self, out: &mut String) {
        self.delta(0, out, |_| {});
    }

    /// Appends the end of a turn of one answer.
    pub fn encode_done(&mut self, reply: &Reply, out: &mut String) {
        self.encode_choice_done(0, reply, out);
        self.encode_end(&reply.usage, out);
    }

    /// Appends the end of the answer with this number: calls that were invalid, if any, and its
    /// finish reason.
    pub fn encode_choice_done(&mut self, idx: usize, reply: &Reply, out: &mut String) {
        if self.choices.get(idx).is_some_and(|choice| !choice.began) {
            self.delta(idx, out, |_| {});
        }
        if let Some(calls) = some_invalid_calls(reply) {
            self.delta(idx, out, |out| {
                out.push_str(&format!("\"{INVALID_CALLS}\":{calls}"));
            });
        }
        self.piece(out, |out| {
            out.push_str(&format!(
                "{{\"index\":{idx},\"delta\":{{}},\"logprobs\":null,\"finish_reason\":\"{}\"}}",
                finish_reason(&reply.stop_reason)
            ));
        });
    }

    /// Appends the end of the stream: usage if it was asked for, end marker.
    pub fn encode_end(&mut self, usage: &Usage, out: &mut String) {
        if self.include_usage {
            out.push_str("data: ");
            out.push_str(&self.head);
            out.push_str("],\"usage\":");
            out.push_str(&text_of(&usage_body(usage)));
            out.push_str("}\n\n");
        }
        encode_event(None, END_MARKER, out);
    }

    /// Appends an error as the last event of a turn that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        encode_event(None, &error.to_openai_json(), out);
        encode_event(None, END_MARKER, out);
    }

    fn sent(&self, (choice, call_idx): (usize, usize)) -> Option<&SentCall> {
        let mut calls = self.choices.get(choice)?.calls.iter();
        calls.find(|sent| sent.call_idx == call_idx)
    }

    fn begin_call(
        &mut self,
        (idx, call_idx): (usize, usize),
        id: &str,
        name: &str,
        out: &mut String,
    ) {
        let Some(choice) = self.choices.get_mut(idx) else {
            return;
        };
        let at = choice.calls.len();
        choice.calls.push(SentCall {
            call_idx,
            has_arguments: false,
        });
        self.delta(idx, out, |out| {
            out.push_str(&format!("\"tool_calls\":[{{\"index\":{at},\"id\":"));
            push_text(id, out);
            out.push_str(",\"type\":\"function\",\"function\":{\"name\":");
            push_text(name, out);
            out.push_str(",\"arguments\":\"\"}}]");
        });
    }

    fn arguments(&mut self, (idx, call_idx): (usize, usize), text: &str, out: &mut String) {
        let Some(choice) = self.choices.get_mut(idx) else {
            return;
        };
        let mut calls = choice.calls.iter_mut().enumerate();
        let Some((at, sent)) = calls.find(|(_, sent)| sent.call_idx == call_idx) else {
            return;
        };
        sent.has_arguments = true;
        self.delta(idx, out, |out| {
            out.push_str(&format!(
                "\"tool_calls\":[{{\"index\":{at},\"function\":{{\"arguments\":"
            ));
            push_text(text, out);
            out.push_str("}}]");
        });
    }

    /// A piece whose delta holds these fields; the first one of an answer tells the role
    /// before them, alone among fields that clients look for first.
    fn delta(&mut self, idx: usize, out: &mut String, fields: impl FnOnce(&mut String)) {
        let Some(choice) = self.choices.get_mut(idx) else {
            return;
        };
        let is_first = !std::mem::replace(&mut choice.began, true);
        let logprobs = logprobs::chat_json(&std::mem::take(&mut choice.logprobs));
        self.piece(out, |out| {
            out.push_str("{\"index\":");
            out.push_str(&idx.to_string());
            out.push_str(",\"delta\":{");
            if is_first {
                out.push_str("\"role\":\"assistant\"");
            }
            let before = out.len();
            fields(out);
            if is_first && out.len() > before {
                out.insert(before, ',');
            }
            out.push_str("},\"logprobs\":");
            out.push_str(&logprobs);
            out.push_str(",\"finish_reason\":null}");
        });
    }

    fn piece(&self, out: &mut String, choice: impl FnOnce(&mut String)) {
        out.push_str("data: ");
        out.push_str(&self.head);
        choice(out);
        out.push_str(self.tail);
        out.push_str("\n\n");
    }
}
