//! A report as a picture: accuracy, tokens and latency above each other, over the budgets.
//!
//! Written as text: three small panels of bars and points need no plotting crate, and its
//! fonts and backends would be most of what it brings. Budgets stand at equal distances, since
//! they are usually doubled.

use std::fmt::Write as _;

use crate::report::{Report, Row};
use crate::stats::Estimate;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 28.0;
const HEIGHT: f64 = 704.0;

const INK: &str = "#1f2937";
const FAINT: &str = "#6b7280";
const GRID: &str = "#e5e7eb";
const ACCURACY: &str = "#2563eb";
const CHOSEN: &str = "#15803d";
const THOUGHT: &str = "#a5b4fc";
const ANSWER: &str = "#4338ca";
/// A white edge, so that figures can be read where a line runs behind them.
const HALO: &str =
    "stroke=\"#ffffff\" stroke-width=\"4\" stroke-linejoin=\"round\" paint-order=\"stroke\"";
const LATENCY: &str = "#b45309";

/// Draws a report as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut page = Page::new(report);
    page.heading();
    page.accuracy();
    page.tokens();
    page.latency();
    page.text += "</svg>\n";
    page.text
}

/// One drawing area with its scale.
struct Panel {
    top: f64,
    height: f64,
    low: f64,
    high: f64,
    step: f64,
}

impl Panel {
    /// From 0 to a round number above `high`.
    fn from_zero(top: f64, height: f64, high: f64) -> Self {
        let step = round_step(high, 4.0);
        Self {
            top,
            height,
            low: 0.0,
            high: (high / step).ceil().max(1.0) * step,
            step,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.top + self.height * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// 1, 2 or 5 times a power of ten, so that about `n_steps` of them make the span.
fn round_step(span: f64, n_steps: f64) -> f64 {
    let raw = (span / n_steps).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let factors = [1.0, 2.0, 5.0].into_iter();
    let factor = factors.into_iter().find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

struct Page<'a> {
    report: &'a Report,
    text: String,
}

impl<'a> Page<'a> {
    fn new(report: &'a Report) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
             font-size=\"13\" fill=\"{INK}\">\n<title>{}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
            escaped(&format!("{} by thinking budget", report.dataset))
        );
        Self { report, text }
    }

    fn heading(&mut self) {
        let report = self.report;
        let settings = &report.plan.settings;
        let title = format!("{} by thinking budget", report.dataset);
        self.label((LEFT, 30.0), &title, "font-size=\"18\" font-weight=\"600\"");
        let model = settings.model.rsplit(['/', '\\']).next();
        let facts = format!(
            "{}: {} questions, each {} per budget, {} at a time; 95 % intervals",
            model.unwrap_or_default(),
            report.n_items,
            match report.plan.repeats {
                1 => "once".to_owned(),
                repeats => format!("{repeats} times"),
            },
            settings.concurrency,
        );
        self.label((LEFT, 50.0), &facts, &format!("fill=\"{FAINT}\""));
        let verdict = match (report.best(), report.smallest()) {
            (Some(best), Some(smallest)) => format!(
                "Smallest budget within one standard error of the best ({}): {}",
                best.budget, smallest.budget
            ),
            _ => "No answer was right at any budget".to_owned(),
        };
        let look = format!("fill=\"{CHOSEN}\" font-weight=\"600\"");
        self.label((LEFT, 70.0), &verdict, &look);
    }

    fn accuracy(&mut self) {
        let (low, high) = self.report.range();
        let panel = Panel {
            top: 118.0,
            height: 220.0,
            low,
            high,
            step: if high - low > 50.0 { 20.0 } else { 10.0 },
        };
        self.frame(&panel, "Right answers", "%");
        let rows = &self.report.rows;
        let points: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| {
                format!(
                    "{:.1},{:.1}",
                    self.x(at),
                    panel.y(row.accuracy.value * 100.0)
                )
            })
            .collect();
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{ACCURACY}\" stroke-opacity=\"0.35\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for (at, row) in rows.iter().enumerate() {
            let chosen = self.report.smallest();
            let is_chosen = chosen.is_some_and(|it| it.budget == row.budget);
            let colour = if is_chosen { CHOSEN } else { ACCURACY };
            self.interval(&panel, at, (row.accuracy.times(100.0), colour));
            let figure = format!("{:.1}%", row.accuracy.value * 100.0);
            let y = panel.y(row.accuracy.value * 100.0) + 4.5;
            let weight = if is_chosen { "600" } else { "400" };
            let look = format!("fill=\"{colour}\" font-weight=\"{weight}\" {HALO}");
            self.label((self.x(at) + 12.0, y), &figure, &look);
        }
    }

    fn tokens(&mut self) {
        let sum = |row: &Row| row.thinking_tokens.value + row.response_tokens.value;
        let highest = self.report.rows.iter().map(sum).fold(1.0, f64::max);
        // Room for the figure above the highest bar.
        let panel = Panel::from_zero(390.0, 110.0, highest * 1.1);
        self.frame(&panel, "Tokens per turn, mean", "");
        self.legend((WIDTH - RIGHT - 150.0, 378.0), THOUGHT, "thought");
        self.legend((WIDTH - RIGHT - 68.0, 378.0), ANSWER, "answer");
        for (at, row) in self.report.rows.iter().enumerate() {
            let answer = row.response_tokens.value;
            self.bar(&panel, at, (0.0, answer, ANSWER));
            self.bar(&panel, at, (answer, sum(row), THOUGHT));
            let y = panel.y(sum(row)) - 5.0;
            let look = "text-anchor=\"middle\" font-size=\"12\"";
            self.label((self.x(at), y), &format!("{:.0}", sum(row)), look);
        }
    }

    fn latency(&mut self) {
        let ends = self.report.rows.iter().map(|row| row.latency_ms.high);
        let highest = ends.fold(1.0, f64::max) / 1000.0;
        let panel = Panel::from_zero(552.0, 92.0, highest);
        self.frame(&panel, "Latency, median, seconds", "");
        for (at, row) in self.report.rows.iter().enumerate() {
            self.interval(&panel, at, (row.latency_ms.times(1e-3), LATENCY));
            let seconds = row.latency_ms.value / 1000.0;
            let y = panel.y(seconds) + 4.5;
            let look = format!("fill=\"{LATENCY}\"");
            self.label((self.x(at) + 12.0, y), &format!("{seconds:.2}"), &look);
        }
        let look = format!("text-anchor=\"middle\" fill=\"{FAINT}\"");
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        self.label((middle, HEIGHT - 14.0), "thinking budget, tokens", &look);
    }

    /// The middle of a budget's column.
    fn x(&self, at: usize) -> f64 {
        let column = (WIDTH - LEFT - RIGHT) / self.report.rows.len() as f64;
        LEFT + column * (at as f64 + 0.5)
    }

    /// Title, lines with their values, and the budgets below.
    fn frame(&mut self, panel: &Panel, title: &str, unit: &str) {
        let digits = match panel.step {
            step if step < 0.1 => 2,
            step if step < 1.0 => 1,
            _ => 0,
        };
        self.label((LEFT, panel.top - 12.0), title, "font-weight=\"600\"");
        let n_steps = ((panel.high - panel.low) / panel.step).round() as usize;
        for step in 0..=n_steps {
            let value = panel.low + panel.step * step as f64;
            let y = panel.y(value);
            let _ = writeln!(
                self.text,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{GRID}\"/>",
                WIDTH - RIGHT
            );
            let look = format!("text-anchor=\"end\" fill=\"{FAINT}\" font-size=\"12\"");
            self.label(
                (LEFT - 8.0, y + 4.0),
                &format!("{value:.digits$}{unit}"),
                &look,
            );
        }
        let y = panel.top + panel.height + 18.0;
        let budgets: Vec<_> = self.report.rows.iter().map(|row| row.budget).collect();
        for (at, budget) in budgets.into_iter().enumerate() {
            let look = "text-anchor=\"middle\" font-size=\"12\"";
            self.label((self.x(at), y), &budget.to_string(), look);
        }
    }

    /// A point and its interval with ends, in one colour.
    fn interval(&mut self, panel: &Panel, at: usize, (value, colour): (Estimate, &str)) {
        let x = self.x(at);
        let (low, high, y) = (
            panel.y(value.low),
            panel.y(value.high),
            panel.y(value.value),
        );
        let _ = writeln!(
            self.text,
            "<path d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h10M{:.1} {high:.1}h10\" \
             stroke=\"{colour}\" stroke-width=\"1.5\" fill=\"none\"/>\n\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>",
            x - 5.0,
            x - 5.0,
        );
    }

    fn bar(&mut self, panel: &Panel, at: usize, (from, to, colour): (f64, f64, &str)) {
        let (bottom, top) = (panel.y(from), panel.y(to));
        if bottom - top < 0.05 {
            return;
        }
        let _ = writeln!(
            self.text,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"36\" height=\"{:.1}\" fill=\"{colour}\"/>",
            self.x(at) - 18.0,
            bottom - top
        );
    }

    fn legend(&mut self, (x, y): (f64, f64), colour: &str, name: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>",
            y - 10.0
        );
        self.label((x + 16.0, y), name, "font-size=\"12\"");
    }

    fn label(&mut self, (x, y): (f64, f64), text: &str, look: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {look}>{text}</text>"
        );
    }
}

/// Text that cannot become markup; characters that XML has no place for are left out.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}
