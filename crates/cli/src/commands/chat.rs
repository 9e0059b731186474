use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use twopass_provider::config::Environment;
use twopass_provider::{ErrorKind, Provider, Service};
use twopass_tui::{App, Chat, ChatParts, Session, Switch, Theme, run_lines, run_screen};

use crate::agents::{self, Assembled};
use crate::args::{AgentFlags, ChatArgs, Shared};
use crate::failure::{Failure, NEGATIVE};
use crate::{output, setup};

/// Talks until the person leaves; line by line if stdin or stdout is no terminal, or a dumb one. Exit code 1:
/// a message had no answer.
pub(crate) async fn run(shared: &Shared, args: ChatArgs) -> Result<ExitCode, Failure> {
    let Assembled {
        conversation,
        max_thinking_tokens,
        memory,
        servers,
    } = agents::assemble(shared, &args.flags).await?;
    let folder = sessions_folder()?;
    let path = session_path(&folder, args.resume.as_deref())?;
    let model = conversation.agent().provider().model_name().to_owned();
    let session = Session::new(path, &model, conversation.kind().as_str());
    let mut chat = Chat::new(ChatParts {
        conversation,
        session,
        memory: memory.clone(),
        switch: switch(shared, &args.flags),
        max_thinking_tokens,
    });
    let restored = match args.resume {
        Some(_) => chat.resume(),
        None => Ok(Vec::new()),
    };
    let restored = restored
        .map_err(|error| Failure::of(ErrorKind::Io, error.to_string()).with_param("--resume"))?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let is_screen = is_terminal && !is_dumb;
    let all_answered = if is_screen {
        let plain = output::is_plain();
        let theme = if plain { Theme::PLAIN } else { Theme::COLOR };
        let app = App::resumed(chat.about(), theme, &restored);
        run_screen(chat, app).await?;
        true
    } else {
        run_lines(chat).await?.1
    };
    agents::close(memory, servers).await?;
    Ok(match all_answered {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(NEGATIVE),
    })
}

fn sessions_folder() -> Result<PathBuf, Failure> {
    let folder = Environment::of_process().data_folder().ok_or_else(|| {
        let message = "there is no folder for sessions: neither XDG_DATA_HOME nor HOME is set";
        Failure::of(ErrorKind::Config, message)
    })?;
    Ok(folder.join("sessions"))
}

/// The named file, the newest one if none is named, or a new one.
fn session_path(folder: &Path, resume: Option<&Path>) -> Result<PathBuf, Failure> {
    match resume {
        Some(path) if path == Path::new("newest") => Session::newest(folder).ok_or_else(|| {
            let message = format!("there is no session in {}", folder.display());
            Failure::new(message).with_param("--resume")
        }),
        Some(path) => Ok(path.to_path_buf()),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now_ms = now.map_or(0, |now| now.as_millis());
            Ok(folder.join(format!("{now_ms}.jsonl")))
        }
    }
}

/// How another model is taken: a configured provider, one of the server's models, or a model
/// of the provider in use.
fn switch(shared: &Shared, flags: &AgentFlags) -> Switch {
    let shared = Shared {
        config: shared.config.clone(),
        json: shared.json,
    };
    let (server, provider) = (flags.server.clone(), flags.provider.clone());
    Box::new(move |name: String| {
        let (server, provider) = (server.clone(), provider.clone());
        let shared = Shared {
            config: shared.config.clone(),
            json: shared.json,
        };
        async move {
            let made = match server {
                Some(url) => of_server(&url, &name).await,
                None => of_configuration(&shared, provider, name).await,
            };
            made.map_err(|failure| failure.message().unwrap_or_default())
        }
        .boxed()
    })
}

async fn of_server(url: &str, model: &str) -> Result<Provider, Failure> {
    let service = Service::connect(url, Some(model), &Environment::of_process()).await?;
    Ok(service.provider)
}

async fn of_configuration(
    shared: &Shared,
    provider: Option<String>,
    name: String,
) -> Result<Provider, Failure> {
    let config = setup::config(shared, None, None)?;
    let config = match config.provider(Some(&name)) {
        Ok(_) => setup::config(shared, Some(name), None)?,
        Err(_) => setup::config(shared, provider, Some(name))?,
    };
    // A screen has no room for a download's progress.
    setup::require_models(&config, &[config.provider(None)?])?;
    Ok(Provider::from_entry(&config, None)?)
}
