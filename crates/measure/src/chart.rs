//! A report as text: an interval per budget, then the numbers.
//!
//! Each line says what it means without its colour. Lines fit the width, 60 at least.

use crate::report::{Report, Row};
use crate::stats::Estimate;

/// How text is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Characters of a line.
    pub width: usize,
    /// Whether escape sequences are understood and wanted.
    pub colour: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";

/// The most characters of the drawing's axis; more says no more.
const WIDEST_AXIS: usize = 72;

/// Draws a report; no line end at its end.
#[must_use]
pub fn text(report: &Report, style: Style) -> String {
    let mut lines = heading(report, style);
    lines.push(String::new());
    lines.extend(intervals(report, style));
    lines.push(String::new());
    lines.extend(numbers(report, style));
    lines.push(String::new());
    lines.extend(verdict(report, style));
    lines.join("\n")
}

fn heading(report: &Report, style: Style) -> Vec<String> {
    let settings = &report.plan.settings;
    let mut facts = vec![format!("{} questions", report.n_items)];
    if report.plan.repeats > 1 {
        facts.push(format!("{} repeats", report.plan.repeats));
    }
    facts.push(format!("{} at a time", settings.concurrency));
    facts.push(format!("seed {}", settings.seed));
    let model = settings.model.rsplit(['/', '\\']).next();
    vec![
        style.paint(BOLD, &format!("{}: {}", report.dataset, facts.join(", "))),
        format!(
            "provider {}, model {}",
            settings.provider,
            model.unwrap_or_default()
        ),
    ]
}

/// A budget per line: `├──●──┤` from end to end of its accuracy's interval.
fn intervals(report: &Report, style: Style) -> Vec<String> {
    let label = "budget".len();
    let figures: Vec<String> = report
        .rows
        .iter()
        .map(|row| percent(row.accuracy))
        .collect();
    let widest = figures.iter().map(String::len).max().unwrap_or(0);
    let room = style.width.saturating_sub(label + widest + 4);
    let axis = Axis::around(report, room.clamp(20, WIDEST_AXIS));
    let mut lines = vec![
        format!("{:label$}  {}", "", "share of right answers, 95 % interval"),
        format!("budget  {}", axis.ticks()),
    ];
    for (row, figures) in report.rows.iter().zip(&figures) {
        let is_smallest = report.smallest().is_some_and(|it| it.budget == row.budget);
        let dot = if is_smallest { '\u{25c6}' } else { '\u{25cf}' };
        let mut bar = axis.bar(row.accuracy, dot);
        if is_smallest {
            bar = style.paint(GREEN, &bar);
        }
        lines.push(format!("{:>label$}  {bar}  {figures:>widest$}", row.budget));
    }
    lines
}

/// From and to, in percent, over so many cells.
struct Axis {
    low: f64,
    high: f64,
    n_cells: usize,
}

impl Axis {
    /// Tens of percent around all intervals.
    fn around(report: &Report, n_cells: usize) -> Self {
        let (low, high) = report.range();
        Self { low, high, n_cells }
    }

    fn cell(&self, percent: f64) -> usize {
        let share = (percent - self.low) / (self.high - self.low);
        (share.clamp(0.0, 1.0) * (self.n_cells - 1) as f64).round() as usize
    }

    /// `20%     30%     40%`, each over its cell; as many as there is room for.
    fn ticks(&self) -> String {
        let span = self.high - self.low;
        let fits = |step: f64| span / step * 7.0 <= self.n_cells as f64;
        let steps = [10.0, 20.0, 50.0];
        let step = steps.into_iter().find(|step| fits(*step)).unwrap_or(100.0);
        let mut line = String::new();
        let mut tick = (self.low / step).ceil() * step;
        while tick <= self.high {
            let label = format!("{tick:.0}%");
            // The last label ends with the axis.
            let at = self
                .cell(tick)
                .min(self.n_cells.saturating_sub(label.len()));
            if at >= line.len() {
                line.push_str(&" ".repeat(at - line.len()));
                line.push_str(&label);
            }
            tick += step;
        }
        line
    }

    fn bar(&self, share: Estimate, dot: char) -> String {
        let cell = |value: f64| self.cell(value * 100.0);
        let (low, value, high) = (cell(share.low), cell(share.value), cell(share.high));
        let cells = (0..self.n_cells).map(|at| match at {
            _ if at == value => dot,
            _ if at == low => '\u{251c}',
            _ if at == high => '\u{2524}',
            _ if at > low && at < high => '\u{2500}',
            _ => ' ',
        });
        cells.collect()
    }
}

fn numbers(report: &Report, style: Style) -> Vec<String> {
    let head = [
        "budget",
        "thought",
        "answer",
        "latency, ms",
        "cut",
        "points below the best",
    ];
    let mut table = vec![head.map(str::to_owned)];
    table.extend(report.rows.iter().map(|row| {
        [
            row.budget.to_string(),
            plus_minus(row.thinking_tokens),
            plus_minus(row.response_tokens),
            bracketed(row.latency_ms, 0),
            cut(row),
            match report.best() {
                None => "-".to_owned(),
                Some(best) if best.budget == row.budget => "the best".to_owned(),
                Some(_) => bracketed(row.less_than_best.times(100.0), 1),
            },
        ]
    }));
    let width = |column: usize| {
        let cells = table.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let lines = table.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    });
    let mut lines: Vec<String> = lines.collect();
    let notes = "thought, answer: mean tokens; latency: median; cut: thoughts at the budget";
    lines.push(style.paint(DIM, notes));
    lines
}

fn choice(report: &Report, style: Style) -> Vec<String> {
    let (Some(best), Some(smallest)) = (report.best(), report.smallest()) else {
        return vec!["no answer was right at any budget: there is nothing to choose by".to_owned()];
    };
    let most = format!(
        "most right answers: budget {} ({})",
        best.budget,
        percent(best.accuracy)
    );
    let text = format!(
        "\u{25c6} smallest within one standard error of it: budget {}",
        smallest.budget
    );
    let mut lines = vec![most, style.paint(GREEN, &text)];
    let below = smallest.less_than_best;
    if smallest.budget != best.budget {
        lines.push(format!(
            "  {:.1} points below, standard error {:.1}, the same questions compared",
            below.value * 100.0,
            below.error * 100.0
        ));
    }
    lines
}

fn verdict(report: &Report, style: Style) -> Vec<String> {
    let mut lines = choice(report, style);
    let means: Vec<&str> = report
        .rows
        .iter()
        .flat_map(|row| row.means.iter().map(String::as_str))
        .fold(Vec::new(), |mut known, name| {
            if !known.contains(&name) {
                known.push(name);
            }
            known
        });
    if !means.is_empty() {
        lines.push(format!("budgets kept by: {}", means.join(", ")));
    }
    let answers_cut = report.rows.iter().filter(|row| row.answers_cut > 0.05);
    for row in answers_cut {
        lines.push(format!(
            "note: at budget {} the cap on answers ended {:.0} % of them",
            row.budget,
            row.answers_cut * 100.0
        ));
    }
    if report.n_failed > 0 {
        lines.push(format!(
            "note: {} turns failed and are not counted",
            report.n_failed
        ));
    }
    lines
}

fn cut(row: &Row) -> String {
    if row.budget == 0 {
        return "-".to_owned();
    }
    format!("{:.0}%", row.thoughts_cut * 100.0)
}

fn percent(share: Estimate) -> String {
    let share = share.times(100.0);
    format!("{:.1}% [{:.1} {:.1}]", share.value, share.low, share.high)
}

fn plus_minus(mean: Estimate) -> String {
    format!("{:.1} \u{b1}{:.1}", mean.value, mean.high - mean.value)
}

fn bracketed(value: Estimate, digits: usize) -> String {
    // No minus before a zero.
    let shown = |value: f64| format!("{:.digits$}", value + 0.0);
    format!(
        "{} [{} {}]",
        shown(value.value),
        shown(value.low),
        shown(value.high)
    )
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
