//! System packages: what a build needs, what is missing, and how it gets there.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::python::have_pip;
use crate::workspace::{have, run_quiet};

/// One thing that must be on the machine.
struct Need {
    name: &'static str,
    /// Debian packages that bring it.
    packages: &'static [&'static str],
    present: fn() -> bool,
}

const PIP: Need = Need {
    name: "Python with pip",
    packages: &["python3-pip"],
    present: have_pip,
};

/// What building the engine takes: llama.cpp is C++ built by cmake, its bindings are made by
/// bindgen, which loads libclang; ccache spares the next clone the ten minutes.
const BUILD: &[Need] = &[
    Need {
        name: "cmake",
        packages: &["cmake"],
        present: || have("cmake"),
    },
    Need {
        name: "make",
        packages: &["make"],
        present: || have("make"),
    },
    Need {
        name: "a C++ compiler",
        packages: &["g++"],
        present: || have("c++"),
    },
    Need {
        name: "clang",
        packages: &["clang"],
        present: || have("clang"),
    },
    Need {
        name: "libclang",
        packages: &["libclang-dev"],
        present: have_libclang,
    },
    Need {
        name: "ccache",
        packages: &["ccache"],
        present: || have("ccache"),
    },
    PIP,
];

/// Makes sure that the whole workspace can be built and the models fetched.
pub(crate) fn require_build() -> anyhow::Result<()> {
    require(BUILD)?;
    require_cpu()
}

/// Makes sure that packages of the Python registry can be fetched.
pub(crate) fn require_pip() -> anyhow::Result<()> {
    require(&[PIP])
}

fn require(needs: &[Need]) -> anyhow::Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|need| need.name).collect();
    let names = names.join(", ");
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|need| need.packages.iter().copied())
        .collect();
    install(&names, &packages)?;
    for need in missing {
        if !(need.present)() {
            bail!("{} is still missing after it was installed", need.name);
        }
    }
    Ok(())
}

/// Installs packages of Debian.
pub(crate) fn install(names: &str, packages: &[&str]) -> anyhow::Result<()> {
    let by_hand = format!("apt-get install -y {}", packages.join(" "));
    if !have("apt-get") {
        bail!("missing on this machine: {names} (on Debian: {by_hand}); install it and try again");
    }
    let Some(prefix) = privilege() else {
        bail!("missing on this machine: {names}; run this and try again: sudo {by_hand}");
    };
    eprintln!("installing {names} with apt-get");
    let mut install = vec!["apt-get", "install", "-y", "--no-install-recommends"];
    install.extend(packages);
    // The package lists of a fresh machine may be empty or old.
    for command in [&["apt-get", "update"][..], &install] {
        run_quiet(&mut privileged(prefix, command))
            .with_context(|| format!("run this by hand and try again: sudo {by_hand}"))?;
    }
    Ok(())
}

/// The words that must stand before a command that needs root, if there is a way.
fn privilege() -> Option<&'static [&'static str]> {
    let root = run_quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if root {
        return Some(&[]);
    }
    if run_quiet(Command::new("sudo").args(["-n", "true"])).is_ok() {
        return Some(&["sudo", "-n"]);
    }
    let may_ask = have("sudo") && std::io::stdin().is_terminal();
    // sudo reads the password from the terminal itself, not from standard input.
    may_ask.then_some(&["sudo"][..])
}

fn privileged(prefix: &[&str], command: &[&str]) -> Command {
    let mut words = prefix
        .iter()
        .chain(["env", "DEBIAN_FRONTEND=noninteractive"].iter())
        .chain(command);
    let mut built = Command::new(words.next().copied().unwrap_or("env"));
    built.args(words);
    built
}

/// bindgen looks in `LIBCLANG_PATH`, the linker's folders and LLVM's own.
fn have_libclang() -> bool {
    let mut folders: Vec<PathBuf> = std::env::var_os("LIBCLANG_PATH")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    for parent in ["/usr/lib", "/usr/local", "/opt/homebrew/opt"] {
        folders.push(Path::new(parent).to_owned());
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            folders.extend([entry.path(), entry.path().join("lib")]);
        }
    }
    folders.iter().any(|folder| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let rest = name.strip_prefix("libclang").unwrap_or_default();
                (rest.starts_with('-') || rest.starts_with('.'))
                    && (rest.contains(".so") || rest.contains(".dylib"))
            })
    })
}

/// The default build of llama.cpp uses these; without them the first token ends in an illegal instruction.
#[cfg(target_arch = "x86_64")]
fn require_cpu() -> anyhow::Result<()> {
    let features = [
        ("AVX2", std::arch::is_x86_feature_detected!("avx2")),
        ("FMA", std::arch::is_x86_feature_detected!("fma")),
        ("F16C", std::arch::is_x86_feature_detected!("f16c")),
        ("BMI2", std::arch::is_x86_feature_detected!("bmi2")),
    ];
    let missing: Vec<&str> = features
        .iter()
        .filter(|(_, has)| !has)
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        bail!(
            "this processor lacks {}, which the embedded engine needs",
            missing.join(", ")
        );
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn require_cpu() -> anyhow::Result<()> {
    Ok(())
}
