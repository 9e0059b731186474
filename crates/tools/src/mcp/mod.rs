//! The Model Context Protocol: tools of other programs as ours, and ours for them.
//!
//! Everything that a server says of itself is untrusted: its descriptions are text for the
//! model, its hints about effects are not believed.

mod client;
mod server;

pub use client::{McpServer, McpTarget};
pub use server::serve_stdio;
