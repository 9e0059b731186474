use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use twopass_core::chat::{BadRequest, Message, Request, Role, ToolChoice, ToolSpec};
use twopass_core::chat_template::Piece;
use twopass_core::tool_prompt::{ToolPromptOptions, with_tools};
use twopass_provider::ErrorKind;
use twopass_tools::mcp::{McpServer, serve_stdio};
use twopass_tools::memory::Memory;
use twopass_tools::working_memory::WorkingMemory;
use twopass_tools::{
    Policy, Sandbox, ToolContext, ToolRegistry, Workspace, base_registry, lint, to_markdown,
};
use twopass_wire::facts::WireFacts;
use twopass_wire::{Encoded, WireRequest, anthropic_messages, openai_chat, openai_responses};

use crate::args::{Shared, ToolStyleArg, ToolsArgs};
use crate::failure::{Failure, NEGATIVE, say};
use crate::{agents, output, setup};

/// Prints the tools, or serves them. Exit code 1: `--lint` has something to say.
pub(crate) async fn run(shared: &Shared, args: ToolsArgs) -> Result<ExitCode, Failure> {
    if args.serve_mcp {
        serve(shared, args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let registry = base_registry(Sandbox::default(), &Memory::in_process(None)?)?;
    let servers = add_tools(&registry, &args).await?;
    let specs = registry.specs();
    let code = if args.lint {
        print_lint(&specs, shared.json)?
    } else {
        match args.style {
            Some(style) => print_style(style, &specs, shared.json)?,
            None => print_list(&registry, shared.json)?,
        }
        ExitCode::SUCCESS
    };
    for server in servers {
        server.close().await;
    }
    Ok(code)
}

/// Offers the tools until stdin ends. Nobody can be asked here: whoever uses them asks.
async fn serve(shared: &Shared, args: ToolsArgs) -> Result<(), Failure> {
    let config = setup::config(shared, None, None)?;
    let sandbox = Sandbox::default();
    for lack in sandbox.degradations() {
        say(&format!("warning: {lack}"));
    }
    let memory = agents::memory(config.agent.memory, &config).await?;
    let registry = Arc::new(agents::registry(sandbox, memory.as_ref())?);
    registry.set_default_policy(Policy::Auto);
    let servers = add_tools(&registry, &args).await?;
    let workspace = args.workspace.unwrap_or(config.agent.workspace);
    let context = ToolContext::new(Workspace::open(workspace)?);
    serve_stdio(registry, context).await?;
    agents::close(memory, servers).await
}

/// Adds what the flags name. The servers must stay as long as their tools.
async fn add_tools(registry: &ToolRegistry, args: &ToolsArgs) -> Result<Vec<McpServer>, Failure> {
    if let Some(strategy) = args.memory {
        WorkingMemory::default().register(registry, agents::strategy(strategy))?;
    }
    agents::add_servers(registry, &args.mcp).await
}

fn print_list(registry: &ToolRegistry, as_json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for spec in registry.specs() {
        let effect = registry
            .get(&spec.name)
            .map_or("", |tool| tool.effect().as_str());
        if as_json {
            let listed = json!({
                "name": spec.name,
                "effect": effect,
                "description": spec.description,
                "parameters": spec.parameters,
            });
            output::line(&listed.to_string())?;
        } else {
            let first = spec
                .description
                .split_inclusive(". ")
                .next()
                .unwrap_or_default();
            let first = first.trim_end_matches(['.', ' ']).to_owned();
            rows.push(vec![spec.name, effect.to_owned(), first]);
        }
    }
    if as_json {
        return Ok(());
    }
    output::line(&output::table_within(100, &rows))
}

fn print_style(style: ToolStyleArg, specs: &[ToolSpec], as_json: bool) -> Result<(), Failure> {
    let text = match style {
        ToolStyleArg::Openai => {
            let wire = (openai_chat::encode_request as Encode, WireFacts::CHAT);
            return print_tools(wire, specs, as_json);
        }
        ToolStyleArg::Responses => {
            let wire = (
                openai_responses::encode_request as Encode,
                WireFacts::RESPONSES,
            );
            return print_tools(wire, specs, as_json);
        }
        ToolStyleArg::Anthropic => {
            let wire = (
                anthropic_messages::encode_request as Encode,
                WireFacts::ANTHROPIC,
            );
            return print_tools(wire, specs, as_json);
        }
        ToolStyleArg::Hermes => hermes(specs),
        ToolStyleArg::Markdown => to_markdown(specs),
    };
    if as_json {
        output::line(&json!({ "text": text }).to_string())
    } else {
        output::line(text.trim_end())
    }
}

type Encode = fn(&WireRequest, &WireFacts) -> Result<Encoded, BadRequest>;

/// Prints the tools of a request as the wire sends it.
fn print_tools(
    (encode, facts): (Encode, WireFacts),
    specs: &[ToolSpec],
    as_json: bool,
) -> Result<(), Failure> {
    let mut request = Request::new(vec![Message::text(Role::User, "hello")]);
    request.tools = specs.to_vec();
    let encoded = encode(&WireRequest::new("any", request), &facts)?;
    let unreadable = |error: serde_json::Error| Failure::of(ErrorKind::Internal, error.to_string());
    let mut body: Value = serde_json::from_str(&encoded.body).map_err(unreadable)?;
    let tools = body["tools"].take();
    let text = if as_json {
        tools.to_string()
    } else {
        serde_json::to_string_pretty(&tools).map_err(unreadable)?
    };
    output::line(&text)
}

/// The system text that a model without a tool template gets.
fn hermes(specs: &[ToolSpec]) -> String {
    let options = ToolPromptOptions::default();
    let messages = with_tools(&[], specs, &ToolChoice::Auto, &options);
    let pieces = messages.into_iter().flat_map(|message| message.content);
    pieces
        .map(|piece| match piece {
            Piece::Trusted(text) | Piece::Untrusted(text) => text,
        })
        .collect()
}

fn print_lint(specs: &[ToolSpec], as_json: bool) -> Result<ExitCode, Failure> {
    let mut n_findings = 0;
    for spec in specs {
        for finding in lint(spec) {
            n_findings += 1;
            let line = if as_json {
                json!({"name": spec.name, "finding": finding}).to_string()
            } else {
                format!("{}: {finding}", spec.name)
            };
            output::line(&line)?;
        }
    }
    if n_findings > 0 {
        return Ok(ExitCode::from(NEGATIVE));
    }
    if !as_json {
        output::line(&format!("{} tools, nothing to say", specs.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}
