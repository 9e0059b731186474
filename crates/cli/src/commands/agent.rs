use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use twopass_agent::{AgentEvent, EndReason, Outcome, trace};
use twopass_core::chat::{Event, Message, Role};
use twopass_provider::ErrorKind;
use twopass_tools::Consent;

use crate::agents;
use crate::args::{AgentArgs, Shared};
use crate::failure::{Failure, NEGATIVE, one_line, say};
use crate::input::{self, Sources};
use crate::output;

/// Most characters of arguments and results that stderr shows.
const SHOWN_CHARS: usize = 200;

/// Runs a task to its end. Exit code 1: the run ended without an answer.
pub(crate) async fn run(shared: &Shared, args: AgentArgs) -> Result<ExitCode, Failure> {
    let task = input::read(Sources {
        prompt: Some(&args.task),
        ..Sources::default()
    })?;
    let task = task.messages.iter().map(Message::content_text).collect();
    // Nobody may be there to be asked: what needs consent is refused unless a flag allows it.
    let mut agent = agents::assemble(shared, &args.flags).await?;
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    let reporter = Reporter {
        trace,
        as_json: shared.json,
        shows_reasoning: std::io::stderr().is_terminal(),
    };
    let worked = reporter.work(&mut agent.conversation, task).await;
    agents::close(agent.memory, agent.servers).await?;
    worked
}

/// Tells what happens: the trace to its file, progress to stderr, the answer to stdout.
struct Reporter {
    trace: Option<Trace>,
    as_json: bool,
    shows_reasoning: bool,
}

impl Reporter {
    async fn work(
        mut self,
        conversation: &mut twopass_agent::Conversation,
        task: String,
    ) -> Result<ExitCode, Failure> {
        self.write(trace::start_line(conversation, &task))?;
        let message = Message::text(Role::User, task);
        let mut turn = conversation.begin(message.clone());
        let mut ended = None;
        loop {
            let event = tokio::select! {
                event = turn.next() => event,
                _ = tokio::signal::ctrl_c() => {
                    turn.cancel();
                    continue;
                }
            };
            let Some(event) = event else { break };
            if let Some(line) = trace::event_line(&event) {
                self.write(line)?;
            }
            self.show(&event);
            match event {
                AgentEvent::ConsentNeeded { call } => turn.consent(&call.id, Consent::NotAsked),
                AgentEvent::Ended(outcome) => ended = Some(outcome),
                _ => {}
            }
        }
        let outcome = ended
            .ok_or_else(|| Failure::of(ErrorKind::Internal, "the run did not say how it ended"))?;
        conversation.keep(message, &outcome);
        self.finish(*outcome)
    }

    fn write(&mut self, line: String) -> Result<(), Failure> {
        match &mut self.trace {
            Some(trace) => trace.write(&line),
            None => Ok(()),
        }
    }

    /// What people see of a run while it goes on.
    fn show(&self, event: &AgentEvent) {
        match event {
            AgentEvent::Delta(Event::ReasoningDelta(text)) if self.shows_reasoning => {
                output::reasoning(text);
            }
            AgentEvent::CallStarted { call } => {
                let arguments = shown(call.arguments.as_text());
                say(&format!("> {} {arguments}", call.name));
            }
            AgentEvent::CallFinished { output, .. } => {
                say(&format!("< {}", shown(&output.for_people())));
            }
            AgentEvent::Nudged(nudge) => say(&format!("note: {}", one_line(&nudge.text))),
            _ => {}
        }
    }

    fn finish(self, outcome: Outcome) -> Result<ExitCode, Failure> {
        if let Some(trace) = self.trace {
            trace.close()?;
        }
        if self.as_json {
            output::line(&trace::end_value(&outcome).to_string())?;
        } else if outcome.end == EndReason::Answer {
            output::line(&outcome.answer)?;
        }
        if let Some(error) = outcome.error {
            let body = error.to_body();
            return Err(Failure::Error { body, hint: None });
        }
        if outcome.end == EndReason::Answer {
            return Ok(ExitCode::SUCCESS);
        }
        say(&format!("the run ended without an answer: {}", outcome.end));
        Ok(ExitCode::from(NEGATIVE))
    }
}

fn shown(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A file of JSON lines.
struct Trace {
    file: BufWriter<File>,
    path: String,
}

impl Trace {
    fn create(path: &Path) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let file = File::create(path).map_err(|error| failure(&shown, &error))?;
        Ok(Self {
            file: BufWriter::new(file),
            path: shown,
        })
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.flush());
        written.map_err(|error| failure(&self.path, &error))
    }

    fn close(mut self) -> Result<(), Failure> {
        self.file
            .flush()
            .map_err(|error| failure(&self.path, &error))
    }
}

fn failure(path: &str, error: &std::io::Error) -> Failure {
    Failure::of(
        ErrorKind::Io,
        format!("the trace {path} cannot be written: {error}"),
    )
    .with_param("--trace")
}
