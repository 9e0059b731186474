//! `config` and `models`. Rows A1, A6, A9, A14.

use std::process::Stdio;

use crate::run::Place;

const CONFIG: &str = "
providers:
  - name: far
    provider_backend: vllm_native
    model_name: m
    api_config: {base_url: 'https://llm.example.com', api_key_env: MY_KEY}
";

#[test]
fn config_check_and_show() {
    let place = Place::new();
    let ran = place.run(&["config", "check"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (
            0,
            "no configuration file, built-in defaults: ok, 1 provider\n"
        )
    );
    let show = place.run(&["config", "show"]);
    assert!(
        show.stdout.contains("providers[0].model_name") && show.stdout.contains("smollm2-135m"),
        "{}",
        show.stdout
    );

    place.write("twopass.yaml", CONFIG);
    let ran = place.run(&["config"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "fault: provider `far`: no key for llm.example.com: `api_config.api_key_env` names MY_KEY, which is not set\n"
    );
    place.write(".env", "MY_KEY=sk-secret\n");
    let ran = place.run(&["config", "check"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "twopass.yaml: ok, 1 provider\n")
    );
    let show = place.run(&["config", "show", "--json"]);
    assert!(!show.stdout.contains("sk-secret"));
    let rows: serde_json::Value = serde_json::from_str(&show.stdout).unwrap();
    let key = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "providers[0].api_config.api_key")
        .unwrap();
    assert_eq!(
        *key,
        serde_json::json!({"key": "providers[0].api_config.api_key", "value": "********", "origin": ".env MY_KEY"})
    );
}

/// What would stop `serve` is a fault of the configuration too.
#[test]
fn config_check_finds_what_serve_refuses() {
    let place = Place::new();
    let embedded = "providers:\n  - {name: a, provider_backend: embedded, engine_config: {threads: 9999}}\nserver: {host: 0.0.0.0}\n";
    place.write("twopass.yaml", embedded);
    let ran = place.run(&["config", "check"]);
    assert_eq!(ran.code, 1);
    for told in [
        "fault: provider `a`: ",
        "must be 1 to 256, got 9999",
        "fault: server: host `0.0.0.0` (0.0.0.0) can be reached by others",
    ] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

/// Checks that `config check` tells of exactly these faults, in this order.
fn has_faults(place: &Place, configuration: &str, told: &[&str]) {
    place.write("twopass.yaml", configuration);
    let ran = place.run(&["config", "check"]);
    assert_eq!(ran.code, i32::from(!told.is_empty()), "{}", ran.stderr);
    let faults: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(faults.len(), told.len(), "{faults:?}");
    for (fault, told) in faults.iter().zip(told) {
        assert!(fault.starts_with(&format!("fault: {told}")), "{fault}");
    }
}

/// Files that an embedded entry names must be there; what can be pulled need not.
#[test]
fn config_check_finds_files_that_are_not_there() {
    let place = Place::new();
    place.write("dry.gguf", "an adapter");
    let entry = "providers:\n  - name: a\n    provider_backend: embedded\n    model_name: gone.gguf\n    engine_config: {draft_model: nobody, lora: {kind: kind.gguf, dry: dry.gguf}}\n";
    let told = [
        "provider `a`: model_name: no file `",
        "provider `a`: engine_config.draft_model: ",
        "provider `a`: engine_config.lora.kind: no file `",
    ];
    has_faults(&place, entry, &told);
    let present = entry
        .replace("gone.gguf", "smollm2-135m")
        .replace("nobody", "qwen2.5-coder-0.5b")
        .replace("kind: kind.gguf, ", "");
    has_faults(&place, &present, &[]);
}

/// A model that writes no text, and what is not there beside another fault; each is told once.
#[test]
fn config_check_finds_all_that_an_entry_cannot_run_with() {
    let place = Place::new();
    let entries = "providers:\n  - {name: v, provider_backend: embedded, model_name: wordllama-256}\n  - {name: u, provider_backend: embedded, model_name: nobody}\n  - name: a\n    provider_backend: embedded\n    engine_config: {threads: 9999, lora: {dry: dry.gguf}}\n";
    let told = [
        "provider `v`: `wordllama-256` makes vectors, not text",
        "provider `u`: unknown model `nobody`",
        "provider `a`: `threads`: must be 1 to 256, got 9999",
        "provider `a`: engine_config.lora.dry: no file `",
    ];
    has_faults(&place, entries, &told);
}

#[test]
fn models_list_says_what_is_here() {
    let place = Place::new();
    let rows: serde_json::Value =
        serde_json::from_str(&place.run(&["models", "--json"]).stdout).unwrap();
    assert_eq!(
        (&rows[0]["name"], &rows[0]["path"]),
        (&"smollm2-135m".into(), &serde_json::Value::Null)
    );
    let ran = place.run(&["models", "list"]);
    assert!(ran.stdout.starts_with("NAME"), "{}", ran.stdout);
}

#[test]
fn a_closed_pipe_is_success() {
    let place = Place::new();
    let mut command = place.command(&["config", "show"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}
