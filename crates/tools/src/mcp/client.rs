use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents};
use rmcp::service::{Peer, RoleClient, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rmcp::{ServiceExt, model};
use serde_json::Value;
use tokio::process::Command;
use twopass_core::chat::ToolSpec;

use crate::sandbox::environment;
use crate::{
    Effect, ErrorKind, JsonObject, Tool, ToolContext, ToolError, ToolOutput, ToolRegistry,
};

/// Longest time until a server has answered its first questions.
const CONNECT: Duration = Duration::from_secs(30);

/// Most tools that are taken of one server.
const MAX_TOOLS: usize = 256;

/// Longest description that is taken, in characters.
const MAX_DESCRIPTION_CHARS: usize = 8000;

/// Largest schema that is taken, as JSON text in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Longest name of a tool, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Where a tool server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTarget {
    /// A program that speaks on its standard input and output. It sees the few environment
    /// variables that commands of models see, and those that are named here.
    Command {
        /// The program.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
        /// Names of further variables that it is to see.
        pass_env: Vec<String>,
    },
    /// A server that speaks streamable HTTP.
    Url(String),
}

impl McpTarget {
    /// Reads an address (`http://` or `https://`) or a program with arguments, separated by
    /// spaces; there is no quoting. `None` if there is no word.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with("http://") || text.starts_with("https://") {
            return Some(Self::Url(text.to_owned()));
        }
        let mut words = text.split_whitespace().map(OsString::from);
        Some(Self::Command {
            program: words.next()?,
            args: words.collect(),
            pass_env: Vec::new(),
        })
    }
}

/// A connected tool server. Dropping it ends the connection and the program.
pub struct McpServer {
    name: String,
    effect: Effect,
    service: RunningService<RoleClient, ()>,
}

impl McpServer {
    /// Starts or finds a server and shakes hands with it, within 30 s. `name` becomes part of
    /// its tools' names.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: it cannot be started or reached, or does not answer.
    pub async fn connect(name: &str, target: &McpTarget) -> Result<Self, ToolError> {
        let connected = async {
            match target {
                McpTarget::Command {
                    program,
                    args,
                    pass_env,
                } => {
                    let mut command = Command::new(program);
                    command
                        .args(args)
                        .env_clear()
                        .envs(environment::passed(pass_env));
                    let process = TokioChildProcess::builder(command).stderr(Stdio::null());
                    let (process, _) = process.spawn().map_err(|error| {
                        let program = program.display();
                        unavailable(name, &format!("cannot start `{program}`: {error}"))
                    })?;
                    ().serve(process)
                        .await
                        .map_err(|error| unavailable(name, &error))
                }
                McpTarget::Url(url) => {
                    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                    let http = http_client().map_err(|error| unavailable(name, &error))?;
                    let transport = StreamableHttpClientTransport::with_client(http, config);
                    ().serve(transport)
                        .await
                        .map_err(|error| unavailable(name, &error))
                }
            }
        };
        let connected = tokio::time::timeout(CONNECT, connected).await;
        let service =
            connected.unwrap_or_else(|_| Err(unavailable(name, &"no answer within 30 s")))?;
        Ok(Self {
            name: name.to_owned(),
            effect: match target {
                McpTarget::Command { .. } => Effect::Executes,
                McpTarget::Url(_) => Effect::Network,
            },
            service,
        })
    }

    /// The server's tools, as `mcp__NAME__TOOL`; characters that tool names cannot have
    /// become `_`.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: it does not answer. Kind [`ErrorKind::TooLarge`]: it
    /// has over 256 tools, or one with a schema over 64 KiB.
    pub async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, ToolError> {
        let listed = tokio::time::timeout(CONNECT, self.service.list_all_tools()).await;
        let listed = listed.map_err(|error| unavailable(&self.name, &error))?;
        let listed = listed.map_err(|error| unavailable(&self.name, &error))?;
        if listed.len() > MAX_TOOLS {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!(
                    "`{}` has {} tools, at most {MAX_TOOLS}",
                    self.name,
                    listed.len()
                ),
            ));
        }
        listed.into_iter().map(|tool| self.tool(tool)).collect()
    }

    /// Adds all of the server's tools; returns how many.
    ///
    /// # Errors
    /// As [`McpServer::tools`] and [`ToolRegistry::add`]. Tools before the one at fault stay.
    pub async fn register(&self, registry: &ToolRegistry) -> Result<usize, ToolError> {
        let tools = self.tools().await?;
        let n_tools = tools.len();
        for tool in tools {
            registry.add(tool)?;
        }
        Ok(n_tools)
    }

    /// Ends the connection in good order: the program gets time to end by itself.
    pub async fn close(self) {
        // A task that broke down has ended, too.
        let _ = self.service.cancel().await;
    }

    fn tool(&self, listed: model::Tool) -> Result<Arc<dyn Tool>, ToolError> {
        let parameters = Value::Object(Arc::unwrap_or_clone(listed.input_schema));
        if parameters.to_string().len() > MAX_SCHEMA_BYTES {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!(
                    "`{}`: the schema of `{}` has over {MAX_SCHEMA_BYTES} bytes",
                    self.name, listed.name
                ),
            ));
        }
        let description = listed.description.unwrap_or_default();
        let description = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        Ok(Arc::new(McpTool {
            spec: ToolSpec {
                name: own_name(&self.name, &listed.name),
                description,
                parameters,
            },
            effect: self.effect,
            remote_name: listed.name.into_owned(),
            server: self.name.clone(),
            peer: self.service.peer().clone(),
        }))
    }
}

/// A tool of another program.
struct McpTool {
    spec: ToolSpec,
    effect: Effect,
    remote_name: String,
    server: String,
    peer: Peer<RoleClient>,
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn run<'a>(
        &'a self,
        arguments: JsonObject,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let request = CallToolRequestParams::new(self.remote_name.clone());
            let called = self.peer.call_tool(request.with_arguments(arguments)).await;
            match called {
                Ok(result) => Ok(output(result)),
                // What the server says of the call is for the model.
                Err(ServiceError::McpError(error)) => Err(ToolError::failed(error.message)),
                Err(error) => Err(unavailable(&self.server, &error)),
            }
        }
        .boxed()
    }
}

/// The result as text; what is no text is named.
fn output(result: CallToolResult) -> ToolOutput {
    let mut parts: Vec<String> = result.content.into_iter().map(block).collect();
    if parts.is_empty()
        && let Some(structured) = result.structured_content
    {
        parts.push(structured.to_string());
    }
    let mut output = ToolOutput::text(parts.join("\n"));
    output.error = result
        .is_error
        .unwrap_or(false)
        .then_some(ErrorKind::Failed);
    output
}

fn block(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[image {} is not shown]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[sound {} is not played]", audio.mime_type),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, .. } => format!("[{uri} is no text]"),
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of an unknown kind]".to_owned(),
    }
}

fn own_name(server: &str, tool: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let clean = |c: char| if is_allowed(c) { c } else { '_' };
    let name = format!("mcp__{server}__{tool}");
    name.chars().take(MAX_NAME_CHARS).map(clean).collect()
}

fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // Fails only if the program has chosen a provider already, which then serves us.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

fn unavailable(name: &str, reason: &dyn std::fmt::Display) -> ToolError {
    let message = format!("the tool server `{name}` cannot be used: {reason}");
    ToolError::new(ErrorKind::Unavailable, message)
}
