//! A conversation in a file, as JSON lines, so that it can go on later.
//!
//! ```text
//! {"event": "session", "version": 1, "model": .., "kind": ..}
//! {"event": "message", "reasoning": .., "messages": [one message, as in /generate]}
//! {"event": "memory", "text": ..}     the working memory from here on
//! {"event": "reset"}                  what stands before is not the history any more
//! ```
//! Lines are only added. A last line that was cut is left out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use twopass_core::chat::Message;
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
    file: Option<File>,
    /// What the file holds as the history.
    written: Vec<Message>,
    memory: Option<String>,
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
        let kept = read(&self.path)?;
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
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            let is_new = file.metadata()?.len() == 0;
            let file = self.file.insert(file);
            if is_new {
                let head = json!({
                    "event": "session", "version": VERSION, "model": self.model, "kind": self.kind,
                });
                file.write_all(format!("{head}\n").as_bytes())?;
            } else {
                // A line that was cut must not run into the next one.
                file.write_all(b"\n")?;
            }
        }
        match &mut self.file {
            Some(file) => file.write_all(lines.as_bytes()),
            None => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<Kept, SessionError> {
    let failed = |error| SessionError::io(path, "read", error);
    let file = File::open(path).map_err(failed)?;
    let mut lines = BufReader::new(file.take(MAX_FILE_BYTES));
    let mut kept = Kept::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let is_whole = line.ends_with(b"\n");
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) => {
                take(&mut kept, &value).map_err(|why| SessionError::format(path, number, &why))?
            }
            Err(_) if !is_whole || number > 1 => {}
            Err(_) => {
                return Err(SessionError::format(path, number, "this is no session"));
            }
        }
    }
    // Half a turn cannot go on: calls without results.
    let answered = kept
        .messages
        .iter()
        .rposition(|message| message.tool_calls.is_empty());
    kept.messages.truncate(answered.map_or(0, |at| at + 1));
    Ok(kept)
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
