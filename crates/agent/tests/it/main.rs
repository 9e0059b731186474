//! Tests of the agent crate. `rules` and `history` drive the loop without IO; `run` drives the
//! whole agent over a provider and a real local server.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "tables of cases; a failed step fails the test"
)]

mod history;
mod rules;
mod run;
mod script;
mod server_tools;
