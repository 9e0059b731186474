//! Turns and runs in a short notation.
//!
//! A turn is a list of words: `name:x` is a call of that tool with `{"q": "x"}`, `?name` a call
//! of a tool that does not exist, `!name` one whose arguments break its schema, `~` one that
//! has not even a name; `-` is an empty turn, `cut` an empty one at the token cap, `@kind` a
//! failure of that kind; anything else is text. Tools whose name begins with `bad` fail, all others give `name x`.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use twopass_agent::{AgentEvent, LoopOptions, Outcome, Step, TurnLoop};
use twopass_core::chat::{
    Arguments, CallErrorKind, Event, InvalidToolCall, Message, Reply, Role, StopReason, ToolCall,
    ToolSpec,
};
use twopass_core::tool_parser::ToolSet;
use twopass_provider::{ErrorKind, ProviderError};
use twopass_tools::{ToolError, ToolOutput};

/// Everything that a run did.
pub(crate) struct Played {
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<AgentEvent>,
    /// The messages of each request.
    pub(crate) asked: Vec<Vec<Message>>,
}

/// Runs turns to the end; past the last one the model answers `ok`.
pub(crate) fn play(options: LoopOptions, messages: Vec<Message>, turns: &[&str]) -> Played {
    let mut run = TurnLoop::new(options, messages, Arc::new(ToolSet::new(tools())));
    let (mut events, mut asked) = (Vec::new(), Vec::new());
    loop {
        match run.poll() {
            Step::Emit(event) => events.push(event),
            Step::Ask(messages) => {
                let words = turns.get(asked.len()).unwrap_or(&"ok");
                let step = asked.len();
                asked.push(messages);
                if let Some(kind) = words.strip_prefix('@').and_then(ErrorKind::from_name) {
                    run.handle_failure(ProviderError::new(kind, "as scripted"));
                    continue;
                }
                let reply = turn(words, step);
                report_calls(&mut run, &reply);
                run.handle_reply(reply);
            }
            Step::Run(calls) => {
                for call in calls.iter().rev() {
                    run.handle_result(&call.id, result_of(call));
                }
            }
            Step::Wait => panic!("the loop waits for nothing"),
            Step::Done => break,
        }
    }
    let outcome = run.into_outcome();
    assert_pairs(&outcome.messages);
    asked.iter().for_each(|messages| assert_pairs(messages));
    Played {
        outcome,
        events,
        asked,
    }
}

/// Rows H9, J11: every call has exactly one result, right after its turn and in call order,
/// and no two calls have one id.
pub(crate) fn assert_pairs(messages: &[Message]) {
    let mut ids = std::collections::HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message.role {
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap();
                assert!(!open.is_empty() && open.remove(0) == id, "result of {id}");
            }
            _ => assert!(open.is_empty(), "{open:?} have no results"),
        }
        for call in &message.tool_calls {
            assert!(ids.insert(call.id.as_str()), "id {} twice", call.id);
            open.push(&call.id);
        }
    }
    assert!(open.is_empty(), "{open:?} have no results");
}

pub(crate) fn task() -> Vec<Message> {
    vec![
        Message::text(Role::System, "You find things."),
        Message::text(Role::User, "Find it."),
    ]
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let names = ["find", "look", "edit", "done", "bad"];
    let spec = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: name.to_owned(),
        parameters: json!({
            "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"],
        }),
    };
    names.map(spec).into()
}

pub(crate) fn object(q: &str) -> Map<String, Value> {
    Map::from_iter([("q".to_owned(), q.into())])
}

fn result_of(call: &ToolCall) -> ToolOutput {
    let q = call.arguments.as_object()["q"].as_str().unwrap();
    match call.name.as_str() {
        "bad" => ToolError::failed(format!("cannot do {q}")).into(),
        name => ToolOutput::text(format!("{name} {q}")),
    }
}

fn turn(words: &str, step: usize) -> Reply {
    let mut reply = Reply::default();
    let mut text = Vec::new();
    for (at, word) in words.split_whitespace().enumerate() {
        let id = format!("id_{step}_{at}");
        if let Some((name, q)) = word.split_once(':').filter(|(name, _)| is_name(name)) {
            reply.tool_calls.push(ToolCall {
                id,
                name: name.to_owned(),
                arguments: Arguments::from_object(object(q)),
            });
        } else if let Some(name) = word.strip_prefix(['?', '!', '~']) {
            let kind = match &word[..1] {
                "?" => CallErrorKind::UnknownTool,
                "!" => CallErrorKind::SchemaViolation,
                _ => CallErrorKind::MalformedArguments,
            };
            reply.invalid_tool_calls.push(InvalidToolCall {
                id,
                name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                arguments: "{\"x\":1}".to_owned(),
                kind,
                path: None,
                message: format!("{} it is", kind.as_str()),
            });
        } else if word == "cut" {
            reply.stop_reason = StopReason::Length;
        } else if word != "-" {
            text.push(word);
        }
    }
    reply.content = text.join(" ");
    reply
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_lowercase())
}

/// Reports calls in the order in which the model wrote them.
fn report_calls(run: &mut TurnLoop, reply: &Reply) {
    let place = |id: &str| id.rsplit('_').next().unwrap().parse::<usize>().unwrap();
    for call in &reply.invalid_tool_calls {
        run.handle_event(Event::CallRejected {
            call_idx: place(&call.id),
            call: call.clone(),
        });
    }
    for call in &reply.tool_calls {
        run.handle_event(Event::CallFinished {
            call_idx: place(&call.id),
            call: call.clone(),
        });
    }
}
