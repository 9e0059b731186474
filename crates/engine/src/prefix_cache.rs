//! Which finished sequences lie in the KV cache, and which of them a prompt can go on from.
//!
//! This file only keeps the books; the scheduler moves the cells.

use crate::TokenId;

/// A sequence in the cache that nobody is generating on.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its number in the context.
    pub(crate) sequence: u32,
    /// What it holds.
    pub(crate) tokens: Vec<TokenId>,
}

/// The kept sequences, the least recently used first.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    entries: Vec<Entry>,
    limit: usize,
}

impl PrefixCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            limit,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry that shares the longest beginning with `prompt`, and how much it shares.
    /// With `whole_only` an entry counts only if all of it is shared.
    pub(crate) fn longest(&self, prompt: &[TokenId], whole_only: bool) -> Option<(usize, usize)> {
        self.entries
            .iter()
            .map(|entry| common_prefix(&entry.tokens, prompt))
            .enumerate()
            .filter(|&(idx, n)| n > 0 && (!whole_only || n == self.entries[idx].tokens.len()))
            .max_by_key(|&(_, n)| n)
    }

    /// What an entry holds.
    pub(crate) fn tokens(&self, idx: usize) -> &[TokenId] {
        &self.entries[idx].tokens
    }

    /// Marks an entry as just used and returns its sequence.
    pub(crate) fn touch(&mut self, idx: usize) -> u32 {
        self.entries[idx..].rotate_left(1);
        self.entries[self.entries.len() - 1].sequence
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, idx: usize) -> Entry {
        self.entries.remove(idx)
    }

    /// Keeps a sequence as the most recently used one. Returns the sequences that gave way:
    /// those that it contains (unless `keep_prefixes`) and, over the limit, the oldest.
    pub(crate) fn insert(&mut self, entry: Entry, keep_prefixes: bool) -> Vec<u32> {
        let mut gone = Vec::new();
        if !keep_prefixes {
            self.entries.retain(|old| {
                let is_contained = entry.tokens.starts_with(&old.tokens);
                if is_contained {
                    gone.push(old.sequence);
                }
                !is_contained
            });
        }
        self.entries.push(entry);
        while self.entries.len() > self.limit {
            gone.push(self.entries.remove(0).sequence);
        }
        gone
    }

    /// Takes out the least recently used entry.
    pub(crate) fn evict(&mut self) -> Option<u32> {
        (!self.entries.is_empty()).then(|| self.entries.remove(0).sequence)
    }
}

/// Length of the common beginning.
pub(crate) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u32, tokens: &[TokenId]) -> Entry {
        Entry {
            sequence,
            tokens: tokens.to_vec(),
        }
    }

    #[test]
    fn the_longest_beginning_wins_and_use_protects_from_eviction() {
        let mut cache = PrefixCache::new(2);
        assert!(cache.insert(entry(0, &[1, 2, 3]), false).is_empty());
        assert!(cache.insert(entry(1, &[1, 9]), false).is_empty());
        assert_eq!(cache.longest(&[1, 2, 7], false), Some((0, 2)));
        assert_eq!(cache.longest(&[1, 2, 7], true), None);
        assert_eq!(cache.longest(&[5], false), None);
        assert_eq!(cache.touch(0), 0);
        assert_eq!(cache.insert(entry(2, &[4]), false), [1]);
        assert_eq!(cache.evict(), Some(0));
    }

    #[test]
    fn a_longer_sequence_replaces_its_own_beginning() {
        let mut cache = PrefixCache::new(4);
        cache.insert(entry(0, &[1, 2]), false);
        assert_eq!(cache.insert(entry(1, &[1, 2, 3]), false), [0]);
        assert_eq!(cache.len(), 1);
        cache.insert(entry(2, &[1, 2, 3, 4]), true);
        assert_eq!(cache.len(), 2);
    }
}
