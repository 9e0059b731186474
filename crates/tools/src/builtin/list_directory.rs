use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::NameGlob;
use crate::blocking::blocking;
use crate::workspace::{FoundKind, WalkOptions, printable};
use crate::{Effect, ToolContext, ToolError, ToolOutput, TypedTool};

/// Lists a folder of the workspace, one entry per line, sorted by name. Folders end with `/`,
/// symbolic links with `@`, and files have their size in bytes behind them. A recursive
/// listing shows paths below the folder and leaves out hidden files and what `.gitignore`
/// files name. At most 1000 entries are listed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirectoryArgs {
    /// Path of the folder, relative to the workspace; `.` is the workspace itself.
    #[serde(default = "here")]
    dir_path: String,
    /// True to list what is in the folders below, too.
    #[serde(default)]
    recursive: bool,
    /// A glob that files must match, such as `*.rs`. With a `/` in it, it is matched with the
    /// path below the folder, such as `src/**/*.rs`.
    #[serde(default = "all")]
    pattern: String,
}

fn here() -> String {
    ".".to_owned()
}

fn all() -> String {
    "*".to_owned()
}

/// Most entries of one listing.
const MAX_ENTRIES: usize = 1000;

/// `list_directory`
pub struct ListDirectory;

impl TypedTool for ListDirectory {
    type Args = ListDirectoryArgs;
    const NAME: &'static str = "list_directory";
    const EFFECT: Effect = Effect::Reads;

    async fn run(
        &self,
        args: ListDirectoryArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let context = context.clone();
        blocking(move |cancelled| {
            let is_all = args.pattern == "*";
            let glob = NameGlob::new(&args.pattern)?;
            let options = WalkOptions {
                recursive: args.recursive,
                obey_ignore_files: args.recursive,
            };
            let is_wanted = |path: &Path| is_all || glob.matches(path);
            let mut walk = context.workspace.walk(&args.dir_path, options, is_wanted)?;
            let mut text = String::new();
            let mut n_entries = 0;
            let mut truncated = false;
            for found in walk.by_ref() {
                if !is_all && found.kind == FoundKind::Dir {
                    continue;
                }
                let is_full = text.len() > context.limits.max_output_chars.saturating_sub(200);
                if n_entries == MAX_ENTRIES || is_full || cancelled.is_set() {
                    truncated = true;
                    break;
                }
                n_entries += 1;
                text.push_str(&printable(&found.path));
                match found.kind {
                    FoundKind::Dir => text.push('/'),
                    FoundKind::Other => text.push('@'),
                    FoundKind::File => {
                        if let Some(n_bytes) = found.n_bytes() {
                            text.push_str(&format!("  {n_bytes}"));
                        }
                    }
                }
                text.push('\n');
            }
            if truncated {
                text.push_str("[more entries are left out; list a folder below or give a pattern]");
            } else if n_entries == 0 {
                text.push_str("[no entries]");
            }
            if let Some(left_out) = walk.left_out() {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&format!("[not listed: {left_out}]"));
                truncated = true;
            }
            Ok(ToolOutput {
                truncated,
                ..ToolOutput::text(text)
            })
        })
        .await
    }
}
