use std::collections::HashMap;
use std::sync::OnceLock;

use crate::chat::ToolSpec;
use crate::schema::{BadSchema, CompiledSchema};

/// The tools of a turn, their schemas compiled at first use and kept.
///
/// Share one set between turns that offer the same tools: compiling is the dear part.
#[derive(Debug)]
pub struct ToolSet {
    tools: Vec<Tool>,
    by_name: HashMap<String, usize>,
}

#[derive(Debug)]
struct Tool {
    spec: ToolSpec,
    compiled: OnceLock<Result<CompiledSchema, BadSchema>>,
}

impl ToolSet {
    /// A set of these tools. Of two with one name the first counts.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = ToolSpec>) -> Self {
        let mut set = Self {
            tools: Vec::new(),
            by_name: HashMap::new(),
        };
        for spec in tools {
            set.by_name
                .entry(spec.name.clone())
                .or_insert(set.tools.len());
            set.tools.push(Tool {
                spec,
                compiled: OnceLock::new(),
            });
        }
        set
    }

    /// True if no tool is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.by_name.get(name).map(|&idx| &self.tools[idx].spec)
    }

    /// The tools in order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.iter().map(|tool| &tool.spec)
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec.name.as_str())
    }

    /// The compiled schema of a tool; `None` for a name that is not in the set.
    #[must_use]
    pub fn schema(&self, name: &str) -> Option<Result<&CompiledSchema, &BadSchema>> {
        let tool = &self.tools[*self.by_name.get(name)?];
        Some(
            tool.compiled
                .get_or_init(|| CompiledSchema::new(&tool.spec.parameters))
                .as_ref(),
        )
    }
}

/// The tool name that a model meant.
///
/// A known name stays. Otherwise the name ends where a control token (`<|`) or white space
/// begins, and prefixes such as `functions.`, quotes and a call number (`:0`) go if a known
/// name is left. With nothing known that fits, the cleaned name is returned for the error.
#[must_use]
pub fn normalize_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let is_known = |name: &str| known.contains(&name);
    if is_known(name) {
        return name.to_owned();
    }
    let mut clean = without_leading_token(name.trim());
    for token in ["<|", "<｜", "[ARGS]", "[CALL_ID]"] {
        if let Some(at) = clean.find(token) {
            clean = &clean[..at];
        }
    }
    let clean = clean.trim().trim_matches(['"', '\'', '`']).trim();
    let mut candidates = vec![clean];
    for prefix in [
        "functions.",
        "function.",
        "functions:",
        "functions/",
        "tools.",
        "tool.",
        "to=",
    ] {
        if let Some(rest) = clean.strip_prefix(prefix) {
            candidates.push(rest);
        }
    }
    for candidate in candidates.clone() {
        if let Some((head, number)) = candidate.rsplit_once(':')
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            candidates.push(head);
        }
        if let Some(first) = candidate.split_whitespace().next() {
            candidates.push(first);
        }
        candidates.push(candidate.trim_end_matches("()"));
    }
    let found = candidates.iter().find(|candidate| is_known(candidate));
    let fallback = clean.strip_prefix("functions.").unwrap_or(clean);
    (*found.unwrap_or(&fallback)).to_owned()
}

/// Leaves out control tokens that leaked in before the name.
fn without_leading_token(name: &str) -> &str {
    let after = name
        .strip_prefix("<|")
        .and_then(|rest| rest.split_once("|>"));
    match after {
        Some((_, rest)) if !rest.trim().is_empty() => without_leading_token(rest.trim()),
        _ => name,
    }
}
