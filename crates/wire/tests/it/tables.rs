//! Small facts in tables: ids, error bodies, histories, vectors, lists of models.

use std::collections::HashSet;

use twopass_core::chat::{
    Arguments, Message, OpaqueItem, OpaqueKind, Request, Role, ToolCall, ToolSpec,
};
use twopass_wire::WireRequest;
use twopass_wire::embeddings::{EmbeddingsReply, EmbeddingsRequest};
use twopass_wire::facts::{IdFormat, ReasoningReplay, WireFacts};
use twopass_wire::fault::{Fault, FaultKind, Refused};
use twopass_wire::history::{MISSING_RESULT, repair};
use twopass_wire::models::{ModelInfo, decode_models, encode_models};
use twopass_wire::openai_chat::{decode_reply, encode_request};

// Row J11, case rule 21.
#[test]
fn ids_are_fitted_to_their_format() {
    let none = HashSet::new();
    for (pattern, id) in [
        ("^[a-zA-Z0-9]{9}$", "c1"),
        ("^[a-zA-Z0-9_-]+$", "functions.get_time:0"),
        ("^call_[a-z0-9]{8}$", "x"),
        ("^[\\w]{1,12}$", "é"),
        ("[0-9]{4}", ""),
    ] {
        let format = IdFormat::from_pattern(pattern).unwrap();
        let fitted = format.fit(id, &none);
        assert!(format.matches(&fitted), "{pattern}: {fitted}");
        assert_eq!(format.fit(id, &none), fitted, "the same for the same");
        assert_eq!(format.fit(&fitted, &none), fitted, "what fits stays");
        let taken = HashSet::from([fitted.clone()]);
        let other = format.fit(id, &taken);
        assert!(format.matches(&other), "{pattern}: {other}");
        assert_ne!(other, fitted);
    }
    let word = IdFormat::word(64);
    assert_eq!(word.fit("fs.read file", &none), "fs_read_file");
    assert_eq!(
        word.fit("call_0", &HashSet::from(["call_0".to_owned()])),
        "call_0_2"
    );
    assert!(
        word.with_max_len(4)
            .matches(&word.with_max_len(4).fit("much too long", &none))
    );
    for pattern in [
        "",
        "^abc$",
        "^(a|b)$",
        "^[^a]+$",
        "^[a-z]{3}x$",
        "^[a-z]{9,3}$",
    ] {
        assert_eq!(IdFormat::from_pattern(pattern), None, "{pattern}");
    }
}

// Rows L11, B14; case error kinds.
#[test]
fn error_bodies_of_every_shape() {
    let table: &[(u16, &str, FaultKind, &str)] = &[
        (
            400,
            r#"{"error":{"message":"bad","type":"invalid_request_error","param":"x"}}"#,
            FaultKind::BadRequest,
            "bad",
        ),
        (
            400,
            r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#,
            FaultKind::ContextLength,
            "m",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
            FaultKind::ContextLength,
            "prompt is too long: 9 tokens > 8 maximum",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"exceeds","type":"exceed_context_size_error"}}"#,
            FaultKind::ContextLength,
            "exceeds",
        ),
        (
            400,
            r#"[{"error":{"code":400,"message":"API key not valid","status":"UNAUTHENTICATED"}}]"#,
            FaultKind::Auth,
            "API key not valid",
        ),
        (
            401,
            r#"{"message":"Unauthorized"}"#,
            FaultKind::Auth,
            "Unauthorized",
        ),
        (
            402,
            r#"{"error":{"message":"Insufficient credits","code":402}}"#,
            FaultKind::QuotaExhausted,
            "Insufficient credits",
        ),
        (403, "", FaultKind::Auth, "HTTP 403 without a body"),
        (
            404,
            r#"{"detail":"Not Found"}"#,
            FaultKind::NotFound,
            "Not Found",
        ),
        (
            404,
            r#"{"error":"model 'x' not found"}"#,
            FaultKind::NotFound,
            "model 'x' not found",
        ),
        (
            413,
            r#"{"error":{"type":"request_too_large","message":"too big"}}"#,
            FaultKind::BadRequest,
            "too big",
        ),
        (
            422,
            r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
            FaultKind::BadRequest,
            r#"[{"loc":["body"],"msg":"field required"}]"#,
        ),
        (
            429,
            r#"{"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded"}}"#,
            FaultKind::RateLimited,
            "slow",
        ),
        (
            429,
            r#"{"error":{"message":"m","code":"insufficient_quota"}}"#,
            FaultKind::QuotaExhausted,
            "m",
        ),
        (500, "boom", FaultKind::UpstreamError, "HTTP 500: boom"),
        (
            502,
            r#"{"error":{"message":"Provider returned error","code":502,"metadata":{"raw":"{\"error\":{\"message\":\"inner\"}}"}}}"#,
            FaultKind::UpstreamError,
            "Provider returned error: inner",
        ),
        (
            503,
            r#"{"error":{"message":"Loading model"}}"#,
            FaultKind::Overloaded,
            "Loading model",
        ),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            FaultKind::Overloaded,
            "Overloaded",
        ),
        (
            302,
            "",
            FaultKind::InvalidResponse,
            "HTTP 302 without a body",
        ),
    ];
    for (status, body, kind, message) in table {
        let fault = Fault::from_response(*status, [], body.as_bytes(), 0.0);
        assert_eq!(fault.kind, *kind, "{status} {body}");
        assert_eq!(fault.message, *message, "{status} {body}");
        assert_eq!(fault.status, Some(*status));
    }
    let refused = |text: &str| {
        Fault::from_response(
            400,
            [],
            format!("{{\"error\":{{\"message\":\"{text}\"}}}}").as_bytes(),
            0.0,
        )
    };
    assert_eq!(
        refused("m does not support thinking").refused,
        Some(Refused::Thinking)
    );
    assert_eq!(
        refused("m does not support tools").refused,
        Some(Refused::Tools)
    );
    let prefill = refused("This model does not support assistant message prefill");
    assert_eq!(prefill.refused, Some(Refused::Prefill));
    assert_eq!(prefill.kind, FaultKind::PrefillUnsupported);
}

// Row L11.
#[test]
fn waits_in_every_form() {
    let wait = |headers: &[(&str, &str)], body: &str| {
        let fault =
            Fault::from_response(429, headers.iter().copied(), body.as_bytes(), 784_111_700.0);
        fault.retry_after_s
    };
    assert_eq!(wait(&[("Retry-After", "7")], ""), Some(7.0));
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], ""),
        Some(77.0)
    );
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1990 08:49:37 GMT")], ""),
        Some(0.0)
    );
    assert_eq!(
        wait(&[("retry-after", "9"), ("retry-after-ms", "1500")], ""),
        Some(1.5)
    );
    assert_eq!(wait(&[("retry-after", "-1")], ""), None);
    assert_eq!(wait(&[("retry-after", "soon")], ""), None);
    let google =
        r#"{"error":{"code":429,"message":"m","details":[{"@type":"x"},{"retryDelay":"3.5s"}]}}"#;
    assert_eq!(wait(&[], google), Some(3.5));
    assert_eq!(
        wait(&[], r#"{"error":{"message":"m","retry_after":2}}"#),
        Some(2.0)
    );
}

// Row B14: no page and no body passes whole.
#[test]
fn pages_are_cut_and_named() {
    let page = format!(
        "<!DOCTYPE html><html><h1>Bad</h1>{}</html>",
        "x".repeat(9000)
    );
    let fault = Fault::from_response(502, [], page.as_bytes(), 0.0);
    assert!(
        fault.message.len() < 600 && fault.message.contains("HTML"),
        "{fault}"
    );
    assert!(Fault::not_json(page.as_bytes()).message.contains("HTML"));
    assert!(Fault::not_json(b"\xff\xfe{").message.len() < 200);
    assert_eq!(Fault::not_json(b" ").message, "the answer is empty");
}

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

// Row J10, case rule 23.
#[test]
fn vectors_are_placed_and_checked() {
    let read = |body: &str, n, dimensions| {
        EmbeddingsReply::from_json(body.as_bytes(), n, dimensions)
            .map(|reply| reply.vectors)
            .map_err(|fault| fault.to_string())
    };
    let good = |body: &str| read(body, 2, Some(1)).unwrap();
    let expected = vec![vec![1.0], vec![2.0]];
    assert_eq!(
        good(r#"{"data":[{"index":1,"embedding":[2]},{"index":0,"embedding":[1.0]}]}"#),
        expected
    );
    assert_eq!(
        good(r#"{"data":[{"embedding":"AACAPw=="},{"embedding":"AAAAQA=="}]}"#),
        expected
    );
    assert_eq!(good(r#"{"embeddings":[[1],[2]]}"#), expected);
    assert_eq!(
        good(r#"[{"index":0,"embedding":[[1]]},{"index":1,"embedding":[[2]]}]"#),
        expected
    );
    for (body, want) in [
        (
            r#"{"data":[{"embedding":[1]}]}"#,
            "invalid_response: 2 texts were sent and 1 vectors came",
        ),
        (
            r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
            "invalid_response: the index of vector 1 is taken twice",
        ),
        (
            r#"{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}"#,
            "invalid_response: the index of vector 1 is not below 2",
        ),
        (
            r#"{"data":[{"embedding":[1,2]},{"embedding":[1]}]}"#,
            "invalid_response: the vectors differ in size",
        ),
        (
            r#"{"data":[{"embedding":[1,2]},{"embedding":[1,2]}]}"#,
            "dimension_mismatch: vectors of 1 dimensions were asked for, 2 came",
        ),
        (
            r#"{"data":[{"embedding":[null]},{"embedding":[1]}]}"#,
            "invalid_response: vector 0 cannot be read: a value is no number",
        ),
        (
            r#"{"data":[{"embedding":[1e99]},{"embedding":[1]}]}"#,
            "invalid_response: vector 0 cannot be read: a value is not finite",
        ),
        (
            r#"{"data":[{"embedding":"AACA"},{"embedding":[1]}]}"#,
            "invalid_response: vector 0 cannot be read: its bytes are no whole number of floats",
        ),
        (r#"{"error":{"message":"no"}}"#, "upstream_error: no"),
        ("<html>", "invalid_response: the answer is an HTML page"),
    ] {
        let have = read(body, 2, Some(1)).unwrap_err();
        assert!(have.starts_with(want), "{body}: {have}");
    }
}

#[test]
fn embeddings_are_read_back() {
    let request = EmbeddingsRequest {
        model: "e".to_owned(),
        inputs: vec!["a".to_owned(), "é".to_owned()],
        dimensions: Some(3),
        base64: true,
    };
    assert_eq!(
        EmbeddingsRequest::from_json(request.to_json().as_bytes()),
        Ok(request)
    );
    let reply = EmbeddingsReply {
        model: "e".to_owned(),
        vectors: vec![vec![0.1, -2.5, 1e-20], vec![f32::MIN_POSITIVE, 0.0, 3.0]],
        prompt_tokens: 4,
    };
    for base64 in [false, true] {
        let read = EmbeddingsReply::from_json(reply.to_json(base64).as_bytes(), 2, Some(3));
        assert_eq!(read, Ok(reply.clone()));
    }
    for body in [
        r#"{"input":[]}"#,
        r#"{"input":[1,2]}"#,
        r#"{}"#,
        r#"{"input":"a","dimensions":0}"#,
    ] {
        assert!(
            EmbeddingsRequest::from_json(body.as_bytes()).is_err(),
            "{body}"
        );
    }
}

#[test]
fn lists_of_models() {
    let ids = |body: &str| -> Vec<(String, Option<u64>)> {
        let models = decode_models(body.as_bytes()).unwrap();
        models
            .into_iter()
            .map(|model| (model.id, model.context_tokens))
            .collect()
    };
    let one = |id: &str, tokens| vec![(id.to_owned(), tokens)];
    assert_eq!(
        ids(r#"{"object":"list","data":[{"id":"a","max_model_len":4096}]}"#),
        one("a", Some(4096))
    );
    assert_eq!(
        ids(r#"{"models":[{"name":"x"}],"data":[{"id":"a","meta":{"n_ctx":2}}]}"#),
        one("a", Some(2))
    );
    assert_eq!(
        ids(r#"{"models":[{"name":"llama3:8b","model":"llama3:8b"}]}"#),
        one("llama3:8b", None)
    );
    assert_eq!(
        ids(r#"{"models":[{"name":"models/g","inputTokenLimit":5}]}"#),
        one("g", Some(5))
    );
    assert_eq!(ids(r#"["a"]"#), one("a", None));
    assert!(decode_models(b"{}").is_err());
    let models = vec![ModelInfo {
        id: "a/b.c".to_owned(),
        owned_by: Some("us".to_owned()),
        created_s: Some(3),
        context_tokens: Some(9),
    }];
    assert_eq!(decode_models(encode_models(&models).as_bytes()), Ok(models));
}

// Case rules 10 to 12, rows E6, E10, M7: structured calls are judged like those in text.
#[test]
fn structured_calls_are_judged() {
    let mut request = Request::new(vec![user("hi")]);
    request.tools.push(ToolSpec {
        name: "fs.read".to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    });
    let encoded = encode_request(&WireRequest::new("m", request), &WireFacts::CHAT).unwrap();
    let body = r#"{"choices":[{"message":{"tool_calls":[
        {"id":"a","function":{"name":"fs_read","arguments":"{\"n\":\"1\"}"}},
        {"id":"b","function":{"name":"fs_read","arguments":"{}"}},
        {"id":"c","function":{"name":"rm","arguments":"{}"}},
        {"id":"d","function":{"name":"fs_read","arguments":"{'n': 2,}"}}
    ]},"finish_reason":"tool_calls"}]}"#;
    let reply = decode_reply(body.as_bytes(), encoded.context).unwrap();
    let good: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| format!("{} {} {}", call.id, call.name, call.arguments.as_text()))
        .collect();
    assert_eq!(good, [r#"a fs.read {"n":1}"#, r#"d fs.read {"n":2}"#]);
    let bad: Vec<_> = reply
        .invalid_tool_calls
        .iter()
        .map(|call| format!("{} {}", call.id, call.kind.as_str()))
        .collect();
    assert_eq!(bad, ["b schema_violation", "c unknown_tool"]);
    assert_eq!(
        reply.diagnostics.len(),
        1,
        "the lenient reader was needed once"
    );
}
