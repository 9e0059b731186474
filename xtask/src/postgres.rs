//! A PostgreSQL server for the tests of the store: made in a folder of its own, gone afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::free_port;
use crate::setup;
use crate::workspace::{have, run_quiet};

/// Names the server's address for the tests.
pub(crate) const TEST_POSTGRES: &str = "TWOPASS_TEST_POSTGRES";

/// PostgreSQL refuses to run as root; the system's package makes this user.
const USER: &str = "postgres";

/// A running server; dropping it ends it and removes its data.
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    pub(crate) url: String,
}

impl Postgres {
    /// Starts a server, installing it first where that is possible. Where not, says so in one
    /// line: the tests that need it are skipped.
    pub(crate) fn start() -> Option<Self> {
        let started = programs()
            .map(Ok)
            .unwrap_or_else(|| {
                setup::install("PostgreSQL", &["postgresql"])?;
                programs().ok_or_else(|| anyhow::anyhow!("initdb is still missing"))
            })
            .and_then(|programs| Self::started(&programs));
        started
            .inspect_err(|error| eprintln!("without PostgreSQL: {error:#}"))
            .ok()
    }

    fn started(programs: &Path) -> anyhow::Result<Self> {
        // Not below the home folder: the server's user may not look into root's.
        let folder = std::env::temp_dir().join(format!("twopass-postgres-{}", std::process::id()));
        let port = free_port()?;
        let server = Self {
            programs: programs.to_owned(),
            url: format!("postgres://twopass@127.0.0.1:{port}/postgres"),
            folder,
        };
        run_quiet(
            server
                .command("initdb")
                .args(["--username=twopass", "--auth=trust", "--no-sync"])
                .arg("--encoding=UTF8"),
        )?;
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {}",
            server.folder.display()
        );
        let log = server.folder.join("server.log");
        run_quiet(
            server
                .command("pg_ctl")
                .args(["start", "--wait", "--silent"])
                .arg(format!("--options={options}"))
                .arg("--log")
                .arg(log),
        )?;
        Ok(server)
    }

    /// One of the server's programs, for its data folder.
    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let is_root = run_quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
        let mut command = if is_root && have("runuser") {
            let mut command = Command::new("runuser");
            command.args(["-u", USER, "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        // Where we are may be closed to the server's user.
        command.current_dir(std::env::temp_dir());
        command.arg("-D").arg(&self.folder);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Left-overs in the temporary folder are the system's to clear.
        let _ = run_quiet(self.command("pg_ctl").args(["stop", "--mode=immediate"]));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the newest server's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok();
    let mut folders: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .collect();
    folders.sort();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&on_path)
        .chain(folders.into_iter().rev())
        .find(|folder| folder.join("initdb").is_file())
}
