use std::error::Error as StdError;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use twopass_core::chat::ToolSpec;

use super::lines::TOO_LARGE;
use super::offer::Offer;
use super::process::Program;
use crate::{
    Effect, ErrorKind, JsonObject, Tool, ToolContext, ToolError, ToolOutput, ToolRegistry,
};

/// Longest time until a server has answered its first questions.
const CONNECT: Duration = Duration::from_secs(30);

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

/// What became of a server's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// How many can be called.
    pub n_tools: usize,
    /// Which are left out and why, one sentence each, for people.
    pub left_out: Vec<String>,
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
                    let started = Program::start(program, args, pass_env).map_err(|error| {
                        let program = program.display();
                        unavailable(name, &format!("cannot start `{program}`: {error}"))
                    })?;
                    ().serve(started)
                        .await
                        .map_err(|error| unavailable(name, connecting(&error)))
                }
                McpTarget::Url(url) => {
                    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                    let http = http_client().map_err(|error| unavailable(name, &error))?;
                    let transport = StreamableHttpClientTransport::with_client(http, config);
                    ().serve(transport)
                        .await
                        .map_err(|error| unavailable(name, connecting(&error)))
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

    /// Adds the server's tools as `mcp__NAME__TOOL`: characters that tool names cannot have
    /// become `_`, and a name that is too long or taken ends with a hash. A tool that cannot
    /// be used is left out; the others work.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Unavailable`]: it does not answer within 30 s.
    pub async fn register(&self, registry: &ToolRegistry) -> Result<Registered, ToolError> {
        let offered = Offer::read(&self.name, self.service.peer());
        let offered = tokio::time::timeout(CONNECT, offered).await;
        let offered = offered
            .map_err(|_| unavailable(&self.name, &"its list of tools has not come within 30 s"))?;
        let mut offered = offered.map_err(|error| unavailable(&self.name, root_cause(&error)))?;
        let mut n_tools = 0;
        for (remote_name, spec) in std::mem::take(&mut offered.tools) {
            let tool = McpTool {
                spec,
                effect: self.effect,
                remote_name: remote_name.clone(),
                server: self.name.clone(),
                peer: self.service.peer().clone(),
            };
            match registry.add(Arc::new(tool)) {
                Ok(()) => n_tools += 1,
                Err(error) => offered.leave_out(&self.name, &remote_name, &error.to_string()),
            }
        }
        Ok(Registered {
            n_tools,
            left_out: offered.left_out,
        })
    }

    /// Ends the connection in good order: the program gets time to end by itself.
    pub async fn close(self) {
        // A task that broke down has ended, too.
        let _ = self.service.cancel().await;
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
                Err(ServiceError::McpError(error)) if error.code == TOO_LARGE => {
                    Err(ToolError::new(ErrorKind::TooLarge, error.message))
                }
                // What the server says of the call is for the model.
                Err(ServiceError::McpError(error)) => Err(ToolError::failed(error.message)),
                Err(error) => Err(unavailable(&self.server, root_cause(&error))),
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

fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // Fails only if the program has chosen a provider already, which then serves us.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// Why a server could not be connected to.
fn connecting(error: &ClientInitializeError) -> &dyn StdError {
    match error {
        ClientInitializeError::TransportError { error, .. } => root_cause(error),
        other => root_cause(other),
    }
}

/// The last cause of an error: those above it name types of the program and no facts.
fn root_cause<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a dyn StdError {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

fn unavailable(name: &str, reason: &dyn std::fmt::Display) -> ToolError {
    let message = format!("the tool server `{name}` cannot be used: {reason}");
    ToolError::new(ErrorKind::Unavailable, message)
}
