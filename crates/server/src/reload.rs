//! The configuration read again while streams run.
//!
//! A turn keeps the provider that it was planned with; the next one gets what is new. A
//! configuration with a fault changes nothing. The address, the limits, the log and the traces
//! are those of the start.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use twopass_provider::Provider;

use crate::keys::Keys;
use crate::models::Models;
use crate::options::{check_origins, check_reach};
use crate::{Error, ServerOptions};

/// What a configuration says that a running server can follow.
#[derive(Debug)]
pub struct Fresh {
    /// Everybody who is served.
    pub providers: Vec<Provider>,
    /// The provider of requests that name no model; `None` = the first one.
    pub default_provider: Option<String>,
    /// See [`crate::ServerOptions::keys_file`].
    pub keys_file: Option<PathBuf>,
    /// The keys that have changed and that only the next start follows.
    pub at_next_start: Vec<String>,
}

/// How a server that is told to reads its configuration again.
pub struct Reload {
    /// Reads it, beside the providers that run: see [`Provider::reopen`]. May block. The error
    /// is one line for people.
    pub read: Box<ReadFresh>,
    /// Is told how it went.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

/// See [`Reload::read`].
pub type ReadFresh = dyn Fn(&[Provider]) -> Result<Fresh, String> + Send + Sync;

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").finish_non_exhaustive()
    }
}

/// Whom a running server serves, and by whom. Clones are the same server.
#[derive(Debug, Clone)]
pub(crate) struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    now: RwLock<Arc<Served>>,
    /// Where it listens.
    host: String,
    ip: IpAddr,
    cors_origins: Vec<String>,
}

/// One state of it.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) models: Models,
    /// `None`: everybody of this machine is served.
    pub(crate) keys: Option<Keys>,
}

impl Live {
    pub(crate) fn new(served: Served, options: &ServerOptions, ip: IpAddr) -> Self {
        Self(Arc::new(Inner {
            now: RwLock::new(Arc::new(served)),
            host: options.host.clone(),
            ip,
            cors_origins: options.cors_origins.clone(),
        }))
    }

    /// The state that requests which come now are served by.
    pub(crate) fn now(&self) -> Arc<Served> {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// Puts what is fresh in the place of what runs, once its default model is loaded.
    ///
    /// # Errors
    /// As at the start of a server; everything is as before then.
    pub(crate) async fn replace(&self, fresh: Fresh) -> Result<(), Error> {
        let models = Models::new(fresh.providers, fresh.default_provider.as_deref())?;
        let keys = fresh.keys_file.as_deref().map(Keys::load).transpose()?;
        check_origins(&self.0.cors_origins, keys.is_some())?;
        if keys.is_none() {
            check_reach(&self.0.host, self.0.ip)?;
        }
        let prepared = models.default_provider().prepare().await;
        prepared.map_err(Error::provider)?;
        let served = Arc::new(Served { models, keys });
        *self.0.now.write().unwrap_or_else(PoisonError::into_inner) = served;
        Ok(())
    }
}

/// Reads the configuration again at each SIGHUP, until dropped. Elsewhere than on Unix nobody
/// can ask for it.
///
/// # Errors
/// The system refuses the handler.
pub(crate) async fn reload_on_signal(live: &Live, reload: Reload) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangup = signal(SignalKind::hangup())?;
        let Reload { read, say } = reload;
        let read: Arc<ReadFresh> = read.into();
        while hangup.recv().await.is_some() {
            match again(live, &read).await {
                Ok(what) => say(&format!("the configuration was read again, {what}")),
                Err(why) => say(&format!("the configuration stays as it was: {why}")),
            }
        }
        Ok(())
    }
    #[cfg(not(unix))]
    {
        let _ = (live, reload);
        std::future::pending().await
    }
}

/// Who is served now, and what is not followed, in words.
#[cfg(unix)]
async fn again(live: &Live, read: &Arc<ReadFresh>) -> Result<String, String> {
    let (running, read) = (live.now(), Arc::clone(read));
    let fresh = tokio::task::spawn_blocking(move || read(running.models.providers()));
    let fresh = fresh.await.map_err(|_| "reading it failed".to_owned())??;
    let later = match fresh.at_next_start.as_slice() {
        [] => String::new(),
        keys => format!("; `{}` from the next start on", keys.join("`, `")),
    };
    live.replace(fresh)
        .await
        .map_err(|error| error.to_string())?;
    let served = live.now();
    let names = served.models.providers().iter().map(Provider::name);
    let names = names.collect::<Vec<_>>().join(", ");
    Ok(format!("serving: {names}{later}"))
}
