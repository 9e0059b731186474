use serde_json::{Map, Value, json};
use twopass_core::chat::{Diagnostic, Request, ToolChoice, ToolSpec, WireFormat};

use crate::facts::{RepeatPenaltyField, ThinkingField, WireFacts};
use crate::history::not_sent;
use crate::json::{Object, decimal};
use crate::request::{Thinking, WireRequest};

/// A request body while it is written. The caller's extra fields win over ours.
pub(crate) struct Body<'r> {
    object: Object,
    extra: &'r [(String, String)],
    /// The client's further fields; ours win over them.
    passed: Vec<&'r (String, String)>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl<'r> Body<'r> {
    pub(crate) fn new(extra: &'r [(String, String)]) -> Self {
        Self {
            object: Object::default(),
            extra,
            passed: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// The body of a chat request in this format.
    pub(crate) fn of(request: &'r WireRequest, format: WireFormat) -> Self {
        let mut body = Self::new(&request.extra);
        if let Some(passed) = &request.request.passthrough {
            if passed.format == format {
                let is_free = |(name, _): &&(String, String)| !body.is_extra(name);
                body.passed = passed.fields.iter().filter(is_free).collect();
            } else {
                let notes = passed.fields.iter().map(|(name, _)| {
                    not_sent(name, "the endpoint is of another format than the client")
                });
                body.diagnostics.extend(notes);
            }
        }
        body
    }

    fn is_extra(&self, name: &str) -> bool {
        self.extra.iter().any(|(known, _)| known == name)
    }

    /// True if a field of ours goes into the body: the caller did not set it.
    fn takes(&mut self, name: &str) -> bool {
        self.passed.retain(|(known, _)| known != name);
        !self.is_extra(name)
    }

    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        if self.takes(name) {
            self.object.raw(name, json);
        }
    }

    /// These JSON texts as an array.
    pub(crate) fn list(&mut self, name: &str, items: &[String]) {
        if self.takes(name) {
            self.object.list(name, items);
        }
    }

    pub(crate) fn value(&mut self, name: &str, value: &Value) {
        self.raw(name, &value.to_string());
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.value(name, &text.into());
    }

    pub(crate) fn maybe(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.value(name, &value);
        }
    }

    /// Writes the field if the endpoint takes it, else says that it was not sent.
    pub(crate) fn if_taken(&mut self, takes: bool, name: &str, value: Option<Value>) {
        if takes {
            self.maybe(name, value);
        } else if value.is_some() {
            self.diagnostics
                .push(not_sent(name, "the endpoint does not take it"));
        }
    }

    /// The text of the body; extra fields that are not JSON are left out.
    pub(crate) fn finish(mut self) -> (String, Vec<Diagnostic>) {
        for (name, json) in self.extra.iter().chain(self.passed) {
            match serde_json::from_str::<&serde_json::value::RawValue>(json) {
                Ok(json) => self.object.raw(name, json.get()),
                Err(_) => self.diagnostics.push(not_sent(name, "it is not JSON")),
            }
        }
        (self.object.finish(), self.diagnostics)
    }

    /// Temperature, nucleus, penalties, seed: what most formats spell alike.
    pub(crate) fn sampling(&mut self, request: &Request, facts: &WireFacts) {
        let s = &request.sampling;
        self.if_taken(facts.temperature, "temperature", s.temperature.map(decimal));
        self.if_taken(facts.temperature, "top_p", s.top_p.map(decimal));
        self.if_taken(facts.top_k, "top_k", s.top_k.map(Value::from));
        self.if_taken(facts.min_p, "min_p", s.min_p.map(decimal));
        self.if_taken(facts.seed, "seed", s.seed.map(Value::from));
        self.if_taken(
            facts.penalties,
            "presence_penalty",
            s.presence_penalty.map(decimal),
        );
        self.if_taken(
            facts.penalties,
            "frequency_penalty",
            s.frequency_penalty.map(decimal),
        );
        let field = facts.repeat_penalty_field.map(RepeatPenaltyField::as_str);
        self.if_taken(
            field.is_some(),
            field.unwrap_or("repeat_penalty"),
            s.repeat_penalty.map(decimal),
        );
    }

    /// The probabilities asked for.
    pub(crate) fn logprobs(&mut self, n_top: Option<u32>) {
        self.maybe("logprobs", n_top.map(|_| true.into()));
        let n_top = n_top.filter(|n_top| *n_top > 0);
        self.maybe("top_logprobs", n_top.map(Value::from));
    }

    /// The thinking asked for and the chat template's variables, which some endpoints use
    /// for it.
    pub(crate) fn thinking(&mut self, request: &WireRequest, facts: &WireFacts) {
        let thinking = request.thinking();
        let mut kwargs: Map<_, _> = request.request.template_kwargs.iter().cloned().collect();
        let mut switch = |on: bool| {
            kwargs.entry("enable_thinking").or_insert(on.into());
        };
        match facts.thinking {
            ThinkingField::ReasoningEffort => {
                self.maybe("reasoning_effort", thinking.effort().map(Value::from));
            }
            ThinkingField::ReasoningObject => {
                self.maybe("reasoning", reasoning_object(&thinking));
            }
            ThinkingField::ThinkingTokenBudget => match &thinking {
                Thinking::Default => {}
                Thinking::Off => switch(false),
                Thinking::On => switch(true),
                Thinking::Budget(tokens) => self.value("thinking_token_budget", &(*tokens).into()),
                Thinking::Effort(word) => self.text("reasoning_effort", word),
            },
            ThinkingField::TemplateKwarg => match &thinking {
                Thinking::Default => {}
                other => switch(other.is_on()),
            },
            ThinkingField::OllamaThink => match &thinking {
                Thinking::Default => {}
                Thinking::Effort(word) if word != "none" => self.text("think", word),
                other => self.value("think", &other.is_on().into()),
            },
            ThinkingField::Switch if thinking == Thinking::Default => {}
            ThinkingField::Switch => {
                let state = match thinking.is_on() {
                    true => "enabled",
                    false => "disabled",
                };
                self.value("thinking", &json!({"type": state}));
                if thinking.is_on() && thinking != Thinking::On {
                    self.maybe("reasoning_effort", thinking.effort().map(Value::from));
                }
            }
            ThinkingField::AnthropicThinking => {
                // Chat Completions servers that took over Anthropic's field.
                match thinking.budget() {
                    Some(budget) if thinking.is_on() => self.value(
                        "thinking",
                        &json!({"type": "enabled", "budget_tokens": budget}),
                    ),
                    _ if thinking == Thinking::Default => {}
                    _ => self.value("thinking", &json!({"type": "disabled"})),
                }
            }
            ThinkingField::None => {
                if thinking.is_on() {
                    self.diagnostics
                        .push(not_sent("thinking", "the endpoint has no field for it"));
                }
            }
        }
        let kwargs = (!kwargs.is_empty()).then_some(Value::Object(kwargs));
        self.if_taken(facts.template_kwargs, "chat_template_kwargs", kwargs);
    }
}

fn reasoning_object(thinking: &Thinking) -> Option<Value> {
    Some(match thinking {
        Thinking::Default => return None,
        Thinking::Off | Thinking::Budget(0) => json!({"enabled": false}),
        Thinking::On => json!({"enabled": true}),
        Thinking::Budget(tokens) => json!({"max_tokens": tokens}),
        Thinking::Effort(word) => json!({"effort": word}),
    })
}

/// The tools that are sent: all, or the only one that may be called. A choice "a reply or
/// this tool" has no word of its own on outside wires, so only that tool is offered.
pub(crate) fn offered<'t>(
    tools: &'t [ToolSpec],
    choice: &ToolChoice,
    wire_name: impl Fn(&str) -> String,
) -> Vec<&'t ToolSpec> {
    match choice {
        ToolChoice::Only(name) => {
            let name = wire_name(name);
            tools.iter().filter(|tool| tool.name == name).collect()
        }
        _ => tools.iter().collect(),
    }
}
