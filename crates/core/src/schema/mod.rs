//! JSON Schema: check and coerce arguments, inline references, forms for providers.
//!
//! The `jsonschema` crate does the checking; it is compiled once for each schema and never
//! fetches anything. Everything is bounded: schema depth, expansion of references, patterns
//! (a linear engine), number of reported violations.

mod bind;
mod coerce;
mod finite_names;
mod forms;
mod numbers;
mod patterns;
mod places;
mod references;

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use crate::text::prefix_within;

pub use bind::{UnboundKeyword, for_grammar, unbound_keywords};
pub use coerce::{coerce, text_to_value};
pub use forms::{ProviderForm, close_objects, inline_refs, keywords_used, to_provider};
pub use places::Place;
pub use references::pointer_step;

/// Deepest schema that is compiled or transformed.
pub const MAX_SCHEMA_DEPTH: usize = 96;

/// Most violations that one check reports.
pub const MAX_VIOLATIONS: usize = 16;

/// Longest message of a violation, in bytes: a message may quote the value.
const MAX_MESSAGE_BYTES: usize = 400;

/// Memory for one compiled `pattern`, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A schema that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSchema(pub String);

impl fmt::Display for BadSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad schema: {}", self.0)
    }
}

impl std::error::Error for BadSchema {}

/// One way in which a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer of the value at fault, `""` for the whole.
    pub path: String,
    /// The keyword that was broken, such as `required`.
    pub keyword: String,
    /// For people and for the model.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() {
            "/"
        } else {
            &self.path
        };
        write!(f, "{place}: {} ({})", self.message, self.keyword)
    }
}

/// A schema, compiled.
pub struct CompiledSchema {
    schema: Value,
    validator: jsonschema::Validator,
}

impl fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledSchema")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl CompiledSchema {
    /// Compiles a schema. `null` and `{}` accept everything.
    ///
    /// # Errors
    /// It is no schema, too deep, has a reference that leads nowhere, outside or only to
    /// itself, or a pattern that is wrong or too large.
    pub fn new(schema: &Value) -> Result<Self, BadSchema> {
        if depth_over(schema, MAX_SCHEMA_DEPTH) {
            return Err(BadSchema(format!("nested deeper than {MAX_SCHEMA_DEPTH}")));
        }
        if let Some(reference) = circular_reference(schema) {
            let message = format!("`$ref` `{}` leads only to itself", shortened(reference));
            return Err(BadSchema(message));
        }
        let schema = if schema.is_null() {
            Value::Bool(true)
        } else {
            schema.clone()
        };
        let patterns = jsonschema::PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(&forms::without_nullable(&schema))
            .map_err(|error| {
                let place = match error.instance_path().to_string() {
                    path if path.is_empty() => String::new(),
                    path => format!("`{path}`: "),
                };
                BadSchema(shortened(format!("{place}{error}")))
            })?;
        Ok(Self { schema, validator })
    }

    /// The schema as given.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// What is wrong with a value; empty if it fits. At most [`MAX_VIOLATIONS`].
    #[must_use]
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        self.validator
            .iter_errors(value)
            .take(MAX_VIOLATIONS)
            .map(|error| Violation {
                path: error.instance_path().to_string(),
                keyword: error.kind().keyword().to_owned(),
                message: shortened(error.masked().to_string()),
            })
            .collect()
    }

    /// Checks a value that a model wrote: what does not fit is first brought into the
    /// schema's types where that loses nothing (see [`coerce`]). Returns the value, if it had
    /// to change, and what is still wrong.
    #[must_use]
    pub fn check_coerced(&self, value: &Value) -> (Option<Value>, Vec<Violation>) {
        let violations = self.check(value);
        if violations.is_empty() {
            return (None, violations);
        }
        let mut coerced = value.clone();
        if !coerce(&self.schema, &mut coerced) {
            return (None, violations);
        }
        let violations = self.check(&coerced);
        (Some(coerced), violations)
    }
}

/// A reference that comes back to itself before it says anything of a value.
fn circular_reference(root: &Value) -> Option<String> {
    let mut ending: HashSet<&str> = HashSet::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut path = HashSet::new();
        let mut at = Some(node);
        while let Some(reference) = at.and_then(|at| at.get("$ref")?.as_str()) {
            if ending.contains(reference) {
                break;
            }
            if !path.insert(reference) {
                return Some(reference.to_owned());
            }
            at = reference.strip_prefix('#').and_then(|to| root.pointer(to));
        }
        ending.extend(path);
        match node {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    None
}

/// True if a value nests deeper than `limit`. Uses no stack of its own.
fn depth_over(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(prefix_within(&text, MAX_MESSAGE_BYTES).len());
        text.push_str("...");
    }
    text
}
