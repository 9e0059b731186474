//! Kept prefixes that outlive their engine.

use std::path::Path;

use twopass_engine::{CacheType, Engine, EngineOptions, ErrorKind};

use crate::support::{Alone, Seen, chat, fresh, options, real_model, request, run};

const TEXT: &str = "Write two sentences about a river, a stone and a cloud that meet in winter.";

fn with_session(folder: &Path) -> EngineOptions {
    let mut options = options(real_model());
    options.session_path = Some(folder.to_owned());
    options
}

fn ask(engine: &Engine) -> Seen {
    let mut turn = request(chat(TEXT), 24);
    turn.sampling.temperature = Some(0.0);
    run(engine, turn)
}

fn file(folder: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder).unwrap();
    let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths[0].clone()
}

#[test]
fn a_second_engine_goes_on_where_the_first_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/for/it");
    let first = {
        let Alone { engine, .. } = &fresh(with_session(&path));
        assert_eq!(engine.warnings(), Vec::<String>::new());
        ask(engine)
    };
    assert_eq!(first.outcome.usage.cached_tokens, 0);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(file(&path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let Alone { engine, .. } = &fresh(with_session(&path));
    assert_eq!(engine.stats().cached_sequences, 1);
    let second = ask(engine);
    assert_eq!(second.answer, first.answer);
    let usage = second.outcome.usage;
    assert_eq!(usage.cached_tokens, usage.prompt_tokens - 1, "{usage:?}");
    assert_eq!(engine.warnings(), Vec::<String>::new());
}

/// What does not fit is left alone, said, and written anew.
#[test]
fn a_session_that_does_not_fit_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    drop(ask(&fresh(with_session(folder.path())).engine));
    let path = file(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let mut other_cache = with_session(folder.path());
    other_cache.cache_type = CacheType::Q8_0;
    let mut damaged = whole.clone();
    let last = damaged.len() - 100;
    damaged[last] ^= 1;
    let rows = [
        (other_cache, whole.clone(), "saved with `cache type: f16`"),
        (with_session(folder.path()), damaged, "damaged"),
        (
            with_session(folder.path()),
            b"hello".to_vec(),
            "no session file",
        ),
    ];
    for (options, bytes, expect) in rows {
        std::fs::write(&path, bytes).unwrap();
        let Alone { engine, .. } = &fresh(options);
        let warnings = engine.warnings();
        assert!(warnings[0].contains(expect), "{warnings:?}");
        assert_eq!(warnings.len(), 1);
        assert_eq!(ask(engine).outcome.usage.cached_tokens, 0);
    }
}

#[test]
fn a_folder_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("file");
    std::fs::write(&taken, "").unwrap();
    let error = Engine::load(with_session(&taken)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadOption);
    assert!(
        error.to_string().starts_with("`session_path`: cannot make"),
        "{error}"
    );
}
