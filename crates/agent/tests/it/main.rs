//! Tests of the agent crate. `rules` and `history` drive the loop without IO; `run` drives the
//! whole agent over a provider and a real local server.

mod history;
mod rules;
mod run;
mod script;
