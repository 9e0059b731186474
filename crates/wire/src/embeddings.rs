//! Embeddings: `/v1/embeddings`, both ways.
//!
//! Vectors are placed by index and checked for number, size and finite values (case rule
//! 23); nothing is ever guessed. Beside OpenAI's shape the reader takes Ollama's
//! `embeddings` and llama.cpp's bare array.

use serde_json::{Value, json};
use twopass_core::chat::BadRequest;

use crate::fault::{Fault, FaultKind};
use crate::json::{Fields, Lenient, Object, array, elements, string};
use crate::openai_chat::read_utf8;

/// The most texts in one request.
pub const MAX_INPUTS: usize = 2048;

/// A request for vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmbeddingsRequest {
    /// The model's id, verbatim.
    pub model: String,
    /// The texts, one vector each.
    pub inputs: Vec<String>,
    /// The size that the vectors are to have; `None` = the model's own.
    pub dimensions: Option<u32>,
    /// True: the client wants the vectors in base64.
    pub base64: bool,
}

impl EmbeddingsRequest {
    /// The request as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut body = Object::default();
        body.text("model", &self.model);
        body.value("input", &self.inputs.clone().into());
        let format = if self.base64 { "base64" } else { "float" };
        body.text("encoding_format", format);
        if let Some(dimensions) = self.dimensions {
            body.count("dimensions", u64::from(dimensions));
        }
        body.finish()
    }

    /// Reads a request: the server side. `input` may be one text or an array of texts.
    ///
    /// # Errors
    /// Names the parameter that is wrong, what is allowed and what was given.
    pub fn from_json(body: &[u8]) -> Result<Self, BadRequest> {
        let fields = Fields::read("body", read_utf8(body)?)?;
        const ALLOWED: &str = "a text or an array of texts";
        let raw = fields
            .raw("input")
            .ok_or_else(|| fields.fault("input", ALLOWED))?;
        let inputs = match string(raw) {
            Some(text) => vec![text],
            None => fields
                .list("input")?
                .into_iter()
                .map(|(path, item)| {
                    string(item).ok_or_else(|| {
                        BadRequest::new(path, "must be a text; token ids are not taken")
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        if inputs.is_empty() || inputs.len() > MAX_INPUTS {
            return Err(BadRequest::new(
                "input",
                format!("1 to {MAX_INPUTS} texts are taken, got {}", inputs.len()),
            ));
        }
        Ok(Self {
            model: fields.text("model")?.unwrap_or_default(),
            inputs,
            dimensions: fields.cap("dimensions", 1)?,
            base64: match fields.text("encoding_format")?.as_deref() {
                None | Some("float") => false,
                Some("base64") => true,
                Some(_) => return Err(fields.fault("encoding_format", "`float` or `base64`")),
            },
        })
    }
}

/// Vectors in the order of the texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingsReply {
    /// The model that made them, as the answer names it.
    pub model: String,
    /// One vector per text, all of one size, every value finite.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens that were read.
    pub prompt_tokens: u64,
}

impl EmbeddingsReply {
    /// Reads the answer to a request of this many texts.
    ///
    /// # Errors
    /// [`FaultKind::DimensionMismatch`] if the vectors have another size than `dimensions`;
    /// [`FaultKind::InvalidResponse`] if there are too few or too many of them, an index is
    /// wrong or taken twice, sizes differ, or a value is no finite number.
    pub fn from_json(body: &[u8], n_inputs: usize, dimensions: Option<u32>) -> Result<Self, Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        let bare = text.trim_start().starts_with('[');
        let fields = if bare {
            Lenient::default()
        } else {
            Lenient::read(text).ok_or_else(|| Fault::not_json(body))?
        };
        if fields.raw("error").is_some() {
            return Err(Fault::from_json(text)
                .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
        }
        let items = if bare {
            elements(text.trim())
        } else if fields.raw("data").is_some() {
            fields.list("data")
        } else {
            fields.list("embeddings")
        };
        if items.len() != n_inputs {
            return Err(Fault::invalid(format!(
                "{n_inputs} texts were sent and {} vectors came",
                items.len()
            )));
        }
        let vectors = place(&items, n_inputs)?;
        check_sizes(&vectors, dimensions)?;
        let usage = fields.object("usage").unwrap_or_default();
        Ok(Self {
            model: fields.text("model").unwrap_or_default(),
            vectors,
            prompt_tokens: usage
                .count("prompt_tokens")
                .or_else(|| fields.count("prompt_eval_count"))
                .unwrap_or(0),
        })
    }

    /// The answer as JSON text: the server side.
    #[must_use]
    pub fn to_json(&self, base64: bool) -> String {
        let data: Vec<String> = self
            .vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| {
                let embedding: Value = if base64 {
                    let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
                    encode_base64(&bytes).into()
                } else {
                    vector.iter().map(|v| f64::from(*v)).collect()
                };
                json!({"object": "embedding", "index": index, "embedding": embedding}).to_string()
            })
            .collect();
        let mut body = Object::default();
        body.text("object", "list");
        body.raw("data", &array(&data));
        body.text("model", &self.model);
        body.value(
            "usage",
            &json!({"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}),
        );
        body.finish()
    }
}

/// Puts every vector at its index; without any index the order of the answer counts.
fn place(items: &[&str], n_inputs: usize) -> Result<Vec<Vec<f32>>, Fault> {
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; n_inputs];
    for (position, item) in items.iter().enumerate() {
        let object = Lenient::read(item);
        let index = object
            .as_ref()
            .and_then(|object| object.count("index"))
            .map_or(Some(position), |index| usize::try_from(index).ok());
        let raw = match &object {
            Some(object) => object
                .raw("embedding")
                .ok_or_else(|| Fault::invalid(format!("vector {position} has no `embedding`")))?,
            None => item,
        };
        let vector = read_vector(raw)
            .map_err(|why| Fault::invalid(format!("vector {position} cannot be read: {why}")))?;
        let slot = index.and_then(|index| vectors.get_mut(index));
        match slot {
            Some(slot @ None) => *slot = Some(vector),
            Some(Some(_)) => {
                return Err(Fault::invalid(format!(
                    "the index of vector {position} is taken twice"
                )));
            }
            None => {
                return Err(Fault::invalid(format!(
                    "the index of vector {position} is not below {n_inputs}"
                )));
            }
        }
    }
    // As many vectors as places, none twice: all are filled.
    Ok(vectors.into_iter().flatten().collect())
}

fn read_vector(raw: &str) -> Result<Vec<f32>, String> {
    if let Some(text) = string(raw) {
        let bytes = decode_base64(&text).ok_or("it is no base64")?;
        let (values, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("its bytes are no whole number of floats".to_owned());
        }
        return values
            .iter()
            .map(|bytes| finite(f64::from(f32::from_le_bytes(*bytes))))
            .collect();
    }
    let mut values = elements(raw);
    // One row in another array.
    if let [row] = values.as_slice()
        && row.starts_with('[')
    {
        values = elements(row);
    }
    if !raw.starts_with('[') {
        return Err("it is no array".to_owned());
    }
    values
        .into_iter()
        .map(|value| {
            let number = serde_json::from_str::<f64>(value);
            finite(number.map_err(|_| "a value is no number".to_owned())?)
        })
        .collect()
}

fn finite(value: f64) -> Result<f32, String> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "vectors are kept in single precision"
    )]
    let value = value as f32;
    if value.is_finite() {
        Ok(value)
    } else {
        Err("a value is not finite".to_owned())
    }
}

fn check_sizes(vectors: &[Vec<f32>], dimensions: Option<u32>) -> Result<(), Fault> {
    let Some(first) = vectors.first() else {
        return Ok(());
    };
    if first.is_empty() {
        return Err(Fault::invalid("a vector is empty"));
    }
    if vectors.iter().any(|vector| vector.len() != first.len()) {
        return Err(Fault::invalid("the vectors differ in size"));
    }
    match dimensions {
        Some(wanted) if usize::try_from(wanted) != Ok(first.len()) => Err(Fault::new(
            FaultKind::DimensionMismatch,
            format!(
                "vectors of {wanted} dimensions were asked for, {} came",
                first.len()
            ),
        )),
        _ => Ok(()),
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for n in 0..4 {
            if n <= chunk.len() {
                let at = bits >> (18 - 6 * n) & 63;
                out.push(char::from(BASE64[usize::try_from(at).unwrap_or(0)]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let mut bits = 0_u32;
    let mut n_bits = 0;
    for byte in text.bytes() {
        let value = match byte {
            b'-' => 62,
            b'_' => 63,
            byte => u32::try_from(BASE64.iter().position(|known| *known == byte)?).ok()?,
        };
        bits = bits << 6 | value;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            out.push(u8::try_from(bits >> n_bits & 255).ok()?);
            bits &= (1 << n_bits) - 1;
        }
    }
    Some(out)
}
