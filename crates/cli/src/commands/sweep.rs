use std::io::{IsTerminal, Read as _, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use twopass_measure::chart::{self, Style};
use twopass_measure::dataset::Dataset;
use twopass_measure::records::RecordFile;
use twopass_measure::report::Report;
use twopass_measure::svg::svg;
use twopass_measure::sweep::{Outcome, Plan, Record, Settings, Sweep};
use twopass_provider::config::ProviderConfig;
use twopass_provider::{ErrorKind, Provider, ProviderError};

use crate::args::{Shared, SweepArgs};
use crate::failure::{Failure, NEGATIVE, one_line, say};
use crate::{input, output, setup};

/// Characters of a line; more would show no more.
const WIDTH: usize = 80;

/// Asks a set of questions at several budgets. Exit code 1: turns failed.
pub(crate) async fn run(shared: &Shared, args: SweepArgs) -> Result<ExitCode, Failure> {
    let text = input::read_text(&args.dataset, "--dataset")?;
    let from = args.dataset.display().to_string();
    let mut dataset = Dataset::read(&text, &from)?;
    if let Some(limit) = args.limit {
        dataset.items.truncate(limit as usize);
    }
    let config = setup::config(shared, args.provider.clone(), args.model.clone())?;
    let entry = config.provider(None)?;
    let plan = plan(&args, &dataset, entry);
    let provider = Provider::from_entry(&config, None)?;
    let sweep = Sweep {
        provider: &provider,
        dataset: &dataset,
        plan: &plan,
    };
    // What is wrong shows before a model is fetched or a record is written.
    sweep.check()?;
    args.svg.as_deref().map_or(Ok(()), check_svg)?;
    setup::pull_missing(&config, &[entry]).await?;
    let (mut file, mut records) = match &args.records {
        Some(path) => {
            let (file, known) = RecordFile::open(path, &plan.settings)?;
            (Some(file), known)
        }
        None => (None, Vec::new()),
    };
    let done = records.clone();
    let bar = progress(&sweep, &done);
    let mut n_failed = 0;
    let ran = sweep.run(&done, |outcome| {
        bar.inc(1);
        match outcome {
            Outcome::Answered(record) => {
                if let Some(file) = &mut file {
                    file.add(&record)?;
                }
                records.push(record);
            }
            Outcome::Failed(error) => {
                n_failed += 1;
                bar.suspend(|| {
                    say(&format!(
                        "note: a turn failed: {}",
                        one_line(&error.to_string())
                    ))
                });
            }
        }
        Ok(())
    });
    let ran = ran.await;
    bar.finish_and_clear();
    if let Err(error) = ran {
        return Err(interrupted(error, args.records.as_deref(), records.len()));
    }
    let name = args.dataset.file_name().unwrap_or_default().display();
    let about = (&*name.to_string(), dataset.items.len());
    let mut report = Report::new(&plan, &records, about)
        .ok_or_else(|| Failure::of(ErrorKind::UpstreamError, "no turn was answered"))?;
    report.n_failed = n_failed;
    print(shared, &args, &report)?;
    Ok(match n_failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(NEGATIVE),
    })
}

fn plan(args: &SweepArgs, dataset: &Dataset, entry: &ProviderConfig) -> Plan {
    let mut budgets = args.budgets.clone();
    budgets.sort_unstable();
    budgets.dedup();
    Plan {
        settings: Settings {
            dataset_sha256: dataset.sha256.clone(),
            provider: entry.name.clone(),
            model: entry.model_name.clone(),
            seed: args.seed,
            // Records are of one temperature, whoever said it.
            temperature: args.temperature.or(entry.generation.sampling.temperature),
            max_response_tokens: args.max_response_tokens,
            concurrency: args.concurrency as usize,
        },
        budgets,
        repeats: args.repeats,
    }
}

fn progress(sweep: &Sweep<'_>, done: &[Record]) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(sweep.n_turns() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} turns, {eta} left") {
        bar.set_style(style);
    }
    bar.set_position(done.len().min(sweep.n_turns()) as u64);
    bar
}

fn interrupted(error: ProviderError, records: Option<&Path>, n_records: usize) -> Failure {
    let failure = Failure::from(error);
    match records {
        Some(path) => failure.with_hint(format!(
            "{n_records} turns are in {}; the same command goes on from there",
            path.display()
        )),
        None => failure.with_hint("with --records FILE a run can go on where it stopped"),
    }
}

/// Checks that a picture may take the place of what is there: only another picture.
fn check_svg(path: &Path) -> Result<(), Failure> {
    let Ok(facts) = path.metadata() else {
        return Ok(());
    };
    let mut head = [0; 4];
    let read = |head: &mut [u8]| std::fs::File::open(path)?.read_exact(head);
    let is_picture = facts.is_file() && read(&mut head).is_ok() && head == *b"<svg";
    match is_picture || facts.len() == 0 {
        true => Ok(()),
        false => Err(svg_failure(path, "is there and is no SVG picture")),
    }
}

fn svg_failure(path: &Path, what: &str) -> Failure {
    let message = format!("--svg: {}: {what}", path.display());
    Failure::of(ErrorKind::Io, message).with_param("--svg")
}

fn print(shared: &Shared, args: &SweepArgs, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &args.svg {
        check_svg(path)?;
        let written = std::fs::write(path, svg(report));
        written.map_err(|error| svg_failure(path, &error.to_string()))?;
    }
    if shared.json {
        return output::line(&report.to_json().to_string());
    }
    let style = Style {
        width: WIDTH,
        colour: stdout().is_terminal() && !output::is_plain(),
    };
    output::styled_line(&chart::text(report, style))
}
