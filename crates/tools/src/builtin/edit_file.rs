use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::blocking;
use crate::{Effect, ErrorKind, ToolContext, ToolError, ToolOutput, TypedTool};

/// Changes a text file of the workspace: replaces one passage by another. old_string must
/// stand in the file exactly once, with the same white space and line breaks, so take it from
/// what read_file returned, with enough lines around it to be unique. The text before the
/// change is kept in a file of the same name with `.bak` at its end, or `.bak2` and so on where
/// there is such a file already.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileArgs {
    /// Path of the file, relative to the workspace.
    file_path: String,
    /// The passage to replace, exactly as it stands in the file. It may span lines.
    #[schemars(length(min = 1))]
    old_string: String,
    /// What stands there afterwards; empty to remove the passage.
    new_string: String,
}

/// Most places that an error lists.
const MAX_LISTED: usize = 10;

/// `edit_file`
pub struct EditFile;

impl TypedTool for EditFile {
    type Args = EditFileArgs;
    const NAME: &'static str = "edit_file";
    const EFFECT: Effect = Effect::Writes;

    async fn run(
        &self,
        args: EditFileArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let workspace = context.workspace.clone();
        blocking(move |_| {
            let original = workspace.read_original(&args.file_path)?;
            let edit = Edit::find(&original.text, &args)?;
            let backup = original.replace(&edit.text)?;
            Ok(format!(
                "changed `{}` at line {}; the text before is in `{backup}`",
                args.file_path, edit.line
            )
            .into())
        })
        .await
    }
}

struct Edit {
    text: String,
    /// Where the change begins, counted from 1.
    line: usize,
}

impl Edit {
    fn find(text: &str, args: &EditFileArgs) -> Result<Self, ToolError> {
        if args.old_string.is_empty() || args.old_string == args.new_string {
            let problem = if args.old_string.is_empty() {
                "old_string is empty"
            } else {
                "old_string and new_string are the same"
            };
            return Err(ToolError::new(ErrorKind::InvalidArguments, problem));
        }
        // Models write plain line ends; a file with CRLF keeps its own.
        let has_crlf = !text.contains(&args.old_string) && text.contains("\r\n");
        let as_in_file = |part: &str| {
            if has_crlf {
                part.replace("\r\n", "\n").replace('\n', "\r\n")
            } else {
                part.to_owned()
            }
        };
        let old = as_in_file(&args.old_string);
        let lines: Vec<usize> = starts(text, &old)
            .take(MAX_LISTED + 1)
            .map(|at| line_of(text, at))
            .collect();
        match lines.as_slice() {
            [] => Err(not_found(text, args)),
            [line] => Ok(Self {
                text: text.replacen(&old, &as_in_file(&args.new_string), 1),
                line: *line,
            }),
            many => {
                let shown: Vec<_> = many.iter().take(MAX_LISTED).map(usize::to_string).collect();
                let more = if many.len() > MAX_LISTED {
                    " and more"
                } else {
                    ""
                };
                Err(ToolError::failed(format!(
                    "old_string stands in `{}` several times, at the lines {}{more}; \
                     give more of the text around the one to change",
                    args.file_path,
                    shown.join(", ")
                )))
            }
        }
    }
}

/// Where `part` begins, overlapping places included: `aa` stands twice in `aaa`.
fn starts<'a>(text: &'a str, part: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + text.get(from..)?.find(part)?;
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
        Some(at)
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Says where the passage stands with other white space, if it does.
fn not_found(text: &str, args: &EditFileArgs) -> ToolError {
    let wanted: Vec<&str> = lines_trimmed(&args.old_string);
    let have: Vec<&str> = text.lines().map(str::trim).collect();
    let near = (!wanted.is_empty())
        .then(|| {
            have.windows(wanted.len())
                .position(|window| window == wanted)
        })
        .flatten();
    let hint = match near {
        Some(idx) => format!(
            "line {} begins such a passage with other white space; copy it from read_file",
            idx + 1
        ),
        None => "read the file again and copy the passage exactly".to_owned(),
    };
    ToolError::failed(format!(
        "old_string does not stand in `{}`: {hint}",
        args.file_path
    ))
}

/// The lines without white space around them, blank ones at both ends left out.
fn lines_trimmed(text: &str) -> Vec<&str> {
    text.trim().lines().map(str::trim).collect()
}
