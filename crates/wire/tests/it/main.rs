//! Formats from the outside: bytes in, values out, and back.
#![expect(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "tables of cases; a failed step fails the test"
)]

mod bodies;
mod completions;
mod error;
mod generate_reply;
mod generate_request;
mod generate_stream;
mod histories;
mod linear;
mod logprobs;
mod read;
mod replies;
mod roundtrip;
mod sse;
mod tables;
mod thinking;
