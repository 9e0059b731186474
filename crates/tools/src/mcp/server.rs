use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use twopass_core::chat::{Arguments, ToolCall};

use crate::{Consent, Effect, ErrorKind, JsonObject, ToolContext, ToolError, ToolRegistry};

/// Most calls that run at once; others wait their turn.
const MAX_RUNNING: usize = 16;

/// Most calls that run or wait; further ones fail.
const MAX_CALLS: usize = 256;

/// Offers the tools of a registry on standard input and output, as [`serve`] does. Nothing
/// else may be written to standard output meanwhile.
///
/// # Errors
/// As [`serve`].
pub async fn serve_stdio(
    registry: Arc<ToolRegistry>,
    context: ToolContext,
) -> Result<(), ToolError> {
    let (input, output) = rmcp::transport::stdio();
    serve(registry, context, input, output).await
}

/// Offers the tools of a registry to the client that writes `input` and reads `output`, until
/// the input ends.
///
/// The registry's policy holds, and nobody is asked: whoever uses the tools asks their own
/// user. At most 16 calls run at once. A call that the client cancels is stopped.
///
/// # Errors
/// Kind [`ErrorKind::Unavailable`]: the other side breaks the protocol from the start.
pub async fn serve(
    registry: Arc<ToolRegistry>,
    context: ToolContext,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ToolError> {
    let fail = |reason: &dyn std::fmt::Display| {
        let message = format!("the client cannot be served: {reason}");
        ToolError::new(ErrorKind::Unavailable, message)
    };
    let handler = Handler {
        registry,
        context,
        calls: Semaphore::new(MAX_CALLS),
        running: Semaphore::new(MAX_RUNNING),
    };
    let service = handler.serve((input, output)).await;
    let service = service.map_err(|error| fail(&error))?;
    service.waiting().await.map_err(|error| fail(&error))?;
    Ok(())
}

struct Handler {
    registry: Arc<ToolRegistry>,
    context: ToolContext,
    /// Places for calls that run or wait.
    calls: Semaphore,
    /// Places for calls that run.
    running: Semaphore,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("twopass", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.registry.specs().into_iter().map(|spec| {
            let effect = self.registry.get(&spec.name).map(|tool| tool.effect());
            let schema = match spec.parameters {
                Value::Object(schema) => schema,
                _ => JsonObject::new(),
            };
            let hints = ToolAnnotations::new().read_only(effect == Some(Effect::Reads));
            Tool::new(spec.name, spec.description, schema).with_annotations(hints)
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        request_context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Ok(_place) = self.calls.try_acquire() else {
            let message = format!("there are {MAX_CALLS} calls already, the most at once");
            return Ok(CallToolResult::error(vec![ContentBlock::text(message)]).into());
        };
        let call = ToolCall {
            id: String::new(),
            name: request.name.into_owned(),
            arguments: Arguments::from_object(request.arguments.unwrap_or_default()),
        };
        let run = async {
            // It is never closed.
            let _running = self.running.acquire().await;
            self.registry
                .run(&call, &self.context, Consent::NotAsked)
                .await
        };
        let cancelled = request_context.ct.cancelled();
        let output = match select(pin!(run), pin!(cancelled)).await {
            Either::Left((output, _)) => output,
            // Nobody reads this: an answer to a cancelled request is not sent.
            Either::Right(_) => ToolError::failed("the call was cancelled").into(),
        };
        let content = vec![ContentBlock::text(output.text.as_str())];
        let result = if output.is_error() {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        };
        Ok(result.into())
    }
}
