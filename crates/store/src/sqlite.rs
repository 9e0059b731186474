//! SQLite, on a thread of its own: its calls block, and one connection is all it needs.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::{mpsc, oneshot};

use crate::{Answer, Backend, Error, ErrorKind, Read, SCHEMA_VERSION, StoredResponse, Usage};
use crate::{of_sql, to_sql};

/// Work that may wait; who comes after that waits with its own request.
const QUEUE: usize = 256;
/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(5);

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS responses (
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        previous_id TEXT,
        created_s INTEGER NOT NULL,
        expires_s INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (owner, id)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS responses_by_expiry ON responses (expires_s);
    CREATE TABLE IF NOT EXISTS usage (
        owner TEXT NOT NULL,
        day INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        PRIMARY KEY (owner, day)
    ) WITHOUT ROWID;
";

const CHAIN: &str = "
    WITH RECURSIVE chain AS (
        SELECT *, 0 AS depth FROM responses WHERE owner = ?1 AND id = ?2 AND expires_s > ?3
        UNION ALL
        SELECT r.*, depth + 1 FROM responses r
        JOIN chain ON r.owner = ?1 AND r.id = chain.previous_id
        WHERE r.expires_s > ?3 AND depth + 1 < ?4
    )
    SELECT id, previous_id, created_s, expires_s, body FROM chain ORDER BY depth LIMIT ?4";

type Job = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub(crate) struct Sqlite {
    jobs: mpsc::Sender<Job>,
}

impl Sqlite {
    pub(crate) async fn open(place: &str) -> Result<Self, Error> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let (opened, is_open) = oneshot::channel();
        let place = place.to_owned();
        let run = move || match connect(&place) {
            Ok(connection) => {
                // Nobody waits any more: the queue is closed too.
                let _ = opened.send(Ok(()));
                while let Some(job) = queue.blocking_recv() {
                    job(&connection);
                }
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        };
        thread::Builder::new()
            .name("twopass-sqlite".to_owned())
            .spawn(run)
            .map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        is_open.await.map_err(|_| gone())??;
        Ok(Self { jobs })
    }

    fn run<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'a, T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // A caller that has gone needs no answer.
            let _ = answer.send(work(connection).map_err(failed));
        });
        Box::pin(async move {
            self.jobs.send(job).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        })
    }
}

fn connect(place: &str) -> Result<Connection, Error> {
    let broken = |why: String| {
        let message = format!("cannot open the store `{place}`: {why}");
        Error::new(ErrorKind::Unavailable, message)
    };
    if let Some(folder) = Path::new(place).parent() {
        std::fs::create_dir_all(folder).map_err(|error| broken(error.to_string()))?;
    }
    create_private(Path::new(place)).map_err(|error| broken(error.to_string()))?;
    let connection = Connection::open(place).map_err(|error| broken(error.to_string()))?;
    let version = prepare(&connection).map_err(|error| broken(error.to_string()))?;
    if version > SCHEMA_VERSION {
        return Err(broken(format!(
            "its tables have version {version}, this program knows {SCHEMA_VERSION}"
        )));
    }
    Ok(connection)
}

/// Makes the file, if it is not there, for its owner alone; what SQLite keeps beside it is as it
/// is.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(|_| ())
}

/// Makes the tables; returns the version of those that are there.
fn prepare(connection: &Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // Every commit reaches the disk: what was acknowledged survives.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    Ok(version)
}

fn failed(error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DiskFull) => {
            ErrorKind::Unavailable
        }
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("the store: {error}"))
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the store's thread has ended")
}

impl Backend for Sqlite {
    fn put<'a>(&'a self, owner: &'a str, response: StoredResponse) -> Answer<'a, ()> {
        let owner = owner.to_owned();
        self.run(move |connection| {
            let sql = "INSERT OR REPLACE INTO responses VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            connection.prepare_cached(sql)?.execute(params![
                owner,
                response.id,
                response.previous_id,
                to_sql(response.created_s),
                to_sql(response.expires_s),
                response.body
            ])?;
            Ok(())
        })
    }

    fn chain<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
        read: Read,
    ) -> Answer<'a, Vec<StoredResponse>> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.run(move |connection| {
            let mut query = connection.prepare_cached(CHAIN)?;
            let now = to_sql(read.now_s);
            let rows = query.query_map(params![owner, id, now, read.limit], response)?;
            rows.collect()
        })
    }

    fn delete<'a>(&'a self, owner: &'a str, id: &'a str) -> Answer<'a, bool> {
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.run(move |connection| {
            let sql = "DELETE FROM responses WHERE owner = ?1 AND id = ?2";
            Ok(connection
                .prepare_cached(sql)?
                .execute(params![owner, id])?
                > 0)
        })
    }

    fn forget_expired(&self, now_s: u64) -> Answer<'_, u64> {
        self.run(move |connection| {
            let sql = "DELETE FROM responses WHERE expires_s <= ?1";
            let n = connection.execute(sql, params![to_sql(now_s)])?;
            Ok(n as u64)
        })
    }

    fn add_usage<'a>(&'a self, owner: &'a str, day: u32, usage: Usage) -> Answer<'a, ()> {
        let owner = owner.to_owned();
        self.run(move |connection| {
            let sql = "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5)
                ON CONFLICT (owner, day) DO UPDATE SET
                requests = requests + excluded.requests,
                prompt_tokens = prompt_tokens + excluded.prompt_tokens,
                completion_tokens = completion_tokens + excluded.completion_tokens";
            connection.prepare_cached(sql)?.execute(params![
                owner,
                day,
                to_sql(usage.requests),
                to_sql(usage.prompt_tokens),
                to_sql(usage.completion_tokens)
            ])?;
            Ok(())
        })
    }

    fn usage<'a>(&'a self, owner: &'a str, since_day: u32) -> Answer<'a, Usage> {
        let owner = owner.to_owned();
        self.run(move |connection| {
            let sql = "SELECT sum(requests), sum(prompt_tokens), sum(completion_tokens)
                FROM usage WHERE owner = ?1 AND day >= ?2";
            let mut query = connection.prepare_cached(sql)?;
            let sum = |row: &Row<'_>, idx| -> rusqlite::Result<u64> {
                Ok(of_sql(row.get::<_, Option<i64>>(idx)?.unwrap_or(0)))
            };
            let found = query.query_row(params![owner, since_day], |row| {
                Ok(Usage {
                    requests: sum(row, 0)?,
                    prompt_tokens: sum(row, 1)?,
                    completion_tokens: sum(row, 2)?,
                })
            });
            Ok(found.optional()?.unwrap_or_default())
        })
    }
}

fn response(row: &Row<'_>) -> rusqlite::Result<StoredResponse> {
    Ok(StoredResponse {
        id: row.get(0)?,
        previous_id: row.get(1)?,
        created_s: of_sql(row.get(2)?),
        expires_s: of_sql(row.get(3)?),
        body: row.get(4)?,
    })
}
