//! Files of Hugging Face repositories, over the hub's own HTTP interface.
//!
//! `HEAD` and `GET {endpoint}/{repo}/resolve/{revision}/{file}`: the first answer (before
//! any redirect) has `X-Linked-Etag`, the SHA-256 of large files, and `X-Linked-Size`; `GET`
//! takes `Range`. Source: the hub's documentation and the `hf-hub` and `huggingface_hub`
//! clients, read 2026-11. The `hf-hub` crate is not used: 1.0 brings a second transfer
//! protocol with a large tree of its own, and neither it nor 0.x continues a broken transfer
//! into a folder of ours or checks a pinned checksum.

use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LOCATION, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::ModelName;
use super::download::{Partial, PullEvent};
use super::table::Pin;
use crate::config::Environment;
use crate::http::{self, Body, HttpClient};
use crate::{ErrorKind, ProviderError};

const ENDPOINT: &str = "https://huggingface.co";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transfer may stall.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects followed: the hub sends large files from other hosts.
const MAX_REDIRECTS: usize = 5;

/// The hub's address and the user's token, which goes to that address only.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    endpoint: String,
    token: Option<SecretString>,
}

/// Reads `OWNER/REPO/PATH.gguf`.
pub(super) fn parse_name(rest: &str) -> Result<ModelName, ProviderError> {
    let fail = || {
        ProviderError::new(
            ErrorKind::BadRequest,
            format!("`hf:{rest}` is not of the form `hf:OWNER/REPO/FILE.gguf`"),
        )
        .with_param("model")
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    let mut parts = rest.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(owner), Some(repo), Some(file))
            if is_part(owner)
                && is_part(repo)
                && file.split('/').all(is_part)
                && file.ends_with(".gguf") =>
        {
            Ok(ModelName::Hub {
                repo: format!("{owner}/{repo}"),
                file: file.to_owned(),
            })
        }
        _ => Err(fail()),
    }
}

/// What the hub says of a file.
struct FileFacts {
    sha256: Option<String>,
    etag: Option<String>,
    n_bytes: Option<u64>,
}

impl Hub {
    pub(super) fn new(environment: &Environment) -> Self {
        let read = |name: &str| environment.get(name).map(|(value, _)| value.to_owned());
        let endpoint = read("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: read("HF_TOKEN").map(SecretString::from),
        }
    }

    /// Fetches one file to `target`, continuing a broken transfer of the same content.
    ///
    /// # Errors
    /// The hub cannot be reached or refuses, the transfer breaks or stalls, or the file is
    /// not the pinned one (found out before the transfer where the hub tells).
    pub(super) async fn fetch(
        &self,
        repo: &str,
        revision: &str,
        file: &str,
        pin: Option<Pin>,
        target: &Path,
        report: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<(), ProviderError> {
        let address = format!("{}/{repo}/resolve/{revision}/{file}", self.endpoint);
        let url = Url::parse(&address).map_err(|error| {
            ProviderError::new(
                ErrorKind::Config,
                format!("HF_ENDPOINT is no address: {error}"),
            )
        })?;
        let client = HttpClient::new(CONNECT_TIMEOUT)?;
        let facts = self.facts(&client, &url).await?;
        if let (Some(pin), Some(sha256)) = (pin, &facts.sha256)
            && *sha256 != pin.sha256
        {
            return Err(ProviderError::new(
                ErrorKind::Checksum,
                format!(
                    "the hub has another file: sha256 {sha256}, expected {}",
                    pin.sha256
                ),
            ));
        }
        let version = pin.map(|pin| pin.sha256.to_owned());
        let version = version
            .or(facts.sha256.clone())
            .or(facts.etag.clone())
            .unwrap_or_default();
        let mut partial = Partial::open(target, &version, pin)?;
        if facts.n_bytes != Some(partial.n_bytes()) || partial.n_bytes() == 0 {
            self.transfer(&client, &url, &facts, &mut partial, report)
                .await?;
        }
        if let Some(expected) = facts
            .n_bytes
            .filter(|expected| *expected != partial.n_bytes())
        {
            return Err(ProviderError::new(
                ErrorKind::StreamTruncated,
                format!(
                    "the transfer ended after {} of {expected} bytes; pulling again continues it",
                    partial.n_bytes()
                ),
            ));
        }
        partial.finish(facts.sha256.as_deref())
    }

    async fn facts(&self, client: &HttpClient, url: &Url) -> Result<FileFacts, ProviderError> {
        // Not followed: the headers that matter are those of the hub's own answer.
        let response = self.send(client, Method::HEAD, url, url, None).await?;
        if !response.status().is_success() && !response.status().is_redirection() {
            return Err(refused(url, response).await);
        }
        let headers = response.headers();
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, ETAG.as_str()));
        let etag = etag.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        let is_sha256 =
            |tag: &&String| tag.len() == 64 && tag.bytes().all(|b| b.is_ascii_hexdigit());
        let size = text(headers, "x-linked-size").or_else(|| {
            response
                .status()
                .is_success()
                .then(|| text(headers, "content-length"))
                .flatten()
        });
        Ok(FileFacts {
            sha256: etag
                .as_ref()
                .filter(is_sha256)
                .map(|tag| tag.to_lowercase()),
            etag,
            n_bytes: size.and_then(|size| size.parse().ok()),
        })
    }

    async fn transfer(
        &self,
        client: &HttpClient,
        url: &Url,
        facts: &FileFacts,
        partial: &mut Partial,
        report: &(dyn Fn(PullEvent) + Send + Sync),
    ) -> Result<(), ProviderError> {
        let from = Some(partial.n_bytes()).filter(|n| *n > 0);
        let response = self.follow(client, url, from).await?;
        let continues = response.status() == StatusCode::PARTIAL_CONTENT
            && text(response.headers(), CONTENT_RANGE.as_str())
                .is_some_and(|range| range.starts_with(&format!("bytes {}-", partial.n_bytes())));
        if !continues {
            // The server sends the file from its start.
            partial.restart()?;
        }
        report(PullEvent::Started {
            n_bytes: facts.n_bytes,
            resumed: partial.n_bytes(),
        });
        let mut body = Body::raw(response);
        loop {
            let chunk = tokio::time::timeout(STALL_TIMEOUT, body.chunk())
                .await
                .map_err(|_| {
                    let message = format!("the transfer stalled for {} s", STALL_TIMEOUT.as_secs());
                    ProviderError::new(ErrorKind::TimeoutIdle, message)
                })?;
            match chunk? {
                None => return Ok(()),
                Some(bytes) => {
                    partial.write(&bytes)?;
                    report(PullEvent::Received(bytes.len() as u64));
                }
            }
        }
    }

    /// A `GET` that follows redirects, the token left behind at the first other host.
    async fn follow(
        &self,
        client: &HttpClient,
        url: &Url,
        from: Option<u64>,
    ) -> Result<Response<Incoming>, ProviderError> {
        let mut at = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(client, Method::GET, url, &at, from).await?;
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && from.is_some() {
                return Box::pin(self.follow(client, url, None)).await;
            }
            if response.status().is_success() {
                return Ok(response);
            }
            let location = text(response.headers(), LOCATION.as_str())
                .filter(|_| response.status().is_redirection());
            let next = match location {
                Some(location) => at.join(&location).ok(),
                None => return Err(refused(&at, response).await),
            };
            at = next
                .filter(|next| matches!(next.scheme(), "http" | "https"))
                .filter(|next| next.scheme() == "https" || url.scheme() == "http")
                .ok_or_else(|| {
                    ProviderError::new(
                        ErrorKind::InvalidResponse,
                        "the hub redirects to no safe address",
                    )
                })?;
        }
        Err(ProviderError::new(
            ErrorKind::InvalidResponse,
            "the hub redirects too often",
        ))
    }

    async fn send(
        &self,
        client: &HttpClient,
        method: Method,
        hub: &Url,
        url: &Url,
        from: Option<u64>,
    ) -> Result<Response<Incoming>, ProviderError> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = http::uri(url)?;
        let headers = request.headers_mut();
        let is_hub = hub.origin() == url.origin();
        if let Some(token) = self.token.as_ref().filter(|_| is_hub) {
            headers.insert(AUTHORIZATION, bearer(token)?);
        }
        if let Some(from) = from {
            // Digits can stand in a header.
            let range = HeaderValue::from_str(&format!("bytes={from}-"));
            headers.extend(range.ok().map(|range| (RANGE, range)));
        }
        let sent = tokio::time::timeout(STALL_TIMEOUT, client.send(request)).await;
        let sent = sent.map_err(|_| {
            ProviderError::new(ErrorKind::TimeoutFirstToken, "the hub does not answer")
        })?;
        sent.map_err(|error| {
            let host = url.host_str().unwrap_or("?");
            ProviderError::new(error.kind(), format!("{} ({host})", error.message()))
        })
    }
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ProviderError> {
    let bearer = format!("Bearer {}", token.expose_secret());
    let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| {
        let message = "HF_TOKEN holds characters that no header can";
        ProviderError::new(ErrorKind::Config, message)
    })?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

async fn refused(url: &Url, response: Response<Incoming>) -> ProviderError {
    let status = response.status();
    let error = http::status_fault(response).await.0.into();
    let path = url.path();
    match status.as_u16() {
        404 => ProviderError::new(ErrorKind::NotFound, format!("the hub has no {path}"))
            .with_status(404),
        401 | 403 => ProviderError::new(
            ErrorKind::Auth,
            format!(
                "the hub gives {path} only to those who may have it; HF_TOKEN must hold a token"
            ),
        )
        .with_status(status.as_u16()),
        _ => error,
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}
