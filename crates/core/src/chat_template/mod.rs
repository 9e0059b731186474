//! Chat templates: messages in, a prompt out, ending at the assistant boundary.
//!
//! A template is a model's own Jinja source. What it prints is trusted: its control tokens
//! are control tokens. What the messages hold is not: every control string in them is
//! replaced by a placeholder before rendering and comes back as a [`Segment::Literal`]
//! (row M6). The template still sees all the other text, so one that inspects the content
//! works as it should.

mod boundary;
mod jinja;
mod mask;

use std::fmt;

use minijinja::value::Value as JinjaValue;
use minijinja::{Environment, context};
use serde_json::{Map, Value, json};

use crate::chat::{Arguments, Message, Role, ThinkTag, ToolCall, ToolSpec};

pub use crate::text::to_python_json;
pub use boundary::{Boundary, ThinkFraming};
pub use mask::ControlStrings;

use mask::Mask;

/// One run of prompt text, with how it may be tokenised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text of the template, or text that holds no control token: tokenised with control
    /// tokens recognised.
    Markup(String),
    /// Text from a user, a tool or a file that spells a control token: tokenised as plain
    /// characters, so that it can never act as one (row M6). Some tokenizers recognise a
    /// few control strings always; cut the text after its first character to be safe.
    Literal(String),
}

/// A rendered prompt, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// The runs. No two neighbours are both markup.
    pub segments: Vec<Segment>,
}

impl Prompt {
    /// The prompt as one text for an engine that takes no token ids: control strings from
    /// untrusted text are broken by a zero-width space after their first character.
    #[must_use]
    pub fn to_safe_text(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Markup(run) => text.push_str(run),
                Segment::Literal(run) => {
                    let mut chars = run.chars();
                    text.extend(chars.next());
                    text.push('\u{200B}');
                    text.push_str(chars.as_str());
                }
            }
        }
        text
    }

    /// Appends trusted text.
    pub fn push_markup(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.segments.last_mut() {
            Some(Segment::Markup(run)) => run.push_str(text),
            _ => self.segments.push(Segment::Markup(text.to_owned())),
        }
    }
}

/// One piece of a template message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text that we wrote, such as a tool preamble: may hold markup.
    Trusted(String),
    /// Text from anybody else.
    Untrusted(String),
}

/// A message as a template sees it, with the trusted and untrusted parts of its content
/// told apart.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateMessage {
    /// The message; its `content` is not used.
    pub head: Message,
    /// The content, in order.
    pub content: Vec<Piece>,
}

impl TemplateMessage {
    /// A message whose whole content is untrusted.
    #[must_use]
    pub fn untrusted(message: &Message) -> Self {
        Self {
            content: vec![Piece::Untrusted(message.content_text())],
            head: message.clone(),
        }
    }
}

/// Variables that the rendering sets itself; extra variables of these names are left out.
pub const RESERVED: [&str; 6] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "strftime_now",
];

/// What a template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The conversation.
    pub messages: &'a [TemplateMessage],
    /// Tools for the template's own tool section; empty where a dialect wrote its preamble.
    pub tools: &'a [ToolSpec],
    /// Extra variables, such as `enable_thinking`.
    pub kwargs: &'a [(String, Value)],
    /// Strings that act as control tokens, which untrusted text may not.
    pub control: &'a ControlStrings,
    /// Seconds since 1970 for `strftime_now`; without it the function is undefined and
    /// templates take their built-in date.
    pub now_unix_s: Option<i64>,
}

impl<'a> RenderInput<'a> {
    /// These messages, without tools, extra variables or a clock.
    #[must_use]
    pub fn plain(messages: &'a [TemplateMessage], control: &'a ControlStrings) -> Self {
        Self {
            messages,
            tools: &[],
            kwargs: &[],
            control,
            now_unix_s: None,
        }
    }
}

/// A compiled chat template.
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
    /// What the template wants as the content of a turn that is calls only.
    empty_content: Value,
}

/// A template that does not compile or does not render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chat template: {}", self.message)
    }
}

impl std::error::Error for TemplateError {}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            message = format!("{message}: {inner}");
            source = inner.source();
        }
        Self { message }
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source_bytes", &self.source.len())
            .finish_non_exhaustive()
    }
}

/// The template of models whose file has none: `ChatML`, which most small models know.
pub const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the model's begin and end
    /// tokens (`""` where it has none).
    ///
    /// # Errors
    /// The source is not valid Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut env = jinja::environment();
        env.add_template_owned("chat", jinja::without_generation_tags(source))?;
        let mut template = Self {
            env,
            source: source.to_owned(),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            empty_content: json!(""),
        };
        // Some templates (DeepSeek-R1's) print calls only if the content is null; others
        // (Qwen3's) fail on null.
        if template.writes_tools() && !template.shows_calls() {
            template.empty_content = Value::Null;
            if !template.shows_calls() {
                template.empty_content = json!("");
            }
        }
        Ok(template)
    }

    /// True if a turn of calls only comes out with its call.
    fn shows_calls(&self) -> bool {
        let user = TemplateMessage::untrusted(&Message::text(Role::User, "q"));
        let mut turn = TemplateMessage::untrusted(&Message::text(Role::Assistant, ""));
        turn.head.tool_calls.push(ToolCall {
            id: "call_1".to_owned(),
            name: boundary::PROBE_ANSWER.to_owned(),
            arguments: Arguments::from_object(Map::new()),
        });
        let control = ControlStrings::default();
        let messages = [user, turn];
        let input = RenderInput::plain(&messages, &control);
        self.render_masked(&Mask::new(&input), &input, false)
            .is_ok_and(|text| text.contains(boundary::PROBE_ANSWER))
    }

    /// The Jinja source.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// True if the template writes a tool section of its own. One that does not would drop
    /// tools and calls silently, so a dialect writes them for it.
    #[must_use]
    pub fn writes_tools(&self) -> bool {
        self.source.contains("tools") && self.source.contains("tool_call")
    }

    /// Renders up to the assistant boundary and reads how the prompt ends there.
    ///
    /// # Errors
    /// The template raises an exception (many refuse unusual role orders) or needs what
    /// Jinja here does not have.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<(Prompt, Boundary), TemplateError> {
        let mask = Mask::new(input);
        let with_boundary = self.render_masked(&mask, input, true)?;
        let without = self.render_masked(&mask, input, false)?;
        let boundary = Boundary::read(&without, &with_boundary);
        Ok((mask.unmask(&with_boundary), boundary))
    }

    /// How this template frames a thought in the assistant's turn, found by rendering a
    /// turn that has one. `None` if the template drops reasoning.
    #[must_use]
    pub fn think_framing(&self) -> Option<ThinkFraming> {
        let user = TemplateMessage::untrusted(&Message::text(Role::User, "q"));
        let mut answer =
            TemplateMessage::untrusted(&Message::text(Role::Assistant, boundary::PROBE_ANSWER));
        answer.head.reasoning = Some(boundary::PROBE_REASONING.to_owned());
        let control = ControlStrings::default();
        let messages = [user, answer];
        let input = RenderInput::plain(&messages, &control);
        let text = self.render_masked(&Mask::new(&input), &input, false).ok()?;
        ThinkFraming::read(&text)
    }

    fn message_value(&self, mask: &Mask, message: &TemplateMessage) -> Value {
        let head = &message.head;
        let mut content = String::new();
        for piece in &message.content {
            match piece {
                Piece::Trusted(text) => content.push_str(text),
                Piece::Untrusted(text) => content.push_str(&mask.text(text)),
            }
        }
        let mut value = Map::new();
        value.insert("role".to_owned(), json!(head.role.as_str()));
        let content = if content.is_empty() && !head.tool_calls.is_empty() {
            self.empty_content.clone()
        } else {
            Value::String(content)
        };
        value.insert("content".to_owned(), content);
        if let Some(name) = &head.name {
            value.insert("name".to_owned(), json!(mask.text(name)));
        }
        if let Some(reasoning) = &head.reasoning {
            value.insert("reasoning_content".to_owned(), json!(mask.text(reasoning)));
        }
        if !head.tool_calls.is_empty() {
            let calls = head.tool_calls.iter().map(|call| {
                let arguments = mask.value(&Value::Object(call.arguments.as_object().clone()));
                json!({
                    "id": mask.text(&call.id),
                    "type": "function",
                    "function": {"name": mask.text(&call.name), "arguments": arguments},
                })
            });
            value.insert("tool_calls".to_owned(), Value::Array(calls.collect()));
        }
        if let Some(id) = &head.tool_call_id {
            value.insert("tool_call_id".to_owned(), json!(mask.text(id)));
        }
        Value::Object(value)
    }

    fn render_masked(
        &self,
        mask: &Mask,
        input: &RenderInput<'_>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let messages: Vec<Value> = input
            .messages
            .iter()
            .map(|message| self.message_value(mask, message))
            .collect();
        let tools: Vec<Value> = input
            .tools
            .iter()
            .map(|tool| tool_value(mask, tool))
            .collect();
        let mut variables = Map::new();
        for (name, value) in input.kwargs {
            if !RESERVED.contains(&name.as_str()) {
                variables.insert(name.clone(), mask.value(value));
            }
        }
        variables.insert("messages".to_owned(), Value::Array(messages));
        if !tools.is_empty() {
            variables.insert("tools".to_owned(), Value::Array(tools));
        }
        variables.insert(
            "add_generation_prompt".to_owned(),
            Value::Bool(add_generation_prompt),
        );
        variables.insert("bos_token".to_owned(), json!(self.bos));
        variables.insert("eos_token".to_owned(), json!(self.eos));
        let clock = input.now_unix_s.map_or_else(
            || JinjaValue::UNDEFINED,
            |now| JinjaValue::from_function(move |format: &str| jinja::strftime(now, format)),
        );
        let variables = JinjaValue::from_serialize(&variables);
        let context = context! { strftime_now => clock, ..variables };
        Ok(self.env.get_template("chat")?.render(context)?)
    }
}

fn tool_value(mask: &Mask, tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": mask.text(&tool.name),
            "description": mask.text(&tool.description),
            "parameters": mask.value(&tool.parameters),
        },
    })
}

/// The think tag that opens at the very end of this text, if one does.
fn open_tag_at_end(text: &str) -> Option<ThinkTag> {
    let end = text.trim_end();
    [ThinkTag::Think, ThinkTag::Thinking]
        .into_iter()
        .find(|tag| end.ends_with(tag.open()))
}

#[cfg(test)]
mod tests;
