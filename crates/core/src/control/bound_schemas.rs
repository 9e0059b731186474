//! Demanded calls and forms whose schemas no grammar binds in full: refused or only checked.

use crate::chat::{BadRequest, Diagnostic, DiagnosticKind, Request, ResponseFormat};
use crate::schema::{UnboundKeyword, unbound_keywords};

/// The field of a request that sets the policy for it alone.
const FIELD: &str = "on_unbound_schema";

/// What becomes of a demanded call or form whose schema no grammar binds in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnUnboundSchema {
    /// The request is refused; the error names the keyword.
    #[default]
    Refuse,
    /// What a grammar can bind is bound; the rest is checked afterwards.
    Check,
}

impl OnUnboundSchema {
    /// Every value with its name.
    pub const ALL: [(&'static str, Self); 2] = [("refuse", Self::Refuse), ("check", Self::Check)];

    /// The policy of one request: its own field `on_unbound_schema`, where it has one; a form
    /// that is not `strict` is only asked for; else `configured`.
    ///
    /// # Errors
    /// The field is none of the names.
    pub fn of_request(request: &Request, configured: Self) -> Result<Self, BadRequest> {
        let fields = request.passthrough.iter().flat_map(|passed| &passed.fields);
        if let Some((_, text)) = fields.clone().find(|(name, _)| name == FIELD) {
            let known = Self::ALL
                .into_iter()
                .find(|(name, _)| *text == format!("\"{name}\""));
            return known.map(|(_, policy)| policy).ok_or_else(|| {
                BadRequest::new(FIELD, format!("must be `refuse` or `check`, got {text}"))
            });
        }
        let is_loose = matches!(
            request.response_format,
            ResponseFormat::JsonSchema { strict: false, .. }
        );
        if is_loose && !request.tool_choice.forces_call() {
            return Ok(Self::Check);
        }
        Ok(configured)
    }
}

/// Refuses what no grammar binds, or says that it is only checked.
///
/// # Errors
/// The policy is to refuse: names the parameter, the tool, the keywords and their places.
pub(super) fn judge_bounds(
    request: &Request,
    policy: OnUnboundSchema,
) -> Result<Vec<Diagnostic>, BadRequest> {
    let mut notes = Vec::new();
    for (param, of, keywords) in loosely_bound(request) {
        let names: Vec<String> = keywords
            .iter()
            .map(|unbound| match unbound.path.as_str() {
                "" => format!("`{}`", unbound.keyword),
                path => format!("`{}` at `{path}`", unbound.keyword),
            })
            .collect();
        let names = names.join(", ");
        if policy == OnUnboundSchema::Refuse {
            let message = format!(
                "{of} cannot be bound to {names} while it is written; with `on_unbound_schema: check` it is checked afterwards instead"
            );
            return Err(BadRequest::new(param, message));
        }
        notes.push(Diagnostic::new(
            DiagnosticKind::Degraded,
            format!("{of} is not bound to {names} while it is written, only checked"),
        ));
    }
    Ok(notes)
}

/// What the grammar leaves over: the parameter at fault, what is bound, in words, and the
/// keywords.
fn loosely_bound(request: &Request) -> Vec<(String, String, Vec<UnboundKeyword>)> {
    let mut found = Vec::new();
    if request.tool_choice.forces_call() {
        let only = request.tool_choice.only_tool();
        let tools = request.tools.iter().enumerate();
        for (idx, tool) in tools.filter(|(_, tool)| only.is_none_or(|name| name == tool.name)) {
            let of = format!("the call of `{}`", tool.name);
            let param = format!("tools[{idx}].parameters");
            found.push((param, of, unbound_keywords(&tool.parameters)));
        }
    } else if let Some(schema) = request.answer_schema() {
        let param = "response_format".to_owned();
        found.push((param, "the answer".to_owned(), unbound_keywords(&schema)));
    }
    found.retain(|(_, _, keywords)| !keywords.is_empty());
    found
}
