//! The Hermes convention: `<tools>` in the system text, `<tool_call>` and `<tool_response>`
//! in the turns. Wording as in the Qwen2.5 and Qwen3 chat templates, on which most open
//! models were trained (read 2026-11).

use serde_json::{Value, json};

use super::{CallBlocks, ToolsLayout};
use crate::chat::{Message, Role, ToolSpec};
use crate::chat_template::{Piece, TemplateMessage, to_python_json};

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
