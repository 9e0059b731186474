//! The Model Context Protocol: tools of other programs as ours, and ours for them.
//!
//! Everything that a server says of itself is untrusted: its descriptions are text for the
//! model, its hints about effects are not believed.

mod client;
mod lines;
mod offer;
mod process;
mod server;

pub use client::{McpServer, McpTarget, Registered};
pub use server::{serve, serve_stdio};
