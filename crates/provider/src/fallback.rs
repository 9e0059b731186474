//! Entries that take over when another one fails before its first output: `fallbacks`.
//!
//! Each plans the turn anew by its own configuration; what the caller said stays. Their own
//! fallbacks are not asked. The turn tells who failed and why as a diagnostic.

use std::collections::VecDeque;

use futures_util::stream::{StreamExt, iter};
use twopass_core::chat::{Diagnostic, DiagnosticKind, Event, Request};

use crate::backend::{TurnItem, TurnStream};
use crate::plan::Planned;
use crate::{Provider, ProviderError};

/// Starts the turn at the entry, else at the first of its fallbacks that begins to answer.
///
/// # Errors
/// The entry's own error, with what became of its fallbacks. Only what may pass by itself is
/// taken over: a wrong request, a refused key or an unknown model is for people to mend.
pub(crate) async fn stream(
    entry: &Provider,
    planned: Planned,
) -> Result<TurnStream, ProviderError> {
    if entry.fallbacks().is_empty() {
        return entry.alone(planned.into_boxed()).await;
    }
    // In a box: without fallbacks nobody carries its state.
    Box::pin(with_fallbacks(entry, planned)).await
}

async fn with_fallbacks(entry: &Provider, planned: Planned) -> Result<TurnStream, ProviderError> {
    let error = match begin(entry, planned.clone().into_boxed()).await {
        Err(error) if error.kind().is_transient() => error,
        begun => return begun,
    };
    let mut failed = vec![error.to_string()];
    for fallback in entry.fallbacks() {
        let begun = match planned.again(fallback.config()) {
            Ok(request) => begin(fallback, Box::new(request)).await,
            Err(fault) => Err(ProviderError::from(fault).with_provider(fallback.name())),
        };
        match begun {
            Ok(turn) => {
                let message = format!("`{}` answers: {}", fallback.name(), failed.join("; "));
                return Ok(noted(
                    turn,
                    Diagnostic::new(DiagnosticKind::Fallback, message),
                ));
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    failed.remove(0);
    Err(error.with_note(&format!("; then {}", failed.join("; then "))))
}

/// Starts a turn and waits for its first output or its end, so that all that fails before
/// fails here.
async fn begin(entry: &Provider, request: Box<Request>) -> Result<TurnStream, ProviderError> {
    let mut turn = entry.alone(request).await?;
    let mut held = VecDeque::new();
    loop {
        let Some(item) = turn.next().await else { break };
        let item = item?;
        let is_begun = match &item {
            TurnItem::Event(event) => event.is_output(),
            TurnItem::Done(_) => true,
        };
        held.push_back(Ok(item));
        if is_begun {
            break;
        }
    }
    Ok(TurnStream::new(iter(held).chain(turn)))
}

/// The turn with this note, in its stream and in its whole.
fn noted(turn: TurnStream, note: Diagnostic) -> TurnStream {
    let first = TurnItem::Event(Event::Diagnostic(note.clone()));
    let rest = turn.map(move |item| match item {
        Ok(TurnItem::Done(mut reply)) => {
            reply.diagnostics.insert(0, note.clone());
            Ok(TurnItem::Done(reply))
        }
        other => other,
    });
    TurnStream::new(iter([Ok(first)]).chain(rest))
}
