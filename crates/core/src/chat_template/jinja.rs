//! The Jinja environment that chat templates expect.

use minijinja::value::{Kwargs, Value as JinjaValue};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

use crate::calendar::civil_date;
use crate::text::to_python_json;

/// Instructions that one rendering may take; a conversation of 1,000 messages takes under a
/// tenth of it.
const FUEL: u64 = 10_000_000;

/// The source with `{% generation %}` blocks, which mark training text and which Jinja does
/// not know, turned into blocks that always apply.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(len) = rest[at + 2..].find("%}") else {
            break;
        };
        let tag = &rest[at..at + 2 + len];
        let keyword = tag[2..].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..at]);
        match keyword {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[at + tag.len()..];
    }
    out.push_str(rest);
    out
}

/// An environment with the settings of Hugging Face's `apply_chat_template`: block trimming,
/// loop controls, Python's string and list methods, `raise_exception`, `tojson` as Python
/// prints it.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_keep_trailing_newline(true);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    // A template comes from a downloaded file: a loop without end is an error, not a hang.
    env.set_fuel(Some(FUEL));
    env
}

fn raise_exception(message: String) -> Result<JinjaValue, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn tojson(value: &JinjaValue, kwargs: Kwargs) -> Result<JinjaValue, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // `ensure_ascii`, `separators` and `sort_keys` are accepted and left at their defaults.
    let value: Value = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "cannot be written as JSON").with_source(error)
    })?;
    Ok(JinjaValue::from_safe_string(to_python_json(&value, indent)))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// The codes of Python's `strftime` that chat templates use; others stay as written. UTC.
pub(super) fn strftime(unix_s: i64, format: &str) -> String {
    let days = unix_s.div_euclid(86_400);
    let second = unix_s.rem_euclid(86_400);
    let (year, month, day) = civil_date(days);
    let month_name = MONTHS[month - 1];
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => text.push_str(&year.to_string()),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('B') => text.push_str(month_name),
            Some('b') => text.push_str(&month_name[..3]),
            Some('A') => text.push_str(weekday),
            Some('a') => text.push_str(&weekday[..3]),
            Some('H') => text.push_str(&format!("{:02}", second / 3600)),
            Some('M') => text.push_str(&format!("{:02}", second / 60 % 60)),
            Some('S') => text.push_str(&format!("{:02}", second % 60)),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}
