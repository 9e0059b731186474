//! Configuration: a tree with places, read into checked values, each with its origin.
//!
//! Order of every value: flag, environment, file, default. Every error names the file, the
//! line, the key, the value and what is allowed. YAML is read by `serde-saphyr`: maintained,
//! pure Rust, with places for every value, duplicate keys refused and alias bombs bounded.
//! (`serde_yaml_ng` and `serde_norway` wrap a C translation of libyaml and give places only
//! in errors; `saphyr` itself has no limits on aliases.)

mod addresses;
mod api;
mod dialects;
mod embeddings;
mod entry;
mod environment;
mod key_list;
mod keys;
mod load;
mod node;
mod origin;
mod overrides;
mod read;
mod section;
mod show;
mod types;

pub use embeddings::{EmbeddingsConfig, EmbeddingsFallback};
pub use environment::Environment;
pub use key_list::{KeyEntry, KeyLimits, KeyScope};
pub use load::LoadOptions;
pub use origin::{Origin, Origins};
pub use show::{Setting, notices};
pub use types::{
    AgentConfig, ApiConfig, BackendKind, CacheType, Config, ContentMode, Decisions, EngineConfig,
    GenerationConfig, HermesInjection, MemoryKind, OnError, OnInvalidCall, ParsingFormat,
    ProviderConfig, ReasoningReplay, ServerConfig, Timeouts, ToolParserName, ToolResultRole,
    TracesConfig, TwoPassMode, UnterminatedThink,
};
