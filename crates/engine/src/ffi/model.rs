//! A loaded model: weights and vocabulary, immutable, shared by threads.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

/// What a vocabulary entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Text, or one byte of it.
    Ordinary,
    /// Markup of the format, such as `<|im_end|>`.
    Control,
    /// Text that the tokenizer never splits, such as `<tool_call>` in many vocabularies.
    UserDefined,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
}

/// The tokenizer family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VocabType {
    /// The file has no tokenizer.
    None,
    /// SentencePiece: a text begins with an added space.
    SentencePiece,
    /// Any other.
    Other,
}

/// A model in memory.
#[derive(Debug)]
pub(crate) struct Model {
    ptr: NonNull<sys::llama_model>,
    vocab: NonNull<sys::llama_vocab>,
}

// SAFETY: after loading llama.cpp only reads the model; its functions on a const model or
// vocabulary take no hidden shared state.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Loads a GGUF file; the error is llama.cpp's own last error.
    pub(crate) fn load(path: &Path, gpu_layers: u32) -> Result<Self, String> {
        super::init_backend();
        let text = path.to_str().ok_or("the path is not UTF-8")?;
        let c_path = CString::new(text).map_err(|_| "the path holds a NUL byte")?;
        // SAFETY: returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.n_gpu_layers = i32::try_from(gpu_layers).unwrap_or(i32::MAX);
        // SAFETY: the path is NUL-terminated and outlives the call.
        let load = || unsafe { sys::llama_model_load_from_file(c_path.as_ptr(), params) };
        let ptr = super::loaded(load)?;
        // SAFETY: the model was just loaded; the vocabulary belongs to it.
        let vocab = unsafe { sys::llama_model_get_vocab(ptr.as_ptr()) };
        let Some(vocab) = NonNull::new(vocab.cast_mut()) else {
            // SAFETY: nobody else holds the pointer.
            unsafe { sys::llama_model_free(ptr.as_ptr()) };
            return Err("the model has no vocabulary".to_owned());
        };
        Ok(Self { ptr, vocab })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::llama_model {
        self.ptr.as_ptr()
    }

    fn vocab(&self) -> *const sys::llama_vocab {
        self.vocab.as_ptr()
    }

    /// Entries of the vocabulary.
    pub(crate) fn n_vocab(&self) -> u32 {
        // SAFETY: the vocabulary lives as long as `self`.
        let n = unsafe { sys::llama_vocab_n_tokens(self.vocab()) };
        u32::try_from(n).unwrap_or(0)
    }

    /// The tokenizer family.
    pub(crate) fn vocab_type(&self) -> VocabType {
        // SAFETY: as above.
        match unsafe { sys::llama_vocab_type(self.vocab()) } {
            sys::LLAMA_VOCAB_TYPE_NONE => VocabType::None,
            sys::LLAMA_VOCAB_TYPE_SPM => VocabType::SentencePiece,
            _ => VocabType::Other,
        }
    }

    /// Tokens that the model was trained to look back on.
    pub(crate) fn context_train(&self) -> u32 {
        // SAFETY: the model lives as long as `self`.
        let n = unsafe { sys::llama_model_n_ctx_train(self.as_ptr()) };
        u32::try_from(n).unwrap_or(0)
    }

    /// Width of the sliding attention window, 0 if there is none.
    pub(crate) fn sliding_window(&self) -> u32 {
        // SAFETY: as above.
        let n = unsafe { sys::llama_model_n_swa(self.as_ptr()) };
        u32::try_from(n).unwrap_or(0)
    }

    /// True if the state of a sequence cannot be cut back to an earlier token.
    pub(crate) fn is_stateful(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            sys::llama_model_is_hybrid(self.as_ptr())
                || sys::llama_model_is_recurrent(self.as_ptr())
        }
    }

    /// True if the model writes text token by token from what came before.
    pub(crate) fn is_causal_decoder(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            sys::llama_model_has_decoder(self.as_ptr())
                && !sys::llama_model_has_encoder(self.as_ptr())
                && !sys::llama_model_is_diffusion(self.as_ptr())
        }
    }

    /// A metadata value of the file as text.
    pub(crate) fn meta(&self, key: &CStr) -> Option<String> {
        let mut buffer = vec![0_u8; 256];
        // SAFETY: key and buffer are valid for the call; at most the length given is written.
        let n = unsafe {
            sys::llama_model_meta_val_str(
                self.as_ptr(),
                key.as_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
                buffer.len(),
            )
        };
        let n = usize::try_from(n).ok()?.min(buffer.len() - 1);
        buffer.truncate(n);
        Some(String::from_utf8_lossy(&buffer).into_owned())
    }

    /// The Jinja chat template that the file carries.
    pub(crate) fn chat_template(&self) -> Option<String> {
        // SAFETY: a null name asks for the default; the text belongs to the model.
        let text = unsafe { sys::llama_model_chat_template(self.as_ptr(), std::ptr::null()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: NUL-terminated text that lives as long as the model.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// The token that begins a text, if any.
    pub(crate) fn bos(&self) -> Option<u32> {
        // SAFETY: the vocabulary lives as long as `self`.
        u32::try_from(unsafe { sys::llama_vocab_bos(self.vocab()) }).ok()
    }

    /// The token that ends a text, if any.
    pub(crate) fn eos(&self) -> Option<u32> {
        // SAFETY: as above.
        u32::try_from(unsafe { sys::llama_vocab_eos(self.vocab()) }).ok()
    }

    /// True if a prompt begins with the `bos` token.
    pub(crate) fn add_bos(&self) -> bool {
        // SAFETY: as above.
        unsafe { sys::llama_vocab_get_add_bos(self.vocab()) }
    }

    /// True if the token ends the model's turn. `token` must be below `n_vocab`.
    pub(crate) fn is_eog(&self, token: u32) -> bool {
        // SAFETY: as above; llama.cpp looks the id up in a set.
        unsafe { sys::llama_vocab_is_eog(self.vocab(), token.cast_signed()) }
    }

    /// What the token is for.
    pub(crate) fn kind(&self, token: u32) -> TokenKind {
        if token >= self.n_vocab() {
            return TokenKind::Unknown;
        }
        // SAFETY: the id is in range.
        let attr = unsafe { sys::llama_vocab_get_attr(self.vocab(), token.cast_signed()) };
        if attr & sys::LLAMA_TOKEN_ATTR_CONTROL != 0 {
            TokenKind::Control
        } else if attr & sys::LLAMA_TOKEN_ATTR_UNKNOWN != 0 {
            TokenKind::Unknown
        } else if attr & sys::LLAMA_TOKEN_ATTR_USER_DEFINED != 0 {
            TokenKind::UserDefined
        } else {
            TokenKind::Ordinary
        }
    }

    /// Appends the bytes that the token stands for, control tokens spelled out.
    pub(crate) fn piece(&self, token: u32, out: &mut Vec<u8>) {
        if token >= self.n_vocab() {
            return;
        }
        let mut buffer = [0_u8; 256];
        let n = self.piece_into(token, &mut buffer);
        match usize::try_from(n) {
            Ok(n) => out.extend_from_slice(&buffer[..n.min(buffer.len())]),
            Err(_) => {
                let mut buffer = vec![0_u8; n.unsigned_abs() as usize];
                let n = usize::try_from(self.piece_into(token, &mut buffer)).unwrap_or(0);
                out.extend_from_slice(&buffer[..n.min(buffer.len())]);
            }
        }
    }

    fn piece_into(&self, token: u32, buffer: &mut [u8]) -> i32 {
        // SAFETY: the id is in range (checked by the caller); at most `len` bytes are written.
        unsafe {
            sys::llama_token_to_piece(
                self.vocab(),
                token.cast_signed(),
                buffer.as_mut_ptr().cast::<c_char>(),
                i32::try_from(buffer.len()).unwrap_or(i32::MAX),
                0,
                true,
            )
        }
    }

    /// Appends the tokens of `text`; `parse_control` decides whether control tokens spelled
    /// in it are recognised. Adds neither a begin nor an end token. Texts of 2 GiB and more
    /// are refused (`None`).
    pub(crate) fn tokenize(
        &self,
        text: &str,
        parse_control: bool,
        out: &mut Vec<u32>,
    ) -> Option<()> {
        if text.is_empty() {
            return Some(());
        }
        let text_len = i32::try_from(text.len()).ok()?;
        let mut room = text.len() + 8;
        for _ in 0..2 {
            let mut tokens = vec![0_i32; room];
            // SAFETY: text and buffer are valid for the lengths given.
            let n = unsafe {
                sys::llama_tokenize(
                    self.vocab(),
                    text.as_ptr().cast::<c_char>(),
                    text_len,
                    tokens.as_mut_ptr(),
                    i32::try_from(tokens.len()).unwrap_or(i32::MAX),
                    false,
                    parse_control,
                )
            };
            if let Ok(n) = usize::try_from(n) {
                out.extend(
                    tokens[..n.min(tokens.len())]
                        .iter()
                        .map(|t| t.cast_unsigned()),
                );
                return Some(());
            }
            if n == i32::MIN {
                return None;
            }
            room = n.unsigned_abs() as usize;
        }
        None
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: contexts hold an `Arc` of the model, so none is left.
        unsafe { sys::llama_model_free(self.ptr.as_ptr()) };
    }
}
