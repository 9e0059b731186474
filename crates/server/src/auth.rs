//! Keys: read once, kept as digests, compared in constant time.

use std::path::Path;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::Error;
use crate::api_error::{ApiError, ApiErrorKind};
use crate::caller::Caller;

/// Bytes of a keys file; a larger one is no keys file.
const KEYS_FILE_BYTES: u64 = 1 << 20;
/// Marks a line that holds a digest instead of the key.
const DIGEST_PREFIX: &str = "sha256:";

type KeyDigest = [u8; 32];

/// The keys that open the server. Only their SHA-256 digests are held.
#[derive(Clone)]
pub(crate) struct Keys {
    digests: Vec<KeyDigest>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.digests.len())
    }
}

impl Keys {
    /// Reads a keys file (see [`crate::ServerOptions::keys_file`]).
    ///
    /// # Errors
    /// The file cannot be read, is too large, holds no key, or a line is neither a key nor
    /// a digest. Errors name the line, never its text.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let meta = std::fs::metadata(path)
            .map_err(|e| Error::io(format!("cannot read keys_file `{shown}`"), e))?;
        if meta.len() > KEYS_FILE_BYTES {
            return Err(Error::config(format!(
                "keys_file `{shown}` holds {} bytes, allowed: {KEYS_FILE_BYTES}",
                meta.len()
            )));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("cannot read keys_file `{shown}`"), e))?;
        let keys = Self::parse(&text)
            .map_err(|message| Error::config(format!("keys_file `{shown}`: {message}")))?;
        if keys.digests.is_empty() {
            return Err(Error::config(format!("keys_file `{shown}` holds no key")));
        }
        Ok(keys)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut digests = Vec::new();
        for (idx, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return Err(format!(
                    "line {}: a key holds no blanks, one key per line",
                    idx + 1
                ));
            }
            digests.push(match line.strip_prefix(DIGEST_PREFIX) {
                Some(hex) => digest_from_hex(hex).ok_or_else(|| {
                    format!("line {}: `{DIGEST_PREFIX}` needs 64 hex digits", idx + 1)
                })?,
                None => digest(line.as_bytes()),
            });
        }
        Ok(Self { digests })
    }

    /// True if this is one of the keys. The time does not depend on which, nor on how much
    /// of it is right: digests are compared, all of them, in constant time.
    fn allow(&self, presented: &[u8]) -> bool {
        let presented = digest(presented);
        let any = self
            .digests
            .iter()
            .fold(Choice::from(0), |any, known| any | known.ct_eq(&presented));
        any.into()
    }
}

/// Answers 401 unless the request carries a key, as `Authorization: Bearer` or `x-api-key`.
pub(crate) async fn require_key(keys: &Keys, mut request: Request, next: Next) -> Response {
    let Some(presented) = presented_key(request.headers()) else {
        return refuse("a key is needed: `Authorization: Bearer KEY` or `x-api-key: KEY`");
    };
    if !keys.allow(presented) {
        return refuse("the key is not known");
    }
    let caller = Caller::of_key(&digest(presented));
    request.extensions_mut().insert(caller);
    next.run(request).await
}

fn refuse(message: &str) -> Response {
    let mut response = ApiError::new(ApiErrorKind::Unauthorized, message).into_response();
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        header::HeaderValue::from_static("Bearer"),
    );
    response
}

fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked(7)?;
        return scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii());
    }
    headers
        .get("x-api-key")
        .map(|value| value.as_bytes().trim_ascii())
}

fn digest(key: &[u8]) -> KeyDigest {
    Sha256::digest(key).into()
}

fn digest_from_hex(hex: &str) -> Option<KeyDigest> {
    let hex = hex.as_bytes();
    if hex.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_digests_open_and_nothing_else() {
        // The digest is `printf other | sha256sum`.
        let text = "# the team\n\n  first-key  \nsha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa\n";
        let keys = Keys::parse(text).unwrap();
        for (presented, allowed) in [
            ("first-key", true),
            ("other", true),
            ("first-ke", false),
            ("first-key ", false),
            ("# the team", false),
            ("", false),
            (
                "sha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
                false,
            ),
        ] {
            assert_eq!(keys.allow(presented.as_bytes()), allowed, "{presented}");
        }
    }

    #[test]
    fn faulty_lines_are_named_and_not_shown() {
        for (text, expect) in [
            ("a b", "line 1: a key holds no blanks, one key per line"),
            ("ok\nsha256:12", "line 2: `sha256:` needs 64 hex digits"),
            (
                &format!("sha256:{}", "g".repeat(64)),
                "line 1: `sha256:` needs 64 hex digits",
            ),
            (
                &format!("sha256:{}", "é".repeat(32)),
                "line 1: `sha256:` needs 64 hex digits",
            ),
        ] {
            assert_eq!(Keys::parse(text).err().as_deref(), Some(expect));
        }
    }

    #[test]
    fn the_key_is_read_from_both_headers() {
        for (name, value, expect) in [
            ("authorization", "Bearer k", Some("k")),
            ("authorization", "bearer  k ", Some("k")),
            ("authorization", "Basic k", None),
            ("authorization", "Bearer", None),
            ("authorization", "", None),
            ("x-api-key", "k", Some("k")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(
                presented_key(&headers),
                expect.map(str::as_bytes),
                "{name}: {value}"
            );
        }
        assert_eq!(presented_key(&HeaderMap::new()), None);
    }
}
