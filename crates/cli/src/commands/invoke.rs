use std::process::ExitCode;

use serde_json::{Value, json};
use twopass_core::chat::{Event, Reply, Sampling, StopReason, ThinkTag};
use twopass_provider::config::TwoPassMode;
use twopass_provider::{CallOptions, ErrorKind, Provider, TurnItem};
use twopass_wire::generate::encode_reply;

use crate::args::{InvokeArgs, Shared, ThinkTagArg, TwoPassArg, thinking};
use crate::failure::{Failure, exit_code, one_line, say, warn};
use crate::input::{self, Sources};
use crate::{output, setup};

/// Runs one turn. Exit code 1: the turn has neither an answer nor a valid call.
pub(crate) async fn run(shared: &Shared, args: InvokeArgs) -> Result<ExitCode, Failure> {
    let conversation = input::read(Sources {
        messages: args.messages.as_deref(),
        tools: args.tools.as_deref(),
        tool_choice: args.tool_choice.as_deref(),
        prompt: args.prompt.as_deref(),
    })?;
    let mut options = options(&args);
    options.tools = conversation.tools;
    options.tool_choice = conversation.tool_choice;
    let config = setup::config(shared, args.provider, args.model)?;
    let entry = config.provider(None)?;
    // What is wrong with the request shows before a model is fetched or loaded.
    let provisional =
        twopass_provider::plan::plan_request(entry, conversation.messages.clone(), options.clone());
    provisional?;
    setup::pull_missing(&config, &[entry]).await?;
    let provider = Provider::from_entry(&config, None)?;
    let request = provider.request(conversation.messages, options.clone())?;
    let mut stream = provider.stream(request).await?;
    let mut printer = Printer::new(shared.json, args.stream);
    let mut done = None;
    while let Some(item) = stream.next().await {
        match item.map_err(|error| error.with_provider(provider.name()))? {
            TurnItem::Event(event) => printer.event(&event)?,
            TurnItem::Done(reply) => done = Some(*reply),
        }
    }
    let reply = done.ok_or_else(|| {
        let message = "the turn ended without its end";
        Failure::of(ErrorKind::Internal, message)
    })?;
    let content = provider
        .client()
        .with_options(options)
        .message(reply.clone())
        .content;
    printer.done(&reply, &content)?;
    warn(&provider);
    Ok(exit_code(&reply))
}

fn options(args: &InvokeArgs) -> CallOptions {
    CallOptions {
        thinking: thinking(args.thinking, args.no_thinking),
        two_pass: args.two_pass.map(|mode| match mode {
            TwoPassArg::Auto => TwoPassMode::Auto,
            TwoPassArg::On => TwoPassMode::On,
            TwoPassArg::Off => TwoPassMode::Off,
        }),
        think_tag: args.think_tag.map(|tag| match tag {
            ThinkTagArg::Think => ThinkTag::Think,
            ThinkTagArg::Thinking => ThinkTag::Thinking,
        }),
        max_thinking_tokens: args.max_thinking_tokens,
        max_response_tokens: args.max_response_tokens,
        sampling: Sampling {
            seed: args.seed,
            temperature: args.temperature,
            ..Sampling::default()
        },
        ..CallOptions::default()
    }
}

/// Shows a turn: reasoning on stderr, the answer and calls on stdout, or JSON on stdout.
struct Printer {
    json: bool,
    stream: bool,
    /// Something of this kind was printed and its line is open.
    in_reasoning: bool,
    in_text: bool,
}

impl Printer {
    fn new(json: bool, stream: bool) -> Self {
        Self {
            json,
            stream,
            in_reasoning: false,
            in_text: false,
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        if !self.stream {
            return Ok(());
        }
        match event {
            Event::ReasoningDelta(text) if self.json => {
                self.json_event("thinking", &json!({"text": text}))
            }
            Event::TextDelta(text) if self.json => self.json_event("text", &json!({"text": text})),
            Event::Reclassified if self.json => self.json_event("reclassified", &json!({})),
            Event::CallFinished { call, .. } if self.json => {
                let arguments: Value = Value::Object(call.arguments.as_object().clone());
                self.json_event(
                    "tool_call",
                    &json!({"id": call.id, "name": call.name, "arguments": arguments}),
                )
            }
            Event::ReasoningDelta(text) => {
                self.in_reasoning = true;
                output::reasoning(text);
                Ok(())
            }
            Event::Reclassified => {
                say("\nnote: the text so far was reasoning");
                Ok(())
            }
            Event::TextDelta(text) => {
                if std::mem::take(&mut self.in_reasoning) {
                    say("");
                }
                self.in_text = true;
                output::piece(text)
            }
            _ => Ok(()),
        }
    }

    fn json_event(&self, name: &str, data: &Value) -> Result<(), Failure> {
        let mut object = json!({"event": name});
        if let (Some(object), Some(data)) = (object.as_object_mut(), data.as_object()) {
            object.extend(data.clone());
        }
        output::line(&object.to_string())
    }

    fn done(&mut self, reply: &Reply, content: &str) -> Result<(), Failure> {
        if self.json {
            let content = Value::from(content);
            let head = if self.stream {
                "\"event\":\"done\","
            } else {
                ""
            };
            let body = encode_reply(reply);
            return output::line(&format!("{{{head}\"content\":{content},{}", &body[1..]));
        }
        if std::mem::take(&mut self.in_reasoning) {
            say("");
        }
        if !self.stream {
            if !reply.reasoning.is_empty() {
                output::reasoning(&reply.reasoning);
                say("");
            }
            if !reply.content.is_empty() {
                output::line(&reply.content)?;
            }
        } else if self.in_text {
            output::line("")?;
        }
        for call in &reply.tool_calls {
            output::line(&format!(
                "{} {} {}",
                call.id,
                call.name,
                call.arguments.as_text()
            ))?;
        }
        for call in &reply.invalid_tool_calls {
            let name = call.name.as_deref().unwrap_or("(no name)");
            let kind = call.kind.as_str();
            say(&one_line(&format!(
                "invalid call: {name}: {kind}: {}",
                call.message
            )));
        }
        for diagnostic in &reply.diagnostics {
            say(&format!("note: {}", diagnostic.message));
        }
        if reply.reasoning_truncated {
            say("note: the thinking budget cut the thought");
        }
        if reply.answer_missing() {
            say("note: the turn ended without an answer");
        } else if reply.stop_reason == StopReason::Length {
            say("note: the cap cut the answer, --max-response-tokens raises it");
        }
        Ok(())
    }
}
