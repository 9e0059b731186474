//! Reasoning memory: what the server's own answers were thought with (row M9).
//!
//! Many clients drop the reasoning and the opaque items of an answer when they send the
//! conversation back. They are kept here, under the ids of the answer's calls and under its
//! text, and put back into past turns that lack them; the provider's replay policy decides
//! what of it goes out. Bounded in entries and bytes, least recently used first; nobody gets
//! what was kept for another key or came from another provider.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use twopass_core::chat::{Message, OpaqueItem, Reply, Role};

use crate::caller::Caller;

/// The most answers that are remembered, each under a few keys.
const MAX_ENTRIES: usize = 20_000;
/// The most bytes of their reasoning and items.
const MAX_BYTES: usize = 64 << 20;

type Key = [u8; 32];

/// What past answers were thought with.
#[derive(Debug, Default)]
pub(crate) struct ReasoningMemory(Mutex<Kept>);

/// Whose memory is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) provider: &'a str,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    /// Keys by when they were last used.
    by_use: BTreeMap<u64, Key>,
    n_uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    thought: Arc<Thought>,
    last_use: u64,
}

#[derive(Debug)]
struct Thought {
    reasoning: Option<String>,
    items: Vec<OpaqueItem>,
}

impl ReasoningMemory {
    /// Keeps what an answer was thought with, if there is anything.
    pub(crate) fn keep(&self, scope: Scope<'_>, reply: &Reply) {
        if reply.reasoning.is_empty() && reply.provider_items.is_empty() {
            return;
        }
        let thought = Arc::new(Thought {
            reasoning: Some(reply.reasoning.clone()).filter(|text| !text.is_empty()),
            items: reply.provider_items.clone(),
        });
        let keys = scope.keys(&reply.to_message());
        let mut kept = self.kept();
        for key in keys {
            kept.insert(key, &thought);
        }
    }

    /// Puts back what past turns of this history were thought with.
    pub(crate) fn restore(&self, scope: Scope<'_>, messages: &mut [Message]) {
        for message in messages {
            let lacks = message.reasoning.is_none() && message.provider_items.is_empty();
            if message.role != Role::Assistant || !lacks {
                continue;
            }
            let keys = scope.keys(message);
            let mut kept = self.kept();
            if let Some(thought) = keys.iter().find_map(|key| kept.get(key)) {
                message.reasoning.clone_from(&thought.reasoning);
                message.provider_items.clone_from(&thought.items);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scope<'_> {
    /// The keys of a turn: its calls' ids, or where it has none its text.
    fn keys(self, message: &Message) -> Vec<Key> {
        if message.tool_calls.is_empty() {
            let text = message.content_text();
            let text = text.trim();
            return match text.is_empty() {
                true => Vec::new(),
                false => vec![self.key("text", text)],
            };
        }
        let ids = message.tool_calls.iter();
        ids.map(|call| self.key("call", &call.id)).collect()
    }

    fn key(self, kind: &str, text: &str) -> Key {
        let mut hash = Sha256::new();
        for part in [self.caller.as_str(), self.provider, kind, text] {
            // The length keeps parts apart.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl Thought {
    fn bytes(&self) -> usize {
        let items = self.items.iter().map(|item| item.json.len());
        size_of::<Self>() + self.reasoning.as_ref().map_or(0, String::len) + items.sum::<usize>()
    }
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Arc<Thought>> {
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.last_use);
        self.n_uses += 1;
        entry.last_use = self.n_uses;
        self.by_use.insert(self.n_uses, *key);
        Some(Arc::clone(&entry.thought))
    }

    /// Every key of a thought is counted with its whole size, so the bound holds.
    fn insert(&mut self, key: Key, thought: &Arc<Thought>) {
        self.remove(&key);
        self.n_uses += 1;
        self.by_use.insert(self.n_uses, key);
        self.bytes += thought.bytes();
        let entry = Entry {
            thought: Arc::clone(thought),
            last_use: self.n_uses,
        };
        self.entries.insert(key, entry);
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.last_use);
            self.bytes -= entry.thought.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use twopass_provider::config::KeyEntry;

    use super::*;
    use crate::keys::Key;

    fn answer(text: &str, reasoning: &str) -> Reply {
        Reply {
            content: text.to_owned(),
            reasoning: reasoning.to_owned(),
            ..Reply::default()
        }
    }

    fn restored(memory: &ReasoningMemory, scope: Scope<'_>, text: &str) -> Option<String> {
        let mut messages = [Message::text(Role::Assistant, text)];
        memory.restore(scope, &mut messages);
        let [message] = messages;
        message.reasoning
    }

    // Row M9.
    #[test]
    fn m9_nobody_gets_what_was_kept_for_another() {
        let memory = ReasoningMemory::default();
        let caller = |name: &str| {
            let entry = KeyEntry::new(name, Sha256::digest(name).into()).unwrap();
            Caller::of_key(Key::of(entry).into())
        };
        let (own, other) = (caller("a"), caller("b"));
        let scope = |caller, provider| Scope { caller, provider };
        memory.keep(scope(&own, "m"), &answer(" 4 ", "2 and 2"));
        for (scope, text, expect) in [
            (scope(&own, "m"), "4", Some("2 and 2")),
            (scope(&own, "m"), "5", None),
            (scope(&own, "n"), "4", None),
            (scope(&other, "m"), "4", None),
        ] {
            assert_eq!(
                restored(&memory, scope, text).as_deref(),
                expect,
                "{scope:?} {text}"
            );
        }
    }

    #[test]
    fn m9_the_memory_is_bounded_and_keeps_what_is_used() {
        let memory = ReasoningMemory::default();
        let caller = Caller::default();
        let scope = Scope {
            caller: &caller,
            provider: "m",
        };
        let large = "x".repeat(MAX_BYTES / 4);
        for n in 0..10 {
            memory.keep(scope, &answer(&format!("answer {n}"), &large));
            assert!(restored(&memory, scope, "answer 0").is_some(), "{n}");
            assert!(memory.kept().bytes <= MAX_BYTES);
        }
        assert_eq!(restored(&memory, scope, "answer 5"), None);
        assert!(restored(&memory, scope, "answer 9").is_some());
        let kept = memory.kept();
        assert_eq!(kept.entries.len(), kept.by_use.len());
    }
}
