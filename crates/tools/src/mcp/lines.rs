//! The lines of a tool server's program, none of them too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

/// Longest message that is taken, in bytes. Half of what `rmcp` drops without a word.
pub(super) const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// What a call whose answer is longer fails with; JSON-RPC leaves these numbers to programs.
pub(super) const TOO_LARGE: ErrorCode = ErrorCode(-32099);

/// Longest id of a message that is answered, in bytes.
const MAX_ID_BYTES: usize = 256;

/// What is read at once, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// JSON messages, one per line, in which an answer that is too long becomes an error with the
/// same id: its call then ends at once. Of a longer line the rest is read and forgotten; its
/// beginning is no message, which the reader passes over.
pub(super) struct Lines<R> {
    inner: R,
    /// What may be read, from `n_read` on.
    out: Vec<u8>,
    n_read: usize,
    n_line_bytes: usize,
    head: MessageHead,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            out: Vec::new(),
            n_read: 0,
            n_line_bytes: 0,
            head: MessageHead::default(),
        }
    }

    fn push(&mut self, byte: u8) {
        if byte != b'\n' {
            self.head.push(byte);
            self.n_line_bytes += 1;
            match self.n_line_bytes {
                n if n <= MAX_MESSAGE_BYTES => self.out.push(byte),
                n if n == MAX_MESSAGE_BYTES + 1 => self.out.push(b'\n'),
                _ => {}
            }
            return;
        }
        let head = std::mem::take(&mut self.head);
        let n_bytes = std::mem::take(&mut self.n_line_bytes);
        if n_bytes <= MAX_MESSAGE_BYTES {
            self.out.push(byte);
        } else if let Some(id) = head.answered_id() {
            let message = format!("the answer has {n_bytes} bytes, at most {MAX_MESSAGE_BYTES}");
            let error = json!({"code": TOO_LARGE.0, "message": message});
            let error = json!({"jsonrpc": "2.0", "id": id, "error": error});
            self.out.extend(format!("{error}\n").into_bytes());
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.n_read == self.out.len() {
            self.out.clear();
            self.n_read = 0;
            let mut chunk = [0; CHUNK_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            chunk.filled().iter().for_each(|byte| self.push(*byte));
        }
        let n_bytes = into.remaining().min(self.out.len() - self.n_read);
        let end = self.n_read + n_bytes;
        into.put_slice(&self.out[self.n_read..end]);
        self.n_read = end;
        Poll::Ready(Ok(()))
    }
}

/// The id of a JSON message, wherever it stands in it, without keeping the message.
#[derive(Default)]
struct MessageHead {
    n_open: usize,
    in_string: bool,
    escaped: bool,
    /// The last string or number of the message itself, as it stands.
    token: Vec<u8>,
    /// The member whose value is being read.
    key: Vec<u8>,
    id: Option<Vec<u8>>,
    /// True if it asks for something: its id is then the other side's.
    is_request: bool,
}

impl MessageHead {
    fn push(&mut self, byte: u8) {
        let is_own = self.n_open == 1;
        if self.in_string {
            self.keep(is_own, byte);
            if self.escaped {
                self.escaped = false;
            } else {
                self.escaped = byte == b'\\';
                self.in_string = byte != b'"';
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(is_own, byte);
            }
            b'{' | b'[' => self.n_open += 1,
            b'}' | b']' => {
                if is_own {
                    self.end_member();
                }
                self.n_open = self.n_open.saturating_sub(1);
            }
            b':' if is_own => self.key = std::mem::take(&mut self.token),
            b',' if is_own => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(is_own, byte),
        }
    }

    fn keep(&mut self, is_own: bool, byte: u8) {
        // One byte over the limit shows that it is too long.
        if is_own && self.token.len() <= MAX_ID_BYTES {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        let value = std::mem::take(&mut self.token);
        match self.key.as_slice() {
            b"\"id\"" => self.id = Some(value),
            b"\"method\"" => self.is_request = true,
            _ => {}
        }
        self.key.clear();
    }

    /// The id of the request that this message answers.
    fn answered_id(self) -> Option<Value> {
        let id = self
            .id
            .filter(|id| !self.is_request && id.len() <= MAX_ID_BYTES)?;
        let id: Value = serde_json::from_slice(&id).ok()?;
        (id.is_number() || id.is_string()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_wherever_they_stand() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, Some(json!(3))),
            (
                r#"{"result":{"id":4,"a":[{"id":5}]},"id": 6 }"#,
                Some(json!(6)),
            ),
            (
                r#"{"result":"\",\"id\":4","id":"a\"b"}"#,
                Some(json!("a\"b")),
            ),
            (r#"{"id":1,"method":"ping"}"#, None),
            (r#"{"method":"x","params":{"id":1}}"#, None),
            (r#"{"id":null,"error":{}}"#, None),
            (r#"{"id":{"a":1},"result":{}}"#, None),
            (r#"[{"id":1}]"#, None),
            ("}}]],,::\"", None),
            ("", None),
        ];
        for (line, expect) in cases {
            let mut head = MessageHead::default();
            line.bytes().for_each(|byte| head.push(byte));
            assert_eq!(head.answered_id(), expect, "{line}");
        }
    }
}
