//! The binary from the outside: exit codes, stdout, stderr.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "tables of cases; a failed step fails the test"
)]

mod agent;
mod agent_files;
mod agent_models;
mod embed;
mod errors;
mod files;
mod invoke;
mod keys;
mod mcp;
mod measuring;
mod memory;
mod parse;
mod real_model;
mod reload;
mod run;
mod served;
mod serving;
mod soak;
mod stored;
mod tools;
