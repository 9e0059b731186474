//! `POST /v1/embeddings`: vectors of texts, as floats or as their bytes in base64.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use twopass_core::chat::BadRequest;
use twopass_wire::embeddings::{EmbeddingsReply, EmbeddingsRequest};

use super::App;
use crate::api_error::ApiError;
use crate::body::JsonBytes;
use crate::caller::Caller;
use crate::observe::Watch;

/// `model` names a provider, as everywhere, or the configured embedding model.
pub(super) async fn embed(
    State(app): State<App>,
    Extension(watch): Extension<Watch>,
    caller: Caller,
    JsonBytes(body): JsonBytes,
) -> Result<Response, ApiError> {
    let request = EmbeddingsRequest::from_json(&body)?;
    let served = app.live().now();
    let default = served.models.default_provider();
    let model = Some(request.model.as_str());
    let model = model.filter(|model| !model.is_empty() && *model != default.embedding_model());
    let provider = served.models.pick(&caller, model)?;
    let embeddings = provider.embed(&request.inputs).await?;
    watch.embedded(embeddings.prompt_tokens);
    let size = embeddings.vectors.first().map_or(0, Vec::len);
    if let Some(wanted) = request.dimensions
        && size != wanted as usize
    {
        let message = format!("the model's vectors have {size} dimensions, got {wanted}");
        return Err(BadRequest::new("dimensions", message).into());
    }
    let reply = EmbeddingsReply {
        model: embeddings.model,
        vectors: embeddings.vectors,
        prompt_tokens: embeddings.prompt_tokens,
    };
    Ok(super::json_text(reply.to_json(request.base64)))
}
