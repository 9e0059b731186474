//! Fetching models with a progress bar.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use twopass_provider::catalogue::{Catalogue, PullEvent};

use crate::failure::{Failure, say};

/// Fetches a model; progress goes to stderr, as a bar on a terminal, else line by line.
pub(crate) async fn pull(catalogue: &Catalogue, name: &str) -> Result<PathBuf, Failure> {
    let bar = Bar::new();
    let pulled = catalogue.pull(name, &|event| bar.show(event)).await;
    bar.bar.finish_and_clear();
    Ok(pulled?)
}

struct Bar {
    bar: ProgressBar,
    on_terminal: bool,
}

impl Bar {
    fn new() -> Self {
        let on_terminal = io::stderr().is_terminal();
        let target = if on_terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, on_terminal }
    }

    fn show(&self, event: PullEvent) {
        match event {
            PullEvent::Source(source) => self.note(&format!("trying {source}")),
            PullEvent::SourceFailed(reason) => self.note(&format!("  failed: {reason}")),
            PullEvent::Step(step) if self.on_terminal => self.bar.set_message(step),
            PullEvent::Step(step) => say(&step),
            PullEvent::Started { n_bytes, resumed } => {
                let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    self.bar.set_style(style);
                }
                self.bar.set_message("");
                if let Some(n_bytes) = n_bytes {
                    self.bar.set_length(n_bytes);
                }
                self.bar.set_position(resumed);
                if resumed > 0 {
                    self.note(&format!("continuing after {resumed} bytes"));
                }
            }
            PullEvent::Received(n_bytes) => self.bar.inc(n_bytes),
        }
    }

    fn note(&self, text: &str) {
        if self.on_terminal {
            self.bar.suspend(|| say(text));
        } else {
            say(text);
        }
    }
}
