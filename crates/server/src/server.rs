use std::net::SocketAddr;

use tokio::net::TcpListener;
use twopass_provider::Provider;

use crate::auth::Keys;
use crate::models::Models;
use crate::routes::{self, App};
use crate::shutdown::stop_on_signals;
use crate::{Error, ServerOptions, Shutdown, layers, listener};

/// Serves until SIGINT or SIGTERM, then drains; a second signal ends everything at once.
///
/// The default provider's model is loaded first; others load at their first turn. `ready` is
/// called once, with the address, when requests are accepted. Needs a tokio runtime with time
/// and IO.
///
/// # Errors
/// As [`Server::bind`]; kind `Provider` if the model does not load, kind `Io` also if signals
/// cannot be handled.
pub async fn serve(
    options: ServerOptions,
    providers: Vec<Provider>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let shutdown = Shutdown::new();
    let server = Server::bind(options, providers).await?;
    // Polled first, so that the handlers stand before anybody is told that we are ready.
    let signals = stop_on_signals(&shutdown);
    let run = async {
        server.prepare().await?;
        ready(server.local_addr());
        server.run(&shutdown).await;
        Ok(())
    };
    tokio::select! {
        biased;
        Err(error) = signals => Err(Error::io("cannot handle stop signals", error)),
        done = run => done,
    }
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    options: ServerOptions,
    keys: Option<Keys>,
    models: Models,
}

impl Server {
    /// Takes the address and reads the keys. Loads no model.
    ///
    /// # Errors
    /// Kind `Config`: no provider, two that share a name, an unknown default; a faulty keys
    /// file; a host that others can reach without keys.
    /// Kind `Io`: the address is not available, the keys file cannot be read.
    pub async fn bind(options: ServerOptions, providers: Vec<Provider>) -> Result<Self, Error> {
        let models = Models::new(providers, options.default_provider.as_deref())?;
        let keys = options.keys_file.as_deref().map(Keys::load).transpose()?;
        let listener = listener::bind(&options, keys.is_some()).await?;
        let addr = listener
            .local_addr()
            .map_err(|e| Error::io("the listening address is unknown", e))?;
        Ok(Self {
            listener,
            addr,
            options,
            keys,
            models,
        })
    }

    /// Loads the default provider's model.
    ///
    /// # Errors
    /// Kind `Provider`: the model is missing or broken, or there is no memory for it.
    pub async fn prepare(&self) -> Result<(), Error> {
        self.models
            .default_provider()
            .prepare()
            .await
            .map_err(Error::provider)
    }

    /// Where it listens, with the port that the system gave.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until [`Shutdown::stop`] and the drain after it. Dropping the future ends
    /// every connection at once.
    pub async fn run(self, shutdown: &Shutdown) {
        let limits = self.options.limits;
        let app = App::new(self.models, &self.options, shutdown.clone());
        let (open, guarded) = routes::routers(app.clone());
        let app = layers::wrap(open, guarded, self.keys, &app);
        listener::run(self.listener, app, limits, shutdown).await;
    }
}
