//! Programs of others that speak the Model Context Protocol, for the tests of tools: a server
//! from the npm registry and a client from the Python registry, both of the protocol's own
//! project. Without them those tests say that they were skipped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::python::{self, Dependencies};
use crate::workspace::{Workspace, have, run_quiet};

/// Names the program of the server.
const TEST_SERVER: &str = "TWOPASS_TEST_MCP_EVERYTHING";
/// Names the folder of the client's packages.
const TEST_CLIENT: &str = "TWOPASS_TEST_MCP_PYTHON";

const SERVER: &str = "@modelcontextprotocol/server-everything";
const SERVER_VERSION: &str = "2026.8.31";
const CLIENT: (&str, &str) = ("mcp", "2.3.0");

/// Tells the tests where both are; says in one line each what is not to be had.
pub(crate) fn provide(workspace: &Workspace, command: &mut Command) {
    for (variable, found) in [
        (TEST_SERVER, server(workspace)),
        (TEST_CLIENT, client(workspace)),
    ] {
        match found {
            Ok(path) => {
                command.env(variable, path);
            }
            Err(error) => eprintln!("{variable} is not set, its tests are skipped: {error:#}"),
        }
    }
}

fn server(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let folder = workspace
        .cache_folder("node")?
        .join(format!("server-everything-{SERVER_VERSION}"));
    if !folder.is_dir() {
        if !have("node") || !have("npm") {
            bail!("Node and npm are not installed");
        }
        eprintln!("installing the npm package {SERVER} {SERVER_VERSION} (32 MB)");
        let scratch = workspace.scratch("server-everything")?;
        let part = scratch.path().join("site");
        std::fs::create_dir(&part)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund"]);
        npm.args(["--ignore-scripts", "--prefix"]).arg(&part);
        run_quiet(npm.arg(format!("{SERVER}@{SERVER_VERSION}")))?;
        python::move_into_place(&part, &folder)?;
    }
    Ok(folder
        .join("node_modules")
        .join(SERVER)
        .join("dist/index.js"))
}

fn client(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    if !python::have_pip() {
        bail!("Python's pip is not installed");
    }
    let (name, version) = CLIENT;
    python::installed(workspace, name, version, Dependencies::With)
}
