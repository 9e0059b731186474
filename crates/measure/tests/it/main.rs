//! Sweeps through the facade against a real local server, their reports, and the shipped set.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../examples/arithmetic_logic.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod arithmetic_logic;

mod drawing;
mod shipped;
mod sweeping;
