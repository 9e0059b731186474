//! Answers that are held to a form while they are written: all of them is data. Row M5.

use serde_json::{Value, json};
use twopass_core::chat::{
    Message, Reply, Request, ResponseFormat, Role, Sampling, StopReason, ThinkTag, TurnBudget,
};
use twopass_provider::ProviderError;
use twopass_provider::backend::Backend;

use crate::bound_calls::embedded;

const ONE_PASS: TurnBudget = TurnBudget::OnePass {
    max_tokens: Some(120),
};

fn two_pass(max_thinking_tokens: u32) -> TurnBudget {
    TurnBudget::TwoPass {
        tag: ThinkTag::Think,
        max_thinking_tokens,
        max_response_tokens: 120,
    }
}

async fn written(
    schema: &Value,
    change: impl FnOnce(&mut Request),
) -> Result<Reply, ProviderError> {
    let mut request = Request::new(vec![Message::text(Role::User, "Give JSON.")]);
    request.response_format = ResponseFormat::JsonSchema {
        name: "form".to_owned(),
        schema: schema.clone(),
        strict: true,
    };
    request.sampling = Sampling {
        temperature: Some(1.0),
        seed: Some(3),
        ..Sampling::default()
    };
    change(&mut request);
    let model = embedded("TWOPASS_TEST_QWEN3", |_| {});
    model.open(request).await?.collect().await
}

/// Markup in the strings of a form belongs to them, with a thought and without.
#[tokio::test]
async fn m5_markup_in_a_form_is_data() {
    let texts = [
        "a</think>b",
        "</thinking></reasoning>[/THINK]",
        "<think>a\n<think>",
        "x</tool_call><tool_call>y",
    ];
    let form = json!({"type": "array", "minItems": texts.len(), "items": false,
        "prefixItems": texts.map(|text| json!({"const": text}))});
    for budget in [ONE_PASS, two_pass(0), two_pass(4)] {
        let reply = written(&form, |request| request.budget = budget).await;
        let reply = reply.unwrap();
        let value: Value = serde_json::from_str(&reply.content)
            .unwrap_or_else(|error| panic!("{error}: {reply:?}"));
        assert_eq!(value, json!(texts), "{budget:?}");
        assert_eq!(reply.stop_reason, StopReason::EndTurn, "{budget:?}");
    }
}
