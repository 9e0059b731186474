//! PostgreSQL, through a small pool: several servers share it.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Answer, Backend, Error, ErrorKind, Read, SCHEMA_VERSION, StoredResponse, Usage};
use crate::{of_sql, to_sql};

/// Connections of one server.
const CONNECTIONS: usize = 8;
/// Time to get a connection, new or used.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whoever prepares the tables holds this lock, so that servers that start together wait.
const LOCK: i64 = 0x7477_6f70_6173_7301;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS twopass_schema (version BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS twopass_responses (
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        previous_id TEXT,
        created_s BIGINT NOT NULL,
        expires_s BIGINT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (owner, id)
    );
    CREATE INDEX IF NOT EXISTS twopass_responses_by_expiry ON twopass_responses (expires_s);
    CREATE TABLE IF NOT EXISTS twopass_usage (
        owner TEXT NOT NULL,
        day BIGINT NOT NULL,
        requests BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        PRIMARY KEY (owner, day)
    );
";

const CHAIN: &str = "
    WITH RECURSIVE chain AS (
        SELECT r.*, 0::BIGINT AS depth FROM twopass_responses r
        WHERE owner = $1 AND id = $2 AND expires_s > $3
        UNION ALL
        SELECT r.*, depth + 1 FROM twopass_responses r
        JOIN chain ON r.owner = $1 AND r.id = chain.previous_id
        WHERE r.expires_s > $3 AND depth + 1 < $4
    )
    SELECT id, previous_id, created_s, expires_s, body FROM chain ORDER BY depth LIMIT $4";

const PUT: &str = "
    INSERT INTO twopass_responses VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner, id) DO UPDATE SET
    previous_id = excluded.previous_id, created_s = excluded.created_s,
    expires_s = excluded.expires_s, body = excluded.body";

const ADD_USAGE: &str = "
    INSERT INTO twopass_usage AS u VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (owner, day) DO UPDATE SET
    requests = u.requests + excluded.requests,
    prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = u.completion_tokens + excluded.completion_tokens";

const USAGE: &str = "
    SELECT coalesce(sum(requests), 0)::BIGINT, coalesce(sum(prompt_tokens), 0)::BIGINT,
    coalesce(sum(completion_tokens), 0)::BIGINT
    FROM twopass_usage WHERE owner = $1 AND day >= $2";

pub(crate) struct Postgres {
    pool: Pool,
}

impl std::fmt::Debug for Postgres {
    /// The address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Postgres {
    pub(crate) async fn open(url: &str) -> Result<Self, Error> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let message = format!("the store's address cannot be read: {}", reason(&error));
            Error::new(ErrorKind::Config, message)
        })?;
        // More than one provider may be built in; another crate may have chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = ClientConfig::with_platform_verifier()
            .map_err(|error| Error::new(ErrorKind::Config, error.to_string()))?;
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(config, MakeRustlsConnect::new(tls), recycling);
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(PATIENCE),
                create: Some(PATIENCE),
                recycle: Some(PATIENCE),
            })
            .build()
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        let store = Self { pool };
        store.prepare().await?;
        Ok(store)
    }

    /// Makes the tables, one server at a time.
    async fn prepare(&self) -> Result<(), Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(failed)?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        transaction.execute(lock, &[&LOCK]).await.map_err(failed)?;
        transaction.batch_execute(TABLES).await.map_err(failed)?;
        let version = "SELECT version FROM twopass_schema";
        let found = transaction.query_opt(version, &[]).await.map_err(failed)?;
        match found.map(|row| row.get::<_, i64>(0)) {
            None => {
                let sql = "INSERT INTO twopass_schema VALUES ($1)";
                let written = transaction.execute(sql, &[&SCHEMA_VERSION]).await;
                written.map_err(failed)?;
            }
            Some(version) if version > SCHEMA_VERSION => {
                let message = format!(
                    "the store's tables have version {version}, this program knows {SCHEMA_VERSION}"
                );
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            Some(_) => {}
        }
        transaction.commit().await.map_err(failed)
    }

    async fn client(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| {
            let why = match &error {
                deadpool_postgres::PoolError::Backend(error) => reason(error),
                other => other.to_string(),
            };
            let message = format!("the store cannot be reached: {why}");
            Error::new(ErrorKind::Unavailable, message)
        })
    }
}

/// The reason at the end of the chain: the outer texts only name what was tried.
fn reason(error: &tokio_postgres::Error) -> String {
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    source.to_string()
}

fn failed(error: tokio_postgres::Error) -> Error {
    let kind = if error.is_closed() || error.code().is_none() {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Internal
    };
    Error::new(kind, format!("the store: {}", reason(&error)))
}

impl Backend for Postgres {
    fn put<'a>(&'a self, owner: &'a str, response: StoredResponse) -> Answer<'a, ()> {
        Box::pin(async move {
            let client = self.client().await?;
            let put = client.prepare_cached(PUT).await.map_err(failed)?;
            let (created, expires) = (to_sql(response.created_s), to_sql(response.expires_s));
            let StoredResponse {
                id,
                previous_id,
                body,
                ..
            } = &response;
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&owner, id, previous_id, &created, &expires, body];
            client.execute(&put, &values).await.map_err(failed)?;
            Ok(())
        })
    }

    fn chain<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
        read: Read,
    ) -> Answer<'a, Vec<StoredResponse>> {
        Box::pin(async move {
            let client = self.client().await?;
            let chain = client.prepare_cached(CHAIN).await.map_err(failed)?;
            let (now, limit) = (to_sql(read.now_s), i64::from(read.limit));
            let rows = client.query(&chain, &[&owner, &id, &now, &limit]).await;
            Ok(rows.map_err(failed)?.iter().map(response).collect())
        })
    }

    fn delete<'a>(&'a self, owner: &'a str, id: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            let sql = "DELETE FROM twopass_responses WHERE owner = $1 AND id = $2";
            let client = self.client().await?;
            let n = client.execute(sql, &[&owner, &id]).await.map_err(failed)?;
            Ok(n > 0)
        })
    }

    fn forget_expired(&self, now_s: u64) -> Answer<'_, u64> {
        Box::pin(async move {
            let sql = "DELETE FROM twopass_responses WHERE expires_s <= $1";
            let client = self.client().await?;
            client.execute(sql, &[&to_sql(now_s)]).await.map_err(failed)
        })
    }

    fn add_usage<'a>(&'a self, owner: &'a str, day: u32, usage: Usage) -> Answer<'a, ()> {
        Box::pin(async move {
            let client = self.client().await?;
            let add = client.prepare_cached(ADD_USAGE).await.map_err(failed)?;
            let numbers = [usage.requests, usage.prompt_tokens, usage.completion_tokens];
            let [requests, prompt, completion] = numbers.map(to_sql);
            let day = i64::from(day);
            let added = client
                .execute(&add, &[&owner, &day, &requests, &prompt, &completion])
                .await;
            added.map_err(failed)?;
            Ok(())
        })
    }

    fn usage<'a>(&'a self, owner: &'a str, since_day: u32) -> Answer<'a, Usage> {
        Box::pin(async move {
            let client = self.client().await?;
            let since = i64::from(since_day);
            let row = client.query_one(USAGE, &[&owner, &since]).await;
            let row = row.map_err(failed)?;
            Ok(Usage {
                requests: of_sql(row.get(0)),
                prompt_tokens: of_sql(row.get(1)),
                completion_tokens: of_sql(row.get(2)),
            })
        })
    }
}

fn response(row: &Row) -> StoredResponse {
    StoredResponse {
        id: row.get(0),
        previous_id: row.get(1),
        created_s: of_sql(row.get(2)),
        expires_s: of_sql(row.get(3)),
        body: row.get(4),
    }
}
