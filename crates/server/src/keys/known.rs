use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};
use twopass_provider::config::{KeyEntry, KeyScope};

use super::file::read_keys;
use crate::Error;

/// Seconds of a day.
pub(super) const DAY_S: u64 = 24 * 60 * 60;

/// The keys that open the server.
#[derive(Clone)]
pub(crate) struct Keys(Vec<Arc<Key>>);

/// One of them.
pub(crate) struct Key {
    entry: KeyEntry,
    /// Its digest in hexadecimal digits: what is kept for its holder is kept under this.
    owner: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.entry.name)
    }
}

impl Keys {
    /// Reads a keys file (see [`crate::ServerOptions::keys_file`]).
    ///
    /// # Errors
    /// As [`read_keys`], and if it holds no key.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let entries = read_keys(path)?;
        if entries.is_empty() {
            let message = format!("keys_file `{}` holds no key", path.display());
            return Err(Error::config(message));
        }
        Ok(Self::of(entries))
    }

    pub(crate) fn of(entries: Vec<KeyEntry>) -> Self {
        let keys = entries.into_iter().map(|entry| Arc::new(Key::of(entry)));
        Self(keys.collect())
    }

    /// The key with this text. The time depends neither on which it is nor on how much of it
    /// is right: digests are compared, all of them, in constant time.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<Arc<Key>> {
        let presented = digest(presented);
        let mut found = u64::MAX;
        for (idx, key) in (0..).zip(&self.0) {
            found.conditional_assign(&idx, key.entry.digest.ct_eq(&presented));
        }
        self.0.get(usize::try_from(found).ok()?).cloned()
    }
}

impl Key {
    pub(crate) fn of(entry: KeyEntry) -> Self {
        let hex = entry.digest.iter().map(|byte| format!("{byte:02x}"));
        Self {
            owner: hex.collect(),
            entry,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.entry.name
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) fn entry(&self) -> &KeyEntry {
        &self.entry
    }

    pub(super) fn opens(&self, scope: KeyScope) -> bool {
        self.entry.scopes.contains(&scope)
    }

    pub(super) fn has_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let today = now.map_or(0, |now| now.as_secs() / DAY_S);
        let expires = self.entry.expires_day;
        expires.is_some_and(|day| i64::try_from(today).unwrap_or(i64::MAX) >= day)
    }

    /// True if it may use the model that requests call by these names.
    pub(crate) fn may_use<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        let Some(patterns) = &self.entry.models else {
            return true;
        };
        let mut names = names.into_iter();
        names.any(|name| patterns.iter().any(|pattern| matches(pattern, name)))
    }
}

pub(super) fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// True if the text is the pattern, in which each `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let mut starts = std::iter::once(0).chain(text.char_indices().map(|(at, c)| at + c.len_utf8()));
    starts.any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_opens_and_nothing_else() {
        let entry = |name: &str, key: &str| KeyEntry::new(name, digest(key.as_bytes())).unwrap();
        let keys = Keys::of(vec![entry("a", "first-key"), entry("b", "other")]);
        for (presented, expect) in [
            ("first-key", Some("a")),
            ("other", Some("b")),
            ("first-ke", None),
            ("first-key ", None),
            ("a", None),
            ("", None),
        ] {
            let found = keys.find(presented.as_bytes());
            assert_eq!(found.as_ref().map(|key| key.name()), expect, "{presented}");
        }
        assert!(Keys::of(Vec::new()).find(b"").is_none());
    }

    #[test]
    fn models_are_named_or_matched() {
        for (pattern, name, expect) in [
            ("local", "local", true),
            ("local", "local/m", false),
            ("local*", "local/m", true),
            ("*", "", true),
            ("*/gpt-*-mini", "router/gpt-5-mini", true),
            ("*/gpt-*-mini", "router/gpt-5", false),
            ("*a*", "bcd", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        }
    }
}
