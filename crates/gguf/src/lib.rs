//! The header of a GGUF file: its metadata, read with limits and without loading the model.
//!
//! Source: ggml's `docs/gguf.md`, versions 2 and 3, read 2026-11. The cost is one pass over
//! the header (a few megabytes, mostly the vocabulary).
#![warn(missing_docs)]

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

const MAX_KEYS: u64 = 100_000;
const MAX_STRING_BYTES: u64 = 16 << 20;
const MAX_ARRAY_LEN: u64 = 8 << 20;
/// Arrays of numbers longer than this are skipped: nobody asks for them.
const MAX_KEPT_NUMBERS: u64 = 4 << 20;

/// Tensors of the largest models are some thousands.
const MAX_TENSORS: u64 = 1 << 20;
/// Where the file names no alignment of its data.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Numbers and bytes of one block of each tensor type that files hold. Source: ggml's
/// `ggml.h` and `ggml-common.h`, read 2026-11.
const BLOCKS: &[(u32, u64, u64)] = &[
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (16, 256, 66),
    (17, 256, 74),
    (18, 256, 98),
    (19, 256, 50),
    (20, 32, 18),
    (21, 256, 110),
    (22, 256, 82),
    (23, 256, 136),
    (29, 256, 56),
    (30, 1, 2),
    (39, 32, 17),
];

/// Layers of a model: llama.cpp's `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u64 = 512;

/// One value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer of any width.
    Whole(i128),
    /// A float of either width.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text; broken characters are replaced.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of integers.
    Wholes(Vec<i64>),
    /// Something that is not kept: a list of floats or truth values, or a very long list.
    Skipped,
}

/// The metadata, in the file's order.
#[derive(Debug, Clone)]
pub struct Header {
    /// GGUF version, 2 or 3.
    pub version: u32,
    /// Tensors that the file claims to hold.
    pub n_tensors: u64,
    /// Size of the whole file.
    pub n_bytes: u64,
    /// Where the last tensor ends, as far as its type is known: the file must reach so far.
    pub n_needed_bytes: u64,
    /// Keys and values.
    pub values: Vec<(String, Value)>,
}

/// Why a file is no usable model: lower case, without the file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Header {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// The value of a key that holds a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a key that holds an integer of 0 or more.
    #[must_use]
    pub fn whole(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Whole(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The model's architecture, such as `llama`.
    #[must_use]
    pub fn architecture(&self) -> Option<&str> {
        self.text("general.architecture")
    }

    /// Judges what an engine would stumble over: no tensors, no architecture, a layer count
    /// that no model has, a number that is none.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        // An entry takes several bytes, so a count over the size is damage.
        if self.n_tensors == 0 || self.n_tensors > self.n_bytes {
            let (n, size) = (self.n_tensors, self.n_bytes);
            return Err(Error(format!("is damaged: {n} tensors in {size} bytes")));
        }
        let Some(architecture) = self.architecture() else {
            return Err(Error("does not name its `general.architecture`".to_owned()));
        };
        let layers = format!("{architecture}.block_count");
        if let Some(Value::Whole(n)) = self.get(&layers)
            && !(1..=i128::from(MAX_LAYERS)).contains(n)
        {
            return Err(Error(format!(
                "is damaged: `{layers}` is {n}, allowed: 1 to {MAX_LAYERS}"
            )));
        }
        if self.n_needed_bytes > self.n_bytes {
            let (needed, size) = (self.n_needed_bytes, self.n_bytes);
            return Err(Error(format!(
                "is cut: its tensors end at byte {needed}, the file has {size}"
            )));
        }
        for (key, value) in &self.values {
            if let Value::Float(number) = value
                && !(number.is_finite() && (*number >= 0.0 || !key.ends_with("epsilon")))
            {
                return Err(Error(format!(
                    "is damaged: `{key}` is {number}, which is no usable number"
                )));
            }
        }
        Ok(())
    }
}

/// Reads a file's header.
///
/// # Errors
/// The file is missing, no regular file, no GGUF, of an unknown version, or cut.
pub fn read_header(path: &Path) -> Result<Header, Error> {
    let unreadable = |error: std::io::Error| Error(format!("cannot be read: {error}"));
    // Asked before opening: to open a pipe is to wait for its writer.
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if meta.is_dir() {
        return Err(Error("is a directory".to_owned()));
    }
    if !meta.is_file() {
        return Err(Error("is no regular file".to_owned()));
    }
    if meta.len() == 0 {
        return Err(Error("is empty".to_owned()));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut reader = Reader {
        file: BufReader::new(file),
        at: 0,
    };
    reader.header(meta.len()).map_err(Error)
}

struct Reader<R> {
    file: R,
    /// Bytes read so far.
    at: u64,
}

impl<R: Read> Reader<R> {
    fn header(&mut self, n_bytes: u64) -> Result<Header, String> {
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
        let mut header = Header {
            version,
            n_tensors,
            n_bytes,
            n_needed_bytes: 0,
            values,
        };
        // A count that cannot be is judged with the rest of the header.
        if n_tensors <= n_bytes.min(MAX_TENSORS) {
            let alignment = header.whole("general.alignment");
            let alignment = alignment.filter(|alignment| *alignment > 0);
            header.n_needed_bytes =
                self.end_of_tensors(n_tensors, alignment.unwrap_or(DEFAULT_ALIGNMENT))?;
        }
        Ok(header)
    }

    /// Where the last of so many tensors ends in the file.
    fn end_of_tensors(&mut self, n_tensors: u64, alignment: u64) -> Result<u64, String> {
        let mut end = 0_u64;
        for _ in 0..n_tensors {
            self.string()?;
            let n_dims = u32::from_le_bytes(self.bytes()?);
            if n_dims > 8 {
                return Err(format!("is damaged: a tensor has {n_dims} dimensions"));
            }
            let mut n_numbers = 1_u64;
            for _ in 0..n_dims {
                n_numbers = n_numbers.saturating_mul(self.u64()?);
            }
            let kind = u32::from_le_bytes(self.bytes()?);
            let offset = self.u64()?;
            let block = BLOCKS.iter().find(|(known, ..)| *known == kind);
            let n_bytes = block.map_or(0, |(_, numbers, bytes)| {
                n_numbers.div_ceil(*numbers).saturating_mul(*bytes)
            });
            end = end.max(offset.saturating_add(n_bytes));
        }
        let data_at = self.at.div_ceil(alignment).saturating_mul(alignment);
        Ok(data_at.saturating_add(end))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.file
            .read_exact(&mut bytes)
            .map_err(|_| "ends inside its header".to_owned())?;
        self.at += N as u64;
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
        let n = (&mut self.file)
            .take(len)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        if n as u64 != len {
            return Err("ends inside its header".to_owned());
        }
        self.at += len;
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
