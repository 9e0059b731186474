use serde_json::{Value, json};
use twopass_core::calendar::civil_date;
use twopass_core::chat::{Event, Reply, StopReason, Usage};

use super::request::encode_call;
use crate::calls::Fragment;
use crate::error::ErrorBody;
use crate::fault::Fault;
use crate::json::{Lenient, Object, array, string};
use crate::openai_chat::read_stop;
use crate::request::{DecodeContext, ReplyMeta};
use crate::turn::Turn;

/// Reads a whole answer. It is read as a stream of one line, so that both agree.
///
/// # Errors
/// The body is not JSON, is an error, or has no message.
pub fn decode_reply(body: &[u8], context: DecodeContext) -> Result<Reply, Fault> {
    let mut decoder = StreamDecoder::new(context);
    decoder.push_whole(body, &mut Vec::new())?;
    decoder.finish(&mut Vec::new())
}

/// Reads a streamed answer, line by line.
///
/// Text is handed on raw: it may hold think tags and call markup. Calls come whole, mostly
/// without ids; every entry is one call.
#[derive(Debug)]
pub struct StreamDecoder {
    turn: Turn,
    n_calls: u64,
    stop: Option<StopReason>,
    done: bool,
}

impl StreamDecoder {
    /// A decoder for the answer to a request with this context.
    #[must_use]
    pub fn new(context: DecodeContext) -> Self {
        Self {
            turn: Turn::new(context),
            n_calls: 0,
            stop: None,
            done: false,
        }
    }

    /// What came so far, for use after an error; it holds no calls.
    #[must_use]
    pub fn partial(&self) -> &Reply {
        self.turn.partial()
    }

    /// True once the last line came.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one line and appends what it says.
    ///
    /// # Errors
    /// The line is an error, or it cannot be read.
    pub fn push(&mut self, line: &str, out: &mut Vec<Event>) -> Result<(), Fault> {
        let line = line.trim();
        if line.is_empty() || self.done {
            return Ok(());
        }
        let fields = Lenient::read(line).ok_or_else(|| Fault::not_json(line.as_bytes()))?;
        self.take(line, &fields, out)
    }

    /// Reads a whole answer, also one that came although a stream was asked for.
    ///
    /// # Errors
    /// The body is not JSON, is an error, or has no message.
    pub fn push_whole(&mut self, body: &[u8], out: &mut Vec<Event>) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::not_json(body))?;
        let fields = Lenient::read(text).ok_or_else(|| Fault::not_json(body))?;
        self.take(text, &fields, out)?;
        if fields.raw("message").is_none() {
            return Err(Fault::invalid("the answer has no `message`"));
        }
        self.done = true;
        Ok(())
    }

    fn take(
        &mut self,
        line: &str,
        fields: &Lenient<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        if fields.raw("error").is_some() {
            return Err(Fault::from_json(line)
                .unwrap_or_else(|| Fault::invalid("an error of unknown form came")));
        }
        if let Some(message) = fields.object("message") {
            self.take_message(&message, out)?;
        }
        if let Some(count) = fields.count("prompt_eval_count") {
            self.turn.usage().prompt_tokens = count;
        }
        if let Some(count) = fields.count("eval_count") {
            self.turn.usage().response_tokens = count;
        }
        if fields.flag("done") == Some(true) {
            self.done = true;
            self.stop = fields
                .text("done_reason")
                .and_then(|reason| read_stop(&reason, None));
        }
        Ok(())
    }

    fn take_message(&mut self, message: &Lenient<'_>, out: &mut Vec<Event>) -> Result<(), Fault> {
        for name in ["thinking", "reasoning_content", "reasoning"] {
            let Some(raw) = message.raw(name) else {
                continue;
            };
            // Row G9: anything but text is refused, not turned into text.
            let text =
                string(raw).ok_or_else(|| Fault::invalid(format!("`{name}` must be text")))?;
            self.turn.reasoning(&text, out);
            if !text.is_empty() {
                break;
            }
        }
        self.turn
            .text(&message.text("content").unwrap_or_default(), out);
        for call in message.list("tool_calls") {
            let Some(call) = Lenient::read(call) else {
                continue;
            };
            let function = call.object("function");
            let fields = function.as_ref().unwrap_or(&call);
            let fragment = Fragment {
                index: Some(self.n_calls),
                id: call.text("id"),
                name: fields.text("name"),
                arguments: fields.raw("arguments"),
                extra: None,
            };
            self.n_calls += 1;
            self.turn.call(fragment, out);
        }
        Ok(())
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// The last line did not come (case rule 16); what came is in
    /// [`StreamDecoder::partial`].
    pub fn finish(&mut self, out: &mut Vec<Event>) -> Result<Reply, Fault> {
        if !self.done {
            return Err(Fault::truncated());
        }
        let stop = self.stop.take().unwrap_or(StopReason::EndTurn);
        Ok(self.turn.finish(stop, out))
    }
}

/// Writes a whole answer: the server side. `created_at` is the time of `meta` in RFC 3339.
#[must_use]
pub fn encode_reply(reply: &Reply, meta: &ReplyMeta) -> String {
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| encode_call(&call.id, &call.name, call.arguments.as_text()))
        .collect();
    let message = message(&reply.content, &reply.reasoning, &calls);
    line(meta, &message, Some(reply))
}

fn message(content: &str, thinking: &str, calls: &[String]) -> String {
    let mut object = Object::default();
    object.text("role", "assistant");
    object.text("content", content);
    if !thinking.is_empty() {
        object.text("thinking", thinking);
    }
    if !calls.is_empty() {
        object.raw("tool_calls", &array(calls));
    }
    object.finish()
}

fn line(meta: &ReplyMeta, message: &str, end: Option<&Reply>) -> String {
    let mut object = Object::default();
    object.text("model", &meta.model);
    object.text("created_at", &rfc3339(meta.created_s));
    object.raw("message", message);
    match end {
        None => object.raw("done", "false"),
        Some(reply) => {
            object.raw("done", "true");
            let reason = match reply.stop_reason {
                StopReason::Length => "length",
                _ => "stop",
            };
            object.text("done_reason", reason);
            let Usage {
                prompt_tokens,
                thinking_tokens,
                response_tokens,
                ..
            } = reply.usage;
            object.count("prompt_eval_count", prompt_tokens);
            object.count("eval_count", thinking_tokens + response_tokens);
        }
    }
    object.finish()
}

/// Seconds since 1970 as a date with its time.
fn rfc3339(unix_s: u64) -> String {
    let days = i64::try_from(unix_s / 86_400).unwrap_or_default();
    let (year, month, day) = civil_date(days);
    let second = unix_s % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Writes a turn's events as JSON lines: the server side. Calls come whole, as clients of
/// this wire expect them. `Reclassified` has no form here.
#[derive(Debug)]
pub struct StreamEncoder {
    meta: ReplyMeta,
    block_ended: bool,
}

impl StreamEncoder {
    /// An encoder at the start of a turn.
    #[must_use]
    pub fn new(meta: ReplyMeta) -> Self {
        Self {
            meta,
            block_ended: false,
        }
    }

    /// Appends what this event adds to the stream, perhaps nothing.
    pub fn encode(&mut self, event: &Event, out: &mut String) {
        let message = match event {
            Event::ReasoningDelta(text) if std::mem::take(&mut self.block_ended) => {
                message("", &format!("\n{text}"), &[])
            }
            Event::ReasoningDelta(text) => message("", text, &[]),
            Event::ReasoningBlockEnd => {
                self.block_ended = true;
                return;
            }
            Event::TextDelta(text) => message(text, "", &[]),
            Event::CallFinished { call, .. } => message(
                "",
                "",
                &[encode_call(&call.id, &call.name, call.arguments.as_text())],
            ),
            _ => return,
        };
        out.push_str(&line(&self.meta, &message, None));
        out.push('\n');
    }

    /// Appends the last line.
    pub fn encode_done(&mut self, reply: &Reply, out: &mut String) {
        out.push_str(&line(&self.meta, &message("", "", &[]), Some(reply)));
        out.push('\n');
    }

    /// Appends an error as the last line of a turn that failed.
    pub fn encode_error(&mut self, error: &ErrorBody, out: &mut String) {
        let body: Value = json!({"error": error.message});
        out.push_str(&body.to_string());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_792_567_680, "2026-10-21T07:28:00Z"),
        ] {
            assert_eq!(rfc3339(unix_s), text);
        }
    }
}
