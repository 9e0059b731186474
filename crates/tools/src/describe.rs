//! Tools as text for people and prompts, and what their descriptions lack. Both read the
//! schema that goes to the wires, so that they cannot say anything else.

use serde_json::Value;
use twopass_core::chat::ToolSpec;

use crate::JsonObject;

/// Fewest sentences of a description that tells a model enough.
const MIN_SENTENCES: usize = 3;

/// Deepest schema that is described.
const MAX_DEPTH: usize = 8;

/// The tools as Markdown (row I4): a heading for each, its description, its parameters with
/// type, default and meaning.
#[must_use]
pub fn to_markdown(specs: &[ToolSpec]) -> String {
    let tools: Vec<String> = specs.iter().map(tool_to_markdown).collect();
    tools.join("\n")
}

fn tool_to_markdown(spec: &ToolSpec) -> String {
    let mut text = format!("### {}\n{}\n", spec.name, spec.description);
    let mut lines = String::new();
    if let Value::Object(schema) = &spec.parameters {
        parameters(schema, 1, &mut lines);
    }
    text.push_str(if lines.is_empty() {
        "Parameters: none\n"
    } else {
        "Parameters:\n"
    });
    text + &lines
}

fn parameters(schema: &JsonObject, depth: usize, lines: &mut String) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    for (name, property) in properties {
        let indent = "  ".repeat(depth);
        let meaning = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let about = about(property, is_required(schema, name));
        let line = format!("{indent}- {name} ({about}): {meaning}");
        lines.push_str(line.trim_end_matches([' ', ':']));
        lines.push('\n');
        if let Value::Object(inner) = property
            && depth < MAX_DEPTH
        {
            parameters(inner, depth + 1, lines);
        }
    }
}

/// `integer, 1 to 50, default 5`
fn about(property: &Value, is_required: bool) -> String {
    let mut parts = vec![type_of(property)];
    if let Some(Value::Array(values)) = property.get("enum") {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        parts.push(format!("one of {}", values.join(", ")));
    }
    match (property.get("minimum"), property.get("maximum")) {
        (Some(low), Some(high)) => parts.push(format!("{low} to {high}")),
        (Some(low), None) => parts.push(format!("at least {low}")),
        (None, Some(high)) => parts.push(format!("at most {high}")),
        (None, None) => {}
    }
    match property.get("default") {
        _ if is_required => parts.push("required".to_owned()),
        Some(default) if !default.is_null() => parts.push(format!("default {default}")),
        _ => parts.push("optional".to_owned()),
    }
    parts.join(", ")
}

fn type_of(property: &Value) -> String {
    let name = match property.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    };
    match property.get("items") {
        Some(items) if name == "array" => format!("array of {}", type_of(items)),
        _ => name,
    }
}

fn is_required(schema: &JsonObject, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

/// What a model would miss in a tool's description (row H3), one sentence each: fewer than
/// three sentences about the tool, a parameter without any, a schema that takes whatever
/// comes.
#[must_use]
pub fn lint(spec: &ToolSpec) -> Vec<String> {
    let mut findings = Vec::new();
    let n_sentences = n_sentences(&spec.description);
    if n_sentences < MIN_SENTENCES {
        findings.push(format!(
            "the description has {n_sentences} sentences, at least {MIN_SENTENCES} tell what it \
             does, when to use it and what to expect"
        ));
    }
    match &spec.parameters {
        Value::Object(schema) if schema.get("type").is_some_and(|kind| kind == "object") => {
            if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
                findings.push("the schema takes parameters that it does not name".to_owned());
            }
            undocumented(schema, "", 0, &mut findings);
        }
        _ => findings.push("the schema is not that of an object".to_owned()),
    }
    findings
}

fn undocumented(schema: &JsonObject, path: &str, depth: usize, findings: &mut Vec<String>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    for (name, property) in properties {
        let path = format!("{path}{name}");
        let text = property.get("description").and_then(Value::as_str);
        if text.is_none_or(|text| text.trim().is_empty()) {
            findings.push(format!("the parameter `{path}` has no description"));
        }
        if depth < MAX_DEPTH {
            for inner in [Some(property), property.get("items")]
                .into_iter()
                .flatten()
            {
                if let Value::Object(inner) = inner {
                    undocumented(inner, &format!("{path}."), depth + 1, findings);
                }
            }
        }
    }
}

/// Sentences by their ends: a mark with space or nothing behind it, but not behind single
/// letters as in `e.g. this`.
fn n_sentences(text: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ends = words.iter().enumerate().filter(|(idx, word)| {
        let word = word.trim_end_matches(['"', '\'', ')', '`', '*']);
        let is_last = idx + 1 == words.len();
        let stem = word.trim_end_matches(['.', '!', '?']);
        let is_abbreviation = stem.split('.').all(|part| part.chars().count() <= 1);
        let is_end = stem.len() < word.len() && (!is_abbreviation || is_last);
        is_end || is_last
    });
    ends.count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(description: &str, parameters: Value) -> ToolSpec {
        ToolSpec {
            name: "t".to_owned(),
            description: description.to_owned(),
            parameters,
        }
    }

    #[test]
    fn h3_sentences_are_counted() {
        let cases = [
            ("", 0),
            ("   ", 0),
            ("No mark", 1),
            ("One. Two! Three?", 3),
            ("Reads a file, e.g. `a.rs`. Then more (see below). End", 3),
            ("At 0.5 it stops. See x.y for it.", 2),
        ];
        for (text, expect) in cases {
            assert_eq!(n_sentences(text), expect, "{text}");
        }
    }

    #[test]
    fn h3_lint_names_what_is_missing() {
        let good = json!({
            "type": "object", "additionalProperties": false,
            "properties": {"a": {"type": "string", "description": "A."}}
        });
        assert_eq!(
            lint(&spec("Does one. Use it for two. Gives three.", good)),
            Vec::<String>::new()
        );
        let bad = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"description": "B.", "type": "array", "items": {"properties": {"c": {}}}}
            }
        });
        let findings = lint(&spec("Does a.", bad));
        assert_eq!(findings.len(), 4, "{findings:?}");
        assert!(findings[0].contains("1 sentences"));
        assert!(findings[2].contains("`a`") && findings[3].contains("`b.c`"));
        assert_eq!(lint(&spec("One. Two. Three.", Value::Null)).len(), 1);
    }

    #[test]
    fn i4_markdown_says_what_the_schema_says() {
        let parameters = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": {"type": "string", "description": "What."},
                "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
                "o": {"type": ["integer", "null"], "default": null, "description": "Or not."},
                "l": {"type": "array", "items": {"type": "string"}, "default": []},
                "e": {"enum": ["x", "y"], "type": "string"},
                "p": {"type": "object", "properties": {"q": {"type": "boolean", "description": "Deep."}}}
            }
        });
        assert_eq!(
            to_markdown(&[spec("Does it.", parameters), spec("No more.", json!({}))]),
            "### t\nDoes it.\nParameters:\n  - a (string, required): What.\n  - n (integer, 1 to 9, \
             default 5)\n  - o (integer, optional): Or not.\n  - l (array of string, default [])\n  \
             - e (string, one of \"x\", \"y\", optional)\n  - p (object, optional)\n    - q (boolean, \
             optional): Deep.\n\n### t\nNo more.\nParameters: none\n"
        );
    }
}
