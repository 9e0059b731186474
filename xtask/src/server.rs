//! A server that runs while it is measured or tested.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

/// Loading a small model takes a second, starting vLLM a minute; a loaded machine needs more.
const START_LIMIT: Duration = Duration::from_secs(600);

/// How long a server may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(20);

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
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut server = Self::spawn(&mut command, String::new())?;
        let stdout = server.child.stdout.take();
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
            Err(_) => return Err(not_ready(&command, log)),
        }
        Ok(server)
    }

    /// Starts a server that says nothing and waits until `address` takes connections.
    ///
    /// What it writes goes to `log`.
    pub(crate) fn start_at(
        mut command: Command,
        address: &str,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let output = std::fs::File::create(log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut server = Self::spawn(&mut command, address.to_owned())?;
        let limit = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > limit || server.child.try_wait()?.is_some() {
                return Err(not_ready(&command, log));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn spawn(command: &mut Command, address: String) -> anyhow::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, address })
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn not_ready(command: &Command, log: &Path) -> anyhow::Error {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.trim_end().lines().collect();
    let tail = lines[lines.len().saturating_sub(6)..].join("\n  ");
    anyhow!(
        "{} did not get ready\n  {tail}",
        command.get_program().display()
    )
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server of several processes ends the others only if it is asked to.
        let asked = Command::new("kill").arg(self.pid().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            let limit = Instant::now() + STOP_LIMIT;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
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
