//! Configuration: checked values, each with where it came from.

mod types;

pub use types::{
    AgentConfig, ApiConfig, BackendKind, Config, ContentMode, Decisions, EmbeddingsConfig,
    EngineConfig, GenerationConfig, OnError, ParsingFormat, ProviderConfig, ReasoningReplay,
    ServerConfig, Timeouts, ToolParserName, TwoPassMode,
};
