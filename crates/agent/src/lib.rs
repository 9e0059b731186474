//! Agents: a model that calls tools until it has an answer.
//!
//! [`TurnLoop`] is the loop as a state machine without IO: it says whom to ask and what to
//! run, and is told what came of it. [`Guardrails`] keep the model on its way, a
//! [`Compaction`] keeps the history within its context. [`Agent`] is the one driver over a
//! provider and a tool registry.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use twopass_agent::{Agent, AgentOptions};
//! use twopass_provider::{Message, Provider, Role};
//! use twopass_tools::{Policy, ToolContext, ToolRegistry, Workspace, builtin};
//!
//! let provider = Provider::from_config(None, None)?;
//! let tools = ToolRegistry::new();
//! builtin::register(&tools, Default::default())?;
//! tools.set_default_policy(Policy::ReadOnly);
//! let context = ToolContext::new(Workspace::open(".")?);
//! let agent = Agent::new(provider, Arc::new(tools), context, AgentOptions::default());
//!
//! let task = vec![Message::text(Role::User, "Which file here is the largest?")];
//! let outcome = agent.start(task).finish().await;
//! println!("{}: {}", outcome.end, outcome.answer);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod agent;
mod compaction;
mod conversation;
mod event;
mod guardrails;
mod instructions;
mod memory;
mod memory_update;
mod nudge;
mod outcome;
mod repetition;
mod rescue;
mod server_tools;
pub mod trace;
mod turn;
mod turn_loop;

pub use agent::{Agent, AgentOptions, Run};
pub use compaction::{Compacted, Compaction};
pub use conversation::{Conversation, Kind, Parts};
pub use event::AgentEvent;
pub use guardrails::{Guardrails, Prerequisite, Progress, Rules, Verdict};
pub use instructions::Instructions;
pub use memory::{embedder, open_memory};
pub use memory_update::{Edits, MAX_ATTEMPTS, MemoryUpdate};
pub use nudge::{Nudge, NudgeKind, NudgeTexts};
pub use outcome::{EndReason, Outcome};
pub use server_tools::with_server_tools;
pub use turn::Turn;
pub use turn_loop::{LoopOptions, Step, TurnLoop};
