//! Agents and their tools as the configuration and the flags ask for them.

use std::sync::Arc;

use twopass_agent::{AgentOptions, Conversation, Kind, LoopOptions, Parts, Rules, open_memory};
use twopass_core::chat::Sampling;
use twopass_provider::config::{Environment, MemoryKind, OnInvalidCall};
use twopass_provider::{CallOptions, Config, Provider, Service};
use twopass_tools::mcp::{McpServer, McpTarget};
use twopass_tools::memory::Memory;
use twopass_tools::working_memory::Strategy;
use twopass_tools::{
    Policy, Sandbox, ToolContext, ToolRegistry, Workspace, base_registry, builtin,
};

use crate::args::{AgentFlags, AgentKindArg, MemoryStrategyArg, PolicyArg, Shared, thinking};
use crate::failure::{Failure, say};
use crate::setup;

/// An agent, and what has to stay as long as it works.
pub(crate) struct Assembled {
    pub(crate) conversation: Conversation,
    /// Tokens that the model may think per turn, if they are capped.
    pub(crate) max_thinking_tokens: Option<u32>,
    pub(crate) memory: Option<Memory>,
    pub(crate) servers: Vec<McpServer>,
}

/// Ends what agents used, and writes what memory still holds back.
pub(crate) async fn close(memory: Option<Memory>, servers: Vec<McpServer>) -> Result<(), Failure> {
    for server in servers {
        server.close().await;
    }
    match memory {
        Some(memory) => Ok(memory.flush().await?),
        None => Ok(()),
    }
}

/// Makes the agent that the flags describe. Calls that change something need consent unless a
/// flag says otherwise.
pub(crate) async fn assemble(shared: &Shared, flags: &AgentFlags) -> Result<Assembled, Failure> {
    let config = match flags.server {
        // The model is the server's then.
        Some(_) => setup::config(shared, None, None)?,
        None => setup::config(shared, flags.provider.clone(), flags.model.clone())?,
    };
    let (provider, context_tokens) = provider(&config, flags).await?;
    let sandbox = Sandbox::default();
    let memory = memory(config.agent.memory, &config).await?;
    let tools = registry(sandbox, memory.as_ref())?;
    tools.set_default_policy(flags.approve.map_or(Policy::Ask, policy));
    let servers = add_servers(&tools, &flags.mcp).await?;
    keep_only(&tools, flags.tools.as_deref())?;
    let workspace = flags.workspace.clone();
    let workspace = workspace.unwrap_or_else(|| config.agent.workspace.clone());
    let context = ToolContext::new(Workspace::open(workspace)?);
    let generation = &provider.config().generation;
    let max_thinking_tokens = flags.max_thinking_tokens.or(generation.max_thinking_tokens);
    let drop_invalid = provider.config().decisions.on_invalid_call == Some(OnInvalidCall::Drop);
    let options = AgentOptions {
        turns: LoopOptions {
            rules: Rules {
                max_steps: flags.max_rounds.unwrap_or(config.agent.max_rounds),
                force_required: !flags.require.is_empty(),
                required_steps: required(&tools, &flags.require)?,
                ..Rules::default()
            },
            context_tokens,
            drop_invalid_calls: drop_invalid,
            ..LoopOptions::default()
        },
        call: call_options(flags),
        instructions: None,
    };
    let parts = Parts {
        provider,
        tools: Arc::new(tools),
        context,
        options,
    };
    Ok(Assembled {
        conversation: Conversation::new(kind(flags), parts)?,
        max_thinking_tokens,
        memory,
        servers,
    })
}

/// The model, and how many tokens it takes where that is known.
async fn provider(config: &Config, flags: &AgentFlags) -> Result<(Provider, Option<u64>), Failure> {
    if let Some(url) = &flags.server {
        let environment = Environment::of_process();
        let service = Service::connect(url, flags.model.as_deref(), &environment).await?;
        return Ok((service.provider, service.model.context_tokens));
    }
    setup::pull_missing(config, &[config.provider(None)?]).await?;
    Ok((Provider::from_entry(config, None)?, None))
}

/// Opens the memory of this kind and says what keeps it from full use.
pub(crate) async fn memory(kind: MemoryKind, config: &Config) -> Result<Option<Memory>, Failure> {
    let memory = open_memory(kind, config, &Environment::of_process()).await?;
    if let Some(reason) = memory.as_ref().and_then(Memory::degradation) {
        say(&format!("warning: {reason}"));
    }
    Ok(memory)
}

/// The tools that every agent has, with those of memory if there is one.
pub(crate) fn registry(sandbox: Sandbox, memory: Option<&Memory>) -> Result<ToolRegistry, Failure> {
    if let Some(memory) = memory {
        return Ok(base_registry(sandbox, memory)?);
    }
    let tools = ToolRegistry::new();
    builtin::register(&tools, sandbox)?;
    Ok(tools)
}

/// Adds the tools of MCP servers, which must stay as long as their tools.
pub(crate) async fn add_servers(
    registry: &ToolRegistry,
    texts: &[String],
) -> Result<Vec<McpServer>, Failure> {
    let mut servers = Vec::new();
    for text in texts {
        let named = text.split_once('=');
        let target = named.and_then(|(name, text)| Some((name, McpTarget::from_text(text)?)));
        let Some((name, target)) = target else {
            let message = format!("--mcp: `{text}` is not NAME=COMMAND or NAME=URL");
            return Err(Failure::new(message).with_param("--mcp"));
        };
        let server = McpServer::connect(name, &target).await?;
        for left_out in server.register(registry).await?.left_out {
            say(&format!("warning: {left_out}"));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// Takes away all tools but these.
fn keep_only(registry: &ToolRegistry, names: Option<&[String]>) -> Result<(), Failure> {
    let Some(names) = names else {
        return Ok(());
    };
    let known: Vec<String> = registry.specs().into_iter().map(|spec| spec.name).collect();
    let names: Vec<&str> = names.iter().map(|name| name.trim()).collect();
    let is_none = names == ["none"];
    if let Some(unknown) = names
        .iter()
        .find(|name| !is_none && !known.iter().any(|known| known == *name))
    {
        let message = format!("no tool is called `{unknown}`, known: {}", known.join(", "));
        return Err(Failure::new(message).with_param("--tools"));
    }
    for name in known {
        if is_none || !names.contains(&name.as_str()) {
            registry.remove(&name);
        }
    }
    Ok(())
}

/// The tools that must be called, each of which there is.
fn required(registry: &ToolRegistry, names: &[String]) -> Result<Vec<String>, Failure> {
    let names = names.iter().map(|name| name.trim().to_owned());
    let names: Vec<String> = names.collect();
    match names.iter().find(|name| registry.get(name).is_none()) {
        None => Ok(names),
        Some(unknown) => {
            let known: Vec<String> = registry.specs().into_iter().map(|spec| spec.name).collect();
            let message = format!("no tool is called `{unknown}`, known: {}", known.join(", "));
            Err(Failure::new(message).with_param("--require"))
        }
    }
}

fn call_options(flags: &AgentFlags) -> CallOptions {
    CallOptions {
        thinking: thinking(flags.thinking, flags.no_thinking),
        max_thinking_tokens: flags.max_thinking_tokens,
        max_response_tokens: flags.max_response_tokens,
        sampling: Sampling {
            seed: flags.seed,
            temperature: flags.temperature,
            ..Sampling::default()
        },
        ..CallOptions::default()
    }
}

fn kind(flags: &AgentFlags) -> Kind {
    match flags.kind {
        AgentKindArg::Vanilla => Kind::Vanilla,
        AgentKindArg::React => Kind::React(strategy(flags.memory)),
        AgentKindArg::Workflow => Kind::Workflow(strategy(flags.memory)),
        AgentKindArg::PrivateCot => Kind::PrivateCot,
    }
}

pub(crate) fn strategy(arg: MemoryStrategyArg) -> Strategy {
    match arg {
        MemoryStrategyArg::Overwrite => Strategy::Overwrite,
        MemoryStrategyArg::PatchAndReplace => Strategy::PatchAndReplace,
        MemoryStrategyArg::AppendAndDelete => Strategy::AppendAndDelete,
        MemoryStrategyArg::Update => Strategy::Update,
    }
}

fn policy(arg: PolicyArg) -> Policy {
    match arg {
        PolicyArg::Ask => Policy::Ask,
        PolicyArg::Auto => Policy::Auto,
        PolicyArg::ReadOnly => Policy::ReadOnly,
        PolicyArg::Never => Policy::Never,
    }
}
