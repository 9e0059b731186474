//! Patterns in the form in which a grammar keeps them exactly.

use regex_syntax::Parser;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};
use serde_json::{Map, Value};

/// Rewrites `pattern` and, if told so, the names of `patternProperties` so that a grammar reads them as
/// the check does. What fits the result fits the schema.
pub(super) fn narrow_patterns(members: &mut Map<String, Value>, renames: bool) {
    if let Some(Value::String(pattern)) = members.get_mut("pattern")
        && let Some(narrowed) = narrowed(pattern)
    {
        *pattern = narrowed;
    }
    let schemas = members.get_mut("patternProperties").filter(|_| renames);
    let Some(Value::Object(schemas)) = schemas else {
        return;
    };
    let renamed: Map<String, Value> = std::mem::take(schemas)
        .into_iter()
        .map(|(pattern, schema)| (narrowed(&pattern).unwrap_or(pattern), schema))
        .collect();
    *schemas = renamed;
}

/// The pattern in Rust's words, narrowed; `None` where it needs no change or cannot be read.
///
/// The grammar engine reads `\s` and `.` as Rust does, the check as ECMA 262 does. And it
/// writes a class with all control characters as if it had `"` and `\` too, so such a class
/// loses one of them.
fn narrowed(pattern: &str) -> Option<String> {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
    let hir = Parser::new().parse(&translated).ok()?;
    let mut is_changed = *translated != *pattern;
    let hir = without_controls(&hir, &mut is_changed);
    is_changed.then(|| hir.to_string())
}

/// The expression without NUL in the classes that have all control characters, a line's end
/// perhaps excepted.
fn without_controls(hir: &Hir, is_changed: &mut bool) -> Hir {
    let mut within = |hir: &Hir| without_controls(hir, is_changed);
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) if has_controls(class) => {
            *is_changed = true;
            let nul = ClassUnicodeRange::new('\0', '\0');
            let mut class = class.clone();
            class.difference(&ClassUnicode::new([nul]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Repetition(repetition) => {
            let mut repetition = repetition.clone();
            *repetition.sub = within(&repetition.sub);
            Hir::repetition(repetition)
        }
        HirKind::Capture(capture) => {
            let mut capture = capture.clone();
            *capture.sub = within(&capture.sub);
            Hir::capture(capture)
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(within).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(within).collect()),
        _ => hir.clone(),
    }
}

fn has_controls(class: &ClassUnicode) -> bool {
    let has = |c: char| {
        let mut ranges = class.iter();
        ranges.any(|range| (range.start()..=range.end()).contains(&c))
    };
    ('\0'..' ').all(|c| c == '\n' || has(c)) && !(has('"') && has('\\'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m5_patterns_that_a_grammar_reads_as_the_check_does() {
        for (pattern, fits, other) in [
            (r#"^[^"\\]{3}$"#, "a\u{1}b", "a\0b"),
            (r#"^[^\n"]$"#, "a", "\0"),
            (r"^\S$", "a", "\u{feff}"),
            (r"^.$", "a", "\r"),
            (r"^\d$", "1", "\u{661}"),
        ] {
            let narrowed = narrowed(pattern).unwrap_or_else(|| panic!("{pattern} is kept"));
            let schema = json!({"pattern": narrowed});
            assert!(jsonschema::is_valid(&schema, &json!(fits)), "{schema}");
            assert!(!jsonschema::is_valid(&schema, &json!(other)), "{schema}");
        }
        for kept in ["^[a-z]+$", "^[^x]{2}$", "(?=x)", "("] {
            assert_eq!(narrowed(kept), None, "{kept}");
        }
        let mut members = json!({"patternProperties": {r"^\d$": true, "^x": false}});
        narrow_patterns(members.as_object_mut().unwrap(), true);
        let names: Vec<_> = members["patternProperties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(names, [r"(?:\A[0-9]\z)", "^x"]);
    }
}
