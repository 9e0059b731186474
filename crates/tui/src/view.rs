//! The screen: one line about the model, the transcript, one line about now, the input.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use crate::App;
use crate::app::Phase;
use crate::harmless::harmless_line;
use crate::transcript;

/// Lines of the input that are shown.
const MAX_INPUT_LINES: u16 = 6;
/// What stands before the input.
const PROMPT: &str = "> ";
const SPINNER: [&str; 4] = ["◐", "◓", "◑", "◒"];
/// How long a state of the spinner stays.
const SPIN_MS: u64 = 150;

/// Draws the app.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let n_input = app.input.text().split('\n').count();
    let n_input = u16::try_from(n_input)
        .unwrap_or(u16::MAX)
        .min(MAX_INPUT_LINES);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(n_input),
    ];
    let [head, _, body, _, status, input] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, app, head);
    draw_body(frame, app, body);
    draw_status(frame, app, status);
    draw_input(frame, app, input);
}

fn draw_head(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let theme = app.theme;
    let about = &app.about;
    let left = Line::from(vec![
        Span::styled("twopass", theme.accent()),
        Span::styled(format!("  {}", harmless_line(&about.model)), theme.strong()),
        Span::styled(format!("  {}", about.kind), theme.dim()),
    ]);
    let room = usize::from(area.width).saturating_sub(left.width() + 2);
    frame.render_widget(Paragraph::new(left), area);
    let folder = harmless_line(&about.workspace);
    if folder.width() <= room {
        let right = Line::from(Span::styled(folder, theme.dim())).right_aligned();
        frame.render_widget(Paragraph::new(right), area);
    }
}

fn draw_body(frame: &mut Frame<'_>, app: &App, area: Rect) {
    if app.items.is_empty() {
        let hint = Line::from(Span::styled(
            "Say what is to be done. /help lists commands and keys.",
            app.theme.dim(),
        ));
        frame.render_widget(Paragraph::new(hint), area);
        return;
    }
    let (lines, n_below) = transcript::tail(app, area.width.into(), area.height.into());
    frame.render_widget(Paragraph::new(lines), area);
    if n_below > 0 && area.height > 0 {
        let text = format!(" {n_below} lines below ");
        let last = Rect {
            y: area.y + area.height - 1,
            height: 1,
            ..area
        };
        let line = Line::from(Span::styled(text, app.theme.ask())).right_aligned();
        frame.render_widget(Paragraph::new(line), last);
    }
}

fn draw_status(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let theme = app.theme;
    let left = if let Some(call) = app.asking.front() {
        let name = harmless_line(&call.name);
        Line::from(vec![
            Span::styled(format!("run {name}? "), theme.ask()),
            Span::raw(match app.input.is_empty() {
                true => "y once  A always  n no",
                false => "Ctrl-U clears the input, then y once  A always  n no",
            }),
        ])
    } else if app.quit_asked_ms.is_some() {
        Line::from(Span::styled("Ctrl-C again leaves", theme.ask()))
    } else {
        match app.phase {
            Phase::Idle => Line::from(Span::styled("ready", theme.dim())),
            Phase::Working {
                is_ending: true, ..
            } => Line::from(Span::styled("ending the turn", theme.ask())),
            Phase::Working {
                since_ms, now_ms, ..
            } => {
                let passed = now_ms.saturating_sub(since_ms);
                let turn = usize::try_from(passed / SPIN_MS).unwrap_or(0) % SPINNER.len();
                Line::from(vec![
                    Span::styled(format!("{} ", SPINNER[turn]), theme.accent()),
                    Span::raw(format!("working {} s", passed / 1000)),
                    Span::styled("  Esc ends the turn", theme.dim()),
                ])
            }
        }
    };
    let mut right = String::new();
    if let Some(percent) = app.context_percent {
        right.push_str(&format!("context {percent} %  "));
    }
    let [read, thought, written] = app.n_tokens;
    if read + thought + written > 0 {
        right.push_str(&format!("in {read}  thought {thought}  out {written}"));
    }
    let room = usize::from(area.width).saturating_sub(left.width() + 2);
    frame.render_widget(Paragraph::new(left), area);
    if right.width() <= room {
        let right = Line::from(Span::styled(right, theme.dim())).right_aligned();
        frame.render_widget(Paragraph::new(right), area);
    }
}

fn draw_input(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let (cursor_line, before) = app.input.cursor();
    let height = usize::from(area.height.max(1));
    let first_line = (cursor_line + 1).saturating_sub(height);
    let room = usize::from(area.width)
        .saturating_sub(PROMPT.len() + 1)
        .max(1);
    // A long line moves to the left so that the cursor stays in sight.
    let before = harmless_line(before);
    let hidden = before.width().saturating_sub(room);
    let shown = app.input.text().split('\n').enumerate();
    let lines = shown.skip(first_line).take(height).map(|(at, line)| {
        let mark = if at == 0 { PROMPT } else { "  " };
        let text = harmless_line(line);
        let text = match at == cursor_line {
            true => after_columns(&text, hidden),
            false => text,
        };
        Line::from(vec![
            Span::styled(mark, app.theme.accent()),
            Span::raw(text),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    let column = PROMPT.len() + before.width() - hidden;
    let column = u16::try_from(column).unwrap_or(u16::MAX);
    let line = u16::try_from(cursor_line - first_line).unwrap_or(u16::MAX);
    frame.set_cursor_position(Position {
        x: area.x.saturating_add(column),
        y: area.y.saturating_add(line),
    });
}

/// The text without its first columns.
fn after_columns(text: &str, n_columns: usize) -> String {
    let mut width = 0;
    let kept = text.chars().skip_while(|one| {
        let is_hidden = width < n_columns;
        width += one.to_string().width();
        is_hidden
    });
    kept.collect()
}
