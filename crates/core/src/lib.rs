//! The meaning of a turn, without the world: chat types, think splitting, tool calls,
//! chat templates and the two-pass controller.
//!
//! This crate holds no client, runtime, socket, path, clock or randomness of its own. It
//! can fail because of its input, never because of the world. A module may use only the
//! modules listed above it here.
#![warn(missing_docs)]

pub mod calendar;
pub mod chat;
pub mod text;
pub mod schema;
pub mod reasoning_parser;
pub mod tool_parser;
pub mod chat_template;
pub mod tool_prompt;
pub mod control;
