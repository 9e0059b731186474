use std::collections::HashSet;

use super::calls::{ArgumentBody, CallRules, Calls};
use crate::chat::{CallErrorKind, Event, InvalidToolCall, ToolCall, ToolChoice};

impl CallRules {
    /// Judges a call that came structured, exactly as the parsers judge what they read in
    /// text (case rules 10 to 12): the name is cleaned and must be offered and allowed, the
    /// arguments are read strictly, then leniently, brought to the schema's types and
    /// checked. `cut`: the turn ended right after it, by the token cap. Ids are not checked.
    ///
    /// The call, and true if its arguments were readable only by the lenient reader.
    ///
    /// # Errors
    /// The call with the first reason against it.
    pub fn judge(
        &self,
        id: &str,
        name: &str,
        arguments: &str,
        cut: bool,
    ) -> Result<(ToolCall, bool), Box<InvalidToolCall>> {
        let reject = |kind, message: &str| {
            Err(Box::new(InvalidToolCall {
                id: id.to_owned(),
                name: Some(name.to_owned()),
                arguments: arguments.to_owned(),
                kind,
                path: None,
                message: message.to_owned(),
            }))
        };
        if self.choice == ToolChoice::None {
            return reject(
                CallErrorKind::ToolChoiceViolation,
                "no call was allowed in this turn",
            );
        }
        let mut calls = Calls::new(Self {
            taken_ids: HashSet::new(),
            ..self.clone()
        });
        let mut events = Vec::new();
        let body = ArgumentBody::Text {
            text: arguments.to_owned(),
            lenient: false,
        };
        calls.begin(name, Some(id), &mut events);
        calls.end(body, &mut events);
        calls.settle(cut, &mut events);
        let repaired = events
            .iter()
            .any(|event| matches!(event, Event::Diagnostic(_)));
        for event in events {
            match event {
                Event::CallFinished { call, .. } => return Ok((call, repaired)),
                Event::CallRejected { call, .. } => return Err(Box::new(call)),
                _ => {}
            }
        }
        reject(CallErrorKind::MalformedArguments, "the call cannot be read")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::CallRules;
    use crate::chat::{ToolChoice, ToolSpec};
    use crate::tool_parser::ToolSet;

    // Rows E6, E10, E15, M7.
    #[test]
    fn structured_calls_are_judged_as_those_in_text() {
        let tool = ToolSpec {
            name: "f".to_owned(),
            description: String::new(),
            parameters: serde_json::json!({
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            }),
        };
        let auto = CallRules {
            tools: Some(Arc::new(ToolSet::new([tool]))),
            ..CallRules::default()
        };
        let with = |choice| CallRules {
            choice,
            ..auto.clone()
        };
        let named = with(ToolChoice::Named("g".to_owned()));
        let none = with(ToolChoice::None);
        let table = [
            (&auto, "f", "{\"n\":1}", false, "f {\"n\":1} false"),
            (
                &auto,
                "functions.f",
                "{\"n\":\"1\"}",
                true,
                "f {\"n\":1} false",
            ),
            (&auto, "f", "{'n': 1}", false, "f {\"n\":1} true"),
            (&auto, "f", "{'n': 1}", true, "truncated_tool_call"),
            (&auto, "f", "{\"n\":", true, "truncated_tool_call"),
            (&auto, "f", "{\"n\":", false, "malformed_arguments"),
            (&auto, "f", "{}", false, "schema_violation"),
            (&auto, "g", "{}", false, "unknown_tool"),
            (&named, "f", "{\"n\":1}", false, "tool_choice_violation"),
            (&none, "f", "{\"n\":1}", false, "tool_choice_violation"),
        ];
        for (rules, name, arguments, cut, expected) in table {
            let judged = match rules.judge("id", name, arguments, cut) {
                Ok((call, repaired)) => {
                    assert_eq!(call.id, "id");
                    format!("{} {} {repaired}", call.name, call.arguments.as_text())
                }
                Err(call) => call.kind.as_str().to_owned(),
            };
            assert_eq!(judged, expected, "{name} {arguments} {cut}");
        }
    }
}
