//! A place in this process, which ends with it: bounded, the oldest responses make room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Answer, Backend, Read, StoredResponse, Usage};

/// The most responses that are kept, and the bytes of their bodies.
const MAX_RESPONSES: usize = 10_000;
const MAX_BYTES: usize = 256 << 20;

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Kept>);

/// Owner and id.
type Key = (String, String);

#[derive(Debug, Default)]
struct Kept {
    responses: HashMap<Key, StoredResponse>,
    /// Oldest first; may hold keys of responses that are gone.
    order: VecDeque<Key>,
    bytes: usize,
    usage: HashMap<String, BTreeMap<u32, Usage>>,
}

impl Memory {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves whole entries behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Memory {
    fn put<'a>(&'a self, owner: &'a str, response: StoredResponse) -> Answer<'a, ()> {
        let mut kept = self.kept();
        let key = (owner.to_owned(), response.id.clone());
        if !kept.remove(&key) {
            kept.order.push_back(key.clone());
        }
        kept.bytes += response.body.len();
        kept.responses.insert(key, response);
        while kept.order.len() > MAX_RESPONSES || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.order.pop_front() else {
                break;
            };
            kept.remove(&oldest);
        }
        Box::pin(ready(Ok(())))
    }

    fn chain<'a>(
        &'a self,
        owner: &'a str,
        id: &'a str,
        read: Read,
    ) -> Answer<'a, Vec<StoredResponse>> {
        let kept = self.kept();
        let mut chain: Vec<StoredResponse> = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next.take()
            && chain.len() < read.limit as usize
            && let Some(stored) = kept.responses.get(&(owner.to_owned(), id))
            && stored.expires_s > read.now_s
        {
            next.clone_from(&stored.previous_id);
            chain.push(stored.clone());
        }
        Box::pin(ready(Ok(chain)))
    }

    fn delete<'a>(&'a self, owner: &'a str, id: &'a str) -> Answer<'a, bool> {
        let key = (owner.to_owned(), id.to_owned());
        let mut kept = self.kept();
        let removed = kept.remove(&key);
        kept.order.retain(|other| *other != key);
        Box::pin(ready(Ok(removed)))
    }

    fn forget_expired(&self, now_s: u64) -> Answer<'_, u64> {
        let mut kept = self.kept();
        let expired = kept.responses.iter();
        let expired = expired.filter(|(_, stored)| stored.expires_s <= now_s);
        let expired: Vec<Key> = expired.map(|(key, _)| key.clone()).collect();
        for key in &expired {
            kept.remove(key);
        }
        let Kept {
            order, responses, ..
        } = &mut *kept;
        order.retain(|key| responses.contains_key(key));
        Box::pin(ready(Ok(expired.len() as u64)))
    }

    fn add_usage<'a>(&'a self, owner: &'a str, day: u32, usage: Usage) -> Answer<'a, ()> {
        let mut kept = self.kept();
        let days = kept.usage.entry(owner.to_owned()).or_default();
        let sum = days.entry(day).or_default();
        *sum = sum.plus(usage);
        Box::pin(ready(Ok(())))
    }

    fn usage<'a>(&'a self, owner: &'a str, since_day: u32) -> Answer<'a, Usage> {
        let kept = self.kept();
        let days = kept.usage.get(owner);
        let sum = days.map_or_else(Usage::default, |days| {
            let since = days.range(since_day..).map(|(_, usage)| *usage);
            since.fold(Usage::default(), Usage::plus)
        });
        Box::pin(ready(Ok(sum)))
    }
}

impl Kept {
    fn remove(&mut self, key: &Key) -> bool {
        let removed = self.responses.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |stored| stored.body.len());
        removed.is_some()
    }
}
