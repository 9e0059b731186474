//! The backend's start and its log: quiet, save the last error, which becomes ours.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Once;

use llama_cpp_sys_2 as sys;

/// Bytes of log kept per capture.
const CAPTURE_LIMIT_BYTES: usize = 2048;

thread_local! {
    static CAPTURED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts llama.cpp once per process and silences its log.
pub(crate) fn init_backend() {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: the callback is a plain function that never unwinds; no data is passed.
        unsafe { sys::llama_log_set(Some(on_log), std::ptr::null_mut()) };
        super::abort::install();
        // SAFETY: called once, before any other call.
        unsafe { sys::llama_backend_init() };
    });
}

/// Which llama.cpp this is, as its tensor library tells it: version and commit.
pub(crate) fn version() -> String {
    // SAFETY: both give NUL-terminated texts that live as long as the process.
    let texts = unsafe { [sys::ggml_version(), sys::ggml_commit()] };
    let texts = texts.into_iter().filter(|text| !text.is_null());
    // SAFETY: as above.
    let texts = texts.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    texts.collect::<Vec<_>>().join(" ")
}

/// Runs `call` and returns what it gave with the errors that llama.cpp logged meanwhile on
/// this thread, joined by `; `.
pub(crate) fn capture_errors<T>(call: impl FnOnce() -> T) -> (T, String) {
    CAPTURED.with_borrow_mut(|slot| *slot = Some(String::new()));
    let value = call();
    let text = CAPTURED
        .with_borrow_mut(Option::take)
        .unwrap_or_default()
        .trim()
        .to_owned();
    (value, text)
}

/// What llama.cpp loads or makes; the error is its own last one.
pub(super) fn loaded<T>(load: impl FnOnce() -> *mut T) -> Result<NonNull<T>, String> {
    let (ptr, log) = capture_errors(|| super::abort::caught(load));
    NonNull::new(ptr).ok_or_else(|| match log.is_empty() {
        true => "llama.cpp gave no reason".to_owned(),
        false => log,
    })
}

unsafe extern "C" fn on_log(level: sys::ggml_log_level, text: *const c_char, _data: *mut c_void) {
    if level != sys::GGML_LOG_LEVEL_ERROR || text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A log line inside a destructor of the thread, or while the slot is borrowed, is lost.
    let _ = CAPTURED.try_with(|slot| {
        if let Ok(mut slot) = slot.try_borrow_mut()
            && let Some(captured) = slot.as_mut()
            && captured.len() + text.len() < CAPTURE_LIMIT_BYTES
        {
            if !captured.is_empty() {
                captured.push_str("; ");
            }
            captured.push_str(text.trim());
        }
    });
}
