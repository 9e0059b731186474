//! A provider that is named by its address alone (rows I10, L8).

use std::time::Duration;

use serde_json::json;
use twopass_wire::models::{ModelInfo, decode_models};

use crate::config::{Config, Environment};
use crate::http::{self, Deadline};
use crate::{ErrorKind, Provider, ProviderError, endpoint};

/// The variable that holds the key of such a service.
pub const SERVICE_KEY: &str = "TWOPASS_API_KEY";
/// How long a service may take to say what it serves.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);

/// A Chat Completions service that answers.
#[derive(Debug)]
pub struct Service {
    /// Its model as a provider, named `server`.
    pub provider: Provider,
    /// What the service says of that model.
    pub model: ModelInfo,
}

impl Service {
    /// Asks the service at this address what it serves, for at most 5 s. Without `model` it is
    /// the first model of its list. The key, if it needs one, stands in [`SERVICE_KEY`].
    ///
    /// # Errors
    /// Kind [`ErrorKind::Config`]: the address is none. Otherwise: why nothing can be asked
    /// there, or that it has no model.
    pub async fn connect(
        url: &str,
        model: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, ProviderError> {
        let key = environment.get(SERVICE_KEY).map(|(key, _)| key);
        let asking = entry(url, model.unwrap_or("any"), key)?;
        let about = asking.provider(None)?;
        let models_url = about.models_url().ok_or_else(|| {
            let message = format!("`{url}` is no address of a server");
            ProviderError::new(ErrorKind::Config, message)
        })?;
        let limit = Deadline::after(HEALTH_LIMIT, ErrorKind::TimeoutFirstToken);
        let connected = endpoint::connect(about)?;
        let list = connected
            .fetch(&http::uri(&models_url)?, None, limit)
            .await?;
        let list = decode_models(&list)?;
        let mut known = list.into_iter();
        let model = match model {
            // A service may serve more than it lists.
            Some(name) => known
                .find(|known| known.id == name)
                .unwrap_or_else(|| ModelInfo {
                    id: name.to_owned(),
                    ..ModelInfo::default()
                }),
            None => known.next().ok_or_else(|| {
                let message = format!("the server at {url} lists no model");
                ProviderError::new(ErrorKind::NotFound, message)
            })?,
        };
        let config = entry(url, &model.id, key)?;
        let provider = Provider::from_entry(&config, None)?;
        Ok(Self { provider, model })
    }
}

fn entry(url: &str, model: &str, key: Option<&str>) -> Result<Config, ProviderError> {
    let auth = match key {
        Some(_) => json!({"base_url": url, "api_key_env": SERVICE_KEY}),
        None => json!({"base_url": url, "auth": "none"}),
    };
    let entry = json!({"providers": [{
        "name": "server", "provider_backend": "openai", "model_name": model, "api_config": auth,
    }]});
    let environment = Environment::of_pairs(key.map(|key| (SERVICE_KEY, key)));
    Config::parse(&entry.to_string(), "--server", environment)
}
