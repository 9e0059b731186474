//! The tools as the model sees them.

use schemars::JsonSchema;
use serde::Deserialize;

use super::WorkingMemory;
use super::edits::{self, Edited, Replacement};
use super::patch::{self, Expected};
use crate::{Effect, ToolContext, ToolError, ToolOutput, TypedTool};

/// The type of one tool that edits the memory which it was made for.
macro_rules! memory_tool {
    ($(#[$doc:meta])* $tool:ident, $args:ident, $name:literal, $edit:expr) => {
        $(#[$doc])*
        pub struct $tool {
            memory: WorkingMemory,
        }

        impl $tool {
            /// The tool on this memory.
            #[must_use]
            pub fn new(memory: WorkingMemory) -> Self {
                Self { memory }
            }
        }

        impl TypedTool for $tool {
            type Args = $args;
            const NAME: &'static str = $name;
            // Only the model's own notes change, nothing of the user's.
            const EFFECT: Effect = Effect::Reads;

            async fn run(&self, args: $args, _: &ToolContext) -> Result<ToolOutput, ToolError> {
                let edit: fn(&str, &$args) -> Result<Edited, ToolError> = $edit;
                self.memory.edit(args.revision, |text| edit(text, &args))
            }
        }
    };
}

/// Replaces your whole working memory by a new text. Everything that you leave out is lost,
/// so write down again all that you still need, under the same headings. At most 16000
/// characters are kept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverwriteMemoryArgs {
    /// The new text of the memory.
    new_memory: String,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

memory_tool!(
    /// `overwrite_memory`
    OverwriteMemory, OverwriteMemoryArgs, "overwrite_memory",
    |text, args| {
        let is_same = text == args.new_memory;
        Ok(Edited {
            text: args.new_memory.clone(),
            summary: if is_same { "nothing changed" } else { "overwritten" }.to_owned(),
        })
    }
);

/// Adds lines at the end of one section of your working memory. Lines that the section has
/// already are left out, so it does no harm to add a line twice. The section must exist; the
/// error names the ones that do.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendInMemoryArgs {
    /// The heading of the section, with or without its number.
    section_title: String,
    /// The lines to add, each one entry.
    #[schemars(length(min = 1, max = 100))]
    lines: Vec<String>,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

memory_tool!(
    /// `append_in_memory`
    AppendInMemory, AppendInMemoryArgs, "append_in_memory",
    |text, args| edits::append(text, &args.section_title, &args.lines)
);

/// Removes lines from one section of your working memory. A line is found whatever its case,
/// spaces and bullet, or by a part of it of at least 8 characters. If a line could be several
/// lines, nothing is removed and you are told which.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteFromMemoryArgs {
    /// The heading of the section, with or without its number.
    section_title: String,
    /// The lines to remove.
    #[schemars(length(min = 1, max = 100))]
    lines: Vec<String>,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

memory_tool!(
    /// `delete_from_memory`
    DeleteFromMemory, DeleteFromMemoryArgs, "delete_from_memory",
    |text, args| edits::delete(text, &args.section_title, &args.lines)
);

/// Replaces a passage of your working memory by another. The passage must be found exactly as
/// often as you expect, so give a longer passage, the section or the text around it if it
/// stands there several times. If the new text is there already, nothing changes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceInMemoryArgs {
    /// The passage to replace, exactly as it stands there.
    #[schemars(length(min = 1))]
    old: String,
    /// What stands there afterwards; empty to remove the passage.
    new: String,
    /// Why, in a few words.
    #[serde(default)]
    #[expect(dead_code, reason = "it is for the trace, which has the arguments")]
    explanation: String,
    /// The heading of the section to look in; leave it out to look everywhere.
    #[serde(default)]
    section_title: Option<String>,
    /// How often the passage must be found.
    #[serde(default = "once")]
    #[schemars(range(min = 1))]
    expected_replacements: usize,
    /// Text that must stand right before the passage.
    #[serde(default)]
    pre_context: String,
    /// Text that must stand right behind the passage.
    #[serde(default)]
    post_context: String,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

fn once() -> usize {
    1
}

memory_tool!(
    /// `replace_in_memory`
    ReplaceInMemory, ReplaceInMemoryArgs, "replace_in_memory",
    |text, args| edits::replace(text, &Replacement {
        old: &args.old,
        new: &args.new,
        section_title: args.section_title.as_deref(),
        expected: args.expected_replacements,
        before: &args.pre_context,
        after: &args.post_context,
    })
);

/// Changes your working memory by a patch. The patch begins with the lines `*** Begin Patch`
/// and `*** Update Memory` and ends with `*** End Patch`. Each hunk begins with
/// `@@ section: TITLE`; then come lines that stay (a space before them), go (`-`) and come
/// (`+`). The lines that stay and go must stand in the section in a row, exactly once. If one
/// hunk does not fit, nothing is changed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchMemoryArgs {
    /// The patch.
    #[schemars(length(min = 1))]
    patch: String,
    /// Why, in a few words.
    #[serde(default)]
    #[expect(dead_code, reason = "it is for the trace, which has the arguments")]
    explanation: String,
    /// How many hunks the patch has, to be checked.
    #[serde(default)]
    expected_hunks: Option<usize>,
    /// How many lines come and go together, to be checked.
    #[serde(default)]
    expected_changes: Option<usize>,
    /// How to apply it.
    #[serde(default)]
    options: PatchOptions,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

/// How a patch is applied.
#[derive(Deserialize, JsonSchema, Default, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct PatchOptions {
    /// True to check the patch without changing anything.
    #[serde(default)]
    dry_run: bool,
}

memory_tool!(
    /// `patch_memory`
    PatchMemory, PatchMemoryArgs, "patch_memory",
    |text, args| {
        let expected = Expected {
            n_hunks: args.expected_hunks,
            n_changes: args.expected_changes,
        };
        let edited = patch::apply(text, &args.patch, expected)?;
        if !args.options.dry_run {
            return Ok(edited);
        }
        Ok(Edited {
            text: text.to_owned(),
            summary: format!("nothing changed (dry run): {}", edited.summary),
        })
    }
);

/// Changes your working memory line by line. The lines with the given numbers are removed,
/// then the new lines are put at the end. Numbers are counted from 1 and blank lines count,
/// all by the memory as it was before. New lines that the memory has already are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateMemoryArgs {
    /// Numbers of the lines to remove.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    deletions: Vec<usize>,
    /// The lines to add, each one entry.
    #[serde(default)]
    #[schemars(length(max = 100))]
    insertions: Vec<String>,
    /// The revision that you saw; the edit is refused if there is a newer one. Leave it out
    /// to edit whatever is there.
    #[serde(default)]
    revision: Option<u64>,
}

memory_tool!(
    /// `update_memory`
    UpdateMemory, UpdateMemoryArgs, "update_memory",
    |text, args| edits::update(text, &args.deletions, &args.insertions)
);
