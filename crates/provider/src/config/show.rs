//! The effective configuration for people, each value with its origin, keys masked.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::{ExposeSecret, SecretString};
use twopass_core::tool_parser::CustomDialect;

use super::types::{
    BackendKind, Config, EngineConfig, ProviderConfig, TwoPassMode, UnterminatedThink,
};
use crate::plan::{DEFAULT_RESPONSE_TOKENS, DEFAULT_THINKING_TOKENS};

const ENGINE_DEFAULT: &str = "(the engine's default)";

/// One value of the effective configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The full key, such as `providers[0].model_name`.
    pub key: String,
    /// The value as text; keys of services are masked.
    pub value: String,
    /// Where it came from, in words.
    pub origin: String,
}

impl Config {
    /// Every value in the order of the file format, secrets masked.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        self.listed(|_| MASK.to_owned())
    }

    /// The keys whose values are others here than there, those of secrets too.
    #[must_use]
    pub fn keys_that_differ(&self, other: &Self) -> Vec<String> {
        let revealed = |secret: &SecretString| secret.expose_secret().to_owned();
        let rows = |config: &Self| -> BTreeMap<String, String> {
            let rows = config.listed(revealed).into_iter();
            rows.map(|row| (row.key, row.value)).collect()
        };
        let (own, others) = (rows(self), rows(other));
        let keys: BTreeSet<_> = own.keys().chain(others.keys()).collect();
        let differing = keys
            .into_iter()
            .filter(|key| own.get(*key) != others.get(*key));
        differing.cloned().collect()
    }

    fn listed(&self, secret: fn(&SecretString) -> String) -> Vec<Setting> {
        let mut list = List {
            config: self,
            secret,
            out: Vec::new(),
        };
        list.put("default_provider", &self.default_provider);
        for (idx, entry) in self.providers.iter().enumerate() {
            list.provider(&format!("providers[{idx}]"), entry);
        }
        list.embeddings();
        list.put("server.host", &self.server.host);
        list.put("server.port", &self.server.port.to_string());
        let keys_file = self
            .server
            .keys_file
            .as_ref()
            .map(|path| path.display().to_string());
        list.put("server.keys_file", keys_file.as_deref().unwrap_or("none"));
        let origins = self.server.cors_origins.join(" ");
        list.put_or(
            "server.cors_origins",
            Some(origins).filter(|origins| !origins.is_empty()),
            "none",
        );
        list.put_or(
            "server.store",
            self.server
                .store
                .as_ref()
                .map(|place| list.shown_store(place)),
            "(the data folder)",
        );
        let keeps_reasoning = self.server.reasoning_memory.to_string();
        list.put("server.reasoning_memory", &keeps_reasoning);
        list.put("server.memory", self.server.memory.as_str());
        list.observers();
        list.put("agent.max_rounds", &self.agent.max_rounds.to_string());
        list.put(
            "agent.workspace",
            &self.agent.workspace.display().to_string(),
        );
        list.put("agent.memory", self.agent.memory.as_str());
        for (idx, dialect) in self.dialects.iter().enumerate() {
            list.dialect(&format!("dialects[{idx}]"), dialect);
        }
        let models_dir = self
            .models_dir
            .as_ref()
            .map(|path| path.display().to_string());
        list.put("models_dir", models_dir.as_deref().unwrap_or("none"));
        list.out
    }
}

const MASK: &str = "********";

struct List<'a> {
    config: &'a Config,
    /// What stands for a secret.
    secret: fn(&SecretString) -> String,
    out: Vec<Setting>,
}

impl List<'_> {
    fn put(&mut self, key: &str, value: &str) {
        let origin = self.config.origins.of(key).to_string();
        self.push(key, value, origin);
    }

    fn push(&mut self, key: &str, value: &str, origin: String) {
        self.out.push(Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            origin,
        });
    }

    /// A value that may be unset; `unset` says what happens then.
    fn put_or(&mut self, key: &str, value: Option<String>, unset: &str) {
        self.put(key, value.as_deref().unwrap_or(unset));
    }

    /// The place of stored responses; an address may hold a password.
    fn shown_store(&self, place: &SecretString) -> String {
        let shown = place.expose_secret();
        match shown.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://{}", (self.secret)(place)),
            None => shown.to_owned(),
        }
    }

    fn observers(&mut self) {
        let server = &self.config.server;
        self.put("server.access_log", &server.access_log.to_string());
        let Some(traces) = &server.traces else {
            return self.put("server.traces", "none");
        };
        self.put("server.traces.endpoint", traces.endpoint.as_str());
        self.put("server.traces.content", &traces.content.to_string());
        for (name, value) in &traces.headers {
            let value = (self.secret)(value);
            self.put(&format!("server.traces.headers.{name}"), &value);
        }
    }

    fn embeddings(&mut self) {
        let embeddings = &self.config.embeddings;
        let provider = embeddings.provider.clone();
        self.put_or("embeddings.provider", provider, "(default)");
        self.put("embeddings.model", &embeddings.model);
        let dimensions = embeddings.dimensions.map(|n| n.to_string());
        self.put_or("embeddings.dimensions", dimensions, "(the model's)");
        self.put("embeddings.max_batch", &embeddings.max_batch.to_string());
        match &embeddings.fallback {
            None => self.put("embeddings.fallback", "none"),
            Some(fallback) => {
                let provider = fallback.provider.clone();
                self.put_or("embeddings.fallback.provider", provider, "(the first's)");
                let key = match fallback.provider {
                    Some(_) => "embeddings.fallback.model",
                    None => "embeddings.fallback",
                };
                self.put(key, &fallback.model);
            }
        }
    }

    fn provider(&mut self, path: &str, entry: &ProviderConfig) {
        self.put(&format!("{path}.name"), &entry.name);
        self.put(&format!("{path}.provider_backend"), entry.backend.as_str());
        self.put(&format!("{path}.model_name"), &entry.model_name);
        self.put(
            &format!("{path}.parsing_format"),
            entry.parsing_format.as_str(),
        );
        self.put(&format!("{path}.tool_parser"), entry.tool_parser.as_str());
        self.put(
            &format!("{path}.reasoning_replay"),
            entry.replay_policy().as_str(),
        );
        self.put(&format!("{path}.on_error"), entry.on_error.as_str());
        self.put(&format!("{path}.content_mode"), entry.content_mode.as_str());
        if let Some(template) = &entry.chat_template {
            let shown = template.display().to_string();
            self.put(&format!("{path}.chat_template"), &shown);
        }
        if !entry.fallbacks.is_empty() {
            self.put(&format!("{path}.fallbacks"), &entry.fallbacks.join(", "));
        }
        match entry.backend {
            BackendKind::Embedded => self.engine(&format!("{path}.engine_config"), &entry.engine),
            _ => self.api(path, entry),
        }
        self.generation(&format!("{path}.generation_config"), entry);
    }

    fn dialect(&mut self, path: &str, dialect: &CustomDialect) {
        self.put(&format!("{path}.name"), &dialect.name);
        self.put(&format!("{path}.body"), dialect.body.as_str());
        for (name, value) in [
            ("open", &dialect.open),
            ("close", &dialect.close),
            ("separator", &dialect.separator),
            ("name_key", &dialect.name_key),
            ("arguments_key", &dialect.arguments_key),
        ] {
            if !value.is_empty() {
                self.put(&format!("{path}.{name}"), &value.escape_debug().to_string());
            }
        }
    }

    fn api(&mut self, path: &str, entry: &ProviderConfig) {
        let url = entry.api.base_url.as_ref().map(ToString::to_string);
        match entry.api.base_urls.as_slice() {
            [] => self.put_or(&format!("{path}.api_config.base_url"), url, "none"),
            urls => {
                let urls: Vec<_> = urls.iter().map(ToString::to_string).collect();
                self.put(&format!("{path}.api_config.base_urls"), &urls.join(", "));
            }
        }
        let (value, origin) = match (&entry.api.api_key, &entry.api.api_key_origin) {
            (Some(key), Some(origin)) => ((self.secret)(key), origin.clone()),
            _ if entry.api.key_fault.is_some() => ("missing".to_owned(), "default".to_owned()),
            _ => ("none".to_owned(), "default".to_owned()),
        };
        self.push(&format!("{path}.api_config.api_key"), &value, origin);
        let t = entry.api.timeouts;
        for (name, value) in [
            ("connect", t.connect),
            ("first_token", t.first_token),
            ("idle", t.idle),
            ("total", t.total),
        ] {
            let key = format!("{path}.api_config.timeout_s.{name}");
            self.put(&key, &value.as_secs_f64().to_string());
        }
        self.put(
            &format!("{path}.api_config.max_retries"),
            &entry.api.max_retries.to_string(),
        );
    }

    fn engine(&mut self, path: &str, engine: &EngineConfig) {
        for (name, value) in [
            ("threads", engine.threads),
            ("context_tokens", engine.context_tokens),
            ("max_streams", engine.max_streams),
            ("step_tokens", engine.step_tokens),
            ("queue_len", engine.queue_len),
            ("prompt_lookup_tokens", engine.prompt_lookup_tokens),
            ("draft_tokens", engine.draft_tokens),
        ] {
            let value = value.map(|n| n.to_string());
            self.put_or(&format!("{path}.{name}"), value, ENGINE_DEFAULT);
        }
        let cache_type = engine.cache_type.map(|kind| kind.as_str().to_owned());
        self.put_or(&format!("{path}.cache_type"), cache_type, ENGINE_DEFAULT);
        let flash_attention = engine.flash_attention.map(|on| on.to_string());
        self.put_or(
            &format!("{path}.flash_attention"),
            flash_attention,
            ENGINE_DEFAULT,
        );
        let session = engine.session_path.as_ref();
        let session = session.map(|path| path.display().to_string());
        self.put_or(&format!("{path}.session_path"), session, "none");
        let draft_model = engine.draft_model.clone();
        self.put_or(&format!("{path}.draft_model"), draft_model, "none");
        let lora = engine.lora.iter();
        let lora: Vec<_> = lora
            .map(|(name, file)| format!("{name}: {}", file.display()))
            .collect();
        let lora = (!lora.is_empty()).then(|| lora.join(", "));
        self.put_or(&format!("{path}.lora"), lora, "none");
    }

    fn generation(&mut self, path: &str, entry: &ProviderConfig) {
        let g = &entry.generation;
        let s = &g.sampling;
        let float = |value: Option<f32>| value.map(|value| value.to_string());
        let unset = "(the model's default)";
        self.put_or(&format!("{path}.temperature"), float(s.temperature), unset);
        self.put_or(&format!("{path}.top_p"), float(s.top_p), unset);
        self.put_or(
            &format!("{path}.top_k"),
            s.top_k.map(|v| v.to_string()),
            unset,
        );
        self.put_or(&format!("{path}.min_p"), float(s.min_p), unset);
        self.put_or(
            &format!("{path}.seed"),
            s.seed.map(|v| v.to_string()),
            "(random)",
        );
        self.put_or(
            &format!("{path}.presence_penalty"),
            float(s.presence_penalty),
            unset,
        );
        self.put_or(
            &format!("{path}.frequency_penalty"),
            float(s.frequency_penalty),
            unset,
        );
        self.put_or(
            &format!("{path}.repeat_penalty"),
            float(s.repeat_penalty),
            unset,
        );
        self.put(&format!("{path}.two_pass"), g.two_pass.as_str());
        self.put(&format!("{path}.think_tag"), g.think_tag.as_str());
        let thinking = g.max_thinking_tokens.unwrap_or(DEFAULT_THINKING_TOKENS);
        self.put(
            &format!("{path}.max_thinking_tokens"),
            &thinking.to_string(),
        );
        let response = g
            .max_response_tokens
            .or(g.max_tokens)
            .unwrap_or(DEFAULT_RESPONSE_TOKENS);
        self.put(
            &format!("{path}.max_response_tokens"),
            &response.to_string(),
        );
        let one = g
            .max_tokens
            .or(g.max_response_tokens)
            .unwrap_or(DEFAULT_RESPONSE_TOKENS);
        self.put(&format!("{path}.max_tokens"), &one.to_string());
        if !g.stop.is_empty() {
            self.put(&format!("{path}.stop"), &format!("{:?}", g.stop));
        }
        for (name, value) in &g.template_kwargs {
            let origin = self
                .config
                .origins
                .of(&format!("{path}.chat_template_kwargs"))
                .to_string();
            self.push(
                &format!("{path}.chat_template_kwargs.{name}"),
                &value.to_string(),
                origin,
            );
        }
    }
}

/// What `config check` says although nothing is wrong (row A9).
#[must_use]
pub fn notices(config: &Config) -> Vec<String> {
    let mut notices = Vec::new();
    for entry in &config.providers {
        let decisions = &entry.decisions;
        if entry.generation.include_reasoning.is_some() && entry.backend != BackendKind::OpenAi {
            notices.push(format!(
                "provider `{}`: `include_reasoning` has no effect, `{}` has no field for it",
                entry.name, entry.backend
            ));
        }
        let engine = &entry.engine;
        let is_embedded = entry.backend == BackendKind::Embedded;
        if is_embedded && engine.draft_tokens.is_some() && engine.draft_model.is_none() {
            notices.push(format!(
                "provider `{}`: `draft_tokens` has no effect without `draft_model`",
                entry.name
            ));
        }
        if decisions.unterminated_think == Some(UnterminatedThink::Continue) {
            notices.push(format!(
                "provider `{}`: `unterminated_think: continue` is what two passes do, a single pass stays empty",
                entry.name
            ));
        }
        if entry.generation.two_pass == TwoPassMode::On && !entry.backend.continues_exactly() {
            notices.push(format!(
                "provider `{}`: `two_pass: true` on `{}` continues in a second request and is only an approximation",
                entry.name, entry.backend
            ));
        }
    }
    notices
}
