use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use twopass_core::chat::{Diagnostic, DiagnosticKind, Reply, StopReason};
use twopass_core::control::{
    AnswerForm, ReplyAssembler, TurnEnd, TurnParser, TurnParserOptions, TurnSyntax,
};
use twopass_core::reasoning_parser::{self, ReasoningSyntax};
use twopass_core::text::Utf8Assembler;
use twopass_core::tool_parser::{self, CallRules, ToolDialect, ToolSet, ToolSyntax};
use twopass_wire::generate::encode_parsed;

use crate::args::{FinishReasonArg, ParseArgs, Shared};
use crate::failure::{Failure, exit_code};
use crate::{input, output, setup};

/// Reads model text on stdin. Exit code 1: it holds neither an answer nor a valid call, or no
/// call where one was required.
pub(crate) fn run(shared: &Shared, args: &ParseArgs) -> Result<ExitCode, Failure> {
    let own = setup::config(shared, None, None)?.dialect_rows;
    if args.list {
        list(shared.json, &own)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(args, &own)?;
    let end = TurnEnd {
        stop_reason: match args.finish_reason {
            FinishReasonArg::Stop => StopReason::EndTurn,
            FinishReasonArg::Length => StopReason::Length,
            FinishReasonArg::ToolCalls => StopReason::ToolCalls,
            FinishReasonArg::ContentFilter => StopReason::ContentFilter,
            FinishReasonArg::Cancelled => StopReason::Cancelled,
        },
        stop_string: None,
    };
    let bytes = input::read_bytes(Path::new("-"), "the text")?;
    let chunk_bytes = args.chunk_bytes.map_or(usize::MAX, |n| n as usize);
    let reply = parse(options, &end, bytes.chunks(chunk_bytes));
    output::line(&encode_parsed(&reply))?;
    Ok(exit_code(&reply))
}

fn parse<'a>(
    options: TurnParserOptions,
    end: &TurnEnd,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Reply {
    let mut utf8 = Utf8Assembler::new();
    let mut parser = TurnParser::new(options);
    let mut assembler = ReplyAssembler::new();
    let mut text = String::new();
    let mut events = Vec::new();
    for chunk in chunks {
        text.clear();
        utf8.push(chunk, &mut text);
        parser.push(&text, &mut events);
        events.drain(..).for_each(|event| assembler.handle(&event));
    }
    text.clear();
    utf8.finish(&mut text);
    parser.push(&text, &mut events);
    let stop_reason = parser.finish(end, &mut events);
    events.drain(..).for_each(|event| assembler.handle(&event));
    let mut reply = assembler.finish(stop_reason);
    if utf8.replaced() {
        reply.diagnostics.push(Diagnostic::new(
            DiagnosticKind::InvalidUtf8,
            "bytes that are not UTF-8 were replaced by U+FFFD",
        ));
    }
    reply
}

fn options(args: &ParseArgs, own: &[ToolDialect]) -> Result<TurnParserOptions, Failure> {
    let unknown = |flag: &str, name: &str| {
        Failure::new(format!("--{flag}: unknown dialect `{name}`"))
            .with_param(format!("--{flag}"))
            .with_hint("`twopass parse --list` lists the dialects")
    };
    let tools = ToolSyntax::from_name_with(&args.dialect, own)
        .ok_or_else(|| unknown("dialect", &args.dialect))?;
    let reasoning = match &args.reasoning {
        Some(name) => ReasoningSyntax::from_name(name).ok_or_else(|| unknown("reasoning", name))?,
        None => partner(&args.dialect),
    };
    let (specs, choice) = input::read_tools(args.tools.as_deref(), args.tool_choice.as_deref())?;
    Ok(TurnParserOptions {
        syntax: TurnSyntax::new(reasoning, tools),
        prompt_opened: args.prompt_opened.then_some(true),
        thinking_off: false,
        answer_form: AnswerForm::Free,
        calls: CallRules {
            tools: args.tools.is_some().then(|| Arc::new(ToolSet::new(specs))),
            choice,
            ..CallRules::default()
        },
    })
}

/// What the models of these dialects write around their thoughts, and the usual tags besides.
fn partner(dialects: &str) -> ReasoningSyntax {
    let own = dialects
        .split('+')
        .filter_map(|name| tool_parser::dialect(name.trim()))
        .map(|row| row.reasoning);
    let names: Vec<_> = own.chain(["auto"]).collect();
    ReasoningSyntax::from_name(&names.join("+")).unwrap_or_else(ReasoningSyntax::auto)
}

/// One dialect of the list.
struct Listed {
    kind: &'static str,
    name: &'static str,
    aliases: &'static [&'static str],
    models: &'static str,
    markers: Vec<&'static str>,
    begins_inside: &'static str,
    /// Of tool dialects: the reasoning dialect that belongs to it, and whether arguments are
    /// shown as they come.
    reasoning: Option<&'static str>,
    streams_arguments: Option<bool>,
    source: &'static str,
}

fn listed(own: &[ToolDialect]) -> Vec<Listed> {
    let tools = tool_parser::DIALECTS.iter().chain(own).map(|row| Listed {
        kind: "tools",
        name: row.name,
        aliases: row.aliases,
        models: row.models,
        markers: row.opens.iter().chain(row.closes).copied().collect(),
        begins_inside: reasoning_parser::dialect(row.reasoning).map_or("", |r| r.begins_inside),
        reasoning: Some(row.reasoning),
        streams_arguments: Some(row.streams_arguments()),
        source: row.source,
    });
    let reasoning = reasoning_parser::DIALECTS.iter().map(|row| Listed {
        kind: "reasoning",
        name: row.name,
        aliases: &[],
        models: row.models,
        markers: row.pairs.iter().flat_map(|pair| [pair.0, pair.1]).collect(),
        begins_inside: row.begins_inside,
        reasoning: None,
        streams_arguments: None,
        source: row.source,
    });
    tools.chain(reasoning).collect()
}

fn list(as_json: bool, own: &[ToolDialect]) -> Result<(), Failure> {
    let rows = listed(own);
    if as_json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({
                    "kind": row.kind, "name": row.name, "aliases": row.aliases,
                    "models": row.models, "markers": row.markers,
                    "reasoning": row.reasoning, "begins_inside": row.begins_inside,
                    "streams_arguments": row.streams_arguments, "source": row.source,
                })
            })
            .collect();
        return output::line(&Value::from(rows).to_string());
    }
    output::line(&list_text(&rows))
}

/// Two tables that fit 100 columns, then where the facts come from.
fn list_text(rows: &[Listed]) -> String {
    const WIDTH: usize = 100;
    let models = |row: &Listed| match row.aliases {
        [] => row.models.to_owned(),
        aliases => format!("{} (also {})", row.models, aliases.join(", ")),
    };
    let mut tools = vec![["TOOL CALLS", "REASONING", "STREAMED", "MODELS"].map(str::to_owned)];
    let mut reasoning = vec![["REASONING", "BEGINS INSIDE", "MODELS"].map(str::to_owned)];
    let mut sources: Vec<&str> = Vec::new();
    for row in rows {
        match row.streams_arguments {
            Some(streams) => tools.push([
                row.name.to_owned(),
                row.reasoning.unwrap_or_default().to_owned(),
                if streams { "yes" } else { "per argument" }.to_owned(),
                models(row),
            ]),
            None => reasoning.push([
                row.name.to_owned(),
                row.begins_inside.to_owned(),
                models(row),
            ]),
        }
        if !row.source.is_empty() && !sources.contains(&row.source) {
            sources.push(row.source);
        }
    }
    let tools: Vec<_> = tools.into_iter().map(Vec::from).collect();
    let reasoning: Vec<_> = reasoning.into_iter().map(Vec::from).collect();
    format!(
        "{}\n\n{}\n\nSources:\n  {}\n\n`--json` also has the markers and the source of each.",
        output::table_within(WIDTH, &tools),
        output::table_within(WIDTH, &reasoning),
        sources.join("\n  ")
    )
}
