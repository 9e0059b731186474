//! The driver for pipes: a message per line in, answers out. Reasoning and what the tools do
//! go to stderr, so that stdout is the answers alone.

use std::io::{self, Write};

use tokio::io::{AsyncBufReadExt, BufReader};
use twopass_agent::{AgentEvent, EndReason};
use twopass_core::chat::Event;
use twopass_tools::Consent;

use crate::command::{COMMANDS, ThinkingWish};
use crate::harmless::for_reader;
use crate::{Chat, Command, Effect, Happening};

/// Runs the app line by line until stdin ends. Nobody can be asked here: calls that need
/// consent are refused. Gives whether every message had an answer.
///
/// # Errors
/// stdin cannot be read or stdout written.
pub async fn run_lines(mut chat: Chat) -> io::Result<(Chat, bool)> {
    let mut input = BufReader::new(tokio::io::stdin());
    let mut all_answered = true;
    let mut n_turns = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let n_read = tokio::select! {
            n_read = input.read_until(b'\n', &mut line) => n_read?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        };
        if n_read == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match Command::parse(line) {
            Some(Err(fault)) => say(&fault),
            Some(Ok(Command::Quit)) => break,
            Some(Ok(command)) => run(&mut chat, command).await?,
            None => {
                // A blank line sets the answers apart.
                if n_turns > 0 {
                    print("\n")?;
                }
                n_turns += 1;
                all_answered &= follow(&mut chat, Effect::Send(line.to_owned())).await?;
            }
        }
    }
    Ok((chat, all_answered))
}

async fn run(chat: &mut Chat, command: Command) -> io::Result<()> {
    let about = chat.about();
    let text = match command {
        Command::Help => {
            let lines = COMMANDS.map(|(form, does)| format!("{form:<32}{does}"));
            lines.join("\n")
        }
        Command::Tools => about.tool_table(),
        Command::Model(None) => about.model,
        Command::Thinking(ThinkingWish::Fold) => "there is nothing to fold here".to_owned(),
        command => {
            return follow(chat, Effect::Run(command)).await.map(|_| ());
        }
    };
    say(&text);
    Ok(())
}

/// Carries out a message or a command to its end; true if there is an answer.
async fn follow(chat: &mut Chat, effect: Effect) -> io::Result<bool> {
    for happening in chat.perform(effect).await {
        tell(&happening);
    }
    let mut is_answered = false;
    while chat.is_working() {
        let happenings = tokio::select! {
            happenings = chat.next() => happenings,
            _ = tokio::signal::ctrl_c() => chat.perform(Effect::Cancel).await,

        };
        for happening in happenings {
            let Happening::Agent(event) = &happening else {
                tell(&happening);
                continue;
            };
            match event {
                AgentEvent::Delta(Event::TextDelta(text)) => print(text)?,
                AgentEvent::Delta(Event::ReasoningDelta(text)) => {
                    let mut err = io::stderr().lock();
                    let _ = write!(err, "{}", for_reader(text, &err));
                }
                AgentEvent::Delta(Event::ReasoningBlockEnd) => say(""),
                AgentEvent::StepFinished { reply, .. } if !reply.content.is_empty() => {
                    print("\n")?;
                }
                AgentEvent::ConsentNeeded { call } => {
                    say(&format!(
                        "{}: needs consent, which nobody can give here",
                        call.name
                    ));
                    let consent = Consent::NotAsked;
                    let call_id = call.id.clone();
                    chat.perform(Effect::Consent { call_id, consent }).await;
                }
                AgentEvent::CallStarted { call } => {
                    say(&format!("> {} {}", call.name, call.arguments.as_text()));
                }
                AgentEvent::CallFinished { output, .. } => {
                    say(&format!("< {}", output.for_people().trim_end()));
                }
                AgentEvent::Ended(outcome) => {
                    is_answered = outcome.end == EndReason::Answer;
                    if let Some(error) = &outcome.error {
                        say(&format!("error: {error}"));
                    } else if !is_answered {
                        say(&format!("no answer: {}", outcome.end));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(is_answered)
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(for_reader(text, &out).as_bytes())?;
    out.flush()
}

fn tell(happening: &Happening) {
    match happening {
        Happening::Told { text, .. } => say(text),
        Happening::ModelChanged(Ok(model)) => say(&format!("the model is {model} now")),
        Happening::ModelChanged(Err(why)) => say(why),
        _ => {}
    }
}

/// If nobody reads stderr there is nobody to tell.
fn say(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", for_reader(text, &err));
}
