//! Tests of the parsers through their public face.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod custom;
mod every_dialect;
mod harness;
mod plan;
mod properties;
mod round_trip;
mod tables;
mod turns;
