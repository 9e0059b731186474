//! Dependencies point down only: between crates, and between the modules of the core.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;

use crate::files::{File, code_only};
use crate::workspace::{Workspace, run_quiet};

/// Each crate with the crates right below it. A crate may use everything that it reaches.
const LAYERS: &[(&str, &[&str])] = &[
    ("twopass-core", &[]),
    ("twopass-wire", &["twopass-core"]),
    ("twopass-gguf", &[]),
    ("twopass-engine", &["twopass-core", "twopass-gguf"]),
    ("twopass-tools", &["twopass-core"]),
    ("twopass-provider", &["twopass-wire", "twopass-engine"]),
    ("twopass-agent", &["twopass-provider", "twopass-tools"]),
    ("twopass-measure", &["twopass-provider"]),
    ("twopass-store", &[]),
    ("twopass-server", &["twopass-agent", "twopass-store"]),
    ("twopass-tui", &["twopass-agent"]),
    ("twopass-python", &["twopass-agent"]),
    ("twopass-replay", &[]),
    ("twopass-cases", &["twopass-server", "twopass-replay"]),
    ("twopass-fuzz", &["twopass-wire"]),
    ("twopass", &["twopass-agent"]),
    (
        "twopass-cli",
        &[
            "twopass-server",
            "twopass-tui",
            "twopass-measure",
            "twopass",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that would mean that the core does input or output.
const NOT_IN_CORE: &[&str] = &[
    "async-std",
    "axum",
    "curl",
    "h2",
    "http",
    "hyper",
    "isahc",
    "mio",
    "native-tls",
    "openssl",
    "quinn",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "surf",
    "tokio",
    "tungstenite",
    "ureq",
];

/// Checks the manifests against [`LAYERS`]. Dependencies of tests may point anywhere.
pub(super) fn check_crates(
    workspace: &Workspace,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let metadata: Value = serde_json::from_str(&run_quiet(&mut workspace.cargo(&metadata))?)
        .context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata names no packages")?;
    let ours: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = reachable(name) else {
            problems.push(format!(
                "the crate {name} has no layer in xtask/src/tidy/layers.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"] == "dev";
            if !for_tests && ours.contains(target) && !allowed.contains(target) {
                problems.push(format!("the crate {name} may not depend on {target}"));
            }
        }
    }
    Ok(())
}

/// All crates below this one; `None` for a crate that is not in the table.
fn reachable(name: &str) -> Option<BTreeSet<&'static str>> {
    let below = |name: &str| {
        LAYERS
            .iter()
            .find(|(layer, _)| *layer == name)
            .map(|(_, below)| *below)
    };
    let mut found = BTreeSet::new();
    let mut open = below(name)?.to_vec();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(below(next).unwrap_or_default());
        }
    }
    Some(found)
}

/// The core's whole tree names no runtime, socket or HTTP crate.
pub(super) fn check_core_dependencies(
    workspace: &Workspace,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    let words = [
        "tree",
        "--package=twopass-core",
        "--edges=normal,build",
        "--prefix=none",
        "--offline",
    ];
    let tree = run_quiet(&mut workspace.cargo(&words))?;
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for name in NOT_IN_CORE.iter().filter(|name| names.contains(**name)) {
        problems.push(format!(
            "twopass-core depends on {name}: the core does no IO"
        ));
    }
    Ok(())
}

/// A module of the core uses only the modules above it in `lib.rs`.
pub(super) fn check_core_modules(files: &[File], problems: &mut Vec<String>) {
    const SRC: &str = "crates/core/src/";
    let Some(lib) = files
        .iter()
        .find(|file| file.path == format!("{SRC}lib.rs"))
    else {
        problems.push(format!("{SRC}lib.rs is missing"));
        return;
    };
    let order = modules(&lib.text);
    for file in files {
        let Some(inside) = file.path.strip_prefix(SRC) else {
            continue;
        };
        let own = inside.split(['/', '.']).next().unwrap_or_default();
        let Some(own_idx) = order.iter().position(|module| module == own) else {
            continue;
        };
        let sibling = |name: &str| {
            let folder = format!("{SRC}{own}/{name}");
            files
                .iter()
                .any(|f| f.path == format!("{folder}.rs") || f.path == format!("{folder}/mod.rs"))
        };
        for used in uses(&code_only(&file.text), &order, sibling) {
            let idx = order.iter().position(|module| *module == used);
            if idx.is_some_and(|idx| idx > own_idx) {
                problems.push(format!(
                    "{}: `{own}` may not use `{used}`, which stands below it",
                    file.path
                ));
            }
        }
    }
}

/// The modules that a file declares, in order.
fn modules(text: &str) -> Vec<String> {
    let declared = |line: &str| {
        let line = line.trim();
        let line = line
            .strip_prefix("pub ")
            .or_else(|| line.strip_prefix("pub(crate) "))
            .unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    text.lines().filter_map(declared).collect()
}

/// The crate's own modules that this code names by `crate::` or `super::`.
fn uses(code: &str, order: &[String], sibling: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        for name in path_heads(&code[at + "crate::".len()..]) {
            found.insert(name.to_owned());
        }
    }
    for (at, _) in code.match_indices("super::") {
        for name in path_heads(&code[at + "super::".len()..]) {
            if order.iter().any(|module| module == name) && !sibling(name) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The first names of a path's rest: `a::b` gives `a`; `{a::B, c}` gives `a` and `c`.
fn path_heads(rest: &str) -> Vec<&str> {
    let head = |text: &str| {
        text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(text.len())
    };
    let rest = rest.trim_start();
    let Some(group) = rest.strip_prefix('{') else {
        return vec![&rest[..head(rest)]];
    };
    let mut heads = Vec::new();
    let mut depth = 0_usize;
    let mut at_start = true;
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if at_start && !char.is_whitespace() => {
                at_start = false;
                heads.push(&group[at..at + head(&group[at..])]);
            }
            _ => {}
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_reach_down_only() {
        let cli = reachable("twopass-cli").unwrap();
        assert!(cli.contains("twopass-core") && cli.contains("twopass-server"));
        assert!(reachable("twopass-core").unwrap().is_empty());
        assert!(
            !reachable("twopass-wire")
                .unwrap()
                .contains("twopass-provider")
        );
        assert!(reachable("unknown").is_none());
    }

    #[test]
    fn modules_below_may_not_be_used() {
        let file = |path: &str, text: &str| File {
            path: format!("crates/core/src/{path}"),
            text: text.to_owned(),
        };
        let lib = file("lib.rs", "pub mod chat;\npub mod text;\npub mod control;\n");
        let cases = [
            ("text/mod.rs", "use crate::chat::Role;", 0),
            ("text/mod.rs", "use crate::control::TwoPass;", 1),
            (
                "text/mod.rs",
                "use crate::{chat::Role, control::{A, B}};",
                1,
            ),
            (
                "text/mod.rs",
                "// see crate::control\nlet a = \"crate::control\";",
                0,
            ),
            ("text/mod.rs", "use super::control::TwoPass;", 1),
            ("text/json.rs", "let x = super::super::control::f();", 1),
            ("text/json.rs", "use super::scan::Scanner;", 0),
            ("control/mod.rs", "use crate::text::Scanner;", 0),
        ];
        for (path, text, n_problems) in cases {
            let mut problems = Vec::new();
            check_core_modules(&[lib.clone(), file(path, text)], &mut problems);
            assert_eq!(problems.len(), n_problems, "{path}: {text}: {problems:?}");
        }
    }

    #[test]
    fn a_sibling_of_the_same_name_is_no_layer() {
        let file = |path: &str, text: &str| File {
            path: format!("crates/core/src/{path}"),
            text: text.to_owned(),
        };
        let files = [
            file("lib.rs", "pub mod chat;\npub mod control;\n"),
            file("chat/control.rs", ""),
            file("chat/mod.rs", "mod control;\n"),
            file("chat/role.rs", "use super::control::Control;"),
        ];
        let mut problems = Vec::new();
        check_core_modules(&files, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
    }
}
