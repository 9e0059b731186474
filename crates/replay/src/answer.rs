use std::time::Duration;

use serde_json::Value;

/// One answer: a head and the steps of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status; `None` sends no head at all, only the steps.
    pub status: Option<u16>,
    /// Headers beside those of the framing, as they are sent.
    pub headers: Vec<(String, String)>,
    /// The body, in order.
    pub steps: Vec<Step>,
    /// How the client can tell where the body ends.
    pub framing: Framing,
    /// True: the body is sent compressed, each step flushed.
    pub gzip: bool,
    /// What follows the last step.
    pub end: End,
    /// Stop after this many bytes of the body as it is framed, and drop the connection.
    pub cut_after: Option<usize>,
}

/// A part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These bytes, in one write.
    Send(Vec<u8>),
    /// These bytes so many times, for bodies that are larger than memory should be.
    Repeat(Vec<u8>, usize),
    /// Nothing for so long; ends at once when the client goes away.
    Wait(Duration),
}

/// How a client can tell where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `content-length`, and the connection is kept.
    Length,
    /// `transfer-encoding: chunked`, one chunk per step, and the connection is kept.
    Chunked,
    /// The body ends with the connection.
    Close,
}

/// What follows the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end that the framing asks for.
    Clean,
    /// The connection is reset in the middle of the body.
    Abrupt,
}

impl Answer {
    /// An answer of this status with a whole body.
    #[must_use]
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Some(status),
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            steps: vec![Step::Send(body.into())],
            framing: Framing::Length,
            gzip: false,
            end: End::Clean,
            cut_after: None,
        }
    }

    /// A JSON answer.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// A chunked event stream of these pieces.
    #[must_use]
    pub fn events(pieces: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        Self {
            steps: pieces
                .into_iter()
                .map(|piece| Step::Send(piece.into()))
                .collect(),
            framing: Framing::Chunked,
            ..Self::new(200, "text/event-stream", "")
        }
    }

    /// Bytes without any head.
    #[must_use]
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            status: None,
            headers: Vec::new(),
            framing: Framing::Close,
            ..Self::new(200, "", bytes)
        }
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With one more step.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// With this framing.
    #[must_use]
    pub fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// The body's bytes as the steps give them, whatever the framing.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for step in &self.steps {
            match step {
                Step::Send(bytes) => body.extend_from_slice(bytes),
                Step::Repeat(bytes, times) => body.extend(bytes.repeat(*times)),
                Step::Wait(_) => {}
            }
        }
        body
    }

    /// Reads an `upstream` entry of a case file: `status`, `headers`, and one of `body`
    /// (JSON), `text`, `sse`, `steps` (`{delay_ms, text}`, `{repeat: [text, times]}`,
    /// `{hang_ms}`, `{close: "abrupt"}`), `steps_hex`, `raw` (no head). Also `framing`
    /// (`length`, `chunked`, `close`), `gzip`, `cut_after`.
    ///
    /// # Errors
    /// Names the key that is wrong.
    pub fn from_json(entry: &Value) -> Result<Self, String> {
        let status = match entry.get("status") {
            None => 200,
            Some(status) => status
                .as_u64()
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| (100..600).contains(status))
                .ok_or_else(|| format!("`status` is {status}"))?,
        };
        let mut answer = Self {
            headers: headers(entry)?,
            ..Self::new(status, "", "")
        };
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        if let Some(raw) = text("raw") {
            answer.status = None;
            answer.framing = Framing::Close;
            answer.steps = vec![Step::Send(raw.into())];
        } else if let Some(sse) = text("sse") {
            answer.framing = Framing::Chunked;
            answer.steps = vec![Step::Send(sse.into())];
        } else if let Some(text) = text("text") {
            answer.steps = vec![Step::Send(text.into())];
        } else if let Some(steps) = entry.get("steps") {
            answer.framing = Framing::Chunked;
            answer.take_steps(steps)?;
        } else if let Some(steps) = entry.get("steps_hex") {
            answer.framing = Framing::Chunked;
            answer.steps = hex_steps(steps)?;
        } else {
            let body = entry.get("body").map(Value::to_string).unwrap_or_default();
            answer.steps = vec![Step::Send(body.into_bytes())];
        }
        match text("framing") {
            None => {}
            Some("length") => answer.framing = Framing::Length,
            Some("chunked") => answer.framing = Framing::Chunked,
            Some("close") => answer.framing = Framing::Close,
            Some(other) => return Err(format!("`framing` is `{other}`")),
        }
        answer.gzip = entry.get("gzip") == Some(&Value::Bool(true));
        answer.cut_after = entry
            .get("cut_after")
            .and_then(Value::as_u64)
            .and_then(|n| usize::try_from(n).ok());
        Ok(answer)
    }

    fn take_steps(&mut self, steps: &Value) -> Result<(), String> {
        self.steps.clear();
        for step in steps.as_array().ok_or("`steps` is no list")? {
            if let Some(delay_ms) = step["delay_ms"].as_u64() {
                self.steps.push(Step::Wait(Duration::from_millis(delay_ms)));
            }
            if let Some(text) = step["text"].as_str() {
                self.steps.push(Step::Send(text.into()));
            } else if let (Some(text), Some(times)) =
                (step["repeat"][0].as_str(), step["repeat"][1].as_u64())
            {
                let times = usize::try_from(times).map_err(|_| "`repeat` is too often")?;
                self.steps.push(Step::Repeat(text.into(), times));
            } else if let Some(hang_ms) = step["hang_ms"].as_u64() {
                self.steps.push(Step::Wait(Duration::from_millis(hang_ms)));
            } else if step["close"] == "abrupt" {
                self.end = End::Abrupt;
            } else if step["delay_ms"].is_null() {
                return Err(format!("a step is {step}"));
            }
        }
        Ok(())
    }
}

fn headers(entry: &Value) -> Result<Vec<(String, String)>, String> {
    let Some(headers) = entry.get("headers") else {
        return Ok(Vec::new());
    };
    let headers = headers.as_object().ok_or("`headers` is no object")?;
    let text = |(name, value): (&String, &Value)| match value {
        Value::String(value) => Ok((name.clone(), value.clone())),
        Value::Number(value) => Ok((name.clone(), value.to_string())),
        other => Err(format!("the header `{name}` is {other}")),
    };
    headers.iter().map(text).collect()
}

fn hex_steps(steps: &Value) -> Result<Vec<Step>, String> {
    let steps = steps.as_array().ok_or("`steps_hex` is no list")?;
    steps
        .iter()
        .map(|step| {
            let text = step.as_str().or_else(|| step["hex"].as_str());
            let text = text.ok_or_else(|| format!("a step is {step}"))?;
            from_hex(text).map(Step::Send)
        })
        .collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<Vec<u8>>>()
        .filter(|digits| digits.len() % 2 == 0)
        .ok_or_else(|| format!("`{text}` is not hexadecimal"))?;
    Ok(digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect())
}
