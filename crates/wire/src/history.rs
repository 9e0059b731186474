//! A history made fit for one endpoint, on every send (case rules 13, 21, 22).
//!
//! Whatever the history holds, what comes out is valid: every call has exactly one result,
//! right after its turn and in the order of the calls; results without a call and empty
//! turns are left out; ids and tool names have the endpoint's format; reasoning is there
//! only where the policy sends it back. A pure function: same history, same outcome.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use twopass_core::chat::{
    Diagnostic, DiagnosticKind, Message, OpaqueItem, OpaqueKind, Part, Role, ToolSpec,
};
use twopass_core::control::{drop_reasoning, dropped_reasoning, split_past_turn};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::ToolSet;

use crate::facts::WireFacts;
use crate::request::{DecodeContext, WireRequest, degraded};

/// The text of a result that nobody gave.
pub const MISSING_RESULT: &str = "No result was recorded for this call.";

/// A history that can be sent. What needed no change is borrowed: histories are large.
#[derive(Debug, Clone, Default)]
pub struct Repaired<'r> {
    /// The messages, ids and names as they go over the wire.
    pub messages: Vec<Cow<'r, Message>>,
    /// The tools, names as they go over the wire.
    pub tools: Vec<ToolSpec>,
    /// What is needed to read the answer.
    pub context: DecodeContext,
    /// What was changed.
    pub diagnostics: Vec<Diagnostic>,
    /// For each message: true if it belongs to the turns since the last user message.
    pub(crate) in_loop: Vec<bool>,
}

/// Repairs the history of a request for an endpoint of these facts. Opaque items of other
/// kinds than `own` are left out: only the wire that wrote them can carry them back.
#[must_use]
pub fn repair<'r>(request: &'r WireRequest, facts: &WireFacts, own: &[OpaqueKind]) -> Repaired<'r> {
    let mut repaired = Repaired::default();
    let all = request.request.messages.iter();
    let mut messages: Vec<Cow<'r, Message>> = all.map(Cow::Borrowed).collect();
    let kept = match messages.last() {
        Some(last) if request.continue_final && last.role == Role::Assistant => messages.pop(),
        _ => None,
    };
    let think_tags = ReasoningSyntax::auto();
    for message in &mut messages {
        tidy_message(message, facts);
        if message.role == Role::Assistant {
            split_past_turn(message.to_mut(), &think_tags);
        }
    }
    let mut messages = pair_results(messages, &mut repaired.diagnostics);
    let n_before = messages.len();
    messages.retain(|message| !is_empty_turn(message));
    if messages.len() < n_before {
        repaired.diagnostics.push(degraded(format!(
            "{} empty messages of the history were left out",
            n_before - messages.len()
        )));
    }
    if facts.system_first_only {
        messages = system_first(messages);
    }
    messages.extend(kept);
    for message in &mut messages {
        let is_own = |item: &OpaqueItem| own.contains(&item.kind);
        if !message.provider_items.iter().all(is_own) {
            message.to_mut().provider_items.retain(is_own);
        }
    }
    fit_names(&mut messages, request, facts, &mut repaired);
    fit_ids(&mut messages, facts, &mut repaired.context);
    let all: Vec<&Message> = messages.iter().map(AsRef::as_ref).collect();
    let dropped = dropped_reasoning(&all, facts.reasoning_replay);
    for (message, is_dropped) in messages.iter_mut().zip(dropped) {
        if is_dropped {
            drop_reasoning(message.to_mut());
        }
    }
    repaired.in_loop = in_loop(&messages);
    repaired.messages = messages;
    repaired
}

fn tidy_message(message: &mut Cow<'_, Message>, facts: &WireFacts) {
    if message.role == Role::Developer && !facts.developer_role {
        message.to_mut().role = Role::System;
    }
    let is_empty = |part: &Part| matches!(part, Part::Text(text) if text.is_empty());
    if message.content.iter().any(is_empty) {
        message.to_mut().content.retain(|part| !is_empty(part));
    }
}

fn is_empty_turn(message: &Message) -> bool {
    if message.role == Role::Tool || !message.tool_calls.is_empty() {
        return false;
    }
    message.content.iter().all(|part| match part {
        Part::Text(text) => text.trim().is_empty(),
        _ => false,
    })
}

/// Puts every call's result right after its turn, in the order of the calls.
fn pair_results<'r>(
    messages: Vec<Cow<'r, Message>>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Cow<'r, Message>> {
    let mut slots: Vec<Option<Cow<'r, Message>>> = messages.into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(slots.len());
    let mut n_missing = 0;
    let mut n_orphans = 0;
    for at in 0..slots.len() {
        let Some(message) = slots[at].take() else {
            continue;
        };
        if message.role == Role::Tool {
            n_orphans += 1;
            continue;
        }
        let calls: Vec<(String, String)> = message
            .tool_calls
            .iter()
            .map(|call| (call.id.clone(), call.name.clone()))
            .collect();
        out.push(message);
        if calls.is_empty() {
            continue;
        }
        // A later turn that uses the id again has its own results.
        let ids: HashSet<&str> = calls.iter().map(|(id, _)| id.as_str()).collect();
        let end = slots[at + 1..]
            .iter()
            .position(|slot| {
                slot.as_ref().is_some_and(|later| {
                    later
                        .tool_calls
                        .iter()
                        .any(|call| ids.contains(call.id.as_str()))
                })
            })
            .map_or(slots.len(), |n| at + 1 + n);
        for (id, name) in calls {
            let result = take_result(&mut slots[at + 1..end], &id, &name);
            out.push(result.unwrap_or_else(|| {
                n_missing += 1;
                Cow::Owned(Message {
                    is_error: true,
                    ..Message::tool_result(id.clone(), MISSING_RESULT)
                })
            }));
            if let Some(result) = out.last_mut() {
                let result = result.to_mut();
                result.tool_call_id = Some(id);
                result.name = Some(name);
            }
        }
    }
    if n_missing > 0 {
        diagnostics.push(degraded(format!(
            "{n_missing} calls of the history had no result; an error result was put in"
        )));
    }
    if n_orphans > 0 {
        diagnostics.push(degraded(format!(
            "{n_orphans} tool results without a call were left out of the history"
        )));
    }
    out
}

/// The first result of this id; failing that one without id, of this tool or of none,
/// among the results that follow at once.
fn take_result<'r>(
    slots: &mut [Option<Cow<'r, Message>>],
    id: &str,
    name: &str,
) -> Option<Cow<'r, Message>> {
    let by_id = slots.iter().position(|slot| {
        slot.as_ref().is_some_and(|message| {
            message.role == Role::Tool && message.tool_call_id.as_deref() == Some(id)
        })
    });
    let n_following = slots
        .iter()
        .take_while(|slot| {
            slot.as_ref()
                .is_none_or(|message| message.role == Role::Tool)
        })
        .count();
    let nameless = || {
        slots[..n_following].iter().position(|slot| {
            slot.as_ref().is_some_and(|message| {
                message.tool_call_id.as_deref().is_none_or(str::is_empty)
                    && message.name.as_deref().is_none_or(|known| known == name)
            })
        })
    };
    let at = by_id.or_else(nameless)?;
    slots[at].take()
}

/// All system messages in one, first, in order, an empty line between them.
fn system_first(messages: Vec<Cow<'_, Message>>) -> Vec<Cow<'_, Message>> {
    let (system, rest): (Vec<_>, Vec<_>) = messages
        .into_iter()
        .partition(|message| matches!(message.role, Role::System | Role::Developer));
    let mut system = system.into_iter();
    let Some(mut first) = system.next() else {
        return rest;
    };
    let mut text = first.content_text();
    for next in system {
        text.push_str("\n\n");
        text.push_str(&next.content_text());
    }
    first.to_mut().content = vec![Part::Text(text)];
    let mut out = vec![first];
    out.extend(rest);
    out
}

fn fit_names(
    messages: &mut [Cow<'_, Message>],
    request: &WireRequest,
    facts: &WireFacts,
    repaired: &mut Repaired<'_>,
) {
    let mut sent: HashMap<String, String> = HashMap::new();
    let mut taken = HashSet::new();
    let offered = request.request.tools.iter().map(|tool| tool.name.as_str());
    let past = messages
        .iter()
        .flat_map(|message| message.tool_calls.iter().map(|call| call.name.as_str()));
    let mut names: Vec<&str> = offered.chain(past).collect();
    // Names that fit keep themselves, so they come first.
    names.sort_by_key(|name| !facts.tool_name.matches(name));
    for name in names {
        if !sent.contains_key(name) {
            let wire = facts.tool_name.fit(name, &taken);
            taken.insert(wire.clone());
            sent.insert(name.to_owned(), wire);
        }
    }
    for message in messages.iter_mut() {
        if !message.tool_calls.is_empty() {
            for call in &mut message.to_mut().tool_calls {
                if let Some(wire) = sent.get(&call.name) {
                    call.name.clone_from(wire);
                }
            }
        }
        if message.role == Role::Tool
            && let Some(wire) = message.name.as_ref().and_then(|name| sent.get(name))
        {
            message.to_mut().name = Some(wire.clone());
        }
    }
    repaired.tools = request.request.tools.clone();
    for tool in &mut repaired.tools {
        if let Some(wire) = sent.get(&tool.name) {
            tool.name.clone_from(wire);
        }
    }
    let request = &request.request;
    repaired.context.rules.choice = request.tool_choice.clone();
    repaired.context.rules.id_salt = request.call_id_salt.clone();
    repaired.context.rules.tools =
        (!request.tools.is_empty()).then(|| Arc::new(ToolSet::new(request.tools.iter().cloned())));
    let mut names: Vec<(String, String)> = sent
        .into_iter()
        .filter(|(own, wire)| own != wire)
        .map(|(own, wire)| (wire, own))
        .collect();
    names.sort();
    repaired.context.names = names;
}

/// Gives every call an id of the endpoint's format that no other call bears. Results stand
/// right after their turn, so the pairs are known by place.
fn fit_ids(messages: &mut [Cow<'_, Message>], facts: &WireFacts, context: &mut DecodeContext) {
    let mut taken = HashSet::new();
    let mut at = 0;
    while at < messages.len() {
        let n_calls = messages[at].tool_calls.len();
        for n in 0..n_calls {
            let own = messages[at].tool_calls[n].id.clone();
            let wire = facts.tool_call_id.fit(&own, &taken);
            taken.insert(wire.clone());
            context.rules.taken_ids.insert(own.clone());
            context.rules.taken_ids.insert(wire.clone());
            let turn = messages[at].to_mut();
            for item in &mut turn.provider_items {
                if item.call_id.as_ref() == Some(&own) {
                    item.call_id = Some(wire.clone());
                }
            }
            turn.tool_calls[n].id.clone_from(&wire);
            if let Some(result) = messages.get_mut(at + 1 + n)
                && result.role == Role::Tool
            {
                result.to_mut().tool_call_id = Some(wire);
            }
        }
        at += 1;
    }
}

fn in_loop(messages: &[Cow<'_, Message>]) -> Vec<bool> {
    let last_user = messages
        .iter()
        .rposition(|message| message.role == Role::User);
    (0..messages.len())
        .map(|at| last_user.is_none_or(|user| at > user))
        .collect()
}

/// A diagnostic that names what an endpoint does not take.
pub(crate) fn not_sent(what: &str, why: &str) -> Diagnostic {
    Diagnostic::new(
        DiagnosticKind::Degraded,
        format!("`{what}` was not sent: {why}"),
    )
}
