//! The HTTP server: a face over configured providers.
//!
//! A handler decodes, calls and encodes; keys, host names, panics and the end of the server
//! are layers, and sockets belong to the listener. Errors get their status in one table.
//! Invariant: the work for a request is owned by the future or stream that answers it;
//! whoever drops that stops the work.
#![warn(missing_docs)]

mod admission;
mod api_error;
mod body;
mod caller;
mod certain;
mod enforce;
mod error;
mod faces;
mod host_guard;
mod idle;
mod ids;
mod keys;
mod layers;
mod listener;
mod memory;
mod models;
mod observe;
mod options;
mod peer;
mod reload;
mod routes;
mod server;
mod shutdown;
mod sse;
mod stall_guard;
mod stored;
mod turn;

pub use error::{Error, ErrorKind};
pub use keys::{NewKey, add_key, read_keys};
pub use observe::AccessLog;
pub use options::{Limits, ServerOptions};
pub use reload::{Fresh, ReadFresh, Reload};
pub use server::{Server, serve};
pub use shutdown::Shutdown;
pub use twopass_store::{Error as StoreError, Store};
