//! Which key goes to which host (rows A6, A7, A12-A14, X14).

use secrecy::SecretString;
use url::{Host, Url};

use super::api::default_base_url;
use super::environment::Environment;
use super::types::{BackendKind, ProviderConfig};
use crate::preset::PRESETS;

/// What is known of an entry when its key is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyRequest<'a> {
    pub(super) backend: BackendKind,
    pub(super) base_url: Option<&'a Url>,
    /// The variable that the entry names.
    pub(super) api_key_env: Option<&'a str>,
    /// The key that stands in the file.
    pub(super) api_key: Option<&'a str>,
    /// `auth: none`.
    pub(super) no_auth: bool,
    pub(super) allow_openai_key_fallback: bool,
}

/// A key, where it came from, or why it is missing.
#[derive(Debug, Default)]
pub(super) struct FoundKey {
    pub(super) key: Option<SecretString>,
    pub(super) origin: Option<String>,
    pub(super) fault: Option<String>,
}

const OPENAI_HOST: &str = "api.openai.com";
const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// Looks for the key: the entry's variable, the host's own variable, `OPENAI_API_KEY` (for
/// OpenAI's host, or where it is allowed), then the file.
pub(super) fn find_key(request: &KeyRequest<'_>, environment: &Environment) -> FoundKey {
    let Some(url) = request.base_url else {
        return FoundKey::default();
    };
    if request.no_auth || request.backend == BackendKind::Embedded {
        return FoundKey::default();
    }
    let mut at_home = PRESETS.iter().filter(|row| row.is_at(url));
    let own = at_home.find_map(|row| row.key_env);
    let openai =
        (is_host(url, OPENAI_HOST) || request.allow_openai_key_fallback).then_some(OPENAI_KEY);
    for name in [request.api_key_env, own, openai].into_iter().flatten() {
        if let Some((value, origin)) = environment.get(name) {
            return check(value, origin.to_string());
        }
    }
    if let Some(value) = request
        .api_key
        .map(str::trim)
        .filter(|value| !value.is_empty())
    {
        return check(value, "the file".to_owned());
    }
    if is_local(url) {
        return FoundKey::default();
    }
    FoundKey {
        fault: Some(missing(request, url, own, environment)),
        ..FoundKey::default()
    }
}

impl ProviderConfig {
    /// OpenAI's own service with its key; `None` without the key (row J10).
    pub(crate) fn openai_service(environment: &Environment) -> Option<Self> {
        let backend = BackendKind::OpenAi;
        let mut entry = Self::with_defaults("openai", backend, "");
        entry.api.base_url = default_base_url(backend, None);
        let request = KeyRequest {
            backend,
            base_url: entry.api.base_url.as_ref(),
            api_key_env: None,
            api_key: None,
            no_auth: false,
            allow_openai_key_fallback: false,
        };
        let found = find_key(&request, environment);
        entry.api.api_key = Some(found.key?);
        Some(entry)
    }
}

fn check(value: &str, origin: String) -> FoundKey {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return FoundKey {
            key: Some(SecretString::from(value)),
            origin: Some(origin),
            fault: None,
        };
    }
    FoundKey {
        fault: Some(format!(
            "the key from {origin} holds characters that no header may carry"
        )),
        ..FoundKey::default()
    }
}

fn missing(
    request: &KeyRequest<'_>,
    url: &Url,
    own: Option<&str>,
    environment: &Environment,
) -> String {
    let host = url.host_str().unwrap_or_default();
    let mut text = match (request.api_key_env, own) {
        (Some(name), _) => {
            format!("no key for {host}: `api_config.api_key_env` names {name}, which is not set")
        }
        (None, Some(name)) => format!("no key for {host}: {name} is not set"),
        (None, None) => format!(
            "no key for {host}: `api_config.api_key_env` must name the variable that holds it, \
             or `api_config.auth: none` must say that none is needed"
        ),
    };
    if environment.get(OPENAI_KEY).is_some() && !is_host(url, OPENAI_HOST) {
        text.push_str(
            "; OPENAI_API_KEY is set, but goes to api.openai.com only unless \
             `api_config.allow_openai_key_fallback: true`",
        );
    }
    text
}

/// True if the parsed host is this one, letter case aside.
fn is_host(url: &Url, host: &str) -> bool {
    url.host_str()
        .is_some_and(|given| given.eq_ignore_ascii_case(host))
}

/// True for addresses of this machine, by the parsed host (row A7).
pub(super) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
