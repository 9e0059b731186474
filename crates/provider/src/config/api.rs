//! How an entry's service is reached: `api_config`.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use url::Url;

use super::addresses::{base_urls, find_key};
use super::environment::Environment;
use super::keys::KeyRequest;
use super::node::{Node, NodeKind};
use super::origin::Origin;
use super::section::{Section, Source, number};
use super::types::{ApiConfig, BackendKind, ProviderConfig, Timeouts};
use crate::ProviderError;
use crate::preset::{PRESETS, Preset};

/// Reads the `api_config` of an entry.
///
/// # Errors
/// Names the key, its value and what is allowed.
pub(super) fn api(
    source: &mut Source,
    path: &str,
    node: &Node,
    entry: &ProviderConfig,
    environment: &Environment,
) -> Result<ApiConfig, ProviderError> {
    let backend = entry.backend;
    let mut section = Section::open(source, path, node)?;
    let place = section.place();
    let base_urls = base_urls(source, &mut section)?;
    let base_url = match section.node("base_url") {
        None => base_urls.first().cloned(),
        Some(node) => {
            let NodeKind::Text(text) = &node.kind else {
                return Err(section.fault(source, "base_url", node, "an address"));
            };
            let key = section.path_of("base_url");
            source
                .origins
                .note(key.clone(), Origin::file(&source.file, node.place.line));
            Some(base_url(text).map_err(|message| source.error(node.place, &key, message))?)
        }
    };
    let base_url = match base_url.or_else(|| default_base_url(backend, entry.preset)) {
        None if backend != BackendKind::Embedded => {
            let whose = match entry.preset {
                Some(preset) => format!("the preset `{preset}`"),
                None => format!("`{backend}`"),
            };
            let message = format!("is missing: {whose} needs the server's address");
            return Err(source.error(place, &format!("{path}.base_url"), message));
        }
        url => url,
    };
    let api_key_env = section.text(source, "api_key_env")?;
    let api_key = section.read(source, "api_key", "text", |kind| match kind {
        NodeKind::Text(text) => Some(text.clone()),
        _ => None,
    })?;
    let no_auth = section
        .one_of(source, "auth", &[("key", false), ("none", true)])?
        .unwrap_or(false);
    let fallback = section
        .boolean(source, "allow_openai_key_fallback")?
        .unwrap_or(false);
    let timeouts = timeouts(source, &mut section, backend)?;
    let max_retries = section.whole(source, "max_retries", 0, 100)?;
    let headers = headers(source, &mut section)?;
    section.finish(source)?;
    let found = find_key(
        &KeyRequest {
            backend,
            base_url: base_url.as_ref(),
            api_key_env: api_key_env.as_deref(),
            api_key: api_key.as_deref(),
            no_auth,
            allow_openai_key_fallback: fallback,
        },
        &base_urls,
        environment,
    );
    Ok(ApiConfig {
        base_url,
        base_urls,
        api_key: found.key,
        api_key_origin: found.origin,
        key_fault: found.fault,
        timeouts,
        headers,
        max_retries: max_retries.and_then(|n| u32::try_from(n).ok()).unwrap_or(3),
    })
}

/// An address as it may stand in the file.
pub(super) fn base_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    // A URL parser drops these, which makes another address of what was written.
    if text.contains(char::is_control) {
        return Err("must not hold line ends, tabs or other control characters".to_owned());
    }
    // Read as a URL, `localhost:8001` has the scheme `localhost`.
    if let Some(whole) = with_scheme(text) {
        return Err(format!(
            "must begin with `http://` or `https://`, got `{text}`, did you mean `{whole}`?"
        ));
    }
    let url = Url::parse(text).map_err(|error| format!("is no address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!(
            "must be an http or https address, got a `{}` one",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password, use `api_key_env`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not hold a query or fragment".to_owned());
    }
    Ok(url)
}

/// The address that a host without a scheme most likely stands for.
fn with_scheme(text: &str) -> Option<String> {
    if text.contains("://") || text.contains('@') {
        return None;
    }
    let whole = format!("http://{text}");
    let url = Url::parse(&whole).ok()?;
    url.host_str()
        .is_some_and(|host| !host.is_empty())
        .then_some(whole)
}

/// The address of the preset, else that of the format's own service.
pub(super) fn default_base_url(backend: BackendKind, preset: Option<&str>) -> Option<Url> {
    let row = match preset {
        Some(name) => Preset::from_name(name),
        None => PRESETS.iter().find(|row| row.backend == backend),
    };
    Url::parse(row?.base_url?).ok()
}

/// Further headers, name and value; values may be secrets.
pub(super) fn headers(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Vec<(String, SecretString)>, ProviderError> {
    let path = section.path_of("headers");
    let Some(node) = section.node("headers") else {
        return Ok(Vec::new());
    };
    let wrong = |section: &Section<'_>, source: &Source| {
        section.fault(source, "headers", node, "a map of header names and texts")
    };
    let NodeKind::Map(entries) = &node.kind else {
        return Err(wrong(section, source));
    };
    let mut headers = Vec::new();
    for (name, place, value) in entries {
        let NodeKind::Text(value) = &value.kind else {
            return Err(wrong(section, source));
        };
        let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
        if !is_name || HeaderValue::from_str(value).is_err() {
            let message = "holds characters that no header may carry";
            return Err(source.error(*place, &format!("{path}.{name}"), message));
        }
        headers.push((name.clone(), SecretString::from(value.as_str())));
    }
    source
        .origins
        .note(path, Origin::file(&source.file, node.place.line));
    Ok(headers)
}

fn timeouts(
    source: &mut Source,
    section: &mut Section<'_>,
    backend: BackendKind,
) -> Result<Timeouts, ProviderError> {
    let mut timeouts = Timeouts::default();
    if backend != BackendKind::VllmNative {
        timeouts.total = Duration::from_secs(120);
        timeouts.first_token = Duration::from_secs(120);
    }
    let path = section.path_of("timeout_s");
    let Some(node) = section.node("timeout_s") else {
        return Ok(timeouts);
    };
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
    if let Some(value) = number(&node.kind) {
        let total = Some(value).filter(|value| *value > 0.0).and_then(seconds);
        timeouts.total = total.ok_or_else(|| {
            section.fault(source, "timeout_s", node, "a number of seconds above 0")
        })?;
        timeouts.first_token = timeouts.total;
        source
            .origins
            .note(path, Origin::file(&source.file, node.place.line));
        return Ok(timeouts);
    }
    let mut inner = Section::open(source, &path, node)?;
    for (name, slot) in [
        ("connect", &mut timeouts.connect),
        ("first_token", &mut timeouts.first_token),
        ("idle", &mut timeouts.idle),
        ("total", &mut timeouts.total),
    ] {
        if let Some(value) = inner.number(source, name, 0.001, 1e9)?.and_then(seconds) {
            *slot = value;
        }
    }
    inner.finish(source)?;
    Ok(timeouts)
}
