//! Long-term memory (rows I3, L6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use twopass_tools::memory::{Consolidated, Embedder, Memory, NewMemory};
use twopass_tools::{ErrorKind, Policy, ToolContext, ToolError, ToolRegistry, Workspace};

const HOUR: i64 = 3_600_000;

/// Counts letters: texts of the same words have close vectors. Real models stand behind the
/// same trait in the provider's crate.
struct Letters {
    is_down: AtomicBool,
}

impl Embedder for Letters {
    fn model(&self) -> &str {
        "letters"
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, ToolError>> {
        let vector = |text: &String| {
            let count = |letter: char| text.to_lowercase().matches(letter).count() as f32;
            ('a'..='z').map(count).collect()
        };
        let answer = if self.is_down.load(Ordering::Relaxed) {
            Err(ToolError::failed("the model is down"))
        } else {
            Ok(texts.iter().map(vector).collect())
        };
        async move { answer }.boxed()
    }
}

fn letters() -> Arc<Letters> {
    Arc::new(Letters {
        is_down: AtomicBool::new(false),
    })
}

fn memory(content: &str, importance: f64) -> NewMemory {
    NewMemory {
        content: content.to_owned(),
        importance,
        tags: Vec::new(),
    }
}

async fn contents(memory: &Memory, query: &str, now_ms: i64) -> Vec<String> {
    let found = memory.recall_at(query, 10, now_ms).await.unwrap();
    found.into_iter().map(|memory| memory.content).collect()
}

#[tokio::test]
async fn i3_l6_the_tools_store_and_recall() {
    let registry = ToolRegistry::new();
    Memory::in_process(None)
        .unwrap()
        .register(&registry)
        .unwrap();
    registry.set_default_policy(Policy::Auto);
    let context = ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap());
    let run = async |name, arguments| crate::run(&registry, &context, name, arguments).await;
    let store = r#"{"content": " The user's cat is called Mia. ", "importance": 0.8, "tags": ["cat", "pets"]}"#;
    assert_eq!(run("store_memory", store).await.text, "stored");
    assert_eq!(
        run("store_memory", store).await.text,
        "this was stored already"
    );
    let output = run("recall_memory", r#"{"query": "What are the cats' names?"}"#).await;
    assert!(output.text.starts_with("1. [20"), "{}", output.text);
    assert!(
        output
            .text
            .ends_with(", importance 0.8, tags: cat, pets] The user's cat is called Mia.")
    );
    let output = run("recall_memory", r#"{"query": "submarine"}"#).await;
    assert_eq!(output.text, "[nothing is remembered about this]");
    for arguments in [
        r#"{"content": ""}"#,
        r#"{"content": "  "}"#,
        r#"{"content": "x", "importance": 2}"#,
        r#"{"content": "x", "mood": 1}"#,
    ] {
        let output = run("store_memory", arguments).await;
        assert_eq!(
            output.error,
            Some(ErrorKind::InvalidArguments),
            "{arguments}"
        );
    }
    // Words of the index's language are words.
    let output = run(
        "recall_memory",
        r#"{"query": "\" OR NEAR( * cat AND ^ -x:"}"#,
    )
    .await;
    assert!(
        !output.is_error() && output.text.contains("Mia"),
        "{}",
        output.text
    );
}

#[tokio::test]
async fn l6_ranks_by_words_meaning_age_and_importance() {
    let store = Memory::in_process(Some(letters())).unwrap();
    for (content, importance, at) in [
        ("listen to the concert", 0.9, 0),
        ("a stone wall", 0.5, 0),
        ("the deadline is monday", 0.6, 0),
        ("the deadline was friday", 0.5, 0),
        ("tea is at four", 0.5, 0),
        ("tea is at five", 0.5, 700 * HOUR),
    ] {
        assert!(
            store
                .store_at(memory(content, importance), at)
                .await
                .unwrap()
        );
    }
    // No word in common, the same letters.
    let found = contents(&store, "silent", 0).await;
    assert_eq!(found[0], "listen to the concert");
    let found = contents(&store, "deadline", 0).await;
    assert_eq!(
        found[..2],
        ["the deadline is monday", "the deadline was friday"]
    );
    let found = contents(&store, "tea", 700 * HOUR).await;
    assert_eq!(found[..2], ["tea is at five", "tea is at four"]);
    let scores = store.recall_at("deadline", 10, 0).await.unwrap();
    assert!(
        scores
            .iter()
            .all(|memory| (0.0..=1.0).contains(&memory.score))
    );
    assert_eq!(store.recall_at("tea", 1, 0).await.unwrap().len(), 1);
}

/// Without the model memory works by words, and what was stored meanwhile gets its vector.
#[tokio::test]
async fn l6_a_model_that_is_down_is_made_up_for() {
    let model = letters();
    let store = Memory::in_process(Some(model.clone())).unwrap();
    model.is_down.store(true, Ordering::Relaxed);
    store
        .store(memory("listen to the concert", 0.5))
        .await
        .unwrap();
    assert_eq!(contents(&store, "concert", 0).await.len(), 1);
    assert_eq!(contents(&store, "silent", 0).await.len(), 0);
    model.is_down.store(false, Ordering::Relaxed);
    store.store(memory("xyz", 0.5)).await.unwrap();
    assert_eq!(
        contents(&store, "silent", 0).await,
        ["listen to the concert"]
    );
}

#[tokio::test]
async fn l6_consolidation_joins_what_says_the_same() {
    for embedder in [Some(letters() as Arc<dyn Embedder>), None] {
        let store = Memory::in_process(embedder).unwrap();
        for (content, importance) in [
            ("The user likes tea", 0.3),
            ("the user likes tea!", 0.7),
            ("zzz quiz jazz", 0.5),
        ] {
            store
                .store_at(memory(content, importance), 0)
                .await
                .unwrap();
        }
        store
            .store_at(memory("The user likes TEA", 0.1), HOUR)
            .await
            .unwrap();
        // The last one is not an hour old.
        let done = store.consolidate_at(HOUR).await.unwrap();
        assert_eq!(
            done,
            Consolidated {
                n_seen: 3,
                n_joined: 1
            }
        );
        let found = store.recent(10).await.unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|m| (m.content.as_str(), m.importance))
            .collect();
        assert_eq!(
            found,
            [
                ("The user likes TEA", 0.1),
                ("zzz quiz jazz", 0.5),
                ("the user likes tea!", 0.7)
            ]
        );
        let again = store.consolidate_at(HOUR).await.unwrap();
        assert_eq!(again, Consolidated::default(), "once is enough");
        assert_eq!(contents(&store, "tea", HOUR).await.len(), 2);
    }
}

#[tokio::test]
async fn l6_consolidation_comes_by_itself() {
    let store = Memory::in_process(None).unwrap();
    for n in 0..101 {
        let mark = if n % 2 == 0 { "" } else { "." };
        store
            .store_at(memory(&format!("fact {}{mark}", n / 2), 0.5), n * HOUR)
            .await
            .unwrap();
    }
    let count = store.count().await.unwrap();
    assert!(count < 90, "{count}");
}

#[tokio::test]
async fn l6_memory_is_on_disk_at_once_and_flushed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/memory.db");
    let first = Memory::open(&path, None).await.unwrap();
    first.store(memory("kept", 0.5)).await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others cannot read it");
    }
    // Another process sees it while the first is still open.
    let second = Memory::open(&path, None).await.unwrap();
    assert_eq!(contents(&second, "kept", 0).await, ["kept"]);
    second.store(memory("kept by both", 0.5)).await.unwrap();
    assert_eq!(contents(&first, "both", 0).await, ["kept by both"]);
    first.flush().await.unwrap();
    let log = std::fs::metadata(dir.path().join("deep/memory.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0);
    let newest = first.recent(1).await.unwrap()[0].id;
    assert!(first.delete(newest).await.unwrap() && !first.delete(newest).await.unwrap());
    assert_eq!(second.count().await.unwrap(), 1);
}

/// A database that cannot be used: a file of lines takes its place and comes home later.
#[tokio::test]
async fn l6_the_file_takes_over_and_comes_home() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memory.db");
    std::fs::write(
        &path,
        "this is no database, and long enough to be told from one",
    )
    .unwrap();
    for n in 0..2 {
        let memory_now = Memory::open(&path, None).await.unwrap();
        let reason = memory_now.degradation().unwrap();
        assert!(reason.contains("memory.db.jsonl"), "{reason}");
        assert_eq!(memory_now.count().await.unwrap(), n);
        memory_now
            .store(memory(&format!("number {n}"), 0.5))
            .await
            .unwrap();
        memory_now
            .store(memory("number of no worth", 0.5))
            .await
            .unwrap();
        let newest = memory_now.recent(1).await.unwrap()[0].id;
        memory_now.delete(newest).await.unwrap();
    }
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .starts_with("this is no database")
    );
    std::fs::remove_file(&path).unwrap();
    // A line that a crash cut does not count.
    let lines = path.with_extension("db.jsonl");
    let text = std::fs::read_to_string(&lines).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    std::fs::write(&lines, format!("{text}{{\"content\": \"cut")).unwrap();
    let home = Memory::open(&path, None).await.unwrap();
    assert_eq!(home.degradation(), None);
    assert_eq!(contents(&home, "number", 0).await.len(), 2);
    assert!(!lines.exists());
}
