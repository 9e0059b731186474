use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::origin::Origin;
use crate::{ErrorKind, ProviderError};

/// The variables that configuration may read: the process's, then those of a `.env` file.
///
/// Tests give their own; nothing else in the crate reads the process's environment.
#[derive(Clone, Default)]
pub struct Environment {
    process: BTreeMap<String, String>,
    dot_env: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process. Values that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        // The one place of the crate that reads the environment.
        Self {
            process: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            dot_env: BTreeMap::new(),
        }
    }

    /// These variables and no others.
    #[must_use]
    pub fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            process: pairs
                .into_iter()
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .collect(),
            dot_env: BTreeMap::new(),
        }
    }

    /// A variable that is set to more than white space, and where it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&str, Origin)> {
        let set = |value: &&String| !value.trim().is_empty();
        if let Some(value) = self.process.get(name).filter(set) {
            return Some((value.trim(), Origin::Env(name.to_owned())));
        }
        let value = self.dot_env.get(name).filter(set)?;
        Some((value.trim(), Origin::DotEnv(name.to_owned())))
    }

    /// The first of these variables that is set.
    pub(super) fn first(&self, names: &[&str]) -> Option<(&str, Origin)> {
        names.iter().find_map(|name| self.get(name))
    }

    /// The user's folder for configuration files.
    pub(super) fn config_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config")
    }

    /// The user's folder for data files, `twopass` included.
    #[must_use]
    pub fn data_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME", ".local/share")
    }

    fn folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let base = match self.get(variable) {
            // Relative values are to be ignored, says the XDG specification.
            Some((path, _)) if Path::new(path).is_absolute() => PathBuf::from(path),
            _ => Path::new(self.get("HOME")?.0).join(below_home),
        };
        Some(base.join("twopass"))
    }

    /// Reads a `.env` file; a missing one is none.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not `NAME=value`. Values are never shown.
    pub(super) fn read_dot_env(&mut self, path: &Path) -> Result<(), ProviderError> {
        let text = match read_small(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return Err(ProviderError::new(ErrorKind::Config, message).with_source(error));
            }
        };
        for (idx, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = parse_line(line).ok_or_else(|| {
                ProviderError::new(
                    ErrorKind::Config,
                    format!("{}:{}: not `NAME=value`", path.display(), idx + 1),
                )
            })?;
            self.dot_env.insert(name, value);
        }
        Ok(())
    }
}

/// Reads a regular file of at most 1 MiB; a mark of byte order in front is dropped.
fn read_small(path: &Path) -> std::io::Result<String> {
    const MAX_BYTES: u64 = 1 << 20;
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        let message = format!("not a regular file of at most {MAX_BYTES} bytes");
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            message,
        ));
    }
    let text = std::fs::read_to_string(path)?;
    Ok(text
        .strip_prefix('\u{feff}')
        .map_or(text.clone(), str::to_owned))
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be keys.
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

/// `export NAME="value" # comment`, the quotes single, double or none.
fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return None;
    }
    let value = value.trim();
    let value = match value.chars().next() {
        Some('\'') => value[1..].split_once('\'')?.0.to_owned(),
        Some('"') => unescape(&value[1..])?,
        _ => value
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
    };
    Some((name.to_owned(), value))
}

/// The text up to the closing double quote.
fn unescape(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}
