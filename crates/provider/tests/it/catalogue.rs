//! Models from a real local server that speaks the hub's interface.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use sha2::{Digest, Sha256};
use twopass_provider::catalogue::{Catalogue, ENTRIES, Located, PullEvent, inspect};
use twopass_provider::config::{Config, Environment};
use twopass_provider::{ErrorKind, ProviderError};
use twopass_replay::{Answer, Server};

use crate::play;

const NAME: &str = "hf:owner/repo/sub/tiny.gguf";
const CONTENT: &[u8] = b"GGUF and some bytes \xe9\xff that stand for a model file";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// An answer of this status line and these further header lines.
fn answer(status: &str, headers: &str, body: &[u8]) -> Answer {
    let head = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n");
    Answer::raw([head.as_bytes(), body].concat())
}

/// The hub's answer to `HEAD`: a redirect that tells checksum and size.
fn facts(sha256: &str, n_bytes: usize) -> Answer {
    let headers = format!(
        "x-linked-etag: \"{sha256}\"\r\nx-linked-size: {n_bytes}\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n"
    );
    answer("302 Found", &headers, b"")
}

/// The file, whatever the server takes it for.
fn whole(body: &[u8]) -> Answer {
    let headers = format!(
        "content-type: text/plain; charset=iso-8859-1\r\ncontent-encoding: aws-chunked\r\ncontent-length: {}\r\n",
        body.len()
    );
    answer("200 OK", &headers, body)
}

struct Pulled {
    result: Result<std::path::PathBuf, ProviderError>,
    events: Vec<PullEvent>,
}

async fn pull(server: &Server, home: &Path, name: &str) -> Pulled {
    let data = home.display().to_string();
    let environment = Environment::of_pairs([
        ("XDG_DATA_HOME", data.as_str()),
        ("HF_ENDPOINT", server.url().as_str()),
        ("HF_TOKEN", "hf_secret"),
    ]);
    let config = Config {
        environment,
        ..Config::default()
    };
    let events = Mutex::new(Vec::new());
    let result = Catalogue::new(&config)
        .pull(name, &|event| events.lock().unwrap().push(event))
        .await;
    Pulled {
        result,
        events: events.into_inner().unwrap(),
    }
}

fn parts(home: &Path) -> Vec<u64> {
    let folder = home.join("twopass/models/hf/owner/repo/sub");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let parts = entries.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "part"));
    parts.map(|entry| entry.metadata().unwrap().len()).collect()
}

#[tokio::test]
async fn a_file_is_pulled_over_a_redirect_and_the_token_stays_with_the_hub() {
    let home = tempfile::tempdir().unwrap();
    let other = play(vec![whole(CONTENT)]).await;
    let redirect = answer(
        "302 Found",
        &format!("location: {}/blob\r\ncontent-length: 0\r\n", other.url()),
        b"",
    );
    let hub = play(vec![facts(&sha256(CONTENT), CONTENT.len()), redirect]).await;
    let path = pull(&hub, home.path(), NAME).await.result.unwrap();
    assert_eq!(
        path,
        home.path()
            .join("twopass/models/hf/owner/repo/sub/tiny.gguf")
    );
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    assert!(parts(home.path()).is_empty());
    let asked = hub.requests();
    assert_eq!(
        (asked[0].method.as_str(), asked[0].path.as_str()),
        ("HEAD", "/owner/repo/resolve/main/sub/tiny.gguf")
    );
    for request in &asked {
        assert_eq!(request.header("authorization"), Some("Bearer hf_secret"));
    }
    let elsewhere = format!("{:?}", other.requests());
    assert!(!elsewhere.contains("hf_secret"), "row L12");

    // It is here now: nobody is asked again.
    assert_eq!(pull(&hub, home.path(), NAME).await.result.unwrap(), path);
    assert_eq!(hub.requests().len(), 2);
}

#[tokio::test]
async fn a_broken_transfer_is_continued() {
    let home = tempfile::tempdir().unwrap();
    let cut = answer(
        "200 OK",
        &format!("content-length: {}\r\n", CONTENT.len()),
        &CONTENT[..20],
    );
    let range = format!(
        "content-range: bytes 20-{}/{}\r\n",
        CONTENT.len() - 1,
        CONTENT.len()
    );
    let rest = answer("206 Partial Content", &range, &CONTENT[20..]);
    let tag = facts(&sha256(CONTENT), CONTENT.len());
    let hub = play(vec![tag.clone(), cut, tag, rest]).await;
    let first = pull(&hub, home.path(), NAME).await.result.unwrap_err();
    assert_eq!(first.kind(), ErrorKind::StreamTruncated);
    assert_eq!(parts(home.path()), [20]);
    let second = pull(&hub, home.path(), NAME).await;
    assert_eq!(fs::read(second.result.unwrap()).unwrap(), CONTENT);
    assert_eq!(hub.requests()[3].header("range"), Some("bytes=20-"));
    let started = PullEvent::Started {
        n_bytes: Some(CONTENT.len() as u64),
        resumed: 20,
    };
    assert!(second.events.contains(&started), "{:?}", second.events);
}

#[tokio::test]
async fn a_server_without_ranges_sends_it_all_again() {
    let home = tempfile::tempdir().unwrap();
    let cut = answer(
        "200 OK",
        &format!("content-length: {}\r\n", CONTENT.len()),
        &CONTENT[..7],
    );
    let tag = facts(&sha256(CONTENT), CONTENT.len());
    let hub = play(vec![tag.clone(), cut, tag, whole(CONTENT)]).await;
    pull(&hub, home.path(), NAME).await.result.unwrap_err();
    let path = pull(&hub, home.path(), NAME).await.result.unwrap();
    assert_eq!(fs::read(path).unwrap(), CONTENT);
}

#[tokio::test]
async fn another_file_than_promised_is_refused_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let hub = play(vec![facts(&sha256(b"x"), CONTENT.len()), whole(CONTENT)]).await;
    let error = pull(&hub, home.path(), NAME).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    let expect = format!(
        "the file is another one than expected: sha256 {}, expected {}",
        sha256(CONTENT),
        sha256(b"x")
    );
    assert_eq!(error.to_string(), expect);
    assert!(parts(home.path()).is_empty());
}

#[tokio::test]
async fn refusals_of_the_hub_are_typed() {
    let home = tempfile::tempdir().unwrap();
    for (status, kind, text) in [
        (
            "404 Not Found",
            ErrorKind::NotFound,
            "the hub has no /owner/repo/resolve/main/sub/tiny.gguf",
        ),
        (
            "401 Unauthorized",
            ErrorKind::Auth,
            "the hub gives /owner/repo/resolve/main/sub/tiny.gguf only to those who may have it; HF_TOKEN must hold a token",
        ),
        (
            "500 Internal Server Error",
            ErrorKind::UpstreamError,
            "HTTP 500 without a body",
        ),
    ] {
        let hub = play(vec![answer(status, "content-length: 0\r\n", b"")]).await;
        let error = pull(&hub, home.path(), NAME).await.result.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
    }
    for name in [
        "hf:owner/tiny.gguf",
        "hf:a/../x.gguf",
        "hf:a/b/c.bin",
        "hf:a/b/../../x.gguf",
        "hf:a b/c/d.gguf",
    ] {
        let hub = play(vec![whole(CONTENT)]).await;
        let error = pull(&hub, home.path(), name).await.result.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`{name}` is not of the form `hf:OWNER/REPO/FILE.gguf`")
        );
        assert!(hub.requests().is_empty());
    }
}

#[test]
fn models_are_located_in_the_configured_folder_first() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("data");
    let used = folder.path().join("mine");
    fs::create_dir_all(&used).unwrap();
    let (data, mine) = (home.display().to_string(), used.display().to_string());
    let environment = Environment::of_pairs([
        ("XDG_DATA_HOME", data.as_str()),
        ("TWOPASS_MODELS_DIR", mine.as_str()),
    ]);
    let catalogue = Catalogue::new(&Config {
        environment,
        ..Config::default()
    });
    assert_eq!(catalogue.folder(), home.join("twopass/models"));
    let entry = &ENTRIES[0];
    assert!(matches!(
        catalogue.locate(entry.name),
        Ok(Located::Missing(_))
    ));
    // A file of another size is not the model.
    fs::write(used.join(entry.file_name), "short").unwrap();
    assert!(matches!(
        catalogue.locate(entry.name),
        Ok(Located::Missing(_))
    ));
    let file = fs::File::create(used.join(entry.file_name)).unwrap();
    file.set_len(entry.n_bytes).unwrap();
    assert_eq!(
        catalogue.locate(entry.name).unwrap(),
        Located::At(used.join(entry.file_name))
    );
    assert_eq!(
        catalogue.locate("./any.gguf").unwrap(),
        Located::At("./any.gguf".into())
    );
    assert_eq!(
        catalogue.locate("smollm").unwrap_err().to_string(),
        "unknown model `smollm`, known: `smollm2-135m`, `gemma3-270m`, `qwen2.5-coder-0.5b`, `wordllama-256`, the path of a .gguf file, or `hf:OWNER/REPO/FILE.gguf`"
    );
    let rows = catalogue.list();
    assert_eq!(rows.iter().filter(|row| row.path.is_some()).count(), 1);
}

// Bad files: each a clear error, never a panic.
#[test]
fn files_that_are_no_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let mut header = b"GGUF\x03\0\0\0".to_vec();
    header.extend(0_u64.to_le_bytes());
    let key =
        |header: &[u8], n_keys: u64, rest: &[u8]| [header, &n_keys.to_le_bytes(), rest].concat();
    let huge = [
        &9_u64.to_le_bytes()[..],
        b"a.b.c.d.e",
        &8_u32.to_le_bytes(),
        &u64::MAX.to_le_bytes(),
    ]
    .concat();
    let odd = [&1_u64.to_le_bytes()[..], b"a", &77_u32.to_le_bytes()].concat();
    let nested = [
        &1_u64.to_le_bytes()[..],
        b"a",
        &9_u32.to_le_bytes(),
        &9_u32.to_le_bytes(),
        &1_u64.to_le_bytes(),
    ]
    .concat();
    let rows: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "is empty"),
        (b"GG".to_vec(), "is no GGUF file: it is too short"),
        (
            b"PK\x03\x04 something".to_vec(),
            "is no GGUF file: it does not begin with `GGUF`",
        ),
        (
            b"GGUF\x09\0\0\0".to_vec(),
            "has GGUF version 9, known: 2 and 3",
        ),
        (header.clone(), "ends inside its header"),
        (key(&header, 1, b""), "ends inside its header"),
        (
            key(&header, u64::MAX, b""),
            "claims 18446744073709551615 metadata keys, at most 100000 are read",
        ),
        (
            key(&header, 1, &huge),
            "holds a text of 18446744073709551615 bytes, at most 16777216 are read",
        ),
        (
            key(&header, 1, &odd),
            "holds a value of the unknown type 77",
        ),
        (key(&header, 1, &nested), "holds lists of lists"),
    ];
    for (bytes, expect) in rows {
        fs::write(&path, bytes).unwrap();
        let error = inspect(&path).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Model, format!("{} {expect}", path.display()))
        );
    }
    for path in [folder.path().to_path_buf(), folder.path().join("none.gguf")] {
        assert_eq!(inspect(&path).unwrap_err().kind(), ErrorKind::Model);
    }
}
