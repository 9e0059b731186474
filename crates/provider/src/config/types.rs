use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use twopass_core::chat::{Sampling, ThinkTag};
use twopass_core::control::OnUnboundSchema;
pub use twopass_core::control::ReplayPolicy as ReasoningReplay;
use twopass_core::tool_parser::{CustomDialect, ToolDialect};
use url::Url;

use super::embeddings::EmbeddingsConfig;
use super::environment::Environment;
use super::origin::Origins;
use crate::preset::Preset;

/// Declares an enum whose variants have names in the configuration.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The value of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(super) use named_enum;

named_enum! {
    /// What turns requests into events (row A2).
    BackendKind {
        /// Chat Completions.
        OpenAi = "openai",
        /// OpenAI's Responses API.
        OpenAiResponses = "openai_responses",
        /// Anthropic Messages.
        Anthropic = "anthropic",
        /// Ollama.
        Ollama = "ollama",
        /// A raw completions engine: we render the chat template.
        Completions = "completions",
        /// A `/generate` server.
        VllmNative = "vllm_native",
        /// The engine in this process.
        Embedded = "embedded",
    }
}

named_enum! {
    /// Whether think tags in the text are looked for (row A3).
    ParsingFormat {
        /// Split reasoning from answer by tags.
        ThinkTags = "think_tags",
        /// Never look for tags.
        DirectResponse = "direct_response",
    }
}

named_enum! {
    /// What the facade does with run-time errors (row B14).
    OnError {
        /// The error's text becomes the response.
        Message = "message",
        /// The typed error is returned.
        Raise = "raise",
    }
}

named_enum! {
    /// What a client's message content holds (row B6, X10).
    ContentMode {
        /// Closed think block, newline, public text.
        Raw = "raw",
        /// The public text alone.
        Clean = "clean",
    }
}

named_enum! {
    /// Whether a turn has two passes (X1).
    TwoPassMode {
        /// On where the backend continues exactly, else off.
        Auto = "auto",
        /// On.
        On = "on",
        /// Off.
        Off = "off",
    }
}

/// The dialect of tool calls: `openai` (the service's own), `auto`, or a dialect's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolParserName(pub String);

impl ToolParserName {
    /// The name in the configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file that it was read from; `None` = built-in defaults.
    pub file: Option<PathBuf>,
    /// The entry to use where none is named.
    pub default_provider: String,
    /// The entries, names unique, at least one.
    pub providers: Vec<ProviderConfig>,
    /// Vectors.
    pub embeddings: EmbeddingsConfig,
    /// The server.
    pub server: ServerConfig,
    /// The agent loop.
    pub agent: AgentConfig,
    /// The tool dialects that the file defines, as written.
    pub dialects: Vec<CustomDialect>,
    /// The same dialects, ready to read and write.
    pub dialect_rows: Vec<ToolDialect>,
    /// Where model files are looked for first; `None` = the user's data folder only.
    pub models_dir: Option<PathBuf>,
    /// Where each value came from.
    pub origins: Origins,
    /// The environment that it was read with: keys, folders, tokens.
    pub environment: Environment,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// What the entry is called.
    pub name: String,
    /// What turns its requests into events.
    pub backend: BackendKind,
    /// The row of known endpoints that it named; `None` = found by its address.
    pub preset: Option<&'static str>,
    /// A catalogue name, a `.gguf` path, or the remote id, verbatim (row A15).
    pub model_name: String,
    /// Where the model's chat template is found, for engines that do not tell it: the model's
    /// folder, its `tokenizer_config.json`, a Jinja file or a GGUF file.
    pub chat_template: Option<PathBuf>,
    /// Whether think tags are looked for.
    pub parsing_format: ParsingFormat,
    /// The dialect of tool calls.
    pub tool_parser: ToolParserName,
    /// The dialects of the user's own that `tool_parser` may name.
    pub dialects: Vec<ToolDialect>,
    /// What of past reasoning goes back; `None` = as the endpoint's preset says.
    pub reasoning_replay: Option<ReasoningReplay>,
    /// What the facade does with run-time errors.
    pub on_error: OnError,
    /// What a client's message content holds.
    pub content_mode: ContentMode,
    /// The address and its key.
    pub api: ApiConfig,
    /// The entries that are asked, in this order, if this one fails before its first output.
    pub fallbacks: Vec<String>,
    /// Caps and sampling.
    pub generation: GenerationConfig,
    /// The embedded engine's settings.
    pub engine: EngineConfig,
    /// Choices where the product's sources differ.
    pub decisions: Decisions,
}

/// Where a remote backend is, and how it is reached.
#[derive(Debug, Clone, Default)]
pub struct ApiConfig {
    /// The address; `None` = the backend's own service.
    pub base_url: Option<Url>,
    /// The addresses of all servers, if the entry has several that do the same; `base_url` is
    /// the first. They differ in scheme, host and port only.
    pub base_urls: Vec<Url>,
    /// The key; `None` = none is needed or sent.
    pub api_key: Option<SecretString>,
    /// Where the key came from, in words, for `config show`.
    pub api_key_origin: Option<String>,
    /// Why the entry cannot be used: a key is needed and missing. Reported when the entry is
    /// opened or checked, so that other entries of the file still work.
    pub key_fault: Option<String>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Further headers of every request.
    pub headers: Vec<(String, SecretString)>,
    /// How often a retryable failure is tried again.
    pub max_retries: u32,
}

/// Deadlines of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until the first output. A reply that is asked for whole has `total` alone.
    pub first_token: Duration,
    /// Between outputs.
    pub idle: Duration,
    /// The whole turn.
    pub total: Duration,
}

impl Default for Timeouts {
    /// The native client's: 300 s in total (row B14).
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_token: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(300),
        }
    }
}

/// Caps and sampling (row A5).
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// The one cap of a single pass.
    pub max_tokens: Option<u32>,
    /// Two passes or one.
    pub two_pass: TwoPassMode,
    /// The tag of the generated thought.
    pub think_tag: ThinkTag,
    /// Cap on the thought.
    pub max_thinking_tokens: Option<u32>,
    /// Cap on the answer.
    pub max_response_tokens: Option<u32>,
    /// Stop strings of the answer.
    pub stop: Vec<String>,
    /// Extra variables of the chat template.
    pub template_kwargs: Vec<(String, Value)>,
    /// How much a service that thinks by itself is asked to think, as it names it.
    pub reasoning_effort: Option<String>,
    /// Whether a service is asked to return its reasoning.
    pub include_reasoning: Option<bool>,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            max_tokens: None,
            two_pass: TwoPassMode::Auto,
            think_tag: ThinkTag::Think,
            max_thinking_tokens: None,
            max_response_tokens: None,
            stop: Vec::new(),
            template_kwargs: Vec::new(),
            reasoning_effort: None,
            include_reasoning: None,
        }
    }
}

/// Settings of the embedded engine; `None` = the engine's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineConfig {
    /// Threads; the default is the cores that the process may use.
    pub threads: Option<u32>,
    /// KV cells shared by all streams.
    pub context_tokens: Option<u32>,
    /// Turns that run at once.
    pub max_streams: Option<u32>,
    /// Prompt tokens computed per step.
    pub step_tokens: Option<u32>,
    /// Turns that wait; more are refused.
    pub queue_len: Option<u32>,
    /// Folder in which kept prefixes are saved for the next start.
    pub session_path: Option<PathBuf>,
    /// Tokens guessed ahead per turn and step, by what followed the same words before.
    pub prompt_lookup_tokens: Option<u32>,
    /// A smaller model with the same vocabulary that guesses ahead: a name or a file.
    pub draft_model: Option<String>,
    /// Tokens that the draft model guesses per turn and step.
    pub draft_tokens: Option<u32>,
    /// LoRA adapters that a request may name, each with its GGUF file.
    pub lora: Vec<(String, PathBuf)>,
    /// How keys and values are kept.
    pub cache_type: Option<CacheType>,
    /// Attention in one fused kernel.
    pub flash_attention: Option<bool>,
}

named_enum! {
    /// How the engine's cache keeps keys and values.
    CacheType {
        /// Half precision.
        F16 = "f16",
        /// Eight bits: half the memory.
        Q8_0 = "q8_0",
    }
}

named_enum! {
    /// What an unclosed think block leaves as the answer (X3).
    UnterminatedThink {
        /// Close it and go on in a second pass.
        Continue = "continue",
        /// Nothing.
        Empty = "empty",
        /// A safe error text.
        Error = "error",
        /// All of the text.
        Direct = "direct",
    }
}

named_enum! {
    /// Who writes the tools into the prompt of a chat service (X8).
    HermesInjection {
        /// The server.
        Server = "server",
        /// We do.
        Client = "client",
        /// We do if the server is known not to.
        Auto = "auto",
    }
}

named_enum! {
    /// The role that carries tool results (X16).
    ToolResultRole {
        /// A tool message.
        Tool = "tool",
        /// A user message.
        User = "user",
    }
}

named_enum! {
    /// What loops do with invalid calls (X17).
    OnInvalidCall {
        /// Drop them, counted.
        Drop = "drop",
        /// Report them to the model.
        Report = "report",
    }
}

/// Choices where the product's sources differ; `None` = by backend, the rest has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    /// What an unclosed think block leaves as the answer (X3).
    pub unterminated_think: Option<UnterminatedThink>,
    /// Who writes the tools into the prompt of a chat service (X8).
    pub hermes_injection: Option<HermesInjection>,
    /// The tags that are read as reasoning (X9); empty = all that are known.
    pub think_tags: Vec<String>,
    /// The role that carries tool results (X16).
    pub tool_result_role: Option<ToolResultRole>,
    /// What loops do with invalid calls (X17).
    pub on_invalid_call: Option<OnInvalidCall>,
    /// Chat services keep two passes although tools are bound (X1).
    pub two_pass_with_tools: bool,
    /// One call block per turn instead of many (X4).
    pub single_tool_call_block: bool,
    /// The tools' list in the preamble is one JSON array (X5).
    pub tools_as_array: bool,
    /// The preamble stands before the system text (X20).
    pub preamble_before: bool,
    /// A call cut by the cap is never accepted (X19).
    pub reject_partial_tool_call: bool,
    /// What the embedded engine does with a demanded call or form whose schema no grammar
    /// binds in full (M5).
    pub on_unbound_schema: OnUnboundSchema,
    /// `OPENAI_API_KEY` may go to another host (X14).
    pub allow_openai_key_fallback: bool,
}

/// The server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address to listen on.
    pub host: String,
    /// The port; 0 = any free one.
    pub port: u16,
    /// A file of keys; needed for hosts other than this machine.
    pub keys_file: Option<PathBuf>,
    /// Web pages from here may use the server: origins `SCHEME://HOST[:PORT]`, or `*` alone for
    /// all.
    pub cors_origins: Vec<String>,
    /// Whether the server keeps the reasoning of its own answers (row M9).
    pub reasoning_memory: bool,
    /// Where stored responses are kept: `memory`, `postgres://...` or an SQLite file; `None` =
    /// a file in the user's data folder. An address may hold a password.
    pub store: Option<SecretString>,
    /// Whether each request is told on the standard error stream when it has ended.
    pub access_log: bool,
    /// Where traces of requests go; `None` = nowhere.
    pub traces: Option<TracesConfig>,
    /// The memory whose tools the server carries out itself, for every client (row L7).
    pub memory: MemoryKind,
}

/// A collector of OpenTelemetry traces that takes OTLP over HTTP.
#[derive(Debug, Clone)]
pub struct TracesConfig {
    /// Its address, with or without `/v1/traces`.
    pub endpoint: Url,
    /// Further headers of every message.
    pub headers: Vec<(String, SecretString)>,
    /// Whether prompts, thoughts and answers go there too.
    pub content: bool,
}

impl TracesConfig {
    /// Where the messages go.
    #[must_use]
    pub fn traces_url(&self) -> Url {
        const PATH: &str = "/v1/traces";
        let mut url = self.endpoint.clone();
        let path = url.path().trim_end_matches('/');
        if !path.ends_with(PATH) {
            let path = format!("{path}{PATH}");
            url.set_path(&path);
        }
        url
    }
}

/// The agent loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Rounds of calls at most.
    pub max_rounds: u32,
    /// The folder that tools may touch.
    pub workspace: PathBuf,
    /// Where long-term memory is.
    pub memory: MemoryKind,
}

/// Where the memory behind the tools that recall and store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// In the user's data folder, for every later run.
    Sqlite,
    /// In this process, for this run.
    Session,
    /// Nowhere: the tools that recall and store are not there.
    None,
}

impl MemoryKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Session, Self::None];

    /// The name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Session => "session",
            Self::None => "none",
        }
    }
}

impl Config {
    /// The entry of this name, or the default one.
    ///
    /// # Errors
    /// No entry has this name; the error lists the known ones (row A1).
    pub fn provider(&self, name: Option<&str>) -> Result<&ProviderConfig, crate::ProviderError> {
        let name = name.unwrap_or(&self.default_provider);
        self.providers
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| {
                let known: Vec<_> = self
                    .providers
                    .iter()
                    .map(|entry| format!("`{}`", entry.name))
                    .collect();
                crate::ProviderError::new(
                    crate::ErrorKind::Config,
                    format!(
                        "unknown provider `{name}`, configured: {}",
                        known.join(", ")
                    ),
                )
                .with_param("provider")
            })
    }
}

impl Default for Config {
    /// What runs without any file: the embedded engine with its default model.
    fn default() -> Self {
        Self {
            file: None,
            default_provider: "local".to_owned(),
            providers: vec![ProviderConfig::embedded("local", "smollm2-135m")],
            embeddings: EmbeddingsConfig::default(),
            server: ServerConfig::default(),
            agent: AgentConfig::default(),
            dialects: Vec::new(),
            dialect_rows: Vec::new(),
            models_dir: None,
            origins: Origins::default(),
            environment: Environment::default(),
        }
    }
}

impl ProviderConfig {
    /// An entry of the embedded engine with every default.
    #[must_use]
    pub fn embedded(name: &str, model_name: &str) -> Self {
        Self::with_defaults(name, BackendKind::Embedded, model_name)
    }

    /// What is known of the entry's endpoint.
    #[must_use]
    pub fn preset(&self) -> &'static Preset {
        Preset::of(self.backend, self.preset, self.api.base_url.as_ref())
    }

    /// What of past reasoning goes back.
    #[must_use]
    pub fn replay_policy(&self) -> ReasoningReplay {
        self.reasoning_replay
            .unwrap_or(self.preset().facts.reasoning_replay)
    }

    /// An entry of this backend with every default.
    #[must_use]
    pub fn with_defaults(name: &str, backend: BackendKind, model_name: &str) -> Self {
        let hosts_the_template = matches!(
            backend,
            BackendKind::Embedded | BackendKind::VllmNative | BackendKind::Completions
        );
        let tool_parser = if hosts_the_template {
            "hermes"
        } else {
            "openai"
        };
        Self {
            name: name.to_owned(),
            backend,
            preset: None,
            model_name: model_name.to_owned(),
            chat_template: None,
            parsing_format: ParsingFormat::ThinkTags,
            tool_parser: ToolParserName(tool_parser.to_owned()),
            dialects: Vec::new(),
            reasoning_replay: None,
            on_error: OnError::Message,
            content_mode: ContentMode::Raw,
            api: ApiConfig {
                max_retries: 3,
                ..ApiConfig::default()
            },
            generation: GenerationConfig::default(),
            fallbacks: Vec::new(),
            engine: EngineConfig::default(),
            decisions: Decisions::default(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8001,
            keys_file: None,
            cors_origins: Vec::new(),
            reasoning_memory: true,
            store: None,
            access_log: false,
            traces: None,
            memory: MemoryKind::None,
        }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            max_rounds: 10,
            workspace: PathBuf::from("."),
            memory: MemoryKind::Sqlite,
        }
    }
}
