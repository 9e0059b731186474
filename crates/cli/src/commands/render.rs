use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use twopass_core::control::TextModel;
use twopass_provider::catalogue::Catalogue;
use twopass_provider::config::ProviderConfig;
use twopass_provider::prompt::{facts_of_path, model_of_file, model_of_template, render};
use twopass_provider::{CallOptions, Config};

use crate::args::{RenderArgs, Shared, thinking};
use crate::failure::Failure;
use crate::input::{self, Sources};
use crate::{output, setup};

/// Prints the prompt that the model would see, up to where it goes on.
pub(crate) fn run(shared: &Shared, args: &RenderArgs) -> Result<ExitCode, Failure> {
    let conversation = input::read(Sources {
        messages: args.messages.as_deref(),
        tools: args.tools.as_deref(),
        prompt: args.prompt.as_deref(),
        ..Sources::default()
    })?;
    let config = setup::config(shared, args.provider.clone(), None)?;
    let (entry, model) = match (&args.template, &args.model) {
        (Some(path), _) => {
            let source = input::read_text(path, "--template")?;
            (
                ProviderConfig::embedded("template", "template"),
                model_of_template(&source)?,
            )
        }
        (None, Some(name)) => {
            let entry = ProviderConfig::embedded("model", name);
            let path = Catalogue::new(&config).model_path(&entry)?;
            (entry, model_of_file(&path)?)
        }
        (None, None) => configured(&config)?,
    };
    let options = CallOptions {
        tools: conversation.tools,
        tool_choice: conversation.tool_choice,
        thinking: thinking(args.thinking, args.no_thinking),
        ..CallOptions::default()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let now = now.and_then(|since| i64::try_from(since.as_secs()).ok());
    let prompt = render(&entry, &model, conversation.messages, options, now)?;
    if shared.json {
        output::line(&json!({"prompt": prompt}).to_string())?;
    } else {
        output::piece(&prompt)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn configured(config: &Config) -> Result<(ProviderConfig, TextModel), Failure> {
    let entry = config.provider(None)?;
    let model = match &entry.chat_template {
        Some(path) => facts_of_path(path)?.to_model()?,
        None => model_of_file(&setup::model_file(config, entry)?)?,
    };
    Ok((entry.clone(), model))
}
