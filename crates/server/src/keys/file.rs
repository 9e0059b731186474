//! The keys file, read and added to.
//!
//! Two forms: YAML that begins with `keys:`, or one key per line, plain or as its digest. The
//! keys of lines open everything and have no limits.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use secrecy::SecretString;
use twopass_provider::config::{KeyEntry, KeyScope};

use super::known::digest;
use crate::Error;

/// Bytes of a keys file; a larger one is no keys file.
const KEYS_FILE_BYTES: u64 = 1 << 20;
/// Marks a line that holds a digest instead of the key.
const DIGEST_PREFIX: &str = "sha256:";
/// Random bytes of a key.
const KEY_BYTES: usize = 32;

/// A key that was made just now, and what a server needs to know of it.
#[derive(Debug)]
pub struct NewKey {
    /// What its holder sends. It is nowhere else.
    pub key: SecretString,
    /// Its SHA-256.
    pub digest: [u8; 32],
}

impl NewKey {
    /// A key of 256 random bits.
    ///
    /// # Errors
    /// Kind `Io`: the system gives no random bytes.
    pub fn make() -> Result<Self, Error> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::io("cannot draw a key", error.into()))?;
        let hex = bytes.iter().map(|byte| format!("{byte:02x}"));
        let key = format!("tp-{}", hex.collect::<String>());
        Ok(Self {
            digest: digest(key.as_bytes()),
            key: key.into(),
        })
    }
}

/// The keys of a file.
///
/// # Errors
/// The file cannot be read, is too large, or has a faulty entry. Errors name the place, never
/// a key or a digest.
pub fn read_keys(path: &Path) -> Result<Vec<KeyEntry>, Error> {
    parse(&read(path)?, path)
}

/// Adds a key to a YAML file, which is made if it is not there, for its owner's eyes only. What
/// stands in it stays as it is, also what another process adds at the same time.
///
/// # Errors
/// As [`read_keys`]; kind `Config` also if the name is taken or the file's form is not one
/// that can be added to; kind `Io` if it cannot be written.
pub fn add_key(path: &Path, entry: &KeyEntry) -> Result<(), Error> {
    let shown = path.display();
    // A link stays one.
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    let _turn = wait_for_turn(path);
    let text = match path.try_exists() {
        Ok(false) => String::new(),
        _ => read(path)?,
    };
    let mut expect = parse(&text, path)?;
    if expect.iter().any(|known| known.name == entry.name) {
        let message = format!("keys_file `{shown}` has a key `{}` already", entry.name);
        return Err(Error::config(message));
    }
    expect.push(entry.clone());
    let text = with_entry(&text, entry);
    if !parse(&text, path).is_ok_and(|read| read == expect) {
        return Err(Error::config(format!(
            "keys_file `{shown}` is not a list of blocks below `keys:` that an entry can be put \
             to the end of"
        )));
    }
    write(path, &text)
}

/// One process at a time changes the files of a folder: the lock is the folder's, since the file
/// is replaced. Where folders cannot be locked nobody waits.
fn wait_for_turn(path: &Path) -> Option<fs::File> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = fs::File::open(folder.unwrap_or(Path::new("."))).ok()?;
    folder.lock().ok().map(|()| folder)
}

fn read(path: &Path) -> Result<String, Error> {
    let shown = path.display();
    let unread = |e| Error::io(format!("cannot read keys_file `{shown}`"), e);
    let n_bytes = fs::metadata(path).map_err(unread)?.len();
    if n_bytes > KEYS_FILE_BYTES {
        return Err(Error::config(format!(
            "keys_file `{shown}` holds {n_bytes} bytes, allowed: {KEYS_FILE_BYTES}"
        )));
    }
    fs::read_to_string(path).map_err(unread)
}

fn parse(text: &str, path: &Path) -> Result<Vec<KeyEntry>, Error> {
    let shown = path.display();
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#') && *line != "---");
    if first.is_some_and(|line| line.starts_with("keys:")) {
        let entries = KeyEntry::read_list(text, &format!("keys_file `{shown}`"));
        return entries.map_err(|error| Error::config(error.to_string()));
    }
    of_lines(text).map_err(|message| Error::config(format!("keys_file `{shown}`: {message}")))
}

/// The keys of a file with one per line, named after their lines.
fn of_lines(text: &str) -> Result<Vec<KeyEntry>, String> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!(
                "line {number}: a key holds no blanks, one key per line (or YAML from `keys:` on)"
            ));
        }
        let digest = match line.starts_with(DIGEST_PREFIX) {
            true => KeyEntry::digest_of(line)
                .ok_or_else(|| format!("line {number}: `{DIGEST_PREFIX}` needs 64 hex digits"))?,
            false => digest(line.as_bytes()),
        };
        let entry = KeyEntry::new(&format!("line-{number}"), digest)?;
        entries.push(KeyEntry {
            scopes: KeyScope::ALL.to_vec(),
            ..entry
        });
    }
    Ok(entries)
}

/// The file with one more block, indented as those before it.
fn with_entry(text: &str, entry: &KeyEntry) -> String {
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    let item = text
        .lines()
        .find(|line| line.trim_start().starts_with("- "));
    let indent = item.map_or(2, |line| line.len() - line.trim_start().len());
    if !text.lines().any(|line| line.starts_with("keys:")) {
        out.push_str("keys:\n");
    }
    for line in entry.to_string().lines() {
        out.push_str(&" ".repeat(indent));
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Replaces the file at once, so that a server never reads half of it.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let shown = path.display();
    let failed = |e| Error::io(format!("cannot write keys_file `{shown}`"), e);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let put = || {
        let mut file = options.open(&draft)?;
        file.write_all(text.as_bytes())?;
        if let Ok(before) = fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    put().map_err(|error| {
        let _ = fs::remove_file(&draft);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_or_digests() {
        // The digest is `printf other | sha256sum`.
        let text = "# the team\n\n  first-key  \nsha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa\n";
        let entries = of_lines(text).unwrap();
        let expect = [("line-3", "first-key"), ("line-4", "other")];
        assert_eq!(entries.len(), expect.len());
        for (entry, (name, key)) in entries.iter().zip(expect) {
            assert_eq!(entry.name, name);
            assert_eq!(entry.digest, digest(key.as_bytes()), "{name}");
            assert_eq!(entry.scopes, KeyScope::ALL, "{name}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn keys_added_at_the_same_time_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("keys"), folder.path().join("link"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d", "e", "f"] {
                let place = if name < "d" { &path } else { &link };
                scope.spawn(move || add_key(place, &entry(name)).unwrap());
            }
        });
        let entries = read_keys(&path).unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
        assert!(link.is_symlink());
    }

    #[test]
    fn faulty_lines_are_named_and_not_shown() {
        let blanks = "a key holds no blanks, one key per line (or YAML from `keys:` on)";
        for (text, expect) in [
            ("a b", format!("line 1: {blanks}")),
            ("key:\n  - name: x", format!("line 2: {blanks}")),
            (
                "ok\nsha256:12",
                "line 2: `sha256:` needs 64 hex digits".to_owned(),
            ),
            (
                &format!("sha256:{}", "g".repeat(64)),
                "line 1: `sha256:` needs 64 hex digits".to_owned(),
            ),
            (
                &format!("sha256:{}", "é".repeat(32)),
                "line 1: `sha256:` needs 64 hex digits".to_owned(),
            ),
        ] {
            assert_eq!(of_lines(text).err(), Some(expect));
        }
    }

    #[test]
    fn a_file_grows_and_keeps_what_it_holds() {
        let (one, two) = (entry("one"), entry("two"));
        for before in [
            "",
            "# ours\n",
            "keys:\n",
            "---\n# ours\nkeys:\n- name: old # since May\n  hash: HASH\n",
            "keys:\n    - {name: old, hash: HASH}",
        ] {
            let before = before.replace("HASH", &format!("sha256:{}", "0".repeat(64)));
            let path = Path::new("keys");
            let known = parse(&before, path).unwrap();
            let text = with_entry(&with_entry(&before, &one), &two);
            assert!(text.starts_with(before.trim_end()), "{text}");
            let expect: Vec<_> = known
                .into_iter()
                .chain([one.clone(), two.clone()])
                .collect();
            assert_eq!(parse(&text, path).unwrap(), expect, "{text}");
        }
    }

    fn entry(name: &str) -> KeyEntry {
        let mut entry = KeyEntry::new(name, digest(name.as_bytes())).unwrap();
        entry.models = Some(vec!["a \"b\" *".to_owned()]);
        entry.limits.tokens_per_day = Some(7);
        entry.expires_day = Some(20_000);
        entry
    }
}
