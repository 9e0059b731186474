//! A configured provider, asked with JSON text.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Value, json};
use twopass_core::chat::{BadRequest, Event, Message, ResponseFormat};
use twopass_provider::catalogue::Catalogue;
use twopass_provider::config::{Environment, LoadOptions, OnError};
use twopass_provider::{
    CallOptions, ChatMessage, Config, ErrorKind, Provider as Facade, ProviderError, Thinking,
    TurnItem,
};
use twopass_wire::generate::{GenerateRequest, encode_reply};

use crate::error::{bad_request, exception};
use crate::operation::{Item, Operation, Outlet};

/// How a configuration given as text is named in messages.
const TEXT_CONFIG: &str = "the given configuration";

/// One configured entry. Loads no model and opens no connection before the first request.
#[pyclass(frozen, weakref, module = "twopass._native")]
pub(crate) struct Provider {
    /// Taken only when it is dropped.
    asked: Option<Asked>,
    process: u32,
}

/// What an operation needs; clones share models and connections.
#[derive(Clone)]
struct Asked {
    facade: Facade,
    config: Config,
}

impl Drop for Provider {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child has none of the threads that the engine's end waits for.
            std::mem::forget(self.asked.take());
        }
    }
}

impl Provider {
    fn asked(&self) -> Result<&Asked, ProviderError> {
        match &self.asked {
            Some(asked) if self.process == std::process::id() => Ok(asked),
            _ => Err(ProviderError::new(
                ErrorKind::Internal,
                "this provider belongs to the process that this one was forked from",
            )),
        }
    }

    fn entry(&self, py: Python<'_>) -> PyResult<&Asked> {
        self.asked().map_err(|error| exception(py, &error))
    }

    /// Starts work with what it needs.
    fn start<F>(&self, py: Python<'_>, work: impl FnOnce(Asked, Outlet) -> F) -> PyResult<Operation>
    where
        F: Future<Output = Result<(), ProviderError>> + Send + 'static,
    {
        let asked = self.entry(py)?.clone();
        Operation::start(|outlet| work(asked, outlet)).map_err(|error| exception(py, &error))
    }
}

#[pymethods]
impl Provider {
    /// Opens an entry of a configuration: of the text if given, else of the file, else of the
    /// file that the search order finds. `environment` is all that is read of variables.
    #[new]
    #[pyo3(signature = (*, environment, path=None, text=None, name=None, model=None))]
    fn new(
        py: Python<'_>,
        environment: HashMap<String, String>,
        path: Option<PathBuf>,
        text: Option<String>,
        name: Option<String>,
        model: Option<String>,
    ) -> PyResult<Self> {
        let opened = py.detach(|| {
            let pairs = environment.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            let environment = Environment::of_pairs(pairs);
            let config = match text {
                Some(text) => Config::parse(&text, TEXT_CONFIG, environment)?,
                None => Config::load_with(LoadOptions {
                    path,
                    provider: name.clone(),
                    model,
                    environment,
                    ..LoadOptions::default()
                })?,
            };
            let facade = Facade::from_entry(&config, name.as_deref())?;
            Ok(Asked { facade, config })
        });
        Ok(Self {
            asked: Some(opened.map_err(|error| exception(py, &error))?),
            process: std::process::id(),
        })
    }

    /// The entry's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.entry(py)?.facade.name())
    }

    /// The model's name, as configured.
    #[getter]
    fn model_name(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.entry(py)?.facade.model_name())
    }

    /// The entry's `provider_backend`.
    #[getter]
    fn backend(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.entry(py)?.facade.config().backend.to_string())
    }

    /// The model that is asked first for vectors.
    #[getter]
    fn embedding_model(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.entry(py)?.facade.embedding_model())
    }

    /// Whether the entry's errors are exceptions (`on_error: raise`), not messages.
    #[getter]
    fn raises(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.entry(py)?.facade.config().on_error == OnError::Raise)
    }

    /// Names of the configuration's entries.
    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let entries = &self.entry(py)?.config.providers;
        Ok(entries.iter().map(|entry| entry.name.clone()).collect())
    }

    /// Splits content by the entry's `parsing_format`: response and thinking (rows A3, B7).
    fn parse_response(&self, py: Python<'_>, text: &str) -> PyResult<(String, String)> {
        let asked = self.entry(py)?;
        let split = py.detach(|| asked.facade.parse_response(text));
        Ok((split.response, split.thinking))
    }

    /// Starts a turn. Its items are the turn's events, `done` with the whole turn last.
    ///
    /// `request` is the JSON of a `/generate` request. `extra` is JSON with what such a request
    /// lacks: `thinking` (true or false), `reasoning_effort`, `json` (true: one object) and
    /// `schema` (`{name, schema, strict}`).
    fn turn(&self, py: Python<'_>, request: &str, extra: &str) -> PyResult<Operation> {
        let (messages, options) = read(request, extra).map_err(|error| bad_request(py, error))?;
        self.start(py, |asked, outlet| turn(asked, messages, options, outlet))
    }

    /// Starts `invoke` (row B1). Its one item is the response and the thinking.
    fn invoke(&self, py: Python<'_>, request: &str, extra: &str) -> PyResult<Operation> {
        let (messages, options) = read(request, extra).map_err(|error| bad_request(py, error))?;
        self.start(py, |asked, outlet| async move {
            pull_missing(&asked).await?;
            let texts = asked.facade.invoke_with(messages, options).await?;
            // The reader may be gone.
            let _ = outlet.send(Ok(Item::Invocation(texts))).await;
            Ok(())
        })
    }

    /// Starts to count the tokens of a request's prompt; None if the backend cannot.
    fn count(&self, py: Python<'_>, request: &str, extra: &str) -> PyResult<Operation> {
        let (messages, options) = read(request, extra).map_err(|error| bad_request(py, error))?;
        self.start(py, |asked, outlet| async move {
            pull_missing(&asked).await?;
            let request = asked.facade.request(messages, options)?;
            let count = asked.facade.count_prompt(request.into_request()).await?;
            let _ = outlet.send(Ok(Item::Count(count))).await;
            Ok(())
        })
    }

    /// Starts to make one vector for each text (row J1).
    fn embed(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Operation> {
        self.start(py, |asked, outlet| async move {
            let catalogue = Catalogue::new(&asked.config);
            if let Some(name) = catalogue.missing_embedder(&asked.config) {
                catalogue.pull(name, &|_| {}).await?;
            }
            let made = asked.facade.embed(&texts).await?;
            let _ = outlet.send(Ok(Item::Vectors(made.vectors))).await;
            Ok(())
        })
    }
}

/// Fetches the entry's model if it runs in this process and is not here.
async fn pull_missing(asked: &Asked) -> Result<(), ProviderError> {
    let catalogue = Catalogue::new(&asked.config);
    for name in catalogue.missing([asked.facade.config()])? {
        catalogue.pull(&name, &|_| {}).await?;
    }
    Ok(())
}

async fn turn(
    asked: Asked,
    messages: Vec<Message>,
    options: CallOptions,
    outlet: Outlet,
) -> Result<(), ProviderError> {
    pull_missing(&asked).await?;
    let request = asked.facade.request(messages, options.clone())?;
    let mut stream = asked.facade.stream(request).await?;
    while let Some(next) = stream.next().await {
        let next = next.map_err(|error| error.with_provider(asked.facade.name()))?;
        let item = match next {
            TurnItem::Event(event) => match named(&event) {
                Some((name, text)) => Item::Event(name, text),
                None => continue,
            },
            TurnItem::Done(reply) => {
                let client = asked.facade.client().with_options(options.clone());
                Item::Event("done", whole(client.message(*reply)))
            }
        };
        if outlet.send(Ok(item)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A whole turn: the fields of a `/generate` reply, and `content` as the client's message has it.
fn whole(message: ChatMessage) -> String {
    let content = Value::from(message.content);
    let fields = encode_reply(&message.reply);
    format!("{{\"content\":{content},{}", &fields[1..])
}

/// An event's name and its text or JSON; None for those that tell Python nothing.
fn named(event: &Event) -> Option<(&'static str, String)> {
    Some(match event {
        Event::ReasoningDelta(text) => ("thinking", text.clone()),
        Event::TextDelta(text) => ("text", text.clone()),
        Event::Reclassified => ("reclassified", String::new()),
        Event::CallFinished { call, .. } => {
            let arguments = Value::Object(call.arguments.as_object().clone());
            let call = json!({"id": call.id, "name": call.name, "arguments": arguments});
            ("tool_call", call.to_string())
        }
        _ => return None,
    })
}

/// A request and its extras as messages and call arguments.
fn read(request: &str, extra: &str) -> Result<(Vec<Message>, CallOptions), BadRequest> {
    let request = GenerateRequest::from_json(request.as_bytes())?;
    let (messages, mut options) = CallOptions::from_generate(request);
    let extra: Value = serde_json::from_str(extra)
        .map_err(|error| BadRequest::new("extra", format!("is not JSON: {error}")))?;
    options.thinking = match extra["thinking"].as_bool() {
        Some(true) => Thinking::On,
        Some(false) => Thinking::Off,
        None => Thinking::ByConfig,
    };
    options.reasoning_effort = extra["reasoning_effort"].as_str().map(str::to_owned);
    if extra["json"] == true {
        options.response_format = ResponseFormat::JsonObject;
    }
    if let Some(form) = extra["schema"].as_object() {
        let name = form.get("name").and_then(Value::as_str);
        options.response_format = ResponseFormat::JsonSchema {
            name: name.unwrap_or("answer").to_owned(),
            schema: form.get("schema").cloned().unwrap_or_default(),
            strict: form.get("strict").is_some_and(|strict| strict == true),
        };
    }
    Ok((messages, options))
}
