//! Small facts in tables: ids, error bodies, vectors, lists of models.

use std::collections::HashSet;

use twopass_core::chat::{Request, ToolSpec};
use twopass_wire::WireRequest;
use twopass_wire::embeddings::{EmbeddingsReply, EmbeddingsRequest};
use twopass_wire::facts::{IdFormat, WireFacts};
use twopass_wire::fault::{Fault, FaultKind, Refused};
use twopass_wire::models::{ModelInfo, decode_models, encode_models};
use twopass_wire::openai_chat::{decode_reply, encode_request};

use crate::histories::user;

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
