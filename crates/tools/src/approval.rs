//! What a tool does to the world, and whether it may.

use std::fmt;

/// The strongest thing that a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Looks at the workspace or at memory, changes nothing.
    Reads,
    /// Changes files of the workspace, or memory.
    Writes,
    /// Runs programs, such as a tool server that was started for its tools.
    Executes,
    /// Asks something over the network, such as a tool server.
    Network,
}

impl Effect {
    /// The name in JSON and for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Executes => "executes",
            Self::Network => "network",
        }
    }
}

/// Whether calls of a tool run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Tools that only read run at once, all others once a person has consented.
    #[default]
    Ask,
    /// Every call runs at once.
    Auto,
    /// Tools that only read run at once, all others are refused.
    ReadOnly,
    /// No call runs.
    Never,
}

impl Policy {
    /// Every policy, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Ask, Self::Auto, Self::ReadOnly, Self::Never];

    /// The name in configuration: `ask`, `auto`, `read-only`, `never`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Auto => "auto",
            Self::ReadOnly => "read-only",
            Self::Never => "never",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }

    /// What this policy says of a tool with this effect.
    #[must_use]
    pub fn decide(self, effect: Effect) -> Decision {
        match (self, effect) {
            (Self::Auto, _) | (Self::Ask | Self::ReadOnly, Effect::Reads) => Decision::Run,
            (Self::Ask, _) => Decision::Ask,
            (Self::ReadOnly | Self::Never, _) => Decision::Refuse,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the policy says of a call before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It may run.
    Run,
    /// A person must consent first.
    Ask,
    /// It may not run, whatever a person says.
    Refuse,
}

/// What a person said of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consent {
    /// Nobody was asked: calls that need consent do not run.
    #[default]
    NotAsked,
    /// Yes.
    Given,
    /// No: the call does not run, whatever the policy.
    Denied,
}
