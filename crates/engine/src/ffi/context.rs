//! A context: the KV cache of one model, the batches that go through it, its thread pool.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as sys;

use super::{Adapter, Model};
use crate::CacheType;

/// Sizes of a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextParams {
    /// KV cells shared by all sequences.
    pub(crate) context_tokens: u32,
    /// Most tokens of one decode.
    pub(crate) batch_tokens: u32,
    /// Sequences, numbered from 0.
    pub(crate) n_sequences: u32,
    /// Most rows of logits of one decode; each has memory of its own.
    pub(crate) n_outputs: u32,
    /// Threads that compute.
    pub(crate) threads: u32,
    /// How keys and values are kept.
    pub(crate) cache_type: CacheType,
    /// `None` = as llama.cpp decides.
    pub(crate) flash_attention: Option<bool>,
}

/// How a decode ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Every token is in the cache.
    Done,
    /// No room in the cache; nothing changed.
    NoRoom,
    /// Aborted on request; tokens of the batch may or may not be in the cache.
    Aborted,
    /// llama.cpp failed, with its reason.
    Failed(String),
}

/// Tokens for one decode.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    sequences: Vec<i32>,
    wants_logits: Vec<i8>,
}

impl Batch {
    /// Forgets the tokens, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.wants_logits.clear();
    }

    /// Tokens in the batch.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Adds consecutive tokens of one sequence from this position on; the last `n_outputs`
    /// of them get output rows. Returns the index of the first such row.
    pub(crate) fn push(
        &mut self,
        sequence: u32,
        position: usize,
        tokens: impl ExactSizeIterator<Item = u32>,
        n_outputs: usize,
    ) -> Option<usize> {
        let first_output = tokens.len().saturating_sub(n_outputs);
        let start = self.tokens.len();
        for (offset, token) in tokens.enumerate() {
            self.tokens.push(token.cast_signed());
            self.positions
                .push(i32::try_from(position + offset).unwrap_or(i32::MAX));
            self.sequences.push(sequence.cast_signed());
            self.wants_logits.push(i8::from(offset >= first_output));
        }
        (n_outputs > 0).then_some(start + first_output)
    }
}

/// A context with its pool of threads.
#[derive(Debug)]
pub(crate) struct Context {
    ptr: NonNull<sys::llama_context>,
    memory: sys::llama_memory_t,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    params: ContextParams,
    n_vocab: usize,
    /// Which rows of the last decode have logits.
    logit_rows: Vec<i8>,
    sequence_counts: Vec<i32>,
    sequence_ptrs: Vec<*mut i32>,
    /// Read by the abort callback through its address, so it must outlive `ptr`.
    _abort: Arc<AtomicBool>,
    /// The adapter of the next decodes, which read it.
    adapter: Option<Arc<Adapter>>,
    /// The context reads the weights.
    _model: Arc<Model>,
}

// SAFETY: the context is used by one thread at a time (`&mut self` or the owner's `&self`).
unsafe impl Send for Context {}

impl Context {
    /// Reserves the cache and starts the threads. `abort` interrupts a running decode.
    pub(crate) fn new(
        model: Arc<Model>,
        params: ContextParams,
        abort: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let threads = i32::try_from(params.threads).unwrap_or(1).max(1);
        // SAFETY: returns a plain struct.
        let mut raw = unsafe { sys::llama_context_default_params() };
        raw.n_ctx = params.context_tokens;
        raw.n_batch = params.batch_tokens;
        raw.n_ubatch = params.batch_tokens;
        raw.n_seq_max = params.n_sequences;
        // Keeps the logits buffer small.
        raw.n_outputs_max = params.n_outputs;
        raw.n_threads = threads;
        raw.n_threads_batch = threads;
        let cache_type = match params.cache_type {
            CacheType::F16 => sys::GGML_TYPE_F16,
            CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        };
        (raw.type_k, raw.type_v) = (cache_type, cache_type);
        raw.flash_attn_type = match params.flash_attention {
            None => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            Some(false) => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
            Some(true) => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        };
        raw.kv_unified = true;
        raw.no_perf = true;
        raw.abort_callback = Some(on_abort_poll);
        raw.abort_callback_data = Arc::as_ptr(&abort).cast_mut().cast::<c_void>();
        // SAFETY: the model outlives the context (we keep an `Arc`), and so does the flag.
        let create = || unsafe { sys::llama_init_from_model(model.as_ptr(), raw) };
        let ptr = super::loaded(create)?;
        // SAFETY: the context was just made.
        let memory = unsafe { sys::llama_get_memory(ptr.as_ptr()) };
        // SAFETY: as above.
        let context_tokens = unsafe { sys::llama_n_ctx(ptr.as_ptr()) };
        // SAFETY: as above.
        let batch_tokens = unsafe { sys::llama_n_batch(ptr.as_ptr()) };
        let mut context = Self {
            ptr,
            memory,
            pool: None,
            params: ContextParams {
                context_tokens,
                batch_tokens: batch_tokens.min(params.batch_tokens),
                ..params
            },
            n_vocab: model.n_vocab() as usize,
            logit_rows: Vec::new(),
            sequence_counts: Vec::new(),
            sequence_ptrs: Vec::new(),
            _abort: abort,
            adapter: None,
            _model: model,
        };
        if context.memory.is_null() {
            return Err("the model keeps no state from token to token".to_owned());
        }
        context.attach_pool(threads);
        Ok(context)
    }

    /// Without a pool of its own ggml starts new threads in every decode.
    fn attach_pool(&mut self, threads: i32) {
        // SAFETY: plain values in; the pool is freed after the context.
        unsafe {
            let mut params = sys::ggml_threadpool_params_default(threads);
            self.pool = NonNull::new(sys::ggml_threadpool_new(&raw mut params));
            if let Some(pool) = self.pool {
                sys::llama_attach_threadpool(self.ptr.as_ptr(), pool.as_ptr(), pool.as_ptr());
            }
        }
    }

    /// The sizes that llama.cpp really took.
    pub(crate) fn params(&self) -> ContextParams {
        self.params
    }

    /// Decodes with this adapter from now on. A change makes the next decode plan its work anew.
    pub(crate) fn set_adapter(&mut self, adapter: Option<&Arc<Adapter>>) {
        if self.adapter.as_ref().map(Arc::as_ptr) == adapter.map(Arc::as_ptr) {
            return;
        }
        let mut list: Vec<_> = adapter.iter().map(|adapter| adapter.as_ptr()).collect();
        let mut scales = vec![1.0_f32; list.len()];
        // SAFETY: both arrays have the length given and are only read during the call; the
        // adapter is of this context's model and lives as long as the context uses it.
        unsafe {
            sys::llama_set_adapters_lora(
                self.ptr.as_ptr(),
                list.as_mut_ptr(),
                list.len(),
                scales.as_mut_ptr(),
            );
        }
        self.adapter = adapter.cloned();
    }

    /// Computes a batch. A batch that llama.cpp would abort on is refused as `Failed`.
    pub(crate) fn decode(&mut self, batch: &mut Batch) -> Decoded {
        self.logit_rows.clear();
        if let Err(reason) = self.check(batch) {
            return Decoded::Failed(reason.to_owned());
        }
        let n = batch.len();
        self.sequence_counts.clear();
        self.sequence_counts.resize(n, 1);
        self.sequence_ptrs.clear();
        let base = batch.sequences.as_mut_ptr();
        // SAFETY: every offset is inside the vector, which does not move until the call ends.
        self.sequence_ptrs
            .extend((0..n).map(|idx| unsafe { base.add(idx) }));
        let raw = sys::llama_batch {
            n_tokens: i32::try_from(n).unwrap_or(i32::MAX),
            token: batch.tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: batch.positions.as_mut_ptr(),
            n_seq_id: self.sequence_counts.as_mut_ptr(),
            seq_id: self.sequence_ptrs.as_mut_ptr(),
            logits: batch.wants_logits.as_mut_ptr(),
        };
        let ctx = self.ptr.as_ptr();
        // SAFETY: all arrays hold `n` entries and outlive the call; ids were checked.
        let (code, log) = super::capture_errors(|| unsafe { sys::llama_decode(ctx, raw) });
        match code {
            0 => {
                self.logit_rows.extend_from_slice(&batch.wants_logits);
                Decoded::Done
            }
            1 => Decoded::NoRoom,
            2 => Decoded::Aborted,
            _ => Decoded::Failed(format!("llama_decode gave {code}: {log}")),
        }
    }

    fn check(&self, batch: &Batch) -> Result<(), &'static str> {
        let n_outputs = batch.wants_logits.iter().filter(|&&w| w != 0).count();
        if batch.len() == 0 {
            return Err("an empty batch");
        }
        if batch.len() > self.params.batch_tokens as usize {
            return Err("a batch over its size");
        }
        if n_outputs > self.params.n_outputs as usize {
            return Err("more output rows than there is memory for");
        }
        let in_range = |value: &i32, end: usize| usize::try_from(*value).is_ok_and(|v| v < end);
        if !batch.tokens.iter().all(|t| in_range(t, self.n_vocab)) {
            return Err("a token outside the vocabulary");
        }
        let n_sequences = self.params.n_sequences as usize;
        if !batch.sequences.iter().all(|s| in_range(s, n_sequences)) {
            return Err("a sequence out of range");
        }
        let end = self.params.context_tokens as usize;
        if !batch.positions.iter().all(|p| in_range(p, end)) {
            return Err("a position outside the context");
        }
        Ok(())
    }

    /// The logits of a row of the last decode that asked for them.
    pub(crate) fn logits(&self, row: usize) -> Option<&[f32]> {
        if self.logit_rows.get(row).copied().unwrap_or(0) == 0 {
            return None;
        }
        let row = i32::try_from(row).ok()?;
        // SAFETY: the row has an output, so the pointer is null or to `n_vocab` floats that
        // live until the next decode, which needs `&mut self`.
        unsafe {
            let data = sys::llama_get_logits_ith(self.ptr.as_ptr(), row);
            (!data.is_null()).then(|| std::slice::from_raw_parts(data, self.n_vocab))
        }
    }

    /// Forgets a sequence from this position on. False if the model cannot cut there; the
    /// sequence is then as before. `from` = 0 always works.
    pub(crate) fn cut(&mut self, sequence: u32, from: usize) -> bool {
        let from = i32::try_from(from).unwrap_or(i32::MAX);
        if !self.has_sequence(sequence) {
            return false;
        }
        // SAFETY: the memory belongs to the context; the sequence is in range.
        unsafe { sys::llama_memory_seq_rm(self.memory, sequence.cast_signed(), from, -1) }
    }

    /// Makes `to`, which must be empty, share all cells of `from`.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        if from == to || !self.has_sequence(from) || !self.has_sequence(to) {
            return;
        }
        // SAFETY: as above.
        unsafe {
            sys::llama_memory_seq_cp(self.memory, from.cast_signed(), to.cast_signed(), -1, -1);
        }
    }

    /// A sequence's state as bytes; `None` if it cannot be had.
    pub(crate) fn save(&mut self, sequence: u32) -> Option<Vec<u8>> {
        if !self.has_sequence(sequence) {
            return None;
        }
        let (ctx, id) = (self.ptr.as_ptr(), sequence.cast_signed());
        // SAFETY: the context is ours; the sequence is in range.
        let size = unsafe { sys::llama_state_seq_get_size(ctx, id) };
        let mut bytes = vec![0_u8; size];
        // SAFETY: as above; at most `size` bytes are written.
        let n = unsafe { sys::llama_state_seq_get_data(ctx, bytes.as_mut_ptr(), size, id) };
        (n > 0 && n <= size).then(|| {
            bytes.truncate(n);
            bytes
        })
    }

    /// Puts a saved state into a sequence, which must be empty. Without room for it, or if
    /// the bytes are of another context, the sequence stays empty.
    pub(crate) fn restore(&mut self, sequence: u32, bytes: &[u8]) {
        if !self.has_sequence(sequence) {
            return;
        }
        let (ctx, id) = (self.ptr.as_ptr(), sequence.cast_signed());
        // SAFETY: the context is ours; the sequence is in range; the length is the slice's.
        let n = unsafe { sys::llama_state_seq_set_data(ctx, bytes.as_ptr(), bytes.len(), id) };
        if n == 0 {
            self.cut(sequence, 0);
        }
    }

    /// First position that is still in the cache; `None` for an empty sequence.
    pub(crate) fn first_position(&self, sequence: u32) -> Option<usize> {
        if !self.has_sequence(sequence) {
            return None;
        }
        // SAFETY: as above.
        let p = unsafe { sys::llama_memory_seq_pos_min(self.memory, sequence.cast_signed()) };
        usize::try_from(p).ok()
    }

    /// Number of the next position of a sequence: one past its last.
    pub(crate) fn end_position(&self, sequence: u32) -> usize {
        if !self.has_sequence(sequence) {
            return 0;
        }
        // SAFETY: as above.
        let p = unsafe { sys::llama_memory_seq_pos_max(self.memory, sequence.cast_signed()) };
        usize::try_from(p).map_or(0, |p| p + 1)
    }

    fn has_sequence(&self, sequence: u32) -> bool {
        sequence < self.params.n_sequences
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned, freed once, the context before the pool that it uses.
        unsafe {
            sys::llama_free(self.ptr.as_ptr());
            if let Some(pool) = self.pool {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

unsafe extern "C" fn on_abort_poll(data: *mut c_void) -> bool {
    // SAFETY: `data` is the address of the flag that the context keeps alive.
    unsafe { &*data.cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
