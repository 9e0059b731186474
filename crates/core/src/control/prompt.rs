//! From a request to the prompt and the plan of its turn, for engines that take text.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::bound_schemas::{OnUnboundSchema, judge_bounds};
use super::turn_parser::{TurnParserOptions, TurnSyntax};
use super::two_pass::{Means, TurnPlan};
use crate::chat::{
    BadRequest, Diagnostic, DiagnosticKind, Message, Part, Request, ThinkTag, ToolChoice, ToolSpec,
    TurnBudget,
};
use crate::chat_template::{
    Boundary, ChatTemplate, ControlStrings, Prompt, RenderInput, TemplateError, ThinkFraming,
};
use crate::schema::CompiledSchema;
use crate::tool_parser::{CallRules, ParserLimits, ToolSet, ToolSyntax};
use crate::tool_prompt::{
    CallBlocks, CallFormat, LazyGrammar, ToolPromptOptions, form_grammar, with_tools,
};

/// The markers of a Hermes call.
const CALL_OPEN: &str = "<tool_call>";
const CALL_CLOSE: &str = "</tool_call>";

/// A model that takes text: what its file tells about it.
#[derive(Debug)]
pub struct TextModel {
    template: ChatTemplate,
    framing: Option<ThinkFraming>,
    control: ControlStrings,
    control_tokens: Vec<(u32, String)>,
}

impl TextModel {
    /// A model of this template. `control` are the strings that its vocabulary reads as
    /// control tokens.
    #[must_use]
    pub fn new(template: ChatTemplate, control: ControlStrings) -> Self {
        let framing = template.think_framing();
        Self {
            template,
            framing,
            control,
            control_tokens: Vec::new(),
        }
    }

    /// Names control tokens by their numbers: in a forced call they stand as tokens. Without
    /// them the call is bound to the same text in ordinary tokens.
    #[must_use]
    pub fn with_control_tokens(self, control_tokens: Vec<(u32, String)>) -> Self {
        Self {
            control_tokens,
            ..self
        }
    }

    /// How a forced call is written. A template that writes tools teaches the model's own
    /// dialect; to any other Hermes calls are explained.
    fn call_format(&self, tools: &ToolSyntax) -> Option<CallFormat<'_>> {
        let own = tools
            .first
            .as_ref()
            .filter(|_| self.template.writes_tools());
        let format = own.and_then(CallFormat::new).or_else(CallFormat::hermes)?;
        Some(format.with_control_tokens(&self.control_tokens))
    }

    /// The template.
    #[must_use]
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }
}

/// Settings of prompts and plans that hold for every turn of a provider.
#[derive(Debug, Clone)]
pub struct TurnSettings {
    /// How capped thoughts are made.
    pub means: Means,
    /// The think tags to look for, none for `direct_response` (row A3), and the call formats; Hermes blocks are among them, since that is how tools are
    /// explained to a template that knows none. A forced call is bound to the first one named
    /// if the template writes tools and the format can be bound, to Hermes otherwise.
    pub syntax: TurnSyntax,
    /// How tools are written where the template does not do it.
    pub tool_prompt: ToolPromptOptions,
    /// Limits of the parser.
    pub limits: ParserLimits,
    /// What becomes of schemas that no grammar binds in full.
    pub on_unbound_schema: OnUnboundSchema,
}

/// A turn, ready to run.
#[derive(Debug, Clone)]
pub struct PlannedTurn {
    /// The prompt, up to the assistant boundary. Each pass appends its continuation.
    pub prompt: Prompt,
    /// The plan.
    pub plan: TurnPlan,
    /// A grammar for the answer in llguidance's Lark dialect, if a call or a form is demanded.
    pub grammar: Option<String>,
    /// For a model that may call and need not: what binds a call once it opens. It may not
    /// compile; the turn is free then.
    pub lazy_grammar: Option<LazyGrammar>,
    /// What the reader should know before the first event.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why a turn could not be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The request is at fault.
    Request(BadRequest),
    /// The model's template refused the conversation.
    Template(TemplateError),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<BadRequest> for PlanError {
    fn from(error: BadRequest) -> Self {
        Self::Request(error)
    }
}

impl From<TemplateError> for PlanError {
    fn from(error: TemplateError) -> Self {
        Self::Template(error)
    }
}

/// Renders the prompt and plans the turn. Past reasoning that is to go back stands in the
/// messages already ([`super::replay`]). `now_unix_s` is the date for templates that print
/// one.
///
/// # Errors
/// The request fails its own checks or holds content that a text model cannot take, or the
/// template refuses the conversation.
pub fn plan_turn(
    request: &Request,
    model: &TextModel,
    settings: &TurnSettings,
    now_unix_s: Option<i64>,
) -> Result<PlannedTurn, PlanError> {
    request.check()?;
    check_parts(&request.messages)?;
    check_schemas(&request.tools)?;
    let mut tool_prompt = settings.tool_prompt;
    tool_prompt.template_writes_tools = model.template.writes_tools();
    let template_messages = with_tools(
        &request.messages,
        &request.tools,
        &request.tool_choice,
        &tool_prompt,
    );
    let tools: &[_] = if tool_prompt.template_writes_tools {
        &request.tools
    } else {
        &[]
    };
    let kwargs = template_kwargs(request);
    let (prompt, boundary) = model.template.render(&RenderInput {
        messages: &template_messages,
        tools,
        kwargs: &kwargs,
        control: &model.control,
        now_unix_s,
    })?;
    let mut diagnostics = Vec::new();
    if matches!(request.budget, TurnBudget::TwoPass { .. }) && boundary.opened.is_some() {
        diagnostics.push(Diagnostic::new(
            DiagnosticKind::TemplateOpensThink,
            "the chat template opens the think block itself, so no second tag was added",
        ));
    }
    let grammar = demanded_grammar(request, model, settings);
    let only_calls = grammar.is_some() && request.tool_choice.forces_call();
    let policy = OnUnboundSchema::of_request(request, settings.on_unbound_schema)?;
    diagnostics.extend(judge_bounds(request, policy)?);
    let framing = model.framing.clone();
    let mut plan = TurnPlan {
        budget: request.budget,
        means: settings.means,
        opened_by_template: boundary.opened,
        open_block: true,
        closed_by_template: boundary.closed,
        framing: framing.unwrap_or_else(|| ThinkFraming::bare(tag_of(request))),
        stop: request.stop.clone(),
        call_stop: None,
        call_markers: None,
        only_calls,
        parser: parser_options(request, settings, &boundary),
    };
    let may_call = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
    if may_call && !only_calls {
        plan.call_markers = Some((CALL_OPEN.to_owned(), CALL_CLOSE.to_owned()));
        let single = tool_prompt.blocks == CallBlocks::Single;
        if single && !tool_prompt.template_writes_tools {
            plan.call_stop = Some(CALL_CLOSE.to_owned());
        }
    }
    let lazy_grammar = match grammar {
        None => lazy_grammar(request, model, settings),
        Some(_) => None,
    };
    Ok(PlannedTurn {
        prompt,
        plan,
        grammar,
        lazy_grammar,
        diagnostics,
    })
}

/// What binds a call of a model that may call and need not.
fn lazy_grammar(
    request: &Request,
    model: &TextModel,
    settings: &TurnSettings,
) -> Option<LazyGrammar> {
    model.call_format(settings.syntax.tools())?.lazy_grammar(
        &request.tools,
        &request.tool_choice,
        request.parallel_tool_calls,
    )
}

/// The grammar of the turn's calls, if one is demanded.
fn calls_grammar(request: &Request, model: &TextModel, settings: &TurnSettings) -> Option<String> {
    model.call_format(settings.syntax.tools())?.grammar(
        &request.tools,
        &request.tool_choice,
        request.parallel_tool_calls,
    )
}

/// The grammar of the answer in llguidance's Lark dialect, if a call or a form is demanded.
#[must_use]
pub fn demanded_grammar(
    request: &Request,
    model: &TextModel,
    settings: &TurnSettings,
) -> Option<String> {
    let form = || Some(form_grammar(&request.answer_schema()?));
    calls_grammar(request, model, settings).or_else(form)
}

fn parser_options(
    request: &Request,
    settings: &TurnSettings,
    boundary: &Boundary,
) -> TurnParserOptions {
    TurnParserOptions {
        syntax: settings.syntax.clone(),
        prompt_opened: Some(boundary.opened.is_some()),
        calls: CallRules {
            tools: Some(Arc::new(ToolSet::new(request.tools.clone()))),
            choice: request.tool_choice.clone(),
            taken_ids: taken_ids(&request.messages),
            id_salt: request.call_id_salt.clone(),
            limits: settings.limits,
            ..CallRules::default()
        },
        ..TurnParserOptions::default()
    }
}

fn tag_of(request: &Request) -> ThinkTag {
    match request.budget {
        TurnBudget::TwoPass { tag, .. } => tag,
        TurnBudget::OnePass { .. } => ThinkTag::Think,
    }
}

/// A schema that cannot be used would make every call invalid: better said at once.
fn check_schemas(tools: &[ToolSpec]) -> Result<(), BadRequest> {
    for (idx, tool) in tools.iter().enumerate() {
        if let Err(error) = CompiledSchema::new(&tool.parameters) {
            return Err(BadRequest::new(
                format!("tools[{idx}].parameters"),
                format!("the schema of tool `{}` cannot be used: {error}", tool.name),
            ));
        }
    }
    Ok(())
}

/// A text model takes text only; anything else is an error, never dropped.
fn check_parts(messages: &[Message]) -> Result<(), BadRequest> {
    for (idx, message) in messages.iter().enumerate() {
        for (part_idx, part) in message.content.iter().enumerate() {
            if !matches!(part, Part::Text(_)) {
                return Err(BadRequest::new(
                    format!("messages[{idx}].content[{part_idx}]"),
                    "this model takes text only",
                ));
            }
        }
    }
    Ok(())
}

/// The caller's variables, and whether the template is to think where the caller is silent.
fn template_kwargs(request: &Request) -> Vec<(String, Value)> {
    let mut kwargs = request.template_kwargs.clone();
    if let TurnBudget::TwoPass {
        max_thinking_tokens,
        ..
    } = request.budget
        && !kwargs.iter().any(|(name, _)| name == "enable_thinking")
    {
        kwargs.push((
            "enable_thinking".to_owned(),
            Value::Bool(max_thinking_tokens > 0),
        ));
    }
    kwargs
}

/// Ids that the conversation used already (row E9, case rule 13).
fn taken_ids(messages: &[Message]) -> HashSet<String> {
    let calls = messages
        .iter()
        .flat_map(|m| m.tool_calls.iter().map(|call| &call.id));
    let results = messages.iter().filter_map(|m| m.tool_call_id.as_ref());
    calls.chain(results).cloned().collect()
}
