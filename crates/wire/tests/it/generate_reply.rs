use serde_json::{Value, json};
use twopass_core::chat::{
    Arguments, CallErrorKind, Diagnostic, DiagnosticKind, InvalidToolCall, PassReport, Reply,
    StopReason, ToolCall, Usage,
};
use twopass_wire::generate::{decode_reply, encode_reply};

/// The documented reply of a turn with a call.
const DOCUMENTED: &str = r#"{"thinking": "...", "response": "I'll update memory.", "tool_calls": [{"id":"call_1","name":"overwrite_memory","arguments":{"new_memory":"..."}}], "pre_tool_text": "I'll update memory."}"#;

pub(crate) fn full_reply() -> Reply {
    let arguments = "{\"n\": 123456789012345678901234567890,  \"z\": 1, \"a\": 2}";
    Reply {
        content: "Sure.".to_owned(),
        reasoning: "Hm.\nYes.".to_owned(),
        tool_calls: vec![ToolCall {
            id: "call_1".to_owned(),
            name: "f".to_owned(),
            arguments: Arguments::from_text(arguments).unwrap(),
        }],
        invalid_tool_calls: vec![InvalidToolCall {
            id: "call_2".to_owned(),
            name: Some("g".to_owned()),
            arguments: "{\"n\": ".to_owned(),
            kind: CallErrorKind::TruncatedToolCall,
            path: Some("/n".to_owned()),
            message: "cut".to_owned(),
        }],
        stop_reason: StopReason::ToolCalls,
        reasoning_truncated: true,
        usage: Usage {
            prompt_tokens: 10,
            thinking_tokens: 4,
            response_tokens: 5,
            cached_tokens: 3,
        },
        passes: vec![PassReport {
            name: "thinking",
            means: "engine_rule",
            max_tokens: Some(4),
            prefill_tokens: 7,
            cached_tokens: 3,
            decode_tokens: 4,
            duration_ms: 1.25,
            stop_reason: StopReason::Length,
        }],
        diagnostics: vec![Diagnostic::new(
            DiagnosticKind::InvalidToolCall,
            "one call was dropped",
        )],
        ..Reply::default()
    }
}

#[test]
fn f4_b13_documented_reply_round_trips_field_by_field() {
    let reply = decode_reply(DOCUMENTED).unwrap();
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("...", "I'll update memory.")
    );
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    let documented: Value = serde_json::from_str(DOCUMENTED).unwrap();
    let ours: Value = serde_json::from_str(&encode_reply(&reply)).unwrap();
    for (name, value) in documented.as_object().unwrap() {
        assert_eq!(&ours[name], value, "{name}");
    }
}

// Rows F2, F3, X6, X21.
#[test]
fn f2_f3_calls_are_always_a_list_and_pre_tool_text_equals_the_response() {
    let plain = Reply {
        content: "Hello".to_owned(),
        ..Reply::default()
    };
    let body: Value = serde_json::from_str(&encode_reply(&plain)).unwrap();
    assert_eq!(body["tool_calls"], json!([]));
    assert_eq!(
        (&body["response"], &body["pre_tool_text"]),
        (&json!("Hello"), &Value::Null)
    );
    let body: Value = serde_json::from_str(&encode_reply(&full_reply())).unwrap();
    assert_eq!(body["pre_tool_text"], body["response"]);
    for calls in ["null", "[]"] {
        let text = format!(r#"{{"thinking":"","response":"Hi","tool_calls":{calls}}}"#);
        assert_eq!(decode_reply(&text).unwrap().tool_calls, [], "{calls}");
    }
    let only_pre =
        r#"{"thinking":"t","tool_calls":[{"name":"f","args":{"x":1}}],"pre_tool_text":"Now."}"#;
    let reply = decode_reply(only_pre).unwrap();
    assert_eq!(
        (reply.content.as_str(), reply.tool_calls[0].id.as_str()),
        ("Now.", "call_1")
    );
}

/// A reply is one line, however the model laid its arguments out.
#[test]
fn a_reply_is_one_line() {
    let mut reply = full_reply();
    let laid_out = "{\n  \"a\": \"x\\ny\"\r\n}";
    reply.tool_calls[0].arguments = Arguments::from_text(laid_out.to_owned()).unwrap();
    let text = encode_reply(&reply);
    assert!(!text.contains(['\n', '\r']), "{text}");
    let back = decode_reply(&text).unwrap();
    assert_eq!(back.tool_calls[0].arguments, reply.tool_calls[0].arguments);
}

#[test]
fn decode_inverts_encode() {
    for stop_reason in [
        StopReason::EndTurn,
        StopReason::StopSequence("END".to_owned()),
        StopReason::Length,
        StopReason::ToolCalls,
        StopReason::ContentFilter,
        StopReason::Cancelled,
    ] {
        let reply = Reply {
            stop_reason,
            ..full_reply()
        };
        let text = encode_reply(&reply);
        let back = decode_reply(&text).unwrap();
        assert_eq!(back, reply);
        assert_eq!(
            back.tool_calls[0].arguments.as_text(),
            reply.tool_calls[0].arguments.as_text()
        );
        assert_eq!(encode_reply(&back), text);
    }
}

#[test]
fn every_field_is_exact_on_the_wire() {
    let reply = Reply {
        tool_calls: Vec::new(),
        ..full_reply()
    };
    assert_eq!(
        encode_reply(&reply),
        concat!(
            r#"{"thinking":"Hm.\nYes.","response":"Sure.","tool_calls":[],"pre_tool_text":null,"#,
            r#""finish_reason":"tool_calls","thinking_truncated":true,"#,
            r#""usage":{"prompt_tokens":10,"thinking_tokens":4,"response_tokens":5,"cached_tokens":3},"#,
            r#""invalid_tool_calls":[{"id":"call_2","name":"g","arguments":"{\"n\": ","#,
            r#""kind":"truncated_tool_call","path":"/n","message":"cut"}],"#,
            r#""diagnostics":[{"kind":"invalid_tool_call","message":"one call was dropped"}],"#,
            r#""passes":[{"name":"thinking","means":"engine_rule","max_tokens":4,"prefill_tokens":7,"#,
            r#""cached_tokens":3,"decode_tokens":4,"duration_ms":1.25,"finish_reason":"length"}]}"#
        )
    );
}

#[test]
fn replies_of_another_shape_are_refused_with_their_place() {
    let rows = [
        ("", "is not JSON"),
        ("[]", "`body`: must be an object"),
        ("{}", "none of `response`, `thinking` and `tool_calls`"),
        (
            r#"{"response": 3}"#,
            "`response`: must be a string, got `3`",
        ),
        (
            r#"{"response": "", "tool_calls": [{"id": "c"}]}"#,
            "`tool_calls[0].name`",
        ),
        (
            r#"{"response": "", "tool_calls": [{"name": "f", "arguments": "no"}]}"#,
            "`tool_calls[0].arguments`",
        ),
    ];
    for (text, expect) in rows {
        let error = decode_reply(text).unwrap_err().to_string();
        assert!(error.contains(expect), "{text}: {error}");
    }
    // What nobody needs may be wrong.
    let odd = r#"{"response": "x", "usage": 3, "passes": {}, "diagnostics": [1], "finish_reason": "odd"}"#;
    assert_eq!(
        decode_reply(odd).unwrap().stop_reason,
        StopReason::Unknown("odd".to_owned())
    );
}
