use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::blocking::blocking;
use crate::sandbox::{Ended, Finished, Sandbox, Script, denied, run};
use crate::{Effect, ErrorKind, ToolContext, ToolError, ToolOutput, TypedTool};

/// Runs a command with bash in the workspace and returns what it printed, output and errors
/// together, and its exit code if that is not 0. Nothing can be typed into it and nothing
/// goes on running in the background afterwards, so do not start servers or editors. Files
/// can be written in the workspace and in $TMPDIR only; there may be no network. Each call
/// begins anew in the workspace: folders and variables of earlier calls are forgotten. Long
/// output is cut in the middle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteBashArgs {
    /// The command, at most 10000 characters. Several are joined by `&&` or line ends.
    #[schemars(length(min = 1, max = 10_000))]
    command: String,
    /// Seconds until the command is stopped. No call takes longer than calls of all tools may,
    /// which is a minute unless this program was told otherwise.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 600))]
    timeout_s: u64,
}

fn half_a_minute() -> u64 {
    30
}

/// Time that is left for the result before the call itself runs out.
const MARGIN: Duration = Duration::from_secs(1);

/// `execute_bash`
#[derive(Default)]
pub struct ExecuteBash {
    sandbox: Sandbox,
}

impl ExecuteBash {
    /// The tool with these limits.
    #[must_use]
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }
}

impl TypedTool for ExecuteBash {
    type Args = ExecuteBashArgs;
    const NAME: &'static str = "execute_bash";
    const EFFECT: Effect = Effect::Executes;

    async fn run(
        &self,
        args: ExecuteBashArgs,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        if let Some(reason) = denied(&args.command) {
            let message = format!("the command was not run: {reason}");
            return Err(ToolError::new(ErrorKind::Refused, message));
        }
        if args.command.contains('\0') {
            let message = "the command holds a null byte";
            return Err(ToolError::new(ErrorKind::InvalidArguments, message));
        }
        let context = context.clone();
        let sandbox = self.sandbox.clone();
        blocking(move |cancelled| {
            let allowed = context.limits.timeout.saturating_sub(MARGIN);
            let script = Script {
                text: &args.command,
                timeout: Duration::from_secs(args.timeout_s).min(allowed),
                max_output_bytes: context.limits.max_output_chars.saturating_sub(100),
            };
            let finished = run(&script, &sandbox, context.workspace.root(), cancelled)?;
            let mut output = described(finished, &script, &sandbox);
            if output.error == Some(ErrorKind::Timeout) && script.timeout == allowed {
                output.text.push_str(" [no call may take longer]");
            }
            Ok(output)
        })
        .await
    }
}

fn described(finished: Finished, script: &Script<'_>, sandbox: &Sandbox) -> ToolOutput {
    let mut text = finished.text;
    let (note, error) = match finished.ended {
        Ended::Exited(0) if text.is_empty() => ("[no output]".to_owned(), None),
        Ended::Exited(0) => (String::new(), None),
        Ended::Exited(code) => (format!("[exit code {code}]"), None),
        Ended::Signalled(signal) => (format!("[killed by signal {signal}]"), None),
        Ended::TimedOut => (
            format!("[stopped after {} s]", script.timeout.as_secs()),
            Some(ErrorKind::Timeout),
        ),
        Ended::TooManyThreads => (
            format!("[stopped: it had over {} threads]", sandbox.max_threads),
            Some(ErrorKind::TooLarge),
        ),
        Ended::TooMuchMemory => (
            format!(
                "[stopped: a process shared over {} bytes of memory]",
                sandbox.max_memory_bytes
            ),
            Some(ErrorKind::TooLarge),
        ),
        Ended::Cancelled => ("[cancelled]".to_owned(), Some(ErrorKind::Failed)),
    };
    if !text.is_empty() && !text.ends_with('\n') && !note.is_empty() {
        text.push('\n');
    }
    text.push_str(&note);
    ToolOutput {
        error,
        truncated: finished.truncated,
        ..ToolOutput::text(text)
    }
}
