//! Labelled questions: JSON lines.
//!
//! A line is an object: `prompt` (a text) or `messages` (a conversation, as `/generate` takes
//! it), `answer` (the label), and if need be `match` (how it is compared, see [`Expected`]),
//! `tolerance` (of numbers; 0) and `id` (a text; the number of the line). Empty lines are skipped.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use twopass_core::chat::{Message, Role};
use twopass_provider::{ErrorKind, ProviderError};
use twopass_wire::generate::GenerateRequest;

use crate::matching::Expected;

const KEYS: [&str; 6] = ["prompt", "messages", "answer", "match", "tolerance", "id"];

/// One labelled question.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its name, unique in its dataset.
    pub id: String,
    /// The question.
    pub messages: Vec<Message>,
    /// What a right answer is.
    pub expected: Expected,
}

/// A set of questions.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The questions in their order, at least one.
    pub items: Vec<Item>,
    /// SHA-256 of the text in lower-case hex: records belong to one text.
    pub sha256: String,
}

impl Dataset {
    /// Reads JSON lines. `from` names them in errors.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadRequest`] with file, line and field of the first mistake.
    pub fn read(text: &str, from: &str) -> Result<Self, ProviderError> {
        let fail = |line: usize, problem: String| {
            ProviderError::new(ErrorKind::BadRequest, format!("{from}:{line}: {problem}"))
                .with_param("--dataset")
        };
        let mut items = Vec::new();
        let mut ids = HashSet::new();
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            let item = read_item(text, line).map_err(|problem| fail(line, problem))?;
            if !ids.insert(item.id.clone()) {
                return Err(fail(line, format!("`id` `{}` is taken already", item.id)));
            }
            items.push(item);
        }
        if items.is_empty() {
            return Err(fail(1, "the dataset holds no question".to_owned()));
        }
        let digest = Sha256::digest(text);
        Ok(Self {
            items,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

fn read_item(text: &str, line: usize) -> Result<Item, String> {
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))?;
    if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let allowed = KEYS.join("`, `");
        return Err(format!("unknown key `{key}`, allowed: `{allowed}`"));
    }
    let text_of = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("`{name}` must be a text")),
    };
    let messages = match (text_of("prompt")?, fields.get("messages")) {
        (Some(prompt), None) if prompt.trim().is_empty() => {
            return Err("`prompt` must not be empty".to_owned());
        }
        (Some(prompt), None) => vec![Message::text(Role::User, prompt)],
        (None, Some(messages)) => {
            let body = json!({ "messages": messages }).to_string();
            GenerateRequest::from_json(body.as_bytes())
                .map_err(|fault| fault.to_string())?
                .messages
        }
        _ => return Err("needs `prompt` or `messages`, and not both".to_owned()),
    };
    let tolerance = match fields.get("tolerance") {
        None => 0.0,
        Some(value) => value
            .as_f64()
            .filter(|value| *value >= 0.0)
            .ok_or("`tolerance` must be a number of at least 0")?,
    };
    let answer = fields.get("answer").ok_or("needs `answer`")?;
    Ok(Item {
        id: text_of("id")?.map_or_else(|| line.to_string(), str::to_owned),
        messages,
        expected: Expected::read(text_of("match")?, answer, tolerance)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_questions() {
        let text = concat!(
            "{\"prompt\": \"2+2?\", \"answer\": 4}\n\n",
            "{\"id\": \"b\", \"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, ",
            "{\"role\": \"user\", \"content\": \"Hi\"}], \"answer\": \"x\", \"match\": \"contains\"}\r\n",
        );
        let set = Dataset::read(text, "f.jsonl").unwrap();
        let ids: Vec<_> = set.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["1", "b"]);
        assert_eq!(set.items[1].messages.len(), 2);
        assert!(set.items[0].expected.fits("4"));
        assert_eq!(set.sha256.len(), 64);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        let long = "[".repeat(100_000);
        for (line, expect) in [
            (
                "{",
                "is no JSON object: EOF while parsing an object at line 1 column 1",
            ),
            (
                "[1]",
                "is no JSON object: invalid type: sequence, expected a map at line 1 column 0",
            ),
            (
                long.as_str(),
                "is no JSON object: invalid type: sequence, expected a map at line 1 column 0",
            ),
            (
                r#"{"question": "x", "answer": 1}"#,
                "unknown key `question`, allowed: `prompt`, `messages`, `answer`, `match`, `tolerance`, `id`",
            ),
            (
                r#"{"answer": 1}"#,
                "needs `prompt` or `messages`, and not both",
            ),
            (
                r#"{"prompt": "x", "messages": [], "answer": 1}"#,
                "needs `prompt` or `messages`, and not both",
            ),
            (r#"{"prompt": 3, "answer": 1}"#, "`prompt` must be a text"),
            (
                r#"{"prompt": " ", "answer": 1}"#,
                "`prompt` must not be empty",
            ),
            (r#"{"prompt": "x"}"#, "needs `answer`"),
            (
                r#"{"prompt": "x", "answer": 1, "tolerance": -1}"#,
                "`tolerance` must be a number of at least 0",
            ),
            (
                r#"{"prompt": "x", "answer": 1, "match": "fuzzy"}"#,
                "`match` must be one of `exact`, `contains`, `number`, `regex`, `json`, got `fuzzy`",
            ),
            (
                r#"{"id": "1", "prompt": "x", "answer": 1}"#,
                "`id` `1` is taken already",
            ),
        ] {
            let text = format!("{{\"prompt\": \"a\", \"answer\": 1}}\n{line}\n");
            let error = Dataset::read(&text, "f.jsonl").unwrap_err();
            assert_eq!(error.message(), format!("f.jsonl:2: {expect}"));
        }
        let error = Dataset::read("\n\n", "f.jsonl").unwrap_err();
        assert_eq!(error.message(), "f.jsonl:1: the dataset holds no question");
        let text = r#"{"messages": [{"role": "judge"}], "answer": 1}"#;
        let error = Dataset::read(text, "f.jsonl").unwrap_err();
        assert!(
            error
                .message()
                .starts_with("f.jsonl:1: `messages[0].role`: must be"),
            "{error}"
        );
    }
}
