//! From call arguments, configuration and defaults to one checked [`Request`].
//!
//! Order of every value: call argument, configuration, default. Whether a turn has two
//! passes (rows A9, A10, B2, X1, X18): the call says so, else the configuration, else `auto`,
//! which is on for backends that continue exactly (`embedded`, `vllm_native`,
//! `completions`) and off for the others. The facade also needs thinking to be asked for.

use std::ops::{Deref, DerefMut};

use serde_json::Value;
use twopass_core::chat::{
    self as core, BadRequest, Delivery, Message, OpaqueItem, Passthrough, Request, ResponseFormat,
    Sampling, ThinkTag, ToolChoice, ToolSpec, TurnBudget,
};
use twopass_core::control::replay;
use twopass_core::reasoning_parser::ReasoningSyntax;
use twopass_wire::WireRequest;
use twopass_wire::generate::GenerateRequest;

use crate::config::{BackendKind, ParsingFormat, ProviderConfig, ToolResultRole, TwoPassMode};
use crate::prompt::{in_text, tool_prompt};

/// Thinking tokens if nobody says otherwise.
pub const DEFAULT_THINKING_TOKENS: u32 = 256;
/// Answer tokens if nobody says otherwise.
pub const DEFAULT_RESPONSE_TOKENS: u32 = 1024;

/// Whether the caller wants the model to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// As the configuration says: the client and `/generate`.
    #[default]
    ByConfig,
    /// Asked for: two passes where they are permitted.
    On,
    /// Not wanted: one pass, and the template is told so.
    Off,
}

/// What one call may say; everything absent is filled from the configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallOptions {
    /// Whether the model is to think.
    pub thinking: Thinking,
    /// How much a service that thinks by itself is to think, as it names it (`low`, `high`);
    /// `none` = not at all. `None` = the configuration's.
    pub reasoning_effort: Option<String>,
    /// How a service is asked to hand over its reply. The events are the same.
    pub delivery: Delivery,
    /// Two passes or one; `None` and `Auto` follow the configuration.
    pub two_pass: Option<TwoPassMode>,
    /// The tag of the generated thought.
    pub think_tag: Option<ThinkTag>,
    /// Cap on the thought, 0 or more.
    pub max_thinking_tokens: Option<u32>,
    /// Cap on the answer, 1 or more.
    pub max_response_tokens: Option<u32>,
    /// Cap on thought and answer together, 1 or more (row M10).
    pub max_tokens: Option<u32>,
    /// How tokens are drawn; set fields win over the configuration's.
    pub sampling: Sampling,
    /// Asks for the probabilities of the answer's tokens ([`Request::logprobs`]).
    pub logprobs: Option<u32>,
    /// Stop strings of the answer; `None` = the configuration's.
    pub stop: Option<Vec<String>>,
    /// What may be called.
    pub tools: Vec<ToolSpec>,
    /// What must be called.
    pub tool_choice: ToolChoice,
    /// False: at most one call. `None` = the configuration's.
    pub parallel_tool_calls: Option<bool>,
    /// Extra variables of the chat template, over the configuration's.
    pub template_kwargs: Vec<(String, Value)>,
    /// The dialect that the caller expects; must be the entry's own, or `openai`.
    pub tool_parser: Option<String>,
    /// What form the answer must have.
    pub response_format: ResponseFormat,
    /// Tools that the provider itself carries out.
    pub hosted_tools: Vec<OpaqueItem>,
    /// What the client said that nobody here reads, for a service of the same format.
    pub passthrough: Option<Passthrough>,
    /// What sets the ids of calls that come without one apart from those of other turns
    /// ([`Request::call_id_salt`]); empty where the conversation is all there is.
    pub call_id_salt: String,
    /// See [`Request::session`].
    pub session: Option<String>,
}

impl CallOptions {
    /// Splits a `/generate` request into its messages and its call arguments.
    #[must_use]
    pub fn from_generate(request: GenerateRequest) -> (Vec<Message>, Self) {
        let mode = |on| {
            if on {
                TwoPassMode::On
            } else {
                TwoPassMode::Off
            }
        };
        let options = Self {
            two_pass: request.two_pass.map(mode),
            think_tag: request.think_tag,
            max_thinking_tokens: request.max_thinking_tokens,
            max_response_tokens: request.max_response_tokens,
            max_tokens: request.max_tokens,
            sampling: request.sampling,
            logprobs: request.logprobs,
            stop: (!request.stop.is_empty()).then_some(request.stop),
            tools: request.tools,
            tool_choice: request.tool_choice.unwrap_or_default(),
            parallel_tool_calls: request.parallel_tool_calls,
            template_kwargs: request.template_kwargs,
            response_format: request.response_format,
            tool_parser: request.tool_parser,
            session: request.user,
            passthrough: request.passthrough,
            ..Self::default()
        };
        (request.messages, options)
    }

    /// Splits a request of an outside format into its messages and its call arguments. How
    /// much to think, however it was spelt, becomes the budget; an effort word stays beside it
    /// for services that know words only.
    #[must_use]
    pub fn from_wire(wire: WireRequest) -> (Vec<Message>, Self) {
        let WireRequest {
            thinking,
            asks_for_several_calls,
            request,
            ..
        } = wire;
        let asked = match &thinking {
            core::Thinking::Default => Thinking::ByConfig,
            asked if asked.is_on() => Thinking::On,
            _ => Thinking::Off,
        };
        let options = Self {
            thinking: asked,
            max_thinking_tokens: match &thinking {
                // By configuration, where the word leaves it open.
                core::Thinking::On => None,
                other => other.budget().filter(|_| asked == Thinking::On),
            },
            max_tokens: match request.budget {
                TurnBudget::OnePass { max_tokens } => max_tokens,
                TurnBudget::TwoPass { .. } => None,
            },
            reasoning_effort: match thinking {
                core::Thinking::Effort(word) if asked == Thinking::On => Some(word),
                _ => None,
            },
            sampling: request.sampling,
            logprobs: request.logprobs,
            stop: (!request.stop.is_empty()).then_some(request.stop),
            tools: request.tools,
            tool_choice: request.tool_choice,
            // What only the format says is no wish of the caller's.
            parallel_tool_calls: (asks_for_several_calls || !request.parallel_tool_calls)
                .then_some(request.parallel_tool_calls),
            template_kwargs: request.template_kwargs,
            response_format: request.response_format,
            hosted_tools: request.hosted_tools,
            passthrough: request.passthrough,
            session: request.session,
            ..Self::default()
        };
        (request.messages, options)
    }
}

/// The checked request of one entry, with what its caller said, so that another entry can
/// take the turn over.
#[derive(Debug, Clone)]
pub struct Planned {
    /// In a box: a turn's futures hand it on from one to the next.
    request: Box<Request>,
    /// `None`: nobody can take over.
    said: Option<Box<CallOptions>>,
}

impl Planned {
    /// Plans a turn of this entry, see [`plan_request`].
    ///
    /// # Errors
    /// The same.
    pub fn new(
        config: &ProviderConfig,
        messages: Vec<Message>,
        options: CallOptions,
    ) -> Result<Self, BadRequest> {
        let has_fallback = !config.fallbacks.is_empty();
        let said = has_fallback.then(|| Box::new(options.clone()));
        let request = Box::new(plan_request(config, messages, options)?);
        Ok(Self { request, said })
    }

    /// The same turn as another entry plans it: what the caller said stays, what the first
    /// entry's configuration said is left behind.
    ///
    /// # Errors
    /// The other entry cannot carry it out.
    pub(crate) fn again(&self, config: &ProviderConfig) -> Result<Request, BadRequest> {
        let options = self.said.as_deref().cloned().unwrap_or_default();
        let request = Request::clone(&self.request);
        let planned = plan_request(config, request.messages, options)?;
        // What may have been changed since it was planned.
        let seed = request.sampling.seed.or(planned.sampling.seed);
        Ok(Request {
            sampling: Sampling {
                seed,
                ..planned.sampling
            },
            call_id_salt: request.call_id_salt,
            ..planned
        })
    }

    pub(crate) fn into_boxed(self) -> Box<Request> {
        self.request
    }

    /// The request alone.
    #[must_use]
    pub fn into_request(self) -> Request {
        *self.request
    }
}

impl Deref for Planned {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl DerefMut for Planned {
    fn deref_mut(&mut self) -> &mut Request {
        &mut self.request
    }
}

/// Makes the request that a backend carries out, and checks it.
///
/// # Errors
/// Names the parameter that no backend could carry out ([`Request::check`]), or a cap of 0.
pub fn plan_request(
    config: &ProviderConfig,
    messages: Vec<Message>,
    options: CallOptions,
) -> Result<Request, BadRequest> {
    check_dialect(config, options.tool_parser.as_deref())?;
    let budget = plan_budget(config, &options)?;
    let thinking = wanted_thinking(config, &options, budget);
    let mut template_kwargs = config.generation.template_kwargs.clone();
    for (name, value) in options.template_kwargs {
        template_kwargs.retain(|(known, _)| *known != name);
        template_kwargs.push((name, value));
    }
    let messages = match config.decisions.tool_result_role {
        Some(ToolResultRole::User) => {
            in_text(&messages, &[], &ToolChoice::Auto, &tool_prompt(config))
        }
        // As the wire or the template has it.
        Some(ToolResultRole::Tool) | None => messages,
    };
    let hosts_template = config.backend.continues_exactly();
    if options.thinking == Thinking::Off
        && hosts_template
        && !template_kwargs
            .iter()
            .any(|(name, _)| name == "enable_thinking")
    {
        template_kwargs.push(("enable_thinking".to_owned(), Value::Bool(false)));
    }
    // A turn that must call is one call unless several were asked for: a small model that may
    // go on repeats its call.
    let forced = options.tool_choice.forces_call();
    let parallel_tool_calls = options
        .parallel_tool_calls
        .unwrap_or(!config.decisions.single_tool_call_block && !forced);
    let mut request = Request {
        // Chat services get their own history, which their wire makes fit.
        messages: match hosts_template {
            true => replay(messages, config.replay_policy(), &reasoning_syntax(config)),
            false => messages,
        },
        tools: options.tools,
        tool_choice: options.tool_choice,
        parallel_tool_calls,
        budget,
        thinking,
        delivery: options.delivery,
        sampling: merge_sampling(options.sampling, config.generation.sampling),
        logprobs: options.logprobs,
        stop: options
            .stop
            .unwrap_or_else(|| config.generation.stop.clone()),
        template_kwargs,
        response_format: options.response_format,
        hosted_tools: options.hosted_tools,
        passthrough: options.passthrough,
        call_id_salt: options.call_id_salt,
        session: options.session,
    };
    request.check()?;
    if request.demands_form() {
        request.stop.clear();
    }
    Ok(request)
}

/// A dialect is a matter of the entry's model; a request may only confirm it (row F1).
/// `openai` leaves it to the service.
fn check_dialect(config: &ProviderConfig, asked: Option<&str>) -> Result<(), BadRequest> {
    let own = config.tool_parser.as_str();
    match asked {
        None | Some("openai") => Ok(()),
        Some(name) if name == own || own == "auto" || own == "openai" && name == "hermes" => Ok(()),
        Some(name) => Err(BadRequest::new(
            "tool_parser",
            format!("must be `{own}` (the provider's own) or `openai`, got `{name}`"),
        )),
    }
}

/// The think tags that an entry's texts are split by (row A3).
pub(crate) fn reasoning_syntax(config: &ProviderConfig) -> ReasoningSyntax {
    match config.parsing_format {
        ParsingFormat::ThinkTags if config.decisions.think_tags.is_empty() => {
            ReasoningSyntax::auto()
        }
        // The configuration's reader let known names pass only.
        ParsingFormat::ThinkTags => think_tags(&config.decisions.think_tags).unwrap_or_default(),
        ParsingFormat::DirectResponse => ReasoningSyntax::none(),
    }
}

/// What a service is told of thinking: the effort that was asked for, else the budget (which
/// two passes bring with them), else on or off. A budget that only the configuration names
/// counts where thinking was asked for.
fn wanted_thinking(
    config: &ProviderConfig,
    options: &CallOptions,
    budget: TurnBudget,
) -> core::Thinking {
    let effort = options.reasoning_effort.as_ref();
    let effort = effort.or(config.generation.reasoning_effort.as_ref());
    let configured = config.generation.max_thinking_tokens;
    let configured = configured.filter(|_| options.thinking == Thinking::On);
    let cap = options.max_thinking_tokens.or(configured);
    match (options.thinking, effort, cap) {
        (Thinking::Off, _, _) | (_, None, Some(0)) => core::Thinking::Off,
        (_, Some(word), _) => core::Thinking::from_effort(word),
        _ if matches!(budget, TurnBudget::TwoPass { .. }) => core::Thinking::Default,
        (_, None, Some(tokens)) => core::Thinking::Budget(tokens),
        (Thinking::On, None, None) => core::Thinking::On,
        (Thinking::ByConfig, None, None) => core::Thinking::Default,
    }
}

/// Resolves the caps of one turn.
///
/// # Errors
/// A cap of 0 where at least 1 is needed.
pub fn plan_budget(
    config: &ProviderConfig,
    options: &CallOptions,
) -> Result<TurnBudget, BadRequest> {
    for (name, cap) in [
        ("max_response_tokens", options.max_response_tokens),
        ("max_tokens", options.max_tokens),
    ] {
        if cap == Some(0) {
            return Err(BadRequest::new(name, "must be at least 1, got 0"));
        }
    }
    let generation = &config.generation;
    if !wants_two_passes(config, options) {
        // A cap that the call names wins over every configured one.
        let called = match (options.max_tokens, options.max_response_tokens) {
            (Some(total), Some(answer)) => Some(total.min(answer)),
            (total, answer) => total.or(answer),
        };
        let max_tokens = called
            .or(generation.max_tokens)
            .or(generation.max_response_tokens);
        return Ok(TurnBudget::OnePass {
            max_tokens: Some(max_tokens.unwrap_or(DEFAULT_RESPONSE_TOKENS)),
        });
    }
    let thinking = options
        .max_thinking_tokens
        .or(generation.max_thinking_tokens)
        .unwrap_or(DEFAULT_THINKING_TOKENS);
    let response = options
        .max_response_tokens
        .or(generation.max_response_tokens)
        .or(generation.max_tokens)
        .unwrap_or(DEFAULT_RESPONSE_TOKENS);
    let (thinking, response) = match options.max_tokens {
        None => (thinking, response),
        Some(total) => share_total(total, thinking, response),
    };
    // A chat service that is not to think is asked once; the engines close an empty block.
    if thinking == 0 && !config.backend.continues_exactly() {
        return Ok(TurnBudget::OnePass {
            max_tokens: Some(response),
        });
    }
    Ok(TurnBudget::TwoPass {
        tag: options.think_tag.unwrap_or(generation.think_tag),
        max_thinking_tokens: thinking,
        max_response_tokens: response,
    })
}

/// Row M10: the answer's reserve (half of the total, at most its own cap, at least 1) comes
/// out first, thinking gets what is left, and the answer gets the rest.
fn share_total(total: u32, thinking: u32, response: u32) -> (u32, u32) {
    let reserve = (total / 2).clamp(1, response.max(1));
    let thinking = thinking.min(total - reserve);
    (thinking, response.min(total - thinking))
}

/// The tags of these names (X9): rows of the table of reasoning dialects, `[THINK]` for the
/// one in brackets. `None`: a name is unknown.
pub(crate) fn think_tags(names: &[String]) -> Option<ReasoningSyntax> {
    let names = names.iter().map(|name| match name.as_str() {
        "[THINK]" => "think_bracket",
        name => name.trim_matches(['<', '>']),
    });
    let joined: Vec<_> = names.collect();
    ReasoningSyntax::from_name(&joined.join("+"))
}

fn wants_two_passes(config: &ProviderConfig, options: &CallOptions) -> bool {
    // Row A3: `direct_response` never looks for tags, whatever the two-pass keys say; a block
    // that nobody reads would be shown as the answer.
    if options.thinking == Thinking::Off || config.parsing_format == ParsingFormat::DirectResponse {
        return false;
    }
    let continues_exactly = config.backend.continues_exactly();
    let called = options.two_pass.filter(|mode| *mode != TwoPassMode::Auto);
    let on = config
        .backend
        .has_two_passes(called.unwrap_or(config.generation.two_pass));
    // Row B16 and X1: on chat services bound tools keep the native single pass.
    let tools_allow =
        options.tools.is_empty() || continues_exactly || config.decisions.two_pass_with_tools;
    on && tools_allow
}

/// A call's own sampling values over the configured ones.
fn merge_sampling(call: Sampling, config: Sampling) -> Sampling {
    Sampling {
        temperature: call.temperature.or(config.temperature),
        top_p: call.top_p.or(config.top_p),
        top_k: call.top_k.or(config.top_k),
        min_p: call.min_p.or(config.min_p),
        seed: call.seed.or(config.seed),
        presence_penalty: call.presence_penalty.or(config.presence_penalty),
        frequency_penalty: call.frequency_penalty.or(config.frequency_penalty),
        repeat_penalty: call.repeat_penalty.or(config.repeat_penalty),
    }
}

impl BackendKind {
    /// True if pass 2 continues the very tokens of pass 1, so that `two_pass: auto` is on.
    #[must_use]
    pub fn continues_exactly(self) -> bool {
        matches!(self, Self::Embedded | Self::VllmNative | Self::Completions)
    }

    /// Whether this mode means two passes.
    pub(crate) fn has_two_passes(self, mode: TwoPassMode) -> bool {
        match mode {
            TwoPassMode::On => true,
            TwoPassMode::Off => false,
            TwoPassMode::Auto => self.continues_exactly(),
        }
    }
}

#[cfg(test)]
mod tests {
    use twopass_wire::{anthropic_messages, openai_chat, openai_responses};

    use super::*;

    /// A demanded call is one call, unless the caller asks for several in so many words. Rows E6, M5.
    #[test]
    fn several_calls_are_the_callers_wish() {
        let chat = |more: &str| {
            let body =
                format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}]{more}}}"#);
            openai_chat::decode_request(body.as_bytes()).unwrap()
        };
        let responses = |more: &str| {
            let body = format!(r#"{{"model":"m","input":"Hi"{more}}}"#);
            openai_responses::decode_request(body.as_bytes()).unwrap()
        };
        let messages = |more: &str| {
            let body = format!(
                r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}],"tool_choice":{{"type":"any"{more}}}}}"#
            );
            anthropic_messages::decode_request(body.as_bytes()).unwrap()
        };
        let said = |wire: WireRequest| CallOptions::from_wire(wire).1.parallel_tool_calls;
        for (word, expect) in [("", None), ("true", Some(true)), ("false", Some(false))] {
            let more = match word {
                "" => String::new(),
                word => format!(r#","parallel_tool_calls":{word}"#),
            };
            assert_eq!(said(chat(&more)), expect, "{more}");
            assert_eq!(said(responses(&more)), expect, "{more}");
        }
        let off = |word: &str| format!(r#","disable_parallel_tool_use":{word}"#);
        assert_eq!(said(messages("")), None);
        assert_eq!(said(messages(&off("false"))), Some(true));
        assert_eq!(said(messages(&off("true"))), Some(false));
    }
}
