use std::io::{self, Write};

use bytes::Bytes;
use encoding_rs::{Decoder, Encoding, UTF_8};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::transport_error;
use crate::{ErrorKind, ProviderError};

/// Compressed bytes that are unpacked at a time: at most about 4 MB come of them.
const INFLATE_STEP_BYTES: usize = 4096;

/// A response's body in bounded pieces; as UTF-8, unpacked (gzip, deflate) and converted from
/// the charset that its content type names, unless it is taken raw.
pub(crate) struct Body {
    incoming: Incoming,
    inflate: Option<Inflate>,
    charset: Option<Decoder>,
    ended: bool,
}

impl Body {
    /// # Errors
    /// Kind [`ErrorKind::InvalidResponse`]: the content encoding is none that we read.
    pub(crate) fn new(response: Response<Incoming>) -> Result<Self, ProviderError> {
        let header = |name| response.headers().get(name)?.to_str().ok();
        let encoding = header(CONTENT_ENCODING).map(|name| name.trim().to_ascii_lowercase());
        let inflate = match encoding.as_deref() {
            None | Some("" | "identity") => None,
            Some("gzip" | "x-gzip") => Some(Packing::Gzip),
            Some("deflate") => Some(Packing::Deflate),
            Some(other) => {
                let shown: String = other.chars().take(40).collect();
                return Err(ProviderError::new(
                    ErrorKind::InvalidResponse,
                    format!("the reply is packed as `{shown}`, read are `gzip` and `deflate`"),
                ));
            }
        };
        let charset = header(CONTENT_TYPE)
            .and_then(charset_of)
            .filter(|charset| *charset != UTF_8)
            .map(Encoding::new_decoder);
        let inflate = inflate.map(|packing| Inflate {
            packing,
            stream: None,
            packed: Vec::new(),
            at: 0,
        });
        Ok(Self {
            inflate,
            charset,
            ..Self::raw(response)
        })
    }

    /// The body as it was sent, for files.
    pub(crate) fn raw(response: Response<Incoming>) -> Self {
        Self {
            incoming: response.into_body(),
            inflate: None,
            charset: None,
            ended: false,
        }
    }

    /// The next bytes, perhaps none of them; `None` at the end. Cancel safe.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let bytes = match &mut self.inflate {
            Some(inflate) if inflate.has_more() => inflate.step().map_err(unpacking)?.into(),
            _ if self.ended => return Ok(None),
            inflate => {
                let frame = self.incoming.frame().await.transpose();
                let frame = frame.map_err(|error| transport_error(&error))?;
                // Trailers hold nothing.
                let chunk = frame.map(|frame| frame.into_data().unwrap_or_default());
                match (chunk, inflate) {
                    (Some(bytes), None) => bytes,
                    (Some(bytes), Some(inflate)) => {
                        inflate.packed.clear();
                        inflate.packed.extend_from_slice(&bytes);
                        inflate.at = 0;
                        inflate.step().map_err(unpacking)?.into()
                    }
                    (None, inflate) => {
                        self.ended = true;
                        match inflate {
                            Some(inflate) => inflate.finish().map_err(unpacking)?.into(),
                            None => Bytes::new(),
                        }
                    }
                }
            }
        };
        if self.ended && bytes.is_empty() && self.charset.is_none() {
            return Ok(None);
        }
        let Some(charset) = &mut self.charset else {
            return Ok(Some(bytes));
        };
        let room = charset.max_utf8_buffer_length(bytes.len()).unwrap_or(0);
        let mut text = String::with_capacity(room);
        let (_, _, _) = charset.decode_to_string(&bytes, &mut text, self.ended);
        if self.ended {
            self.charset = None;
        }
        Ok(Some(text.into()))
    }
}

/// The charset of `text/plain; charset="x"`; an unknown one is taken for UTF-8.
fn charset_of(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        let label = value.trim().trim_matches('"');
        is_charset.then(|| Encoding::for_label(label.as_bytes()))?
    })
}

fn unpacking(error: io::Error) -> ProviderError {
    let kind = match error.kind() {
        io::ErrorKind::UnexpectedEof => ErrorKind::StreamTruncated,
        _ => ErrorKind::InvalidResponse,
    };
    ProviderError::new(kind, format!("the reply cannot be unpacked: {error}"))
}

#[derive(Debug, Clone, Copy)]
enum Packing {
    Gzip,
    Deflate,
}

struct Inflate {
    packing: Packing,
    stream: Option<Stream>,
    packed: Vec<u8>,
    at: usize,
}

enum Stream {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
}

impl Inflate {
    fn has_more(&self) -> bool {
        self.at < self.packed.len()
    }

    fn step(&mut self) -> io::Result<Vec<u8>> {
        let end = self.packed.len().min(self.at + INFLATE_STEP_BYTES);
        let piece = &self.packed[self.at..end];
        self.at = end;
        let Some(first) = piece.first() else {
            return Ok(Vec::new());
        };
        let packing = self.packing;
        let stream = self.stream.get_or_insert_with(|| match packing {
            Packing::Gzip => Stream::Gzip(MultiGzDecoder::new(Vec::new())),
            // `deflate` means zlib; some send the bare stream (RFC 9110 section 8.4.1.2).
            Packing::Deflate if first & 0x0f == 8 => Stream::Zlib(ZlibDecoder::new(Vec::new())),
            Packing::Deflate => Stream::Raw(DeflateDecoder::new(Vec::new())),
        });
        match stream {
            Stream::Gzip(stream) => unpack(stream, piece).map(|()| stream.get_mut()),
            Stream::Zlib(stream) => unpack(stream, piece).map(|()| stream.get_mut()),
            Stream::Raw(stream) => unpack(stream, piece).map(|()| stream.get_mut()),
        }
        .map(std::mem::take)
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.stream {
            None => Ok(Vec::new()),
            Some(Stream::Gzip(stream)) => stream
                .try_finish()
                .map(|()| std::mem::take(stream.get_mut())),
            Some(Stream::Zlib(stream)) => stream
                .try_finish()
                .map(|()| std::mem::take(stream.get_mut())),
            Some(Stream::Raw(stream)) => stream
                .try_finish()
                .map(|()| std::mem::take(stream.get_mut())),
        }
    }
}

fn unpack(stream: &mut impl Write, piece: &[u8]) -> io::Result<()> {
    stream.write_all(piece)?;
    stream.flush()
}
