//! Addresses and headers of a configured entry (rows A6, A7, A12, L12, case rule 24).

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::backend::Endpoint;
use crate::config::{BackendKind, ProviderConfig};
use crate::http;
use crate::{ErrorKind, ProviderError};

/// The version of Anthropic's API that we speak.
const ANTHROPIC_VERSION: &str = "2023-06-01";

impl ProviderConfig {
    /// Where turns are asked for; `None` for the embedded engine and without an address.
    ///
    /// A base address without a path gets `/v1`, any other path is kept, and an address that
    /// names the endpoint already is taken as it is. Ollama's and the native server's own
    /// endpoints do not stand below `/v1`.
    #[must_use]
    pub fn turn_url(&self) -> Option<Url> {
        let base = self.api.base_url.as_ref()?;
        Some(match self.backend {
            BackendKind::OpenAi => below(base, "/v1", "chat/completions"),
            BackendKind::OpenAiResponses => below(base, "/v1", "responses"),
            BackendKind::Anthropic => below(base, "/v1", "messages"),
            BackendKind::Completions => below(base, "/v1", "completions"),
            BackendKind::Ollama => below(&without_v1(base), "", "api/chat"),
            BackendKind::VllmNative => below(&without_v1(base), "", "generate"),
            BackendKind::Embedded => return None,
        })
    }

    /// Where a turn is asked for that goes on after a last assistant message. Some services
    /// take the flag for it at an address of its own, on their own host.
    #[must_use]
    pub fn continue_url(&self) -> Option<Url> {
        let preset = self.preset();
        let base = self.api.base_url.as_ref()?;
        let Some(path) = preset.continue_below.filter(|_| preset.is_at(base)) else {
            return self.turn_url();
        };
        let mut base = base.clone();
        base.set_path(path);
        Some(below(&base, path, "chat/completions"))
    }

    /// Where vectors are asked for.
    #[must_use]
    pub fn embeddings_url(&self) -> Option<Url> {
        self.openai_url("embeddings")
    }

    /// Where the models are listed.
    #[must_use]
    pub fn models_url(&self) -> Option<Url> {
        self.openai_url("models")
    }

    fn openai_url(&self, path: &str) -> Option<Url> {
        let base = self.api.base_url.as_ref()?;
        // Given as the turn's own address, it is the folder of that one.
        let turn = self.turn_url()?;
        let base = match base.path().trim_end_matches('/') == turn.path() {
            true => turn.join("..").ok()?,
            false => base.clone(),
        };
        Some(below(&base, "/v1", path))
    }

    /// The headers of every request, names in lower case: the key and what the format
    /// demands, then the configured ones. They go to the entry's own host only.
    #[must_use]
    pub fn request_headers(&self) -> Vec<(String, SecretString)> {
        let mut headers = Vec::new();
        let is_anthropic = self.backend == BackendKind::Anthropic;
        if let Some(key) = &self.api.api_key {
            let key = key.expose_secret();
            headers.push(if is_anthropic {
                ("x-api-key".to_owned(), SecretString::from(key))
            } else {
                let bearer = format!("Bearer {key}");
                ("authorization".to_owned(), SecretString::from(bearer))
            });
        }
        if is_anthropic {
            let version = SecretString::from(ANTHROPIC_VERSION);
            headers.push(("anthropic-version".to_owned(), version));
        }
        for (name, value) in &self.api.headers {
            let name = name.to_ascii_lowercase();
            headers.retain(|(known, _)| *known != name);
            headers.push((name, value.clone()));
        }
        headers
    }
}

/// The connection pool of an entry. Opens no connection.
pub(crate) fn connect(config: &ProviderConfig) -> Result<Endpoint, ProviderError> {
    let mut headers = HeaderMap::new();
    for (name, value) in config.request_headers() {
        let bad = |what: &str| {
            ProviderError::new(
                ErrorKind::Config,
                format!(
                    "the header `{name}` cannot be sent: its {what} holds forbidden characters"
                ),
            )
            .with_param("api_config.headers")
        };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Endpoint::new(headers, &config.api)
}

/// [`turn_url`] as requests carry it.
pub(crate) fn turn_uri(config: &ProviderConfig) -> Result<Uri, ProviderError> {
    http::uri(&turn_url(config)?)
}

/// The address of an entry's turns.
pub(crate) fn turn_url(config: &ProviderConfig) -> Result<Url, ProviderError> {
    config.turn_url().ok_or_else(|| {
        ProviderError::new(
            ErrorKind::Config,
            format!(
                "`api_config.base_url` is missing: `{}` needs the server's address",
                config.backend
            ),
        )
        .with_param("api_config.base_url")
    })
}

fn below(base: &Url, default_path: &str, endpoint: &str) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = match path.strip_suffix(endpoint) {
        // It names the endpoint.
        Some(above) if above.ends_with('/') => above.trim_end_matches('/'),
        _ if path.is_empty() => default_path,
        _ => path,
    };
    url.set_path(&format!("{path}/{endpoint}"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The base without a final `/v1`, which only OpenAI's endpoints have.
fn without_v1(base: &Url) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    url.set_path(path);
    url
}
