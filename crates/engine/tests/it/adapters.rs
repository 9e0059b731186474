//! LoRA adapters by name: their turns differ, and nobody else's do.

use std::path::{Path, PathBuf};

use twopass_engine::{Engine, EngineOptions, ErrorKind, GenerateRequest};

use crate::support::{Alone, Seen, chat, collect, fresh, options, real_model, request, run};

/// Writes an adapter of rank 1 that adds a constant to what a layer gives on.
/// Source: ggml's `docs/gguf.md` and llama.cpp's `convert_lora_to_gguf.py`, read 2026-11.
fn write_adapter(path: &Path, architecture: &str) {
    const TEXT: u32 = 8;
    const FLOAT: u32 = 6;
    // SmolLM2-135M: what `ffn_down` of a layer takes and gives.
    let (n_in, n_out) = (1536_u64, 576_u64);
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend(2_u64.to_le_bytes());
    file.extend(4_u64.to_le_bytes());
    for (key, value) in [
        ("general.architecture", architecture),
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
    ] {
        file.extend(text(key));
        file.extend(TEXT.to_le_bytes());
        file.extend(text(value));
    }
    file.extend(text("adapter.lora.alpha"));
    file.extend(FLOAT.to_le_bytes());
    file.extend(1.0_f32.to_le_bytes());
    let mut offset = 0_u64;
    for (name, sizes) in [("lora_a", [n_in, 1]), ("lora_b", [1, n_out])] {
        file.extend(text(&format!("blk.12.ffn_down.weight.{name}")));
        file.extend(2_u32.to_le_bytes());
        file.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        file.extend(0_u32.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset += sizes[0] * sizes[1] * 4;
    }
    file.resize(file.len().next_multiple_of(32), 0);
    for n in 0..n_in + n_out {
        let value = if n % 3 == 0 { 5.0_f32 } else { -1.0 };
        file.extend(value.to_le_bytes());
    }
    std::fs::write(path, file).unwrap();
}

struct Adapted {
    alone: Alone,
    _folder: tempfile::TempDir,
}

fn adapted(change: impl FnOnce(&mut EngineOptions)) -> Adapted {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    write_adapter(&path, "llama");
    let mut options = options(real_model());
    options.lora = vec![("one".to_owned(), path)];
    change(&mut options);
    Adapted {
        alone: fresh(options),
        _folder: folder,
    }
}

fn turn(lora: Option<&str>) -> GenerateRequest {
    let mut turn = request(
        chat("What is the capital of France? Answer in one sentence."),
        16,
    );
    turn.sampling.temperature = Some(0.0);
    turn.lora = lora.map(str::to_owned);
    turn
}

#[test]
fn an_adapter_changes_its_own_turns_only() {
    let plain = run(&fresh(options(real_model())).engine, turn(None)).answer;
    let Adapted { alone, _folder } = &adapted(|_| ());
    let engine = &alone.engine;
    let ask = |lora| run(engine, turn(lora));
    assert_eq!(ask(None).answer, plain);
    let first = ask(Some("one"));
    assert_ne!(first.answer, plain);
    // The model's own prefix is none of the adapter's.
    assert_eq!(first.outcome.usage.cached_tokens, 0);
    let again = ask(Some("one"));
    assert!(again.outcome.usage.cached_tokens > 0);
    assert_eq!(again.answer, first.answer);
    let back = ask(None);
    assert!(back.outcome.usage.cached_tokens > 0);
    assert_eq!(back.answer, plain);
}

/// Turns with and without it take turns in the steps.
#[test]
fn turns_of_several_adapters_run_side_by_side() {
    let Adapted { alone, _folder } = &adapted(|options| options.max_streams = 4);
    let engine = &alone.engine;
    let alone: Vec<String> = [None, Some("one")]
        .map(|lora| run(engine, turn(lora)).answer)
        .to_vec();
    let lora = |n: usize| [None, Some("one")][n % 2];
    let running: Vec<_> = (0..6)
        .map(|n| engine.generate(turn(lora(n))).unwrap())
        .collect();
    let seen: Vec<Seen> = running.into_iter().map(collect).collect();
    for (n, seen) in seen.iter().enumerate() {
        // Batches add in another order; the beginning is the same.
        let expect: String = alone[n % 2].chars().take(12).collect();
        assert!(seen.answer.starts_with(&expect), "{n}: {:?}", seen.answer);
    }
    assert_eq!(engine.stats().failed, 0);
}

#[test]
fn wrong_adapters_are_refused_by_name() {
    let Adapted { alone, _folder } = &adapted(|_| ());
    let error = alone.engine.generate(turn(Some("two"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
    assert_eq!(
        error.to_string(),
        "`lora`: unknown adapter `two`, loaded: `one`"
    );
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.gguf");
    write_adapter(&other, "qwen3");
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF\x03\0\0\0").unwrap();
    let rows: [(PathBuf, &str); 4] = [
        (other, "mismatch"),
        (broken, "ends inside its header"),
        (real_model(), "adapter"),
        (folder.path().join("absent.gguf"), "does not exist"),
    ];
    for (path, expect) in rows {
        let mut options = options(real_model());
        options.lora = vec![("x".to_owned(), path)];
        let error = Engine::load(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadOption);
        let text = error.to_string();
        assert!(text.starts_with("`lora`: cannot load `x` from"), "{text}");
        assert!(text.contains(expect), "{text}");
    }
}

/// The draft is the model without the adapter, which would say other things.
#[test]
fn a_draft_that_disagrees_changes_no_text() {
    let ask = |engine: &Engine| {
        [
            "Count from 1 to 20.",
            "Say the days of the week.",
            "Repeat: a b c d e f g.",
        ]
        .map(|text| {
            let mut turn = request(chat(text), 40);
            turn.sampling.temperature = Some(0.0);
            turn.lora = Some("one".to_owned());
            run(engine, turn).answer
        })
    };
    let plain = {
        let Adapted { alone, _folder } = &adapted(|_| ());
        ask(&alone.engine)
    };
    let Adapted { alone, _folder } = &adapted(|options| options.draft_model = Some(real_model()));
    assert_eq!(ask(&alone.engine), plain);
    let stats = alone.engine.stats();
    assert!(stats.drafted_tokens > stats.accepted_tokens, "{stats:?}");
}
