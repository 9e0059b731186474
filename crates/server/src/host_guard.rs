//! Refuses requests that a web page on a foreign name sends to an open loopback server.
//!
//! A server without keys trusts whoever reaches it on loopback. A browser on the same
//! machine can be led there by a page whose name resolves to 127.0.0.1 (DNS rebinding); its
//! requests then carry that name as `Host`. Requests from other sites (`Origin`) cannot send
//! JSON without a preflight, which is answered only to those of `cors_origins`.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

use crate::api_error::{ApiError, ApiErrorKind};

/// # Errors
/// 403: the request names a host that is no address and no `localhost`.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = match headers.get(header::HOST) {
        Some(value) => value.to_str().unwrap_or("?"),
        None => "localhost",
    };
    if is_local_name(host) {
        return Ok(());
    }
    Err(ApiError::new(
        ApiErrorKind::Forbidden,
        "without keys only `localhost` and IP addresses are served as host names; \
         set `keys_file` to serve under a name",
    ))
}

fn is_local_name(host: &str) -> bool {
    let name = if let Some(rest) = host.strip_prefix('[') {
        rest.split(']').next().unwrap_or_default()
    } else {
        host.split(':').next().unwrap_or_default()
    };
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_local_name;

    #[test]
    fn foreign_names_are_told_from_local_ones() {
        for (host, local) in [
            ("localhost", true),
            ("LocalHost:8001", true),
            ("twopass.localhost:80", true),
            ("127.0.0.1:8001", true),
            ("[::1]:8001", true),
            ("10.0.0.7", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:8001", false),
            ("evillocalhost", false),
            ("?", false),
            ("", false),
        ] {
            assert_eq!(is_local_name(host), local, "{host}");
        }
    }
}
