use serde_json::{Value, json};

use crate::Answer;

impl Answer {
    /// One turn of a model, as a Chat Completions service streams it.
    ///
    /// `turn` is `{content, thinking, tool_calls, finish_reason}`, all of them optional; a
    /// call is `{id, name, arguments}`, or has `raw_arguments`, a text that need not be JSON.
    /// `{error: {kind, message}}` is the failure of that kind.
    #[must_use]
    pub fn chat_turn(turn: &Value) -> Self {
        if turn["error"].is_object() {
            return failure(&turn["error"]);
        }
        let mut pieces = vec![chunk(&json!({"role": "assistant"}), &Value::Null)];
        for (key, field) in [("thinking", "reasoning_content"), ("content", "content")] {
            if let Some(text) = turn[key].as_str().filter(|text| !text.is_empty()) {
                pieces.push(chunk(&json!({field: text}), &Value::Null));
            }
        }
        let calls = turn["tool_calls"].as_array().into_iter().flatten();
        for (index, call) in calls.enumerate() {
            let arguments = match &call["raw_arguments"] {
                Value::String(raw) => raw.clone(),
                _ => call["arguments"].to_string(),
            };
            let function = json!({"name": call["name"], "arguments": arguments});
            let call =
                json!({"index": index, "id": call["id"], "type": "function", "function": function});
            pieces.push(chunk(&json!({"tool_calls": [call]}), &Value::Null));
        }
        let finish = turn.get("finish_reason").cloned();
        pieces.push(chunk(&json!({}), &finish.unwrap_or_else(|| json!("stop"))));
        pieces.push("data: [DONE]\n\n".to_owned());
        Self::events(pieces)
    }
}

fn chunk(delta: &Value, finish: &Value) -> String {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    format!("data: {chunk}\n\n")
}

fn failure(error: &Value) -> Answer {
    let (status, code) = match error["kind"].as_str().unwrap_or_default() {
        "auth" => (401, "invalid_api_key"),
        "bad_request" => (400, "invalid_request_error"),
        "not_found" => (404, "model_not_found"),
        "context_length" => (400, "context_length_exceeded"),
        "rate_limited" => (429, "rate_limit_exceeded"),
        "quota_exhausted" => (429, "insufficient_quota"),
        "overloaded" => (503, "overloaded"),
        "stream_truncated" => return Answer::events([chunk(&json!({}), &Value::Null)]),
        "invalid_response" => return Answer::new(200, "text/plain", "no JSON"),
        _ => (500, "server_error"),
    };
    let body = json!({"error": {"message": error["message"], "code": code, "type": code}});
    Answer::json(status, &body)
}
