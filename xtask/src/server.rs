//! A server that runs while it is measured or tested.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Loading a small model takes a second, starting vLLM a minute; a loaded machine needs more.
const START_LIMIT: Duration = Duration::from_secs(600);

/// A running server; dropping it ends it.
pub(crate) struct Server {
    child: Child,
    /// `host:port`
    pub(crate) address: String,
}

impl Server {
    /// Starts a server and waits for the line on its stdout that names its address.
    ///
    /// What it writes to stderr goes to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let stderr = std::fs::File::create(log)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take();
        let mut server = Self {
            child,
            address: String::new(),
        };
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let lines = stdout
                .into_iter()
                .flat_map(|stdout| BufReader::new(stdout).lines());
            for line in lines.map_while(Result::ok) {
                if let Some(address) = address_in(&line) {
                    // Read on afterwards: a full pipe would stop the server.
                    let _ = sender.try_send(address);
                }
            }
        });
        match receiver.recv_timeout(START_LIMIT) {
            Ok(address) => server.address = address,
            Err(_) => {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = log.trim_end().lines().collect();
                let tail = lines[lines.len().saturating_sub(6)..].join("\n  ");
                bail!(
                    "{} did not get ready\n  {tail}",
                    command.get_program().display()
                );
            }
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// `host:port` of the first `http://` in a line.
fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest
        .find(|c: char| c.is_whitespace() || c == '/')
        .unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_line() {
        let address = Some("127.0.0.1:8001".to_owned());
        assert_eq!(
            address_in("listening on http://127.0.0.1:8001 (3 models)"),
            address
        );
        assert_eq!(address_in("http://127.0.0.1:8001/"), address);
        assert_eq!(address_in("loading"), None);
    }
}
