use std::process::ExitCode;

use serde_json::{Value, json};
use twopass_provider::ErrorKind;
use twopass_provider::catalogue::{Catalogue, Located, ModelReport, inspect};

use crate::args::{ModelsAction, ModelsArgs, Shared};
use crate::failure::Failure;
use crate::{models, output, setup};

/// Lists, fetches or inspects local models.
pub(crate) async fn run(shared: &Shared, args: ModelsArgs) -> Result<ExitCode, Failure> {
    let config = setup::config(shared, None, None)?;
    let catalogue = Catalogue::new(&config);
    match args.action.unwrap_or(ModelsAction::List) {
        ModelsAction::List => list(shared.json, &catalogue)?,
        ModelsAction::Pull { name } => {
            let path = models::pull(&catalogue, &name).await?;
            let path = path.display().to_string();
            let text = if shared.json {
                json!({"name": name, "path": path}).to_string()
            } else {
                path
            };
            output::line(&text)?;
        }
        ModelsAction::Inspect { path } => {
            let Located::At(file) = catalogue.locate(&path)? else {
                return Err(Failure::of(
                    ErrorKind::NotFound,
                    format!("the model `{path}` is not on this machine"),
                )
                .with_hint(format!("`twopass models pull {path}` fetches it")));
            };
            let report = inspect(&file)?;
            let text = if shared.json {
                report_json(&report).to_string()
            } else {
                report_text(&report)
            };
            output::line(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(as_json: bool, catalogue: &Catalogue) -> Result<(), Failure> {
    let rows = catalogue.list();
    if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name,
                    "path": row.path,
                    "n_bytes": row.n_bytes,
                    "licence": row.licence,
                    "about": row.about,
                })
            })
            .collect();
        return output::line(&Value::from(rows).to_string());
    }
    let mut cells = vec![
        ["NAME", "SIZE", "HERE", "LICENCE", "WHAT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    cells.extend(rows.iter().map(|row| {
        let here = if row.path.is_some() { "yes" } else { "no" };
        vec![
            row.name.clone(),
            size(row.n_bytes),
            here.to_owned(),
            row.licence.to_owned(),
            row.about.to_owned(),
        ]
    }));
    output::line(&output::table(&cells))
}

fn size(n_bytes: u64) -> String {
    format!("{} MB", n_bytes.div_ceil(1_000_000))
}

fn report_json(report: &ModelReport) -> Value {
    let template = report.template.as_ref().map(|template| {
        json!({
            "n_bytes": template.n_bytes,
            "writes_tools": template.writes_tools,
            "think_tag": template.think_tag,
            "fault": template.fault,
        })
    });
    let tags: Vec<_> = report
        .tag_tokens
        .iter()
        .map(|(tag, kind)| json!({"text": tag, "kind": kind}))
        .collect();
    json!({
        "name": report.name,
        "architecture": report.architecture,
        "licence": report.licence,
        "n_bytes": report.n_bytes,
        "gguf_version": report.version,
        "n_tensors": report.n_tensors,
        "n_layers": report.n_layers,
        "context_tokens": report.context_tokens,
        "n_vocab": report.n_vocab,
        "template": template,
        "tag_tokens": tags,
    })
}

fn report_text(report: &ModelReport) -> String {
    let unknown = || "unknown".to_owned();
    let count = |value: Option<u64>| value.map_or_else(unknown, |value| value.to_string());
    let template = match &report.template {
        None => "none".to_owned(),
        Some(template) => {
            let tools = if template.writes_tools {
                "writes tools"
            } else {
                "writes no tools"
            };
            let think = template
                .think_tag
                .map_or("no place for thoughts".to_owned(), |tag| {
                    format!("thoughts in <{tag}>")
                });
            let fault = template
                .fault
                .as_ref()
                .map_or(String::new(), |fault| format!(", cannot be used: {fault}"));
            format!("{} bytes, {tools}, {think}{fault}", template.n_bytes)
        }
    };
    let tags: Vec<_> = report
        .tag_tokens
        .iter()
        .map(|(tag, kind)| format!("{tag} ({kind})"))
        .collect();
    let tags = if tags.is_empty() {
        "none".to_owned()
    } else {
        tags.join(", ")
    };
    let rows = [
        ("name", report.name.clone().unwrap_or_else(unknown)),
        ("architecture", report.architecture.clone()),
        ("licence", report.licence.clone().unwrap_or_else(unknown)),
        ("size", format!("{} bytes", report.n_bytes)),
        (
            "format",
            format!("GGUF {}, {} tensors", report.version, report.n_tensors),
        ),
        ("layers", count(report.n_layers)),
        (
            "context",
            format!("{} tokens", count(report.context_tokens)),
        ),
        ("vocabulary", format!("{} tokens", report.n_vocab)),
        ("template", template),
        ("tag tokens", tags),
    ];
    let rows: Vec<_> = rows
        .map(|(name, value)| vec![name.to_owned(), value])
        .to_vec();
    output::table(&rows)
}
