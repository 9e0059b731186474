//! The turns of a sweep in a file, so that an interrupted run goes on where it stood.
//!
//! JSON lines: the settings, then a line per turn, written as it ends. More budgets or repeats
//! may be asked for later; what is there is not asked again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twopass_provider::{ErrorKind, ProviderError};

use crate::sweep::{Record, Settings};

/// More records than a sweep makes in a year.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<S> {
    sweep: S,
}

/// A file of records, open for more.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: File,
}

impl RecordFile {
    /// Opens or makes the file and reads what is in it. A last line that was cut off while it
    /// was written is taken away. One process at a time has the file.
    ///
    /// # Errors
    /// Kind [`ErrorKind::BadRequest`]: the file holds something else, or turns of other
    /// settings; the message names the first that differs. Kind [`ErrorKind::Io`].
    pub fn open(path: &Path, settings: &Settings) -> Result<(Self, Vec<Record>), ProviderError> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = opened.map_err(|error| io_error(path, &error))?;
        // Where files cannot be locked nobody is kept out.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let message = format!("{}: another sweep writes to it", path.display());
            return Err(ProviderError::new(ErrorKind::BadRequest, message).with_param("--records"));
        }
        let mut records = Self {
            path: path.to_owned(),
            file,
        };
        let about = records.file.metadata();
        let about = about.map_err(|error| io_error(path, &error))?;
        if !about.is_file() || about.len() > MAX_FILE_BYTES {
            let message = format!(
                "{}: is no file of at most {MAX_FILE_BYTES} bytes",
                path.display()
            );
            return Err(ProviderError::new(ErrorKind::BadRequest, message).with_param("--records"));
        }
        let mut text = String::new();
        let read = records.file.read_to_string(&mut text);
        read.map_err(|error| io_error(path, &error))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let fail = |line: usize, problem: String| {
            let message = format!("{}:{line}: {problem}", path.display());
            ProviderError::new(ErrorKind::BadRequest, message).with_param("--records")
        };
        let mut lines = (1..).zip(text[..whole].lines());
        let Some((_, first)) = lines.next() else {
            if !text.is_empty() {
                return Err(fail(1, "holds no records of a sweep".to_owned()));
            }
            records.write(&Header { sweep: settings })?;
            return Ok((records, Vec::new()));
        };
        let header: Header<Settings> = serde_json::from_str(first)
            .map_err(|_| fail(1, "holds no records of a sweep".to_owned()))?;
        if let Some(difference) = difference(&header.sweep, settings) {
            return Err(fail(1, difference));
        }
        let known = lines
            .map(|(line, text)| {
                serde_json::from_str(text)
                    .map_err(|error| fail(line, format!("is no record: {error}")))
            })
            .collect::<Result<Vec<Record>, _>>()?;
        records.cut(whole as u64)?;
        Ok((records, known))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Kind [`ErrorKind::Io`].
    pub fn add(&mut self, record: &Record) -> Result<(), ProviderError> {
        self.write(record)
    }

    fn write(&mut self, value: &impl Serialize) -> Result<(), ProviderError> {
        let mut line = serde_json::to_string(value).map_err(|error| {
            ProviderError::new(ErrorKind::Internal, format!("a record is no JSON: {error}"))
        })?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| io_error(&self.path, &error))
    }

    fn cut(&mut self, n_bytes: u64) -> Result<(), ProviderError> {
        let cut = self.file.set_len(n_bytes);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map(|_| ())
            .map_err(|error| io_error(&self.path, &error))
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> ProviderError {
    ProviderError::new(ErrorKind::Io, format!("{}: {error}", path.display()))
        .with_param("--records")
}

/// The first setting that differs, with both values.
fn difference(there: &Settings, here: &Settings) -> Option<String> {
    let fields = |settings: &Settings| match serde_json::to_value(settings) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (there, here) = (fields(there), fields(here));
    let differs = there
        .iter()
        .find(|(name, value)| here.get(*name) != Some(*value));
    differs.map(|(name, value)| {
        let asked = here.get(name).unwrap_or(&Value::Null);
        format!("holds turns with {name} {value}, asked for is {asked}; take another file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            dataset_sha256: "d".to_owned(),
            provider: "local".to_owned(),
            model: "m".to_owned(),
            seed: 0,
            temperature: Some(0.7),
            max_response_tokens: None,
            concurrency: 1,
        }
    }

    fn record(item: &str) -> Record {
        Record {
            item: item.to_owned(),
            budget: 8,
            repeat: 0,
            correct: true,
            thinking_tokens: 8,
            response_tokens: 2,
            latency_ms: 1.5,
            first_text_ms: None,
            thought_cut: true,
            answer_cut: false,
            means: Some("one_sequence".to_owned()),
            response: "4".to_owned(),
        }
    }

    #[test]
    fn one_sweep_at_a_time_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let first = RecordFile::open(&path, &settings()).unwrap();
        let error = RecordFile::open(&path, &settings()).unwrap_err();
        assert!(
            error.to_string().contains("another sweep writes to it"),
            "{error}"
        );
        drop(first);
        RecordFile::open(&path, &settings()).unwrap();
    }

    #[test]
    fn a_run_goes_on_after_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let (mut file, known) = RecordFile::open(&path, &settings()).unwrap();
        assert!(known.is_empty());
        file.add(&record("1")).unwrap();
        file.add(&record("2")).unwrap();
        drop(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let (mut file, known) = RecordFile::open(&path, &settings()).unwrap();
        assert_eq!(known, [record("1")]);
        file.add(&record("3")).unwrap();
        drop(file);
        let (_, known) = RecordFile::open(&path, &settings()).unwrap();
        assert_eq!(known, [record("1"), record("3")]);
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_refused() {
        let error = RecordFile::open(Path::new("/dev/zero"), &settings()).unwrap_err();
        assert!(
            error.to_string().contains("is no file of at most"),
            "{error}"
        );
    }

    #[test]
    fn files_that_hold_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let other = Settings {
            seed: 5,
            ..settings()
        };
        drop(RecordFile::open(&path, &settings()).unwrap());
        let error = RecordFile::open(&path, &other).unwrap_err();
        let expect = "r.jsonl:1: holds turns with seed 0, asked for is 5; take another file";
        assert!(error.message().ends_with(expect), "{error}");
        for (text, expect) in [
            ("a letter", "r.jsonl:1: holds no records of a sweep"),
            ("a letter\n", "r.jsonl:1: holds no records of a sweep"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = RecordFile::open(&path, &settings()).unwrap_err();
            assert!(error.message().ends_with(expect), "{error}");
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                text,
                "left as it was"
            );
        }
    }
}
