//! The provider from the outside: files and environments in, requests out, turns back.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables of cases; a failed step fails the test"
)]

use twopass_replay::{Answer, Pace, Server};

#[cfg(feature = "embedded")]
mod bound_calls;
mod bound_forms;
mod catalogue;
mod chat;
mod chat_choices;
mod chat_faults;
mod chat_two_pass;
mod completions;
mod config_errors;

mod config_load;
mod embeddings;
mod facade;
mod fallbacks;
mod faults;
#[cfg(feature = "embedded")]
mod native;
mod plan;
mod proxies;
mod replicas;
mod same_script;
mod tls;

/// A server that plays these answers, one per request.
pub(crate) async fn play(answers: Vec<Answer>) -> Server {
    Server::start(answers, Pace::Whole).await.unwrap()
}
