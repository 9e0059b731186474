//! The Hermes convention: `<tools>` in the system text, `<tool_call>` and `<tool_response>`
//! in the turns. Wording as in the Qwen2.5 and Qwen3 chat templates, on which most open
//! models were trained (read 2026-11).

use serde_json::{Value, json};

use super::{CallBlocks, ToolsLayout};
use crate::chat::{Message, Role, ToolChoice, ToolSpec};
use crate::chat_template::{Piece, TemplateMessage, to_python_json};
use crate::schema::{close_objects, keywords_used};

/// Most calls that a constrained turn may make.
const MAX_CONSTRAINED_CALLS: usize = 8;

/// The `# Tools` header and the list (rows E1, E2).
pub(super) fn tool_list(tools: &[ToolSpec], layout: ToolsLayout) -> Vec<Piece> {
    let mut pieces = vec![Piece::Trusted(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            .to_owned(),
    )];
    let specs = tools.iter().map(function_value);
    match layout {
        ToolsLayout::Lines => {
            for spec in specs {
                pieces.push(Piece::Untrusted(to_python_json(&spec, None)));
                pieces.push(Piece::Trusted("\n".to_owned()));
            }
        }
        ToolsLayout::Array => {
            let all = Value::Array(specs.collect());
            pieces.push(Piece::Untrusted(to_python_json(&all, None)));
            pieces.push(Piece::Trusted("\n".to_owned()));
        }
    }
    pieces.push(Piece::Trusted("</tools>\n\n".to_owned()));
    pieces
}

/// How to call (rows E3, E4).
pub(super) fn call_instruction(blocks: CallBlocks) -> String {
    let mut text = "For each function call, return a json object with function name and \
                    arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n\
                    {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
        .to_owned();
    if blocks == CallBlocks::Single {
        text.push_str(
            "\n\nPut all calls of one reply into a single <tool_call></tool_call> block; \
             for several calls write a json array of such objects inside it.",
        );
    }
    text
}

/// Past calls as call blocks, past results as response blocks in a user turn (row E18);
/// results in a row share one turn, as Qwen's templates do.
pub(super) fn history(messages: &[Message]) -> Vec<TemplateMessage> {
    let mut out: Vec<TemplateMessage> = Vec::new();
    let mut after_result = false;
    for message in messages {
        let mut shown = TemplateMessage::untrusted(message);
        if message.role == Role::Tool {
            let open = if after_result {
                "\n<tool_response>\n"
            } else {
                "<tool_response>\n"
            };
            let block = [
                Piece::Trusted(open.to_owned()),
                Piece::Untrusted(message.content_text()),
                Piece::Trusted("\n</tool_response>".to_owned()),
            ];
            match out.last_mut() {
                Some(turn) if after_result => turn.content.extend(block),
                _ => {
                    shown.head = Message::text(Role::User, "");
                    shown.content = block.into();
                    out.push(shown);
                }
            }
            after_result = true;
            continue;
        }
        after_result = false;
        let mut is_empty = message.content_text().is_empty();
        for call in std::mem::take(&mut shown.head.tool_calls) {
            let gap = if is_empty { "" } else { "\n" };
            is_empty = false;
            let body = json!({"name": call.name, "arguments": call.arguments.as_object()});
            shown
                .content
                .push(Piece::Trusted(format!("{gap}<tool_call>\n")));
            shown
                .content
                .push(Piece::Untrusted(to_python_json(&body, None)));
            shown
                .content
                .push(Piece::Trusted("\n</tool_call>".to_owned()));
        }
        out.push(shown);
    }
    out
}

fn function_value(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    })
}

/// A grammar of the turn's calls in llguidance's Lark dialect, for a choice that demands
/// one; `None` if the choice leaves the model free.
///
/// The JSON is bound to each tool's schema and to the spacing that models were trained on.
/// A named choice is one call; `Required` with `parallel` is up to eight.
#[must_use]
pub fn call_grammar(tools: &[ToolSpec], choice: &ToolChoice, parallel: bool) -> Option<String> {
    if !choice.forces_call() {
        return None;
    }
    let allowed: Vec<&ToolSpec> = tools
        .iter()
        .filter(|tool| choice.only_tool().is_none_or(|name| name == tool.name))
        .collect();
    let names: Vec<String> = (0..allowed.len())
        .map(|idx| format!("call_{idx}"))
        .collect();
    let more = if parallel && *choice == ToolChoice::Required {
        format!(" (\"\\n\" call){{0,{}}}", MAX_CONSTRAINED_CALLS - 1)
    } else {
        String::new()
    };
    let mut grammar = format!("start: call{more}\ncall: {}\n", names.join(" | "));
    for (idx, tool) in allowed.iter().enumerate() {
        let head = format!(
            "<tool_call>\n{{\"name\": {}, \"arguments\": ",
            json!(tool.name)
        );
        let tail = "}\n</tool_call>";
        grammar.push_str(&format!(
            "call_{idx}: {} args_{idx} {}\nargs_{idx}: %json {}\n",
            json!(head),
            json!(tail),
            bound_schema(&tool.parameters),
        ));
    }
    Some(grammar)
}

/// Keywords that llguidance 1.9 does not bind, or only roughly (`oneOf` as `anyOf`).
const UNBOUND_KEYWORDS: [&str; 13] = [
    "oneOf",
    "not",
    "if",
    "uniqueItems",
    "contains",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// What a forced call's grammar leaves to the check afterwards: the tool's name and its
/// schema's keywords, for each tool that has any.
#[must_use]
pub fn unbound_keywords(tools: &[ToolSpec]) -> Vec<(&str, Vec<&'static str>)> {
    tools
        .iter()
        .map(|tool| {
            let used = keywords_used(&tool.parameters, &UNBOUND_KEYWORDS);
            (tool.name.as_str(), used)
        })
        .filter(|(_, used)| !used.is_empty())
        .collect()
}

/// The schema with llguidance's options: the separators of Python's `json.dumps`, and
/// keywords that it does not know passed over.
fn bound_schema(schema: &Value) -> Value {
    let mut schema = close_objects(schema);
    if let Value::Object(object) = &mut schema {
        object.entry("type").or_insert_with(|| json!("object"));
        object.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_flexible": false, "lenient": true, "item_separator": ", ", "key_separator": ": "}),
        );
    }
    schema
}
