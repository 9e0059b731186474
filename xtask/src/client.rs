//! A small HTTP client: whole JSON answers, and event streams of which it stamps each event with
//! the time it arrived.
//!
//! Written here because a measuring client must add nothing: no pool, no runtime, no buffering.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// No event may take longer.
const IDLE_LIMIT: Duration = Duration::from_secs(900);

/// One event of a stream.
pub(crate) struct Event {
    pub(crate) at: Instant,
    /// The `event:` line; empty if there was none.
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// Posts a body and hands on each event whose data is JSON, until the server ends the stream.
pub(crate) fn post(
    address: &str,
    path: &str,
    body: &Value,
    mut handle: impl FnMut(Event) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    read_events(open(address, path, body)?, &mut handle)
}

/// Posts a body and gives the JSON that comes back.
pub(crate) fn post_whole(address: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
    let mut answer = String::new();
    open(address, path, body)?.read_to_string(&mut answer)?;
    serde_json::from_str(&answer).context("the server's answer is no JSON")
}

/// Posts a body and gives the answer's, which ends with the connection.
fn open(address: &str, path: &str, body: &Value) -> anyhow::Result<Box<dyn BufRead>> {
    let mut socket =
        TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(IDLE_LIMIT))?;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes())?;
    let mut reader = BufReader::new(socket);
    if !read_head(&mut reader)? {
        return Ok(Box::new(reader));
    }
    Ok(Box::new(BufReader::new(Chunked {
        inner: reader,
        left: 0,
        ended: false,
    })))
}

/// Reads status and headers; true if the body is chunked.
fn read_head(reader: &mut impl BufRead) -> anyhow::Result<bool> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut chunked = false;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
    }
    if status != "200" {
        let mut rest = Vec::new();
        reader.take(2000).read_to_end(&mut rest)?;
        bail!(
            "the server answered {status}: {}",
            String::from_utf8_lossy(&rest).trim()
        );
    }
    Ok(chunked)
}

fn read_events(
    mut reader: impl BufRead,
    handle: &mut impl FnMut(Event) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut name = String::new();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let at = Instant::now();
        if let Some(value) = line.strip_prefix("event:") {
            value.trim().clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data:") {
            // `[DONE]` and the like carry nothing.
            if let Ok(data) = serde_json::from_str(data.trim()) {
                handle(Event {
                    at,
                    name: std::mem::take(&mut name),
                    data,
                })?;
            }
        }
        line.clear();
    }
    Ok(())
}

/// Takes the framing off a chunked body.
struct Chunked<R> {
    inner: R,
    left: usize,
    ended: bool,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.ended {
            self.next_chunk()?;
        }
        if self.ended {
            return Ok(0);
        }
        let room = buffer.len().min(self.left);
        let n_bytes = self.inner.read(&mut buffer[..room])?;
        self.left -= n_bytes;
        self.ended |= n_bytes == 0;
        Ok(n_bytes)
    }
}

impl<R: BufRead> Chunked<R> {
    fn next_chunk(&mut self) -> std::io::Result<()> {
        let mut line = String::new();
        // The line end after the chunk before stands in front of the size.
        while line.trim().is_empty() {
            line.clear();
            if self.inner.read_line(&mut line)? == 0 {
                self.ended = true;
                return Ok(());
            }
        }
        let size = line.trim().split(';').next().unwrap_or_default();
        self.left = usize::from_str_radix(size, 16)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        self.ended = self.left == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_may_cut_an_event_anywhere() {
        let body = "event: text\ndata: {\"a\": 1}\n\ndata: [DONE]\n\ndata: {\"b\": 2}\n\n";
        for n_bytes in 1..body.len() {
            let mut framed = Vec::new();
            for piece in body.as_bytes().chunks(n_bytes) {
                framed.extend(format!("{:x}\r\n", piece.len()).as_bytes());
                framed.extend(piece);
                framed.extend(b"\r\n");
            }
            framed.extend(b"0\r\n\r\n");
            let chunked = Chunked {
                inner: framed.as_slice(),
                left: 0,
                ended: false,
            };
            let mut seen = Vec::new();
            let mut handle = |event: Event| {
                seen.push((event.name, event.data.to_string()));
                Ok(())
            };
            read_events(BufReader::new(chunked), &mut handle).unwrap();
            let expect = [("text", "{\"a\":1}"), ("", "{\"b\":2}")];
            let expect = expect.map(|(name, data)| (name.to_owned(), data.to_owned()));
            assert_eq!(seen, expect, "chunks of {n_bytes} bytes");
        }
    }

    #[test]
    fn a_status_that_is_no_success_is_an_error() {
        let mut reply = &b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno"[..];
        let error = read_head(&mut reply).unwrap_err();
        assert_eq!(error.to_string(), "the server answered 503: no");
        let mut reply = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
        assert!(read_head(&mut reply).unwrap());
    }
}
