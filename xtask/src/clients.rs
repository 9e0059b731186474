//! The server before clients that nobody here wrote.

use std::path::Path;

use crate::pytest::{self, Suite};
use crate::test::Count;
use crate::workspace::{AS_TESTED, Workspace};

/// The official clients, and what makes up requests from a description.
const PACKAGES: &[&str] = &[
    "pytest==9.2.0",
    "anthropic==2.14.0",
    "langchain-openai==1.7.4",
    "openai==3.57.0",
    "schemathesis==4.32.5",
];

/// Runs them against `twopass serve` on the test model.
pub(crate) fn test(workspace: &Workspace, model: &Path) -> anyhow::Result<(Count, bool)> {
    let program = workspace.build(&AS_TESTED, "twopass")?;
    let suite = Suite {
        name: "client-tests",
        packages: PACKAGES,
        folder: "tests/clients",
        modules: Vec::new(),
        environment: vec![
            ("TWOPASS_BIN", program),
            ("TWOPASS_TEST_MODEL", model.to_path_buf()),
        ],
    };
    pytest::run(workspace, &suite)
}
