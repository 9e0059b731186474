use crate::Workspace;

/// Where a call runs. Cheap to clone.
///
/// There is no cancel token: dropping the future of a call cancels it. Child processes are
/// killed then, work on other threads ends at its next check.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The folder that tools work in and cannot leave.
    pub workspace: Workspace,
}

impl ToolContext {
    /// Calls in this workspace.
    #[must_use]
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }
}
