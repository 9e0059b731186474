use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::blocking;
use crate::{Effect, ErrorKind, ToolContext, ToolError, ToolOutput, TypedTool};

/// Reads a text file of the workspace and returns its lines as they are, without line
/// numbers. Read a file before you change it, so that you know its exact text. A long file is
/// returned in parts: the last line of the result then says with which start_line to go on.
/// Binary files and files over 1,000,000 bytes are refused.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFileArgs {
    /// Path of the file, relative to the workspace, for example `src/main.rs`.
    file_path: String,
    /// The first line to return, counted from 1.
    #[serde(default = "first")]
    #[schemars(range(min = 1))]
    start_line: usize,
    /// Most lines to return.
    #[serde(default = "most")]
    #[schemars(range(min = 1, max = 100_000))]
    max_lines: usize,
}

fn first() -> usize {
    1
}

fn most() -> usize {
    2000
}

/// Characters of the result that are kept for the line that says how to go on.
const NOTE_CHARS: usize = 100;

/// `read_file`
pub struct ReadFile;

impl TypedTool for ReadFile {
    type Args = ReadFileArgs;
    const NAME: &'static str = "read_file";
    const EFFECT: Effect = Effect::Reads;

    async fn run(
        &self,
        args: ReadFileArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let workspace = context.workspace.clone();
        let max_chars = context.limits.max_output_chars.saturating_sub(NOTE_CHARS);
        blocking(move |_| {
            let bytes = workspace.read(&args.file_path)?;
            if bytes.contains(&0) {
                let n = bytes.len();
                return Err(ToolError::failed(format!(
                    "`{}` is a binary file of {n} bytes",
                    args.file_path
                )));
            }
            part_of(&String::from_utf8_lossy(&bytes), &args, max_chars)
        })
        .await
    }
}

/// The lines that were asked for, as many as fit.
fn part_of(text: &str, args: &ReadFileArgs, max_chars: usize) -> Result<ToolOutput, ToolError> {
    let n_lines = text.lines().count();
    if args.start_line > n_lines.max(1) {
        return Err(ToolError::new(
            ErrorKind::InvalidArguments,
            format!(
                "start_line is {}, the file has {n_lines} lines",
                args.start_line
            ),
        ));
    }
    let mut part = String::new();
    let mut n_chars = 0;
    let mut n_taken = 0;
    let lines = text.split_inclusive('\n').skip(args.start_line - 1);
    for line in lines.take(args.max_lines) {
        n_chars += line.chars().count();
        // One line alone may be too long; its middle is then left out like everywhere.
        if n_chars > max_chars && n_taken > 0 {
            break;
        }
        part.push_str(line);
        n_taken += 1;
    }
    let next = args.start_line + n_taken;
    let mut output = ToolOutput::text(part);
    if next <= n_lines {
        if !output.text.ends_with('\n') {
            output.text.push('\n');
        }
        output.text.push_str(&format!(
            "[lines {} to {} of {n_lines}; go on with start_line {next}]",
            args.start_line,
            next - 1
        ));
        output.truncated = true;
    }
    Ok(output)
}
