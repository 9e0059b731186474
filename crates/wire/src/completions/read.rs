use twopass_core::chat::{StopReason, Usage};

use super::{Completion, CompletionPiece};
use crate::fault::Fault;
use crate::json::Lenient;
use crate::openai_chat::{read_stop, read_usage};
use crate::sse::SseEvent;

/// Reads a whole answer of either route. It is read as a stream of one piece, so that both
/// agree.
///
/// # Errors
/// The body is not JSON, is an error, or holds no completion.
pub fn decode_reply(body: &[u8]) -> Result<Completion, Fault> {
    let mut decoder = StreamDecoder::new();
    decoder.push_whole(body, &mut Vec::new())?;
    decoder.finish()
}

/// Reads a streamed answer of either route, event by event. The first choice is followed.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    whole: Completion,
    choice: Option<u64>,
    stop: Option<StopReason>,
    done: bool,
}

impl StreamDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What came so far, for use after an error.
    #[must_use]
    pub fn partial(&self) -> &Completion {
        &self.whole
    }

    /// True once the end marker came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one event and appends the piece that it brings, if any.
    ///
    /// # Errors
    /// The event is an error or holds one, or it cannot be read.
    pub fn push(&mut self, event: &SseEvent, out: &mut Vec<CompletionPiece>) -> Result<(), Fault> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
        }
        if data.is_empty() || data.starts_with(':') || self.done {
            return Ok(());
        }
        self.push_json(data, event.event == "error", out)
    }

    /// Reads a whole answer, also one that came although a stream was asked for.
    ///
    /// # Errors
    /// The body is not JSON, is an error, or holds no completion.
    pub fn push_whole(&mut self, body: &[u8], out: &mut Vec<CompletionPiece>) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        self.push_json(text, false, out)?;
        if self.choice.is_none() {
            return Err(Fault::invalid("the answer holds no completion"));
        }
        self.done = true;
        Ok(())
    }

    fn push_json(
        &mut self,
        data: &str,
        is_error: bool,
        out: &mut Vec<CompletionPiece>,
    ) -> Result<(), Fault> {
        let fields = Lenient::read(data).ok_or_else(|| Fault::not_json(data.as_bytes()))?;
        if is_error || fields.raw("error").is_some() {
            return Err(Fault::from_json(data)
                .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
        }
        if let Some(usage) = fields.object("usage") {
            self.whole.usage = read_usage(&usage);
        }
        // An engine that reports its reuse beside the usage.
        if let Some(cached) = fields
            .object("timings")
            .and_then(|timings| timings.count("cache_n"))
        {
            self.whole.usage.cached_tokens = cached;
        }
        if fields.raw("choices").is_some() {
            for choice in fields.list("choices") {
                if let Some(choice) = Lenient::read(choice) {
                    self.take_choice(&choice, out);
                }
            }
        } else if fields.raw("content").is_some() {
            self.take_native(&fields, out);
        }
        Ok(())
    }

    fn take_choice(&mut self, choice: &Lenient<'_>, out: &mut Vec<CompletionPiece>) {
        let index = choice.count("index").unwrap_or(0);
        if *self.choice.get_or_insert(index) != index {
            return;
        }
        let prompt_ids = ids(choice, "prompt_token_ids");
        if !prompt_ids.is_empty() {
            self.whole.prompt_token_ids = prompt_ids;
        }
        let text = choice.text("text").unwrap_or_default();
        self.take(text, ids(choice, "token_ids"), out);
        if let Some(reason) = choice.text("finish_reason") {
            self.stop = read_stop(&reason, choice.text("stop_reason"));
        }
    }

    /// llama.cpp's own shape.
    fn take_native(&mut self, fields: &Lenient<'_>, out: &mut Vec<CompletionPiece>) {
        self.choice = Some(0);
        let text = fields.text("content").unwrap_or_default();
        let new_ids = ids(fields, "tokens");
        if fields.flag("stop") != Some(true) {
            self.take(text, new_ids, out);
            return;
        }
        self.take(text, new_ids, out);
        let count = |name: &str| fields.count(name).unwrap_or(0);
        self.whole.usage = Usage {
            prompt_tokens: count("tokens_evaluated"),
            response_tokens: count("tokens_predicted"),
            ..self.whole.usage
        };
        self.stop = Some(match fields.text("stop_type").as_deref() {
            Some("limit") => StopReason::Length,
            Some("word") => match fields.text("stopping_word") {
                Some(word) => StopReason::StopSequence(word),
                None => StopReason::EndTurn,
            },
            Some("eos" | "none") | None => StopReason::EndTurn,
            Some(other) => StopReason::Unknown(other.to_owned()),
        });
        self.done = true;
    }

    fn take(&mut self, text: String, token_ids: Vec<u32>, out: &mut Vec<CompletionPiece>) {
        if text.is_empty() && token_ids.is_empty() {
            return;
        }
        self.whole.text.push_str(&text);
        self.whole.token_ids.extend_from_slice(&token_ids);
        out.push(CompletionPiece {
            text,
            token_ids,
            ..CompletionPiece::default()
        });
    }

    /// Ends the completion.
    ///
    /// # Errors
    /// Neither a finish reason nor the end marker came; what came is in
    /// [`StreamDecoder::partial`].
    pub fn finish(&mut self) -> Result<Completion, Fault> {
        if self.stop.is_none() && !self.done {
            return Err(Fault::truncated());
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.stop_reason = self.stop.take().unwrap_or_default();
        whole.usage.response_tokens += whole.usage.thinking_tokens;
        whole.usage.thinking_tokens = 0;
        Ok(whole)
    }
}

/// Token ids of a field; empty if it is no array of ids.
pub(super) fn ids(fields: &Lenient<'_>, name: &str) -> Vec<u32> {
    fields
        .raw(name)
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_default()
}
