//! Stored responses: conversations that go on from an answer's id (`previous_response_id`).
//!
//! A response is stored before its end is told, so that an acknowledged one is there. What is
//! kept of it are its input items and the response itself, both as they stood on the wire; a
//! conversation is the chain of what each response went on from.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use twopass_core::chat::Message;
use twopass_provider::ErrorKind;
use twopass_wire::openai_responses::{decode_items, read_output};

use crate::api_error::{ApiError, ApiErrorKind};
use crate::caller::Caller;

/// How long a response can be gone on from.
const KEPT_S: u64 = 30 * 24 * 60 * 60;
/// The most responses of one conversation.
const MAX_CHAIN: usize = 1000;
/// The most responses that are kept in memory, and their bytes.
const MAX_RESPONSES: usize = 10_000;
const MAX_BYTES: usize = 256 << 20;

/// What a request says of stored responses.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    /// The response that it goes on from.
    pub(crate) previous_id: Option<String>,
    /// Whether the answer is to be stored.
    pub(crate) stores: bool,
    /// The request's own items, as JSON texts.
    pub(crate) input: Vec<String>,
    /// Messages of the request that stand before the whole conversation.
    pub(crate) n_before: usize,
}

impl Thread {
    /// Puts the conversation that the request goes on from before its own messages.
    ///
    /// # Errors
    /// The caller has no such response, or it has expired.
    pub(crate) fn resume(
        &self,
        store: &ResponseStore,
        caller: &Caller,
        messages: &mut Vec<Message>,
    ) -> Result<(), ApiError> {
        if let Some(id) = &self.previous_id {
            let at = self.n_before.min(messages.len());
            messages.splice(at..at, store.history(caller, id)?);
        }
        Ok(())
    }
}

/// A response under its id.
#[derive(Debug, Clone)]
struct Stored {
    previous_id: Option<String>,
    expires_s: u64,
    /// `{"input": [..], "response": {..}}`
    body: String,
}

/// The responses of all callers.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<Kept>);

type Key = (String, String);

#[derive(Debug, Default)]
struct Kept {
    responses: HashMap<Key, Stored>,
    /// Oldest first; may hold keys that were deleted.
    order: VecDeque<Key>,
    bytes: usize,
}

impl ResponseStore {
    /// The messages of the conversation up to and with this response, oldest first.
    ///
    /// # Errors
    /// The caller has no such response, or it has expired.
    fn history(&self, caller: &Caller, id: &str) -> Result<Vec<Message>, ApiError> {
        let chain = self.chain(caller, id);
        if chain.is_empty() {
            return Err(not_found("previous_response_id", id));
        }
        let mut items = Vec::new();
        for stored in chain.iter().rev() {
            let (input, response) = parts(&stored.body);
            items.extend(input);
            items.extend(read_output(&response));
        }
        decode_items(&items).map_err(|_| ApiError::bug())
    }

    /// The response of this id, as it was told.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub(crate) fn get(&self, caller: &Caller, id: &str) -> Result<String, ApiError> {
        let chain = self.chain(caller, id);
        let stored = chain.first().ok_or_else(|| not_found("response_id", id))?;
        Ok(parts(&stored.body).1)
    }

    /// The items that this response's own request held.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub(crate) fn input(&self, caller: &Caller, id: &str) -> Result<Vec<String>, ApiError> {
        let chain = self.chain(caller, id);
        let stored = chain.first().ok_or_else(|| not_found("response_id", id))?;
        Ok(parts(&stored.body).0)
    }

    /// Forgets a response.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub(crate) fn delete(&self, caller: &Caller, id: &str) -> Result<(), ApiError> {
        let mut kept = self.kept();
        match kept.remove(&key(caller, id)) {
            true => Ok(()),
            false => Err(not_found("response_id", id)),
        }
    }

    /// Stores a response with the request's own items.
    pub(crate) fn put(&self, caller: &Caller, thread: &Thread, (id, response): (&str, &str)) {
        let body = format!(
            "{{\"input\":[{}],\"response\":{response}}}",
            thread.input.join(",")
        );
        let mut kept = self.kept();
        kept.bytes += body.len();
        kept.order.push_back(key(caller, id));
        let stored = Stored {
            previous_id: thread.previous_id.clone(),
            expires_s: now_s() + KEPT_S,
            body,
        };
        kept.responses.insert(key(caller, id), stored);
        while kept.responses.len() > MAX_RESPONSES || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.order.pop_front() else {
                return;
            };
            kept.remove(&oldest);
        }
    }

    /// The response and those that it went on from, newest first.
    fn chain(&self, caller: &Caller, id: &str) -> Vec<Stored> {
        let kept = self.kept();
        let now = now_s();
        let mut chain = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next.take()
            && chain.len() < MAX_CHAIN
        {
            let stored = kept.responses.get(&key(caller, &id));
            let Some(stored) = stored.filter(|stored| stored.expires_s > now) else {
                break;
            };
            next.clone_from(&stored.previous_id);
            chain.push(stored.clone());
        }
        chain
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves whole entries behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, key: &Key) -> bool {
        let removed = self.responses.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |stored| stored.body.len());
        removed.is_some()
    }
}

fn key(caller: &Caller, id: &str) -> Key {
    (caller.as_str().to_owned(), id.to_owned())
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// The input items and the response of a body that [`ResponseStore::put`] wrote.
fn parts(body: &str) -> (Vec<String>, String) {
    #[derive(serde::Deserialize)]
    struct Body<'b> {
        #[serde(borrow)]
        input: Vec<&'b RawValue>,
        #[serde(borrow)]
        response: &'b RawValue,
    }
    match serde_json::from_str::<Body<'_>>(body) {
        Ok(body) => {
            let input = body.input.iter().map(|item| item.get().to_owned());
            (input.collect(), body.response.get().to_owned())
        }
        Err(_) => (Vec::new(), Value::Null.to_string()),
    }
}

fn not_found(param: &str, id: &str) -> ApiError {
    let shown: String = id.chars().take(100).collect();
    let message = format!("no stored response has the id {}", json!(shown));
    ApiError::new(ApiErrorKind::Provider(ErrorKind::NotFound), message).with_param(param)
}
