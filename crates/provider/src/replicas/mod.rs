//! Several servers of one entry: `base_urls`.
//!
//! `Pool` decides where a request goes, by what it is told; here are the addresses, the
//! accounts of running requests and the probes of servers that are out. With one server all
//! of it does nothing.

mod pool;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http_body_util::Full;
use hyper::{Request as HttpRequest, Uri};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use twopass_core::chat::{Part, Request, Role};
use url::Url;

use crate::http::{self, HttpClient};
use crate::{ErrorKind, ProviderError};
use pool::Pool;

/// Bytes of each message that tell one session from another.
const SESSION_BYTES: usize = 4096;
/// Time for a server to answer a probe.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// What a probe asks for. Any answer below 500 is a sign of life, a 404 too.
const PROBE_PATH: &str = "/health";

/// The servers of one entry. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Replicas(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// All addresses differ in scheme, host and port only; empty if there is but one server.
    bases: Vec<Uri>,
    pool: Mutex<Pool>,
    client: HttpClient,
    /// Running probes; they end with the entry.
    probes: Mutex<JoinSet<()>>,
}

impl Replicas {
    /// # Errors
    /// An address holds what no request can.
    pub(crate) fn new(bases: &[Url], client: HttpClient) -> Result<Self, ProviderError> {
        let bases: Result<Vec<Uri>, _> = bases.iter().map(http::uri).collect();
        let bases = bases?;
        Ok(Self(Arc::new(Shared {
            pool: Mutex::new(Pool::new(bases.len())),
            bases,
            client,
            probes: Mutex::default(),
        })))
    }

    /// The session of a turn; `None` if it does not matter.
    pub(crate) fn session(&self, request: &Request) -> Option<u64> {
        (self.0.bases.len() > 1).then(|| session(request))
    }

    /// A place for a request that these servers have failed already.
    ///
    /// Needs a tokio runtime: servers whose pause is over are asked whether they live.
    pub(crate) fn begin(&self, session: Option<u64>, failed: &[usize]) -> Place {
        while let Some(idx) = self.0.pool().poll_probe(Instant::now()) {
            self.probe(idx);
        }
        let idx = self.0.pool().begin(session, failed);
        Place {
            shared: Arc::clone(&self.0),
            idx,
        }
    }

    /// True if a server is left that has not failed the request.
    pub(crate) fn has_more(&self, failed: &[usize]) -> bool {
        failed.len() < self.0.bases.len()
    }

    fn probe(&self, idx: usize) {
        let Some(base) = self.0.bases.get(idx) else {
            return;
        };
        let mut request = HttpRequest::new(Full::default());
        *request.uri_mut() = at_server(Uri::from_static(PROBE_PATH), base);
        let client = self.0.client.clone();
        let shared = Arc::downgrade(&self.0);
        let mut probes = lock(&self.0.probes);
        while probes.try_join_next().is_some() {}
        probes.spawn(async move {
            let answer = timeout(PROBE_DEADLINE, client.send(request)).await;
            let lives = matches!(answer, Ok(Ok(answer)) if !answer.status().is_server_error());
            if let Some(shared) = Weak::upgrade(&shared) {
                shared.pool().handle_probe(idx, lives, Instant::now());
            }
        });
    }
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }
}

/// A request's place at one server, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    idx: usize,
}

impl Place {
    /// The number of the server.
    pub(crate) fn idx(&self) -> usize {
        self.idx
    }

    /// This address of the entry at this server.
    pub(crate) fn at(&self, uri: &Uri) -> Uri {
        match self.shared.bases.get(self.idx) {
            None => uri.clone(),
            Some(base) => at_server(uri.clone(), base),
        }
    }

    /// Passes on how the request went, and remembers it.
    pub(crate) fn settle<T>(&self, result: Result<T, ProviderError>) -> Result<T, ProviderError> {
        match &result {
            Ok(_) => self.shared.pool().handle_answer(self.idx),
            Err(error) => self.handle_failure(error.kind()),
        }
        result
    }

    /// The request failed with this kind, perhaps in the middle of its answer.
    pub(crate) fn handle_failure(&self, kind: ErrorKind) {
        let now = Instant::now();
        self.shared.pool().handle_failure(self.idx, kind, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.pool().end(self.idx);
    }
}

/// The path and query of one address at the server of another.
fn at_server(uri: Uri, base: &Uri) -> Uri {
    let mut parts = uri.into_parts();
    parts.scheme = base.scheme().cloned();
    parts.authority = base.authority().cloned();
    #[expect(clippy::expect_used, reason = "`http::uri` reads none without them")]
    Uri::from_parts(parts).expect("it has a scheme, a host and a path")
}

/// What the requests of one conversation have in common: its name, or else how it begins, up
/// to the first message of its user.
fn session(request: &Request) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Some(name) = &request.session {
        name.hash(&mut hasher);
        return hasher.finish();
    }
    for message in &request.messages {
        message.role.hash(&mut hasher);
        for part in &message.content {
            if let Part::Text(text) = part {
                text.len().hash(&mut hasher);
                let bytes = text.as_bytes();
                bytes[..bytes.len().min(SESSION_BYTES)].hash(&mut hasher);
            }
        }
        if message.role == Role::User {
            break;
        }
    }
    hasher.finish()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
