use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::Value;
use twopass_core::chat::{Arguments, ToolCall};

use crate::{Consent, Effect, ErrorKind, JsonObject, ToolContext, ToolError, ToolRegistry};

/// Offers the tools of a registry on standard input and output until the input ends.
///
/// The registry's policy holds, and nobody is asked: whoever uses the tools asks their own
/// user. Nothing else may be written to standard output meanwhile.
///
/// # Errors
/// Kind [`ErrorKind::Unavailable`]: the other side breaks the protocol from the start.
pub async fn serve_stdio(
    registry: Arc<ToolRegistry>,
    context: ToolContext,
) -> Result<(), ToolError> {
    let fail = |reason: &dyn std::fmt::Display| {
        let message = format!("the client cannot be served: {reason}");
        ToolError::new(ErrorKind::Unavailable, message)
    };
    let handler = Handler { registry, context };
    let service = handler.serve(rmcp::transport::stdio()).await;
    let service = service.map_err(|error| fail(&error))?;
    service.waiting().await.map_err(|error| fail(&error))?;
    Ok(())
}

struct Handler {
    registry: Arc<ToolRegistry>,
    context: ToolContext,
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
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = ToolCall {
            id: String::new(),
            name: request.name.into_owned(),
            arguments: Arguments::from_object(request.arguments.unwrap_or_default()),
        };
        let output = self
            .registry
            .run(&call, &self.context, Consent::NotAsked)
            .await;
        let content = vec![ContentBlock::text(output.text.as_str())];
        let result = if output.is_error() {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        };
        Ok(result.into())
    }
}
