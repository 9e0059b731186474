//! What was said and done, as lines of a given width.

use ratatui::text::{Line, Span};
use twopass_core::chat::ToolCall;
use unicode_width::UnicodeWidthStr as _;

use crate::app::{CallCard, CallState, Item, Reasoning};
use crate::harmless::harmless_line;
use crate::wrap::{Prefix, wrap};
use crate::{App, Theme, markdown};

/// Lines of arguments or a result that are shown unless all are wanted.
const MAX_CARD_LINES: usize = 6;
/// Characters of the gauge.
const GAUGE: usize = 10;

/// The last lines of the transcript: `n_lines` of them above the `skipped` last ones. Items
/// that are further up are not looked at.
pub(crate) fn tail(app: &App, width: usize, n_lines: usize) -> (Vec<Line<'static>>, usize) {
    let wanted = n_lines.saturating_add(app.scroll);
    let mut blocks = Vec::new();
    let mut n_known = 0;
    for item in app.items.iter().rev() {
        let mut block = lines(app, item, width);
        block.push(Line::default());
        n_known += block.len();
        blocks.push(block);
        // The empty line after the last item is not shown.
        if n_known > wanted {
            break;
        }
    }
    let mut all: Vec<Line<'static>> = blocks.into_iter().rev().flatten().collect();
    all.pop();
    let skipped = app.scroll.min(all.len().saturating_sub(n_lines));
    all.truncate(all.len() - skipped);
    let first = all.len().saturating_sub(n_lines);
    (all.split_off(first), skipped)
}

fn lines(app: &App, item: &Item, width: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    match item {
        Item::User(text) => {
            let prefix = Prefix {
                first: vec![Span::styled("> ", theme.accent())],
                rest: vec![Span::raw("  ")],
            };
            wrap_text(text, width, &prefix, theme.strong())
        }
        Item::Reasoning(reasoning) => reasoning_lines(app, reasoning, width),
        Item::Answer(text) => markdown::render(text, width, theme),
        Item::Call(card) => card_lines(app, card, width),
        Item::Note { text, is_bad } => {
            let (mark, style) = match is_bad {
                true => ("! ", theme.bad()),
                false => ("· ", theme.dim()),
            };
            let prefix = Prefix {
                first: vec![Span::styled(mark, style)],
                rest: vec![Span::raw("  ")],
            };
            let lines = text.lines().enumerate().flat_map(|(at, line)| {
                let mut prefix = prefix.clone();
                if at > 0 {
                    prefix.first = prefix.rest.clone();
                }
                let columns = " ".repeat(before_last_column(line, width / 2));
                prefix.rest.push(Span::raw(columns));
                wrap(&[Span::styled(line, style)], width, &prefix)
            });
            lines.collect()
        }
    }
}

/// Where the last column of a line of a table begins, if that is within `max` columns: what goes
/// on in the next line stands below it. Otherwise 0.
fn before_last_column(line: &str, max: usize) -> usize {
    let before = line.rfind("  ").map_or(0, |at| line[..at + 2].width());
    if before < max { before } else { 0 }
}

/// Lines of a text, each wrapped; the first prefix stands on the first line only.
fn wrap_text(
    text: &str,
    width: usize,
    prefix: &Prefix,
    style: ratatui::style::Style,
) -> Vec<Line<'static>> {
    let rest = Prefix::same(prefix.rest.clone());
    let lines = text.lines().enumerate().flat_map(|(at, line)| {
        let prefix = if at == 0 { prefix } else { &rest };
        wrap(&[Span::styled(line, style)], width, prefix)
    });
    lines.collect()
}

/// One dim line with the gauge; unfolded, the trace below it.
fn reasoning_lines(app: &App, reasoning: &Reasoning, width: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    let mark = if app.is_unfolded { "▾" } else { "▸" };
    let what = if reasoning.is_done {
        "thought"
    } else {
        "thinking"
    };
    let mut head = format!("{mark} {what}");
    if reasoning.n_tokens > 0 {
        head.push(' ');
        head.push_str(&gauge(reasoning.n_tokens, app.about.max_thinking_tokens));
    }
    let text = reasoning.text.trim();
    if !app.is_unfolded {
        // The newest of it shows that something happens.
        let last = text.lines().last().map(harmless_line).unwrap_or_default();
        let room = width.saturating_sub(head.chars().count() + 2);
        let n_chars = last.chars().count();
        let shown: String = match n_chars > room {
            true if room > 1 => {
                let end: String = last.chars().skip(n_chars - room + 1).collect();
                format!("…{end}")
            }
            true => String::new(),
            false => last,
        };
        if !shown.is_empty() {
            head.push_str("  ");
            head.push_str(&shown);
        }
        return wrap(&[Span::styled(head, theme.dim())], width, &Prefix::none());
    }
    let mut lines = wrap(&[Span::styled(head, theme.dim())], width, &Prefix::none());
    let bar = Prefix::same(vec![Span::styled("  ", theme.dim())]);
    lines.extend(wrap_text(text, width, &bar, theme.dim()));
    lines
}

/// How much of the budget is spent.
fn gauge(n_tokens: u64, max: Option<u32>) -> String {
    let Some(max) = max.map(u64::from).filter(|max| *max > 0) else {
        return format!("{n_tokens} tokens");
    };
    let spent = n_tokens.min(max) * GAUGE as u64 / max;
    let spent = usize::try_from(spent).unwrap_or(GAUGE);
    let (full, free) = ("█".repeat(spent), "░".repeat(GAUGE - spent));
    format!("{full}{free} {n_tokens}/{max}")
}

/// A card: the call, its arguments, what it gave.
fn card_lines(app: &App, card: &CallCard, width: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    let (mark, style, state) = match &card.state {
        CallState::Asking => ("?", theme.ask(), "waits for you".to_owned()),
        CallState::Running => ("●", theme.accent(), "runs".to_owned()),
        CallState::Done(output) if output.is_error() => ("✗", theme.bad(), "failed".to_owned()),
        CallState::Done(output) => {
            let took = output.duration.as_millis();
            ("✓", theme.good(), format!("{took} ms"))
        }
    };
    let head = [
        Span::styled(format!("{mark} "), style),
        Span::styled(card.call.name.clone(), theme.strong()),
        Span::styled(format!("  {state}"), theme.dim()),
    ];
    let mut lines = wrap(&head, width, &Prefix::none());
    lines.extend(limited(app, argument_lines(theme, &card.call, width)));
    if let CallState::Done(output) = &card.state {
        let style = match output.is_error() {
            true => theme.bad(),
            false => theme.text(),
        };
        let prefix = Prefix {
            first: vec![Span::styled("  └ ", theme.dim())],
            rest: vec![Span::raw("    ")],
        };
        let text = output.text.trim_end();
        let text = if text.is_empty() { "(nothing)" } else { text };
        lines.extend(limited(app, wrap_text(text, width, &prefix, style)));
    }
    lines
}

/// One line per argument; texts as they are, not as JSON.
fn argument_lines(theme: Theme, call: &ToolCall, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (name, value) in call.arguments.as_object() {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let prefix = Prefix {
            first: vec![Span::styled(
                format!("  {}: ", harmless_line(name)),
                theme.dim(),
            )],
            rest: vec![Span::raw("    ")],
        };
        lines.extend(match value.is_empty() {
            true => wrap(&[Span::raw("\"\"")], width, &prefix),
            false => wrap_text(&value, width, &prefix, theme.code()),
        });
    }
    lines
}

fn limited(app: &App, mut lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    if app.shows_details || lines.len() <= MAX_CARD_LINES {
        return lines;
    }
    let n_hidden = lines.len() - MAX_CARD_LINES + 1;
    lines.truncate(MAX_CARD_LINES - 1);
    let text = format!("    … {n_hidden} lines more, Ctrl-T shows them");
    lines.push(Line::from(Span::styled(text, app.theme.dim())));
    lines
}
