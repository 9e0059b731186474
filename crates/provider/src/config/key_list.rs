//! The keys that a server takes, as a file of their own lists them.

use std::fmt;
use std::path::PathBuf;

use twopass_core::calendar::day_number;

use super::node::{self, Node, NodeKind};
use super::section::{Section, Source};
use super::types::named_enum;
use crate::ProviderError;

/// Characters of a key's name.
const NAME_CHARS: usize = 64;
/// What stands before the digest of a key.
const DIGEST_PREFIX: &str = "sha256:";

named_enum! {
    /// What a key opens.
    KeyScope {
        /// Turns in every format, stored responses, counting of tokens.
        Chat = "chat",
        /// Vectors.
        Embeddings = "embeddings",
        /// The numbers of the server, those of other keys too.
        Metrics = "metrics",
    }
}

/// One key: who holds it, what it opens and how much it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// Its name in numbers and logs: unique, of letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// What it opens; by default turns and vectors.
    pub scopes: Vec<KeyScope>,
    /// Names of models as requests call them, `*` for any run of characters; `None` = all.
    pub models: Option<Vec<String>>,
    /// How much it may use.
    pub limits: KeyLimits,
    /// The day (since 1970, UTC) from which on it is not taken any more.
    pub expires_day: Option<i64>,
}

/// How much a key may use; `None` = as much as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyLimits {
    /// Requests in a minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens in a minute, read and written.
    pub tokens_per_minute: Option<u64>,
    /// Tokens in a day (UTC), read and written.
    pub tokens_per_day: Option<u64>,
}

impl KeyEntry {
    /// What a key opens that is told nothing about it.
    pub const SCOPES: [KeyScope; 2] = [KeyScope::Chat, KeyScope::Embeddings];

    /// A key of this name without limits.
    ///
    /// # Errors
    /// The name is none; the text says what is allowed.
    pub fn new(name: &str, digest: [u8; 32]) -> Result<Self, String> {
        Ok(Self {
            name: checked_name(name)?,
            digest,
            scopes: Self::SCOPES.to_vec(),
            models: None,
            limits: KeyLimits::default(),
            expires_day: None,
        })
    }

    /// Reads a file of keys: a map whose one key, `keys`, holds a list of entries.
    ///
    /// # Errors
    /// Kind `Config`, naming the place in `shown`; never the value of a `hash`.
    pub fn read_list(text: &str, shown: &str) -> Result<Vec<Self>, ProviderError> {
        let mut source = Source {
            file: shown.to_owned(),
            folder: PathBuf::new(),
            origins: Default::default(),
            dialects: Vec::new(),
        };
        let root =
            node::parse(text).map_err(|(place, message)| source.error(place, "", message))?;
        let mut section = Section::open(&source, "", &root)?;
        let mut entries: Vec<Self> = Vec::new();
        if let Some(node) = section.node("keys") {
            let NodeKind::List(items) = &node.kind else {
                return Err(section.fault(&source, "keys", node, "a list of keys"));
            };
            for (idx, item) in items.iter().enumerate() {
                let path = format!("keys[{idx}]");
                let entry = entry(&mut source, &path, item)?;
                for (first, known) in entries.iter().enumerate() {
                    let twice = match known {
                        known if known.name == entry.name => "name",
                        known if known.digest == entry.digest => "hash",
                        _ => continue,
                    };
                    let message = format!("is the {twice} of keys[{first}] already");
                    return Err(source.error(item.place, &format!("{path}.{twice}"), message));
                }
                entries.push(entry);
            }
        }
        section.finish(&source)?;
        Ok(entries)
    }

    /// The digest of a text `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn digest_of(text: &str) -> Option<[u8; 32]> {
        let hex = text.strip_prefix(DIGEST_PREFIX)?.as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        Some(out)
    }

    /// The day of a date `YYYY-MM-DD`.
    #[must_use]
    pub fn day_of(text: &str) -> Option<i64> {
        let mut parts = text.split('-');
        let mut part = |n_digits: usize| {
            let digits = parts.next().filter(|part| part.len() == n_digits)?;
            let all = digits.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| digits.parse().ok()).flatten()
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        parts.next().is_none().then_some(())?;
        day_number(year, month, day)
    }
}

/// The entry as an item of the list, in the form that [`KeyEntry::read_list`] reads.
impl fmt::Display for KeyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "- name: \"{}\"", self.name)?;
        write!(f, "  hash: {DIGEST_PREFIX}")?;
        for byte in self.digest {
            write!(f, "{byte:02x}")?;
        }
        let scopes: Vec<_> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        writeln!(f, "\n  scopes: [{}]", scopes.join(", "))?;
        if let Some(models) = &self.models {
            writeln!(f, "  models: {}", serde_json::json!(models))?;
        }
        let limits = &self.limits;
        for (name, limit) in [
            (
                "requests_per_minute",
                limits.requests_per_minute.map(u64::from),
            ),
            ("tokens_per_minute", limits.tokens_per_minute),
            ("tokens_per_day", limits.tokens_per_day),
        ] {
            if let Some(limit) = limit {
                writeln!(f, "  {name}: {limit}")?;
            }
        }
        if let Some(day) = self.expires_day {
            let (year, month, day) = twopass_core::calendar::civil_date(day);
            writeln!(f, "  expires: \"{year:04}-{month:02}-{day:02}\"")?;
        }
        Ok(())
    }
}

fn entry(source: &mut Source, path: &str, node: &Node) -> Result<KeyEntry, ProviderError> {
    let mut section = Section::open(source, path, node)?;
    let name = required(source, &mut section, "name")?;
    let name = checked_name(&name).map_err(|allowed| {
        let place = section.value_place("name").unwrap_or_default();
        source.error(place, &section.path_of("name"), allowed)
    })?;
    let hash = required(source, &mut section, "hash")?;
    let digest = KeyEntry::digest_of(&hash).ok_or_else(|| {
        let place = section.value_place("hash").unwrap_or_default();
        let message =
            format!("must be `{DIGEST_PREFIX}` and the 64 hexadecimal digits of the key's SHA-256");
        source.error(place, &section.path_of("hash"), message)
    })?;
    let most = u64::try_from(i64::MAX).unwrap_or(u64::MAX);
    let entry = KeyEntry {
        name,
        digest,
        scopes: scopes(source, &mut section)?,
        models: section.texts(source, "models")?,
        limits: KeyLimits {
            requests_per_minute: section.count(source, "requests_per_minute", 1)?,
            tokens_per_minute: section.whole(source, "tokens_per_minute", 1, most)?,
            tokens_per_day: section.whole(source, "tokens_per_day", 1, most)?,
        },
        expires_day: section.read(
            source,
            "expires",
            "a date YYYY-MM-DD, the first day without the key",
            |kind| match kind {
                NodeKind::Text(text) => KeyEntry::day_of(text),
                _ => None,
            },
        )?,
    };
    section.finish(source)?;
    Ok(entry)
}

fn required(
    source: &mut Source,
    section: &mut Section<'_>,
    name: &'static str,
) -> Result<String, ProviderError> {
    match section.text(source, name)? {
        Some(text) => Ok(text),
        None => {
            let message = "is missing: a key has a `name` and a `hash`";
            Err(source.error(section.place(), &section.path_of(name), message))
        }
    }
}

fn scopes(source: &mut Source, section: &mut Section<'_>) -> Result<Vec<KeyScope>, ProviderError> {
    let names: Vec<_> = KeyScope::ALL.iter().map(|scope| scope.as_str()).collect();
    let allowed = format!("a list of {}", names.join(", "));
    let scopes = section.read(source, "scopes", &allowed, |kind| match kind {
        NodeKind::List(items) => items
            .iter()
            .map(|item| match &item.kind {
                NodeKind::Text(name) => KeyScope::from_name(name),
                _ => None,
            })
            .collect(),
        _ => None,
    })?;
    Ok(scopes.unwrap_or_else(|| KeyEntry::SCOPES.to_vec()))
}

fn checked_name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(is_plain) {
        return Err(format!(
            "must be 1 to {NAME_CHARS} letters, digits, `.`, `_` or `-`"
        ));
    }
    Ok(name.to_owned())
}
