//! A LoRA adapter: small changes to a model's weights that a decode can have or not.

use std::ffi::CString;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::Model;

/// An adapter in memory.
#[derive(Debug)]
pub(crate) struct Adapter {
    ptr: NonNull<sys::llama_adapter_lora>,
    /// It changes the weights of this model.
    _model: Arc<Model>,
}

// SAFETY: after loading llama.cpp only reads the adapter; freeing it takes it out of a set of the
// model, which nothing else looks at: all adapters of a model are loaded before its first turn and
// freed together, after the engine's threads have ended.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

impl Adapter {
    /// Loads a GGUF file of an adapter for this model. All adapters of a model are loaded
    /// before its first context, which reserves room for their work.
    pub(crate) fn load(model: &Arc<Model>, path: &Path) -> Result<Self, String> {
        let text = path.to_str().ok_or("the path is not UTF-8")?;
        let c_path = CString::new(text).map_err(|_| "the path holds a NUL byte")?;
        // SAFETY: the path is NUL-terminated and outlives the call, and so does the model.
        let load = || unsafe { sys::llama_adapter_lora_init(model.as_ptr(), c_path.as_ptr()) };
        let ptr = super::loaded(load)?;
        let adapter = Self {
            ptr,
            _model: Arc::clone(model),
        };
        // SAFETY: the adapter was just loaded.
        match unsafe { sys::llama_adapter_get_alora_n_invocation_tokens(adapter.as_ptr()) } {
            0 => Ok(adapter),
            _ => Err("it works from certain tokens on only (aLoRA), which is not done".to_owned()),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::llama_adapter_lora {
        self.ptr.as_ptr()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; contexts hold an `Arc` of the one they use, and the model
        // is still there.
        unsafe { sys::llama_adapter_lora_free(self.ptr.as_ptr()) };
    }
}
