//! Bad input: one clear line each, exit code 2, nothing on stdout.

use serde_json::{Value, json};

use crate::run::Place;

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let place = Place::new();
    place.write(
        "good.json",
        r#"[{"name": "f", "description": "d", "parameters": {"type": "object"}}]"#,
    );
    place.write("broken.json", r#"[{"name": "f","#);
    place.write("text.json", r#""f""#);
    place.write(
        "string_schema.json",
        r#"[{"name": "f", "parameters": {"type": "string"}}]"#,
    );
    place.write(
        "array_schema.json",
        r#"{"tools": [{"name": "f", "parameters": []}]}"#,
    );
    place.write("nameless.json", r#"[{"description": "d"}]"#);
    place.write("twice.json", r#"[{"name": "f"}, {"name": "f"}]"#);
    place.write("role.json", r#"[{"role": "robot", "content": "x"}]"#);
    place.write("orphan.json", r#"[{"role": "tool", "content": "x"}]"#);
    place.write("empty.json", "[]");
    place.write("latin1.txt", b"caf\xe9");
    place.write(
        "bad.yaml",
        "providers:\n  - {name: a, provider_backend: embeded}\n",
    );
    place.write("later.yaml", "providers:\n  - {name: a, provider_backend: completions, model_name: m, api_config: {base_url: 'http://127.0.0.1:9'}}\n");
    place.write("no.gguf", "not a model");
    place.write("no_model", "not a model");
    place.write("host.yaml", "providers:\n  - {name: a, provider_backend: vllm_native, model_name: m, api_config: {base_url: 'localhost:8001'}}\n");
    place.write(
        "preset.yaml",
        "providers:\n  - {name: a, preset: nope, model_name: m}\n",
    );
    place.write(
        "parser.yaml",
        "providers:\n  - {name: a, preset: openai, model_name: m, tool_parser: nope}\n",
    );
    let rows: &[&[&str]] = &[
        &["invoke", "--max-thinking-tokens", "-1", "x"],
        &["invoke", "--max-thinking-tokens=many", "x"],
        &["invoke", "--max-response-tokens", "0", "x"],
        &["invoke", "--seed=-3", "x"],
        &["invoke", "--temperature", "-1", "x"],
        &["invoke", "--think-tag", "reasoning", "x"],
        &["invoke", "--two-pass", "sometimes", "x"],
        &["invoke", "--thinking", "--no-thinking", "x"],
        &["invoke", "--provider", "nobody", "x"],
        &["invoke", "--model", "unheard-of", "x"],
        &["invoke", "--tools", "missing.json", "x"],
        &["invoke", "--tools", "broken.json", "x"],
        &["invoke", "--tools", "text.json", "x"],
        &["invoke", "--tools", "string_schema.json", "x"],
        &["invoke", "--tools", "array_schema.json", "x"],
        &["invoke", "--tools", "nameless.json", "x"],
        &["invoke", "--tools", "twice.json", "x"],
        &["invoke", "--tools", "good.json", "--tool-choice", "g", "x"],
        &["invoke", "--tool-choice", "required", "x"],
        &["invoke", "--messages", "role.json"],
        &["invoke", "--messages", "orphan.json"],
        &["invoke", "--messages", "empty.json"],
        &["invoke", "--messages", "latin1.txt"],
        &["invoke", " "],
        &["invoke", "--config", "none.yaml", "x"],
        &["invoke", "--config", "bad.yaml", "x"],
        &["invoke", "--config", "later.yaml", "x"],
        &[
            "invoke",
            "--config",
            "later.yaml",
            "--provider",
            "nobody",
            "x",
        ],
        &["invoke", "--config", "host.yaml", "x"],
        &["invoke", "--config", "preset.yaml", "x"],
        &["invoke", "--config", "parser.yaml", "x"],
        &["invoke", "--colour", "x"],
        &["serve", "--port", "70000"],
        &["serve", "--config", "later.yaml"],
        &["models", "pull", "hf:nobody"],
        &["models", "inspect", "no.gguf"],
        &["models", "inspect", "no_model"],
        &["models", "inspect", "smollm2-135m"],
        &["render"],
        &["pars"],
    ];
    let mut all = String::new();
    for args in rows {
        let ran = place.run(args);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (2, ""),
            "{args:?}: {}",
            ran.stderr
        );
        let lines: Vec<_> = ran.stderr.lines().collect();
        assert!(lines[0].starts_with("error: "), "{args:?}: {}", ran.stderr);
        assert!(
            lines[1..].iter().all(|line| line.starts_with("hint: ")),
            "{args:?}: {}",
            ran.stderr
        );
        all.push_str(&format!("twopass {}\n  {}\n", args.join(" "), lines[0]));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn with_json_every_error_is_json() {
    let place = Place::new();
    place.write("later.yaml", "providers:\n  - {name: a, provider_backend: completions, model_name: m, api_config: {base_url: 'http://127.0.0.1:9'}}\n");
    let rows: &[(&[&str], &str, Value)] = &[
        (&["invoke", "--seed=x", "y"], "bad_request", json!("--seed")),
        (&["invoke", "--colour"], "bad_request", json!("--colour")),
        (&[], "bad_request", Value::Null),
        (&["invoke", " "], "bad_request", json!("prompt")),
        (
            &["invoke", "--tools", "a.json", "x"],
            "io",
            json!("--tools"),
        ),
        (
            &["invoke", "--tool-choice", "required", "x"],
            "bad_request",
            json!("tool_choice"),
        ),
        (
            &["invoke", "--provider", "nobody", "x"],
            "config",
            json!("--provider"),
        ),
        (
            &["invoke", "--config", "later.yaml", "x"],
            "connect",
            Value::Null,
        ),
        (&["models", "inspect", "m.gguf"], "model", Value::Null),
        (
            &["models", "inspect", "smollm2-135m"],
            "not_found",
            Value::Null,
        ),
    ];
    for (args, kind, param) in rows {
        let args: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        let ran = place.run(&args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        let body: Value = serde_json::from_str(&ran.stderr).unwrap();
        let error = body["error"].as_object().unwrap();
        assert_eq!(
            (error.len(), &error["kind"], &error["param"]),
            (3, &json!(kind), param),
            "{args:?}: {body}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn config_check_prints_json_for_a_file_that_cannot_be_read() {
    let place = Place::new();
    place.write("bad.yaml", "providers: [");
    for file in ["bad.yaml", "none.yaml"] {
        let ran = place.run(&["config", "check", "--json", "--config", file]);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, ""));
        let body: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&body["ok"], &body["file"]), (&json!(false), &json!(file)));
        let fault = body["faults"][0].as_str().unwrap();
        assert!(fault.contains(file), "{fault}");
    }
}

#[test]
fn a_port_in_use_is_told_with_its_reason() {
    let place = Place::new();
    place.write("later.yaml", "providers:\n  - {name: a, provider_backend: vllm_native, model_name: m, api_config: {base_url: 'http://127.0.0.1:9'}}\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = place.run(&["serve", "--config", "later.yaml", "--port", &port]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let (error, hint) = ran.stderr.split_once('\n').unwrap();
    assert!(error.contains("Address already in use"), "{error}");
    assert_eq!(hint, "hint: `--port 0` takes a free port\n");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let place = Place::new();
    let ran = place.run_with(&["invoke"], b"caf\xe9");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (2, "error: the prompt: stdin is not UTF-8 at byte 3\n")
    );
    let ran = place.run_with(&["invoke"], b" \n");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (2, "error: the prompt on stdin is empty\n")
    );
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let mut command = place.command(&["invoke"]);
        let output = command
            .arg(std::ffi::OsStr::from_bytes(b"caf\xe9"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("invalid UTF-8"));
    }
}

#[test]
fn without_a_command_the_help_is_shown() {
    let place = Place::new();
    let ran = place.run(&["--help"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for command in ["invoke", "serve", "render", "models", "config"] {
        assert!(ran.stdout.contains(command), "{}", ran.stdout);
    }
    assert_eq!(place.run(&[]).code, 2);
    assert!(place.run(&["--version"]).stdout.starts_with("twopass "));
}
