//! The command on our own cases and captures. Rows M1, M8, B14, J10, L11.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;

/// Exit code and last line of a run on a file or folder of `testdata`; what it printed.
fn run(path: &str) -> (Option<i32>, String, String) {
    let path = format!("{}/testdata/{path}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_twopass-cases"));
    let output = command.arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap_or_default().to_owned();
    (output.status.code(), last, text)
}

#[test]
fn m8_cases_of_clients_pass_through_a_real_server() {
    let (code, last, text) = run("clients.jsonl");
    assert_eq!(
        (code, last.as_str()),
        (Some(0), "14 passed, 0 failed, 0 skipped"),
        "{text}"
    );
}

#[test]
fn m8_cases_of_parsers_pass_however_they_are_cut() {
    let (code, last, text) = run("parsers.jsonl");
    assert_eq!(
        (code, last.as_str()),
        (Some(0), "3 passed, 0 failed, 0 skipped"),
        "{text}"
    );
}

#[test]
fn m8_cases_of_the_server_pass_over_a_real_socket() {
    let (code, last, text) = run("server.jsonl");
    assert_eq!(
        (code, last.as_str()),
        (Some(0), "25 passed, 0 failed, 0 skipped"),
        "{text}"
    );
    let (code, last, text) = run("wrong_server.jsonl");
    assert_eq!(
        (code, last.as_str()),
        (Some(1), "0 passed, 5 failed, 0 skipped"),
        "{text}"
    );
}

#[test]
fn m8_what_is_not_so_fails() {
    let (code, last, text) = run("wrong.jsonl");
    assert_eq!(
        (code, last.as_str()),
        (Some(1), "0 passed, 10 failed, 0 skipped"),
        "{text}"
    );
}

#[test]
fn m1_captures_read_alike_whole_and_streamed() {
    let (code, last, text) = run("captures");
    assert_eq!(
        (code, last.as_str()),
        (Some(0), "13 passed, 0 failed, 1 skipped"),
        "{text}"
    );
    let (code, last, text) = run("broken");
    assert_eq!(
        (code, last.as_str()),
        (Some(1), "0 passed, 1 failed, 0 skipped"),
        "{text}"
    );
    assert_eq!(run("nothing").0, Some(2));
}
