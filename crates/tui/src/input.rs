//! The text that a person writes: several lines, a cursor, a history.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Most entries of the history.
const MAX_HISTORY: usize = 200;
/// Longest text, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The editor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    text: String,
    /// Where the cursor is, in bytes.
    cursor: usize,
    history: Vec<String>,
    /// Which entry of the history is shown, and what was there before.
    browsing: Option<(usize, String)>,
}

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Something, or nothing.
    Done,
    /// The text is to be sent.
    Send(String),
    /// The key is not the editor's.
    NotMine,
}

impl Input {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The line and the text before the cursor on it.
    pub(crate) fn cursor(&self) -> (usize, &str) {
        let before = &self.text[..self.cursor];
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        (line, &before[start..])
    }

    pub(crate) fn clear(&mut self) {
        self.set(String::new());
    }

    /// True if so much more text can be taken.
    pub(crate) fn has_room(&self, text: &str) -> bool {
        self.text.len() + text.len() <= MAX_BYTES
    }

    pub(crate) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if !self.has_room(&text) {
            return;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Edit {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let newline = KeyModifiers::ALT | KeyModifiers::SHIFT;
        match key.code {
            KeyCode::Enter if key.modifiers.intersects(newline) => self.insert("\n"),
            KeyCode::Char('j') if ctrl => self.insert("\n"),
            KeyCode::Enter => return self.send(),
            KeyCode::Char('a') if ctrl => self.cursor = self.line_start(),
            KeyCode::Char('e') if ctrl => self.cursor = self.line_end(),
            KeyCode::Char('u') if ctrl => self.delete(self.line_start(), self.cursor),
            KeyCode::Char('k') if ctrl => self.delete(self.cursor, self.line_end()),
            KeyCode::Char('w') if ctrl => self.delete(self.word_start(), self.cursor),
            KeyCode::Char(one) if !ctrl && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.insert(one.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Backspace => self.delete(self.before(), self.cursor),
            KeyCode::Delete => self.delete(self.cursor, self.after()),
            KeyCode::Left if ctrl => self.cursor = self.word_start(),
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.after(),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            _ => return Edit::NotMine,
        }
        Edit::Done
    }

    fn send(&mut self) -> Edit {
        let text = self.text.trim().to_owned();
        if text.is_empty() {
            return Edit::Done;
        }
        if self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
        self.browsing = None;
        self.clear();
        Edit::Send(text)
    }

    /// A line up, or the entry before.
    fn up(&mut self) {
        let start = self.line_start();
        if start > 0 {
            let column = self.text[start..self.cursor].chars().count();
            self.cursor = self.at_column(start - 1, column);
            return;
        }
        let at = self
            .browsing
            .as_ref()
            .map_or(self.history.len(), |(at, _)| *at);
        let Some(at) = at.checked_sub(1) else { return };
        let draft = match self.browsing.take() {
            Some((_, draft)) => draft,
            None => self.text.clone(),
        };
        self.set(self.history[at].clone());
        self.browsing = Some((at, draft));
    }

    /// A line down, or the entry after.
    fn down(&mut self) {
        let end = self.line_end();
        if end < self.text.len() {
            let column = self.text[self.line_start()..self.cursor].chars().count();
            self.cursor = end + 1;
            self.cursor = self.at_column(self.line_end(), column);
            return;
        }
        let Some((at, draft)) = self.browsing.take() else {
            return;
        };
        match self.history.get(at + 1).cloned() {
            Some(entry) => {
                self.set(entry);
                self.browsing = Some((at + 1, draft));
            }
            None => self.set(draft),
        }
    }

    /// The place of this column on the line that ends at `end`.
    fn at_column(&self, end: usize, column: usize) -> usize {
        let start = self.text[..end].rfind('\n').map_or(0, |at| at + 1);
        let places = self.text[start..end].char_indices();
        let place = places.map(|(at, _)| start + at).nth(column);
        place.unwrap_or(end)
    }

    fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    fn delete(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    fn before(&self) -> usize {
        let before = self.text[..self.cursor].char_indices().next_back();
        before.map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        let next = self.text[self.cursor..].chars().next();
        self.cursor + next.map_or(0, char::len_utf8)
    }

    fn word_start(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before.rfind(char::is_whitespace).map_or(0, |at| {
            at + before[at..].chars().next().map_or(1, char::len_utf8)
        })
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = self.text[self.cursor..].find('\n');
        rest.map_or(self.text.len(), |at| self.cursor + at)
    }
}
