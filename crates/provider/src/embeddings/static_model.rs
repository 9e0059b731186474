//! Vectors from a table of token vectors: the mean of a text's tokens, at unit length.
//!
//! No network runs; a text of a thousand words takes well under a millisecond. Good enough to
//! find what is about the same thing, which is what memory and search need; a model that reads
//! whole sentences ranks better.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;
use safetensors::{Dtype, SafeTensors};
use tokenizers::Tokenizer;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::Embeddings;
use crate::catalogue::{Catalogue, CatalogueEntry, Located, Makes, ModelName};
use crate::config::Config;
use crate::{ErrorKind, ProviderError};

/// The table's name in the file.
const TENSOR: &str = "embedding.weight";
/// Sizes that the first numbers of a vector may be cut to: the table was trained so.
const SIZES: [u32; 3] = [64, 128, 256];
/// Bytes of one text: far more than any model's context.
const TEXT_BYTES: usize = 16 << 20;

/// A static model of the catalogue. Loaded once, at the first text.
#[derive(Debug)]
pub(super) struct StaticModel {
    entry: &'static CatalogueEntry,
    catalogue: Catalogue,
    table: OnceCell<Arc<Table>>,
}

impl StaticModel {
    /// The model of this name, if it is one that runs here.
    pub(super) fn named(config: &Config, name: &str) -> Option<Self> {
        match ModelName::parse(name) {
            Ok(ModelName::Known(entry)) if entry.makes == Makes::Vectors => Some(Self {
                entry,
                catalogue: Catalogue::new(config),
                table: OnceCell::new(),
            }),
            _ => None,
        }
    }

    /// One vector for each text.
    ///
    /// # Errors
    /// The model is not on this machine or broken; a text is empty; a size that the model
    /// does not have.
    pub(super) async fn embed(
        &self,
        texts: &[String],
        dimensions: Option<u32>,
    ) -> Result<Embeddings, ProviderError> {
        let size = size(dimensions, self.entry.name)?;
        for (idx, text) in texts.iter().enumerate() {
            if text.is_empty() || text.len() > TEXT_BYTES {
                let message = format!("text {idx} must have 1 to {TEXT_BYTES} bytes");
                return Err(ProviderError::new(ErrorKind::BadRequest, message).with_param("input"));
            }
        }
        let table = self.table.get_or_try_init(|| self.load()).await?.clone();
        let (texts, model) = (texts.to_vec(), self.entry.name.to_owned());
        let made = spawn_blocking(move || {
            let mut made = Embeddings {
                model,
                ..Embeddings::default()
            };
            for text in &texts {
                let (vector, n_tokens) = table.vector(text, size)?;
                made.vectors.push(vector);
                made.prompt_tokens += n_tokens;
            }
            Ok(made)
        });
        made.await.map_err(internal)?
    }

    async fn load(&self) -> Result<Arc<Table>, ProviderError> {
        let (path, others) = match self.catalogue.locate(self.entry.name)? {
            Located::At(path) => {
                let others = self.entry.others(&path).collect::<Vec<_>>();
                (path, others)
            }
            Located::Missing(_) => {
                return Err(Catalogue::not_here(self.entry.name).with_param("embeddings.model"));
            }
        };
        let tokenizer = others.into_iter().next().unwrap_or_default();
        let table = spawn_blocking(move || Table::load(&path, &tokenizer));
        table.await.map_err(internal)?.map(Arc::new)
    }
}

/// How many numbers a vector has.
fn size(wanted: Option<u32>, model: &str) -> Result<usize, ProviderError> {
    match wanted {
        None => Ok(SIZES[2] as usize),
        Some(size) if SIZES.contains(&size) => Ok(size as usize),
        Some(size) => {
            let message = format!("`{model}` makes vectors of 64, 128 or 256 numbers, not {size}");
            let error = ProviderError::new(ErrorKind::DimensionMismatch, message);
            Err(error.with_param("dimensions"))
        }
    }
}

struct Table {
    tokenizer: Tokenizer,
    /// `n_rows` times `n_columns`, row by row.
    values: Vec<f32>,
    n_columns: usize,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Table {
    fn load(path: &Path, tokenizer: &PathBuf) -> Result<Self, ProviderError> {
        let broken = |path: &Path, why: String| {
            let message = format!("{} is no readable model: {why}", path.display());
            ProviderError::new(ErrorKind::Model, message)
        };
        let bytes = std::fs::read(path).map_err(|error| broken(path, error.to_string()))?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| broken(path, error.to_string()))?;
        let tensor = tensors
            .tensor(TENSOR)
            .map_err(|error| broken(path, error.to_string()))?;
        let n_columns = match (tensor.dtype(), tensor.shape()) {
            (Dtype::F16, &[_, n_columns]) if n_columns >= SIZES[2] as usize => n_columns,
            (dtype, shape) => {
                let why = format!("`{TENSOR}` is {dtype:?} {shape:?}, not F16 [rows, 256]");
                return Err(broken(path, why));
            }
        };
        let (pairs, _) = tensor.data().as_chunks::<2>();
        let values = pairs.iter().map(|pair| f16::from_le_bytes(*pair).to_f32());
        Ok(Self {
            tokenizer: Tokenizer::from_file(tokenizer)
                .map_err(|error| broken(tokenizer, error.to_string()))?,
            values: values.collect(),
            n_columns,
        })
    }

    /// The vector of a text and how many tokens it has.
    fn vector(&self, text: &str, size: usize) -> Result<(Vec<f32>, u64), ProviderError> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| {
            let message = format!("a text cannot be cut into tokens: {error}");
            ProviderError::new(ErrorKind::Internal, message)
        })?;
        let ids = encoding.get_ids();
        let mut sum = vec![0_f32; size];
        for &id in ids {
            let start = id as usize * self.n_columns;
            let row = self.values.get(start..start + size).unwrap_or_default();
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
        // The mean points where the sum points; only the direction is kept.
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            for value in &mut sum {
                *value /= length;
            }
        }
        Ok((sum, ids.len() as u64))
    }
}

fn internal(error: tokio::task::JoinError) -> ProviderError {
    ProviderError::new(
        ErrorKind::Internal,
        format!("making vectors failed: {error}"),
    )
}
