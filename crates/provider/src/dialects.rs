//! Names of tool-call dialects that a configuration may choose.

/// The dialects, first the ones that the documentation names.
pub(crate) fn tool_parser_names() -> impl Iterator<Item = &'static str> {
    ["hermes", "fenced"].into_iter()
}
