//! Failed assertions of ggml while a model or context is made become errors.
//!
//! ggml aborts the process when a model file contradicts itself in a way that nobody checked.
//! It calls a hook before that; ours throws a C++ exception (`abort.cpp`), which llama.cpp's
//! own handlers around loading and context creation catch. During computation, where other
//! threads run and nobody would catch it, the hook does nothing.

use llama_cpp_sys_2 as sys;

unsafe extern "C" {
    fn twopass_arm_abort(on: bool);
    fn twopass_on_abort(message: *const std::ffi::c_char);
}

/// Installs the hook; once per process.
pub(super) fn install() {
    // SAFETY: the hook is a function that lives as long as the process.
    unsafe { sys::ggml_set_abort_callback(Some(twopass_on_abort)) };
}

/// Runs a call that makes a model or a context; a failed assertion in it becomes its own
/// logged error. Only for calls whose C++ side catches exceptions:
/// `llama_model_load_from_file`, `llama_init_from_model`.
pub(super) fn caught<T>(call: impl FnOnce() -> T) -> T {
    let _armed = Armed::new();
    call()
}

/// While this lives, a failed assertion on this thread throws.
struct Armed(());

impl Armed {
    fn new() -> Self {
        // SAFETY: sets a flag of this thread.
        unsafe { twopass_arm_abort(true) };
        Self(())
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { twopass_arm_abort(false) };
    }
}
