use std::path::Path;

use hyper::Uri;
use serde_json::Value;
use twopass_core::chat::Diagnostic;
use twopass_core::chat_template::{Prompt, Segment};
use twopass_core::control::TextModel;
use twopass_wire::completions::{
    CompletionFacts, CompletionRequest, decode_prompt, decode_tokens, encode_detokenize,
    encode_native_request, encode_request, encode_tokenize,
};
use url::Url;

use crate::backend::exchange::Endpoint;
use crate::config::ProviderConfig;
use crate::http::{self, Deadline};
use crate::prompt::{TemplateFacts, facts_of_path};
use crate::{ErrorKind, ProviderError, endpoint};

/// What an engine is called by its own address, and how it differs from others.
///
/// Facts of vLLM 0.32 and llama.cpp's server, build 11549, as run.
#[derive(Debug, Clone, Copy)]
struct Dialect {
    name: &'static str,
    /// Path below the server's root.
    completion_path: &'static str,
    encode: fn(&CompletionRequest) -> (String, Vec<Diagnostic>),
    /// True if `/tokenize` can leave control tokens unread.
    plain_tokenize: bool,
}

const VLLM: Dialect = Dialect {
    name: "vLLM",
    completion_path: "v1/completions",
    encode: |request| encode_request(request, &CompletionFacts::FULL),
    plain_tokenize: false,
};

/// Its own route alone tells which stop string was met.
const LLAMA_CPP: Dialect = Dialect {
    name: "llama.cpp",
    completion_path: "completion",
    encode: encode_native_request,
    plain_tokenize: true,
};

/// An engine behind HTTP.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) endpoint: Endpoint,
    pub(super) model_name: String,
    pub(super) model: TextModel,
    control_strings: Vec<String>,
    pub(super) turn_uri: Uri,
    tokenize_uri: Uri,
    detokenize_uri: Uri,
    dialect: &'static Dialect,
}

impl Remote {
    /// Asks the server what it is, and finds its model's template: the configured one, what
    /// the server tells, or the model's folder where that is on this machine.
    ///
    /// # Errors
    /// The server is not there or is no engine that we know, or no template can be found.
    pub(super) async fn discover(entry: &ProviderConfig) -> Result<Self, ProviderError> {
        let endpoint = endpoint::connect(entry)?;
        let root = root_of(&endpoint::turn_url(entry)?);
        let limit = endpoint.total_deadline();
        let (dialect, told) = match endpoint.fetch(&at(&root, "props")?, None, limit).await {
            Ok(body) => (&LLAMA_CPP, facts_of_props(&body)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (&VLLM, ask_vllm(&endpoint, &root, limit).await?)
            }
            Err(error) => return Err(error),
        };
        let facts = match (&entry.chat_template, told) {
            (Some(path), _) => facts_of_path(path)?,
            (None, Some(facts)) => facts,
            (None, None) => return Err(no_template(dialect)),
        };
        Ok(Self {
            endpoint,
            model_name: entry.model_name.clone(),
            model: facts.to_model()?,
            control_strings: facts.control_strings,
            turn_uri: at(&root, dialect.completion_path)?,
            tokenize_uri: at(&root, "tokenize")?,
            detokenize_uri: at(&root, "detokenize")?,
            dialect,
        })
    }

    /// The body of a pass.
    pub(super) fn encode(&self, request: &CompletionRequest) -> (String, Vec<Diagnostic>) {
        (self.dialect.encode)(request)
    }

    /// The tokens of a prompt. Literal segments become ordinary tokens only (row M6).
    pub(super) async fn tokenize_prompt(
        &self,
        prompt: &Prompt,
        limit: Deadline,
    ) -> Result<Vec<u32>, ProviderError> {
        let mut ids = Vec::new();
        for segment in &prompt.segments {
            match segment {
                Segment::Markup(text) => ids.extend(self.tokenize(text, true, limit).await?),
                Segment::Literal(text) if self.dialect.plain_tokenize => {
                    ids.extend(self.tokenize(text, false, limit).await?);
                }
                // In parts, none of which spells a control token.
                Segment::Literal(text) => {
                    for part in split_controls(text, &self.control_strings) {
                        ids.extend(self.tokenize(part, true, limit).await?);
                    }
                }
            }
        }
        Ok(ids)
    }

    /// The tokens of one text, nothing added. `special`: control tokens in it are read.
    pub(super) async fn tokenize(
        &self,
        text: &str,
        special: bool,
        limit: Deadline,
    ) -> Result<Vec<u32>, ProviderError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let body = encode_tokenize(&self.model_name, text, special);
        let answer = self.endpoint.fetch(&self.tokenize_uri, Some(body), limit);
        let answer = answer.await?;
        Ok(decode_tokens(&answer)?.ids)
    }

    /// The text of tokens, control tokens spelled out.
    pub(super) async fn detokenize(
        &self,
        ids: &[u32],
        limit: Deadline,
    ) -> Result<String, ProviderError> {
        let body = encode_detokenize(&self.model_name, ids);
        let answer = self.endpoint.fetch(&self.detokenize_uri, Some(body), limit);
        let answer = answer.await?;
        Ok(decode_prompt(&answer)?)
    }
}

/// vLLM's template: from `/tokenizer_info` where that is switched on, else from the model's
/// folder (`root` in `/v1/models`) if it is on this machine.
async fn ask_vllm(
    endpoint: &Endpoint,
    root: &Url,
    limit: Deadline,
) -> Result<Option<TemplateFacts>, ProviderError> {
    // Before all else: is there a vLLM at all?
    endpoint
        .fetch(&at(root, "version")?, None, limit)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => ProviderError::new(
                ErrorKind::Config,
                "the server at `api_config.base_url` is neither vLLM nor llama.cpp's: it has no \
                 `/version` and no `/props`; `provider_backend: openai` may fit it",
            )
            .with_param("api_config.base_url"),
            _ => error,
        })?;
    if let Ok(body) = endpoint
        .fetch(&at(root, "tokenizer_info")?, None, limit)
        .await
    {
        let facts = serde_json::from_slice(&body).ok();
        if let Some(facts) = facts.as_ref().and_then(TemplateFacts::of_tokenizer) {
            return Ok(Some(facts));
        }
    }
    let models = at(root, "v1/models")?;
    let models = endpoint.fetch(&models, None, limit).await?;
    let models: Value = serde_json::from_slice(&models).unwrap_or_default();
    let folder = models["data"][0]["root"].as_str().map(Path::new);
    let folder = folder.filter(|folder| folder.is_absolute() && folder.is_dir());
    folder.map(facts_of_path).transpose()
}

/// llama.cpp's `/props`.
fn facts_of_props(body: &[u8]) -> Option<TemplateFacts> {
    let props: Value = serde_json::from_slice(body).ok()?;
    TemplateFacts::of_tokenizer(&props)
}

fn no_template(dialect: &Dialect) -> ProviderError {
    ProviderError::new(
        ErrorKind::Config,
        format!(
            "the {} server does not tell its model's chat template: name a file in \
             `chat_template` (the model's folder, its tokenizer_config.json, a Jinja file or a \
             GGUF file), or start it with --enable-tokenizer-info-endpoint",
            dialect.name
        ),
    )
    .with_param("chat_template")
}

/// The server's root: the turn's address without the endpoint and `/v1`.
fn root_of(turn: &Url) -> Url {
    let mut root = turn.clone();
    let path = turn.path();
    let path = path.strip_suffix("/completions").unwrap_or(path);
    let path = path.strip_suffix("/v1").unwrap_or(path);
    root.set_path(path);
    root
}

fn at(root: &Url, path: &str) -> Result<Uri, ProviderError> {
    let mut url = root.clone();
    url.set_path(&format!("{}/{path}", root.path().trim_end_matches('/')));
    http::uri(&url)
}

/// Cuts a text inside every control string that it spells.
fn split_controls<'a>(text: &'a str, control: &[String]) -> Vec<&'a str> {
    let mut cuts: Vec<usize> = control
        .iter()
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            let first = word.chars().next().map_or(1, char::len_utf8);
            text.match_indices(word.as_str())
                .map(move |(at, _)| at + first)
        })
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let ends = cuts.iter().copied().chain([text.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(ends).map(|(from, to)| &text[from..to]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row M6.
    #[test]
    fn m6_no_part_spells_a_control_string() {
        let control = ["<|im_end|>".to_owned(), "</s>".to_owned(), "é".to_owned()];
        for text in ["a<|im_end|>b</s></s>", "<|im_end|>", "plain", "", "ééx"] {
            let parts = split_controls(text, &control);
            assert_eq!(parts.concat(), text);
            for word in &control[..2] {
                assert!(parts.iter().all(|part| !part.contains(word.as_str())));
            }
        }
    }

    #[test]
    fn the_root_of_an_address() {
        for (turn, root) in [
            ("http://h:1/v1/completions", "http://h:1/props"),
            ("http://h/x/v1/completions", "http://h/x/props"),
            ("http://h/x/completions", "http://h/x/props"),
        ] {
            let props = at(&root_of(&turn.parse().unwrap()), "props").unwrap();
            assert_eq!(props.to_string(), root);
        }
    }
}
