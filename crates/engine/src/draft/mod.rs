//! Where guesses of the next tokens come from.
//!
//! A guess is computed along with the token before it and kept if the draw is equal to it, so
//! none changes what is drawn. `turn/ahead` has the other half: what becomes of a guess.

mod model;
mod prompt_lookup;

pub(crate) use model::{DraftModel, Wanted};
pub(crate) use prompt_lookup::PromptLookup;

use crate::ffi::Model;
use crate::vocab::Vocab;
use crate::{EngineOptions, Error};

/// What an engine guesses with.
#[derive(Debug)]
pub(crate) struct Guessing {
    /// Most tokens by what stood before, per stream and step.
    pub(crate) lookup_tokens: u32,
    /// The model that guesses where nothing stood before.
    pub(crate) model: Option<DraftModel>,
}

impl Guessing {
    /// What these options name, as far as the model can take guesses back.
    ///
    /// # Errors
    /// `BadOption` says why there can be no draft model.
    pub(crate) fn open(
        options: &EngineOptions,
        model: &Model,
        vocab: &Vocab,
    ) -> Result<Self, Error> {
        let can_cut = !model.is_stateful() && model.sliding_window() == 0;
        let draft = options.draft_model.as_deref();
        if draft.is_some() && !can_cut {
            let text = "the model keeps a running state or a sliding window, so that no guess \
                        can be taken back";
            return Err(Error::bad_option("draft_model", text.to_owned()));
        }
        let draft = draft.map(|path| DraftModel::load(options, path, vocab));
        Ok(Self {
            lookup_tokens: if can_cut {
                options.prompt_lookup_tokens
            } else {
                0
            },
            model: draft.transpose()?,
        })
    }

    /// Most tokens of one guess.
    pub(crate) fn limit_tokens(&self) -> u32 {
        let model = self.model.as_ref().map_or(0, DraftModel::limit_tokens);
        self.lookup_tokens.max(model)
    }
}
