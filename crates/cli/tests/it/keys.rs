//! `twopass keys`, and the server that takes what it made.

use serde_json::Value;

use crate::run::Place;
use crate::serving::{Serving, rest};

const CONFIG: &str = "providers:\n  - {name: one, provider_backend: openai, model_name: m, api_config: {base_url: \"http://127.0.0.1:1/v1\"}}\n";

fn status(serving: &Serving, key: &str) -> String {
    let request = format!(
        "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {key}\r\n\r\n"
    );
    let reply = rest(serving.open(&request));
    reply.get(9..12).unwrap_or_default().to_owned()
}

#[test]
#[cfg(unix)]
fn a_key_is_made_listed_and_taken() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    place.write("twopass.yaml", CONFIG);
    let keys = |more: &[&str]| place.run(&[&["keys", "--keys-file", "keys.yaml"], more].concat());
    let first = keys(&[
        "new",
        "--name",
        "ann",
        "--tokens-per-day",
        "1000",
        "--expires",
        "9999-01-31",
    ]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let key = first.stdout.trim().to_owned();
    assert!(key.starts_with("tp-") && key.len() == 67, "{key}");
    assert!(!first.stderr.contains(&key), "{}", first.stderr);
    let file = place.path().join("keys.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("ann") && !text.contains(&key), "{text}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut serving = Serving::start_with(&place, &["--keys-file", "keys.yaml"]);
    assert_eq!(status(&serving, &key), "200");
    let more = [
        "new", "--name", "ops", "--scopes", "metrics", "--models", "a*,b", "--json",
    ];
    let second = keys(&more);
    let second: Value = serde_json::from_str(&second.stdout).unwrap();
    let other = second["key"].as_str().unwrap();
    assert_eq!(status(&serving, other), "401");
    serving.signal("HUP");
    assert!(serving.message().contains("was read again"));
    assert_eq!(status(&serving, other), "200");

    // A faulty file changes nothing and is one line.
    std::fs::write(&file, "keys:\n  - {name: ann}\n").unwrap();
    serving.signal("HUP");
    let said = serving.message();
    assert!(
        said.starts_with("the configuration stays as it was: "),
        "{said}"
    );
    assert!(said.contains("`keys[0].hash`"), "{said}");
    assert_eq!(status(&serving, &key), "200");
    serving.signal("TERM");
    assert!(serving.child.wait().unwrap().success());

    std::fs::write(&file, text).unwrap();
    keys(&["new", "--name", "ops", "--requests-per-minute", "7"]);
    assert_eq!(
        keys(&[]).stdout,
        "name  scopes           requests/min  tokens/min  tokens/day  expires     models\n\
         ann   chat,embeddings  -             -           1000        9999-01-31  *\n\
         ops   chat,embeddings  7             -           -           -           *\n"
    );
}

#[test]
fn what_cannot_be_made_is_said_in_one_line() {
    let place = Place::new();
    place.write("twopass.yaml", CONFIG);
    place.write("lines", "a-key\n");
    for (args, expect) in [
        (
            vec!["keys"],
            "no keys file is configured: `server.keys_file` names none",
        ),
        (
            vec!["keys", "--keys-file", "none"],
            "cannot read keys_file `none`: No such file or directory (os error 2)",
        ),
        (
            vec!["keys", "new", "--keys-file", "new", "--name", "a b"],
            "the name of a key must be 1 to 64 letters, digits, `.`, `_` or `-`",
        ),
        (
            vec!["keys", "new", "--keys-file", "lines", "--name", "a"],
            "keys_file `lines` is not a list of blocks below `keys:` that an entry can be put to the end of",
        ),
        (
            vec![
                "keys",
                "new",
                "--keys-file",
                "new",
                "--name",
                "a",
                "--expires",
                "2026-02-30",
            ],
            "must be a date YYYY-MM-DD",
        ),
    ] {
        let ran = place.run(&args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains(expect), "{args:?}: {}", ran.stderr);
    }
    assert!(!place.path().join("new").exists());
}
