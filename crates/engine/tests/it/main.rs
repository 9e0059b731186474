//! The engine on real models: one real small one, one random one with real think and tool
//! tokens. `cargo xtask fixtures` prints the variables that name them.
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod support;

mod adapters;
mod budgets;
mod free_calls;
mod loading;
mod logprobs;
mod prefixes;
mod rules;
mod sessions;
mod speculation;
mod streams;
mod tokens;
