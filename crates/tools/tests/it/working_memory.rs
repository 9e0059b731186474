//! The memory editing tools (row L5), case by case.

use serde_json::{Value, json};
use twopass_tools::working_memory::{MAX_CHARS, START, Strategy, WorkingMemory};
use twopass_tools::{ToolContext, ToolOutput, ToolRegistry, Workspace};

const TEXT: &str = "## 1. Goals and plans\n- ship it\n\n## 2. Facts and knowledge\n- The user is Ada\n- Ada likes tea\n- Ada likes green tea\n\n## 3. Active notes\n- ship it\n";

struct Notes {
    memory: WorkingMemory,
    registry: ToolRegistry,
    context: ToolContext,
}

impl Notes {
    fn new(text: &str) -> Self {
        let memory = WorkingMemory::new(text);
        let registry = ToolRegistry::new();
        for strategy in Strategy::ALL {
            memory.register(&registry, strategy).unwrap();
        }
        let context = ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap());
        Self {
            memory,
            registry,
            context,
        }
    }

    async fn run(&self, name: &str, arguments: Value) -> ToolOutput {
        crate::run(&self.registry, &self.context, name, &arguments.to_string()).await
    }
}

/// Every case of `testdata/working_memory.jsonl`: an edit of [`TEXT`], the lines that are gone
/// and new afterwards, and a part of the result. An edit that changes nothing leaves the
/// revision.
#[tokio::test]
async fn l5_cases() {
    for line in include_str!("../../testdata/working_memory.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let notes = Notes::new(TEXT);
        let name = case["tool"].as_str().unwrap();
        let output = notes.run(name, case["arguments"].clone()).await;
        let says = case["says"].as_str().unwrap();
        assert!(output.text.contains(says), "{line}: {}", output.text);

        let words =
            |key: &str| -> Vec<String> { serde_json::from_value(case[key].clone()).unwrap() };
        let mut expect: Vec<String> = TEXT.lines().map(str::to_owned).collect();
        for gone in words("gone") {
            let at = expect.iter().position(|have| *have == gone).unwrap();
            expect.remove(at);
        }
        expect.extend(words("new"));
        expect.sort_unstable();
        let text = notes.memory.text();
        let mut have: Vec<&str> = text.lines().collect();
        have.sort_unstable();
        assert_eq!(have, expect, "{line}");
        assert_eq!(
            notes.memory.revision(),
            1 + u64::from(text != TEXT),
            "{line}"
        );
    }
}

/// The section counts, and lines stand where they belong.
#[tokio::test]
async fn l5_edits_hit_the_right_place() {
    let notes = Notes::new(TEXT);
    let replace = json!({"old": "ship it", "new": "sell it", "section_title": "active notes"});
    notes.run("replace_in_memory", replace).await;
    let delete = json!({"section_title": "Active notes", "lines": ["sell it"]});
    notes
        .run(
            "append_in_memory",
            json!({"section_title": "Active notes", "lines": ["- end"]}),
        )
        .await;
    notes.run("delete_from_memory", delete).await;
    let hunk = "@@ section: Facts and knowledge\n - The user is Ada\n+- Ada is 36";
    notes.run("patch_memory", patch(hunk)).await;
    assert_eq!(
        notes.memory.text(),
        TEXT.replace("Ada\n- Ada likes tea", "Ada\n- Ada is 36\n- Ada likes tea")
            .replace("notes\n- ship it", "notes\n- end")
    );
    assert_eq!(notes.memory.revision(), 5);
}

fn patch(body: &str) -> Value {
    json!({"patch": format!("*** Begin Patch\n*** Update Memory\n{body}\n*** End Patch"), "explanation": "test"})
}

#[tokio::test]
async fn l5_overwrite_counts_revisions() {
    let notes = Notes::new(START);
    let overwrite = async |arguments: Value| notes.run("overwrite_memory", arguments).await.text;
    let says = overwrite(json!({"new_memory": "x"})).await;
    assert_eq!(
        says,
        format!("overwritten; revision 2, 1 of {MAX_CHARS} characters")
    );
    let says = overwrite(json!({"new_memory": "x"})).await;
    assert!(says.starts_with("nothing changed; revision 2"), "{says}");
    let says = overwrite(json!({"new_memory": "y", "revision": 1})).await;
    assert!(says.contains("is at revision 2"), "{says}");
    overwrite(json!({"new_memory": "y", "revision": 2})).await;
    assert_eq!(
        (notes.memory.text().as_str(), notes.memory.revision()),
        ("y", 3)
    );
}

/// Headings that are only numbered are headings, too, if there are no others.
#[tokio::test]
async fn l5_numbered_headings() {
    let notes = Notes::new("1. Goals\n- a\n\n2. Facts\n- b\n");
    let add = json!({"section_title": "goals", "lines": ["- c"]});
    notes.run("append_in_memory", add).await;
    assert_eq!(notes.memory.text(), "1. Goals\n- a\n- c\n\n2. Facts\n- b\n");
}
