//! Clients through the facade, against a real local server that plays the case's `upstream`.
//!
//! Each case runs with whole packets, with one byte per packet, and, where its answer is one
//! small body, with the body in two packets, cut at every byte. All runs must give the same.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use twopass_core::chat::{Delivery, Message, Sampling, ToolChoice, ToolSpec, TurnBudget};
use twopass_provider::config::{Config, Environment, TwoPassMode};
use twopass_provider::plan::Thinking;
use twopass_provider::{CallOptions, ChatClient, ErrorKind, Provider, ProviderError};
use twopass_replay::{Answer, Listener, Pace, Request, Server, Step};

use super::client::{Format, message_of, preset_of, request_of};
use super::outcome::{Ended, Outcome};
use crate::Verdict;

/// The most bytes of a body that is cut at every place.
const MAX_CUT_BYTES: usize = 4096;
/// No case runs longer; the longest one waits for a few retries.
const MAX_RUN: Duration = Duration::from_secs(60);

/// Settings of a case that this adapter knows; another one would be ignored silently.
const KNOWN: &[&str] = &[
    "op",
    "upstream",
    "messages",
    "tools",
    "tool_choice",
    "params",
    "retries",
    "timeouts",
    "now",
    "then",
    "mode",
    "profile",
];

/// Runs `stream`, `complete`, `roundtrip` or `roundtrip_tool_name`.
pub(super) fn run(format: Format, case: &Value) -> Verdict {
    match Run::of(format, case).and_then(|run| run.all(case)) {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(why),
    }
}

struct Run<'c> {
    format: Format,
    /// The row of known endpoints that has the facts of the case's `profile`.
    preset: Option<&'static str>,
    input: &'c Value,
    answers: Vec<Answer>,
}

impl<'c> Run<'c> {
    fn of(format: Format, case: &'c Value) -> Result<Self, String> {
        let input = &case["input"];
        for key in input.as_object().into_iter().flat_map(|keys| keys.keys()) {
            if !KNOWN.contains(&key.as_str()) {
                return Err(format!("`{key}` is no setting that this adapter knows"));
            }
        }
        let mut answers = Vec::new();
        for entry in input["upstream"].as_array().into_iter().flatten() {
            let mut answer = Answer::from_json(entry)?;
            if let Some(now) = input["now"].as_str() {
                let date = http_date(now).ok_or_else(|| format!("`now` is {now}"))?;
                answer = answer.with_header("date", &date);
            }
            answers.push(answer);
        }
        Ok(Self {
            preset: preset_of(format, &input["profile"])?,
            format,
            input,
            answers,
        })
    }

    fn all(&self, case: &Value) -> Result<(), String> {
        let runtime = runtime()?;
        let first = self.once(&runtime, self.answers.clone(), Pace::Whole)?;
        first.meets(&case["expect"])?;
        let dripped = self.once(&runtime, self.answers.clone(), Pace::OneByte)?;
        dripped.meets(&case["expect"])?;
        dripped.same(&first, "one byte per packet")?;
        match self.answers.as_slice() {
            [answer] => self.cut_everywhere(&runtime, &first, answer),
            _ => Ok(()),
        }
    }

    /// Plays a small body in two packets, cut at every byte; all must give the same.
    fn cut_everywhere(
        &self,
        runtime: &Runtime,
        first: &Outcome,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(body) = small_body(answer) else {
            return Ok(());
        };
        let cuts = (1..body.len()).map(|at| {
            let (head, tail) = body.split_at(at);
            Answer {
                steps: vec![Step::Send(head.to_vec()), Step::Send(tail.to_vec())],
                ..answer.clone()
            }
        });
        let cuts: Vec<Answer> = cuts.collect();
        let n_cuts = cuts.len();
        if n_cuts == 0 || self.input["op"] == "roundtrip_tool_name" {
            return Ok(());
        }
        runtime.block_on(async {
            let server = Server::start(cuts, Pace::Whole).await;
            let server = server.map_err(|error| error.to_string())?;
            // What is tried again would take the next cut.
            let client = self.client(&server.url(), &json!(0))?;
            for at in 1..=n_cuts {
                let ended = turn(&client, self.messages()).await;
                ended.same(&first.ended, &format!("cut at byte {at}"))?;
            }
            Ok(())
        })
    }

    fn once(&self, runtime: &Runtime, answers: Vec<Answer>, pace: Pace) -> Result<Outcome, String> {
        runtime.block_on(async {
            let run = async {
                if self.input["op"] == "roundtrip_tool_name" {
                    self.named_tool(&answers, pace).await
                } else {
                    self.served(answers, pace).await
                }
            };
            let ran = tokio::time::timeout(MAX_RUN, run).await;
            ran.map_err(|_| format!("no end within {} s", MAX_RUN.as_secs()))?
        })
    }

    async fn served(&self, answers: Vec<Answer>, pace: Pace) -> Result<Outcome, String> {
        let server = Server::start(answers, pace).await;
        let server = server.map_err(|error| error.to_string())?;
        let client = self.client(&server.url(), &self.input["retries"])?;
        let started = Instant::now();
        let mut messages = self.messages();
        let mut ended = turn(&client, messages.clone()).await;
        let mut first_message = None;
        if let (Some(then), Ok(reply)) = (self.input["then"].as_array(), &ended.reply) {
            messages.push(reply.to_message());
            messages.extend(then.iter().map(|turn| message_of(self.format, turn)));
            first_message = Some(ended);
            ended = turn(&client, messages).await;
        }
        Ok(Outcome {
            ended,
            first_message,
            elapsed: started.elapsed(),
            requests: server.requests(),
        })
    }

    /// The answer names the tool as the request did.
    async fn named_tool(&self, answers: &[Answer], pace: Pace) -> Result<Outcome, String> {
        let listener = Listener::bind().await.map_err(|e| e.to_string())?;
        let address = listener.address().map_err(|e| e.to_string())?;
        let client = self.client(&format!("http://{address}"), &Value::Null)?;
        let answer = answers.first().ok_or("there is no answer to play")?;
        let started = Instant::now();
        let serve = async {
            let mut exchange = listener.exchange().await?;
            let answer = with_wire_name(answer, &exchange.request);
            exchange.connection.play(&answer, pace).await?;
            Ok(exchange.request)
        };
        let (ended, request) = tokio::join!(turn(&client, self.messages()), serve);
        let request = request.map_err(|error: std::io::Error| error.to_string())?;
        Ok(Outcome {
            ended,
            first_message: None,
            elapsed: started.elapsed(),
            requests: vec![request],
        })
    }

    fn messages(&self) -> Vec<Message> {
        request_of(self.format, self.input).request.messages
    }

    fn client(&self, url: &str, retries: &Value) -> Result<ChatClient, String> {
        let provider = provider(&self.entry(url, retries)).map_err(|error| error.to_string())?;
        let request = request_of(self.format, self.input).request;
        let (tools, choice): (Vec<ToolSpec>, ToolChoice) = (request.tools, request.tool_choice);
        let mut options = self.options(request.budget, request.sampling);
        options.stop = (!request.stop.is_empty()).then_some(request.stop);
        Ok(provider
            .client()
            .with_options(options)
            .bind_tools(tools, choice))
    }

    /// The provider's entry in a configuration, with the settings of the case.
    fn entry(&self, url: &str, retries: &Value) -> Value {
        let mut api = json!({"base_url": url});
        if !retries.is_null() {
            api["max_retries"] = retries.clone();
        }
        let mut timeouts = serde_json::Map::new();
        for (ours, name) in [("first_token_ms", "first_token"), ("idle_ms", "idle")] {
            if let Some(ms) = self.input["timeouts"][ours].as_f64() {
                timeouts.insert(name.to_owned(), json!(ms / 1000.0));
            }
        }
        if !timeouts.is_empty() {
            api["timeout_s"] = timeouts.into();
        }
        let mut entry = json!({
            "name": "case", "provider_backend": self.format.backend(),
            "model_name": self.input["params"]["model"].as_str().unwrap_or("m"),
            "on_error": "raise", "two_pass_with_tools": true, "api_config": api,
        });
        if let Some(preset) = self.preset {
            entry["preset"] = preset.into();
        }
        if let Some(policy) = self.input["profile"].get("reasoning_replay") {
            entry["reasoning_replay"] = policy.clone();
        }
        entry
    }

    fn options(&self, budget: TurnBudget, sampling: Sampling) -> CallOptions {
        let params = &self.input["params"];
        let thinking_cap = params["max_thinking_tokens"].as_u64();
        CallOptions {
            thinking: match params["think"].as_bool() {
                Some(true) => Thinking::On,
                Some(false) => Thinking::Off,
                None => Thinking::ByConfig,
            },
            two_pass: thinking_cap.map(|_| TwoPassMode::On),
            max_thinking_tokens: thinking_cap.and_then(|cap| u32::try_from(cap).ok()),
            max_tokens: match budget {
                TurnBudget::OnePass { max_tokens } => max_tokens,
                TurnBudget::TwoPass { .. } => None,
            },
            delivery: match self.input["op"] == "complete" || self.input["mode"] == "complete" {
                true => Delivery::Whole,
                false => self.delivery(),
            },
            sampling,
            ..CallOptions::default()
        }
    }

    /// A round trip that says nothing of its delivery has the one that its answers have.
    fn delivery(&self) -> Delivery {
        let is_stream = |entry: &Value| {
            let content_type = entry["headers"]["content-type"]
                .as_str()
                .unwrap_or_default();
            entry.get("sse").is_some() || content_type.contains("ndjson")
        };
        let mut entries = self.input["upstream"].as_array().into_iter().flatten();
        let is_trip = self.input["op"] != "stream";
        match is_trip && !entries.any(is_stream) {
            true => Delivery::Whole,
            false => Delivery::Stream,
        }
    }
}

/// A provider of one entry.
pub(crate) fn provider(entry: &Value) -> Result<Provider, ProviderError> {
    let config = json!({"providers": [entry]});
    let config = Config::parse(&config.to_string(), "the case", Environment::of_pairs([]))?;
    Provider::from_entry(&config, None)
}

pub(crate) fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())
}

/// One turn, read event by event to its end.
async fn turn(client: &ChatClient, messages: Vec<Message>) -> Ended {
    let reply = match client.stream(messages).await {
        Ok(stream) => stream.collect().await,
        Err(error) => Err(error),
    };
    let is_bug = |error: &ProviderError| error.kind() == ErrorKind::Internal;
    debug_assert!(!reply.as_ref().is_err_and(is_bug));
    Ended { reply }
}

/// The answer's body if it is one small piece that nothing delays.
fn small_body(answer: &Answer) -> Option<&[u8]> {
    let [Step::Send(body)] = answer.steps.as_slice() else {
        return None;
    };
    (answer.status == Some(200) && body.len() <= MAX_CUT_BYTES).then_some(body)
}

/// `$WIRE_NAME` is the name of the first tool as it was sent.
fn with_wire_name(answer: &Answer, request: &Request) -> Answer {
    let body = request.json();
    let tool = &body["tools"][0];
    let name = tool.pointer("/function/name").or_else(|| tool.get("name"));
    let name = name.and_then(Value::as_str).unwrap_or_default();
    let text = String::from_utf8_lossy(&answer.body()).replace("$WIRE_NAME", name);
    Answer {
        steps: vec![Step::Send(text.into_bytes())],
        ..answer.clone()
    }
}

/// `2026-10-21T07:28:00Z` as HTTP writes it. Source: RFC 9110 section 5.6.7.
fn http_date(iso: &str) -> Option<String> {
    const DAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (date, time) = iso.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.split('-').map(|part| part.parse::<usize>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let name = MONTHS.get(month.checked_sub(1)?)?;
    // Zeller's congruence counts January and February as months of the year before.
    let (y, m) = match month {
        1 | 2 => (year.checked_sub(1)?, month + 12),
        _ => (year, month),
    };
    let weekday = (day + 13 * (m + 1) / 5 + y + y / 4 - y / 100 + y / 400) % 7;
    let weekday = DAYS.get(weekday)?;
    Some(format!("{weekday}, {day:02} {name} {year} {time} GMT"))
}

#[cfg(test)]
mod tests {
    use super::http_date;

    #[test]
    fn dates_of_http() {
        for (iso, http) in [
            ("2026-10-21T07:28:00Z", "Wed, 21 Oct 2026 07:28:00 GMT"),
            ("1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("2024-02-29T00:00:00Z", "Thu, 29 Feb 2024 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(iso).as_deref(), Some(http));
        }
        assert_eq!(http_date("yesterday"), None);
    }
}
