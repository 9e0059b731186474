//! How thinking is asked for, and how past reasoning goes back, by the facts of an endpoint.
//! Rows M4, G8.

use serde_json::{Value, json};
use twopass_core::chat::{Message, Request, Role, Thinking};
use twopass_wire::WireRequest;
use twopass_wire::facts::{ReasoningField, ReasoningReplay, ThinkingField, WireFacts};
use twopass_wire::openai_chat::{decode_request, encode_request};

use crate::histories::{turn, user};

const SWITCH: WireFacts = WireFacts {
    thinking: ThinkingField::Switch,
    reasoning_replay: ReasoningReplay::Required,
    reasoning_field: Some(ReasoningField::ReasoningContent),
    calls_need_reasoning: true,
    ..WireFacts::CHAT
};

fn body(thinking: Thinking, messages: Vec<Message>) -> Value {
    let request = Request {
        thinking,
        ..Request::new(messages)
    };
    let request = WireRequest::new("m".to_owned(), request);
    serde_json::from_str(&encode_request(&request, &SWITCH).unwrap().body).unwrap()
}

#[test]
fn m4_a_switch_and_an_effort() {
    for (thinking, switch, effort) in [
        (Thinking::Default, Value::Null, Value::Null),
        (Thinking::On, json!("enabled"), Value::Null),
        (Thinking::Off, json!("disabled"), Value::Null),
        (Thinking::Budget(0), json!("disabled"), Value::Null),
        (Thinking::Budget(900), json!("enabled"), json!("low")),
        (
            Thinking::Effort("max".to_owned()),
            json!("enabled"),
            json!("max"),
        ),
    ] {
        let body = body(thinking.clone(), vec![user("Hi")]);
        assert_eq!(body["thinking"]["type"], switch, "{thinking:?}");
        assert_eq!(body["reasoning_effort"], effort, "{thinking:?}");
        // The server side reads what the client side writes.
        let read = decode_request(body.to_string().as_bytes()).unwrap();
        let read = read.thinking;
        assert_eq!(read.is_on(), thinking.is_on(), "{thinking:?}");
        assert_eq!(read.effort().is_some(), thinking.effort().is_some());
    }
}

// A calling turn of somebody else has no reasoning; some services refuse it without the field.
#[test]
fn g8_turns_with_calls_have_the_field() {
    let thought = Message {
        reasoning: Some("hm".to_owned()),
        ..turn("", &[("a", "f")])
    };
    let bare = turn("", &[("b", "f")]);
    let plain = Message {
        reasoning: Some("not sent".to_owned()),
        ..Message::text(Role::Assistant, "Hello")
    };
    let messages = vec![user("1"), plain, user("2"), thought, bare];
    let body = body(Thinking::Default, messages);
    let sent: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| message["reasoning_content"].clone())
        .collect();
    assert_eq!(sent, [Value::Null, json!("hm"), json!("")]);
}
