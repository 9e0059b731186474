//! Errors as exceptions of `twopass.errors`, one class for each kind that callers tell apart.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use twopass_core::chat::BadRequest;
use twopass_provider::ProviderError;

/// The module and the function of the Python layer that picks the class.
const MODULE: &str = "twopass.errors";
const FACTORY: &str = "from_native";

/// The exception of an error; its text is the error's, which holds no key and no prompt.
pub(crate) fn exception(py: Python<'_>, error: &ProviderError) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &ProviderError) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    facts.set_item("kind", error.kind().as_str())?;
    facts.set_item("param", error.param())?;
    facts.set_item("provider", error.provider())?;
    facts.set_item("status", error.status())?;
    let pause = error.retry_after().map(|pause| pause.as_secs_f64());
    facts.set_item("retry_after_s", pause)?;
    facts.set_item("is_retryable", error.is_retryable())?;
    let thinking = error.partial().map(|reply| reply.reasoning.as_str());
    facts.set_item("thinking", thinking.unwrap_or_default())?;
    let factory = py.import(MODULE)?.getattr(FACTORY)?;
    let exception = factory.call((error.to_string(),), Some(&facts))?;
    Ok(PyErr::from_value(exception))
}

/// [`exception`] of a request that is wrong in itself.
pub(crate) fn bad_request(py: Python<'_>, error: BadRequest) -> PyErr {
    exception(py, &ProviderError::from(error))
}
