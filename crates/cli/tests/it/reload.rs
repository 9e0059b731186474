//! `twopass serve` at SIGHUP: what is new counts, what runs goes on, what is faulty changes
//! nothing.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use twopass_replay::{Answer, Step};

use crate::run::Place;
use crate::served::Served;
use crate::serving::{Serving, rest};

const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
const REST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.contains(text) {
        stream.read_exact(&mut byte).unwrap();
        seen.push(char::from(byte[0]));
    }
    seen
}

fn config(name: &str, url: &str) -> String {
    format!(
        "providers:\n  - {{name: {name}, provider_backend: openai, model_name: m, parsing_format: direct_response, api_config: {{base_url: {url}}}}}\nserver: {{access_log: true}}\n"
    )
}

#[test]
#[cfg(unix)]
fn streams_go_on_while_the_configuration_changes() {
    let slow = Answer::events([FIRST])
        .then(Step::Wait(Duration::from_secs(3)))
        .then(Step::Send(REST.as_bytes().to_vec()));
    let upstream = Served::start(slow);
    let place = Place::new();
    place.write("twopass.yaml", config("one", &upstream.url()));
    let serving = Serving::start(&place);
    assert_eq!(serving.models(), ["one", "one/m"]);
    let logged: Value = serde_json::from_str(&serving.message()).unwrap();
    assert_eq!(
        (&logged["route"], &logged["outcome"]),
        (&"/v1/models".into(), &"ok".into())
    );

    let mut stream = serving.ask("one", true);
    until(&mut stream, "Par");
    place.write("twopass.yaml", config("two", &upstream.url()));
    serving.signal("HUP");
    assert_eq!(
        serving.message(),
        "the configuration was read again, serving: two"
    );
    assert_eq!(serving.models(), ["two", "two/m"]);
    assert!(serving.message().contains("/v1/models"));
    assert!(rest(serving.ask("one", false)).starts_with("HTTP/1.1 404"));
    assert!(serving.message().contains("not_found"));
    let end = rest(stream);
    assert!(end.contains("is") && end.contains("[DONE]"), "{end}");
    assert!(serving.message().contains("\"outcome\":\"ok\""));

    for (faulty, why) in [
        (
            "providers: [{name: 3}]\n".to_owned(),
            "twopass.yaml:1:20: `providers[0].name`",
        ),
        (
            config("three", "nowhere"),
            "`providers[0].api_config.base_url`",
        ),
        (
            format!(
                "{}  keys_file: none\n",
                config("four", &upstream.url()).replace("server: {access_log: true}", "server:")
            ),
            "cannot read keys_file",
        ),
    ] {
        place.write("twopass.yaml", faulty);
        serving.signal("HUP");
        let said = serving.message();
        assert!(
            said.starts_with("the configuration stays as it was: "),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
        assert_eq!(serving.models(), ["two", "two/m"]);
        serving.message();
    }
    let url = upstream.url();
    let silent = config("two", &url).replace("access_log: true", "memory: session");
    place.write("twopass.yaml", silent);
    serving.signal("HUP");
    assert_eq!(
        serving.message(),
        "the configuration was read again, serving: two; \
         `server.access_log`, `server.memory` from the next start on"
    );
    // One secret for another, too, and not what a flag decides.
    let places = "store: 'postgres://u:b@nowhere/db', reasoning_memory: false, port: 9";
    let moved = config("two", &url).replace("access_log: true", places);
    place.write("twopass.yaml", moved);
    serving.signal("HUP");
    assert_eq!(
        serving.message(),
        "the configuration was read again, serving: two; \
         `server.access_log`, `server.reasoning_memory`, `server.store` from the next start on"
    );
    serving.signal("TERM");
    let mut serving = serving;
    assert!(serving.child.wait().unwrap().success());
}
