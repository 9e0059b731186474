//! The same tests against every place that a store can be at.
//!
//! PostgreSQL is asked where `TWOPASS_TEST_POSTGRES` holds its address (`cargo xtask test`
//! starts one where it is installed); each test there has a schema of its own.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::atomic::{AtomicU64, Ordering};

use twopass_store::{ErrorKind, Read, Store, StoredResponse, Usage};

/// Names the address of a PostgreSQL server whose contents do not matter.
const POSTGRES: &str = "TWOPASS_TEST_POSTGRES";
static N_SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// Every place, named; the folder keeps the file alive.
async fn places() -> Vec<(String, Store, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made/on the way/store.sqlite");
    let file = Store::open(file.to_str().unwrap()).await.unwrap();
    let mut places = vec![
        (
            "memory".to_owned(),
            Store::open("memory").await.unwrap(),
            None,
        ),
        ("file".to_owned(), file, Some(folder)),
    ];
    if let Some(url) = postgres().await {
        places.push((
            "postgres".to_owned(),
            Store::open(&url).await.unwrap(),
            None,
        ));
    }
    places
}

/// The address of an empty schema.
async fn postgres() -> Option<String> {
    let Ok(url) = std::env::var(POSTGRES) else {
        eprintln!("{POSTGRES} is not set: PostgreSQL is not tested");
        return None;
    };
    let number = N_SCHEMAS.fetch_add(1, Ordering::Relaxed);
    let schema = format!("t{}_{number}", std::process::id());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(&format!("CREATE SCHEMA {schema}"))
        .await
        .unwrap();
    let mark = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{mark}options=-c%20search_path%3D{schema}"))
}

fn stored(id: &str, previous: Option<&str>, body: &str) -> StoredResponse {
    StoredResponse {
        id: id.to_owned(),
        previous_id: previous.map(str::to_owned),
        created_s: 1,
        expires_s: 100,
        body: body.to_owned(),
    }
}

const NOW: Read = Read {
    now_s: 50,
    limit: 10,
};

#[tokio::test]
async fn responses_are_kept_in_chains_by_owner() {
    for (place, store, _folder) in places().await {
        let body = "{\"text\": \"naïve 🦀 ' \\\\ \\u0000\"}".repeat(5000);
        for (id, previous) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
            store.put("me", stored(id, previous, &body)).await.unwrap();
        }
        let ids = |chain: &[StoredResponse]| -> Vec<String> {
            chain.iter().map(|response| response.id.clone()).collect()
        };
        let chain = store.chain("me", "c", NOW).await.unwrap();
        assert_eq!(ids(&chain), ["c", "b", "a"], "{place}");
        assert_eq!(chain[2], stored("a", None, &body), "{place}");
        let short = Read { limit: 2, ..NOW };
        let chain = store.chain("me", "c", short).await.unwrap();
        assert_eq!(ids(&chain), ["c", "b"], "{place}");
        assert!(
            store.chain("you", "c", NOW).await.unwrap().is_empty(),
            "{place}"
        );

        store
            .put("me", stored("b", Some("a"), "new"))
            .await
            .unwrap();
        let chain = store.chain("me", "b", NOW).await.unwrap();
        assert_eq!((chain[0].body.as_str(), chain.len()), ("new", 2), "{place}");
        assert!(!store.delete("you", "b").await.unwrap(), "{place}");
        assert!(store.delete("me", "b").await.unwrap(), "{place}");
        assert!(!store.delete("me", "b").await.unwrap(), "{place}");
        let chain = store.chain("me", "c", NOW).await.unwrap();
        assert_eq!(ids(&chain), ["c"], "{place}: what it went on from is gone");
    }
}

#[tokio::test]
async fn a_response_that_names_itself_ends() {
    for (place, store, _folder) in places().await {
        store.put("me", stored("a", Some("b"), "")).await.unwrap();
        store.put("me", stored("b", Some("a"), "")).await.unwrap();
        let chain = store.chain("me", "a", NOW).await.unwrap();
        assert_eq!(chain.len(), 10, "{place}");
    }
}

#[tokio::test]
async fn what_has_expired_is_not_there() {
    for (place, store, _folder) in places().await {
        store.put("me", stored("a", None, "")).await.unwrap();
        let late = Read { now_s: 100, ..NOW };
        assert!(
            store.chain("me", "a", late).await.unwrap().is_empty(),
            "{place}"
        );
        assert_eq!(store.forget_expired(99).await.unwrap(), 0, "{place}");
        assert_eq!(store.forget_expired(100).await.unwrap(), 1, "{place}");
        assert!(
            store.chain("me", "a", NOW).await.unwrap().is_empty(),
            "{place}"
        );
    }
}

#[tokio::test]
async fn usage_adds_up_by_day() {
    for (place, store, _folder) in places().await {
        let one = Usage {
            requests: 1,
            prompt_tokens: 10,
            completion_tokens: 5,
        };
        for day in [7, 8, 8] {
            store.add_usage("me", day, one).await.unwrap();
        }
        store.add_usage("you", 8, one).await.unwrap();
        let since = async |day| store.usage("me", day).await.unwrap();
        assert_eq!(since(0).await.requests, 3, "{place}");
        assert_eq!(since(8).await.prompt_tokens, 20, "{place}");
        assert_eq!(since(9).await, Usage::default(), "{place}");
    }
}

/// Many at once, and what was acknowledged is there for whoever opens the file next.
#[tokio::test]
async fn an_acknowledged_write_is_there_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.sqlite");
    let place = file.to_str().unwrap();
    let store = Store::open(place).await.unwrap();
    let writes: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.put("me", stored(&n.to_string(), None, "x")).await })
        })
        .collect();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others cannot read it");
    }
    let other = Store::open(place).await.unwrap();
    for n in 0..200 {
        let found = other.chain("me", &n.to_string(), NOW).await.unwrap();
        assert_eq!(found.len(), 1, "{n}");
    }
}

#[tokio::test]
async fn a_place_that_is_none_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("no.sqlite");
    std::fs::write(&garbage, "this is no database, whatever its name says").unwrap();
    let newer = folder.path().join("newer.sqlite");
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    for (place, kind, text) in [
        (
            garbage.to_str().unwrap(),
            ErrorKind::Unavailable,
            "not a database",
        ),
        (
            newer.to_str().unwrap(),
            ErrorKind::Unavailable,
            "version 99",
        ),
        (
            "postgres://u:s3cret@127.0.0.1:1/x",
            ErrorKind::Unavailable,
            "refused",
        ),
        (
            "postgres://u:s3cret@127.0.0.1:port/x",
            ErrorKind::Config,
            "cannot be read",
        ),
    ] {
        let error = Store::open(place).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}
