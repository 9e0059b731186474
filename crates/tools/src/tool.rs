//! What a tool is: [`Tool`] as the registry holds it, [`TypedTool`] as one writes it.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use twopass_core::chat::ToolSpec;

use crate::{Effect, ErrorKind, ToolContext, ToolError, ToolOutput};

/// A JSON object, its members in order.
pub type JsonObject = serde_json::Map<String, Value>;

/// A tool as the registry holds it. One writes a [`TypedTool`] or a [`FnTool`] instead.
pub trait Tool: Send + Sync {
    /// Name, description and schema: the one source of every wire's form.
    fn spec(&self) -> &ToolSpec;

    /// The strongest thing that it does.
    fn effect(&self) -> Effect;

    /// Does it. The arguments have been checked by the schema of [`Tool::spec`]. Dropping
    /// the future cancels.
    fn run<'a>(
        &'a self,
        arguments: JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// A tool as one writes it: one type gives schema, check, description and handler.
pub trait TypedTool: Send + Sync + 'static {
    /// The arguments. The type's doc comment describes the tool, those of its fields the
    /// parameters. It needs `#[serde(deny_unknown_fields)]`, so that invented arguments are
    /// told to the model instead of ignored.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name, as the model writes it: 1 to 64 of `a-z A-Z 0-9 _ -`.
    const NAME: &'static str;

    /// The strongest thing that it does.
    const EFFECT: Effect;

    /// Does it. What comes back as an error goes to the model as a failed result. Dropping
    /// the future cancels.
    fn run(
        &self,
        args: Self::Args,
        context: &ToolContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// A typed tool as the registry holds it.
///
/// # Errors
/// Kind [`ErrorKind::BadSchema`]: the schema has no description, or takes unknown fields.
pub fn typed<T: TypedTool>(tool: T) -> Result<Arc<dyn Tool>, ToolError> {
    let spec = spec_of::<T::Args>(T::NAME)?;
    Ok(Arc::new(Typed { tool, spec }))
}

struct Typed<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: TypedTool> Tool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn run<'a>(
        &'a self,
        arguments: JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async move {
            let arguments = whole_numbers(Value::Object(arguments));
            let args = serde_json::from_value(arguments)
                .map_err(|error| ToolError::new(ErrorKind::InvalidArguments, error.to_string()))?;
            self.tool.run(args, context).await
        }
        .boxed()
    }
}

/// Largest number up to which each whole number has a floating-point form of its own.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes `30.0` as `30`: to JSON Schema both are integers, to the types of Rust only the
/// latter.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= MAX_EXACT => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(key, value)| (key, whole_numbers(value)))
                .collect()
        }
        other => other,
    }
}

/// Name, description and schema of a tool with these arguments.
fn spec_of<Args: JsonSchema>(name: &str) -> Result<ToolSpec, ToolError> {
    let bad = |what: &str| {
        let message = format!("the arguments of the tool `{name}` {what}");
        ToolError::new(ErrorKind::BadSchema, message)
    };
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<Args>();
    let Value::Object(mut schema) = schema.to_value() else {
        return Err(bad("are no object"));
    };
    schema.shift_remove("title");
    let description = match schema.shift_remove("description") {
        Some(Value::String(text)) => one_line_per_paragraph(&text),
        _ => return Err(bad("have no doc comment")),
    };
    if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err(bad("need `#[serde(deny_unknown_fields)]`"));
    }
    // A type without fields has none of the two, and some wires demand them.
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(JsonObject::new()));
    let mut parameters = Value::Object(schema);
    drop_rust_traces(&mut parameters);
    Ok(ToolSpec {
        name: name.to_owned(),
        description,
        parameters,
    })
}

/// Takes away what Rust brings along: `format: uint32` and the like, which is no JSON Schema
/// format and refused by strict services, and the line ends of doc comments.
fn drop_rust_traces(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    let is_number = |kind: &Value| matches!(kind.as_str(), Some("integer" | "number"));
    let is_numeric = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is_number),
        Some(kind) => is_number(kind),
        None => false,
    };
    if is_numeric {
        members.shift_remove("format");
    }
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = one_line_per_paragraph(text);
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(drop_rust_traces);
    }
    if let Some(items) = members.get_mut("items") {
        drop_rust_traces(items);
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(branches)) = members.get_mut(key) {
            branches.iter_mut().for_each(drop_rust_traces);
        }
    }
}

/// Doc comments are broken where the source's margin is.
fn one_line_per_paragraph(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

type Handler = dyn Fn(JsonObject, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>
    + Send
    + Sync;

/// A tool from a name, a description, a schema and a handler, for what is known at run time
/// only.
pub struct FnTool {
    spec: ToolSpec,
    effect: Effect,
    handler: Box<Handler>,
}

impl FnTool {
    /// The tool of these parts.
    #[must_use]
    pub fn new<F, Done>(spec: ToolSpec, effect: Effect, handler: F) -> Self
    where
        F: Fn(JsonObject, ToolContext) -> Done + Send + Sync + 'static,
        Done: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        Self {
            spec,
            effect,
            handler: Box::new(move |arguments, context| handler(arguments, context).boxed()),
        }
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn run<'a>(
        &'a self,
        arguments: JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        (self.handler)(arguments, context.clone())
    }
}
