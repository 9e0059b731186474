//! The table of faults over every chat service: each a typed error in bounded time and
//! memory, partial text kept, and the next call of the same client works. Rows A7, B3, B14.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_provider::{CallOptions, Message, Provider, ProviderError, Role};
use twopass_replay::Answer;

use crate::chat::provider;
use crate::play;

const TABLE: &str = include_str!("../../testdata/faults.json");
/// No fault takes longer; the deadlines of the entries are half a second.
const LONGEST: Duration = Duration::from_secs(4);
/// What a refused line may cost in memory: its limit is 8 MiB.
const MOST_MEMORY_KIB: u64 = 96 << 10;

/// How a format writes what the table leaves open.
struct Spelling {
    backend: &'static str,
    head: &'static str,
    piece: &'static str,
    error: &'static str,
    /// The beginning of a frame.
    line: &'static str,
    end: &'static str,
}

const SPELLINGS: [Spelling; 4] = [
    Spelling {
        backend: "openai",
        head: "text/event-stream",
        piece: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n",
        error: "data: {\"error\":{\"message\":\"boom\"}}\n\n",
        line: "data: ",
        end: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    },
    Spelling {
        backend: "openai_responses",
        head: "text/event-stream",
        piece: "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"delta\":\"Par\"}\n\n",
        error: "data: {\"type\":\"error\",\"message\":\"boom\"}\n\n",
        line: "data: ",
        end: "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"id\":\"m\",\"content\":[{\"type\":\"output_text\",\"text\":\"Par\"}]}]}}\n\n",
    },
    Spelling {
        backend: "anthropic",
        head: "text/event-stream",
        piece: "data: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Par\"}}\n\n",
        error: "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}\n\n",
        line: "data: ",
        end: "data: {\"type\":\"content_block_stop\",\"index\":0}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    },
    Spelling {
        backend: "ollama",
        head: "application/x-ndjson",
        piece: "{\"message\":{\"content\":\"Par\"},\"done\":false}\n",
        error: "{\"error\":\"boom\"}\n",
        line: "{\"message\":",
        end: "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
    },
];

impl Spelling {
    /// The entry's answer in this format.
    fn answer(&self, row: &Value) -> Answer {
        let mut entry = row["answer"].clone();
        self.fill(&mut entry);
        let mut answer = Answer::from_json(&entry).unwrap();
        let has_type = answer
            .headers
            .iter()
            .any(|(name, _)| name == "content-type");
        if answer.status == Some(200) && !has_type {
            answer = answer.with_header("content-type", self.head);
        }
        answer
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.fill(field)),
            Value::String(text) => {
                let (start, _) = self.piece.split_at(self.piece.len() / 2);
                *text = text
                    .replace("$PIECE", self.piece)
                    .replace("$HALF", start)
                    .replace("$ERROR", self.error)
                    .replace("$GARBAGE", &format!("{}\u{1}garbage\n\n", self.line))
                    .replace("$LINE", self.line)
                    .replace("$MEGABYTE", &"x".repeat(1 << 20));
            }
            _ => {}
        }
    }
}

async fn ask(provider: &Provider) -> Result<String, ProviderError> {
    let messages = vec![Message::text(Role::User, "Hi")];
    let request = provider.request(messages, CallOptions::default())?;
    Ok(provider.generate(request).await?.content)
}

/// Set in the process that runs the table.
const ALONE: &str = "TWOPASS_TEST_ALONE";

// Memory is that of a process, and other tests load models in theirs: the table has one of
// its own.
#[test]
fn b14_every_fault_on_every_service() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return runtime.unwrap().block_on(every_fault());
    }
    let test = ["--exact", "faults::b14_every_fault_on_every_service"];
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(test)
        .env(ALONE, "1")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{shown}");
    assert!(shown.contains("1 passed"), "{shown}");
}

async fn every_fault() {
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    for spelling in &SPELLINGS {
        let good = Answer {
            status: Some(200),
            ..Answer::events([spelling.piece, spelling.end])
        };
        let good = Answer {
            headers: vec![("content-type".to_owned(), spelling.head.to_owned())],
            ..good
        };
        for row in &rows {
            let shown = format!("{}, {}", spelling.backend, row["name"]);
            let server = play(vec![spelling.answer(row), good.clone()]).await;
            let provider = provider(&server, spelling.backend, "");
            let memory = peak_memory_kib();
            let started = Instant::now();
            let error = ask(&provider).await.unwrap_err();
            assert!(started.elapsed() < LONGEST, "{shown}");
            assert!(peak_memory_kib() < memory + MOST_MEMORY_KIB, "{shown}");
            check(row, &error, &shown);
            assert_eq!(
                ask(&provider).await.unwrap(),
                "Par",
                "{shown}: the next call"
            );
        }
    }
}

fn check(row: &Value, error: &ProviderError, shown: &str) {
    let got = json!({
        "kind": error.kind().as_str(),
        "status": error.status(),
        "retryable": error.is_retryable(),
        "retry_after_s": error.retry_after().map(|wait| wait.as_secs()),
        "partial": error.partial().map(|partial| partial.content.as_str()),
    });
    for key in ["kind", "status", "retryable", "retry_after_s", "partial"] {
        assert_eq!(got[key], row[key], "{shown}, {key}: {error}");
    }
    assert!(!error.to_string().contains("sk-chat"), "{shown}: {error}");
}

/// The most memory that this process has had, in kibibytes; 0 where nobody tells.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
