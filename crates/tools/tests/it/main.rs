//! The tools, at their boundary: a registry, a call, its output.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod builtin;
mod escapes;
#[cfg(feature = "mcp")]
mod mcp;
mod memory;
mod registry;
mod working_memory;

use twopass_core::chat::{Arguments, ToolCall};
use twopass_tools::{Consent, ToolContext, ToolOutput, ToolRegistry};

/// A call as a model makes it.
fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: "call_1".to_owned(),
        name: name.to_owned(),
        arguments: Arguments::from_text(arguments).unwrap(),
    }
}

/// Runs one call with nobody asked.
async fn run(
    registry: &ToolRegistry,
    context: &ToolContext,
    name: &str,
    arguments: &str,
) -> ToolOutput {
    registry
        .run(&call(name, arguments), context, Consent::NotAsked)
        .await
}
