use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use twopass_provider::Provider;

use crate::keys::{Budgets, Keys};
use crate::models::Models;
use crate::observe::{Exporter, Metrics, Observers, Traces};
use crate::options::check_origins;
use crate::reload::{Live, Reload, Served, reload_on_signal};
use crate::routes::{self, App};
use crate::shutdown::stop_on_signals;
use crate::{Error, ServerOptions, Shutdown, layers, listener};

/// Serves until SIGINT or SIGTERM, then drains; a second signal ends everything at once. At
/// SIGHUP the configuration is read again.
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
    reload: Reload,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let shutdown = Shutdown::new();
    let server = Server::bind(options, providers).await?;
    // Polled first, so that the handlers stand before anybody is told that we are ready.
    let signals = stop_on_signals(&shutdown);
    let live = server.live.clone();
    let reloads = reload_on_signal(&live, reload);
    let run = async {
        server.prepare().await?;
        ready(server.local_addr());
        server.run(&shutdown).await;
        Ok(())
    };
    tokio::select! {
        biased;
        Err(error) = signals => Err(Error::io("cannot handle stop signals", error)),
        Err(error) = reloads => Err(Error::io("cannot handle the reload signal", error)),
        done = run => done,
    }
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    options: ServerOptions,
    live: Live,
    observers: Observers,
    exporter: Option<Exporter>,
}

impl Server {
    /// Takes the address and reads the keys. Loads no model.
    ///
    /// # Errors
    /// Kind `Config`: no provider, two that share a name, an unknown default; a faulty keys
    /// file; a host that others can reach without keys.
    /// Kind `Io`: the address is not available, the keys file cannot be read.
    pub async fn bind(mut options: ServerOptions, providers: Vec<Provider>) -> Result<Self, Error> {
        let models = Models::new(providers, options.default_provider.as_deref())?;
        let keys = options.keys_file.as_deref().map(Keys::load).transpose()?;
        check_origins(&options.cors_origins, keys.is_some())?;
        let listener = listener::bind(&options, keys.is_some()).await?;
        let addr = listener
            .local_addr()
            .map_err(|e| Error::io("the listening address is unknown", e))?;
        let live = Live::new(Served { models, keys }, &options, addr.ip());
        let metrics = Metrics::new();
        let traces = options.traces.take();
        let traces = traces.map(|traces| Traces::new(traces, metrics.traces_lost()));
        let (traces, exporter) = traces.transpose()?.unzip();
        let observers = Observers {
            metrics,
            budgets: Budgets::new(options.store.clone()),
            log: options.access_log.take(),
            traces,
        };
        Ok(Self {
            listener,
            addr,
            options,
            live,
            observers,
            exporter,
        })
    }

    /// Loads the default provider's model.
    ///
    /// # Errors
    /// Kind `Provider`: the model is missing or broken, or there is no memory for it.
    pub async fn prepare(&self) -> Result<(), Error> {
        let served = self.live.now();
        let prepared = served.models.default_provider().prepare().await;
        prepared.map_err(Error::provider)
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
        let app = App::new(self.live, &self.options, shutdown.clone(), self.observers);
        let (responses, budgets) = (app.responses().clone(), app.budgets().clone());
        let cors = layers::cors(&self.options.cors_origins);
        let app = layers::wrap(routes::routers(app.clone()), &app, cors);
        let serving = listener::run(self.listener, app, limits, shutdown);
        let serving = async {
            tokio::select! {
                () = serving => {}
                () = responses.forget_expired() => {}
                () = budgets.store_used() => {}
            }
            budgets.flush().await;
        };
        let Some(exporter) = self.exporter else {
            return serving.await;
        };
        let done = CancellationToken::new();
        let served = async {
            serving.await;
            done.cancel();
        };
        tokio::join!(served, exporter.run(&done));
    }
}
