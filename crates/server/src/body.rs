//! Request bodies: JSON only, bounded in size, time and total.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use twopass_provider::ErrorKind;

use crate::Limits;
use crate::api_error::{ApiError, ApiErrorKind};

/// A client that sends too much is read on for so long, and so many bytes, unkept: one that
/// writes all before it reads would otherwise see a reset instead of the 413.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 << 20;

/// What reading bodies needs: the limits, and the bytes that all bodies hold now.
#[derive(Debug, Clone)]
pub(crate) struct BodyLimits {
    one_bytes: usize,
    all_bytes: usize,
    timeout: Duration,
    held: Arc<AtomicUsize>,
}

impl BodyLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            one_bytes: limits.body_bytes,
            all_bytes: limits.bodies_bytes,
            timeout: limits.body_timeout,
            held: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn too_large(&self) -> ApiError {
        ApiError::new(
            ApiErrorKind::BodyTooLarge,
            format!("the body may hold {} bytes at most", self.one_bytes),
        )
    }
}

/// A share of the bytes that all bodies may hold; given back when dropped.
struct Share<'a> {
    limits: &'a BodyLimits,
    bytes: usize,
}

impl Share<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.bytes += bytes;
        let held = self.limits.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > self.limits.all_bytes {
            return Err(ApiError::new(
                ApiErrorKind::Provider(ErrorKind::Overloaded),
                "too many large requests at once",
            ));
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.limits.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The whole body of a request that says it is JSON. Not parsed yet.
///
/// Rejections: 415 for another or no content type (a browser can send those across sites
/// without asking), 413, 408, 503, and 400 for a body that breaks off.
#[derive(Debug)]
pub(crate) struct JsonBytes(pub(crate) Bytes);

impl<S> FromRequest<S> for JsonBytes
where
    BodyLimits: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let limits = BodyLimits::from_ref(state);
        require_json(request.headers())?;
        let announced = content_length(request.headers());
        let mut body = request.into_body();
        if announced.is_some_and(|bytes| bytes > limits.one_bytes as u64) {
            if announced.is_some_and(|bytes| bytes <= LINGER_BYTES as u64) {
                discard(&mut body).await;
            }
            return Err(limits.too_large());
        }
        let read = tokio::time::timeout(limits.timeout, read_all(&mut body, &limits)).await;
        match read {
            Ok(Err(error)) if error.kind == ApiErrorKind::BodyTooLarge => {
                discard(&mut body).await;
                Err(error)
            }
            Ok(read) => read.map(Self),
            Err(_) => Err(ApiError::new(
                ApiErrorKind::RequestTimeout,
                format!(
                    "the body did not arrive within {} s",
                    limits.timeout.as_secs_f32()
                ),
            )),
        }
    }
}

async fn read_all(body: &mut Body, limits: &BodyLimits) -> Result<Bytes, ApiError> {
    let mut share = Share { limits, bytes: 0 };
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            ApiError::new(
                ApiErrorKind::InvalidJson,
                "the body broke off or its framing is wrong",
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > limits.one_bytes {
            return Err(limits.too_large());
        }
        share.grow(data.len())?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

async fn discard(body: &mut Body) {
    let drain = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > LINGER_BYTES {
                return;
            }
        }
    };
    // Whether it ended or was cut off, the answer is the same.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if given.is_some_and(is_json) {
        return Ok(());
    }
    let given: String = given.unwrap_or("none").chars().take(100).collect();
    Err(ApiError::new(
        ApiErrorKind::UnsupportedMediaType,
        format!("content-type must be `application/json`, got `{given}`"),
    ))
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let subtype = subtype.to_ascii_lowercase();
    kind.eq_ignore_ascii_case("application") && (subtype == "json" || subtype.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(one: usize, all: usize) -> BodyLimits {
        BodyLimits::new(&Limits {
            body_bytes: one,
            bodies_bytes: all,
            ..Limits::default()
        })
    }

    async fn read(limits: &BodyLimits, request: Request) -> Result<Bytes, ApiErrorKind> {
        JsonBytes::from_request(request, limits)
            .await
            .map(|b| b.0)
            .map_err(|e| e.kind)
    }

    fn request(content_type: &str, body: impl Into<Body>) -> Request {
        Request::builder()
            .header(header::CONTENT_TYPE, content_type)
            .body(body.into())
            .unwrap()
    }

    #[tokio::test]
    async fn only_json_is_read() {
        for (content_type, ok) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.twopass+json", true),
            ("text/json", false),
            ("text/plain", false),
            ("application/jsonp", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let got = read(&limits(10, 10), request(content_type, "{}")).await;
            let expect = ok
                .then(|| Bytes::from("{}"))
                .ok_or(ApiErrorKind::UnsupportedMediaType);
            assert_eq!(got, expect, "{content_type}");
        }
        let bare = Request::new(Body::from("{}"));
        assert_eq!(
            read(&limits(10, 10), bare).await,
            Err(ApiErrorKind::UnsupportedMediaType)
        );
    }

    #[tokio::test]
    async fn sizes_are_limited_one_by_one_and_together() {
        let limits = limits(10, 15);
        let json = |bytes: usize| request("application/json", " ".repeat(bytes));
        assert_eq!(read(&limits, json(10)).await.map(|b| b.len()), Ok(10));
        assert_eq!(
            read(&limits, json(11)).await,
            Err(ApiErrorKind::BodyTooLarge)
        );
        // Nothing of those two is still counted; nine bytes of another one are.
        limits.held.fetch_add(9, Ordering::Relaxed);
        assert_eq!(
            read(&limits, json(7)).await,
            Err(ApiErrorKind::Provider(ErrorKind::Overloaded))
        );
        assert_eq!(read(&limits, json(6)).await.map(|b| b.len()), Ok(6));
        assert_eq!(limits.held.load(Ordering::Relaxed), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let silent =
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let got = read(&limits(10, 10), request("application/json", silent)).await;
        assert_eq!(got, Err(ApiErrorKind::RequestTimeout));
    }
}
