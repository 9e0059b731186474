//! Text of a chat service that may hold think tags and call markup, read by the turn parser;
//! what came structured passes by (rows B11, G2, H12).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use twopass_core::chat::{
    Diagnostic, DiagnosticKind, Event, PassReport, Reply, Request, ResponseFormat, StopReason,
    ToolChoice,
};
use twopass_core::control::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax, VisibleLogprobs,
};
use twopass_core::tool_parser::{CallRules, ToolSet};

use super::unread::UnreadCalls;

/// Reads one turn.
pub(crate) struct MarkupReader {
    parser: TurnParser,
    reply: ReplyAssembler,
    logprobs: VisibleLogprobs,
    calls: Numbering,
    n_finished: usize,
    forces_call: bool,
    unread: UnreadCalls,
}

impl MarkupReader {
    /// A reader that looks for these tags and calls. Whether the prompt opened a think block
    /// is not known: the service renders it.
    pub(crate) fn new(syntax: TurnSyntax, mut calls: CallRules, request: &Request) -> Self {
        let forces_call = calls.choice.forces_call();
        // Whether a demanded call came is only known here, where structured ones count too.
        calls.choice = unforced(calls.choice);
        let options = TurnParserOptions {
            syntax,
            prompt_opened: None,
            answer_form: answer_form(request),
            calls,
            ..TurnParserOptions::default()
        };
        Self {
            unread: unread_calls(&options, request),
            parser: TurnParser::new(options),
            reply: ReplyAssembler::new(),
            logprobs: VisibleLogprobs::default(),
            calls: Numbering::default(),
            n_finished: 0,
            forces_call,
        }
    }

    /// Takes an event of the service; appends what it means.
    pub(crate) fn handle(&mut self, event: Event, out: &mut Vec<Event>) {
        match event {
            Event::TextDelta(text) => {
                let mut events = Vec::new();
                self.parser.push(&text, &mut events);
                self.emit_parsed(events, out);
            }
            Event::Logprobs(tokens) => self.logprobs.push(tokens),
            mut event => {
                self.calls.renumber(&mut event, Source::Service);
                self.emit(event, out);
            }
        }
    }

    /// Ends the turn with the service's own account of it.
    pub(crate) fn finish(
        &mut self,
        whole: &Reply,
        reports: Vec<PassReport>,
        out: &mut Vec<Event>,
    ) -> Reply {
        let end = TurnEnd {
            stop_reason: whole.stop_reason.clone(),
            stop_string: match &whole.stop_reason {
                StopReason::StopSequence(stop) => Some(stop.clone()),
                _ => None,
            },
        };
        let mut events = Vec::new();
        let parsed = self.parser.finish(&end, &mut events);
        self.emit_parsed(events, out);
        if self.forces_call && self.n_finished == 0 {
            self.emit(Event::Diagnostic(missing_call()), out);
        }
        for report in reports {
            self.emit(Event::PassFinished(report), out);
        }
        // Calls decide (case rule 14).
        let stop_reason = match parsed {
            StopReason::Length | StopReason::ContentFilter | StopReason::Cancelled => parsed,
            _ if self.n_finished > 0 => StopReason::ToolCalls,
            other => other,
        };
        let mut reply = Reply {
            usage: whole.usage,
            ..std::mem::take(&mut self.reply).finish(stop_reason)
        };
        if let Some(note) = self.unread.note(&reply) {
            out.push(Event::Diagnostic(note.clone()));
            reply.diagnostics.push(note);
        }
        reply
    }

    fn emit_parsed(&mut self, events: Vec<Event>, out: &mut Vec<Event>) {
        for mut event in events {
            self.calls.renumber(&mut event, Source::Text);
            self.emit(event, out);
        }
    }

    fn emit(&mut self, event: Event, out: &mut Vec<Event>) {
        match &event {
            Event::Reclassified => self.n_finished = 0,
            Event::CallFinished { .. } => self.n_finished += 1,
            _ => {}
        }
        if let Some(tokens) = self.logprobs.of(&event) {
            self.reply.handle(&tokens);
            out.push(tokens);
        }
        self.reply.handle(&event);
        out.push(event);
    }
}

/// What the calls of a request's turn are judged by; limits and the like are `base`'s.
pub(super) fn call_rules(request: &Request, base: CallRules) -> CallRules {
    let ids = request.messages.iter().flat_map(|message| {
        let calls = message.tool_calls.iter().map(|call| call.id.clone());
        calls.chain(message.tool_call_id.clone())
    });
    CallRules {
        tools: Some(Arc::new(ToolSet::new(request.tools.iter().cloned()))),
        choice: request.tool_choice.clone(),
        taken_ids: ids.collect(),
        id_salt: request.call_id_salt.clone(),
        ..base
    }
}

/// The form that a service is asked for; whether it keeps to it is not known.
pub(super) fn answer_form(request: &Request) -> AnswerForm {
    match request.answer_schema() {
        Some(_) => AnswerForm::Asked,
        None => AnswerForm::Free,
    }
}

/// What to look for in a service's answer. One in a form that was asked for holds no calls,
/// whatever its members are called.
pub(super) fn unread_calls(parser: &TurnParserOptions, request: &Request) -> UnreadCalls {
    match request.response_format {
        ResponseFormat::Text => UnreadCalls::of(parser),
        _ => UnreadCalls::default(),
    }
}

/// The choice without its demand: structured calls may meet that, which a parser does not see.
pub(super) fn unforced(choice: ToolChoice) -> ToolChoice {
    match choice {
        ToolChoice::Required => ToolChoice::Auto,
        ToolChoice::Named(name) => ToolChoice::Only(name),
        other => other,
    }
}

/// A demanded call that did not come.
pub(super) fn missing_call() -> Diagnostic {
    Diagnostic::new(
        DiagnosticKind::MissingToolCall,
        "a tool call was required and none came",
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Service,
    Text,
}

/// The calls of both sources in one order, no id used twice.
#[derive(Debug, Default)]
struct Numbering {
    /// Place and id of each call.
    calls: HashMap<(Source, usize), (usize, String)>,
    /// The ids, and the number that the next call of the same one gets.
    ids: HashMap<String, u32>,
}

impl Numbering {
    fn renumber(&mut self, event: &mut Event, source: Source) {
        let (call_idx, id) = match event {
            Event::CallStarted { call_idx, id, .. } => (call_idx, Some(id)),
            Event::ArgumentsDelta { call_idx, .. } => (call_idx, None),
            Event::CallFinished { call_idx, call } => (call_idx, Some(&mut call.id)),
            Event::CallRejected { call_idx, call } => (call_idx, Some(&mut call.id)),
            _ => return,
        };
        let n_known = self.calls.len();
        let (at, own_id) = match self.calls.entry((source, *call_idx)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let given = id.as_deref().map_or("", String::as_str);
                place.insert((n_known, free_id(&mut self.ids, given)))
            }
        };
        *call_idx = *at;
        if let Some(id) = id {
            id.clone_from(own_id);
        }
    }
}

/// The id itself, or one made from it that no call of the turn bears.
fn free_id(ids: &mut HashMap<String, u32>, id: &str) -> String {
    let mut free = id.to_owned();
    while ids.contains_key(&free) {
        let next = ids.entry(id.to_owned()).or_insert(2);
        free = format!("{id}_{next}");
        *next += 1;
    }
    ids.insert(free.clone(), 2);
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_both_sources_have_places_and_ids_of_their_own() {
        let mut calls = Numbering::default();
        let mut numbered = |source, call_idx, id: &str| {
            let (id, name) = (id.to_owned(), "f".to_owned());
            let mut event = Event::CallStarted { call_idx, id, name };
            calls.renumber(&mut event, source);
            match event {
                Event::CallStarted { call_idx, id, .. } => (call_idx, id),
                other => panic!("it became {other:?}"),
            }
        };
        for (source, given, expect) in [
            (Source::Text, (0, "a"), (0, "a")),
            (Source::Service, (0, "a"), (1, "a_2")),
            (Source::Text, (1, "a_2"), (2, "a_2_2")),
            (Source::Service, (1, "a"), (3, "a_3")),
            // Known already.
            (Source::Service, (0, "other"), (1, "a_2")),
        ] {
            let (at, id) = numbered(source, given.0, given.1);
            assert_eq!((at, id.as_str()), expect);
        }
        // Not by one another, as the square of their number: minutes of a debug build.
        for idx in 2..200_000 {
            numbered(Source::Text, idx, "a");
        }
        assert_eq!(numbered(Source::Text, 200_000, "a").0, 200_002);
    }
}
