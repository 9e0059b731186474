//! The native module `twopass._native` of the Python package.
//!
//! It hides the runtime and the lock of the interpreter: requests come in as JSON text, work
//! runs on the threads of this crate, and what comes of it is fetched item by item, either
//! waiting without the interpreter's lock or by a callback. Messages of LangChain, exceptions
//! and event loops are the Python layer's.
#![warn(missing_docs)]

mod error;
mod operation;
mod provider;
mod runtime;

/// The private native module; `python/twopass/_native.pyi` has its types.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::provider::Provider;

    /// Splits a message's content into its response and its thinking (rows B7, C1-C4).
    #[pyfunction]
    fn parse_response(py: Python<'_>, text: &str) -> (String, String) {
        let split = py.detach(|| twopass_provider::parse_response(text));
        (split.response, split.thinking)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
