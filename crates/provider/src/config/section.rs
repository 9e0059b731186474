//! One map of the file, read key by key; what was not read in the end is an unknown key.

use std::path::PathBuf;

use twopass_core::tool_parser::ToolDialect;

use super::node::{Node, NodeKind, Place};
use super::origin::{Origin, Origins};
use crate::{ErrorKind, ProviderError};

/// The file being read: its name for errors, and where each value came from.
#[derive(Debug)]
pub(super) struct Source {
    /// The file as the person named it.
    pub(super) file: String,
    /// The folder that relative paths of the file start from.
    pub(super) folder: PathBuf,
    pub(super) origins: Origins,
    /// The dialects that the file defines, which its entries may name.
    pub(super) dialects: Vec<ToolDialect>,
}

impl Source {
    /// An error at this place: `FILE:LINE:COLUMN: KEY: what is wrong`.
    pub(super) fn error(&self, place: Place, key: &str, message: impl AsRef<str>) -> ProviderError {
        let mut text = self.file.clone();
        if place.line > 0 {
            text.push_str(&format!(":{}:{}", place.line, place.column));
        }
        if !key.is_empty() {
            text.push_str(&format!(": `{key}`"));
        }
        text.push_str(": ");
        text.push_str(message.as_ref());
        ProviderError::new(ErrorKind::Config, text).with_param(key)
    }

    /// A path of the file: relative ones start from the file's folder.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }
}

/// A map and the keys that were asked of it.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    place: Place,
    entries: &'a [(String, Place, Node)],
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Opens a map; null counts as an empty one.
    pub(super) fn open(source: &Source, path: &str, node: &'a Node) -> Result<Self, ProviderError> {
        let entries = match &node.kind {
            NodeKind::Map(entries) => entries.as_slice(),
            NodeKind::Null => &[],
            other => {
                let message = format!("must be a map of keys and values, got {}", other.brief());
                return Err(source.error(node.place, path, message));
            }
        };
        Ok(Self {
            path: path.to_owned(),
            place: node.place,
            entries,
            known: Vec::new(),
        })
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The full name of a key.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Where a key stands.
    pub(super) fn place_of(&self, name: &str) -> Option<Place> {
        self.entries
            .iter()
            .find(|(key, ..)| key == name)
            .map(|(_, place, _)| *place)
    }

    /// Where a key's value stands.
    pub(super) fn value_place(&self, name: &str) -> Option<Place> {
        let entry = self.entries.iter().find(|(key, ..)| key == name);
        entry.map(|(.., node)| node.place)
    }

    /// A key's value; null is absent. Notes that the key is known.
    pub(super) fn node(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.push(name);
        let (_, _, node) = self.entries.iter().find(|(key, ..)| key == name)?;
        (!matches!(node.kind, NodeKind::Null)).then_some(node)
    }

    /// The fault of a value that is not what the key takes.
    pub(super) fn fault(
        &self,
        source: &Source,
        name: &str,
        node: &Node,
        allowed: &str,
    ) -> ProviderError {
        let message = format!("must be {allowed}, got {}", node.kind.brief());
        source.error(node.place, &self.path_of(name), message)
    }

    /// A key's value by this reading. `allowed` says what is taken; `None` refuses.
    pub(super) fn read<T>(
        &mut self,
        source: &mut Source,
        name: &'static str,
        allowed: &str,
        reading: impl Fn(&NodeKind) -> Option<T>,
    ) -> Result<Option<T>, ProviderError> {
        let Some(node) = self.node(name) else {
            return Ok(None);
        };
        let value = reading(&node.kind).ok_or_else(|| self.fault(source, name, node, allowed))?;
        source.origins.note(
            self.path_of(name),
            Origin::file(&source.file, node.place.line),
        );
        Ok(Some(value))
    }

    pub(super) fn text(
        &mut self,
        source: &mut Source,
        name: &'static str,
    ) -> Result<Option<String>, ProviderError> {
        self.read(
            source,
            name,
            "text (put numbers into quotes)",
            |kind| match kind {
                NodeKind::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
                _ => None,
            },
        )
    }

    pub(super) fn boolean(
        &mut self,
        source: &mut Source,
        name: &'static str,
    ) -> Result<Option<bool>, ProviderError> {
        self.read(source, name, "`true` or `false`", |kind| match kind {
            NodeKind::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A whole number in this range.
    pub(super) fn whole(
        &mut self,
        source: &mut Source,
        name: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, ProviderError> {
        let known = self.entries.iter().find(|(key, ..)| key == name);
        let is_above = known.is_some_and(
            |(.., node)| matches!(node.kind, NodeKind::Whole(value) if value > i128::from(most)),
        );
        let allowed = match most >= u64::from(u32::MAX) {
            true if is_above => format!("a whole number of at most {most}"),
            true => format!("a whole number of at least {least}"),
            false => format!("a whole number from {least} to {most}"),
        };
        self.read(source, name, &allowed, |kind| match kind {
            NodeKind::Whole(value) => u64::try_from(*value)
                .ok()
                .filter(|v| (least..=most).contains(v)),
            _ => None,
        })
    }

    /// A whole number of 32 bits, at least this.
    pub(super) fn count(
        &mut self,
        source: &mut Source,
        name: &'static str,
        least: u32,
    ) -> Result<Option<u32>, ProviderError> {
        let value = self.whole(source, name, u64::from(least), u64::from(u32::MAX))?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// A number in this range.
    pub(super) fn number(
        &mut self,
        source: &mut Source,
        name: &'static str,
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, ProviderError> {
        let allowed = if high.is_finite() {
            format!("a number from {low} to {high}")
        } else {
            format!("a number of at least {low}")
        };
        self.read(source, name, &allowed, |kind| {
            number(kind).filter(|v| (low..=high).contains(v))
        })
    }

    /// One of these names.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        source: &mut Source,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>, ProviderError> {
        let Some(node) = self.node(name) else {
            return Ok(None);
        };
        let names: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
        let wanted = match &node.kind {
            NodeKind::Text(text) => text.as_str(),
            NodeKind::Bool(true) => "true",
            NodeKind::Bool(false) => "false",
            _ => return Err(self.fault(source, name, node, &one_of_text(&names))),
        };
        let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == wanted) else {
            let mut message = format!("must be {}, got {}", one_of_text(&names), node.kind.brief());
            message.push_str(&suggestion(wanted, &names));
            return Err(source.error(node.place, &self.path_of(name), message));
        };
        source.origins.note(
            self.path_of(name),
            Origin::file(&source.file, node.place.line),
        );
        Ok(Some(*value))
    }

    /// A list of texts; one text counts as a list of one.
    pub(super) fn texts(
        &mut self,
        source: &mut Source,
        name: &'static str,
    ) -> Result<Option<Vec<String>>, ProviderError> {
        self.read(
            source,
            name,
            "text or a list of texts, none of them empty",
            |kind| match kind {
                NodeKind::Text(text) if !text.is_empty() => Some(vec![text.clone()]),
                NodeKind::List(items) => items
                    .iter()
                    .map(|item| match &item.kind {
                        NodeKind::Text(text) if !text.is_empty() => Some(text.clone()),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            },
        )
    }

    /// Refuses the keys that nobody asked for.
    pub(super) fn finish(self, source: &Source) -> Result<(), ProviderError> {
        let Some((name, place, _)) = self
            .entries
            .iter()
            .find(|(key, ..)| !self.known.contains(&key.as_str()))
        else {
            return Ok(());
        };
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        let hint = suggestion(name, &known);
        let allowed: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
        let message = format!("unknown key{hint}; known keys: {}", allowed.join(", "));
        Err(source.error(*place, &self.path_of(name), message))
    }
}

pub(super) fn number(kind: &NodeKind) -> Option<f64> {
    match kind {
        #[expect(clippy::cast_precision_loss, reason = "settings are far below 2^53")]
        NodeKind::Whole(value) => Some(*value as f64),
        NodeKind::Float(value) => Some(*value),
        _ => None,
    }
}

fn one_of_text(names: &[&str]) -> String {
    let mut quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.dedup();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

/// `, did you mean ..?` for the nearest name, if one is near.
pub(super) fn suggestion(wrong: &str, names: &[&str]) -> String {
    /// One edit for so many characters still looks like a slip.
    const CHARS_PER_EDIT: usize = 3;
    let wrong = wrong.to_lowercase();
    let n_edits = |name: &str| match name.strip_prefix(&wrong) {
        // The beginning of a name is as good as a slip.
        Some(_) if wrong.len() >= CHARS_PER_EDIT => 0,
        _ => strsim::osa_distance(&wrong, name),
    };
    let nearest = names
        .iter()
        .map(|name| (n_edits(name), *name))
        .min_by_key(|(n_edits, _)| *n_edits);
    match nearest {
        Some((n_edits, name)) if n_edits * CHARS_PER_EDIT < wrong.chars().count() => {
            format!(", did you mean `{name}`?")
        }
        _ => String::new(),
    }
}
