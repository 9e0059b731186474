//! Where an entry's requests may go: `base_urls`, one service on several servers, and
//! `fallbacks`, other entries.

use url::Url;

use super::api::base_url;
use super::environment::Environment;
use super::keys::{self, FoundKey, KeyRequest};
use super::node::{Node, NodeKind};
use super::origin::Origin;

use super::section::{Section, Source, suggestion};
use super::types::ProviderConfig;
use crate::ProviderError;

/// Servers of one entry.
const SERVERS_MAX: usize = 64;

/// Reads `base_urls`: the same service on several servers. Empty if it is not there.
pub(super) fn base_urls(
    source: &mut Source,
    section: &mut Section<'_>,
) -> Result<Vec<Url>, ProviderError> {
    let key = section.path_of("base_urls");
    let Some(node) = section.node("base_urls") else {
        return Ok(Vec::new());
    };
    if section.place_of("base_url").is_some() {
        let message = "and `base_url` exclude each other, remove one of them";
        return Err(source.error(node.place, &key, message));
    }
    let items = match &node.kind {
        NodeKind::List(items) if (1..=SERVERS_MAX).contains(&items.len()) => items,
        _ => {
            let allowed = format!("a list of 1 to {SERVERS_MAX} addresses");
            return Err(section.fault(source, "base_urls", node, &allowed));
        }
    };
    let mut urls: Vec<Url> = Vec::new();
    for item in items {
        let fault = |message: String| source.error(item.place, &key, message);
        let NodeKind::Text(text) = &item.kind else {
            return Err(fault(format!(
                "must hold addresses, got {}",
                item.kind.brief()
            )));
        };
        let url = base_url(text).map_err(fault)?;
        if urls.contains(&url) {
            return Err(fault(format!("names `{text}` twice")));
        }
        // Every address of the entry is made from the first one's path.
        if let Some(first) = urls.first().filter(|first| first.path() != url.path()) {
            return Err(fault(format!(
                "may differ in scheme, host and port only, got the paths `{}` and `{}`",
                first.path(),
                url.path()
            )));
        }
        urls.push(url);
    }
    source
        .origins
        .note(key, Origin::file(&source.file, node.place.line));
    Ok(urls)
}

/// The one key of all these servers. A key that is a host's own goes to that host only.
pub(super) fn find_key(
    request: &KeyRequest<'_>,
    base_urls: &[Url],
    environment: &Environment,
) -> FoundKey {
    let first = keys::find_key(request, environment);
    for url in base_urls.iter().skip(1) {
        let other = keys::find_key(
            &KeyRequest {
                base_url: Some(url),
                ..*request
            },
            environment,
        );
        if other.fault.is_some() {
            return other;
        }
        if first.fault.is_none() && other.origin != first.origin {
            let host = |url: Option<&Url>| url.and_then(Url::host_str).unwrap_or("?").to_owned();
            let whose = |found: &FoundKey| found.origin.clone().unwrap_or("no key".to_owned());
            let fault = format!(
                "`api_config.base_urls` must share one key, named by `api_config.api_key_env`: \
                 {} has {}, {} has {}",
                host(request.base_url),
                whose(&first),
                host(Some(url)),
                whose(&other),
            );
            return FoundKey {
                fault: Some(fault),
                ..FoundKey::default()
            };
        }
    }
    first
}

/// Checks that the `fallbacks` of these entries, read from `items`, name others of them, each
/// once.
pub(super) fn check_fallbacks(
    source: &Source,
    items: &[Node],
    entries: &[ProviderConfig],
) -> Result<(), ProviderError> {
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    for (idx, (item, entry)) in items.iter().zip(entries).enumerate() {
        let place = item
            .kind
            .get("fallbacks")
            .map_or(item.place, |node| node.place);
        for (n, name) in entry.fallbacks.iter().enumerate() {
            let message = if *name == entry.name {
                format!("must name other providers, got the entry's own name `{name}`")
            } else if entry.fallbacks[..n].contains(name) {
                format!("names `{name}` twice")
            } else if !names.contains(&name.as_str()) {
                let hint = suggestion(name, &names);
                let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                let known = known.join(", ");
                format!("unknown provider `{name}`{hint}; configured: {known}")
            } else {
                continue;
            };
            let key = format!("providers[{idx}].fallbacks");
            return Err(source.error(place, &key, message));
        }
    }
    Ok(())
}
