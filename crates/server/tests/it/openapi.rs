//! The description of the paths and the paths themselves agree.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{get, send};
use crate::service::{start, whole};

type Methods = BTreeMap<String, Value>;

#[tokio::test]
async fn every_documented_path_is_served() {
    let server = start(vec![whole(json!({"content": "ok"}), "stop")]).await;
    let document = get(server.running.addr, "/openapi.json").await.json();
    let paths: BTreeMap<String, Methods> =
        serde_json::from_value(document["paths"].clone()).unwrap();
    assert!(paths.len() > 15, "{document}");
    for (path, methods) in paths {
        for (method, described) in methods {
            let request = format!(
                "{} {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}",
                method.to_uppercase(),
                path.replace("{id}", "m"),
            );
            let reply = send(server.running.addr, request.as_bytes()).await;
            let name = format!("{method} {path}: {} {}", reply.status, reply.text());
            let documented = &described["responses"][reply.status.to_string()];
            assert!(documented.is_object(), "{name}");
            assert_ne!(reply.status, 405, "{name}");
            if !path.contains("{id}") {
                assert_ne!(reply.status, 404, "{name}");
            }
        }
    }
}
