use std::collections::BTreeMap;
use std::fmt;

/// Where a value of the configuration came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said: the built-in default.
    Default,
    /// The configuration file.
    File {
        /// The file as it was named.
        file: String,
        /// The line, from 1; 0 = unknown.
        line: u64,
    },
    /// An environment variable.
    Env(String),
    /// A variable of the `.env` file beside the configuration.
    DotEnv(String),
    /// A flag of the command line.
    Flag(String),
}

impl Origin {
    pub(super) fn file(file: &str, line: u64) -> Self {
        Self::File {
            file: file.to_owned(),
            line,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line: 0 } => f.write_str(file),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::DotEnv(name) => write!(f, ".env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The origins of all values that are not defaults, by full key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    pub(super) fn note(&mut self, key: String, origin: Origin) {
        self.0.insert(key, origin);
    }

    /// Where the value of this full key (`providers[0].model_name`) came from.
    #[must_use]
    pub fn of(&self, key: &str) -> &Origin {
        self.0.get(key).unwrap_or(&Origin::Default)
    }
}
