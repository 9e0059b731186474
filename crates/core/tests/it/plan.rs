//! Planning a turn: what a forced call is bound to.

use twopass_core::chat::{Message, Request, Role, ToolChoice, ToolSpec};
use twopass_core::chat_template::{ChatTemplate, ControlStrings};
use twopass_core::control::{
    Means, OnUnboundSchema, TextModel, TurnSettings, TurnSyntax, plan_turn,
};
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_core::tool_parser::{ParserLimits, ToolSyntax};
use twopass_core::tool_prompt::ToolPromptOptions;

const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
const WITH_TOOLS: &str = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n{% endfor %}";

/// The grammar's first line.
fn bound_to(template: &str, tools: &str, choice: ToolChoice) -> Option<String> {
    let template = ChatTemplate::new(template, "", "").unwrap();
    let control = ControlStrings::new(["[TOOL_CALLS]".to_owned()]);
    let model =
        TextModel::new(template, control).with_control_tokens(vec![(5, "[TOOL_CALLS]".to_owned())]);
    let settings = TurnSettings {
        means: Means::EngineRule,
        syntax: TurnSyntax::new(
            ReasoningSyntax::none(),
            ToolSyntax::from_name(tools).unwrap(),
        ),
        tool_prompt: ToolPromptOptions::default(),
        limits: ParserLimits::default(),
        on_unbound_schema: OnUnboundSchema::Refuse,
    };
    let mut request = Request::new(vec![Message::text(Role::User, "q")]);
    request.tool_choice = choice;
    request.parallel_tool_calls = false;
    request.tools = vec![ToolSpec {
        name: "f".to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    }];
    let planned = plan_turn(&request, &model, &settings, None).unwrap();
    let grammar = planned.grammar?;
    Some(grammar.lines().next().unwrap_or_default().to_owned())
}

// Rows M5, E3.
#[test]
fn m5_a_forced_call_is_bound_in_the_dialect_that_the_prompt_teaches() {
    let required = || ToolChoice::Required;
    let own = "start:  <[5]>  \" [\" call \"]\" ";
    let hermes = "start: call";
    let rows = [
        (WITH_TOOLS, "mistral+hermes", Some(own)),
        (WITH_TOOLS, "hermes", Some(hermes)),
        // The template knows no tools, so Hermes calls were explained.
        (PLAIN, "mistral+hermes", Some(hermes)),
        // An element per argument cannot be bound; nor does `auto` name a dialect.
        (WITH_TOOLS, "qwen3_coder+hermes", Some(hermes)),
        (WITH_TOOLS, "auto", Some(hermes)),
    ];
    for (template, tools, expected) in rows {
        let grammar = bound_to(template, tools, required());
        assert_eq!(grammar.as_deref(), expected, "{tools}");
    }
    assert_eq!(bound_to(WITH_TOOLS, "mistral", ToolChoice::Auto), None);
}
