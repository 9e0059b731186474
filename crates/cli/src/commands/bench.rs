use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::json;
use twopass_measure::speed::{self, Work};
use twopass_provider::Provider;

use crate::args::{BenchArgs, Shared};
use crate::failure::{Failure, say};
use crate::{output, setup};

/// Measures a provider. With `--json` a line per row as it is done, else a table at the end.
pub(crate) async fn run(shared: &Shared, args: BenchArgs) -> Result<ExitCode, Failure> {
    let config = setup::config(shared, args.provider, args.model)?;
    let entry = config.provider(None)?;
    setup::pull_missing(&config, &[entry]).await?;
    let provider = Provider::from_entry(&config, None)?;
    let work = Work {
        concurrency: args.concurrency.iter().map(|n| *n as usize).collect(),
        requests: args.requests as usize,
        tokens: args.max_response_tokens,
        long_words: args.long_words as usize,
        budgets: args.budgets,
        // Nothing that an earlier run left in a cache may help.
        seed: args.seed.unwrap_or_else(now),
    };
    let mut rows = Vec::new();
    speed::run(&provider, &work, |row| {
        if shared.json {
            output::line(&speed::to_json(&row).to_string())?;
        } else {
            say(&format!("{} done", row.work));
        }
        rows.push(row);
        Ok::<_, Failure>(())
    })
    .await?;
    if !shared.json {
        let facts =
            json!({"provider": provider.name(), "model": provider.model_name(), "seed": work.seed});
        output::line(&facts.to_string())?;
        output::line(&output::table(&speed::table(&rows)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
