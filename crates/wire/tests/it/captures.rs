//! Recorded exchanges of real servers, if a folder of them is given in
//! `TWOPASS_WIRE_CAPTURES`, and those few that are ours.
//!
//! Each capture must read without a fault of ours, and a streamed twin must give the same
//! message as the whole one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use twopass_core::chat::Reply;
use twopass_wire::DecodeContext;
use twopass_wire::completions::decode_reply;
use twopass_wire::fault::Fault;

use crate::completions;
use crate::read::{Format, read_stream_cut, read_whole};

fn format_of(path: &str) -> Option<Format> {
    match path {
        "/v1/chat/completions" => Some(Format::Chat),
        "/v1/responses" => Some(Format::Responses),
        "/v1/messages" => Some(Format::Anthropic),
        _ => None,
    }
}

struct Capture {
    name: String,
    path: String,
    status: u16,
    body: Vec<u8>,
    is_stream: bool,
}

fn load(folder: &Path) -> Vec<Capture> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter(|path| !path.ends_with("index.json"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let capture: Value = serde_json::from_str(&text).unwrap();
            let response = &capture["response"];
            let (body, is_stream) = match (response["body_file"].as_str(), &response["body"]) {
                (Some(name), _) => (std::fs::read(folder.join(name)).unwrap(), true),
                (None, Value::Null) => (
                    response["text"]
                        .as_str()
                        .unwrap_or_default()
                        .as_bytes()
                        .to_vec(),
                    false,
                ),
                (None, body) => (body.to_string().into_bytes(), false),
            };
            Capture {
                name: capture["name"].as_str().unwrap().to_owned(),
                path: capture["request"]["path"].as_str().unwrap().to_owned(),
                status: u16::try_from(response["status"].as_u64().unwrap()).unwrap(),
                body,
                is_stream,
            }
        })
        .collect()
}

/// What must be alike in twins: ids and times differ.
fn essence(reply: &Reply) -> String {
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| {
            format!(
                "{}{}",
                call.name,
                Value::Object(call.arguments.as_object().clone())
            )
        })
        .collect();
    format!(
        "reasoning {:?} content {:?} calls {calls:?} stop {:?}",
        reply.reasoning.trim(),
        reply.content.trim(),
        reply.stop_reason,
    )
}

fn run(folder: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    for capture in load(folder) {
        if capture.status >= 400 {
            let fault = Fault::from_response(capture.status, [], &capture.body, 0.0);
            assert_eq!(fault.status, Some(capture.status), "{}", capture.name);
            seen.insert(capture.name, fault.to_string());
            continue;
        }
        if matches!(capture.path.as_str(), "/v1/completions" | "/completion") {
            let read = if capture.is_stream {
                completions::read_stream_cut(&capture.body)
            } else {
                decode_reply(&capture.body)
            };
            let read = read.unwrap();
            let essence = format!("text {:?} stop {:?}", read.text, read.stop_reason);
            seen.insert(capture.name, essence);
            continue;
        }
        let Some(format) = format_of(&capture.path) else {
            continue;
        };
        let outcome = if capture.is_stream {
            read_stream_cut(format, &capture.body, &DecodeContext::default())
        } else {
            read_whole(format, &capture.body, DecodeContext::default())
        };
        let essence = match &outcome.reply {
            Ok(reply) => essence(reply),
            Err(fault) => fault.to_string(),
        };
        seen.insert(capture.name, essence);
    }
    seen
}

#[test]
fn captures_from_a_folder() {
    let Some(folder) = std::env::var_os("TWOPASS_WIRE_CAPTURES") else {
        return;
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let seen = run(&folder);
        for (name, essence) in &seen {
            if let Some(whole) = name.strip_suffix("-stream").and_then(|twin| seen.get(twin))
                && whole != essence
            {
                println!("DIFFER {name}\n  whole  {whole}\n  stream {essence}");
            }
            println!("{name}: {essence}");
        }
    }
}
