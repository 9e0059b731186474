//! What this client takes for a stream: `streams CONFIG`, with the configuration's text.
//!
//! Reads the stream of its default entry twice, so that the connection is open, and prints
//! `[first, each]` of the second: microseconds until the first piece of text and for each
//! further one. `cargo xtask bench-python` sets the Python package beside it.
#![expect(clippy::print_stdout, reason = "the figures are this program's data")]

use std::error::Error;
use std::time::{Duration, Instant};

use twopass_core::chat::Event;
use twopass_provider::config::Environment;
use twopass_provider::{CallOptions, Config, Message, Provider, Role, TurnItem};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).ok_or("usage: streams CONFIG")?;
    let config = Config::parse(&text, "CONFIG", Environment::of_pairs([]))?;
    let provider = Provider::from_entry(&config, None)?;
    read(&provider).await?;
    let (first, each) = read(&provider).await?;
    println!(
        "[{}, {}]",
        first.as_secs_f64() * 1e6,
        each.as_secs_f64() * 1e6
    );
    Ok(())
}

async fn read(provider: &Provider) -> Result<(Duration, Duration), Box<dyn Error>> {
    let started = Instant::now();
    let asked = vec![Message::text(Role::User, "Hi")];
    let request = provider.request(asked, CallOptions::default())?;
    let mut stream = provider.stream(request).await?;
    let mut first = None;
    let mut n_further: u32 = 0;
    while let Some(item) = stream.next().await {
        if let TurnItem::Event(Event::TextDelta(_)) = item? {
            match first {
                None => first = Some(started.elapsed()),
                Some(_) => n_further += 1,
            }
        }
    }
    let first = first.ok_or("the stream held no text")?;
    Ok((first, (started.elapsed() - first) / n_further.max(1)))
}
