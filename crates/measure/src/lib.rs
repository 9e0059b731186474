//! How good and how fast a configured provider is: what `twopass sweep` and `twopass bench` do.
//!
//! Reading, scoring, statistics and drawing are plain functions of their input; only [`sweep`]
//! and [`speed`] ask a provider, and only [`records`] writes a file.
#![warn(missing_docs)]

pub mod stats;

pub mod dataset;
pub mod matching;

pub mod records;
pub mod speed;
pub mod sweep;

pub mod chart;
pub mod report;
pub mod svg;
