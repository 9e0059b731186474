//! `GET /openapi.json`: every path, what it takes and which statuses it may have.
//!
//! Bodies are described as far as they are read; what else a client sends is allowed, since it
//! may be meant for the service behind.

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::api_error::all_statuses;

/// One method of one path.
struct Operation {
    path: &'static str,
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    /// The name of its body's schema, if it has a body.
    body: Option<&'static str>,
    answer: Answer,
    /// False: no key is asked for.
    guarded: bool,
}

#[derive(Clone, Copy)]
enum Answer {
    Json,
    /// JSON, or server-sent events with `"stream": true`.
    JsonOrEvents,
    Text,
}

const fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    body: &'static str,
) -> Operation {
    Operation {
        path,
        method: "post",
        id,
        summary,
        body: Some(body),
        answer: Answer::JsonOrEvents,
        guarded: true,
    }
}

const fn get(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        path,
        method: "get",
        id,
        summary,
        body: None,
        answer: Answer::Json,
        guarded: true,
    }
}

const fn open(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        guarded: false,
        ..get(path, id, summary)
    }
}

const OPERATIONS: [Operation; 18] = [
    post(
        "/generate",
        "generate",
        "One turn in two passes.",
        "Generate",
    ),
    post(
        "/v1/chat/completions",
        "chat",
        "A turn as OpenAI's Chat Completions.",
        "Chat",
    ),
    post(
        "/chat/completions",
        "chatWithoutVersion",
        "The same without a version.",
        "Chat",
    ),
    post(
        "/v1/completions",
        "completions",
        "A text goes on.",
        "Completion",
    ),
    post(
        "/v1/messages",
        "messages",
        "A turn as Anthropic's Messages.",
        "Messages",
    ),
    Operation {
        answer: Answer::Json,
        ..post(
            "/v1/messages/count_tokens",
            "countTokens",
            "Tokens of a prompt.",
            "Messages",
        )
    },
    post(
        "/v1/responses",
        "responses",
        "A turn as OpenAI's Responses.",
        "Responses",
    ),
    get("/v1/responses/{id}", "storedResponse", "A stored response."),
    Operation {
        method: "delete",
        ..get(
            "/v1/responses/{id}",
            "deleteResponse",
            "Forgets a stored response.",
        )
    },
    get(
        "/v1/responses/{id}/input_items",
        "inputItems",
        "What a stored response answered.",
    ),
    Operation {
        answer: Answer::Json,
        ..post(
            "/v1/embeddings",
            "embeddings",
            "A vector for each text.",
            "Embeddings",
        )
    },
    get("/v1/models", "models", "The names that requests may use."),
    get("/v1/models/{id}", "model", "One of them."),
    Operation {
        answer: Answer::Text,
        ..get(
            "/metrics",
            "metrics",
            "Numbers of the server as OpenMetrics text.",
        )
    },
    open("/health", "health", "Whether turns can start."),
    open("/health/ready", "ready", "The same."),
    open("/health/live", "live", "Whether the process answers."),
    open("/openapi.json", "openapi", "This description."),
];

/// The description as OpenAPI 3.1.
pub(super) async fn openapi() -> Response {
    super::json(&document())
}

fn document() -> Value {
    let mut paths = Map::new();
    for operation in &OPERATIONS {
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[operation.method] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Twopass", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "security": [{"bearer": []}, {"key": []}, {}],
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}

fn described(operation: &Operation) -> Value {
    let content = match operation.answer {
        Answer::Json => json!({"application/json": {}}),
        Answer::JsonOrEvents => json!({"application/json": {}, "text/event-stream": {}}),
        Answer::Text => json!({"application/openmetrics-text": {}}),
    };
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({"description": "Done.", "content": content}),
    );
    for status in all_statuses() {
        let reason = status.canonical_reason().unwrap_or("A refusal");
        responses.insert(status.as_u16().to_string(), json!({"description": reason}));
    }
    responses.insert(
        "4XX".to_owned(),
        json!({"description": "A refusal of the service behind, its status kept."}),
    );
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses,
    });
    if !operation.guarded {
        described["security"] = json!([]);
    }
    if operation.path.contains("{id}") {
        described["parameters"] = json!([
            {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}
        ]);
    }
    if let Some(body) = operation.body {
        let schema = json!({"$ref": format!("#/components/schemas/{body}")});
        described["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    described
}

fn schemas() -> Value {
    let count = json!({"type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX});
    let budget = json!({"type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX});
    let flag = json!({"type": ["boolean", "null"]});
    let temperature = json!({"type": ["number", "null"], "minimum": 0, "maximum": 100});
    let share = json!({"type": ["number", "null"], "minimum": 0, "maximum": 1});
    let model = json!({"type": ["string", "null"]});
    let texts = json!({"oneOf": [
        {"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]});
    let message = json!({
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"type": ["string", "array", "null"], "items": {"type": "object"}},
        },
    });
    let messages = json!({"type": "array", "minItems": 1, "items": message});
    let turn = |own: Value| {
        let mut properties = json!({
            "model": model, "stream": flag, "temperature": temperature, "top_p": share,
            "tools": {"type": ["array", "null"], "items": {"type": "object"}},
        });
        if let (Some(all), Value::Object(own)) = (properties.as_object_mut(), own) {
            all.extend(own);
        }
        properties
    };
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    json!({
        "Generate": object(&["messages"], turn(json!({
            "messages": messages, "two_pass": flag, "think_tag": {"enum": ["think", "thinking"]},
            "max_thinking_tokens": budget, "max_response_tokens": count,
        }))),
        "Chat": object(&["messages"], turn(json!({
            "messages": messages, "max_tokens": count, "max_completion_tokens": count,
            "max_thinking_tokens": budget, "reasoning_effort": {"type": ["string", "null"]},
            "response_format": {"type": ["object", "null"]},
        }))),
        "Completion": object(&["prompt"], turn(json!({
            "prompt": {"type": "string"}, "max_tokens": count,
        }))),
        "Messages": object(&["messages", "max_tokens"], turn(json!({
            "messages": messages, "max_tokens": count, "thinking": {"type": ["object", "null"]},
        }))),
        "Responses": object(&["input"], turn(json!({
            "input": {"type": ["string", "array"], "items": {"type": "object"}},
            "instructions": {"type": ["string", "null"]}, "max_output_tokens": count,
            "previous_response_id": {"type": ["string", "null"]}, "store": flag,
            "reasoning": {"type": ["object", "null"]},
        }))),
        "Embeddings": object(&["input"], json!({
            "model": model, "input": texts, "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": count,
        })),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_schemas_exist() {
        let document = document();
        let mut ids = HashSet::new();
        for operation in &OPERATIONS {
            assert!(ids.insert(operation.id), "{}", operation.id);
            if let Some(body) = operation.body {
                let schema = &document["components"]["schemas"][body];
                assert!(schema.is_object(), "{body}");
            }
        }
    }
}
