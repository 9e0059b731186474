use std::path::PathBuf;

use crate::{Error, ErrorKind};

/// How an engine is set up. Everything but the path has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// The GGUF file.
    pub model_path: PathBuf,
    /// Threads that compute, 1 to 256. Default: the cores that this process may use. More
    /// threads than free cores make every step wait for the slowest.
    pub threads: Option<u32>,
    /// KV cells, shared by all streams and by cached prefixes; rounded up to 256. Default
    /// 8192. Costs memory at load: cells times the model's bytes per token (22.5 KiB for
    /// SmolLM2-135M).
    pub context_tokens: u32,
    /// Streams that generate at once, 1 to 128. Default 8. More wait in the queue.
    pub max_streams: u32,
    /// Prompt tokens computed per step while no stream is generating, 32 to 4096. Default
    /// 256. While streams generate a quarter of it is used, so that a long prompt delays
    /// their next token by little; several prompts share it. A larger value costs memory and slows cancelling.
    pub step_tokens: u32,
    /// Requests that may wait, at least 1. Default 64. One more is refused as `QueueFull`.
    pub queue_len: usize,
    /// Tokens that a stream may be ahead of its reader, at least 1. Default 256. A stream
    /// whose reader is slower sits out until the reader has caught up.
    pub output_tokens: u32,
    /// Finished sequences kept for reuse as prefixes, 0 to 127. Default 16. They leave the
    /// cells when another stream begins, and come back when a prompt goes on from them; the
    /// least recently used give way first.
    pub cached_sequences: u32,
    /// Memory for kept sequences outside the cells. Default 1 GiB.
    pub cached_bytes: usize,
    /// Folder in which the kept sequences are saved when nothing was asked for ten seconds and
    /// when the engine ends, one file per model file, of at most `cached_bytes`. An engine that
    /// starts with the same model and settings has them warm. Default: none. The file holds
    /// what was said, readable by its owner only.
    pub session_path: Option<PathBuf>,
    /// Tokens guessed ahead per stream and step, 0 to 32. Default 0: none. What followed the
    /// last tokens when they stood earlier in prompt or answer is computed along and kept if
    /// the draw is equal, so no draw changes. Pays where answers repeat their prompt (edits,
    /// quotes, extraction). Without effect for models that keep a running state or a sliding
    /// window.
    pub prompt_lookup_tokens: u32,
    /// A GGUF file of a smaller model with the same vocabulary that guesses ahead. Default: none.
    /// What it guesses is computed along and kept if the draw is equal, so no draw changes. Needs
    /// memory for its weights and for a cache of `context_tokens`. Pays where the model is at
    /// least some ten times larger than its draft and few streams run.
    pub draft_model: Option<PathBuf>,
    /// Tokens that the draft model guesses per stream and step, 1 to 32. Default 8. It stops
    /// earlier where it is not sure.
    pub draft_tokens: u32,
    /// LoRA adapters that turns can ask for by name, each with its GGUF file, at most 64. Turns
    /// with different adapters share no step and no prefix.
    pub lora: Vec<(String, PathBuf)>,
    /// How keys and values are kept.
    pub cache_type: CacheType,
    /// Attention in one fused kernel; `None` = where the model and the machine have it.
    pub flash_attention: Option<bool>,
    /// Layers computed on a GPU, if one was compiled in. Default 0.
    pub gpu_layers: u32,
}

/// How the KV cache keeps keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheType {
    /// Half precision.
    #[default]
    F16,
    /// Eight bits and a scale per 32 values: about half the memory, slightly other texts.
    /// Needs flash attention.
    Q8_0,
}

/// Most sequences that llama.cpp can tell apart.
const MAX_SEQUENCES: u32 = 256;

impl EngineOptions {
    /// The defaults for this model file.
    #[must_use]
    pub fn new(model_path: impl Into<PathBuf>) -> Self {
        Self {
            model_path: model_path.into(),
            threads: None,
            context_tokens: 8192,
            max_streams: 8,
            step_tokens: 256,
            queue_len: 64,
            output_tokens: 256,
            cached_sequences: 16,
            cached_bytes: 1 << 30,
            session_path: None,
            prompt_lookup_tokens: 0,
            draft_model: None,
            draft_tokens: 8,
            lora: Vec::new(),
            cache_type: CacheType::F16,
            flash_attention: None,
            gpu_layers: 0,
        }
    }

    /// The number of threads that the engine will use.
    #[must_use]
    pub fn resolved_threads(&self) -> u32 {
        self.threads.unwrap_or_else(|| {
            std::thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
                .min(256)
        })
    }

    /// Prompt tokens per step while streams are generating.
    pub(crate) fn shared_step_tokens(&self) -> usize {
        (self.step_tokens as usize / 4).max(32)
    }

    /// Checks every number against its limits; [`crate::Engine::load`] does it first.
    ///
    /// # Errors
    /// `BadOption` names the option, what it is and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        let rows: [(&'static str, u64, u64, u64); 9] = [
            ("threads", u64::from(self.threads.unwrap_or(1)), 1, 256),
            (
                "context_tokens",
                u64::from(self.context_tokens),
                256,
                1 << 24,
            ),
            ("max_streams", u64::from(self.max_streams), 1, 128),
            ("step_tokens", u64::from(self.step_tokens), 32, 4096),
            ("queue_len", self.queue_len as u64, 1, 1 << 20),
            ("output_tokens", u64::from(self.output_tokens), 1, 1 << 20),
            (
                "cached_sequences",
                u64::from(self.cached_sequences),
                0,
                u64::from(MAX_SEQUENCES / 2 - 1),
            ),
            (
                "prompt_lookup_tokens",
                u64::from(self.prompt_lookup_tokens),
                0,
                32,
            ),
            ("draft_tokens", u64::from(self.draft_tokens), 1, 32),
        ];
        if self.cache_type == CacheType::Q8_0 && self.flash_attention == Some(false) {
            let text = "must not be off with the cache type q8_0, got false";
            return Err(Error::bad_option("flash_attention", text.to_owned()));
        }
        for (name, value, low, high) in rows {
            if !(low..=high).contains(&value) {
                return Err(Error::bad_option(
                    name,
                    format!("must be {low} to {high}, got {value}"),
                ));
            }
        }
        Ok(())
    }
}

/// Fails if the processor lacks one of the instructions that llama.cpp was compiled to use; each
/// comes with whether the processor has it.
pub(crate) fn check_cpu(used: &[(&str, bool)]) -> Result<(), Error> {
    let missing: Vec<&str> = used.iter().filter(|i| !i.1).map(|i| i.0).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::UnsupportedCpu,
        format!(
            "this processor lacks {}, which the embedded engine was built to use; \
             build it for this processor, or use a remote backend",
            missing.join(", ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_for_another_processor_is_refused_by_name() {
        let used = [("AVX2", true), ("AVX-512", false), ("AVX-512 VNNI", false)];
        let fault = check_cpu(&used).expect_err("this would crash");
        assert_eq!(fault.kind(), ErrorKind::UnsupportedCpu);
        assert!(fault.to_string().contains("lacks AVX-512, AVX-512 VNNI,"));
        assert!(check_cpu(&used[..1]).is_ok());
    }
}
