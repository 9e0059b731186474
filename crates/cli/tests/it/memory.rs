//! The memory that `serve` works with itself. Rows I3, L7.

use serde_json::{Value, json};
use twopass_replay::Answer;

use crate::run::Place;
use crate::served::Served;
use crate::serving::{Serving, rest};

fn call(name: &str, arguments: &Value) -> Answer {
    let call = json!({"id": "c1", "name": name, "arguments": arguments});
    Answer::chat_turn(&json!({"tool_calls": [call], "finish_reason": "tool_calls"}))
}

/// A client that knows no tools tells something; after a restart another one is answered by
/// it. None of them sees a call, whole or streamed.
#[test]
fn l7_memory_for_clients_without_tools() {
    let upstream = Served::start_all(vec![
        call("store_memory", &json!({"content": "The user likes green."})),
        Answer::chat_turn(&json!({"content": "Noted."})),
        call("recall_memory", &json!({"query": "green"})),
        Answer::chat_turn(&json!({"content": "You like green."})),
    ]);
    let place = Place::new();
    let config = format!(
        "providers:\n  - {{name: one, model_name: m, api_config: {{base_url: {}, max_retries: 0}}}}\nserver: {{memory: sqlite, store: memory}}\n",
        upstream.url()
    );
    place.write("twopass.yaml", config);
    for (stream, answer) in [(false, "Noted."), (true, "You like green.")] {
        let serving = Serving::start(&place);
        let reply = rest(serving.ask("one", stream));
        let shows_call = reply.contains("_memory") || reply.contains("\"tool_calls\":[{");
        assert!(reply.contains(answer) && !shows_call, "{reply}");
        assert!(reply.contains("\"finish_reason\":\"stop\""), "{reply}");
    }
    let asked: Vec<Value> = upstream.requests().iter().map(|one| one.json()).collect();
    let recalled = asked[3]["messages"].as_array().unwrap().last().unwrap();
    let recalled = recalled["content"].as_str().unwrap();
    assert!(recalled.contains("The user likes green."), "{recalled}");
}
