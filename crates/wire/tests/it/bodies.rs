//! Request bodies as they leave: the same conversation over every wire.

use serde_json::{Value, json};
use twopass_core::chat::{
    Arguments, Media, MediaSource, Message, OpaqueItem, OpaqueKind, Part, Request, Role, ToolCall,
    ToolChoice, ToolSpec, TurnBudget,
};
use twopass_wire::facts::{
    Continuation, MaxTokensField, ReasoningField, ReasoningReplay, ThinkingField, WireFacts,
};
use twopass_wire::{
    Encoded, Thinking, WireRequest, anthropic_messages, ollama_chat, openai_chat, openai_responses,
};

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::from_text(arguments).unwrap(),
    }
}

/// Two tools, three turns, an image, a failed and a missing result, kept reasoning.
fn conversation() -> Request {
    let image = Part::Image(Media {
        media_type: Some("image/png".to_owned()),
        ..Media::new(MediaSource::Base64("iVBOR".to_owned()))
    });
    let items = [
        (
            OpaqueKind::ReasoningDetail,
            r#"{"type":"reasoning.encrypted","data":"D=="}"#,
        ),
        (
            OpaqueKind::AnthropicBlock,
            r#"{"type":"thinking","thinking":"Both.","signature":"S=="}"#,
        ),
        (
            OpaqueKind::AnthropicBlock,
            r#"{"type":"tool_use","id":"call.1","name":"get time","input":{"tz":"UTC"}}"#,
        ),
        (
            OpaqueKind::AnthropicBlock,
            r#"{"type":"tool_use","id":"b","name":"note","input":{}}"#,
        ),
        (
            OpaqueKind::ResponsesItem,
            r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E=="}"#,
        ),
        (
            OpaqueKind::ResponsesItem,
            r#"{"type":"function_call","id":"fc_1","call_id":"call.1","name":"get time","arguments":"{\"tz\":\"UTC\"}"}"#,
        ),
        (
            OpaqueKind::ResponsesItem,
            r#"{"type":"function_call","id":"fc_2","call_id":"b","name":"note","arguments":"{}"}"#,
        ),
    ];
    let turn = Message {
        content: Vec::new(),
        reasoning: Some("Both.".to_owned()),
        tool_calls: vec![
            call("call.1", "get time", r#"{"tz":"UTC"}"#),
            call("b", "note", "{}"),
        ],
        provider_items: items
            .into_iter()
            .map(|(kind, json)| OpaqueItem::new(kind, json))
            .collect(),
        ..Message::text(Role::Assistant, "")
    };
    let failed = Message {
        is_error: true,
        ..Message::tool_result("b", "disk full")
    };
    let mut request = Request::new(vec![
        Message::text(Role::System, "Be brief."),
        Message {
            content: vec![Part::Text("What is this?".to_owned()), image],
            ..Message::text(Role::User, "")
        },
        Message::text(Role::Assistant, "<think>hm</think>\nA picture."),
        Message::text(Role::User, "Time? And note it."),
        turn,
        failed,
        Message::tool_result("call.1", "12:00"),
    ]);
    for name in ["get time", "note"] {
        request.tools.push(ToolSpec {
            name: name.to_owned(),
            description: format!("Does {name}."),
            parameters: json!({"type": "object", "properties": {}}),
        });
    }
    request.budget = TurnBudget::OnePass {
        max_tokens: Some(4096),
    };
    request.sampling.temperature = Some(0.3);
    request.stop = vec!["END".to_owned()];
    request
}

fn wire() -> WireRequest {
    let mut wire = WireRequest::new("org/model-1.5", conversation());
    wire.stream = true;
    wire.include_usage = true;
    wire.thinking = Thinking::Budget(2000);
    wire
}

/// The body, laid out for reading, and what was changed.
fn show(encoded: &Encoded) -> String {
    let body: Value = serde_json::from_str(&encoded.body).unwrap();
    let body = serde_json::to_string_pretty(&body).unwrap();
    let notes: Vec<_> = encoded
        .diagnostics
        .iter()
        .map(ToString::to_string)
        .collect();
    format!("{body}\n{}", notes.join("\n"))
}

#[test]
fn chat_with_kept_reasoning() {
    let facts = WireFacts {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        reasoning_replay: ReasoningReplay::Full,
        reasoning_field: Some(ReasoningField::Reasoning),
        thinking: ThinkingField::ReasoningObject,
        ..WireFacts::CHAT
    };
    insta::assert_snapshot!(show(&openai_chat::encode_request(&wire(), &facts).unwrap()));
}

#[test]
fn chat_without_reasoning_continued() {
    let mut wire = wire();
    wire.request.messages.truncate(3);
    wire.continue_final = true;
    let facts = WireFacts {
        thinking: ThinkingField::ThinkingTokenBudget,
        continuation: Continuation::ContinueFlags,
        ..WireFacts::CHAT
    };
    insta::assert_snapshot!(show(&openai_chat::encode_request(&wire, &facts).unwrap()));
}

#[test]
fn responses_not_stored() {
    let facts = WireFacts {
        store: Some(false),
        ..WireFacts::RESPONSES
    };
    insta::assert_snapshot!(show(
        &openai_responses::encode_request(&wire(), &facts).unwrap()
    ));
}

#[test]
fn responses_going_on_from_a_stored_answer() {
    let mut wire = wire();
    wire.previous_response_id = Some("resp_0".to_owned());
    insta::assert_snapshot!(show(
        &openai_responses::encode_request(&wire, &WireFacts::RESPONSES).unwrap()
    ));
}

// Row H11 and case rule 21: what this service refuses is not sent, and it is told.
#[test]
fn anthropic_sends_what_the_service_takes() {
    let mut wire = wire();
    wire.thinking = Thinking::Default;
    wire.request.sampling.temperature = Some(1.6);
    wire.request.stop = vec!["\n\n".to_owned(), "END".to_owned()];
    let last = Message::text(Role::Assistant, "Well  \n");
    wire.request.messages.push(last);
    let encoded = anthropic_messages::encode_request(&wire, &WireFacts::ANTHROPIC).unwrap();
    let body: Value = serde_json::from_str(&encoded.body).unwrap();
    assert_eq!(body["temperature"], 1.0);
    assert_eq!(body["stop_sequences"], json!(["END"]));
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["content"][0]["text"], "Well");
    let notes: Vec<_> = encoded.diagnostics.iter().map(|d| &d.message).collect();
    for word in ["temperature", "`stop`"] {
        assert!(notes.iter().any(|note| note.contains(word)), "{notes:?}");
    }
    wire.request.messages = vec![Message::text(Role::System, "Be brief.")];
    let encoded = anthropic_messages::encode_request(&wire, &WireFacts::ANTHROPIC).unwrap();
    let body: Value = serde_json::from_str(&encoded.body).unwrap();
    assert_eq!(body["messages"][0]["role"], "user");
}

#[test]
fn anthropic_with_thinking() {
    insta::assert_snapshot!(show(
        &anthropic_messages::encode_request(&wire(), &WireFacts::ANTHROPIC).unwrap()
    ));
}

#[test]
fn anthropic_without_room_to_think() {
    let mut wire = wire();
    wire.request.budget = TurnBudget::OnePass {
        max_tokens: Some(500),
    };
    insta::assert_snapshot!(show(
        &anthropic_messages::encode_request(&wire, &WireFacts::ANTHROPIC).unwrap()
    ));
}

#[test]
fn ollama() {
    insta::assert_snapshot!(show(
        &ollama_chat::encode_request(&wire(), &WireFacts::OLLAMA).unwrap()
    ));
}

// Row L13: what a wire cannot carry is an error, never dropped.
#[test]
fn content_that_cannot_be_sent_is_an_error() {
    let audio = Part::Audio(Media::new(MediaSource::Url("http://x".to_owned())));
    let mut wire = wire();
    wire.request.messages = vec![Message {
        content: vec![audio],
        ..Message::text(Role::User, "")
    }];
    assert!(openai_chat::encode_request(&wire, &WireFacts::CHAT).is_err());
    assert!(openai_responses::encode_request(&wire, &WireFacts::RESPONSES).is_err());
    assert!(anthropic_messages::encode_request(&wire, &WireFacts::ANTHROPIC).is_err());
    assert!(ollama_chat::encode_request(&wire, &WireFacts::OLLAMA).is_err());
}

// A demanded form without one is no demand for any JSON, and a tool named by a type must be
// called, in whichever format's shape. Rows E6, M5.
#[test]
fn demands_are_read_whole() {
    let chat = |fields: &str| {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"Hi"}}],"tools":[{{"name":"f"}}]{fields}}}"#
        );
        openai_chat::decode_request(body.as_bytes())
    };
    let error = chat(r#","response_format":{"type":"json_schema"}"#).unwrap_err();
    assert_eq!(error.param, "response_format.json_schema");
    let nameless = r#","response_format":{"type":"json_schema","json_schema":{"name":"x"}}"#;
    assert_eq!(
        chat(nameless).unwrap_err().param,
        "response_format.json_schema.schema"
    );
    let text = br#"{"input":"Hi","text":{"format":{"type":"json_schema","name":"x"}}}"#;
    let error = openai_responses::decode_request(text).unwrap_err();
    assert_eq!(error.param, "text.format.schema");
    let choice = |choice: &str| {
        let read = chat(&format!(r#","tool_choice":{choice}"#));
        read.unwrap().request.tool_choice
    };
    let named = ToolChoice::Named("f".to_owned());
    assert_eq!(choice(r#"{"type":"tool","name":"f"}"#), named);
    assert_eq!(choice(r#"{"type":"function","name":"f"}"#), named);
    assert_eq!(choice(r#"{"name":"f"}"#), ToolChoice::Only("f".to_owned()));
}

// What names a conversation, in each format; what is no text, or empty, names none.
#[test]
fn conversations_have_names() {
    let chat = |fields: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}]{fields}}}"#);
        let read = openai_chat::decode_request(body.as_bytes());
        read.unwrap().request.session
    };
    let responses = |fields: &str| {
        let body = format!(r#"{{"input":"Hi"{fields}}}"#);
        let read = openai_responses::decode_request(body.as_bytes());
        read.unwrap().request.session
    };
    let anthropic = |fields: &str| {
        let body =
            format!(r#"{{"max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}]{fields}}}"#);
        let read = anthropic_messages::decode_request(body.as_bytes());
        read.unwrap().request.session
    };
    let generate = |fields: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}]{fields}}}"#);
        let read = twopass_wire::generate::GenerateRequest::from_json(body.as_bytes());
        read.unwrap().user
    };
    for (session, expect) in [
        (chat(r#","user":"u""#), Some("u")),
        (chat(r#","user":"u","prompt_cache_key":"k""#), Some("k")),
        (chat(r#","user":7,"prompt_cache_key":"""#), None),
        (responses(r#","prompt_cache_key":"k""#), Some("k")),
        (responses(""), None),
        (anthropic(r#","metadata":{"user_id":"u"}"#), Some("u")),
        (anthropic(r#","metadata":[]"#), None),
        (generate(r#","user":"u""#), Some("u")),
        (generate(""), None),
    ] {
        assert_eq!(session.as_deref(), expect);
    }
}
