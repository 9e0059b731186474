//! The provider from the outside: files and environments in, requests out, turns back.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables of cases; a failed step fails the test"
)]

mod catalogue;
mod config_errors;
mod config_load;
mod facade;
mod http_server;
mod native;
mod plan;
