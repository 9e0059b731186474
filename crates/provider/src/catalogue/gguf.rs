//! The header of a GGUF file: its metadata, without loading the model.
//!
//! Source: ggml's `docs/gguf.md`, versions 2 and 3, read 2026-11. Everything read is bounded;
//! the cost is one pass over the header (a few megabytes, mostly the vocabulary).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::{ErrorKind, ProviderError};

const MAX_KEYS: u64 = 100_000;
const MAX_STRING_BYTES: u64 = 16 << 20;
const MAX_ARRAY_LEN: u64 = 8 << 20;
/// Arrays of numbers longer than this are skipped: nobody asks for them.
const MAX_KEPT_NUMBERS: u64 = 4 << 20;

/// One value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Whole(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Wholes(Vec<i64>),
    /// Something that is not kept.
    Skipped,
}

/// The metadata, in the file's order.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) n_tensors: u64,
    pub(super) values: Vec<(String, Value)>,
}

impl Header {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn whole(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Whole(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }
}

/// Reads a file's header.
///
/// # Errors
/// Kind [`ErrorKind::Model`]: the file is missing, no GGUF, of an unknown version, or cut.
pub(super) fn read_header(path: &Path) -> Result<Header, ProviderError> {
    let fail =
        |what: String| ProviderError::new(ErrorKind::Model, format!("{}: {what}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    if !meta.is_file() {
        return Err(fail("is not a file".to_owned()));
    }
    let file = File::open(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let mut reader = Reader(BufReader::new(file));
    reader.header().map_err(fail)
}

struct Reader<R>(R);

impl<R: Read> Reader<R> {
    fn header(&mut self) -> Result<Header, String> {
        let magic: [u8; 4] = self
            .bytes()
            .map_err(|_| "is no GGUF file: it is too short".to_owned())?;
        if &magic != b"GGUF" {
            return Err("is no GGUF file: it does not begin with `GGUF`".to_owned());
        }
        let version = u32::from_le_bytes(self.bytes()?);
        if !(2..=3).contains(&version) {
            return Err(format!("has GGUF version {version}, known: 2 and 3"));
        }
        let n_tensors = self.u64()?;
        let n_keys = self.u64()?;
        if n_keys > MAX_KEYS {
            return Err(format!(
                "claims {n_keys} metadata keys, at most {MAX_KEYS} are read"
            ));
        }
        let mut values = Vec::new();
        for _ in 0..n_keys {
            let key = self.string()?;
            let kind = u32::from_le_bytes(self.bytes()?);
            let value = self.value(kind)?;
            values.push((key, value));
        }
        Ok(Header {
            version,
            n_tensors,
            values,
        })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.0
            .read_exact(&mut bytes)
            .map_err(|_| "ends inside its header".to_owned())?;
        Ok(bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn string(&mut self) -> Result<String, String> {
        let len = self.u64()?;
        if len > MAX_STRING_BYTES {
            return Err(format!(
                "holds a text of {len} bytes, at most {MAX_STRING_BYTES} are read"
            ));
        }
        let mut bytes = Vec::new();
        let n = (&mut self.0)
            .take(len)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        if n as u64 != len {
            return Err("ends inside its header".to_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, kind: u32) -> Result<Value, String> {
        Ok(match kind {
            0 => Value::Whole(u8::from_le_bytes(self.bytes()?).into()),
            1 => Value::Whole(i8::from_le_bytes(self.bytes()?).into()),
            2 => Value::Whole(u16::from_le_bytes(self.bytes()?).into()),
            3 => Value::Whole(i16::from_le_bytes(self.bytes()?).into()),
            4 => Value::Whole(u32::from_le_bytes(self.bytes()?).into()),
            5 => Value::Whole(i32::from_le_bytes(self.bytes()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes()?).into()),
            7 => Value::Bool(u8::from_le_bytes(self.bytes()?) != 0),
            8 => Value::Text(self.string()?),
            9 => self.array()?,
            10 => Value::Whole(u64::from_le_bytes(self.bytes()?).into()),
            11 => Value::Whole(i64::from_le_bytes(self.bytes()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            other => return Err(format!("holds a value of the unknown type {other}")),
        })
    }

    fn array(&mut self) -> Result<Value, String> {
        let kind = u32::from_le_bytes(self.bytes()?);
        let len = self.u64()?;
        if len > MAX_ARRAY_LEN {
            return Err(format!(
                "holds a list of {len} values, at most {MAX_ARRAY_LEN} are read"
            ));
        }
        match kind {
            8 => (0..len)
                .map(|_| self.string())
                .collect::<Result<_, _>>()
                .map(Value::Texts),
            9 => Err("holds lists of lists".to_owned()),
            _ => {
                let mut wholes = Vec::new();
                for _ in 0..len {
                    if let Value::Whole(value) = self.value(kind)?
                        && len <= MAX_KEPT_NUMBERS
                    {
                        wholes.push(i64::try_from(value).unwrap_or(i64::MAX));
                    }
                }
                Ok(if wholes.len() as u64 == len {
                    Value::Wholes(wholes)
                } else {
                    Value::Skipped
                })
            }
        }
    }
}
