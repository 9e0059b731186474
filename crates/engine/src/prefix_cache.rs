//! Which finished sequences are kept, and which of them a prompt can go on from.
//!
//! A kept sequence lies in the KV cache until another turn is admitted, then outside it, as
//! bytes: the cells of a sequence that nobody generates on still cost every stream time,
//! since attention runs over all cells up to the last one in use. This file only keeps the
//! books; the scheduler moves the cells.

use std::sync::Arc;

use crate::TokenId;
use crate::adapters::AdapterId;

/// Where a kept sequence is.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the context, under this number.
    Cells(u32),
    /// Outside it, as llama.cpp writes a sequence's state.
    Parked(Arc<Vec<u8>>),
}

/// A sequence that nobody is generating on.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// What it was computed with.
    pub(crate) adapter: AdapterId,
    /// What it holds.
    pub(crate) tokens: Vec<TokenId>,
}

/// The kept sequences, the least recently used first.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    entries: Vec<Entry>,
    limit: usize,
    /// Most bytes of parked sequences.
    limit_bytes: usize,
}

impl PrefixCache {
    pub(crate) fn new(limit: usize, limit_bytes: usize) -> Self {
        Self {
            entries: Vec::new(),
            limit,
            limit_bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is kept, the least recently used first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The entry that shares the longest beginning with `prompt`, and how much it shares.
    /// With `whole_only` an entry counts only if all of it is shared.
    pub(crate) fn longest(
        &self,
        prompt: &[TokenId],
        adapter: AdapterId,
        whole_only: bool,
    ) -> Option<(usize, usize)> {
        let shared = |entry: &Entry| match entry.adapter == adapter {
            true => common_prefix(&entry.tokens, prompt),
            false => 0,
        };
        self.entries
            .iter()
            .map(shared)
            .enumerate()
            .filter(|&(idx, n)| n > 0 && (!whole_only || n == self.entries[idx].tokens.len()))
            .max_by_key(|&(_, n)| n)
    }

    /// What an entry holds.
    pub(crate) fn tokens(&self, idx: usize) -> &[TokenId] {
        &self.entries[idx].tokens
    }

    /// Marks an entry as just used: it is the latest now.
    pub(crate) fn touch(&mut self, idx: usize) {
        self.entries[idx..].rotate_left(1);
    }

    /// The most recently used entry.
    pub(crate) fn latest(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, idx: usize) -> Entry {
        self.entries.remove(idx)
    }

    /// Keeps a sequence as the most recently used one. Returns the sequences in the context
    /// that gave way: those that it contains (unless `keep_prefixes`) and, over the limit,
    /// the oldest.
    pub(crate) fn insert(&mut self, entry: Entry, keep_prefixes: bool) -> Vec<u32> {
        let mut gone = Vec::new();
        if !keep_prefixes {
            let is_contained = |old: &mut Entry| {
                old.adapter == entry.adapter && entry.tokens.starts_with(&old.tokens)
            };
            gone.extend(self.entries.extract_if(.., is_contained));
        }
        self.entries.push(entry);
        let n_over = self.entries.len().saturating_sub(self.limit);
        gone.extend(self.entries.drain(..n_over));
        gone.iter().filter_map(Entry::sequence).collect()
    }

    /// Takes out the least recently used entry that lies in the context.
    pub(crate) fn evict(&mut self) -> Option<u32> {
        let idx = self.entries.iter().position(|e| e.sequence().is_some())?;
        self.entries.remove(idx).sequence()
    }

    /// Moves every entry out of the context: `save` gives a sequence's bytes, or `None` where
    /// that fails and the entry is dropped. Returns the sequences to free.
    pub(crate) fn park(&mut self, mut save: impl FnMut(u32) -> Option<Vec<u8>>) -> Vec<u32> {
        let mut gone = Vec::new();
        self.entries.retain_mut(|entry| {
            let Some(sequence) = entry.sequence() else {
                return true;
            };
            gone.push(sequence);
            match save(sequence) {
                Some(bytes) => {
                    entry.place = Place::Parked(Arc::new(bytes));
                    true
                }
                None => false,
            }
        });
        let mut n_bytes: usize = self.entries.iter().map(Entry::n_bytes).sum();
        while n_bytes > self.limit_bytes {
            n_bytes -= self.entries.remove(0).n_bytes();
        }
        gone
    }
}

impl Entry {
    fn sequence(&self) -> Option<u32> {
        match self.place {
            Place::Cells(sequence) => Some(sequence),
            Place::Parked(_) => None,
        }
    }

    fn n_bytes(&self) -> usize {
        match &self.place {
            Place::Cells(_) => 0,
            Place::Parked(bytes) => bytes.len(),
        }
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
            place: Place::Cells(sequence),
            adapter: None,
            tokens: tokens.to_vec(),
        }
    }

    #[test]
    fn the_longest_beginning_wins_and_use_protects_from_eviction() {
        let mut cache = PrefixCache::new(2, 100);
        assert!(cache.insert(entry(0, &[1, 2, 3]), false).is_empty());
        assert!(cache.insert(entry(1, &[1, 9]), false).is_empty());
        assert_eq!(cache.longest(&[1, 2, 7], None, false), Some((0, 2)));
        assert_eq!(cache.longest(&[1, 2, 7], None, true), None);
        assert_eq!(cache.longest(&[5], None, false), None);
        cache.touch(0);
        assert_eq!(cache.latest().and_then(Entry::sequence), Some(0));
        assert_eq!(cache.insert(entry(2, &[4]), false), [1]);
        assert_eq!(cache.evict(), Some(0));
    }

    #[test]
    fn what_an_adapter_computed_is_no_prefix_for_another() {
        let mut cache = PrefixCache::new(4, 100);
        let adapted = Entry {
            adapter: Some(0),
            ..entry(0, &[1, 2])
        };
        cache.insert(adapted, false);
        assert_eq!(cache.longest(&[1, 2, 3], None, false), None);
        assert_eq!(cache.longest(&[1, 2, 3], Some(0), false), Some((0, 2)));
        assert!(cache.insert(entry(1, &[1, 2, 3]), false).is_empty());
    }

    #[test]
    fn a_longer_sequence_replaces_its_own_beginning() {
        let mut cache = PrefixCache::new(4, 100);
        cache.insert(entry(0, &[1, 2]), false);
        assert_eq!(cache.insert(entry(1, &[1, 2, 3]), false), [0]);
        assert_eq!(cache.len(), 1);
        cache.insert(entry(2, &[1, 2, 3, 4]), true);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn parked_sequences_are_found_and_bounded_by_bytes() {
        let mut cache = PrefixCache::new(4, 100);
        cache.insert(entry(0, &[1, 2]), false);
        cache.insert(entry(1, &[3, 4]), false);
        cache.insert(entry(2, &[5, 6]), false);
        let sizes = [60, 50, 40];
        let save = |n: u32| (n != 1).then(|| vec![0; sizes[n as usize]]);
        assert_eq!(cache.park(save), [0, 1, 2]);
        assert_eq!((cache.len(), cache.evict()), (2, None));
        assert_eq!(cache.longest(&[5, 6, 7], None, true), Some((1, 2)));
        cache.insert(entry(3, &[7, 8]), false);
        assert_eq!(cache.park(|_| Some(vec![0; 10])), [3]);
        assert_eq!(cache.longest(&[1, 2, 3], None, false), None);
        assert!(matches!(cache.take(0).place, Place::Parked(bytes) if bytes.len() == 40));
    }
}
