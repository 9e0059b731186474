use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use twopass_provider::{ErrorKind, Provider};

use crate::args::{EmbedArgs, Shared};
use crate::failure::Failure;
use crate::{input, output, setup};

/// Prints the vector of each line of stdin as one line of JSON, in their order.
pub(crate) async fn run(shared: &Shared, args: EmbedArgs) -> Result<ExitCode, Failure> {
    let mut config = setup::config(shared, None, None)?;
    if let Some(model) = args.model {
        config.embeddings.model = model;
    }
    let provider = Provider::from_entry(&config, config.embeddings.provider.as_deref())?;
    let text = input::read_text(Path::new("-"), "the texts")?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(idx) = lines.iter().position(|line| line.trim().is_empty()) {
        let message = format!("line {} of stdin is empty: it has no vector", idx + 1);
        return Err(Failure::new(message).with_param("stdin"));
    }
    if !lines.is_empty() {
        setup::pull_embedder(&config).await?;
    }
    let embeddings = provider.embed(&lines).await?;
    for (index, vector) in embeddings.vectors.iter().enumerate() {
        // Written as single precision, so that 0.1 stays 0.1.
        let numbers = serde_json::to_string(vector)
            .map_err(|error| Failure::of(ErrorKind::Internal, format!("a vector: {error}")))?;
        if shared.json {
            let model = json!(embeddings.model);
            let used = embeddings.fallback_used;
            output::line(&format!(
                "{{\"index\":{index},\"model\":{model},\"fallback_used\":{used},\"embedding\":{numbers}}}"
            ))?;
        } else {
            output::line(&numbers)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
