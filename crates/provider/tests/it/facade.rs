//! The facade over any backend. Rows B1, B3, B4, B7, B14, C1-C4.

use twopass_provider::{Invocation, parse_response};
use twopass_replay::Answer;

use crate::native::{hello, provider};
use crate::play;

fn invocation(response: &str, thinking: &str) -> Invocation {
    Invocation {
        response: response.to_owned(),
        thinking: thinking.to_owned(),
    }
}

#[test]
fn b7_c1_c4_parse_response() {
    let rows = [
        ("<think> a </think>\n b ", "b", "a"),
        ("<thinking>a</thinking>b", "b", "a"),
        ("<THINK >a</Think >b", "b", "a"),
        ("<think>a", "", "a"),
        ("plain", "plain", ""),
        ("", "", ""),
        ("say <think>a</think>", "say <think>a</think>", ""),
        ("<think></think>b", "b", ""),
        ("<think>a<b</think>c", "c", "a<b"),
        ("<thinker>a</thinker>", "<thinker>a</thinker>", ""),
    ];
    for (content, response, thinking) in rows {
        assert_eq!(
            parse_response(content),
            invocation(response, thinking),
            "{content}"
        );
    }
}

fn reply(body: &str) -> Answer {
    Answer::new(200, "application/json", body)
}

// Row B1: exactly two texts, on every path; thinking is blanked when it was not asked for.
#[tokio::test]
async fn b1_two_texts_on_every_path() {
    let server = play(vec![
        reply(r#"{"thinking":"t","response":"r","tool_calls":[]}"#),
        reply(r#"{"thinking":"t","response":"r","tool_calls":[]}"#),
        reply(r#"{"thinking":"t","response":"","tool_calls":[]}"#),
        reply("garbage"),
    ])
    .await;
    let provider = provider(&server, "");
    assert_eq!(
        provider.invoke(hello(), true).await.unwrap(),
        invocation("r", "t")
    );
    assert_eq!(
        provider.invoke(hello(), false).await.unwrap(),
        invocation("r", "")
    );
    let missing = provider.invoke(hello(), true).await.unwrap();
    assert_eq!(
        missing,
        invocation(
            "Error: provider `n`: the model ended its turn without an answer",
            "t"
        )
    );
    let broken = provider.invoke(hello(), true).await.unwrap();
    assert!(
        broken
            .response
            .starts_with("Error: provider `n`: the reply is invalid"),
        "{broken:?}"
    );
    let bad = provider.invoke(Vec::new(), true).await.unwrap();
    assert_eq!(
        bad,
        invocation(
            "Error: provider `n`: `messages`: at least one message is needed",
            ""
        )
    );
}

// Row B14: `on_error: raise` gives the typed error instead.
#[tokio::test]
async fn b14_raise_and_message() {
    let server = play(vec![reply("garbage")]).await;
    let raising = provider(&server, "    on_error: raise\n");
    assert!(raising.invoke(hello(), true).await.is_err());
    assert!(raising.client().invoke(hello()).await.is_err());
    let message = provider(&server, "")
        .client()
        .invoke(hello())
        .await
        .unwrap();
    assert!(message.tool_calls.is_empty() && message.error.is_some());
    assert!(message.content.starts_with("Error: provider `n`: "));
}

// Row A3: with `direct_response` tags are never looked for.
#[tokio::test]
async fn a3_direct_response_is_left_alone() {
    let server = play(vec![reply(r#"{"response":"r","thinking":"t"}"#)]).await;
    let direct = provider(&server, "    parsing_format: direct_response\n");
    assert_eq!(
        direct.parse_response("<think>a</think>b"),
        invocation("<think>a</think>b", "")
    );
}
