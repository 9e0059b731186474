//! Files that are no model, options out of range.

use std::fs;
use std::io::Write as _;

use twopass_engine::{CacheType, Engine, EngineOptions, ErrorKind};

use twopass_gguf::Value;

use crate::support::{collect, options, prompt, random_qwen3, real, real_model, request};

#[test]
fn files_that_are_no_model_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    let whole = fs::read(random_qwen3()).unwrap();
    let mut version = whole[..4096].to_vec();
    version[4] = 99;
    let mut counts = whole[..4096].to_vec();
    counts[8..24].fill(0xFF);
    let mut garbage = whole[..200_000].to_vec();
    garbage[24..2000].fill(0xA5);
    let rows = [
        (folder.path().join("missing.gguf"), "does not exist"),
        (folder.path().to_owned(), "is a directory"),
        (file("empty.gguf", b""), "is empty"),
        (
            file("text.gguf", b"# just a text file\n"),
            "is no GGUF file",
        ),
        (
            file("short.gguf", b"GGUF\x03\0\0\0"),
            "ends inside its header",
        ),
        (file("version.gguf", &version), "version 99"),
        (file("counts.gguf", &counts), "metadata keys"),
        (file("garbage.gguf", &garbage), "are read"),
        (
            file("head.gguf", &whole[..10_000]),
            "ends inside its header",
        ),
        (
            file("vocab.gguf", &whole[..1_000_000]),
            "ends inside its header",
        ),
        (file("tensors.gguf", &whole[..whole.len() - 4096]), "is cut"),
    ];
    for (path, reason) in rows {
        let error = Engine::load(EngineOptions::new(&path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadModel, "{}", path.display());
        let text = error.to_string();
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains("gave no reason"), "{text}");
    }
}

/// Every number of the header replaced: a clear error or a model that runs, never an abort
/// of the process, which is what ggml's own checks do.
#[test]
fn numbers_that_contradict_the_model_never_abort() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    let whole = fs::read(random_qwen3()).unwrap();
    let header = twopass_gguf::read_header(&random_qwen3()).unwrap();
    let nan = f32::NAN.to_le_bytes();
    let mut n_refused = 0;
    for (key, value) in &header.values {
        let replacements: Vec<[u8; 4]> = match value {
            Value::Whole(_) => [0, 3, u32::MAX].map(u32::to_le_bytes).to_vec(),
            Value::Float(_) => vec![nan, 0_f32.to_le_bytes(), (-1_f32).to_le_bytes()],
            _ => continue,
        };
        let at = whole
            .windows(key.len())
            .position(|window| window == key.as_bytes())
            .unwrap();
        // After the key: four bytes of type, then the value.
        let at = at + key.len() + 4;
        for bytes in replacements {
            let mut changed = whole.clone();
            changed[at..at + 4].copy_from_slice(&bytes);
            fs::write(&path, &changed).unwrap();
            let mut options = options(path.clone());
            options.context_tokens = 256;
            options.max_streams = 1;
            match Engine::load(options) {
                Ok(engine) => {
                    if let Ok(turn) = engine.generate(request(prompt("a"), 2)) {
                        collect(turn);
                    }
                }
                Err(error) => {
                    n_refused += 1;
                    assert_eq!(error.kind(), ErrorKind::BadModel, "{key} = {bytes:?}");
                    let text = error.to_string();
                    assert!(
                        !text.contains("gave no reason"),
                        "{key} = {bytes:?}: {text}"
                    );
                    assert!(!text.contains(".cpp"), "{key} = {bytes:?}: {text}");
                }
            }
        }
    }
    assert!(n_refused > 10, "{n_refused} refused");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    type Change = fn(&mut EngineOptions);
    let change: [(&str, Change); 9] = [
        ("threads", |o| o.threads = Some(0)),
        ("context_tokens", |o| o.context_tokens = 0),
        ("max_streams", |o| o.max_streams = 1000),
        ("step_tokens", |o| o.step_tokens = 1),
        ("queue_len", |o| o.queue_len = 0),
        ("output_tokens", |o| o.output_tokens = 0),
        ("prompt_lookup_tokens", |o| o.prompt_lookup_tokens = 33),
        ("draft_tokens", |o| o.draft_tokens = 0),
        ("flash_attention", |o| {
            (o.cache_type, o.flash_attention) = (CacheType::Q8_0, Some(false));
        }),
    ];
    for (name, change) in change {
        let mut options = EngineOptions::new(real_model());
        change(&mut options);
        let error = Engine::load(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadOption);
        assert_eq!(error.param(), Some(name));
    }
}

#[test]
fn the_facts_of_the_model_are_read_from_the_file() {
    let alone = real();
    let info = alone.engine.info();
    assert_eq!(info.architecture, "llama");
    assert_eq!(info.n_vocab, 49152);
    assert_eq!(info.file_bytes, fs::metadata(real_model()).unwrap().len());
    assert!(
        info.chat_template
            .as_ref()
            .unwrap()
            .contains("<|im_start|>")
    );
    assert_eq!(info.eos_text.as_deref(), Some("<|im_end|>"));
    assert!(info.control_strings.iter().any(|s| s == "<|im_start|>"));
    assert!(!info.is_hybrid);
    assert!(info.threads >= 1);
}
