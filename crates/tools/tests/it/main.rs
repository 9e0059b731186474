//! The tools, at their boundary: a registry, a call, its output.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod registry;
