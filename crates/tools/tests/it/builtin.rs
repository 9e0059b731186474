//! What the built-in tools do when nobody attacks (row I1).

use std::fs;

use serde_json::json;
use tempfile::TempDir;
use twopass_tools::builtin::register;
use twopass_tools::{ErrorKind, Policy, Sandbox, ToolContext, ToolOutput, ToolRegistry, Workspace};

struct Desk {
    dir: TempDir,
    registry: ToolRegistry,
    context: ToolContext,
}

impl Desk {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let registry = ToolRegistry::new();
        register(&registry, Sandbox::default()).unwrap();
        registry.set_default_policy(Policy::Auto);
        let context = ToolContext::new(Workspace::open(dir.path()).unwrap());
        Self {
            dir,
            registry,
            context,
        }
    }

    async fn run(&self, name: &str, arguments: serde_json::Value) -> ToolOutput {
        crate::run(&self.registry, &self.context, name, &arguments.to_string()).await
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap()
    }
}

#[tokio::test]
async fn i1_read_file_gives_parts_that_can_be_gone_on_with() {
    let lines: String = (1..=3000).map(|n| format!("line {n}\n")).collect();
    let desk = Desk::new(&[
        ("a.txt", &lines),
        ("empty", ""),
        ("b", "x\0y"),
        ("long", &"y".repeat(50_000)),
    ]);
    let output = desk
        .run("read_file", json!({"file_path": "a.txt", "max_lines": 2}))
        .await;
    assert_eq!(
        output.text,
        "line 1\nline 2\n[lines 1 to 2 of 3000; go on with start_line 3]"
    );
    assert!(output.truncated);
    let last = json!({"file_path": "./a.txt", "start_line": 2999});
    let output = desk.run("read_file", last).await;
    assert_eq!(
        (output.text.as_str(), output.truncated),
        ("line 2999\nline 3000\n", false)
    );
    // As much as the result may hold, at a line's end.
    let output = desk.run("read_file", json!({"file_path": "a.txt"})).await;
    assert!(output.text.len() <= 16_000 && output.text.contains("go on with start_line"));
    let path = desk.dir.path().canonicalize().unwrap().join("a.txt");
    let output = desk
        .run("read_file", json!({"file_path": path, "max_lines": 1}))
        .await;
    assert!(output.text.starts_with("line 1\n["), "{}", output.text);

    assert_eq!(
        desk.run("read_file", json!({"file_path": "empty"}))
            .await
            .text,
        ""
    );
    let output = desk.run("read_file", json!({"file_path": "long"})).await;
    assert!(output.truncated && output.text.contains("characters left out"));
    let cases = [
        (
            json!({"file_path": "a.txt", "start_line": 3001}),
            ErrorKind::InvalidArguments,
            "3000 lines",
        ),
        (
            json!({"file_path": "a.txt", "max_lines": 100_001}),
            ErrorKind::InvalidArguments,
            "/max_lines",
        ),
        (
            json!({"file_path": "b"}),
            ErrorKind::Failed,
            "binary file of 3 bytes",
        ),
        (
            json!({"file_path": "c"}),
            ErrorKind::NotFound,
            "`c` does not exist",
        ),
        (
            json!({"file_path": "."}),
            ErrorKind::Failed,
            "list_directory",
        ),
    ];
    for (arguments, kind, word) in cases {
        let output = desk.run("read_file", arguments.clone()).await;
        assert_eq!(output.error, Some(kind), "{arguments}");
        assert!(output.text.contains(word), "{arguments}: {}", output.text);
    }
}

#[tokio::test]
async fn i1_create_file_makes_folders_and_refuses_what_exists() {
    let desk = Desk::new(&[("a/old.txt", "old")]);
    let new = json!({"file_path": "a/b/c/new.txt", "content": "one\ntwo\n"});
    let output = desk.run("create_file", new.clone()).await;
    assert_eq!(output.text, "created `a/b/c/new.txt`: 2 lines, 8 bytes");
    assert_eq!(desk.text("a/b/c/new.txt"), "one\ntwo\n");
    let output = desk.run("create_file", new).await;
    assert_eq!(output.error, Some(ErrorKind::Failed));
    let output = desk
        .run(
            "create_file",
            json!({"file_path": "a/old.txt/x", "content": ""}),
        )
        .await;
    assert_eq!(output.error, Some(ErrorKind::Failed), "{}", output.text);
    let output = desk
        .run("create_file", json!({"file_path": "a", "content": ""}))
        .await;
    assert_eq!(output.error, Some(ErrorKind::Failed));
    assert_eq!(desk.text("a/old.txt"), "old");
    let left: Vec<_> = fs::read_dir(desk.dir.path().join("a/b/c"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1, "temporary files are gone");
    // What is refused leaves no folders.
    let cases = [
        ("new/../../x", ErrorKind::OutsideWorkspace),
        ("new/../x", ErrorKind::NotFound),
        ("new/x/", ErrorKind::Failed),
        ("x/", ErrorKind::Failed),
        ("x/.", ErrorKind::Failed),
    ];
    for (path, kind) in cases {
        let output = desk
            .run("create_file", json!({"file_path": path, "content": ""}))
            .await;
        assert_eq!(output.error, Some(kind), "{path}: {}", output.text);
    }
    let left: Vec<_> = fs::read_dir(desk.dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn i1_edit_file_changes_one_place_and_keeps_a_copy() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let desk = Desk::new(&[
        ("a.sh", "fn a() {\n    1\n}\nfn b() {\n    1\n}\n"),
        ("dos.txt", "one\r\ntwo\r\nthree\r\n"),
    ]);
    let path = desk.dir.path().join("a.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("a.sh", desk.dir.path().join("link")).unwrap();

    let edit =
        |old: &str, new: &str| json!({"file_path": "link", "old_string": old, "new_string": new});
    let output = desk
        .run("edit_file", edit("b() {\n    1", "b() {\n    2"))
        .await;
    assert_eq!(
        output.text,
        "changed `link` at line 4; the text before is in `a.sh.bak`"
    );
    assert_eq!(
        desk.text("a.sh"),
        "fn a() {\n    1\n}\nfn b() {\n    2\n}\n"
    );
    assert_eq!(
        desk.text("a.sh.bak"),
        "fn a() {\n    1\n}\nfn b() {\n    1\n}\n"
    );
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o750
    );
    assert!(
        desk.dir.path().join("link").is_symlink(),
        "the link stays a link"
    );

    let before = desk.text("a.sh");
    let cases = [
        (edit("fn ", "x"), "at the lines 1, 4"),
        (
            edit("fn a() {\n  1", "x"),
            "line 1 begins such a passage with other white space",
        ),
        (edit("nothing like it", "x"), "read the file again"),
        (edit("}", "}"), "the same"),
        (edit("", "x"), "old_string"),
        (
            json!({"file_path": "no", "old_string": "a", "new_string": "b"}),
            "does not exist",
        ),
    ];
    for (arguments, word) in cases {
        let output = desk.run("edit_file", arguments).await;
        assert!(
            output.is_error() && output.text.contains(word),
            "{word}: {}",
            output.text
        );
    }
    assert_eq!(desk.text("a.sh"), before);

    // Models write plain line ends.
    let dos = json!({"file_path": "dos.txt", "old_string": "one\ntwo\n", "new_string": "1\n2\n"});
    desk.run("edit_file", dos).await;
    assert_eq!(desk.text("dos.txt"), "1\r\n2\r\nthree\r\n");
}

/// A copy that cannot be written: the file is as it was, nothing is left beside it.
#[tokio::test]
async fn i1_edit_file_that_fails_leaves_the_file() {
    // A file's name has at most 255 bytes; the copy's would have more.
    let name = "a".repeat(253);
    let desk = Desk::new(&[(&name, "old")]);
    let edit = json!({"file_path": name, "old_string": "old", "new_string": "new"});
    let output = desk.run("edit_file", edit).await;
    assert!(output.is_error(), "{}", output.text);
    assert_eq!(desk.text(&name), "old");
    assert_eq!(fs::read_dir(desk.dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn i1_edit_file_takes_no_file_of_others() {
    use std::os::unix::fs::PermissionsExt;

    let desk = Desk::new(&[("a", "0"), ("a.bak", "mine"), ("locked", "old")]);
    let edit = async |old: u32| {
        let old_string = old.to_string();
        let new_string = (old + 1).to_string();
        let edit = json!({"file_path": "a", "old_string": old_string, "new_string": new_string});
        desk.run("edit_file", edit).await.text
    };
    let changed = |backup: &str| format!("changed `a` at line 1; the text before is in `{backup}`");
    assert_eq!(edit(0).await, changed("a.bak2"));
    assert_eq!(edit(1).await, changed("a.bak2"));
    assert_eq!(desk.text("a.bak2"), "1");
    // Once somebody has changed a copy, it is theirs.
    fs::write(desk.dir.path().join("a.bak2"), "mine, too").unwrap();
    assert_eq!(edit(2).await, changed("a.bak3"));
    let texts = ["a", "a.bak", "a.bak2", "a.bak3"].map(|name| desk.text(name));
    assert_eq!(texts, ["3", "mine", "mine, too", "2"]);

    let locked = desk.dir.path().join("locked");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o444)).unwrap();
    let edit = json!({"file_path": "locked", "old_string": "old", "new_string": "new"});
    let output = desk.run("edit_file", edit).await;
    assert_eq!(output.text, "error: `locked` is write-protected");
    assert_eq!(desk.text("locked"), "old");
}

#[tokio::test]
async fn i1_list_directory_lists_sorted_and_by_pattern() {
    let desk = Desk::new(&[
        ("b.rs", "12345"),
        ("a/x.rs", ""),
        ("a/y.txt", ""),
        (".hidden/z.rs", ""),
        (".gitignore", "target/\n*.log\n"),
        ("target/out.rs", ""),
        ("a/n.log", ""),
        ("a/keep/.gitignore", "!m.log\n"),
        ("a/keep/m.log", ""),
    ]);
    let cases = [
        (
            json!({}),
            ".gitignore  14\n.hidden/\na/\nb.rs  5\ntarget/\n",
        ),
        (
            json!({"recursive": true}),
            "a/\na/keep/\na/keep/m.log  0\na/x.rs  0\na/y.txt  0\nb.rs  5\n",
        ),
        (
            json!({"recursive": true, "pattern": "*.rs"}),
            "a/x.rs  0\nb.rs  5\n",
        ),
        (
            json!({"recursive": true, "pattern": "a/*"}),
            "a/x.rs  0\na/y.txt  0\n",
        ),
        (json!({"dir_path": "a", "pattern": "*.txt"}), "y.txt  0\n"),
        (json!({"dir_path": "a", "pattern": "*.md"}), "[no entries]"),
    ];
    for (arguments, expect) in cases {
        let output = desk.run("list_directory", arguments.clone()).await;
        assert_eq!(output.text, expect, "{arguments}");
    }
    let output = desk
        .run("list_directory", json!({"dir_path": "b.rs"}))
        .await;
    assert_eq!(output.error, Some(ErrorKind::Failed));
    let output = desk.run("list_directory", json!({"pattern": "[a"})).await;
    assert_eq!(output.error, Some(ErrorKind::InvalidArguments));
    for n in 0..1001 {
        fs::write(desk.dir.path().join(format!("a/file{n:05}")), "").unwrap();
    }
    let output = desk.run("list_directory", json!({"dir_path": "a"})).await;
    assert!(output.truncated && output.text.contains("more entries are left out"));
}

#[tokio::test]
async fn i1_search_codebase_finds_lines() {
    let desk = Desk::new(&[
        ("src/a.rs", "one\nneedle two\nthree\n"),
        ("b.txt", "Needle\n"),
        ("bin", "needle\0"),
        (".gitignore", "out\n"),
        ("out/c.rs", "needle"),
        ("long.rs", &format!("needle{}", "x".repeat(1000))),
    ]);
    let search = |extra: serde_json::Value| {
        let mut arguments = json!({"pattern": "needle"});
        arguments
            .as_object_mut()
            .unwrap()
            .append(&mut extra.as_object().unwrap().clone());
        arguments
    };
    let cut = format!("long.rs:1:needle{} [line cut]", "x".repeat(294));
    let cases = [
        (search(json!({})), format!("{cut}\nsrc/a.rs:2:needle two")),
        (
            search(json!({"context_lines": 1, "file_glob": "src/**"})),
            "src/a.rs-1-one\nsrc/a.rs:2:needle two\nsrc/a.rs-3-three".to_owned(),
        ),
        (
            search(json!({"pattern": "(?i)^needle$"})),
            "b.txt:1:Needle".to_owned(),
        ),
        (
            search(json!({"pattern": "haystack"})),
            "[no matches]".to_owned(),
        ),
    ];
    for (arguments, expect) in cases {
        let output = desk.run("search_codebase", arguments.clone()).await;
        assert_eq!(output.text, expect, "{arguments}");
    }
    for arguments in [
        json!({"pattern": "("}),
        json!({"pattern": ""}),
        json!({"pattern": "a", "context_lines": 11}),
    ] {
        let output = desk.run("search_codebase", arguments.clone()).await;
        assert_eq!(
            output.error,
            Some(ErrorKind::InvalidArguments),
            "{arguments}"
        );
    }
    fs::write(desk.dir.path().join("many"), "needle\n".repeat(500)).unwrap();
    let output = desk
        .run("search_codebase", json!({"pattern": "needle"}))
        .await;
    assert!(output.truncated && output.text.contains("stopped after 200 matches"));
}

/// What is not looked at is said; what a pattern names is found among many.
#[tokio::test]
async fn i1_nothing_is_passed_over_in_silence() {
    let desk = Desk::new(&[("many/aa-needle.txt", "needle")]);
    for n in 0..30_000 {
        fs::write(desk.dir.path().join(format!("many/{n}.rs")), "").unwrap();
    }
    let search = json!({"pattern": "needle"});
    let output = desk.run("search_codebase", search.clone()).await;
    assert_eq!(
        (output.text.as_str(), output.truncated),
        ("many/aa-needle.txt:1:needle", false)
    );
    let list = json!({"dir_path": "many", "pattern": "aa-*"});
    let output = desk.run("list_directory", list).await;
    assert_eq!(
        (output.text.as_str(), output.truncated),
        ("aa-needle.txt  6\n", false)
    );

    let deep = "d/".repeat(65);
    let desk = Desk::new(&[(&format!("{deep}needle.txt"), "needle")]);
    let left_out = format!("`./{}` (over 64 folders down)", deep.trim_end_matches('/'));
    let output = desk.run("search_codebase", search).await;
    assert_eq!(
        (output.text, output.truncated),
        (
            format!("[no matches]\n[folders not searched: {left_out}]"),
            true
        )
    );
    let list = json!({"recursive": true, "pattern": "*.txt"});
    let output = desk.run("list_directory", list).await;
    assert_eq!(
        (output.text, output.truncated),
        (format!("[no entries]\n[not listed: {left_out}]"), true)
    );
}

#[tokio::test]
async fn i1_execute_bash_takes_no_longer_than_calls_may() {
    let mut desk = Desk::new(&[]);
    desk.context.limits.timeout = std::time::Duration::from_secs(2);
    // To JSON Schema 600.0 is an integer.
    let sleep = json!({"command": "sleep 4711.20", "timeout_s": 600.0});
    let output = desk.run("execute_bash", sleep).await;
    assert_eq!(output.text, "[stopped after 1 s] [no call may take longer]");
    let sleep = json!({"command": "sleep 4711.20", "timeout_s": 0.5});
    let output = desk.run("execute_bash", sleep).await;
    assert_eq!(output.error, Some(ErrorKind::InvalidArguments));
}

#[tokio::test]
async fn i1_execute_bash_says_how_it_ended() {
    let desk = Desk::new(&[("a.txt", "hello\n")]);
    let cases = [
        ("cat a.txt", "hello\n"),
        ("true", "[no output]"),
        ("echo out; echo err >&2; exit 3", "out\nerr\n[exit code 3]"),
        ("printf x; false", "x\n[exit code 1]"),
        ("kill -TERM $$", "[killed by signal 15]"),
        ("pwd | xargs basename > name; cat < name | wc -l", "1\n"),
        ("diff <(echo a) <(echo a) && echo same", "same\n"),
        (
            "cd / && cd - > /dev/null && touch new && ls",
            "a.txt\nname\nnew\n",
        ),
    ];
    for (command, expect) in cases {
        let output = desk.run("execute_bash", json!({"command": command})).await;
        assert_eq!(
            (output.text.as_str(), output.error),
            (expect, None),
            "{command}"
        );
    }
    let output = desk
        .run("execute_bash", json!({"command": "a".repeat(10_001)}))
        .await;
    assert_eq!(output.error, Some(ErrorKind::InvalidArguments));
}

/// Calls run beside each other; each has its own result.
#[tokio::test]
async fn i1_commands_run_at_the_same_time() {
    let desk = Desk::new(&[]);
    let started = std::time::Instant::now();
    let calls = (0..4).map(|n| {
        desk.run(
            "execute_bash",
            json!({"command": format!("sleep 1; echo {n}")}),
        )
    });
    let outputs = futures_util::future::join_all(calls).await;
    let texts: Vec<_> = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(texts, ["0\n", "1\n", "2\n", "3\n"]);
    assert!(
        started.elapsed().as_secs_f32() < 3.5,
        "{:?}",
        started.elapsed()
    );
}
