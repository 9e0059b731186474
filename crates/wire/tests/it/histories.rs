//! Histories: repaired on every send, reasoning by policy, ids and names fitted.

use twopass_core::chat::{
    Arguments, Message, OpaqueItem, OpaqueKind, Request, Role, ToolCall, ToolSpec,
};
use twopass_wire::WireRequest;
use twopass_wire::facts::{ReasoningReplay, WireFacts};
use twopass_wire::history::{MISSING_RESULT, repair};

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::from_text("{}").unwrap(),
    }
}

pub(crate) fn turn(text: &str, calls: &[(&str, &str)]) -> Message {
    Message {
        tool_calls: calls.iter().map(|(id, name)| call(id, name)).collect(),
        ..Message::text(Role::Assistant, text)
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn brief(messages: &[std::borrow::Cow<'_, Message>]) -> Vec<String> {
    messages
        .iter()
        .map(|message| {
            let calls: String = message
                .tool_calls
                .iter()
                .map(|call| format!(" {}:{}", call.id, call.name))
                .collect();
            let id = message
                .tool_call_id
                .as_ref()
                .map(|id| format!(" {id}"))
                .unwrap_or_default();
            let reasoning = message
                .reasoning
                .as_ref()
                .map(|text| format!(" ({text})"))
                .unwrap_or_default();
            format!(
                "{}{id}:{reasoning} {}{calls}",
                message.role.as_str(),
                message.content_text()
            )
        })
        .collect()
}

fn repaired(messages: Vec<Message>, facts: &WireFacts) -> (Vec<String>, usize) {
    let request = WireRequest::new("m", Request::new(messages));
    let repaired = repair(&request, facts, &[]);
    (brief(&repaired.messages), repaired.diagnostics.len())
}

// Case rules 13 and 21.
#[test]
fn histories_become_valid() {
    let facts = WireFacts::CHAT;
    let (messages, n) = repaired(
        vec![
            Message::tool_result("orphan", "?"),
            user("hi"),
            turn("", &[("a", "f"), ("b", "g"), ("a", "f")]),
            Message::tool_result("b", "r-b"),
            Message::tool_result("a", "r-a1"),
            user("and?"),
            Message::tool_result("a", "r-a2"),
            turn(" \n", &[]),
            turn("", &[("a", "f")]),
            Message::tool_result("a", "late"),
            Message::tool_result("a", "twice"),
            turn("ok", &[]),
        ],
        &facts,
    );
    assert_eq!(
        messages,
        [
            "user: hi",
            "assistant:  a:f b:g a_2:f",
            "tool a: r-a1",
            "tool b: r-b",
            "tool a_2: r-a2",
            "user: and?",
            "assistant:  a_3:f",
            "tool a_3: late",
            "assistant: ok",
        ]
    );
    assert_eq!(n, 2, "orphans and an empty turn");
}

// Row H9.
#[test]
fn a_missing_result_is_an_error_result() {
    let request = WireRequest::new(
        "m",
        Request::new(vec![user("hi"), turn("", &[("a", "f")]), user("go on")]),
    );
    let repaired = repair(&request, &WireFacts::CHAT, &[]);
    assert_eq!(
        brief(&repaired.messages)[2],
        format!("tool a: {MISSING_RESULT}")
    );
    assert!(repaired.messages[2].is_error);
    assert_eq!(repaired.messages[2].name.as_deref(), Some("f"));
}

// Row G8 and the further decision on raw think text.
#[test]
fn reasoning_goes_back_by_policy() {
    let think = |text: &str, mut message: Message| {
        message.reasoning = Some(text.to_owned());
        message
    };
    let messages = vec![
        user("1"),
        think("one", turn("a", &[])),
        user("2"),
        think("two", turn("", &[("c", "f")])),
        Message::tool_result("c", "r"),
        turn("<think>three</think>\n\n<THINK> four</think> b", &[]),
    ];
    let kept = |policy, messages: &Vec<Message>| {
        let facts = WireFacts {
            reasoning_replay: policy,
            ..WireFacts::CHAT
        };
        let (lines, _) = repaired(messages.clone(), &facts);
        assert!(
            lines.iter().all(|line| !line.contains("think>")),
            "{lines:?}"
        );
        ["one", "two", "three\nfour"]
            .map(|text| lines.iter().any(|line| line.contains(&format!("({text})"))))
    };
    assert_eq!(
        kept(ReasoningReplay::None, &messages),
        [false, false, false]
    );
    assert_eq!(
        kept(ReasoningReplay::KeepLast, &messages),
        [false, true, true]
    );
    assert_eq!(kept(ReasoningReplay::Full, &messages), [true, true, true]);
    assert_eq!(
        kept(ReasoningReplay::Required, &messages),
        [false, true, false]
    );
    // Without a running loop the last turn that has any keeps it.
    let mut answered = messages;
    answered.push(user("3"));
    assert_eq!(
        kept(ReasoningReplay::KeepLast, &answered),
        [false, false, true]
    );
}

#[test]
fn a_continued_message_stays_as_it_is() {
    let mut request = WireRequest::new(
        "m",
        Request::new(vec![user("hi"), turn("<think>t</think>\n ", &[])]),
    );
    request.continue_final = true;
    let repaired = repair(&request, &WireFacts::CHAT, &[]);
    assert_eq!(repaired.messages[1].content_text(), "<think>t</think>\n ");
}

#[test]
fn items_go_back_over_their_own_wire_only() {
    let mut message = turn("hi", &[]);
    message
        .provider_items
        .push(OpaqueItem::new(OpaqueKind::AnthropicBlock, "{}"));
    let request = WireRequest::new("m", Request::new(vec![user("hi"), message]));
    let count = |own| {
        repair(&request, &WireFacts::CHAT, own).messages[1]
            .provider_items
            .len()
    };
    assert_eq!(count(&[OpaqueKind::AnthropicBlock]), 1);
    assert_eq!(count(&[OpaqueKind::ResponsesItem]), 0);
}

// Case rule 21: names are fitted and mapped back.
#[test]
fn tool_names_are_fitted_and_mapped_back() {
    let mut request = Request::new(vec![user("hi"), turn("", &[("a", "fs.read")])]);
    for name in ["fs.read", "fs_read", "fs:read"] {
        request.tools.push(ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
        });
    }
    let request = WireRequest::new("m", request);
    let repaired = repair(&request, &WireFacts::CHAT, &[]);
    let names: Vec<_> = repaired
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names, ["fs_read_2", "fs_read", "fs_read_3"]);
    assert_eq!(repaired.messages[1].tool_calls[0].name, "fs_read_2");
    let own: Vec<_> = names
        .iter()
        .map(|name| repaired.context.own_name(name))
        .collect();
    assert_eq!(own, ["fs.read", "fs_read", "fs:read"]);
}
