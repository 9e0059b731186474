use twopass_wire::error::ErrorBody;

#[test]
fn bodies_of_many_servers_are_read() {
    let rows = [
        (
            r#"{"error":{"kind":"bad_request","message":"no","param":"stop"}}"#,
            "bad_request",
            "no",
            Some("stop"),
        ),
        (
            r#"{"error":{"type":"invalid_request_error","message":"no","code":null}}"#,
            "invalid_request_error",
            "no",
            None,
        ),
        (
            r#"{"error":{"code":429,"message":"slow down"}}"#,
            "429",
            "slow down",
            None,
        ),
        (
            r#"{"error":"model not found"}"#,
            "",
            "model not found",
            None,
        ),
        (r#"{"detail":"Not Found"}"#, "", "Not Found", None),
        (
            r#"{"detail":[{"loc":["body","messages"]}]}"#,
            "",
            r#"[{"loc":["body","messages"]}]"#,
            None,
        ),
        (r#"{"message":"two\nlines"}"#, "", "two lines", None),
    ];
    for (text, kind, message, param) in rows {
        let body = ErrorBody::from_json(text.as_bytes()).unwrap();
        assert_eq!(
            (
                body.kind.as_str(),
                body.message.as_str(),
                body.param.as_deref()
            ),
            (kind, message, param)
        );
    }
    for text in ["", "<html>", "[]", "{}", r#"{"error":true}"#, r#"{"ok":1}"#] {
        assert_eq!(ErrorBody::from_json(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn our_body_is_exact_and_long_texts_are_cut() {
    let body = ErrorBody {
        kind: "bad_request".to_owned(),
        message: "a \"b\"".to_owned(),
        param: None,
        ..ErrorBody::default()
    };
    assert_eq!(
        body.to_json(),
        r#"{"error":{"kind":"bad_request","message":"a \"b\"","param":null}}"#
    );
    assert_eq!(ErrorBody::from_json(body.to_json().as_bytes()), Some(body));
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(10_000));
    assert_eq!(
        ErrorBody::from_json(long.as_bytes())
            .unwrap()
            .message
            .chars()
            .count(),
        601
    );
}
