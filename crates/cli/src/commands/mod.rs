//! One file per command.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod embed;
pub(crate) mod invoke;
pub(crate) mod keys;
pub(crate) mod models;
pub(crate) mod parse;
pub(crate) mod render;
pub(crate) mod serve;
pub(crate) mod sweep;
pub(crate) mod tools;
