//! What ends a command early, and its exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use twopass_core::chat::{BadRequest, Reply};
use twopass_provider::{ErrorKind, Provider, ProviderError};
use twopass_tools::ToolError;
use twopass_tui::for_reader;
use twopass_wire::error::ErrorBody;

/// The exit code of a negative result.
pub(crate) const NEGATIVE: u8 = 1;
/// The exit code of an error.
pub(crate) const ERROR: u8 = 2;

/// Why a command ended: an error, or a reader that went away.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What is wrong in one line, and perhaps what to do.
    Error {
        body: ErrorBody,
        hint: Option<String>,
    },
    /// Nobody reads our output any more.
    ClosedPipe,
}

impl Failure {
    /// What the person asked for is wrong.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::BadRequest, message)
    }

    pub(crate) fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        let body = ErrorBody {
            kind: kind.as_str().to_owned(),
            message: message.into(),
            param: None,
            ..ErrorBody::default()
        };
        Self::Error { body, hint: None }
    }

    /// Names the flag, key or field at fault.
    pub(crate) fn with_param(mut self, name: impl Into<String>) -> Self {
        if let Self::Error { body, .. } = &mut self {
            body.param = Some(name.into());
        }
        self
    }

    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Error { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// What is wrong in one line; nothing if only the reader went away.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Error { body, .. } => Some(one_line(&body.message)),
            Self::ClosedPipe => None,
        }
    }

    /// Tells the person or, with `as_json`, the program, and gives the exit code.
    pub(crate) fn report(self, as_json: bool) -> ExitCode {
        let Self::Error { mut body, hint } = self else {
            return ExitCode::SUCCESS;
        };
        body.message = one_line(&body.message);
        if as_json {
            if let Some(hint) = hint {
                body.message.push_str(&format!("; {hint}"));
            }
            say(&body.to_json());
        } else {
            say(&format!("error: {}", body.message));
            if let Some(hint) = hint {
                say(&format!("hint: {hint}"));
            }
        }
        ExitCode::from(ERROR)
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::Error {
            body: error.to_body(),
            hint: None,
        }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        let kind = match error.kind() {
            twopass_tools::ErrorKind::Unavailable => ErrorKind::Config,
            twopass_tools::ErrorKind::BadName | twopass_tools::ErrorKind::TooLarge => {
                ErrorKind::BadRequest
            }
            _ => ErrorKind::Internal,
        };
        Self::of(kind, error.to_string())
    }
}

impl From<BadRequest> for Failure {
    fn from(fault: BadRequest) -> Self {
        Self::new(fault.to_string()).with_param(fault.param)
    }
}

/// An error of writing to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ClosedPipe;
        }
        Self::of(
            ErrorKind::Io,
            format!("the output cannot be written: {error}"),
        )
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

/// Help and version on stdout; a wrong command line as one line, as every other error.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(ERROR),
            _ => ExitCode::SUCCESS,
        };
    }
    // The flags could not be read, so this one is looked for by hand.
    let as_json = std::env::args_os().any(|arg| arg == "--json");
    let is_bare = error.kind() == ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_bare && !as_json {
        let _ = error.print();
        return ExitCode::from(ERROR);
    }
    let text = if is_bare {
        "a command is missing".to_owned()
    } else {
        error.to_string()
    };
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let mut failure = Failure::new(what.strip_prefix("error: ").unwrap_or(what))
        .with_hint("`twopass --help` and `twopass COMMAND --help` list the flags");
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) {
        failure = failure.with_param(flag.split(' ').next().unwrap_or_default());
    }
    failure.report(as_json)
}

/// A message for people. If nobody reads stderr there is nobody to tell.
pub(crate) fn say(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", for_reader(text, &err));
}

/// Tells what went wrong with a provider without stopping it.
pub(crate) fn warn(provider: &Provider) {
    for warning in provider.backend().warnings() {
        say(&format!("warning: {warning}"));
    }
}

/// The text with every run of white space as one space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
