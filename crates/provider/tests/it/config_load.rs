//! Where values come from. Rows A1, A5-A8, A10-A13, A15.

use std::fs;

use secrecy::ExposeSecret;
use twopass_core::chat::ThinkTag;
use twopass_provider::config::{
    BackendKind, Config, Environment, LoadOptions, TwoPassMode, notices,
};
use twopass_provider::{ErrorKind, Provider};

fn parse(yaml: &str, env: &[(&str, &str)]) -> Config {
    Config::parse(
        yaml,
        "twopass.yaml",
        Environment::of_pairs(env.iter().copied()),
    )
    .unwrap()
}

fn key_of(config: &Config) -> Option<&str> {
    config.providers[0]
        .api
        .api_key
        .as_ref()
        .map(ExposeSecret::expose_secret)
}

/// The whole documented file.
const WHOLE: &str = "
default_provider: local
providers:
  - name: local
    provider_backend: embedded
    model_name: smollm2-135m
    parsing_format: think_tags
    tool_parser: hermes
    reasoning_replay: none
    on_error: message
    generation_config:
      temperature: 0.3
      max_tokens: 16384
      two_pass: auto
      think_tag: think
      max_thinking_tokens: 256
      max_response_tokens: 1024
      top_p: 0.95
  - name: native
    provider_backend: vllm_native
    model_name: Qwen/Qwen3-8B.v1
    parsing_format: direct_response
    tool_parser: hermes
    reasoning_replay: keep-last
    on_error: raise
    api_config:
      base_url: http://localhost:8000/v1
      api_key_env: VLLM_API_KEY
      timeout_s: {connect: 10, first_token: 120, idle: 60, total: 300}
      max_retries: 3
    generation_config: {two_pass: true, think_tag: thinking, top_k: 40, min_p: 0.05, seed: 7, stop: END, presence_penalty: 0.5, repeat_penalty: 1.1, chat_template_kwargs: {a: {b: [1, true, x]}}}
embeddings: {provider: local, model: wordllama-256, fallback: null}
server: {host: 127.0.0.1, port: 8001, keys_file: null}
agent: {max_rounds: 10, workspace: ., memory: sqlite}
";

#[test]
fn a5_a15_the_documented_file_is_read_whole() {
    let config = parse(WHOLE, &[("VLLM_API_KEY", "secret-key")]);
    let native = &config.providers[1];
    assert_eq!(native.model_name, "Qwen/Qwen3-8B.v1");
    assert_eq!(
        (native.generation.two_pass, native.generation.think_tag),
        (TwoPassMode::On, ThinkTag::Thinking)
    );
    assert_eq!(native.generation.stop, ["END"]);
    assert_eq!(
        native.generation.template_kwargs,
        [("a".to_owned(), serde_json::json!({"b": [1, true, "x"]}))]
    );
    assert_eq!(
        native.api.api_key.as_ref().unwrap().expose_secret(),
        "secret-key"
    );
    assert_eq!(native.api.timeouts.first_token.as_secs(), 120);
    assert!(
        !format!("{config:?}").contains("secret-key"),
        "a key in the debug text"
    );
}

#[test]
fn config_show_names_every_origin_and_masks_keys() {
    let config = parse(
        WHOLE,
        &[
            ("VLLM_API_KEY", "secret-key"),
            ("TWOPASS_MODEL", "other.gguf"),
        ],
    );
    let rows: String = config
        .settings()
        .iter()
        .map(|s| format!("{:<52} {:<28} {}\n", s.key, s.value, s.origin))
        .collect();
    assert!(!rows.contains("secret-key"));
    insta::assert_snapshot!(rows);
}

// Row A4: a dialect of the file is a name for `tool_parser`, also beside others.
#[test]
fn a4_entries_name_dialects_of_the_file() {
    let config = parse(
        "dialects:\n  - {name: mine, open: \"<a>\\n\", close: </a>, body: pythonic}\nproviders:\n  - {name: n, provider_backend: embedded, tool_parser: mine+hermes}\n",
        &[],
    );
    assert_eq!(config.providers[0].tool_parser.as_str(), "mine+hermes");
    assert_eq!(config.providers[0].dialects[0].opens, ["<a>\n"]);
    let settings = config.settings();
    let shown: Vec<_> = settings
        .iter()
        .filter(|setting| setting.key.starts_with("dialects"))
        .map(|setting| format!("{} {}", setting.key, setting.value))
        .collect();
    assert_eq!(
        shown,
        [
            "dialects[0].name mine",
            "dialects[0].body pythonic",
            "dialects[0].open <a>\\n",
            "dialects[0].close </a>"
        ]
    );
}

#[test]
fn no_file_is_the_embedded_engine_with_its_default_model() {
    for yaml in ["", "# nothing\n", "{}", "server: {port: 9}\n"] {
        let config = parse(yaml, &[]);
        let entry = config.provider(None).unwrap();
        assert_eq!(
            (entry.backend, entry.model_name.as_str()),
            (BackendKind::Embedded, "smollm2-135m")
        );
    }
    let named = parse("", &[("TWOPASS_PROVIDER", "local")]);
    assert_eq!(named.providers[0].backend, BackendKind::Embedded);
}

/// Files are looked for beside the configuration; a draft model may also be a name.
#[test]
fn the_engines_files_are_those_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twopass.yaml");
    fs::write(
        &path,
        "
providers:
  - name: local
    provider_backend: embedded
    engine_config:
      session_path: sessions
      draft_model: smollm2-135m
      draft_tokens: 4
      lora: {polite: polite.gguf, rude: /rude.gguf}
",
    )
    .unwrap();
    let config = Config::load_with(LoadOptions {
        path: Some(path),
        environment: Environment::of_pairs([]),
        ..LoadOptions::default()
    })
    .unwrap();
    let engine = &config.providers[0].engine;
    assert_eq!(engine.session_path, Some(folder.path().join("sessions")));
    assert_eq!(engine.draft_model.as_deref(), Some("smollm2-135m"));
    assert_eq!(engine.draft_tokens, Some(4));
    let lora = [
        ("polite".to_owned(), folder.path().join("polite.gguf")),
        ("rude".to_owned(), "/rude.gguf".into()),
    ];
    assert_eq!(engine.lora, lora);
    for (wrong, expect) in [
        ("[a]", "a map of names and GGUF files"),
        ("{a: 1}", "a map of names"),
    ] {
        let yaml = format!(
            "providers: [{{name: a, provider_backend: embedded, engine_config: {{lora: {wrong}}}}}]"
        );
        let env = Environment::of_pairs([]);
        let error = Config::parse(&yaml, "twopass.yaml", env).unwrap_err();
        assert!(error.message().contains(expect), "{error:?}");
    }
}

// Rows A1, A8: an entry is chosen by its name; none chosen is the default one.
#[test]
fn a8_providers_are_chosen_by_name() {
    let config = parse(WHOLE, &[]);
    for (chosen, expect) in [
        (Some("native"), "native"),
        (Some("local"), "local"),
        (None, config.default_provider.as_str()),
    ] {
        assert_eq!(config.provider(chosen).unwrap().name, expect);
    }
    let native = Provider::from_entry(&config, Some("native")).unwrap();
    assert_eq!(native.model_name(), "Qwen/Qwen3-8B.v1");
}

#[test]
fn a1_unknown_names_list_the_known_ones() {
    let error = parse(WHOLE, &[]).provider(Some("x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown provider `x`, configured: `local`, `native`"
    );
    assert_eq!(error.kind(), ErrorKind::Config);
}

// Rows A11, A12, X15: the single-provider form and its defaults.
#[test]
fn a11_a12_flat_form() {
    let openai = parse(
        "{}",
        &[("TWOPASS_PROVIDER", "openai"), ("OPENAI_API_KEY", "sk-1")],
    );
    let entry = &openai.providers[0];
    assert_eq!(
        (entry.backend, entry.model_name.as_str()),
        (BackendKind::OpenAiResponses, "gpt-4.1")
    );
    assert_eq!(openai.embeddings.model, "text-embedding-3-small");
    assert_eq!(key_of(&openai), Some("sk-1"));

    let yaml =
        "provider: openrouter\nmodel: openai/gpt-4.1\napi_key: file-key\nembedding_model: e\n";
    let router = parse(
        yaml,
        &[("OPENROUTER_API_KEY", "sk-or"), ("OPENAI_API_KEY", "sk-1")],
    );
    assert_eq!(
        router.providers[0].api.base_url.as_ref().unwrap().as_str(),
        "https://openrouter.ai/api/v1"
    );
    assert_eq!(router.providers[0].backend, BackendKind::OpenAi);
    assert_eq!(
        (key_of(&router), router.embeddings.model.as_str()),
        (Some("sk-or"), "e")
    );
    assert_eq!(key_of(&parse(yaml, &[])), Some("file-key"));
}

// Rows A6, A7, X14: which key goes to which host.
#[test]
fn a6_a7_keys_go_to_their_own_host_only() {
    let entry = |api: &str| {
        format!(
            "providers:\n  - {{name: a, provider_backend: openai, model_name: m, api_config: {{{api}}}}}\n"
        )
    };
    let env = [("OPENAI_API_KEY", "sk-openai"), ("MINE", "sk-mine")];
    let rows: &[(&str, Option<&str>, bool)] = &[
        ("", Some("sk-openai"), false),
        ("api_key_env: MINE", Some("sk-mine"), false),
        (
            "base_url: 'https://API.OPENAI.COM/v1'",
            Some("sk-openai"),
            false,
        ),
        ("base_url: 'http://localhost:8000/v1'", None, false),
        (
            "base_url: 'http://127.0.0.1:8000/v1', api_key: ' '",
            None,
            false,
        ),
        ("base_url: 'http://[::1]:8000/v1'", None, false),
        (
            "base_url: 'http://localhost:8000/v1', api_key_env: MINE",
            Some("sk-mine"),
            false,
        ),
        ("base_url: 'https://gw.example.test/v1'", None, true),
        (
            "base_url: 'https://gw.example.test/v1', auth: none, api_key_env: MINE",
            None,
            false,
        ),
        (
            "base_url: 'https://gw.example.test/v1', allow_openai_key_fallback: true",
            Some("sk-openai"),
            false,
        ),
        (
            "base_url: 'https://gw.example.test/v1', api_key: k",
            Some("k"),
            false,
        ),
    ];
    for (api, key, fault) in rows {
        let config = parse(&entry(api), &env);
        assert_eq!(key_of(&config), *key, "{api}");
        assert_eq!(config.providers[0].api.key_fault.is_some(), *fault, "{api}");
    }
}

#[test]
fn a13_environment_wins_over_the_file_and_takes_no_key_along() {
    let yaml = "providers:\n  - {name: a, provider_backend: vllm_native, model_name: m, api_config: {base_url: 'https://one.example', api_key: k}}\n  - {name: b, provider_backend: embedded}\n";
    let config = parse(
        yaml,
        &[
            ("HERMITCLAW_MODEL", "x"),
            ("TWOPASS_MODEL", "y"),
            ("HERMITCLAW_PROVIDER", "b"),
        ],
    );
    assert_eq!(
        (
            config.default_provider.as_str(),
            config.providers[1].model_name.as_str()
        ),
        ("b", "y")
    );
    assert_eq!(config.providers[0].model_name, "m");

    let moved = parse(yaml, &[("TWOPASS_BASE_URL", "http://localhost:9")]);
    assert_eq!(
        (
            key_of(&moved),
            moved.providers[0].api.base_url.as_ref().unwrap().as_str()
        ),
        (None, "http://localhost:9/")
    );
    let same = parse(yaml, &[("TWOPASS_BASE_URL", "https://one.example/sub")]);
    assert_eq!(key_of(&same), Some("k"));
}

#[test]
fn files_are_found_in_order_and_dot_env_is_read_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["here", "user/twopass", "named"] {
        fs::create_dir_all(at(name)).unwrap();
        let entry = name.split('/').next().unwrap();
        let yaml = format!(
            "providers:\n  - {{name: {entry}, provider_backend: vllm_native, model_name: m, api_config: {{base_url: 'https://h.example', api_key_env: K}}}}\n"
        );
        fs::write(at(name).join("twopass.yaml"), yaml).unwrap();
    }
    fs::write(
        at("here/.env"),
        "# keys\nexport K=\"from \\\"dot\\\" env\"\nK=dot#1 # note\n\n",
    )
    .unwrap();
    let load = |path: Option<&str>, env: &[(&str, &str)]| {
        Config::load_with(LoadOptions {
            path: path.map(at),
            working_folder: Some(at("here")),
            environment: Environment::of_pairs(env.iter().copied()),
            ..LoadOptions::default()
        })
    };
    let user = at("user").display().to_string();
    let named = at("named/twopass.yaml").display().to_string();
    let here = load(None, &[("XDG_CONFIG_HOME", &user)]).unwrap();
    assert_eq!(
        (here.default_provider.as_str(), key_of(&here)),
        ("here", Some("dot#1"))
    );
    assert_eq!(
        key_of(&load(None, &[("K", "process")]).unwrap()),
        Some("process")
    );
    assert_eq!(
        load(None, &[("TWOPASS_CONFIG", &named)])
            .unwrap()
            .default_provider,
        "named"
    );
    assert_eq!(
        load(
            Some("user/twopass/twopass.yaml"),
            &[("TWOPASS_CONFIG", &named)]
        )
        .unwrap()
        .default_provider,
        "user"
    );
    fs::remove_file(at("here/twopass.yaml")).unwrap();
    assert_eq!(
        load(None, &[("XDG_CONFIG_HOME", &user)])
            .unwrap()
            .default_provider,
        "user"
    );
    assert_eq!(load(None, &[]).unwrap().default_provider, "local");

    let error = load(Some("none.yaml"), &[]).unwrap_err().to_string();
    assert!(
        error.ends_with("none.yaml does not exist (named by --config)"),
        "{error}"
    );
    let error = load(None, &[("TWOPASS_CONFIG", "/no/such")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the configuration file /no/such does not exist (named by TWOPASS_CONFIG)"
    );
    fs::write(at("here/twopass.yaml"), b"a: \xff").unwrap();
    assert!(
        load(None, &[])
            .unwrap_err()
            .to_string()
            .ends_with("is not UTF-8 at byte 3")
    );
    fs::write(at("here/.env"), "no pair\n").unwrap();
    fs::write(at("here/twopass.yaml"), "").unwrap();
    assert!(
        load(None, &[])
            .unwrap_err()
            .to_string()
            .ends_with(".env:1: not `NAME=value`")
    );
}

#[test]
fn origins_of_web_pages_are_checked() {
    let parse = |origins: &str| {
        let text = format!("server: {{cors_origins: {origins}}}\n");
        let config = Config::parse(&text, "twopass.yaml", Environment::of_pairs([]));
        config.map(|config| config.server.cors_origins)
    };
    for (origins, expect) in [
        ("[]", vec![]),
        ("\"*\"", vec!["*"]),
        ("[\"*\"]", vec!["*"]),
        (
            "[https://App.example, \"http://localhost:3000\", \"tauri://localhost\"]",
            vec![
                "https://app.example",
                "http://localhost:3000",
                "tauri://localhost",
            ],
        ),
    ] {
        assert_eq!(parse(origins).unwrap(), expect, "{origins}");
    }
    for origins in [
        "[\"*\", https://app.example]",
        "[app.example]",
        "[https://app.example/]",
        "[https://*.example]",
        "[\"https://a b\"]",
        "[null]",
        "[\"\"]",
    ] {
        let error = parse(origins).unwrap_err().to_string();
        assert!(
            error.starts_with("twopass.yaml:1:")
                && error.contains("`server.cors_origins`: must be"),
            "{origins}: {error}"
        );
    }
}

#[test]
fn relative_paths_start_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twopass.yaml");
    fs::write(&file, "models_dir: m\nserver: {keys_file: keys}\nproviders:\n  - {name: a, provider_backend: embedded, model_name: x.gguf}\n  - {name: b, provider_backend: embedded, model_name: 'hf:o/r/x.gguf', engine_config: {draft_model: 'hf:o/r/y.gguf'}}\n").unwrap();
    let config = Config::load_with(LoadOptions {
        path: Some(file),
        ..LoadOptions::default()
    })
    .unwrap();
    assert_eq!(
        config.providers[0].model_name,
        folder.path().join("x.gguf").display().to_string()
    );
    let hub = &config.providers[1];
    assert_eq!(hub.model_name, "hf:o/r/x.gguf");
    assert_eq!(hub.engine.draft_model.as_deref(), Some("hf:o/r/y.gguf"));
    assert_eq!(config.server.keys_file, Some(folder.path().join("keys")));
    assert_eq!(config.models_dir, Some(folder.path().join("m")));
}

#[test]
fn a9_two_pass_on_a_chat_service_is_noticed() {
    let yaml = "providers:\n  - {name: a, provider_backend: openai, model_name: m, generation_config: {two_pass: true}}\n";
    assert_eq!(notices(&parse(yaml, &[])).len(), 1);
    let yaml = "providers:\n  - {name: a, provider_backend: embedded, model_name: smollm2-135m, engine_config: {draft_tokens: 4}}\n";
    let noticed = notices(&parse(yaml, &[]));
    assert!(
        noticed.len() == 1 && noticed[0].contains("`draft_model`"),
        "{noticed:?}"
    );
    assert_eq!(notices(&parse(WHOLE, &[])).len(), 0);
}

// Row A6: JSON is YAML, and an alias bomb is refused in bounded time.
#[test]
fn odd_but_legal_and_hostile_yaml() {
    let json = r#"{"providers": [{"name": "a", "provider_backend": "embedded"}]}"#;
    assert_eq!(parse(json, &[]).default_provider, "a");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for idx in 1..12 {
        let list = vec![format!("*a{}", idx - 1); 10].join(", ");
        bomb.push_str(&format!("a{idx}: &a{idx} [{list}]\n"));
    }
    assert!(Config::parse(&bomb, "twopass.yaml", Environment::default()).is_err());
    let deep = "[".repeat(100_000);
    assert!(Config::parse(&deep, "twopass.yaml", Environment::default()).is_err());
}
