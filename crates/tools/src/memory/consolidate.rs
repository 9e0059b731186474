//! Memories that say the same become one.

use super::sqlite::{Candidate, Fault, Store};
use super::{MAX_CONTENT_CHARS, MAX_TAGS, rank};

/// Memories that one consolidation looks at.
const BATCH: u32 = 50;

/// Least age of a memory, in milliseconds: the conversation that it is from may go on.
const MIN_AGE_MS: i64 = 3_600_000;

/// Least cosine of memories that say the same.
const SAME: f32 = 0.85;

/// What a consolidation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consolidated {
    /// Memories that were looked at.
    pub n_seen: usize,
    /// Memories that went into others.
    pub n_joined: usize,
}

pub(super) fn consolidate(store: &mut Store, now_ms: i64) -> Result<Consolidated, Fault> {
    let mut done = Consolidated::default();
    for cluster in clusters(store.candidates(now_ms.saturating_sub(MIN_AGE_MS), BATCH)?) {
        let ids: Vec<i64> = cluster.iter().map(|member| member.id).collect();
        done.n_seen += ids.len();
        done.n_joined += ids.len() - 1;
        let joined = joined(cluster);
        store.join(&ids, joined.as_ref())?;
    }
    Ok(done)
}

/// Groups by closeness to a group's first member.
fn clusters(candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    let mut clusters: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates {
        let home = clusters
            .iter_mut()
            .find(|cluster| says_the_same(&cluster[0], &candidate));
        match home {
            Some(cluster) => cluster.push(candidate),
            None => clusters.push(vec![candidate]),
        }
    }
    clusters
}

fn says_the_same(a: &Candidate, b: &Candidate) -> bool {
    match (&a.vector, &b.vector) {
        (Some(a), Some(b)) => rank::similarity(a, b) >= SAME,
        // Without vectors only what differs in case, spaces and punctuation.
        _ => words(&a.memory.content) == words(&b.memory.content),
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// One memory for a group of several: the most important text first, then every other that
/// adds a word, as long as there is room.
fn joined(mut cluster: Vec<Candidate>) -> Option<Candidate> {
    if cluster.len() < 2 {
        return None;
    }
    cluster.sort_by(|a, b| {
        let by_importance = b.memory.importance.total_cmp(&a.memory.importance);
        by_importance
            .then(b.created_ms.cmp(&a.created_ms))
            .then(b.id.cmp(&a.id))
    });
    let mut members = cluster.into_iter();
    let mut first = members.next()?;
    for other in members {
        let known = words(&first.memory.content);
        let adds = words(&other.memory.content)
            .iter()
            .any(|word| !known.contains(word));
        let n_chars = first.memory.content.chars().count() + other.memory.content.chars().count();
        if adds && n_chars < MAX_CONTENT_CHARS {
            first.memory.content.push('\n');
            first.memory.content.push_str(&other.memory.content);
        }
        for tag in other.memory.tags {
            if !first.memory.tags.contains(&tag) && first.memory.tags.len() < MAX_TAGS.0 {
                first.memory.tags.push(tag);
            }
        }
    }
    Some(first)
}
