//! The database.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, TransactionBehavior, params};

use super::journal::{Journal, private};
use super::{MAX_MEMORIES, NewMemory, Recalled, rank};
use crate::{ErrorKind, ToolError};

/// Most memories that one ranking names.
const MAX_CANDIDATES: u32 = 50;

/// Least cosine of a memory that is close in meaning.
const MIN_SIMILARITY: f32 = 0.2;

/// Most words of a query.
const MAX_WORDS: usize = 32;

/// Memories not yet consolidated that call for it.
const CONSOLIDATE_AT: u32 = 100;

/// How long another process may hold the database.
const BUSY: Duration = Duration::from_secs(5);

/// Version 1. `source` keeps the full-text index in step.
const SCHEMA: &str = "
    CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content TEXT NOT NULL UNIQUE,
        importance REAL NOT NULL,
        tags TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        consolidated INTEGER NOT NULL DEFAULT 0,
        model TEXT,
        vector BLOB
    );
    CREATE INDEX memories_by_state ON memories (consolidated, created_ms);
    CREATE VIRTUAL TABLE memories_words USING fts5 (
        content, tags, content = 'memories', content_rowid = 'id',
        tokenize = 'porter unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
        INSERT INTO memories_words (rowid, content, tags) VALUES (new.id, new.content, new.tags);
    END;
    CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
        INSERT INTO memories_words (memories_words, rowid, content, tags)
        VALUES ('delete', old.id, old.content, old.tags);
    END;
    CREATE TRIGGER memories_changed AFTER UPDATE OF content, tags ON memories BEGIN
        INSERT INTO memories_words (memories_words, rowid, content, tags)
        VALUES ('delete', old.id, old.content, old.tags);
        INSERT INTO memories_words (rowid, content, tags) VALUES (new.id, new.content, new.tags);
    END;
    PRAGMA user_version = 1;
";

/// Columns that [`recalled`] reads.
const COLUMNS: &str = "id, content, importance, tags, created_ms";

/// Why the store gave nothing.
pub(super) enum Fault {
    Sql(rusqlite::Error),
    File(ToolError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::File(error)
    }
}

impl From<Fault> for ToolError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::File(error) => error,
            Fault::Sql(error) => Self::new(
                ErrorKind::Unavailable,
                format!("the memory's database refused: {error}"),
            ),
        }
    }
}

/// The memories, in a file or in this process with a journal beside it.
pub(super) struct Store {
    connection: Connection,
    /// Where memories are kept while the database cannot be used, and why.
    fallback: Option<(Journal, String)>,
}

/// A memory that may be joined with others.
pub(super) struct Candidate {
    pub(super) id: i64,
    pub(super) memory: NewMemory,
    pub(super) created_ms: i64,
    pub(super) vector: Option<Vec<f32>>,
}

impl Store {
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let journal = Journal::beside(path);
        let opened = open_file(path);
        match opened {
            Ok(connection) => {
                let mut store = Self {
                    connection,
                    fallback: None,
                };
                // What was kept while the database was out of use comes home.
                for (memory, created_ms) in journal.read()? {
                    store.insert(&memory, created_ms)?;
                }
                journal.remove()?;
                Ok(store)
            }
            Err(error) => {
                let mut store = Self::in_process()?;
                for (memory, created_ms) in journal.read()? {
                    store.insert(&memory, created_ms)?;
                }
                let reason = format!(
                    "the memory {} cannot be used ({error}); memories go to {}",
                    path.display(),
                    journal.path().display()
                );
                store.fallback = Some((journal, reason));
                Ok(store)
            }
        }
    }

    pub(super) fn in_process() -> Result<Self, Fault> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self {
            connection,
            fallback: None,
        })
    }

    pub(super) fn degradation(&self) -> Option<&str> {
        self.fallback.as_ref().map(|(_, reason)| reason.as_str())
    }

    /// True if the memory is new.
    pub(super) fn insert(&mut self, memory: &NewMemory, created_ms: i64) -> Result<bool, Fault> {
        if let Some((journal, _)) = &self.fallback {
            journal.append(memory, created_ms)?;
        }
        let transaction = self.connection.transaction()?;
        let changed = transaction.execute(
            "UPDATE memories SET importance = max(importance, ?2) WHERE content = ?1",
            params![memory.content, memory.importance],
        )?;
        if changed == 0 {
            transaction.execute(
                "INSERT INTO memories (content, importance, tags, created_ms)
                 VALUES (?1, ?2, ?3, ?4)",
                params![
                    memory.content,
                    memory.importance,
                    memory.tags.join("\n"),
                    created_ms
                ],
            )?;
            transaction.execute(
                "DELETE FROM memories WHERE id IN (
                     SELECT id FROM memories ORDER BY importance, created_ms
                     LIMIT max(0, (SELECT count(*) FROM memories) - ?1))",
                [MAX_MEMORIES],
            )?;
        }
        transaction.commit()?;
        Ok(changed == 0)
    }

    /// Ids of the memories that hold words of the query, best first.
    pub(super) fn by_words(&self, query: &str) -> Result<Vec<i64>, Fault> {
        let words = query.split(|c: char| !c.is_alphanumeric());
        let words = words.filter(|word| !word.is_empty()).take(MAX_WORDS);
        // Quoted, a word is no operator.
        let any: Vec<String> = words.map(|word| format!("\"{word}\"")).collect();
        if any.is_empty() {
            return Ok(Vec::new());
        }
        self.list(
            "SELECT rowid FROM memories_words WHERE memories_words MATCH ?1
             ORDER BY bm25(memories_words), rowid LIMIT ?2",
            params![any.join(" OR "), MAX_CANDIDATES],
            |row| row.get(0),
        )
    }

    /// Ids of the memories whose vectors are close, closest first.
    pub(super) fn by_meaning(&self, model: &str, vector: &[f32]) -> Result<Vec<i64>, Fault> {
        let all = self.list(
            "SELECT id, vector FROM memories WHERE model = ?1 AND vector IS NOT NULL",
            [model],
            |row| Ok((row.get(0)?, rank::similarity(&read_vector(row, 1)?, vector))),
        )?;
        let mut close: Vec<(i64, f32)> = all;
        close.retain(|(_, similarity)| *similarity >= MIN_SIMILARITY);
        close.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        close.truncate(MAX_CANDIDATES as usize);
        Ok(close.into_iter().map(|(id, _)| id).collect())
    }

    /// The memories of these ids with their scores, in no order.
    pub(super) fn load(
        &self,
        relevances: &HashMap<i64, f64>,
        now_ms: i64,
    ) -> Result<Vec<Recalled>, Fault> {
        let mut found = Vec::new();
        for (id, relevance) in relevances {
            let sql = format!("SELECT {COLUMNS} FROM memories WHERE id = ?1");
            for mut memory in self.list(&sql, [id], recalled)? {
                let age_ms = now_ms.saturating_sub(memory.created_ms);
                memory.score = rank::quality(*relevance, age_ms, memory.importance);
                found.push(memory);
            }
        }
        Ok(found)
    }

    pub(super) fn recent(&self, n_results: u32) -> Result<Vec<Recalled>, Fault> {
        let sql =
            format!("SELECT {COLUMNS} FROM memories ORDER BY created_ms DESC, id DESC LIMIT ?1");
        self.list(&sql, [n_results], recalled)
    }

    pub(super) fn delete(&mut self, id: i64) -> Result<bool, Fault> {
        let deleted = self
            .connection
            .execute("DELETE FROM memories WHERE id = ?1", [id])?;
        self.rewrite_journal()?;
        Ok(deleted > 0)
    }

    pub(super) fn count(&self) -> Result<u32, Fault> {
        let sql = "SELECT count(*) FROM memories";
        Ok(self.connection.query_row(sql, [], |row| row.get(0))?)
    }

    pub(super) fn without_vector(
        &self,
        model: &str,
        n_results: u32,
    ) -> Result<Vec<(i64, String)>, Fault> {
        self.list(
            "SELECT id, content FROM memories WHERE model IS NOT ?1 ORDER BY id DESC LIMIT ?2",
            params![model, n_results],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    pub(super) fn set_vectors(
        &mut self,
        model: &str,
        vectors: &[(i64, Vec<f32>)],
    ) -> Result<(), Fault> {
        let transaction = self.connection.transaction()?;
        for (id, vector) in vectors {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            transaction.execute(
                "UPDATE memories SET model = ?2, vector = ?3 WHERE id = ?1",
                params![id, model, bytes],
            )?;
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn should_consolidate(&self) -> Result<bool, Fault> {
        let sql = "SELECT count(*) FROM memories WHERE consolidated = 0";
        let n_fresh: u32 = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(n_fresh >= CONSOLIDATE_AT)
    }

    /// The oldest memories from before `before_ms` that were not consolidated yet.
    pub(super) fn candidates(&self, before_ms: i64, n: u32) -> Result<Vec<Candidate>, Fault> {
        let sql = format!(
            "SELECT {COLUMNS}, vector FROM memories
             WHERE consolidated = 0 AND created_ms <= ?1 ORDER BY created_ms, id LIMIT ?2"
        );
        self.list(&sql, params![before_ms, n], |row| {
            let Recalled {
                id,
                content,
                importance,
                tags,
                created_ms,
                ..
            } = recalled(row)?;
            let has_vector = row.get_ref(5)? != ValueRef::Null;
            Ok(Candidate {
                id,
                memory: NewMemory {
                    content,
                    importance,
                    tags,
                },
                created_ms,
                vector: has_vector.then(|| read_vector(row, 5)).transpose()?,
            })
        })
    }

    /// Puts one memory in place of several, or only marks them as done.
    pub(super) fn join(&mut self, ids: &[i64], joined: Option<&Candidate>) -> Result<(), Fault> {
        let transaction = self.connection.transaction()?;
        for id in ids {
            let is_kept = joined.is_none_or(|joined| joined.id == *id);
            let sql = if is_kept {
                "UPDATE memories SET consolidated = 1 WHERE id = ?1"
            } else {
                "DELETE FROM memories WHERE id = ?1"
            };
            transaction.execute(sql, [id])?;
        }
        if let Some(Candidate { id, memory, .. }) = joined {
            // A text that is another now gets its vector anew.
            transaction.execute(
                "UPDATE OR REPLACE memories SET content = ?2, importance = ?3, tags = ?4,
                     vector = iif(content = ?2, vector, NULL),
                     model = iif(content = ?2, model, NULL)
                 WHERE id = ?1",
                params![
                    id,
                    memory.content,
                    memory.importance,
                    memory.tags.join("\n")
                ],
            )?;
        }
        transaction.commit()?;
        if joined.is_some() {
            self.rewrite_journal()?;
        }
        Ok(())
    }

    /// Empties the write-ahead log into the database file.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        Ok(self.connection.query_row(sql, [], |_| Ok(()))?)
    }

    /// The journal only grows; what was taken away makes it new.
    fn rewrite_journal(&self) -> Result<(), Fault> {
        let Some((journal, _)) = &self.fallback else {
            return Ok(());
        };
        let all = self.recent(MAX_MEMORIES)?;
        Ok(journal.rewrite(all.into_iter().rev().map(|memory| {
            let Recalled {
                content,
                importance,
                tags,
                created_ms,
                ..
            } = memory;
            (
                NewMemory {
                    content,
                    importance,
                    tags,
                },
                created_ms,
            )
        }))?)
    }

    fn list<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows: rusqlite::Result<Vec<T>> = statement.query_map(params, read)?.collect();
        Ok(rows?)
    }
}

fn open_file(path: &Path) -> rusqlite::Result<Connection> {
    if let Some(parent) = path.parent() {
        // If this fails, so does the next step, and its error says more.
        let _ = std::fs::create_dir_all(parent);
    }
    let _ = private().append(true).open(path);
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        0 => transaction.execute_batch(SCHEMA)?,
        1 => {}
        newer => {
            let message = format!("it is of version {newer}, this program knows 1");
            return Err(rusqlite::Error::ToSqlConversionFailure(message.into()));
        }
    }
    transaction.commit()?;
    Ok(connection)
}

fn recalled(row: &Row<'_>) -> rusqlite::Result<Recalled> {
    let tags: String = row.get(3)?;
    Ok(Recalled {
        id: row.get(0)?,
        content: row.get(1)?,
        importance: row.get(2)?,
        tags: tags.lines().map(str::to_owned).collect(),
        created_ms: row.get(4)?,
        score: 0.0,
    })
}

fn read_vector(row: &Row<'_>, idx: usize) -> rusqlite::Result<Vec<f32>> {
    let bytes = row.get_ref(idx)?.as_blob()?;
    let (chunks, _) = bytes.as_chunks::<4>();
    Ok(chunks
        .iter()
        .map(|chunk| f32::from_le_bytes(*chunk))
        .collect())
}
