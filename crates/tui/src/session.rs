//! A conversation in a file, as JSON lines, so that it can go on later.
//!
//! ```text
//! {"event": "session", "version": 1, "model": .., "kind": ..}
//! {"event": "message", "reasoning": .., "messages": [one message, as in /generate]}
//! {"event": "memory", "text": ..}     the working memory from here on
//! {"event": "reset"}                  what stands before is not the history any more
//! ```
//! Lines are only added. A last line that was cut is left out. The file holds what tools gave
//! and what was thought: only its owner can read it. One process at a time has it.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use twopass_core::chat::{Message, Role};
use twopass_wire::generate::GenerateRequest;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
const VERSION: u64 = 1;

/// A file that a conversation is kept in; it is made with the first message.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    model: String,
    kind: String,
    /// The file once it is in use, locked.
    file: Option<File>,
    /// What the file holds as the history.
    written: Vec<Message>,
    memory: Option<String>,
    /// Something was written since the file was opened.
    is_continued: bool,
}

/// Why a session cannot be written or read.
#[derive(Debug)]
pub struct SessionError {
    message: String,
    source: Option<io::Error>,
}

impl SessionError {
    fn io(path: &Path, what: &str, error: io::Error) -> Self {
        Self {
            message: format!("the session {} cannot be {what}: {error}", path.display()),
            source: Some(error),
        }
    }

    fn format(path: &Path, line: usize, message: &str) -> Self {
        Self {
            message: format!("{}:{line}: {message}", path.display()),
            source: None,
        }
    }
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

/// What a session file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) messages: Vec<Message>,
    pub(crate) memory: Option<String>,
}

impl Session {
    /// A session in this file, which need not be there yet. `model` and `kind` are noted in it.
    #[must_use]
    pub fn new(path: PathBuf, model: &str, kind: &str) -> Self {
        Self {
            path,
            model: model.to_owned(),
            kind: kind.to_owned(),
            file: None,
            written: Vec::new(),
            memory: None,
            is_continued: false,
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest session of a folder; `None` if it has none.
    #[must_use]
    pub fn newest(folder: &Path) -> Option<PathBuf> {
        let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
        let sessions = entries.filter_map(|entry| {
            let path = entry.path();
            let is_session = path.extension().is_some_and(|end| end == "jsonl");
            let changed = entry.metadata().ok()?.modified().ok()?;
            is_session.then_some((changed, path))
        });
        sessions.max().map(|(_, path)| path)
    }

    /// Reads what the file holds; what is written later continues it.
    pub(crate) fn read(&mut self) -> Result<Kept, SessionError> {
        let failed = |error| SessionError::io(&self.path, "read", error);
        // Opening a pipe would wait for its other end.
        let facts = fs::metadata(&self.path).map_err(failed)?;
        if !facts.is_file() {
            return Err(SessionError::format(&self.path, 1, "this is no file"));
        }
        if facts.len() > MAX_FILE_BYTES {
            let mib = MAX_FILE_BYTES >> 20;
            let message = format!("a session of over {mib} MiB is not read");
            return Err(SessionError::format(&self.path, 1, &message));
        }
        let file = OpenOptions::new().read(true).append(true).open(&self.path);
        let file = file.map_err(failed)?;
        lock(&file).map_err(failed)?;
        let kept = read(&self.path, &file)?;
        self.file = Some(file);
        self.written.clone_from(&kept.messages);
        self.memory.clone_from(&kept.memory);
        Ok(kept)
    }

    /// Brings the file up to this history and this working memory.
    pub(crate) fn write(
        &mut self,
        history: &[Message],
        memory: Option<&str>,
    ) -> Result<(), SessionError> {
        let mut lines = String::new();
        let mut put = |line: Value| lines.push_str(&format!("{line}\n"));
        let is_longer = history.starts_with(&self.written);
        if !is_longer {
            put(json!({"event": "reset"}));
        }
        let n_known = if is_longer { self.written.len() } else { 0 };
        let mut messages = String::new();
        for message in &history[n_known..] {
            messages.push_str(&encode(message));
            messages.push('\n');
        }
        let is_new_memory = memory != self.memory.as_deref();
        if let Some(text) = memory.filter(|_| is_new_memory) {
            put(json!({"event": "memory", "text": text}));
        }
        lines.push_str(&messages);
        if lines.is_empty() {
            return Ok(());
        }
        self.append(&lines)
            .map_err(|error| SessionError::io(&self.path, "written", error))?;
        self.written = history.to_vec();
        self.memory = memory.map(str::to_owned);
        Ok(())
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.file.is_none() {
            let file = create(&self.path)?;
            lock(&file)?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if file.metadata()?.len() == 0 {
            let head = json!({
                "event": "session", "version": VERSION, "model": self.model, "kind": self.kind,
            });
            file.write_all(format!("{head}\n").as_bytes())?;
        } else if !self.is_continued {
            // A line that was cut must not run into the next one.
            file.write_all(b"\n")?;
        }
        self.is_continued = true;
        file.write_all(lines.as_bytes())
    }
}

/// Makes the file, and the folder if need be, for its owner alone.
fn create(path: &Path) -> io::Result<File> {
    let (mut folders, mut options) = (DirBuilder::new(), OpenOptions::new());
    folders.recursive(true);
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folders.mode(0o700);
        options.mode(0o600);
    }
    if let Some(folder) = path.parent() {
        folders.create(folder)?;
    }
    options.open(path)
}

/// Keeps other processes from going on with the same session. Where files cannot be locked
/// nobody is kept.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another chat has it open",
        )),
        _ => Ok(()),
    }
}

fn read(path: &Path, file: &File) -> Result<Kept, SessionError> {
    let failed = |error| SessionError::io(path, "read", error);
    let mut lines = BufReader::new(file);
    let mut kept = Kept::default();
    let (mut line, mut is_session) = (Vec::new(), false);
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) if is_session || value["event"] == "session" => {
                is_session = true;
                take(&mut kept, &value).map_err(|why| SessionError::format(path, number, &why))?;
            }
            // A line that was cut, if it is the last one or was when the session went on.
            Err(_) if is_session => {}
            _ => {
                return Err(SessionError::format(path, number, "this is no session"));
            }
        }
    }
    let n_whole = n_whole(&kept.messages);
    kept.messages.truncate(n_whole);
    Ok(kept)
}

/// How many of the first messages are whole: half a turn, with calls that have no results,
/// cannot go on.
fn n_whole(messages: &[Message]) -> usize {
    let mut open: HashSet<&str> = HashSet::new();
    let mut n_whole = 0;
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::User {
            open.clear();
        }
        open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        if let Some(id) = &message.tool_call_id {
            open.remove(id.as_str());
        }
        if open.is_empty() {
            n_whole = at + 1;
        }
    }
    n_whole
}

fn take(kept: &mut Kept, line: &Value) -> Result<(), String> {
    match line["event"].as_str() {
        Some("session") => match line["version"].as_u64() {
            Some(VERSION) => Ok(()),
            _ => Err(format!("only version {VERSION} of sessions can be read")),
        },
        Some("reset") => {
            kept.messages.clear();
            Ok(())
        }
        Some("memory") => {
            kept.memory = line["text"].as_str().map(str::to_owned);
            Ok(())
        }
        Some("message") => {
            let body = json!({"messages": line["messages"]}).to_string();
            let read = GenerateRequest::from_json(body.as_bytes());
            let read = read.map_err(|fault| fault.to_string())?;
            let reasoning = line["reasoning"].as_str().map(str::to_owned);
            kept.messages
                .extend(read.messages.into_iter().map(|message| Message {
                    reasoning: reasoning.clone().or(message.reasoning.clone()),
                    ..message
                }));
            Ok(())
        }
        Some(other) => Err(format!("there is no event `{other}` in a session")),
        None => Err("this is no session".to_owned()),
    }
}

fn encode(message: &Message) -> String {
    let request = GenerateRequest {
        messages: vec![message.clone()],
        ..GenerateRequest::default()
    };
    let head = json!({"event": "message", "reasoning": message.reasoning}).to_string();
    // The arguments of calls stay the text that they are.
    let body = request.to_json();
    format!(
        "{},{}",
        head.trim_end_matches('}'),
        body.trim_start_matches('{')
    )
}
