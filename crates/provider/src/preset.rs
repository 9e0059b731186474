//! What is known of endpoints, as a const table. Shared code reads the facts of a row and
//! never asks which row it is.
//!
//! An entry's row is the one that its `preset` names, else the one of its parsed host, else
//! the plain row of its backend. Facts were read from the services' API references in
//! 2026-11, those of vLLM and llama.cpp from runs of version 0.32 and build 11549.

use twopass_wire::facts::{
    Continuation, IdFormat, MaxTokensField, ReasoningField, ReasoningReplay, RepeatPenaltyField,
    ThinkingField, WireFacts,
};
use url::Url;

use crate::config::BackendKind;

/// How a chat service is made to think within a budget, where `two_pass: true` asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassMeans {
    /// One request; the service keeps its own budget, or an effort that stands for one.
    NativeBudget,
    /// Two requests; the second one's last message is the closed thought, continued.
    ChatPrefill,
    /// Two requests; the second one's last message is the closed thought, answered.
    AppendMessage,
}

impl PassMeans {
    /// The name in `passes[].means`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NativeBudget => "native_budget",
            Self::ChatPrefill => "chat_prefill",
            Self::AppendMessage => "append_message",
        }
    }
}

/// The facts of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name in the configuration.
    pub name: &'static str,
    /// The format that it speaks.
    pub backend: BackendKind,
    /// The host that it is known by; `None` for servers that run anywhere.
    pub host: Option<&'static str>,
    /// The address to use if none is configured.
    pub base_url: Option<&'static str>,
    /// The variable that holds its key.
    pub key_env: Option<&'static str>,
    /// What it accepts.
    pub facts: WireFacts,
    /// How a budget can be kept, best first; a refused one falls to the next.
    pub means: &'static [PassMeans],
    /// The least budget that the service takes; below it the next means is used.
    pub min_budget_tokens: u32,
    /// True if the service's own budget is a number of tokens; else it is an effort.
    pub counts_budget: bool,
    /// The base path below which a message is continued by a flag, if not below every one.
    pub continue_below: Option<&'static str>,
    /// True if thinking can be asked for and switched off whatever the model; else nothing is
    /// said of it unless an effort is configured.
    pub thinking_switch: bool,
    /// True if it is known never to write a thought as text whose end alone is marked, as
    /// servers without a reasoning parser do for templates that open the thought.
    pub marks_thoughts: bool,
}

const EFFORT: &[PassMeans] = &[PassMeans::NativeBudget, PassMeans::AppendMessage];
const PREFILL: &[PassMeans] = &[PassMeans::ChatPrefill, PassMeans::AppendMessage];
/// For services that refuse a last message of the assistant's without the flag.
const FLAGGED: &[PassMeans] = &[PassMeans::ChatPrefill];
const APPEND: &[PassMeans] = &[PassMeans::AppendMessage];

/// A service of Chat Completions that refuses fields it does not know.
const SERVICE: WireFacts = WireFacts {
    template_kwargs: false,
    ..WireFacts::CHAT
};

/// A server of open models that takes the samplers of open engines.
const OPEN_ENGINE: WireFacts = WireFacts {
    top_k: true,
    min_p: true,
    repeat_penalty_field: Some(RepeatPenaltyField::RepetitionPenalty),
    ..WireFacts::CHAT
};

const CUSTOM: Preset = Preset {
    name: "custom",
    backend: BackendKind::OpenAi,
    host: None,
    base_url: None,
    key_env: None,
    facts: WireFacts::CHAT,
    means: APPEND,
    min_budget_tokens: 0,
    counts_budget: false,
    continue_below: None,
    thinking_switch: false,
    marks_thoughts: false,
};

/// The table.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "openai",
        host: Some("api.openai.com"),
        base_url: Some("https://api.openai.com/v1"),
        key_env: Some("OPENAI_API_KEY"),
        facts: WireFacts {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: ThinkingField::ReasoningEffort,
            ..SERVICE
        },
        means: EFFORT,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "openai",
        backend: BackendKind::OpenAiResponses,
        host: Some("api.openai.com"),
        base_url: Some("https://api.openai.com/v1"),
        key_env: Some("OPENAI_API_KEY"),
        facts: WireFacts::RESPONSES,
        means: EFFORT,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "openrouter",
        host: Some("openrouter.ai"),
        base_url: Some("https://openrouter.ai/api/v1"),
        key_env: Some("OPENROUTER_API_KEY"),
        facts: WireFacts {
            template_kwargs: false,
            thinking: ThinkingField::ReasoningObject,
            reasoning_field: Some(ReasoningField::Reasoning),
            // Signed and encrypted thoughts of a tool loop must come back; plain ones may.
            reasoning_replay: ReasoningReplay::Required,
            ..OPEN_ENGINE
        },
        means: EFFORT,
        counts_budget: true,
        thinking_switch: true,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "groq",
        host: Some("api.groq.com"),
        base_url: Some("https://api.groq.com/openai/v1"),
        key_env: Some("GROQ_API_KEY"),
        facts: WireFacts {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: ThinkingField::ReasoningEffort,
            reasoning_field: Some(ReasoningField::Reasoning),
            ..SERVICE
        },
        means: PREFILL,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "together",
        host: Some("api.together.xyz"),
        base_url: Some("https://api.together.xyz/v1"),
        key_env: Some("TOGETHER_API_KEY"),
        facts: WireFacts {
            thinking: ThinkingField::ReasoningEffort,
            reasoning_field: Some(ReasoningField::Reasoning),
            ..OPEN_ENGINE
        },
        ..CUSTOM
    },
    Preset {
        name: "deepseek",
        host: Some("api.deepseek.com"),
        base_url: Some("https://api.deepseek.com/v1"),
        key_env: Some("DEEPSEEK_API_KEY"),
        facts: WireFacts {
            seed: false,
            developer_role: false,
            images: false,
            thinking: ThinkingField::Switch,
            reasoning_field: Some(ReasoningField::ReasoningContent),
            // Turns with calls must bring their reasoning, of others it is ignored.
            reasoning_replay: ReasoningReplay::Required,
            calls_need_reasoning: true,
            continuation: Continuation::PrefixFlag,
            ..SERVICE
        },
        means: FLAGGED,
        continue_below: Some("/beta"),
        thinking_switch: true,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "mistral",
        host: Some("api.mistral.ai"),
        base_url: Some("https://api.mistral.ai/v1"),
        key_env: Some("MISTRAL_API_KEY"),
        facts: WireFacts {
            seed: false,
            developer_role: false,
            stream_options: false,
            tool_call_id: IdFormat::alphanumeric(9),
            continuation: Continuation::PrefixFlag,
            ..SERVICE
        },
        means: FLAGGED,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "fireworks",
        host: Some("api.fireworks.ai"),
        base_url: Some("https://api.fireworks.ai/inference/v1"),
        key_env: Some("FIREWORKS_API_KEY"),
        facts: WireFacts {
            template_kwargs: false,
            thinking: ThinkingField::ReasoningEffort,
            reasoning_field: Some(ReasoningField::ReasoningContent),
            ..OPEN_ENGINE
        },
        ..CUSTOM
    },
    Preset {
        name: "gemini",
        host: Some("generativelanguage.googleapis.com"),
        base_url: Some("https://generativelanguage.googleapis.com/v1beta/openai"),
        key_env: Some("GEMINI_API_KEY"),
        facts: WireFacts {
            seed: false,
            penalties: false,
            developer_role: false,
            thinking: ThinkingField::ReasoningEffort,
            ..SERVICE
        },
        means: EFFORT,
        marks_thoughts: true,
        ..CUSTOM
    },
    Preset {
        name: "vllm",
        facts: WireFacts {
            thinking: ThinkingField::TemplateKwarg,
            continuation: Continuation::ContinueFlags,
            ..OPEN_ENGINE
        },
        means: PREFILL,
        thinking_switch: true,
        ..CUSTOM
    },
    Preset {
        name: "llamacpp",
        facts: WireFacts {
            repeat_penalty_field: Some(RepeatPenaltyField::RepeatPenalty),
            thinking: ThinkingField::TemplateKwarg,
            reasoning_field: Some(ReasoningField::ReasoningContent),
            ..OPEN_ENGINE
        },
        means: PREFILL,
        thinking_switch: true,
        ..CUSTOM
    },
    Preset {
        name: "ollama",
        backend: BackendKind::Ollama,
        base_url: Some("http://localhost:11434"),
        facts: WireFacts::OLLAMA,
        means: &[
            PassMeans::NativeBudget,
            PassMeans::ChatPrefill,
            PassMeans::AppendMessage,
        ],
        thinking_switch: true,
        ..CUSTOM
    },
    Preset {
        name: "lmstudio",
        base_url: Some("http://localhost:1234/v1"),
        facts: WireFacts {
            repeat_penalty_field: Some(RepeatPenaltyField::RepeatPenalty),
            template_kwargs: false,
            ..OPEN_ENGINE
        },
        ..CUSTOM
    },
    Preset {
        name: "anthropic",
        backend: BackendKind::Anthropic,
        host: Some("api.anthropic.com"),
        base_url: Some("https://api.anthropic.com"),
        key_env: Some("ANTHROPIC_API_KEY"),
        facts: WireFacts::ANTHROPIC,
        means: &[
            PassMeans::NativeBudget,
            PassMeans::ChatPrefill,
            PassMeans::AppendMessage,
        ],
        min_budget_tokens: 1024,
        counts_budget: true,
        thinking_switch: true,
        marks_thoughts: true,
        ..CUSTOM
    },
    CUSTOM,
];

/// An entry of another format at a known host still has the host's key.
const NATIVE: Preset = Preset {
    name: "vllm_native",
    backend: BackendKind::VllmNative,
    ..CUSTOM
};

impl Preset {
    /// The row of this name, whatever its format.
    #[must_use]
    pub fn from_name(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The facts of an entry of this format with this `preset` and address.
    #[must_use]
    pub fn of(backend: BackendKind, name: Option<&str>, base_url: Option<&Url>) -> &'static Self {
        let mut rows = PRESETS.iter().filter(|preset| preset.backend == backend);
        let found = match name {
            Some(name) => rows.find(|preset| preset.name == name),
            None => rows.find(|preset| base_url.is_some_and(|url| preset.is_at(url))),
        };
        found.unwrap_or_else(|| Self::plain(backend))
    }

    /// The row of a format at an address that nobody knows.
    fn plain(backend: BackendKind) -> &'static Self {
        if backend == CUSTOM.backend {
            return &CUSTOM;
        }
        let mut rows = PRESETS.iter();
        rows.find(|preset| preset.backend == backend)
            .unwrap_or(&NATIVE)
    }

    /// True if the row says more than its format alone does.
    pub(crate) fn has_facts(&self) -> bool {
        self.name != CUSTOM.name
    }

    /// True if the address's parsed host is this endpoint's.
    #[must_use]
    pub fn is_at(&self, url: &Url) -> bool {
        match (self.host, url.host_str()) {
            (Some(host), Some(given)) => host.eq_ignore_ascii_case(given),
            _ => false,
        }
    }
}
