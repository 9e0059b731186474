//! Attempts to get out of the workspace or past a limit (`testdata/escapes.jsonl`).
//!
//! Rows I1, I11: a folder with a secret lies beside each workspace. After every attempt the
//! secret is in no output, nothing outside has changed, nothing runs on.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use twopass_tools::builtin::{ExecuteBash, register};
use twopass_tools::{
    Consent, ErrorKind, FileAccess, NetworkAccess, Policy, Sandbox, ToolContext, ToolOutput,
    ToolRegistry, Workspace,
};

use crate::{call, run};

const SECRET: &str = "outside-secret-4711";

/// A workspace with its surroundings.
struct Place {
    base: TempDir,
    _socket: UnixListener,
    listener: TcpListener,
}

impl Place {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        for dir in ["w", "outside", "w-evil"] {
            fs::create_dir(base.path().join(dir)).unwrap();
        }
        for dir in ["outside", "w-evil"] {
            fs::write(base.path().join(dir).join("secret.txt"), SECRET).unwrap();
        }
        Self {
            _socket: UnixListener::bind(base.path().join("outside/socket")).unwrap(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            base,
        }
    }

    fn workspace(&self) -> PathBuf {
        self.base.path().join("w")
    }

    fn context(&self) -> ToolContext {
        ToolContext::new(Workspace::open(self.workspace()).unwrap())
    }

    /// Puts the place's names into a text.
    fn fill(&self, text: &str) -> String {
        let base = self.base.path().canonicalize().unwrap();
        let port = self.listener.local_addr().unwrap().port();
        text.replace("{outside}", &base.join("outside").display().to_string())
            .replace("{workspace}", &base.join("w").display().to_string())
            .replace("{port}", &port.to_string())
            .replace("{a*5000}", &"a".repeat(5000))
            .replace("{a*1000001}", &"a".repeat(1_000_001))
    }

    fn set_up(&self, steps: &Value) {
        for step in steps.as_array().into_iter().flatten() {
            let word = |idx: usize| step[idx].as_str().unwrap_or_default();
            let path = self.workspace().join(word(1));
            let rest = self.fill(word(2));
            match word(0) {
                "dir" => fs::create_dir(path).unwrap(),
                "file" => fs::write(path, rest).unwrap(),
                "link" => symlink(rest, path).unwrap(),
                "sparse" => {
                    let file = fs::File::create(path).unwrap();
                    file.set_len(rest.parse().unwrap()).unwrap();
                }
                "fifo" => {
                    let made = std::process::Command::new("mkfifo").arg(path).status();
                    assert!(made.unwrap().success());
                }
                other => panic!("unknown step {other}"),
            }
        }
    }

    /// Every file outside with its content and rights.
    fn outside(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut open = vec![self.base.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                let content = fs::read_to_string(&path).unwrap_or_default();
                if metadata.is_dir() && path != self.workspace() {
                    open.push(path.clone());
                }
                let rights = format!("{:?} {content}", metadata.permissions());
                if path != self.workspace() {
                    all.insert(path, rights);
                }
            }
        }
        all
    }
}

fn registry(case: &Value) -> ToolRegistry {
    let options = &case["sandbox"];
    let mut sandbox = Sandbox::default();
    if options["files"] == "read_only" {
        sandbox.files = FileAccess::ReadOnly;
    }
    if options["network"] == "on" {
        sandbox.network = NetworkAccess::On;
    }
    let number = |name: &str| options[name].as_u64();
    sandbox.max_threads = number("max_threads").map_or(sandbox.max_threads, |n| n as usize);
    sandbox.max_memory_bytes = number("max_memory_bytes").unwrap_or(sandbox.max_memory_bytes);
    sandbox.max_file_bytes = number("max_file_bytes").unwrap_or(sandbox.max_file_bytes);
    let registry = ToolRegistry::new();
    register(&registry, sandbox).unwrap();
    registry.set_default_policy(Policy::Auto);
    registry
}

async fn attempt(case: &Value, place: &Place) -> ToolOutput {
    let arguments = place.fill(&case["arguments"].to_string());
    let name = case["tool"].as_str().unwrap();
    run(&registry(case), &place.context(), name, &arguments).await
}

/// Everything that is wrong with the outcome of one attempt.
fn judge(case: &Value, place: &Place, output: &ToolOutput, took: Duration) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = &output.text;
    if text.contains(SECRET) {
        wrong.push("the secret is out".to_owned());
    }
    // Cargo gives them to every test: they stand for keys.
    if text.contains("CARGO_PKG_") {
        wrong.push("the environment is out".to_owned());
    }
    if let Some(error) = case.get("error") {
        let got = output.error.map(ErrorKind::as_str);
        if error.as_str() != got {
            wrong.push(format!("error is {got:?}, expected {error}"));
        }
    }
    let words = |name: &str| {
        let list = case[name].as_array().into_iter().flatten();
        list.filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for word in words("has") {
        if !text.contains(&word) {
            wrong.push(format!("the output lacks {word:?}"));
        }
    }
    for word in words("lacks") {
        if text.contains(&word) {
            wrong.push(format!("the output has {word:?}"));
        }
    }
    if case["max_bytes"]
        .as_u64()
        .is_some_and(|max| text.len() as u64 > max)
    {
        wrong.push(format!("the output has {} bytes", text.len()));
    }
    if case["max_ms"]
        .as_u64()
        .is_some_and(|max| took > Duration::from_millis(max))
    {
        wrong.push(format!("it took {took:?}"));
    }
    if let Some(marker) = case["gone"].as_str()
        && runs(marker)
    {
        wrong.push(format!("`{marker}` runs on"));
    }
    for path in ["/etc", "/tmp", "/usr", "/var/tmp", "/dev/shm"] {
        if Path::new(path).join("twopass-escape").exists() {
            wrong.push(format!("a file was left in {path}"));
        }
    }
    if !place.workspace().is_dir() {
        wrong.push("the workspace is gone".to_owned());
    }
    wrong
}

/// True if some process has this in its command line.
pub(crate) fn runs(marker: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    processes.flatten().any(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(marker) && !command.contains("escapes")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i11_no_escape_succeeds() {
    let cases = include_str!("../../testdata/escapes.jsonl");
    // A machine that lacks the means says so; its limits are then not those of these cases.
    let lacks = Sandbox::default().degradations();
    if !lacks.is_empty() {
        eprintln!("commands are not tested here: {}", lacks.join("; "));
    }
    let mut failures = Vec::new();
    let mut n_cases = 0;
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        if !lacks.is_empty() && case["tool"] == "execute_bash" {
            continue;
        }
        n_cases += 1;
        let place = Place::new();
        place.set_up(&case["setup"]);
        let before = place.outside();
        let started = Instant::now();
        let output = attempt(&case, &place).await;
        let mut wrong = judge(&case, &place, &output, started.elapsed());
        if place.outside() != before {
            wrong.push("the outside has changed".to_owned());
        }
        if !wrong.is_empty() {
            let shown: String = output.text.chars().take(600).collect();
            failures.push(format!("{}: {}\n{shown}", case["name"], wrong.join("; ")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {n_cases} failed:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    assert!(n_cases >= 40);
}

/// A link that is swapped in again and again between check and use.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i1_no_race_leads_outside() {
    let place = Place::new();
    let workspace = place.workspace();
    fs::create_dir(workspace.join("real")).unwrap();
    fs::write(workspace.join("real/secret.txt"), "harmless").unwrap();
    symlink("../outside", workspace.join("bad")).unwrap();
    let before = place.outside();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let registry = registry(&Value::Null);
    let context = place.context();
    let mut n_read = 0;
    std::thread::scope(|scope| {
        // `sub` is now the folder, now the link.
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::rename(workspace.join("real"), workspace.join("sub"));
                let _ = fs::rename(workspace.join("sub"), workspace.join("real"));
                let _ = fs::rename(workspace.join("bad"), workspace.join("sub"));
                let _ = fs::rename(workspace.join("sub"), workspace.join("bad"));
            }
        });
        let started = Instant::now();
        let calls = [
            ("read_file", r#"{"file_path": "sub/secret.txt"}"#),
            ("list_directory", r#"{"recursive": true}"#),
            ("search_codebase", r#"{"pattern": "secret|harmless"}"#),
            (
                "edit_file",
                r#"{"file_path": "sub/secret.txt", "old_string": "s", "new_string": "s2"}"#,
            ),
            (
                "create_file",
                r#"{"file_path": "sub/new.txt", "content": "x"}"#,
            ),
        ];
        while started.elapsed() < Duration::from_secs(2) {
            for (name, arguments) in calls {
                let run = run(&registry, &context, name, arguments);
                let output =
                    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(run));
                assert!(!output.text.contains(SECRET), "{name}: {}", output.text);
                n_read += usize::from(output.text.contains("harmless"));
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(place.outside(), before);
    assert!(n_read > 0, "the race was never even");
}

/// What this process has open stays with it, however it was opened.
#[tokio::test(flavor = "multi_thread")]
async fn i1_open_files_are_not_inherited() {
    use std::os::fd::AsRawFd;

    let place = Place::new();
    let secret = fs::File::open(place.base.path().join("outside/secret.txt")).unwrap();
    // Unlike those of the standard library, this one goes on to programs.
    let inherited = rustix::io::dup(&secret).unwrap();
    let command = format!(
        "cat <&{0}; cat /proc/self/fd/{0}; echo end",
        inherited.as_raw_fd()
    );
    let arguments = serde_json::json!({ "command": command }).to_string();
    let output = run(
        &registry(&Value::Null),
        &place.context(),
        "execute_bash",
        &arguments,
    )
    .await;
    assert!(output.text.ends_with("end\n"), "{}", output.text);
    assert!(!output.text.contains(SECRET), "{}", output.text);
}

/// Dropping a call ends its command.
#[tokio::test(flavor = "multi_thread")]
async fn i1_a_dropped_call_leaves_nothing_running() {
    let place = Place::new();
    let registry = ToolRegistry::new();
    registry.register(ExecuteBash::default()).unwrap();
    let call = call(
        "execute_bash",
        r#"{"command": "sleep 4711.5 & sleep 4711.5"}"#,
    );
    let context = place.context();
    let run = registry.run(&call, &context, Consent::Given);
    let patience = tokio::time::timeout(Duration::from_millis(500), run).await;
    assert!(patience.is_err(), "it ended by itself");
    let started = Instant::now();
    while runs("sleep 4711.5") {
        assert!(started.elapsed() < Duration::from_secs(5), "it runs on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
