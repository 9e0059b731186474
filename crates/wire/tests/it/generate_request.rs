use serde_json::{Value, json};
use twopass_core::chat::{
    Media, MediaSource, Message, Part, ResponseFormat, Role, ThinkTag, ToolChoice,
};
use twopass_wire::generate::GenerateRequest;

fn read(body: &Value) -> Result<GenerateRequest, String> {
    GenerateRequest::from_json(body.to_string().as_bytes()).map_err(|fault| fault.to_string())
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    });
    body[field] = value;
    body
}

/// Content is never dropped: what is no text goes on, or is refused by name.
#[test]
fn images_and_files_cross_the_wire() {
    let parts = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAEC"}},
        {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ]);
    let request = read(&with(
        "messages",
        json!([{"role": "user", "content": parts}]),
    ))
    .unwrap();
    let content = &request.messages[0].content;
    assert!(
        matches!(
            content.as_slice(),
            [
                Part::Text(_),
                Part::Image(_),
                Part::Image(_),
                Part::Audio(_),
                Part::File(_)
            ]
        ),
        "{content:?}"
    );
    let again = GenerateRequest::from_json(request.to_json().as_bytes()).unwrap();
    assert_eq!(again.messages, request.messages);

    // An image that only another service holds has no form here.
    let mut foreign = request;
    let image = Media::new(MediaSource::FileId("f2".to_owned()));
    foreign.messages[0].content = vec![Part::Image(image)];
    let refused = GenerateRequest::from_json(foreign.to_json().as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("content[0]"), "{refused}");
}

#[test]
fn f1_every_documented_field_is_read() {
    let request = read(&json!({
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0.3,
        "two_pass": true,
        "think_tag": "thinking",
        "max_thinking_tokens": 0,
        "max_response_tokens": 8.0,
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
        "tool_choice": {"name": "f"},
        "tool_parser": "hermes",
        "seed": 18_446_744_073_709_551_615_u64,
        "top_p": 0.9,
        "stop": "END",
        "model": "local",
        "unheard_of": {"x": [1]},
        "max_tokens": null,
    }))
    .unwrap();
    assert_eq!(
        request.messages[0],
        Message::text(Role::System, "Be brief.")
    );
    assert_eq!(request.sampling.temperature, Some(0.3));
    assert_eq!(request.sampling.seed, Some(u64::MAX));
    assert_eq!(
        (request.two_pass, request.think_tag),
        (Some(true), Some(ThinkTag::Thinking))
    );
    assert_eq!(
        (request.max_thinking_tokens, request.max_response_tokens),
        (Some(0), Some(8))
    );
    assert_eq!(request.tool_choice, Some(ToolChoice::Only("f".to_owned())));
    assert_eq!(request.stop, ["END"]);
    assert_eq!(
        (request.model.as_deref(), request.max_tokens, request.stream),
        (Some("local"), None, false)
    );
}

#[test]
fn f1_lenient_shapes_are_read() {
    let request = read(&json!({
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "thinking": "hm", "tool_calls": [
                {"id": "call_1", "name": "f", "arguments": {"n": 1}},
                {"id": "call_2", "name": "f", "args": {"n": 2}},
                {"id": "call_3", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 123456789012345678901234567890}"}},
            ]},
            {"role": "function", "tool_call_id": "call_1", "content": "r", "is_error": true},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": null}}, {"name": "g", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "two_pass": "auto",
    }))
    .unwrap();
    assert_eq!(request.messages[0].content_text(), "ab");
    let calls = &request.messages[1].tool_calls;
    assert_eq!(calls[1].arguments.as_text(), r#"{"n":2}"#);
    assert!(
        calls[2]
            .arguments
            .as_text()
            .contains("123456789012345678901234567890")
    );
    assert_eq!(request.messages[1].reasoning.as_deref(), Some("hm"));
    assert!(request.messages[2].is_error && request.messages[2].role == Role::Tool);
    assert_eq!(request.tool_choice, Some(ToolChoice::Named("f".to_owned())));
    assert_eq!(request.two_pass, None);
    assert_eq!(request.tools.len(), 2);
}

// Rows A5, F5: every fault names its parameter, what is allowed and what was given.
#[test]
fn f5_faults_name_the_parameter() {
    let rows = [
        (
            with("max_thinking_tokens", json!(-1)),
            "`max_thinking_tokens`: must be a whole number of at least 0, got `-1`",
        ),
        (
            with("max_response_tokens", json!(0)),
            "`max_response_tokens`: must be a whole number of at least 1, got `0`",
        ),
        (
            with("max_tokens", json!(1.5)),
            "`max_tokens`: must be a whole number of at least 1, got `1.5`",
        ),
        (
            with("max_tokens", json!("9")),
            "`max_tokens`: must be a whole number of at least 1, got `\"9\"`",
        ),
        (
            with("think_tag", json!("reasoning")),
            "`think_tag`: must be `think` or `thinking`, got `\"reasoning\"`",
        ),
        (
            with("two_pass", json!(1)),
            "`two_pass`: must be true, false or `auto`, got `1`",
        ),
        (
            with("temperature", json!("hot")),
            "`temperature`: must be a number, got `\"hot\"`",
        ),
        (
            with("seed", json!(-4)),
            "`seed`: must be a whole number of at least 0, got `-4`",
        ),
        (
            with("stop", json!([1])),
            "`stop`: must be a string or an array of strings, got an array",
        ),
        (
            with("stream", json!("yes")),
            "`stream`: must be true or false, got `\"yes\"`",
        ),
        (
            with("tools", json!({})),
            "`tools`: must be an array, got an object",
        ),
        (
            with("tools", json!([{"description": "d"}])),
            "`tools[0].name`: must be the tool's name, got nothing",
        ),
        (
            with("tools", json!([{"name": "f", "parameters": []}])),
            "`tools[0].parameters`: must be a JSON Schema of type `object` for the tool `f`",
        ),
        (
            with(
                "tools",
                json!([{"name": "f", "parameters": {"type": "string"}}]),
            ),
            "`tools[0].parameters`: must be a JSON Schema of type `object` for the tool `f`",
        ),
        (
            with(
                "tools",
                json!([{"function": {"name": "f", "parameters": 3}}]),
            ),
            "`tools[0].function.parameters`: must be a JSON Schema of type `object` for the tool `f`",
        ),
        (
            with("tool_choice", json!({"name": "g"})),
            "`tool_choice`: unknown tool `g`, offered: `f`",
        ),
        (
            with("tool_choice", json!("f")),
            "`tool_choice`: must be `auto`, `none`, `required` or `{\"name\": <tool>}`, got `\"f\"`",
        ),
        (
            with("messages", json!([])),
            "`messages`: at least one message is needed",
        ),
        (
            with("messages", json!("hi")),
            "`messages`: must be an array, got `\"hi\"`",
        ),
        (
            with("messages", json!(["hi"])),
            "`messages[0]`: must be an object, got `\"hi\"`",
        ),
        (
            with("messages", json!([{"content": "x"}])),
            "`messages[0].role`: must be `system`, `developer`, `user`, `assistant` or `tool`, got nothing",
        ),
        (
            with("messages", json!([{"role": "robot"}])),
            "`messages[0].role`: must be `system`, `developer`, `user`, `assistant` or `tool`, got `\"robot\"`",
        ),
        (
            with("messages", json!([{"role": "user", "content": 3}])),
            "`messages[0].content`: must be a string or an array of parts, got `3`",
        ),
        (
            with(
                "messages",
                json!([{"role": "user", "content": [{"type": "tool_use", "name": "f"}]}]),
            ),
            "`messages[0].content[0].type`: must be `text`, `image_url`, `input_audio` or `file`",
        ),
        (
            with(
                "messages",
                json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            ),
            "`messages[0].content[0]`: must hold the image's address or data",
        ),
        (
            with(
                "messages",
                json!([{"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": "[1]"}]}]),
            ),
            "`messages[0].tool_calls[0].arguments`: arguments must be a JSON object: it is an array",
        ),
        (
            with(
                "messages",
                json!([{"role": "assistant", "tool_calls": [{"name": "f"}]}]),
            ),
            "`messages[0].tool_calls[0].id`: must be the call's id, got nothing",
        ),
        (json!([1]), "`body`: must be an object, got an array"),
    ];
    for (body, expect) in rows {
        assert_eq!(read(&body).unwrap_err(), expect, "{body}");
    }
}

#[test]
fn f5_bytes_that_are_no_json_are_a_fault_of_the_body() {
    for (bytes, expect) in [
        (
            &b""[..],
            "`body`: is not JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            b"{\"messages\": [",
            "`body`: is not JSON: EOF while parsing a list at line 1 column 14",
        ),
        (
            b"{\"a\": 1} x",
            "`body`: is not JSON: trailing characters at line 1 column 10",
        ),
        (b"{\"a\": \"\xff\"}", "`body`: is not UTF-8 at byte 7"),
    ] {
        assert_eq!(
            GenerateRequest::from_json(bytes).unwrap_err().to_string(),
            expect
        );
    }
    // Nesting beyond any use neither overflows the stack nor passes.
    let deep = format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": {}1{}}}]}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    assert_eq!(
        GenerateRequest::from_json(deep.as_bytes())
            .unwrap_err()
            .param,
        "messages[0].content"
    );
}

#[test]
fn b12_the_client_side_writes_what_the_server_side_reads() {
    let request = read(&json!({
        "model": "m/1.5", "stream": true,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "name": "f", "arguments": {"n": 1}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "no", "is_error": true},
        ],
        "temperature": 0.3, "top_k": 40, "seed": 7, "two_pass": true, "think_tag": "think",
        "max_thinking_tokens": 16, "max_response_tokens": 32, "stop": ["a", "b"],
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
        "tool_choice": "required", "tool_parser": "hermes", "parallel_tool_calls": false,
        "chat_template_kwargs": {"enable_thinking": true},
    }))
    .unwrap();
    let text = request.to_json();
    assert_eq!(
        GenerateRequest::from_json(text.as_bytes()).unwrap(),
        request
    );
    assert_eq!(
        text,
        concat!(
            r#"{"messages":[{"role":"user","content":"Hi"},"#,
            r#"{"role":"assistant","content":"","tool_calls":[{"id":"call_1","name":"f","arguments":{"n":1}}]},"#,
            r#"{"role":"tool","content":"no","tool_call_id":"call_1","is_error":true}],"#,
            r#""model":"m/1.5","temperature":0.3,"top_k":40,"seed":7,"two_pass":true,"think_tag":"think","#,
            r#""max_thinking_tokens":16,"max_response_tokens":32,"stop":["a","b"],"#,
            r#""tools":[{"name":"f","description":"d","parameters":{"type":"object"}}],"#,
            r#""tool_choice":"required","tool_parser":"hermes","parallel_tool_calls":false,"#,
            r#""chat_template_kwargs":{"enable_thinking":true},"stream":true}"#
        )
    );
    let bare = GenerateRequest {
        messages: vec![Message::text(Role::User, "x")],
        ..GenerateRequest::default()
    };
    assert_eq!(
        bare.to_json(),
        r#"{"messages":[{"role":"user","content":"x"}]}"#
    );
}

#[test]
fn what_the_embedded_engine_reads_is_kept() {
    let body = r#"{"messages":[{"role":"user","content":"x"}],"lora":"polite","on_unbound_schema":"check"}"#;
    let request = GenerateRequest::from_json(body.as_bytes()).unwrap();
    assert_eq!(request.to_json(), body);
    let null = br#"{"messages":[{"role":"user","content":"x"}],"lora":null,"user_id":1}"#;
    assert_eq!(GenerateRequest::from_json(null).unwrap().passthrough, None);
}

/// Rows M5, F1: a demanded form crosses the wire, and is refused if it is none.
#[test]
fn m5_a_demanded_form_is_read() {
    let form = json!({"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object"}, "strict": true}});
    for form in [form, json!({"type": "json_object"})] {
        let request = read(&with("response_format", form.clone())).unwrap();
        assert_ne!(request.response_format, ResponseFormat::Text);
        let sent: Value = serde_json::from_str(&request.to_json()).unwrap();
        assert_eq!(sent["response_format"], form);
    }
    let fault = read(&with("response_format", json!({"type": "json_schema"}))).unwrap_err();
    assert!(fault.contains("response_format.json_schema"), "{fault}");
}
