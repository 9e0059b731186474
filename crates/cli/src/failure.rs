//! What ends a command early, and its exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use twopass_core::chat::Reply;
use twopass_provider::ProviderError;

/// The exit code of a negative result.
pub(crate) const NEGATIVE: u8 = 1;
/// The exit code of an error.
const ERROR: u8 = 2;

/// Why a command ended: an error for people, or a reader that went away.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One line, and perhaps what to do.
    Error {
        message: String,
        hint: Option<String>,
    },
    /// Nobody reads our output any more.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Error {
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Error { message, .. } => Self::Error {
                message,
                hint: Some(text.into()),
            },
            Self::ClosedPipe => Self::ClosedPipe,
        }
    }

    /// Tells the person, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::ClosedPipe => ExitCode::SUCCESS,
            Self::Error { message, hint } => {
                say(&format!("error: {}", one_line(&message)));
                if let Some(hint) = hint {
                    say(&format!("hint: {hint}"));
                }
                ExitCode::from(ERROR)
            }
        }
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::new(error.to_string())
    }
}

/// An error of writing to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ClosedPipe;
        }
        Self::new(format!("the output cannot be written: {error}"))
    }
}

/// A turn without what was asked for is a negative result.
pub(crate) fn exit_code(reply: &Reply) -> ExitCode {
    if reply.is_negative() {
        ExitCode::from(NEGATIVE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Help and version on stdout; a wrong command line as one line, as for every other error.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(ERROR),
            _ => ExitCode::SUCCESS,
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(ERROR);
    }
    let text = error.to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    say(&one_line(what));
    say("hint: `twopass --help` and `twopass COMMAND --help` list the flags");
    ExitCode::from(ERROR)
}

/// A message for people. If nobody reads stderr there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
