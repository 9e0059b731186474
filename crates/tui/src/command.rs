use std::path::PathBuf;

/// What a person types after a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Lists the commands and keys.
    Help,
    /// Lists the tools.
    Tools,
    /// Shows the model, or takes another.
    Model(Option<String>),
    /// Says whether and how much the model thinks.
    Thinking(ThinkingWish),
    /// Shows what is remembered.
    Memory,
    /// Begins to write the runs to a file, or ends it.
    Trace(Option<PathBuf>),
    /// Forgets the conversation.
    Clear,
    /// Writes the conversation to a file, or says where it is kept.
    Save(Option<PathBuf>),
    /// Ends the app.
    Quit,
}

/// How the model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingWish {
    /// As it is; its trace is folded or unfolded.
    Fold,
    /// It thinks.
    On,
    /// It does not.
    Off,
    /// As configured.
    Auto,
    /// It thinks so many tokens at most.
    Budget(u32),
}

/// Each command with its arguments and what it does.
pub(crate) const COMMANDS: [(&str, &str); 9] = [
    ("/help", "this list"),
    ("/tools", "the tools and what they may do"),
    ("/model [NAME]", "the model, or another one"),
    (
        "/thinking [on|off|auto|TOKENS]",
        "whether and how much it thinks; alone: fold",
    ),
    ("/memory", "what is remembered"),
    ("/trace [FILE]", "write the runs to a file, or stop"),
    ("/clear", "forget the conversation"),
    ("/save [FILE]", "write the conversation to a file"),
    ("/quit", "leave"),
];

impl Command {
    /// Reads a line that begins with a slash; `None` for other lines.
    ///
    /// # Errors
    /// What is wrong with it, for the person.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        // A path is no command.
        let rest = line.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if name.is_empty() || name.contains('/') || line.contains('\n') {
            return None;
        }
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        let path = || argument.map(PathBuf::from);
        Some(Ok(match name {
            "help" | "h" | "?" => Self::Help,
            "tools" | "t" => Self::Tools,
            "model" | "m" => Self::Model(argument.map(str::to_owned)),
            "thinking" => match thinking(argument) {
                Some(wish) => Self::Thinking(wish),
                None => {
                    return Some(Err(
                        "/thinking takes on, off, auto or a number of tokens".to_owned()
                    ));
                }
            },
            "memory" => Self::Memory,
            "trace" => Self::Trace(path()),
            "clear" | "c" => Self::Clear,
            "save" | "s" => Self::Save(path()),
            "quit" | "q" | "exit" => Self::Quit,
            _ => {
                return Some(Err(format!(
                    "there is no command /{name}; /help lists them"
                )));
            }
        }))
    }
}

fn thinking(argument: Option<&str>) -> Option<ThinkingWish> {
    Some(match argument {
        None => ThinkingWish::Fold,
        Some("on") => ThinkingWish::On,
        Some("off") => ThinkingWish::Off,
        Some("auto") => ThinkingWish::Auto,
        Some(number) => ThinkingWish::Budget(number.parse().ok()?),
    })
}
