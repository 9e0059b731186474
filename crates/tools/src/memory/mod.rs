//! Long-term memory: what is to be known again in later conversations.
//!
//! Memories lie in SQLite with a full-text index, and with a vector each where an embedding
//! model is configured. Recall ranks by both (reciprocal rank fusion), by age and by
//! importance. Everything is on disk when [`Memory::store`] returns. Where the database
//! cannot be used, memories go to a file of JSON lines beside it and move over later.

mod consolidate;
mod journal;
mod rank;
mod sqlite;
mod tools;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

use crate::blocking::blocking;
use crate::{ErrorKind, ToolError, ToolRegistry};
use sqlite::{Fault, Store};

pub use consolidate::Consolidated;
pub use tools::{RecallMemory, StoreMemory};

/// Longest content of one memory, in characters.
pub const MAX_CONTENT_CHARS: usize = 8000;

/// Most memories that are kept; beyond it the least important of the oldest go.
pub const MAX_MEMORIES: u32 = 20_000;

/// Most tags of one memory, and the longest tag in characters.
const MAX_TAGS: (usize, usize) = (16, 64);

/// Memories without a vector that get theirs with the next one, so that a time without
/// embedding model heals.
const MAX_BACKFILL: u32 = 16;

/// Turns texts into vectors. The tools know no provider; who has one hands it in.
pub trait Embedder: Send + Sync {
    /// The model's name. Vectors of different names are never compared.
    fn model(&self) -> &str;

    /// One vector for each text, all of one length.
    ///
    /// Errors: whatever keeps the model from answering. Memory works on without vectors.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, ToolError>>;
}

/// What is remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMemory {
    /// The text, 1 to [`MAX_CONTENT_CHARS`] characters.
    pub content: String,
    /// From 0 (trivial) to 1 (vital).
    pub importance: f64,
    /// Words to find it by, at most 16.
    pub tags: Vec<String>,
}

/// A memory that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Recalled {
    /// Its number, for [`Memory::delete`].
    pub id: i64,
    /// The text.
    pub content: String,
    /// From 0 to 1.
    pub importance: f64,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was stored, in milliseconds since 1970.
    pub created_ms: i64,
    /// How well it fits, from 0 to 1: half relevance, three tenths recency, two tenths
    /// importance.
    pub score: f64,
}

/// Long-term memory. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Memory {
    store: Arc<Mutex<Store>>,
    embedder: Option<Arc<dyn Embedder>>,
}

impl Memory {
    /// Opens the database, making it and its folder where missing. A database that cannot be
    /// used is left as it is, and memories are kept in `PATH.jsonl`;
    /// [`Memory::degradation`] then says why.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: neither file can be used.
    pub async fn open(
        path: impl AsRef<Path>,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<Self, ToolError> {
        let path = path.as_ref().to_owned();
        let store = blocking(move |_| Store::open(&path).map_err(Into::into)).await?;
        Ok(Self {
            store: Arc::new(Mutex::new(store)),
            embedder,
        })
    }

    /// A memory that lives as long as this process, for tests and for those who want no trace.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: there is no room for it.
    pub fn in_process(embedder: Option<Arc<dyn Embedder>>) -> Result<Self, ToolError> {
        Ok(Self {
            store: Arc::new(Mutex::new(Store::in_process().map_err(ToolError::from)?)),
            embedder,
        })
    }

    /// Why the database is not in use, if it is not.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.degradation().map(str::to_owned)
    }

    /// Stores a memory; true if it is new. One with the same text only becomes as important
    /// as the more important of the two. On disk when this returns.
    ///
    /// # Errors
    /// Kind [`ErrorKind::InvalidArguments`] or [`ErrorKind::TooLarge`]: see [`NewMemory`].
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn store(&self, memory: NewMemory) -> Result<bool, ToolError> {
        self.store_at(memory, now_ms()).await
    }

    /// [`Memory::store`] at a given time, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Memory::store`].
    pub async fn store_at(&self, memory: NewMemory, now_ms: i64) -> Result<bool, ToolError> {
        let memory = checked(memory)?;
        let is_new = self
            .with_store(move |store| store.insert(&memory, now_ms))
            .await?;
        self.backfill().await;
        if self.with_store(|store| store.should_consolidate()).await? {
            self.consolidate_at(now_ms).await?;
        }
        Ok(is_new)
    }

    /// The memories that fit a query best, best first, at most `n_results`.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn recall(&self, query: &str, n_results: usize) -> Result<Vec<Recalled>, ToolError> {
        self.recall_at(query, n_results, now_ms()).await
    }

    /// [`Memory::recall`] at a given time, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Memory::recall`].
    pub async fn recall_at(
        &self,
        query: &str,
        n_results: usize,
        now_ms: i64,
    ) -> Result<Vec<Recalled>, ToolError> {
        let vector = self.embed(vec![query.to_owned()]).await;
        let vector = vector.and_then(|(model, vectors)| Some((model, vectors.into_iter().next()?)));
        let query = query.to_owned();
        self.with_store(move |store| {
            let by_words = store.by_words(&query)?;
            let by_meaning = match &vector {
                Some((model, vector)) => store.by_meaning(model, vector)?,
                None => Vec::new(),
            };
            let relevances = rank::relevances(&[by_words, by_meaning], vector.is_some());
            let mut found = store.load(&relevances, now_ms)?;
            found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
            found.truncate(n_results);
            Ok(found)
        })
        .await
    }

    /// The newest memories, newest first.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn recent(&self, n_results: u32) -> Result<Vec<Recalled>, ToolError> {
        self.with_store(move |store| store.recent(n_results)).await
    }

    /// Forgets a memory; false if there is none of this number.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn delete(&self, id: i64) -> Result<bool, ToolError> {
        self.with_store(move |store| store.delete(id)).await
    }

    /// How many memories there are.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn count(&self) -> Result<u32, ToolError> {
        self.with_store(|store| store.count()).await
    }

    /// Joins memories that say the same, a batch of the oldest that are at least an hour old.
    /// [`Memory::store`] does this by itself from time to time.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn consolidate(&self) -> Result<Consolidated, ToolError> {
        self.consolidate_at(now_ms()).await
    }

    /// [`Memory::consolidate`] at a given time, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Memory::consolidate`].
    pub async fn consolidate_at(&self, now_ms: i64) -> Result<Consolidated, ToolError> {
        self.with_store(move |store| consolidate::consolidate(store, now_ms))
            .await
    }

    /// Writes everything into the one database file, for the end of a program. Memory goes on
    /// working afterwards.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: the disk refused.
    pub async fn flush(&self) -> Result<(), ToolError> {
        self.with_store(|store| store.flush()).await
    }

    /// Adds `recall_memory` and `store_memory`.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadName`]: one of the names is taken.
    pub fn register(&self, registry: &ToolRegistry) -> Result<(), ToolError> {
        registry.register(RecallMemory::new(self.clone()))?;
        registry.register(StoreMemory::new(self.clone()))
    }

    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, ToolError> {
        let store = Arc::clone(&self.store);
        blocking(move |_| {
            // A statement that panicked was rolled back: the store is whole.
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut store).map_err(Into::into)
        })
        .await
    }

    /// Unit vectors of some texts with the model's name; `None` without a model or while it
    /// does not answer.
    async fn embed(&self, texts: Vec<String>) -> Option<(String, Vec<Vec<f32>>)> {
        let embedder = self.embedder.as_ref()?;
        let n_texts = texts.len();
        let vectors = embedder.embed(texts).await.ok()?;
        let vectors: Option<Vec<_>> = vectors.into_iter().map(rank::normalised).collect();
        let vectors = vectors.filter(|vectors| vectors.len() == n_texts)?;
        Some((embedder.model().to_owned(), vectors))
    }

    /// Gives vectors to the newest memories that have none of the current model.
    async fn backfill(&self) {
        let Some(embedder) = &self.embedder else {
            return;
        };
        let model = embedder.model().to_owned();
        let missing = self
            .with_store(move |store| store.without_vector(&model, MAX_BACKFILL))
            .await;
        let Ok(missing) = missing else { return };
        if missing.is_empty() {
            return;
        }
        let (ids, texts): (Vec<i64>, Vec<String>) = missing.into_iter().unzip();
        if let Some((model, vectors)) = self.embed(texts).await {
            let with_ids = ids.into_iter().zip(vectors).collect::<Vec<_>>();
            // Without its vector a memory is found by its words; the next store tries again.
            let _ = self
                .with_store(move |store| store.set_vectors(&model, &with_ids))
                .await;
        }
    }
}

fn checked(mut memory: NewMemory) -> Result<NewMemory, ToolError> {
    memory.content = memory.content.trim().to_owned();
    let n_chars = memory.content.chars().count();
    if n_chars > MAX_CONTENT_CHARS {
        return Err(ToolError::new(
            ErrorKind::TooLarge,
            format!("the content has {n_chars} characters, at most {MAX_CONTENT_CHARS}"),
        ));
    }
    let invalid = |message: String| Err(ToolError::new(ErrorKind::InvalidArguments, message));
    if n_chars == 0 {
        return invalid("the content is empty".to_owned());
    }
    if !(0.0..=1.0).contains(&memory.importance) {
        return invalid(format!(
            "importance is {}, allowed: 0 to 1",
            memory.importance
        ));
    }
    let (max_tags, max_chars) = MAX_TAGS;
    if memory.tags.len() > max_tags
        || memory
            .tags
            .iter()
            .any(|tag| tag.chars().count() > max_chars)
    {
        return invalid(format!(
            "at most {max_tags} tags of at most {max_chars} characters"
        ));
    }
    Ok(memory)
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
