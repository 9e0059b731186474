//! The second model of the workflow agent: it reads the last exchange and says, in strict
//! JSON, how the working memory is to change (row L4). A state machine without IO.

use serde_json::{Map, Value};
use twopass_core::chat::{Arguments, Message, Role, ToolCall, ToolSpec};

/// How often the model may try.
pub const MAX_ATTEMPTS: u32 = 5;

/// One update of the memory under way.
#[derive(Debug, Clone)]
pub struct MemoryUpdate {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    n_attempts: u32,
    is_finished: bool,
}

/// Edits as the model wants them, all or none of which are to be made.
pub type Edits = Vec<ToolCall>;

impl MemoryUpdate {
    /// An update of this memory after this exchange, by these editing tools.
    #[must_use]
    pub fn new(memory: &str, exchange: (&str, &str), tools: Vec<ToolSpec>) -> Self {
        let (question, answer) = exchange;
        let task = format!(
            "The memory as it is:\n\n{memory}\n\nThe user said:\n\n{question}\n\nThe assistant \
             answered:\n\n{answer}\n\nWrite the edits as JSON now."
        );
        Self {
            messages: vec![
                Message::text(Role::System, instructions(&tools)),
                Message::text(Role::User, task),
            ],
            tools,
            n_attempts: 0,
            is_finished: false,
        }
    }

    /// The next request's messages; `None` if there are none left, or it is finished.
    pub fn ask(&mut self) -> Option<Vec<Message>> {
        if self.is_finished || self.n_attempts >= MAX_ATTEMPTS {
            return None;
        }
        self.n_attempts += 1;
        Some(self.messages.clone())
    }

    /// Ends the update: no further attempt is made.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// How many attempts were begun.
    #[must_use]
    pub fn n_attempts(&self) -> u32 {
        self.n_attempts
    }

    /// Reads the model's reply.
    ///
    /// # Errors
    /// What is wrong with it, for [`MemoryUpdate::handle_error`].
    pub fn read(&self, reply: &str) -> Result<Edits, String> {
        let value: Value = serde_json::from_str(without_fence(reply))
            .map_err(|error| format!("that is not JSON: {error}"))?;
        let list = match value {
            Value::Array(list) => list,
            one => vec![one],
        };
        let edits = list.into_iter().enumerate();
        edits.map(|(at, edit)| self.edit(at, edit)).collect()
    }

    /// Tells the model what was wrong with its reply.
    pub fn handle_error(&mut self, reply: &str, error: &str) {
        self.messages.truncate(2);
        self.messages.push(Message::text(Role::Assistant, reply));
        let text = format!(
            "That did not work: {error}. Nothing was changed. Write all edits again, as JSON \
             and nothing else."
        );
        self.messages.push(Message::text(Role::User, text));
    }

    fn edit(&self, at: usize, edit: Value) -> Result<ToolCall, String> {
        let Value::Object(mut fields) = edit else {
            return Err(format!("edit {} is no object", at + 1));
        };
        let name = match fields.remove("name") {
            Some(Value::String(name)) => name,
            _ => return Err(format!("edit {} has no `name`", at + 1)),
        };
        if !self.tools.iter().any(|tool| tool.name == name) {
            let known: Vec<_> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(format!("there is no `{name}`, only {}", known.join(", ")));
        }
        let arguments = match fields.remove("arguments") {
            Some(Value::Object(arguments)) => arguments,
            None => Map::new(),
            Some(_) => return Err(format!("the `arguments` of edit {} are no object", at + 1)),
        };
        Ok(ToolCall {
            id: format!("edit_{}", at + 1),
            name,
            arguments: Arguments::from_object(arguments),
        })
    }
}

/// The JSON in a code fence around it, if there is one.
fn without_fence(reply: &str) -> &str {
    let text = reply.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    let inner = inner.strip_prefix("json").unwrap_or(inner);
    inner.trim()
}

fn instructions(tools: &[ToolSpec]) -> String {
    let mut text = "You keep the working memory of an assistant. After each exchange you decide \
        what is to be remembered or forgotten. Answer with JSON and nothing else: one object \
        {\"name\": ..., \"arguments\": {...}}, or a list of such objects, which are carried out \
        in order. An empty list changes nothing. The edits that you can make:\n"
        .to_owned();
    for tool in tools {
        text.push_str(&format!(
            "\n`{}`: {}\nIts arguments, as JSON Schema: {}\n",
            tool.name, tool.description, tool.parameters
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Row L4, workflow updater: what counts as strict JSON.
    #[test]
    fn l4_replies_are_read_strictly() {
        let tool = ToolSpec {
            name: "overwrite_memory".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let update = MemoryUpdate::new("m", ("q", "a"), vec![tool]);
        let one = r#"{"name": "overwrite_memory", "arguments": {"new_memory": "x"}}"#;
        let table = [
            (one.to_owned(), Ok(1)),
            (format!("[{one}, {one}]"), Ok(2)),
            (format!("```json\n{one}\n```"), Ok(1)),
            ("[]".to_owned(), Ok(0)),
            (format!("Sure! {one}"), Err("not JSON")),
            ("{\"arguments\": {}}".to_owned(), Err("no `name`")),
            (
                one.replace("overwrite", "rewrite"),
                Err("only overwrite_memory"),
            ),
            (
                one.replace("{\"new_memory\": \"x\"}", "[]"),
                Err("no object"),
            ),
            ("3".to_owned(), Err("no object")),
        ];
        for (reply, expected) in table {
            match (update.read(&reply), expected) {
                (Ok(edits), Ok(n)) => assert_eq!(edits.len(), n, "{reply}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{reply}: {error}"),
                (got, _) => panic!("{reply}: {got:?}"),
            }
        }
    }

    // Row L4: five tries, each with the last error and no older one.
    #[test]
    fn l4_five_tries_with_the_last_error() {
        let mut update = MemoryUpdate::new("m", ("q", "a"), Vec::new());
        for attempt in 1..=MAX_ATTEMPTS {
            let messages = update.ask().unwrap();
            assert_eq!(messages.len(), if attempt == 1 { 2 } else { 4 });
            if let Some(last) = messages.get(3) {
                assert!(
                    last.content_text()
                        .contains(&format!("error {}", attempt - 1))
                );
            }
            update.handle_error("{", &format!("error {attempt}"));
        }
        assert!(update.ask().is_none());
    }
}
