//! The tools of one agent or server, and the one way to run a call.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use futures_util::FutureExt;
use serde_json::Value;
use twopass_core::chat::{Arguments, ToolCall, ToolSpec};
use twopass_core::schema::CompiledSchema;

use crate::tool::typed;
use crate::{
    Consent, Decision, ErrorKind, JsonObject, Policy, Tool, ToolContext, ToolError, ToolOutput,
    TypedTool, cut_middle,
};

/// Longest name of a tool, in characters: what OpenAI's wire takes.
pub(crate) const MAX_NAME_CHARS: usize = 64;

/// The tools of one agent or server, in the order in which they came.
///
/// Tools may come and go while calls run: a call keeps the tool that it started with.
#[derive(Default)]
pub struct ToolRegistry {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    default_policy: Policy,
    /// Policies by name. They outlive the tool, so that one can be set before it comes.
    policies: Vec<(String, Policy)>,
}

#[derive(Clone)]
struct Entry {
    tool: Arc<dyn Tool>,
    schema: Arc<CompiledSchema>,
}

impl ToolRegistry {
    /// No tools, policy [`Policy::Ask`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a typed tool.
    ///
    /// # Errors
    /// As [`ToolRegistry::add`]; kind [`ErrorKind::BadSchema`] also if the arguments have no
    /// doc comment or take unknown fields.
    pub fn register<T: TypedTool>(&self, tool: T) -> Result<(), ToolError> {
        self.add(typed(tool)?)
    }

    /// Adds a tool, at run time too.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadName`]: the name is taken, or not 1 to 64 of `a-z A-Z 0-9 _ -`.
    /// Kind [`ErrorKind::BadSchema`]: the schema cannot be used.
    pub fn add(&self, tool: Arc<dyn Tool>) -> Result<(), ToolError> {
        let spec = tool.spec();
        let name = &spec.name;
        if !is_name(name) {
            return Err(ToolError::new(
                ErrorKind::BadName,
                format!(
                    "bad tool name `{name}`, allowed: 1 to {MAX_NAME_CHARS} of `a-z A-Z 0-9 _ -`"
                ),
            ));
        }
        let schema = CompiledSchema::new(&spec.parameters).map_err(|error| {
            ToolError::new(ErrorKind::BadSchema, format!("tool `{name}`: {error}"))
        })?;
        let mut inner = self.write();
        if inner.entry(name).is_some() {
            return Err(ToolError::new(
                ErrorKind::BadName,
                format!("a tool `{name}` is registered already"),
            ));
        }
        inner.entries.push(Entry {
            tool,
            schema: Arc::new(schema),
        });
        Ok(())
    }

    /// Takes a tool away; false if there is none of this name. Its running calls go on.
    pub fn remove(&self, name: &str) -> bool {
        let mut inner = self.write();
        let n_before = inner.entries.len();
        inner.entries.retain(|entry| entry.tool.spec().name != name);
        inner.entries.len() < n_before
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.read().entry(name).map(|entry| Arc::clone(&entry.tool))
    }

    /// Name, description and schema of every tool.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        let inner = self.read();
        inner
            .entries
            .iter()
            .map(|entry| entry.tool.spec().clone())
            .collect()
    }

    /// Sets the policy of tools that have none of their own.
    pub fn set_default_policy(&self, policy: Policy) {
        self.write().default_policy = policy;
    }

    /// Sets the policy of one tool, which need not be there yet.
    pub fn set_policy(&self, name: &str, policy: Policy) {
        let mut inner = self.write();
        inner.policies.retain(|(known, _)| known != name);
        inner.policies.push((name.to_owned(), policy));
    }

    /// What the policy says of calls of this tool. Unknown tools need nobody's consent:
    /// their calls fail.
    #[must_use]
    pub fn decide(&self, name: &str) -> Decision {
        let inner = self.read();
        inner.entry(name).map_or(Decision::Run, |entry| {
            inner.policy(name).decide(entry.tool.effect())
        })
    }

    /// Runs a call to its end: checked, permitted, within the limits. Never fails: what goes
    /// wrong is the output, and only a dropped future has none.
    ///
    /// `consent` is what a person said, if [`ToolRegistry::decide`] told to ask.
    pub async fn run(
        &self,
        call: &ToolCall,
        context: &ToolContext,
        consent: Consent,
    ) -> ToolOutput {
        let started = Instant::now();
        let done = match self.admit(call, consent) {
            Ok((tool, arguments)) => run_admitted(&*tool, arguments, context).await,
            Err(error) => Err(error),
        };
        let mut output = done.unwrap_or_else(Into::into);
        let (text, cut) = cut_middle(&output.text, context.limits.max_output_chars);
        output.text = text;
        output.truncated |= cut;
        output.duration = started.elapsed();
        output
    }

    /// The tool and the checked arguments of a call that may run.
    fn admit(
        &self,
        call: &ToolCall,
        consent: Consent,
    ) -> Result<(Arc<dyn Tool>, JsonObject), ToolError> {
        let (entry, decision) = {
            let inner = self.read();
            let entry = inner.entry(&call.name).cloned();
            let entry = entry.ok_or_else(|| inner.unknown(&call.name))?;
            let decision = inner.policy(&call.name).decide(entry.tool.effect());
            (entry, decision)
        };
        let arguments = checked(&entry.schema, &call.name, &call.arguments)?;
        let refused = match (decision, consent) {
            (_, Consent::Denied) => "was refused by the user",
            (Decision::Refuse, _) => "is not allowed here",
            (Decision::Ask, Consent::NotAsked) => "needs the user's consent, which was not given",
            (Decision::Ask, Consent::Given) | (Decision::Run, _) => {
                return Ok((entry.tool, arguments));
            }
        };
        Err(ToolError::new(
            ErrorKind::Refused,
            format!("the call of `{}` {refused}", call.name),
        ))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // Nothing panics while the lock is held: poisoned data is whole.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.tool.spec().name == name)
    }

    fn policy(&self, name: &str) -> Policy {
        let own = self.policies.iter().find(|(known, _)| known == name);
        own.map_or(self.default_policy, |(_, policy)| *policy)
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names = self
            .entries
            .iter()
            .map(|entry| format!("`{}`", entry.tool.spec().name));
        let names: Vec<_> = names.collect();
        let known = if names.is_empty() {
            "there are no tools".to_owned()
        } else {
            format!("the tools are {}", names.join(", "))
        };
        ToolError::new(
            ErrorKind::UnknownTool,
            format!("unknown tool `{name}`, {known}"),
        )
    }
}

async fn run_admitted(
    tool: &dyn Tool,
    arguments: JsonObject,
    context: &ToolContext,
) -> Result<ToolOutput, ToolError> {
    let name = &tool.spec().name;
    // A tool that panics spoils its own call only.
    let call = AssertUnwindSafe(tool.run(arguments, context)).catch_unwind();
    match tokio::time::timeout(context.limits.timeout, call).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(ToolError::new(
            ErrorKind::Internal,
            format!("the tool `{name}` broke down"),
        )),
        Err(_) => Err(ToolError::new(
            ErrorKind::Timeout,
            format!(
                "the tool `{name}` timed out after {} s and was stopped",
                context.limits.timeout.as_secs_f32()
            ),
        )),
    }
}

/// The arguments as the schema wants them.
fn checked(
    schema: &CompiledSchema,
    name: &str,
    arguments: &Arguments,
) -> Result<JsonObject, ToolError> {
    let given = Value::Object(arguments.as_object().clone());
    let (coerced, violations) = schema.check_coerced(&given);
    if !violations.is_empty() {
        let list: Vec<_> = violations.iter().map(ToString::to_string).collect();
        return Err(ToolError::new(
            ErrorKind::InvalidArguments,
            format!("bad arguments for `{name}`: {}", list.join("; ")),
        ));
    }
    match coerced.unwrap_or(given) {
        Value::Object(arguments) => Ok(arguments),
        _ => Ok(JsonObject::new()),
    }
}

fn is_name(name: &str) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_char)
}
