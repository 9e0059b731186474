//! The terminal app without a terminal: what happens to it, and what it then shows. Row L8.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod keys;
mod play;
mod screens;
mod sessions;
