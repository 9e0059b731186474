use std::time::Duration;

use crate::Workspace;

/// What one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time of a call; the call is cancelled then. 60 s.
    pub timeout: Duration,
    /// Most characters of a result; the middle of a longer one is left out. 16,000, about
    /// 4,000 tokens.
    pub max_output_chars: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            max_output_chars: 16_000,
        }
    }
}

/// Where a call runs and what it may use. Cheap to clone.
///
/// There is no cancel token: dropping the future of a call cancels it. Child processes are
/// killed then, work on other threads ends at its next check.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The folder that tools work in and cannot leave.
    pub workspace: Workspace,
    /// What one call may use.
    pub limits: Limits,
}

impl ToolContext {
    /// Calls in this workspace, with the default limits.
    #[must_use]
    pub fn new(workspace: Workspace) -> Self {
        Self {
            workspace,
            limits: Limits::default(),
        }
    }
}
