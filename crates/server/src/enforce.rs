//! What an answer was demanded to be, checked (row M5).
//!
//! A demanded call or form is bound where the backend can: by grammar in this process and on
//! engines with structured output, by the service's own means elsewhere. Whatever came is
//! checked all the same. A whole answer that fails is asked for once more, with what was wrong;
//! a second failure is an error, and so is one at the end of a stream. An answer that the cap
//! or a filter cut is passed on: its finish reason tells.
//!
//! A turn that is nothing but invalid calls is an error, demanded or not (row M7). Beside text
//! or valid calls they are listed; but a call that a stream announced cannot be taken back.

use twopass_core::chat::{
    BadRequest, DiagnosticKind, InvalidToolCall, Message, Reply, Request, ResponseFormat, Role,
    StopReason, Usage,
};
use twopass_core::schema::CompiledSchema;
use twopass_provider::{ErrorKind, Planned, Provider};

use crate::api_error::{ApiError, ApiErrorKind};

/// The most violations that an error tells.
const MAX_TOLD: usize = 3;

/// The demands of one request, ready to be checked; by default none.
#[derive(Default)]
pub(crate) struct Demands {
    forces_call: bool,
    form: Option<Form>,
    /// The answer itself tells what it lacks.
    is_told: bool,
}

enum Form {
    Object,
    Schema(Box<CompiledSchema>),
}

/// What an answer lacks.
struct Lack {
    kind: ApiErrorKind,
    message: String,
}

impl Demands {
    /// The demands of this request. `is_told`: its answers have room for what they lack, so
    /// that a turn without the demanded call, or without its second pass, is no error.
    ///
    /// # Errors
    /// The schema cannot be used.
    pub(crate) fn of(request: &Request, is_told: bool) -> Result<Self, BadRequest> {
        let form = match &request.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some(Form::Object),
            ResponseFormat::JsonSchema { schema, .. } => {
                let compiled = CompiledSchema::new(schema).map_err(|error| {
                    BadRequest::new(
                        "response_format",
                        format!("the schema cannot be used: {error}"),
                    )
                })?;
                Some(Form::Schema(Box::new(compiled)))
            }
        };
        Ok(Self {
            forces_call: request.tool_choice.forces_call(),
            form,
            is_told,
        })
    }

    /// One whole answer that meets the demands, asked for twice at most.
    ///
    /// # Errors
    /// The turn failed, or the second answer meets them no better than the first.
    pub(crate) async fn reply(
        &self,
        provider: &Provider,
        request: Planned,
    ) -> Result<Reply, ApiError> {
        if self.is_told {
            return Ok(provider.generate(request).await?);
        }
        if !self.forces_call && self.form.is_none() {
            let reply = provider.generate(request).await?;
            self.check(&reply)?;
            return Ok(reply);
        }
        // In a box: where nothing is demanded nobody carries its state.
        Box::pin(self.demanded(provider, request)).await
    }

    /// A demanded answer, asked for once more with what the first one lacked.
    async fn demanded(&self, provider: &Provider, request: Planned) -> Result<Reply, ApiError> {
        let mut again = request.clone();
        let mut first = passed(provider.generate(request).await?)?;
        self.tidy(&mut first);
        let Err(lack) = self.judge(&first) else {
            return Ok(first);
        };
        let text = first.content.trim();
        if !text.is_empty() {
            again.messages.push(Message::text(Role::Assistant, text));
        }
        again.messages.push(Message::text(Role::User, lack.message));
        let mut second = passed(provider.generate(again).await?)?;
        self.tidy(&mut second);
        second.usage = Usage {
            prompt_tokens: first.usage.prompt_tokens + second.usage.prompt_tokens,
            thinking_tokens: first.usage.thinking_tokens + second.usage.thinking_tokens,
            response_tokens: first.usage.response_tokens + second.usage.response_tokens,
            cached_tokens: first.usage.cached_tokens + second.usage.cached_tokens,
        };
        self.check(&second)?;
        Ok(second)
    }

    /// # Errors
    /// The answer is not what was demanded, or the turn failed within.
    pub(crate) fn check(&self, reply: &Reply) -> Result<(), ApiError> {
        if self.is_told {
            return Ok(());
        }
        failure_of(reply).map_or(Ok(()), Err)?;
        self.judge(reply)
            .map_err(|lack| ApiError::new(lack.kind, lack.message))
    }

    fn judge(&self, reply: &Reply) -> Result<(), Lack> {
        let is_cut = matches!(
            reply.stop_reason,
            StopReason::Length | StopReason::ContentFilter
        );
        if is_cut || !reply.tool_calls.is_empty() {
            return Ok(());
        }
        if self.forces_call {
            let why = match reply.invalid_tool_calls.first() {
                Some(call) => format!("the call that came is invalid: {}", call.message),
                None => "none came".to_owned(),
            };
            return Err(Lack {
                kind: ApiErrorKind::ToolChoiceViolation,
                message: format!("a tool call is required, but {why}"),
            });
        }
        if let Some(call) = reply.invalid_tool_calls.first()
            && reply.content.trim().is_empty()
        {
            return Err(Lack {
                kind: ApiErrorKind::InvalidToolCall,
                message: invalid_call(call),
            });
        }
        let Some(form) = &self.form else {
            return Ok(());
        };
        form.judge(&reply.content).map_err(|why| Lack {
            kind: ApiErrorKind::SchemaViolation,
            message: format!("the answer must be JSON of the form that was asked for, but {why}"),
        })
    }

    /// JSON that stands in a code fence loses the fence.
    fn tidy(&self, reply: &mut Reply) {
        if self.form.is_none() {
            return;
        }
        let text = reply.content.trim();
        let inner = text.strip_prefix("```").and_then(|rest| {
            let (_, body) = rest.split_once('\n')?;
            body.trim_end().strip_suffix("```")
        });
        if let Some(inner) = inner {
            reply.content = inner.trim().to_owned();
        }
    }
}

impl Form {
    fn judge(&self, text: &str) -> Result<(), String> {
        let value: serde_json::Value =
            serde_json::from_str(text.trim()).map_err(|error| format!("it is no JSON: {error}"))?;
        match self {
            Self::Object if value.is_object() => Ok(()),
            Self::Object => Err("it is no object".to_owned()),
            Self::Schema(schema) => {
                let violations = schema.check(&value).into_iter().take(MAX_TOLD);
                let told: Vec<String> = violations.map(|one| one.to_string()).collect();
                match told.is_empty() {
                    true => Ok(()),
                    false => Err(told.join("; ")),
                }
            }
        }
    }
}

/// What is said of a call that failed its checks, where it cannot be passed on.
pub(crate) fn invalid_call(call: &InvalidToolCall) -> String {
    let name = call.name.as_deref().unwrap_or_default();
    format!("the call of `{name}` is invalid: {}", call.message)
}

/// The reply, unless its second pass failed: without an answer that is an error (row D14).
fn passed(reply: Reply) -> Result<Reply, ApiError> {
    match failure_of(&reply) {
        Some(error) => Err(error),
        None => Ok(reply),
    }
}

fn failure_of(reply: &Reply) -> Option<ApiError> {
    let mut notes = reply.diagnostics.iter();
    let failed = notes.find(|note| note.kind == DiagnosticKind::PassFailed)?;
    let kind = ApiErrorKind::Provider(ErrorKind::UpstreamError);
    Some(ApiError::new(kind, failed.message.clone()))
}
