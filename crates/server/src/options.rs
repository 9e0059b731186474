//! What a server can be told, and the limits that protect it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderValue;
use twopass_provider::config::{ServerConfig, TracesConfig};
use twopass_store::Store;

use crate::Error;
use crate::keys::Keys;
use crate::observe::AccessLog;

/// Where the server listens and how it protects itself.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// A host name or an IP address. One that is not loopback needs `keys_file`.
    pub host: String,
    /// The TCP port; 0 takes a free one.
    pub port: u16,
    /// The keys: a YAML file of [`twopass_provider::config::KeyEntry`]s below `keys:`, or a
    /// text file with one key per line, where `#` starts a comment line and a line is the key
    /// itself or `sha256:` and the hex digest of the key. With it, every path except `/health`
    /// needs a key.
    pub keys_file: Option<PathBuf>,
    /// Web pages from these origins may use the server; `*` stands for all, and needs keys.
    pub cors_origins: Vec<String>,
    /// The provider of requests that name no model. None: the first one.
    pub default_provider: Option<String>,
    /// Whether what answers were thought with is kept and put back where clients drop it.
    pub reasoning_memory: bool,
    /// The limits.
    pub limits: Limits,
    /// Where stored responses are kept.
    pub store: Store,
    /// Where each request is told when it has ended.
    pub access_log: Option<AccessLog>,
    /// Where traces of requests go.
    pub traces: Option<TracesConfig>,
}

impl Default for ServerOptions {
    /// Loopback, port 8001, no keys.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8001,
            keys_file: None,
            cors_origins: Vec::new(),
            default_provider: None,
            reasoning_memory: true,
            limits: Limits::default(),
            store: Store::memory(),
            access_log: None,
            traces: None,
        }
    }
}

impl ServerOptions {
    /// Checks what can be checked without a socket: the keys file, and that an address or a
    /// web page that is anybody's needs one of them. A server checks it when it starts.
    ///
    /// # Errors
    /// Kind `Config` or `Io`, as at the start of a server.
    pub fn check(&self) -> Result<(), Error> {
        let keys = self.keys_file.as_deref().map(Keys::load).transpose()?;
        check_origins(&self.cors_origins, keys.is_some())?;
        match self.host.parse::<IpAddr>() {
            Ok(ip) if keys.is_none() => check_reach(&self.host, ip),
            _ => Ok(()),
        }
    }
}

/// Refuses an address that is not loopback.
pub(crate) fn check_reach(host: &str, ip: IpAddr) -> Result<(), Error> {
    if ip.to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Error::config(format!(
        "host `{host}` ({ip}) can be reached by others: set `keys_file`, or listen on 127.0.0.1"
    )))
}

/// Refuses origins that are none, and all of them where no key is asked for: any page that
/// somebody looks at could use the server then.
pub(crate) fn check_origins(origins: &[String], has_keys: bool) -> Result<(), Error> {
    if let Some(origin) = origins
        .iter()
        .find(|origin| HeaderValue::from_str(origin).is_err())
    {
        return Err(Error::config(format!(
            "`{origin}` is no origin of web pages"
        )));
    }
    if has_keys || origins.iter().all(|origin| origin != "*") {
        return Ok(());
    }
    Err(Error::config(
        "cors_origins `*` lets every web page in: set `keys_file`, or name the origins",
    ))
}

impl From<&ServerConfig> for ServerOptions {
    /// What the configuration says; the limits, and what needs more than words, by default.
    fn from(config: &ServerConfig) -> Self {
        Self {
            host: config.host.clone(),
            port: config.port,
            keys_file: config.keys_file.clone(),
            cors_origins: config.cors_origins.clone(),
            reasoning_memory: config.reasoning_memory,
            traces: config.traces.clone(),
            ..Self::default()
        }
    }
}

/// Limits and deadlines. Each exists so that no client can hold what others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request body; more gets 413. Default 16 MiB.
    pub body_bytes: usize,
    /// Bytes of all request bodies being read at one time; more gets 503. Default 256 MiB.
    pub bodies_bytes: usize,
    /// Time for a request's head to arrive, also for the next one on a kept connection;
    /// then the connection is closed. Default 15 s.
    pub head_timeout: Duration,
    /// Time for a request's body to arrive; then 408. Default 30 s.
    pub body_timeout: Duration,
    /// Time a client may accept not one byte of its reply; then its connection is closed
    /// and its generation stops. Default 60 s.
    pub write_stall: Duration,
    /// Pause after which a silent stream sends a comment, so that proxies keep it open and
    /// dead peers are noticed. Default 10 s.
    pub heartbeat: Duration,
    /// Time that running requests get after the first stop signal. Default 30 s.
    pub drain: Duration,
    /// Connections at one time. When all are taken, a further one takes the place of the one
    /// that has waited longest without a request; when all work, it waits. Default 512, which
    /// leaves room under the usual limit of 1024 open files.
    pub connections: usize,
    /// Turns and vectors that are worked on at one time. Default 256.
    pub requests: usize,
    /// Requests that may wait beyond that; further ones get 429. Default 256.
    pub queue: usize,
    /// The longest that a request waits to be worked on; then 429. Default 10 s.
    pub queue_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            bodies_bytes: 256 << 20,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            write_stall: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            connections: 512,
            requests: 256,
            queue: 256,
            queue_time: Duration::from_secs(10),
        }
    }
}
