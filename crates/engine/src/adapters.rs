//! LoRA adapters of a model, by name.
//!
//! A decode has one set of weights, so a step serves the streams of one adapter (or of none),
//! in turns. What was computed with one adapter is no prefix for another.

use std::sync::Arc;

use crate::ffi::{Adapter, Model};
use crate::{EngineOptions, Error};

/// Most adapters of an engine.
const ADAPTER_LIMIT: usize = 64;

/// Which adapter; `None` = the model as it is.
pub(crate) type AdapterId = Option<usize>;

/// The adapters that were loaded.
#[derive(Debug)]
pub(crate) struct Adapters {
    named: Vec<(String, Arc<Adapter>)>,
}

impl Adapters {
    /// Loads those of these options.
    ///
    /// # Errors
    /// `BadOption` names the adapter and says why it cannot be used.
    pub(crate) fn load(options: &EngineOptions, model: &Arc<Model>) -> Result<Self, Error> {
        if options.lora.len() > ADAPTER_LIMIT {
            let text = format!(
                "must be at most {ADAPTER_LIMIT}, got {}",
                options.lora.len()
            );
            return Err(Error::bad_option("lora", text));
        }
        let load = |(name, path): &(String, std::path::PathBuf)| {
            let loaded = crate::gguf::check_file(path).map_err(|e| e.to_string());
            let loaded = loaded.and_then(|_| Adapter::load(model, path));
            let adapter = loaded.map_err(|why| {
                let path = path.display();
                Error::bad_option("lora", format!("cannot load `{name}` from `{path}`: {why}"))
            })?;
            Ok((name.clone(), Arc::new(adapter)))
        };
        let named: Result<_, Error> = options.lora.iter().map(load).collect();
        Ok(Self { named: named? })
    }

    /// The adapter of this name.
    ///
    /// # Errors
    /// `BadRequest` lists the names.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<AdapterId, Error> {
        let Some(name) = name else {
            return Ok(None);
        };
        let found = self.named.iter().position(|(known, _)| known == name);
        if found.is_none() {
            let known = self.named.iter().map(|(name, _)| format!("`{name}`"));
            let known: Vec<String> = known.collect();
            let known = match known.as_slice() {
                [] => "none".to_owned(),
                known => known.join(", "),
            };
            let text = format!("unknown adapter `{name}`, loaded: {known}");
            return Err(Error::bad_request("lora", text));
        }
        Ok(found)
    }

    /// The adapter.
    pub(crate) fn get(&self, id: AdapterId) -> Option<&Arc<Adapter>> {
        Some(&self.named.get(id?)?.1)
    }
}
