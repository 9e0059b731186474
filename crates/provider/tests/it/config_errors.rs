//! Error texts of configurations, snapshot by snapshot. Rows A1-A7, A11-A14.

use twopass_provider::config::{Config, Environment};
use twopass_provider::{ErrorKind, Provider};

/// The error of this configuration when its default entry is opened.
fn error_of(yaml: &str, env: &[(&str, &str)]) -> String {
    let environment = Environment::of_pairs(env.iter().copied());
    let loaded = Config::parse(yaml, "twopass.yaml", environment);
    let error = match loaded.and_then(|config| Provider::from_entry(&config, None).map(|_| ())) {
        Ok(()) => return "no error".to_owned(),
        Err(error) => error,
    };
    assert!(
        matches!(error.kind(), ErrorKind::Config | ErrorKind::NotBuilt),
        "{error:?}"
    );
    for (_, value) in env {
        assert!(
            !value.starts_with("sk-") || !error.to_string().contains(value),
            "a value leaked: {error}"
        );
    }
    error.to_string()
}

/// One line per case: what was given, then the error.
fn errors(cases: &[(&str, &str, &[(&str, &str)])]) -> String {
    cases
        .iter()
        .map(|(what, yaml, env)| format!("{what}\n    {}\n", error_of(yaml, env)))
        .collect()
}

/// A native entry with these further lines.
fn native(lines: &str) -> String {
    format!(
        "providers:\n  - name: n\n    provider_backend: vllm_native\n    model_name: m\n    api_config: {{base_url: http://localhost:1}}\n{lines}"
    )
}

#[test]
fn a1_a5_shapes_keys_and_values() {
    let unknown = native("    max_tokenz: 3\n");
    let nested = native("    generation_config:\n      max_thinking_token: 3\n");
    let far = native("    zzz: 3\n");
    let negative = native("    generation_config: {two_pass: true, max_thinking_tokens: -5}\n");
    let zero = native("    generation_config:\n      max_response_tokens: 0\n");
    let large = native("    generation_config:\n      max_response_tokens: 4294967296\n");
    let repeat = native("    generation_config: {repeat_penalty: 0}\n");
    let tag = native("    generation_config:\n      think_tag: reasoning\n");
    let mode = native("    generation_config:\n      two_pass: sometimes\n");
    let text = native("    generation_config:\n      max_tokens: many\n");
    let hot = native("    generation_config:\n      top_p: 1.5\n");
    let stop = native("    generation_config:\n      stop: [a, 3]\n");
    let format = native("    parsing_format: think_tag\n");
    let parser = native("    tool_parser: hermess\n");
    let timeout = native("").replace("http://localhost:1}", "http://localhost:1, timeout_s: 0}");
    let timeouts = native("").replace(
        "http://localhost:1}",
        "http://localhost:1, timeout_s: {idel: 3}}",
    );
    let twice = native("    model_name: other\n");
    let single =
        native("    unterminated_think: continue\n    generation_config: {two_pass: false}\n");
    insta::assert_snapshot!(errors(&[
        ("not YAML", "providers: [", &[]),
        ("a tab", "providers:\n\t- name: a\n", &[]),
        ("a key in a value", "a: b: c\n", &[]),
        (
            "a list of two indents",
            "providers:\n  - name: a\n - name: b\n",
            &[]
        ),
        ("keys of two indents", "server:\n  port: 1\n host: a\n", &[]),
        ("no colon", "server\nembeddings: {}\n", &[]),
        ("an open quote", "models_dir: 'x\n", &[]),
        ("a character for nobody", "models_dir: @x\n", &[]),
        ("no such anchor", "models_dir: *x\n", &[]),
        ("an anchor in itself", "models_dir: &x [*x]\n", &[]),
        ("an escape that is none", "models_dir: \"\\xZZ\"\n", &[]),
        ("a directive", "%YAML 9\n", &[]),
        ("a list at the top", "- a\n- b\n", &[]),
        ("providers is no list", "providers: {name: a}\n", &[]),
        ("no providers", "providers: []\n", &[]),
        ("no name", "providers:\n  - model_name: m\n", &[]),
        ("a name that is a number", "providers:\n  - name: 7\n", &[]),
        ("no model", "providers:\n  - name: a\n", &[]),
        (
            "two of one name",
            "providers:\n  - {name: a, provider_backend: embedded}\n  - {name: a, provider_backend: embedded}\n",
            &[]
        ),
        ("a key twice", &twice, &[]),
        (
            "unknown backend",
            "providers:\n  - {name: a, provider_backend: openia, model_name: m}\n",
            &[]
        ),
        ("unknown top key", "provider_list: []\n", &[]),
        ("unknown key", &unknown, &[]),
        ("unknown nested key", &nested, &[]),
        ("unknown key with no near one", &far, &[]),
        ("negative thinking cap", &negative, &[]),
        ("response cap 0", &zero, &[]),
        ("response cap of 33 bits", &large, &[]),
        ("repeat penalty 0", &repeat, &[]),
        ("unknown tag", &tag, &[]),
        ("unknown mode", &mode, &[]),
        ("a cap that is text", &text, &[]),
        ("top_p over 1", &hot, &[]),
        ("a stop that is a number", &stop, &[]),
        ("unknown format", &format, &[]),
        ("unknown tool parser", &parser, &[]),
        ("a second pass where there is one", &single, &[]),
        ("timeout 0", &timeout, &[]),
        ("unknown timeout", &timeouts, &[]),
        (
            "unknown default",
            "default_provider: b\nproviders:\n  - {name: a, provider_backend: embedded}\n",
            &[]
        ),
        ("default without a list", "default_provider: b\n", &[]),
        (
            "unknown embeddings provider",
            "embeddings: {provider: x}\nproviders:\n  - {name: a, provider_backend: embedded}\n",
            &[]
        ),
        ("port too large", "server: {port: 70000}\n", &[]),
        ("no rounds", "agent: {max_rounds: 0}\n", &[]),
    ]));
}

#[test]
fn a6_a14_addresses_and_keys() {
    let remote = |lines: &str| {
        format!(
            "providers:\n  - name: r\n    provider_backend: vllm_native\n    model_name: m\n    api_config:\n{lines}"
        )
    };
    let named = remote("      base_url: https://llm.example.com\n      api_key_env: MY_KEY\n");
    let unnamed = remote("      base_url: https://llm.example.com\n");
    let missing = remote("      max_retries: 1\n");
    let relative = remote("      base_url: localhost:8000\n");
    let file = remote("      base_url: file:///etc/passwd\n");
    let password = remote("      base_url: https://u:p@llm.example.com\n");
    let query = remote("      base_url: https://llm.example.com/v1?key=abc\n");
    let local_name = remote("      base_url: http://localhost.example.com\n");
    let auth = remote("      base_url: http://localhost\n      auth: basic\n");
    insta::assert_snapshot!(errors(&[
        ("the named variable is not set", &named, &[]),
        ("the named variable is blank", &named, &[("MY_KEY", "  ")]),
        ("the key is no header", &named, &[("MY_KEY", "sk-ab\ncd")]),
        ("no variable named", &unnamed, &[]),
        (
            "another service's key",
            &unnamed,
            &[("OPENAI_API_KEY", "sk-openai")]
        ),
        ("no address", &missing, &[]),
        ("no scheme", &relative, &[]),
        ("a file", &file, &[]),
        ("a password in the address", &password, &[]),
        ("a query in the address", &query, &[]),
        (
            "a host that only starts like this machine",
            &local_name,
            &[]
        ),
        ("unknown auth", &auth, &[]),
        ("flat: custom without address", "provider: custom\n", &[]),
        ("flat: openai without key", "provider: openai\n", &[]),
        (
            "flat: openrouter with OpenAI's key",
            "provider: openrouter\n",
            &[("OPENAI_API_KEY", "sk-openai")]
        ),
        (
            "flat: attacker's host",
            "provider: custom\nbase_url: https://api.openai.com.attacker.example/v1\n",
            &[("OPENAI_API_KEY", "sk-openai")]
        ),
        ("flat: unknown provider", "provider: opnai\n", &[]),
        (
            "flat and list",
            "model: m\nproviders:\n  - {name: a, provider_backend: embedded}\n",
            &[]
        ),
        (
            "environment: unknown provider",
            "",
            &[("TWOPASS_PROVIDER", "acme")]
        ),
        (
            "environment: not in the list",
            "providers:\n  - {name: a, provider_backend: embedded}\n",
            &[("HERMITCLAW_PROVIDER", "acme")]
        ),
        (
            "environment: address of the embedded engine",
            "",
            &[("TWOPASS_BASE_URL", "http://localhost:1")]
        ),
        (
            "environment: no address",
            &native(""),
            &[("TWOPASS_BASE_URL", "localhost")]
        ),
        (
            "environment: an address of two lines",
            &native(""),
            &[("TWOPASS_BASE_URL", "http://local\nhost:1")]
        ),
    ]));
}

#[test]
fn a4_dialects_of_the_file() {
    let dialect = |rest: &str| format!("dialects:\n  - {{name: mine, open: '<a>'{rest}}}\n");
    let named = dialect("") + &native("    tool_parser: minee\n");
    insta::assert_snapshot!(errors(&[
        ("no list", "dialects: {name: mine}\n", &[]),
        ("no name", "dialects:\n  - {open: '<a>'}\n", &[]),
        (
            "a name that is taken",
            "dialects:\n  - {name: hermes, open: '<a>'}\n",
            &[]
        ),
        ("no opening marker", "dialects:\n  - {name: mine}\n", &[]),
        ("markers alike", &dialect(", close: '<a>'"), &[]),
        ("unknown body", &dialect(", body: xml"), &[]),
        (
            "xml without an end",
            &dialect(", body: xml-parameters"),
            &[]
        ),
        ("a key of two words", &dialect(", name_key: a b"), &[]),
        ("unknown key", &dialect(", opens: b"), &[]),
        (
            "two of one name",
            "dialects:\n  - {name: a, open: '<a>'}\n  - {name: a, open: '<b>'}\n",
            &[]
        ),
        ("an entry misspells it", &named, &[]),
    ]));
}

// Row M7: a misspelt key is named as such, not as the one that is then missing.
#[test]
fn m7_a_misspelt_key_is_not_masked_by_a_missing_one() {
    let yaml = "providers:\n  - {name: a, provider_backend: ollama, model_nam: m}\n";
    let error = error_of(yaml, &[]);
    let named = "`providers[0].model_nam`: unknown key, did you mean `model_name`?";
    assert!(error.contains(named), "{error}");
}

#[test]
fn servers_and_fallbacks() {
    let one = |api: &str| {
        format!(
            "providers:\n  - name: n\n    provider_backend: openai\n    model_name: m\n    api_config: {{{api}}}\n"
        )
    };
    let listed = |urls: &str| one(&format!("base_urls: {urls}"));
    let both = one("base_url: http://localhost:1/v1, base_urls: [http://localhost:2/v1]");
    let many: Vec<_> = (1..=65).map(|n| format!("http://localhost:{n}")).collect();
    let many = listed(&format!("[{}]", many.join(", ")));
    let homes = listed("[https://api.openai.com/v1, https://example.org/v1]");
    let own_keys = listed("[https://api.openai.com/v1, https://api.groq.com/v1]");
    let two = |lines: &str| {
        format!(
            "providers:\n  - {{name: spare, provider_backend: embedded}}\n{}{lines}",
            &native("")[11..]
        )
    };
    insta::assert_snapshot!(errors(&[
        ("both forms", &both, &[]),
        ("one address", &listed("http://localhost:1"), &[]),
        ("an empty list", &listed("[]"), &[]),
        ("too many", &many, &[]),
        ("a number", &listed("[http://localhost:1, 8000]"), &[]),
        (
            "no scheme",
            &listed("[http://localhost:1, localhost:2]"),
            &[]
        ),
        (
            "one twice",
            &listed("[http://localhost:1, http://localhost:1/]"),
            &[]
        ),
        (
            "two paths",
            &listed("[http://localhost:1/v1, http://localhost:2/v2]"),
            &[]
        ),
        ("a key for one host", &homes, &[("OPENAI_API_KEY", "sk-1")]),
        (
            "a key for each host",
            &own_keys,
            &[("OPENAI_API_KEY", "sk-1"), ("GROQ_API_KEY", "sk-2")]
        ),
        ("unknown fallback", &two("    fallbacks: [spar]\n"), &[]),
        ("itself", &two("    fallbacks: [spare, n]\n"), &[]),
        ("one twice", &two("    fallbacks: [spare, spare]\n"), &[]),
        (
            "a fallback that is no name",
            &two("    fallbacks: [3]\n"),
            &[]
        ),
    ]));
}
