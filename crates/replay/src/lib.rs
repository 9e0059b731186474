//! A real HTTP server on the loopback interface for tests of clients: it plays given answers
//! and keeps what it was asked.
//!
//! [`Server`] plays a list of [`Answer`]s, one per request, in the order of the requests.
//! Answers are data: [`Answer::from_json`] reads the `upstream` entries of case files.
//! [`Listener`] hands out single exchanges to tests that decide as they go.
//!
//! It speaks HTTP/1.1 on bytes that it writes itself, because tests need what no HTTP library
//! does: bodies that break off at a given byte, one byte per packet, no head at all.
#![warn(missing_docs)]

mod answer;
mod chat_turn;
mod connection;
mod server;

pub use answer::{Answer, End, Framing, Step};
pub use connection::{Connection, Exchange, Listener, Request};
pub use server::{Pace, Server};
