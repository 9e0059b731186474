//! Where the references of a schema lead, within it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::places::Place;

/// Longest chain of demanded members that [`endless`] follows.
const MAX_CHAIN: usize = 256;

/// Calls `look` once with every schema inside `schema` and its JSON pointer, outermost first;
/// then with what references lead to elsewhere in it, by pointer or by anchor. Returns the
/// pointers of those.
pub(super) fn visit_all(
    schema: &Value,
    look: &mut impl FnMut(&Map<String, Value>, &str),
) -> Vec<String> {
    let mut elsewhere = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut anchored: Option<HashMap<&str, (String, &Value)>> = None;
    let mut open: Vec<(String, &Value)> = vec![(String::new(), schema)];
    while let Some((mut path, at)) = open.pop() {
        if !seen.is_empty() && !seen.contains(&path) {
            elsewhere.push(path.clone());
        }
        visit(at, &mut path, &mut |members, path| {
            if !seen.insert(path.to_owned()) {
                return false;
            }
            if let Some(to) = members.get("$ref").and_then(Value::as_str) {
                let by_anchor = || {
                    let anchored = anchored.get_or_insert_with(|| anchors(schema));
                    anchored.get(to.strip_prefix('#')?).cloned()
                };
                open.extend(target(schema, to).or_else(by_anchor));
            }
            look(members, path);
            true
        });
    }
    elsewhere
}

/// Calls `look` with the schemas inside one, as long as it says true.
fn visit(
    schema: &Value,
    path: &mut String,
    look: &mut impl FnMut(&Map<String, Value>, &str) -> bool,
) {
    let Value::Object(members) = schema else {
        return;
    };
    if !look(members, path) {
        return;
    }
    let len = path.len();
    let mut within = |steps: &[&str], schema: &Value| {
        for step in steps {
            push_step(path, step);
        }
        visit(schema, path, look);
        path.truncate(len);
    };
    for (key, value) in members {
        match (Place::of(key, value), value) {
            (Some(Place::Members), Value::Object(named)) => {
                for (name, schema) in named {
                    within(&[key, name], schema);
                }
            }
            (Some(Place::Items), Value::Array(list)) => {
                for (idx, schema) in list.iter().enumerate() {
                    within(&[key, &idx.to_string()], schema);
                }
            }
            (Some(Place::Value), schema) => within(&[key], schema),
            _ => {}
        }
    }
}

/// What a local reference leads to.
pub(super) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    const MAX_STEPS: usize = 8;
    let mut schema = schema;
    for _ in 0..MAX_STEPS {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let Some((_, target)) = reference.and_then(|to| target(root, to)) else {
            break;
        };
        schema = target;
    }
    schema
}

/// Where a member demands an object that demands it again, on and on: the pointer of the
/// reference that leads back. No value fits such a schema.
pub(super) fn endless(root: &Value) -> Option<String> {
    let mut walk = Walk {
        root,
        open: Vec::new(),
        ended: HashSet::new(),
    };
    walk.enter(String::new(), root)
}

struct Walk<'a> {
    root: &'a Value,
    /// Pointers of the schemas that the walk is in.
    open: Vec<String>,
    ended: HashSet<String>,
}

impl<'a> Walk<'a> {
    fn enter(&mut self, path: String, schema: &'a Value) -> Option<String> {
        if self.ended.contains(&path) || self.open.len() >= MAX_CHAIN {
            return None;
        }
        self.open.push(path.clone());
        let found = self.demanded(&path, schema);
        self.open.pop();
        self.ended.insert(path);
        found
    }

    /// Follows what a value of this schema must have.
    fn demanded(&mut self, path: &str, schema: &'a Value) -> Option<String> {
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some((to, target)) = reference.and_then(|to| target(self.root, to)) {
            if self.open.contains(&to) {
                return Some(path.to_owned());
            }
            return self.enter(to, target);
        }
        // What need not be an object need not have members.
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return None;
        }
        let required = schema.get("required")?.as_array()?;
        let listed = schema.get("properties")?;
        let mut names = required.iter().filter_map(Value::as_str);
        names.find_map(|name| {
            let mut path = format!("{path}/properties");
            push_step(&mut path, name);
            self.enter(path, listed.get(name)?)
        })
    }
}

/// The schema that a pointer within `root` leads to, and the pointer.
fn target<'a>(root: &'a Value, reference: &str) -> Option<(String, &'a Value)> {
    let pointer = percent_decoded(reference.strip_prefix('#')?);
    let target = root.pointer(&pointer)?;
    Some((pointer.into_owned(), target))
}

/// Every value that has a name of its own, and its pointer.
fn anchors(root: &Value) -> HashMap<&str, (String, &Value)> {
    let mut found = HashMap::new();
    let mut open = vec![(String::new(), root)];
    while let Some((path, value)) = open.pop() {
        if let Some(name) = value.get("$anchor").and_then(Value::as_str) {
            found.insert(name, (path.clone(), value));
        }
        let below = |step: &str| {
            let mut path = path.clone();
            push_step(&mut path, step);
            path
        };
        match value {
            Value::Object(members) => {
                open.extend(members.iter().map(|(name, value)| (below(name), value)));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                open.extend(items.map(|(idx, value)| (below(&idx.to_string()), value)));
            }
            _ => {}
        }
    }
    found
}

fn push_step(path: &mut String, step: &str) {
    path.push('/');
    path.push_str(&pointer_step(step));
}

/// A name as it stands in a JSON pointer (RFC 6901 section 3).
#[must_use]
pub fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A fragment of an address as text; one that is not well spelled stays as it is.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%');
        // A number may have a sign before it, an escape may not.
        let digits = digits.filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let code =
            digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        decoded.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(decoded).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_escapes_have_two_hex_digits() {
        for (text, expect) in [
            ("/a%20b", "/a b"),
            ("/%C3%a4", "/ä"),
            ("/%+1", "/%+1"),
            ("/%-1%2", "/%-1%2"),
            ("/%ff", "/%ff"),
        ] {
            assert_eq!(percent_decoded(text), expect);
        }
    }
}
