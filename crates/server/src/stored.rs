//! Stored responses: conversations that go on from an answer's id (`previous_response_id`).
//!
//! A response is stored before its end is told, so that an acknowledged one is there. What is
//! kept of it are its input items and the response itself, both as they stood on the wire; a
//! conversation is the chain of what each response went on from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::sleep;
use twopass_core::chat::Message;
use twopass_provider::ErrorKind;
use twopass_store::{Error as StoreError, Read, Store, StoredResponse};
use twopass_wire::openai_responses::{decode_items, read_output};

use crate::api_error::{ApiError, ApiErrorKind};
use crate::caller::Caller;

/// How long a response can be gone on from.
const KEPT_S: u64 = 30 * 24 * 60 * 60;
/// The most responses of one conversation.
const MAX_CHAIN: u32 = 1000;
/// Time between two searches for what has expired.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(60 * 60);

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
    pub(crate) async fn resume(
        &self,
        store: &ResponseStore,
        caller: &Caller,
        messages: &mut Vec<Message>,
    ) -> Result<(), ApiError> {
        if let Some(id) = &self.previous_id {
            let at = self.n_before.min(messages.len());
            messages.splice(at..at, store.history(caller, id).await?);
        }
        Ok(())
    }
}

/// The responses of all callers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ResponseStore(Store);

impl ResponseStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// The messages of the conversation up to and with this response, oldest first.
    ///
    /// # Errors
    /// The caller has no such response, it has expired, or the store does not answer.
    async fn history(&self, caller: &Caller, id: &str) -> Result<Vec<Message>, ApiError> {
        let chain = self.chain(caller, id, MAX_CHAIN).await?;
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
    pub(crate) async fn get(&self, caller: &Caller, id: &str) -> Result<String, ApiError> {
        Ok(self.parts(caller, id).await?.1)
    }

    /// The items that this response's own request held.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub(crate) async fn input(&self, caller: &Caller, id: &str) -> Result<Vec<String>, ApiError> {
        Ok(self.parts(caller, id).await?.0)
    }

    /// Forgets a response.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub(crate) async fn delete(&self, caller: &Caller, id: &str) -> Result<(), ApiError> {
        match self.0.delete(caller.as_str(), id).await.map_err(failed)? {
            true => Ok(()),
            false => Err(not_found("response_id", id)),
        }
    }

    /// Stores a response with the request's own items. Once this is done the response outlives
    /// the server, as far as its store does.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn put(
        &self,
        caller: &Caller,
        thread: &Thread,
        (id, response): (&str, &str),
    ) -> Result<(), ApiError> {
        let created_s = now_s();
        let stored = StoredResponse {
            id: id.to_owned(),
            previous_id: thread.previous_id.clone(),
            created_s,
            expires_s: created_s + KEPT_S,
            body: format!(
                "{{\"input\":[{}],\"response\":{response}}}",
                thread.input.join(",")
            ),
        };
        self.0.put(caller.as_str(), stored).await.map_err(failed)
    }

    /// Forgets now and then what has expired, until dropped. A store that does not answer is
    /// asked again the next time.
    pub(crate) async fn forget_expired(&self) {
        loop {
            let _ = self.0.forget_expired(now_s()).await;
            sleep(BETWEEN_SWEEPS).await;
        }
    }

    async fn parts(&self, caller: &Caller, id: &str) -> Result<(Vec<String>, String), ApiError> {
        let chain = self.chain(caller, id, 1).await?;
        let stored = chain.first().ok_or_else(|| not_found("response_id", id))?;
        Ok(parts(&stored.body))
    }

    /// The response and those that it went on from, newest first.
    async fn chain(
        &self,
        caller: &Caller,
        id: &str,
        limit: u32,
    ) -> Result<Vec<StoredResponse>, ApiError> {
        let read = Read {
            now_s: now_s(),
            limit,
        };
        let chain = self.0.chain(caller.as_str(), id, read).await;
        chain.map_err(failed)
    }
}

/// The store's own words are for the operator, not for clients.
fn failed(_: StoreError) -> ApiError {
    let kind = ApiErrorKind::Provider(ErrorKind::Overloaded);
    ApiError::new(kind, "stored responses cannot be reached now")
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
