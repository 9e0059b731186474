//! What outlives a server, or is shared by several: stored responses and usage.
//!
//! One trait, [`Backend`], with three implementations that pass the same tests: SQLite in a
//! file, PostgreSQL, and the memory of this process. Bodies are text to the store; what they mean is the server's
//! affair. Everything belongs to an owner, and nobody reads what another owns.

mod error;
mod memory;
mod postgres;
mod sqlite;

use std::fmt;
use std::sync::Arc;

pub use error::{Error, ErrorKind};

use futures_util::future::BoxFuture;

/// A reply that was stored under its id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResponse {
    /// Its id, unique for its owner.
    pub id: String,
    /// The response that it went on from.
    pub previous_id: Option<String>,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// When it may be forgotten, in seconds since 1970.
    pub expires_s: u64,
    /// Everything else, as the server wrote it.
    pub body: String,
}

/// What was used, or what to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Requests that were answered.
    pub requests: u64,
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written, thoughts included.
    pub completion_tokens: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self
                .completion_tokens
                .saturating_add(other.completion_tokens),
        }
    }
}

/// What a place to store things can do. An acknowledged write survives the end of this
/// process, however it ends, unless the place is its memory.
///
/// # Errors
/// Every method: kind [`ErrorKind::Unavailable`] if the place cannot be reached or does not
/// answer in time, kind [`ErrorKind::Internal`] for everything else.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Stores a response; one of the same owner and id is replaced.
    fn put<'a>(&'a self, owner: &'a str, response: StoredResponse) -> Answer<'a, ()>;

    /// The response of this id and those that it went on from, newest first, at most `limit`.
    /// Empty if there is none. What has expired before `now_s` is not there.
    fn chain<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
        read: Read,
    ) -> Answer<'a, Vec<StoredResponse>>;

    /// Forgets a response. True if there was one.
    fn delete<'a>(&'a self, owner: &'a str, id: &'a str) -> Answer<'a, bool>;

    /// Forgets what has expired before this time; returns how many.
    fn forget_expired(&self, now_s: u64) -> Answer<'_, u64>;

    /// Adds to what an owner used on a day (days since 1970).
    fn add_usage<'a>(&'a self, owner: &'a str, day: u32, usage: Usage) -> Answer<'a, ()>;

    /// What an owner used from this day on.
    fn usage<'a>(&'a self, owner: &'a str, since_day: u32) -> Answer<'a, Usage>;
}

/// What a [`Backend`] gives.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// How a chain is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// The most responses of a chain.
    pub limit: u32,
}

/// An open store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store(Arc<dyn Backend>);

impl Store {
    /// A store in the memory of this process: at most 10,000 responses and 256 MB of bodies, the
    /// oldest are forgotten first.
    #[must_use]
    pub fn memory() -> Self {
        Self(Arc::new(memory::Memory::default()))
    }

    /// Opens the store at `place`: `memory`, `postgres://...` or the path of an SQLite file.
    /// Tables are made if they are not there. Needs a tokio runtime.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the address cannot be read. Kind
    /// [`ErrorKind::Unavailable`]: the file or the database cannot be opened, or holds tables
    /// of a newer version.
    pub async fn open(place: &str) -> Result<Self, Error> {
        if place == "memory" {
            return Ok(Self::memory());
        }
        let is_postgres = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| place.starts_with(scheme));
        Ok(Self(if is_postgres {
            Arc::new(postgres::Postgres::open(place).await?)
        } else {
            Arc::new(sqlite::Sqlite::open(place).await?)
        }))
    }

    /// The place behind it.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.0
    }
}

impl std::ops::Deref for Store {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// The version of the tables that this code writes.
const SCHEMA_VERSION: i64 = 1;

/// Numbers are unsigned here and signed in the databases.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn of_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
