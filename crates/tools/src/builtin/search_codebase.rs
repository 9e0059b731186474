use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::NameGlob;
use crate::blocking::{Cancelled, blocking};
use crate::workspace::{FoundKind, WalkOptions, printable};
use crate::{Effect, ErrorKind, MAX_FILE_BYTES, ToolContext, ToolError, ToolOutput, TypedTool};

/// Searches the text files of the workspace for lines that match a regular expression. Each
/// match is one line of the form `path:line:text`; lines around it have the form
/// `path-line-text`. Hidden files, binary files, files over 1,000,000 bytes and what
/// `.gitignore` files name are left out. At most 200 matches are returned, so narrow the
/// pattern or the glob if there are more.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchCodebaseArgs {
    /// The regular expression, in the syntax of Rust and ripgrep, matched within one line.
    /// Begin it with `(?i)` to ignore case; put `\` before characters such as `(` that stand
    /// for themselves.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// A glob that file names must match, such as `*.rs`. With a `/` in it, it is matched
    /// with the path, such as `src/**/*.rs`.
    #[serde(default = "all")]
    file_glob: String,
    /// How many lines before and after each match to return.
    #[serde(default)]
    #[schemars(range(max = 10))]
    context_lines: usize,
}

fn all() -> String {
    "*".to_owned()
}

/// Most matches of one search.
const MAX_MATCHES: usize = 200;

/// Longest line that is returned whole, in characters.
const MAX_LINE_CHARS: usize = 300;

/// Longest time of one search.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Memory for one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// `search_codebase`
pub struct SearchCodebase;

impl TypedTool for SearchCodebase {
    type Args = SearchCodebaseArgs;
    const NAME: &'static str = "search_codebase";
    const EFFECT: Effect = Effect::Reads;

    async fn run(
        &self,
        args: SearchCodebaseArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let context = context.clone();
        blocking(move |cancelled| search(&args, &context, cancelled)).await
    }
}

fn search(
    args: &SearchCodebaseArgs,
    context: &ToolContext,
    cancelled: &Cancelled,
) -> Result<ToolOutput, ToolError> {
    let matcher = matcher(&args.pattern)?;
    let glob = NameGlob::new(&args.file_glob)?;
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .before_context(args.context_lines)
        .after_context(args.context_lines)
        .line_number(true)
        .heap_limit(Some(4 * MAX_FILE_BYTES))
        .build();
    let options = WalkOptions {
        recursive: true,
        obey_ignore_files: true,
    };
    let mut walk = context
        .workspace
        .walk(".", options, |path| glob.matches(path))?;
    let mut hits = Hits::new(context.limits.max_output_chars);
    let deadline = Instant::now() + MAX_TIME;
    for found in walk.by_ref() {
        if cancelled.is_set() || Instant::now() > deadline {
            hits.stopped = Some("the search took too long");
        }
        if hits.stopped.is_some() {
            break;
        }
        if found.kind != FoundKind::File {
            continue;
        }
        if found
            .n_bytes()
            .is_some_and(|n_bytes| n_bytes > MAX_FILE_BYTES as u64)
        {
            hits.n_large += 1;
            continue;
        }
        let file = match found.open() {
            Ok(file) => file,
            // It has vanished meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(_) => {
                hits.n_closed += 1;
                continue;
            }
        };
        let n_before = hits.text.len();
        let mut sink = FileHits {
            hits: &mut hits,
            path: &found.path,
        };
        let searched = searcher.search_file(&matcher, &file, &mut sink);
        if searched.is_err() {
            hits.text.truncate(n_before);
            hits.n_closed += 1;
        }
    }
    Ok(hits.into_output(walk.left_out()))
}

fn matcher(pattern: &str) -> Result<RegexMatcher, ToolError> {
    let matcher = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .build(pattern);
    matcher.map_err(|error| {
        let message = format!("bad pattern: {error}");
        ToolError::new(ErrorKind::InvalidArguments, message)
    })
}

/// What was found so far.
struct Hits {
    text: String,
    n_matches: usize,
    max_chars: usize,
    /// Why the search ended before its end.
    stopped: Option<&'static str>,
    /// True if a long line was cut.
    cut: bool,
    /// Files that are too large, and those that cannot be read.
    n_large: usize,
    n_closed: usize,
}

impl Hits {
    fn new(max_chars: usize) -> Self {
        Self {
            text: String::new(),
            n_matches: 0,
            // Some are kept for the lines at the end.
            max_chars: max_chars.saturating_sub(200),
            stopped: None,
            cut: false,
            n_large: 0,
            n_closed: 0,
        }
    }

    fn push_line(&mut self, path: &Path, number: u64, mark: char, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        self.text
            .push_str(&format!("{}{mark}{number}{mark}", printable(path)));
        match line.char_indices().nth(MAX_LINE_CHARS) {
            None => self.text.push_str(line),
            Some((at, _)) => {
                self.text.push_str(&line[..at]);
                self.text.push_str(" [line cut]");
                self.cut = true;
            }
        }
        self.text.push('\n');
    }

    fn into_output(mut self, left_out: Option<String>) -> ToolOutput {
        if self.n_matches == 0 {
            self.text.push_str("[no matches]\n");
        }
        if let Some(reason) = self.stopped {
            self.text.push_str(&format!(
                "[stopped after {} matches: {reason}; narrow the pattern or the glob]\n",
                self.n_matches
            ));
        }
        let n_large = self.n_large;
        if n_large > 0 {
            self.text.push_str(&format!(
                "[{n_large} files over {MAX_FILE_BYTES} bytes were not searched]\n"
            ));
        }
        if self.n_closed > 0 {
            self.text
                .push_str(&format!("[{} files could not be read]\n", self.n_closed));
        }
        if let Some(left_out) = &left_out {
            self.text
                .push_str(&format!("[folders not searched: {left_out}]\n"));
        }
        let mut output = ToolOutput::text(self.text.trim_end());
        output.truncated = self.stopped.is_some() || self.cut || left_out.is_some();
        output
    }
}

/// Takes the lines of one file.
struct FileHits<'a> {
    hits: &'a mut Hits,
    path: &'a Path,
}

impl Sink for FileHits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.hits.n_matches == MAX_MATCHES {
            self.hits.stopped = Some("there are more");
            return Ok(false);
        }
        if self.hits.text.len() > self.hits.max_chars {
            self.hits.stopped = Some("the result is full");
            return Ok(false);
        }
        self.hits.n_matches += 1;
        let number = found.line_number().unwrap_or_default();
        self.hits.push_line(self.path, number, ':', found.bytes());
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = around.line_number().unwrap_or_default();
        self.hits.push_line(self.path, number, '-', around.bytes());
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.hits.text.push_str("--\n");
        Ok(true)
    }
}
