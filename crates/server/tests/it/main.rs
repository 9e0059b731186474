//! The server over loopback sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod harness;
mod service;
mod upstream;

mod admission;
mod answers;
mod attacks;
mod chat;
mod cors;
mod faces;
mod gateway;
mod keys;
mod load;
mod logprobs;
mod malformed;
mod metrics;
mod model;
mod observed;
mod openapi;
mod passthrough;
mod sockets;
