//! Where the configuration is, and what goes over it.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::node;
use super::origin::Origin;
use super::overrides::Overrides;
use super::read;
use super::section::Source;
use super::types::Config;
use crate::{ErrorKind, ProviderError};

/// The name of the configuration file.
const FILE_NAME: &str = "twopass.yaml";
/// The most bytes of a configuration file.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// What a caller says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The file; `None` = `$TWOPASS_CONFIG`, then `twopass.yaml` in the working folder, then
    /// the one in the user's configuration folder, then none.
    pub path: Option<PathBuf>,
    /// The folder to look in; `None` = the working folder.
    pub working_folder: Option<PathBuf>,
    /// The entry to use where none is named (flag `--provider`).
    pub provider: Option<String>,
    /// The model of that entry (flag `--model`).
    pub model: Option<String>,
    /// The variables.
    pub environment: Environment,
}

impl Config {
    /// Reads the configuration with this process's environment. Without any file: the
    /// embedded engine with its default model.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: a file that was named is missing, or a key or value of it
    /// or of the environment is wrong.
    pub fn load(path: Option<&Path>) -> Result<Self, ProviderError> {
        Self::load_with(LoadOptions {
            path: path.map(Path::to_path_buf),
            environment: Environment::of_process(),
            ..LoadOptions::default()
        })
    }

    /// [`Config::load`] with everything said.
    ///
    /// # Errors
    /// The same.
    pub fn load_with(mut options: LoadOptions) -> Result<Self, ProviderError> {
        let file = find_file(&options)?;
        let (text, shown, folder) = match &file {
            Some(path) => {
                let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
                (read_file(path)?, path.display().to_string(), folder)
            }
            None => {
                let folder = options
                    .working_folder
                    .clone()
                    .unwrap_or_else(|| PathBuf::from("."));
                (String::new(), "no configuration file".to_owned(), folder)
            }
        };
        options.environment.read_dot_env(&folder.join(".env"))?;
        Self::from_text(&text, file, &shown, folder, options)
    }

    /// Reads configuration text as if it stood in `shown`.
    ///
    /// # Errors
    /// The same as [`Config::load`], save for missing files.
    pub fn parse(text: &str, shown: &str, environment: Environment) -> Result<Self, ProviderError> {
        let options = LoadOptions {
            environment,
            ..LoadOptions::default()
        };
        Self::from_text(
            text,
            Some(PathBuf::from(shown)),
            shown,
            PathBuf::from("."),
            options,
        )
    }

    fn from_text(
        text: &str,
        file: Option<PathBuf>,
        shown: &str,
        folder: PathBuf,
        options: LoadOptions,
    ) -> Result<Self, ProviderError> {
        let mut source = Source {
            file: shown.to_owned(),
            folder,
            origins: Default::default(),
            dialects: Vec::new(),
        };
        let root =
            node::parse(text).map_err(|(place, message)| source.error(place, "", message))?;
        let flag =
            |value: Option<String>, name: &str| value.map(|v| (v, Origin::Flag(name.to_owned())));
        let overrides = Overrides {
            provider: flag(options.provider, "--provider"),
            model: flag(options.model, "--model"),
            base_url: None,
        };
        let overrides = overrides.or_environment(&options.environment);
        let mut config = read::config(&mut source, &root, overrides, options.environment)?;
        config.file = file;
        config.origins = source.origins;
        config.dialect_rows = source.dialects;
        Ok(config)
    }
}

fn find_file(options: &LoadOptions) -> Result<Option<PathBuf>, ProviderError> {
    if let Some(path) = &options.path {
        return must_exist(path.clone(), "--config");
    }
    if let Some((path, _)) = options.environment.get("TWOPASS_CONFIG") {
        return must_exist(PathBuf::from(path), "TWOPASS_CONFIG");
    }
    let here = match &options.working_folder {
        Some(folder) => folder.join(FILE_NAME),
        None => PathBuf::from(FILE_NAME),
    };
    let user = options
        .environment
        .config_folder()
        .map(|folder| folder.join(FILE_NAME));
    Ok([Some(here), user]
        .into_iter()
        .flatten()
        .find(|path| path.is_file()))
}

fn must_exist(path: PathBuf, said_by: &str) -> Result<Option<PathBuf>, ProviderError> {
    if path.is_file() {
        return Ok(Some(path));
    }
    let what = if path.exists() {
        "is not a file"
    } else {
        "does not exist"
    };
    Err(ProviderError::new(
        ErrorKind::Config,
        format!(
            "the configuration file {} {what} (named by {said_by})",
            path.display()
        ),
    ))
}

fn read_file(path: &Path) -> Result<String, ProviderError> {
    let fail = |message: String| {
        ProviderError::new(ErrorKind::Config, format!("{}: {message}", path.display()))
    };
    let size = std::fs::metadata(path)
        .map_err(|e| fail(format!("cannot be read: {e}")))?
        .len();
    if size > MAX_FILE_BYTES {
        return Err(fail(format!("is larger than {MAX_FILE_BYTES} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
    String::from_utf8(bytes).map_err(|e| {
        fail(format!(
            "is not UTF-8 at byte {}",
            e.utf8_error().valid_up_to()
        ))
    })
}
