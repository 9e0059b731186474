//! When an answer counts as right.

use regex::Regex;
use serde_json::Value;

/// What an answer is compared with, and how. Reasoning never counts, only the answer.
#[derive(Debug, Clone)]
pub enum Expected {
    /// One of these texts is the whole answer, whatever the case and the white space and
    /// punctuation around it.
    Exact(Vec<String>),
    /// One of these texts stands in the answer as whole words, whatever the case.
    Contains(Vec<String>),
    /// The last number of the answer is this one, give or take the tolerance.
    Number {
        /// The number.
        value: f64,
        /// How far off the answer's may be.
        tolerance: f64,
    },
    /// The pattern is found in the answer.
    Regex(Regex),
    /// The last JSON value of the answer, an object or array unless it is the whole answer, equals this one; members in
    /// any order, numbers by value.
    Json(Value),
}

/// The names that a dataset's `match` may have.
pub const NAMES: [&str; 5] = ["exact", "contains", "number", "regex", "json"];

impl Expected {
    /// Reads `match`, `answer` and `tolerance` of a dataset's line. Without `match` a text is
    /// `exact`, a number `number`, anything else `json`.
    ///
    /// # Errors
    /// Says which field is wrong and what it may be.
    pub fn read(how: Option<&str>, answer: &Value, tolerance: f64) -> Result<Self, String> {
        let how = how.unwrap_or(match answer {
            Value::String(_) => "exact",
            Value::Number(_) => "number",
            _ => "json",
        });
        match how {
            "exact" => texts(answer).map(|texts| {
                let bare = texts.iter().map(|text| bare(text));
                Self::Exact(bare.collect())
            }),
            "contains" => texts(answer).map(|texts| {
                let lower = texts.iter().map(|text| text.trim().to_lowercase());
                Self::Contains(lower.collect())
            }),
            "number" => {
                let value = match answer {
                    Value::String(text) => whole_number(text),
                    other => other.as_f64(),
                };
                let value = value.ok_or_else(|| wrong("a number", answer))?;
                Ok(Self::Number { value, tolerance })
            }
            "regex" => {
                let pattern = answer.as_str().ok_or_else(|| wrong("a pattern", answer))?;
                let pattern = Regex::new(pattern).map_err(|error| {
                    let reason = error.to_string();
                    let reason = reason.lines().last().unwrap_or_default();
                    format!("`answer` is no regular expression: {}", reason.trim())
                })?;
                Ok(Self::Regex(pattern))
            }
            "json" => Ok(Self::Json(answer.clone())),
            other => Err(format!(
                "`match` must be one of `{}`, got `{other}`",
                NAMES.join("`, `")
            )),
        }
    }

    /// Whether this answer is right.
    #[must_use]
    pub fn fits(&self, answer: &str) -> bool {
        match self {
            Self::Exact(texts) => texts.contains(&bare(answer)),
            Self::Contains(texts) => {
                let answer = answer.to_lowercase();
                texts.iter().any(|text| has_words(&answer, text))
            }
            Self::Number { value, tolerance } => last_number(answer).is_some_and(|found| {
                (found - value).abs() <= tolerance.max(value.abs() * f64::EPSILON * 4.0)
            }),
            Self::Regex(pattern) => pattern.is_match(answer),
            Self::Json(value) => last_json(answer).is_some_and(|found| same_json(&found, value)),
        }
    }
}

/// A text, or several that are all right.
fn texts(answer: &Value) -> Result<Vec<String>, String> {
    let fail = || wrong("a text, or a list of texts", answer);
    let one = |value: &Value| value.as_str().map(str::to_owned);
    let texts: Option<Vec<_>> = match answer {
        Value::Array(list) => list.iter().map(one).collect(),
        other => one(other).map(|text| vec![text]),
    };
    let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(fail)?;
    if texts.iter().any(|text| bare(text).is_empty()) {
        return Err("`answer` must not be empty".to_owned());
    }
    Ok(texts)
}

fn wrong(what: &str, answer: &Value) -> String {
    let mut shown = answer.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain("...".chars()).collect();
    }
    format!("`answer` must be {what}, got {shown}")
}

/// In lower case, white space as single spaces, without punctuation around it.
fn bare(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let joined = words.join(" ").to_lowercase();
    let trimmed = joined.trim_matches(|c: char| !c.is_alphanumeric());
    // What consists of punctuation alone, such as an operator, stays as it is.
    if trimmed.is_empty() {
        joined
    } else {
        trimmed.to_owned()
    }
}

/// Whether `part` stands in `text` with no letter or digit right beside it.
fn has_words(text: &str, part: &str) -> bool {
    let is_free = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(part).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + part.len()..]);
        is_free(before.chars().next_back()) && is_free(after.chars().next())
    })
}

/// The number that the whole text is.
fn whole_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (start, end, value) = numbers(text).next()?;
    (start == 0 && end == text.len()).then_some(value)
}

fn last_number(text: &str) -> Option<f64> {
    numbers(text).last().map(|(_, _, value)| value)
}

/// The numbers of a text with their places: decimals, thousands in groups of three, an exponent;
/// a sign only where it cannot be an operator or a hyphen.
fn numbers(text: &str) -> impl Iterator<Item = (usize, usize, f64)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let begins = bytes[at].is_ascii_digit()
                || bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
            if begins {
                let start = at;
                let (end, digits) = number_at(bytes, start);
                at = end;
                if let Ok(value) = digits.parse::<f64>() {
                    let (start, sign) = signed(text, start);
                    return Some((start, end, sign * value));
                }
            } else {
                at += 1;
            }
        }
        None
    })
}

/// The end of the number that begins here, and the number without its group marks.
fn number_at(bytes: &[u8], start: usize) -> (usize, String) {
    let mut digits = String::new();
    let mut at = start;
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut has_point = false;
    loop {
        if digit(at) {
            digits.push(char::from(bytes[at]));
        } else if bytes.get(at) == Some(&b'.') && !has_point && digit(at + 1) {
            has_point = true;
            digits.push('.');
        } else if bytes.get(at) == Some(&b',')
            && !has_point
            && (1..4).all(|ahead| digit(at + ahead))
            && !digit(at + 4)
        {
            // A group mark says nothing.
        } else {
            break;
        }
        at += 1;
    }
    let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
    if matches!(bytes.get(at), Some(b'e' | b'E')) && digit(at + 1 + sign) {
        digits.push('e');
        at += 1;
        while digit(at) || matches!(bytes.get(at), Some(b'+' | b'-')) && digits.ends_with('e') {
            digits.push(char::from(bytes[at]));
            at += 1;
        }
    }
    (at, digits)
}

/// The start of the number with its sign.
fn signed(text: &str, start: usize) -> (usize, f64) {
    let mut before = text[..start].char_indices().rev();
    let Some((at, '-' | '\u{2212}')) = before.next() else {
        return (start, 1.0);
    };
    let is_operator = before
        .next()
        .is_some_and(|(_, c)| c.is_alphanumeric() || c == ')');
    if is_operator {
        (start, 1.0)
    } else {
        (at, -1.0)
    }
}

/// The whole text as JSON, else the last object or array in it.
fn last_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text.trim()) {
        return Some(value);
    }
    let (mut at, mut last) = (0, None);
    while let Some(step) = text[at..].find(['{', '[']) {
        at += step;
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                last = Some(value);
                at += values.byte_offset();
            }
            _ => at += 1,
        }
    }
    last
}

fn same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| same_json(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|other| same_json(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// How, the label, right answers, wrong answers.
    type Case<'a> = (Option<&'a str>, Value, &'a [&'a str], &'a [&'a str]);

    fn check(cases: &[Case<'_>]) {
        for (how, label, right, wrong) in cases {
            let expected = Expected::read(*how, label, 0.0).unwrap();
            for answer in *right {
                assert!(expected.fits(answer), "{how:?} {label}: {answer}");
            }
            for answer in *wrong {
                assert!(!expected.fits(answer), "{how:?} {label}: {answer}");
            }
        }
    }

    #[test]
    fn texts_that_are_right_and_wrong() {
        check(&[
            (
                None,
                json!("Paris"),
                &["paris.", " **Paris**\n", "\"Paris\""],
                &["In Paris", "", "Pari"],
            ),
            (
                Some("exact"),
                json!(["yes", "y"]),
                &["Yes!", "y"],
                &["yes and no"],
            ),
            (Some("exact"), json!("+"), &["+", " + "], &["-"]),
            (
                Some("contains"),
                json!("Tom"),
                &["It is Tom.", "tom"],
                &["Tomas", "atom"],
            ),
            (
                Some("contains"),
                json!(["New York", "NY"]),
                &["in new york", "NY!"],
                &["New Yorker"],
            ),
            (
                Some("regex"),
                json!("(?i)\\bno\\W*$"),
                &["No.", "well, no"],
                &["no way", "casino"],
            ),
        ]);
    }

    #[test]
    fn numbers_and_json_that_are_right_and_wrong() {
        let fenced = "```json\n[2.0,5]\n```";
        let more = "{\"a\":1,\"b\":[true],\"c\":0}";
        check(&[
            (
                None,
                json!(42),
                &["42", "6 * 7 = 42.", "It is 42.0", "\\boxed{42}"],
                &["42 of 50", "", "-42", "420"],
            ),
            (
                None,
                json!(-3),
                &["-3", "5 - 8 = -3", "x=\u{2212}3"],
                &["5-3", "3"],
            ),
            (
                None,
                json!(1234.5),
                &["$1,234.50", "1.2345e3", "1234.5"],
                &["1,2345", "234.5"],
            ),
            (None, json!(0.5), &[".5", "0.5 or so"], &["5"]),
            (Some("number"), json!("1,000"), &["1000"], &["1"]),
            (
                Some("json"),
                json!([2, 5]),
                &["[2, 5]", fenced, "[1] then [2,5]"],
                &["[5, 2]", "2, 5", "[2,5"],
            ),
            (
                None,
                json!({"a": 1, "b": [true]}),
                &["{\"b\":[true],\"a\":1} ok"],
                &["{\"a\":1}", more],
            ),
        ]);
        let rough = Expected::read(None, &json!(2.5), 0.01).unwrap();
        assert!(rough.fits("2.509") && !rough.fits("2.52"));
    }

    #[test]
    fn labels_that_cannot_be_used() {
        for (how, label, expect) in [
            (
                Some("fuzzy"),
                json!("x"),
                "`match` must be one of `exact`, `contains`, `number`, `regex`, `json`, got `fuzzy`",
            ),
            (
                Some("number"),
                json!("many"),
                "`answer` must be a number, got \"many\"",
            ),
            (
                Some("number"),
                json!("3 or 4"),
                "`answer` must be a number, got \"3 or 4\"",
            ),
            (
                Some("exact"),
                json!(3),
                "`answer` must be a text, or a list of texts, got 3",
            ),
            (
                Some("contains"),
                json!([]),
                "`answer` must be a text, or a list of texts, got []",
            ),
            (Some("contains"), json!(" "), "`answer` must not be empty"),
            (
                Some("regex"),
                json!("(a"),
                "`answer` is no regular expression: error: unclosed group",
            ),
            (
                Some("regex"),
                json!({}),
                "`answer` must be a pattern, got {}",
            ),
        ] {
            let error = Expected::read(how, &label, 0.0).unwrap_err();
            assert_eq!(error, expect);
        }
    }
}
