use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::blocking;
use crate::{Effect, ToolContext, ToolError, ToolOutput, TypedTool};

/// Creates a new text file in the workspace with the given content, and the folders above it
/// where they are missing. It refuses if the file exists already: use edit_file to change a
/// file. At most 1,000,000 bytes are written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateFileArgs {
    /// Path of the new file, relative to the workspace, for example `notes/plan.md`.
    file_path: String,
    /// The whole text of the file.
    content: String,
}

/// `create_file`
pub struct CreateFile;

impl TypedTool for CreateFile {
    type Args = CreateFileArgs;
    const NAME: &'static str = "create_file";
    const EFFECT: Effect = Effect::Writes;

    async fn run(
        &self,
        args: CreateFileArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let workspace = context.workspace.clone();
        blocking(move |_| {
            workspace.create(&args.file_path, &args.content)?;
            let n_lines = args.content.lines().count();
            let n_bytes = args.content.len();
            Ok(format!(
                "created `{}`: {n_lines} lines, {n_bytes} bytes",
                args.file_path
            )
            .into())
        })
        .await
    }
}
