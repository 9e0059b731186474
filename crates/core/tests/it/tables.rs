//! The dialect tables, and the document that shows them.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use twopass_core::reasoning_parser::{self, ReasoningSyntax};
use twopass_core::tool_parser::{self, Body, RawStart, ToolDialect, ToolSyntax};

fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text = text.replace('\n', "⏎").replace('|', "\\|");
    if text.contains('`') {
        // A longer fence may hold backticks.
        return format!("```` {text} ````");
    }
    format!("`{text}`")
}

fn body(row: &ToolDialect) -> String {
    match row.body {
        Body::Json { name_key: "", .. } => "JSON, `{\"f\": {..}}`".to_owned(),
        Body::Json {
            name_key,
            arguments_key,
            ..
        } => format!("JSON, `{name_key}` and `{arguments_key}`"),
        Body::Named { .. } => "name, then JSON".to_owned(),
        Body::Xml(form) => format!(
            "an element per argument, {}",
            code(&format!("{}x{}", form.param_open, form.key_end))
        ),
        Body::Python { in_list: true } => "Python calls in a list".to_owned(),
        Body::Python { in_list: false } => "Python calls, one per line".to_owned(),
        Body::Gemma { quote } => format!("`call:f{{x:1}}`, strings in {}", code(quote)),
        Body::Channels(_) => "channels".to_owned(),
    }
}

fn tables() -> String {
    let mut text = "### Tool calls\n\n| name | models | opens with | body | streamed arguments | source |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    for row in tool_parser::DIALECTS {
        let mut opens: Vec<String> = row.opens.iter().map(|open| code(open)).collect();
        if row.raw != RawStart::No {
            opens.push("the body itself".to_owned());
        }
        let streamed = if row.streams_arguments() {
            "yes"
        } else {
            "per argument"
        };
        let opens = opens.join(", ");
        writeln!(
            text,
            "| `{}` | {} | {opens} | {} | {streamed} | {} |",
            row.name,
            row.models,
            body(row),
            row.source
        )
        .unwrap();
    }
    text.push_str("\n### Reasoning\n\n| name | models | markers | begins inside | source |\n| --- | --- | --- | --- | --- |\n");
    for row in reasoning_parser::DIALECTS {
        let pairs: Vec<String> = row
            .pairs
            .iter()
            .map(|(open, close)| format!("{} .. {}", code(open), code(close)))
            .collect();
        let pairs = if row.is_channel {
            "a channel of the tool dialect".to_owned()
        } else {
            pairs.join(", ")
        };
        writeln!(
            text,
            "| `{}` | {} | {pairs} | {} | {} |",
            row.name, row.models, row.begins_inside, row.source
        )
        .unwrap();
    }
    text
}

const BEGIN: &str = "<!-- dialects: written by `UPDATE_TABLES=1 cargo test -p twopass-core --test it tables` -->\n\n";
const END: &str = "\n<!-- end of dialects -->\n";

#[test]
fn tables_in_compatibility_md_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../COMPATIBILITY.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (old, after) = rest.split_once(END).unwrap();
    let new = tables();
    if std::env::var_os("UPDATE_TABLES").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{new}{END}{after}")).unwrap();
        return;
    }
    assert!(
        old == new,
        "COMPATIBILITY.md differs from the tables; its first comment tells how to write it"
    );
}

// Row A4: every name leads to a syntax, and no name twice.
#[test]
fn a4_names_are_unique_and_known() {
    let mut seen = HashSet::new();
    for row in tool_parser::DIALECTS {
        for name in std::iter::once(&row.name).chain(row.aliases) {
            assert!(seen.insert(*name), "{name}");
            assert!(ToolSyntax::from_name(name).is_some(), "{name}");
        }
        assert!(
            ReasoningSyntax::from_name(row.reasoning).is_some(),
            "{}",
            row.name
        );
        assert!(
            !row.models.is_empty() && !row.source.is_empty(),
            "{}",
            row.name
        );
    }
    for row in reasoning_parser::DIALECTS {
        assert!(
            ReasoningSyntax::from_name(row.name).is_some(),
            "{}",
            row.name
        );
    }
    for name in ["auto", "openai", "none"] {
        assert!(ToolSyntax::from_name(name).is_some(), "{name}");
    }
    assert!(ToolSyntax::from_name("hermess").is_none());
}
