//! Tools that a model may call: one definition each, one registry, one way to run a call.
//!
//! A tool is one Rust type. Its arguments derive `Deserialize` and `JsonSchema`; their doc
//! comments are what the model reads, the schema derived from them is what every wire sends
//! and what every call is checked by.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use twopass_tools::{Effect, ToolContext, ToolError, ToolOutput, ToolRegistry, TypedTool};
//!
//! /// Adds two whole numbers and gives their sum. Use it for every sum instead of
//! /// reckoning in your head. It fails if the sum does not fit 64 bits.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct AddArgs {
//!     /// The first number.
//!     a: i64,
//!     /// The second number.
//!     b: i64,
//! }
//!
//! struct Add;
//!
//! impl TypedTool for Add {
//!     type Args = AddArgs;
//!     const NAME: &'static str = "add";
//!     const EFFECT: Effect = Effect::Reads;
//!
//!     async fn run(&self, args: AddArgs, _: &ToolContext) -> Result<ToolOutput, ToolError> {
//!         let sum = args.a.checked_add(args.b);
//!         sum.map(|sum| ToolOutput::text(sum.to_string()))
//!             .ok_or_else(|| ToolError::failed("the sum does not fit 64 bits"))
//!     }
//! }
//!
//! let registry = ToolRegistry::new();
//! registry.register(Add)?;
//! assert_eq!(registry.specs()[0].name, "add");
//! # Ok::<(), ToolError>(())
//! ```
#![warn(missing_docs)]

mod approval;
mod blocking;
pub mod builtin;
mod context;
mod describe;
mod error;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod memory;
mod output;
mod registry;
mod sandbox;
mod tool;
pub mod working_memory;
mod workspace;

pub use approval::{Consent, Decision, Effect, Policy};
pub use context::{Limits, ToolContext};
pub use describe::{lint, to_markdown};
pub use error::{ErrorKind, ToolError};
pub use output::{ToolOutput, cut_middle};
pub use registry::ToolRegistry;
pub use sandbox::{FileAccess, NetworkAccess, Sandbox};
pub use tool::{FnTool, JsonObject, Tool, TypedTool, typed};
pub use workspace::{MAX_FILE_BYTES, Workspace};

/// The tools that every agent and every mode has (rows I1, I3): those of [`builtin`], with
/// commands in this sandbox, and `recall_memory` and `store_memory` on this memory.
///
/// # Errors
/// None with the names of this crate; kind [`ErrorKind::BadName`] were one taken twice.
pub fn base_registry(sandbox: Sandbox, memory: &memory::Memory) -> Result<ToolRegistry, ToolError> {
    let registry = ToolRegistry::new();
    builtin::register(&registry, sandbox)?;
    memory.register(&registry)?;
    Ok(registry)
}
