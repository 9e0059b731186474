use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::{Answer, End, Framing, Pace, Step};

/// The most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A loopback port that hands out exchanges one by one.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// One request, read whole, and the connection that waits for its answer.
#[derive(Debug)]
pub struct Exchange {
    /// What was asked.
    pub request: Request,
    /// Where the answer goes.
    pub connection: Connection,
}

/// One request as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Listener {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none.
    pub async fn bind() -> io::Result<Self> {
        Self::bind_to(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Listens where a server was before.
    ///
    /// # Errors
    /// The port is not free.
    pub async fn bind_to(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The next connection, nothing read yet.
    ///
    /// # Errors
    /// The socket is gone.
    pub async fn accept(&self) -> io::Result<Connection> {
        let (stream, _) = self.0.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// The next connection with its first request.
    ///
    /// # Errors
    /// The connection broke or did not speak HTTP/1.1.
    pub async fn exchange(&self) -> io::Result<Exchange> {
        let mut connection = self.accept().await?;
        let request = connection.read_request().await?;
        let request = request.ok_or_else(|| bad("the connection ended before its request"))?;
        Ok(Exchange {
            request,
            connection,
        })
    }
}

/// One accepted connection.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// The next request; `None` if the client has closed.
    ///
    /// # Errors
    /// The connection broke or did not speak HTTP/1.1.
    pub async fn read_request(&mut self) -> io::Result<Option<Request>> {
        let Some(line) = self.read_line().await? else {
            return Ok(None);
        };
        let mut words = line.split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1")) =
            (words.next(), words.next(), words.next())
        else {
            return Err(bad("the request line is not one of HTTP/1.1"));
        };
        let mut request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            ..Request::default()
        };
        loop {
            let line = self.read_line().await?;
            let line = line.ok_or_else(|| bad("the head broke off"))?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| bad("a header has no colon"))?;
            request
                .headers
                .push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if let Some(length) = request.header("content-length") {
            let length = length.parse().map_err(|_| bad("the length is no number"))?;
            request.body = vec![0; length];
            self.0.read_exact(&mut request.body).await?;
        } else if request.header("transfer-encoding").is_some() {
            return Err(bad("chunked requests are not read"));
        }
        Ok(Some(request))
    }

    /// A line of a head without its end; `None` at the end of the input.
    async fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let limit = u64::try_from(MAX_HEAD_BYTES).unwrap_or(u64::MAX);
        let mut limited = (&mut self.0).take(limit);
        if limited.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8(line).map_err(|_| bad("the head is not UTF-8"))?;
        match text.strip_suffix('\n') {
            Some(line) => Ok(Some(line.trim_end_matches('\r').to_owned())),
            None => Err(bad("a line of the head broke off or is too long")),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The client has gone.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.get_mut().write_all(bytes.as_ref()).await
    }

    /// Plays an answer. True if the connection can carry another request.
    ///
    /// # Errors
    /// The client has gone, or the answer ended in the reset that it asked for.
    pub async fn play(&mut self, answer: &Answer, pace: Pace) -> io::Result<bool> {
        let head = head_of(answer);
        let mut out = Out {
            connection: self,
            pace,
            body_bytes_left: None,
        };
        out.send(&head).await?;
        out.body_bytes_left = answer.cut_after;
        let mut body = Body::new(answer);
        for step in &answer.steps {
            match step {
                Step::Send(bytes) => out.send(&body.encode(bytes)?).await?,
                Step::Repeat(bytes, times) => {
                    for _ in 0..*times {
                        out.send(&body.encode(bytes)?).await?;
                    }
                }
                Step::Wait(time) => out.connection.wait(*time).await?,
            }
        }
        if answer.end == End::Abrupt {
            return Err(self.reset());
        }
        out.send(&body.finish()?).await?;
        if answer.framing == Framing::Close {
            self.close().await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The head of an event stream that ends with the connection.
    ///
    /// # Errors
    /// The client has gone.
    pub async fn begin_stream(&mut self) -> io::Result<()> {
        let answer = Answer::events([""]).framed(Framing::Close);
        self.write(head_of(&answer)).await
    }

    /// Waits, but not longer than the client stays.
    ///
    /// # Errors
    /// The client has gone.
    pub async fn wait(&mut self, time: Duration) -> io::Result<()> {
        match tokio::time::timeout(time, self.0.fill_buf()).await {
            Err(_) => Ok(()),
            Ok(Ok([])) => Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(Ok(_)) => Err(bad("more came before the answer was over")),
            Ok(Err(error)) => Err(error),
        }
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// The client has gone.
    pub async fn close(&mut self) -> io::Result<()> {
        self.0.get_mut().shutdown().await
    }

    /// Waits until the client has closed.
    pub async fn gone(mut self) {
        let mut rest = Vec::new();
        // A reset is a close too.
        let _ = self.0.read_to_end(&mut rest).await;
    }

    /// Makes the end of this connection a reset instead of a close.
    fn reset(&mut self) -> io::Error {
        match self.0.get_ref().set_zero_linger() {
            Ok(()) => io::ErrorKind::ConnectionReset.into(),
            Err(error) => error,
        }
    }
}

/// Bytes on their way out.
struct Out<'c> {
    connection: &'c mut Connection,
    pace: Pace,
    /// How many may still leave before the connection is dropped.
    body_bytes_left: Option<usize>,
}

impl Out<'_> {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let n = self.body_bytes_left.unwrap_or(usize::MAX).min(bytes.len());
        let (sent, cut) = bytes.split_at(n);
        match self.pace {
            Pace::Whole => self.connection.write(sent).await?,
            Pace::OneByte => {
                for byte in sent {
                    self.connection.write([*byte]).await?;
                    // The reader gets a turn, so that it sees the byte alone.
                    tokio::task::yield_now().await;
                }
            }
        }
        if let Some(left) = &mut self.body_bytes_left {
            *left -= n;
        }
        if cut.is_empty() && self.body_bytes_left != Some(0) {
            return Ok(());
        }
        Err(self.connection.reset())
    }
}

/// A body's content and transfer coding.
struct Body {
    gzip: Option<GzEncoder<Vec<u8>>>,
    framing: Framing,
}

impl Body {
    fn new(answer: &Answer) -> Self {
        Self {
            gzip: answer
                .gzip
                .then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            framing: answer.framing,
        }
    }

    fn encode(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let coded = match &mut self.gzip {
            None => bytes.to_vec(),
            Some(encoder) => {
                encoder.write_all(bytes)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
        };
        Ok(self.frame(coded))
    }

    fn frame(&self, bytes: Vec<u8>) -> Vec<u8> {
        if self.framing != Framing::Chunked || bytes.is_empty() {
            return bytes;
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend(bytes);
        chunk.extend(b"\r\n");
        chunk
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        let mut end = match self.gzip.take() {
            None => Vec::new(),
            Some(encoder) => self.frame(encoder.finish()?),
        };
        if self.framing == Framing::Chunked {
            end.extend(b"0\r\n\r\n");
        }
        Ok(end)
    }
}

fn head_of(answer: &Answer) -> Vec<u8> {
    let Some(status) = answer.status else {
        return Vec::new();
    };
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    let mut header = |name: &str, value: &str| {
        head.push_str(&format!("{name}: {value}\r\n"));
    };
    for (name, value) in &answer.headers {
        if !value.is_empty() {
            header(name, value);
        }
    }
    if answer.gzip {
        header("content-encoding", "gzip");
    }
    match answer.framing {
        Framing::Chunked => header("transfer-encoding", "chunked"),
        Framing::Close => header("connection", "close"),
        Framing::Length => header("content-length", &length_of(answer).to_string()),
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The length of the body as it will be sent.
fn length_of(answer: &Answer) -> usize {
    if !answer.gzip {
        let lens = answer.steps.iter().map(|step| match step {
            Step::Send(bytes) => bytes.len(),
            Step::Repeat(bytes, times) => bytes.len() * times,
            Step::Wait(_) => 0,
        });
        return lens.sum();
    }
    let mut body = Body::new(answer);
    let mut len = 0;
    for step in &answer.steps {
        let (bytes, times) = match step {
            Step::Send(bytes) => (bytes, 1),
            Step::Repeat(bytes, times) => (bytes, *times),
            Step::Wait(_) => continue,
        };
        for _ in 0..times {
            len += body.encode(bytes).map_or(0, |coded| coded.len());
        }
    }
    len + body.finish().map_or(0, |end| end.len())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
