//! Markdown as styled lines. Text that is no Markdown comes out as it is; a text that is
//! still growing may be drawn at any moment.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::Theme;
use crate::wrap::{Prefix, wrap};

/// Draws Markdown in lines of at most `width` columns.
pub(crate) fn render(text: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer {
        theme,
        width,
        lines: Vec::new(),
        spans: Vec::new(),
        styles: vec![theme.text()],
        lists: Vec::new(),
        bullet: None,
        n_quotes: 0,
        in_code: false,
        link: None,
        wants_gap: false,
    };
    Parser::new_ext(text, options).for_each(|event| writer.event(event));
    writer.flush();
    writer.lines
}

struct Writer {
    theme: Theme,
    width: usize,
    lines: Vec<Line<'static>>,
    /// The line that is being written.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// The open lists, innermost last: the next number, or none for bullets.
    lists: Vec<Option<u64>>,
    /// What stands before the next line of the list item.
    bullet: Option<String>,
    n_quotes: usize,
    in_code: bool,
    link: Option<String>,
    /// An empty line stands before the next block.
    wants_gap: bool,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => self.code(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                let style = self.theme.code();
                self.spans.push(Span::styled(text.into_string(), style));
            }
            // People write to terminals in lines, and so do models.
            Event::SoftBreak | Event::HardBreak => self.flush(),
            Event::Rule => {
                self.gap();
                self.push_plain("───", self.theme.dim());
                self.wants_gap = true;
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                let mut style = self.theme.strong();
                if level == HeadingLevel::H1 {
                    style = style.add_modifier(Modifier::UNDERLINED);
                }
                self.styles.push(style);
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.n_quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.gap();
                self.in_code = true;
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.push_plain(&language, self.theme.dim());
                }
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                self.wants_gap = false;
                self.bullet = Some(match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                });
            }
            Tag::Table(_) => self.gap(),
            Tag::TableHead => self.styles.push(self.theme.strong()),
            Tag::Emphasis => self.push_style(Modifier::ITALIC),
            Tag::Strong => self.push_style(Modifier::BOLD),
            Tag::Strikethrough => self.push_style(Modifier::CROSSED_OUT),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.into_string());
                self.push_style(Modifier::UNDERLINED);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.n_quotes = self.n_quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.end_block();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.end_block();
            }
            TagEnd::Item => self.flush(),
            TagEnd::TableCell => self.spans.push(Span::styled("  ", self.theme.dim())),
            TagEnd::TableHead => {
                self.styles.pop();
                self.flush();
            }
            TagEnd::TableRow => self.flush(),
            TagEnd::Table => self.end_block(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                self.end_link();
            }
            _ => {}
        }
    }

    /// An address that is not the text itself stands behind it.
    fn end_link(&mut self) {
        let Some(address) = self.link.take() else {
            return;
        };
        let is_shown = self
            .spans
            .last()
            .is_some_and(|span| span.content == address);
        if !is_shown && !address.is_empty() {
            let style = self.theme.dim();
            self.spans
                .push(Span::styled(format!(" ({address})"), style));
        }
    }

    fn push_style(&mut self, modifier: Modifier) {
        self.styles.push(self.style().add_modifier(modifier));
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn text(&mut self, text: &str) {
        let style = self.style();
        let mut lines = text.split('\n');
        if let Some(first) = lines.next().filter(|first| !first.is_empty()) {
            self.spans.push(Span::styled(first.to_owned(), style));
        }
        for line in lines {
            self.flush();
            if !line.is_empty() {
                self.spans.push(Span::styled(line.to_owned(), style));
            }
        }
    }

    fn code(&mut self, text: &str) {
        for line in text.trim_end_matches('\n').split('\n') {
            let mut prefix = self.prefix();
            for spans in [&mut prefix.first, &mut prefix.rest] {
                spans.push(Span::styled("│ ", self.theme.dim()));
            }
            let span = Span::styled(line.to_owned(), self.theme.code());
            self.lines.extend(wrap(&[span], self.width, &prefix));
        }
    }

    fn push_plain(&mut self, text: &str, style: Style) {
        self.spans.push(Span::styled(text.to_owned(), style));
        self.flush();
    }

    fn gap(&mut self) {
        self.flush();
        if std::mem::take(&mut self.wants_gap) && !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
    }

    fn end_block(&mut self) {
        self.flush();
        self.wants_gap = true;
    }

    fn flush(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let prefix = self.prefix();
        let spans = std::mem::take(&mut self.spans);
        self.lines.extend(wrap(&spans, self.width, &prefix));
    }

    fn prefix(&mut self) -> Prefix {
        let mut prefix = Prefix::none();
        let bullet = self.bullet.take().unwrap_or_default();
        let depth = self.lists.len().saturating_sub(1) * 2;
        let hang = if self.lists.is_empty() {
            0
        } else {
            bullet.chars().count().max(2)
        };
        let bar = Span::styled("▏ ", self.theme.dim());
        for spans in [&mut prefix.first, &mut prefix.rest] {
            spans.extend(std::iter::repeat_n(bar.clone(), self.n_quotes));
            spans.push(Span::raw(" ".repeat(depth)));
        }
        prefix.first.push(Span::raw(format!("{bullet:<hang$}")));
        prefix.rest.push(Span::raw(" ".repeat(hang)));
        prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, width: usize) -> String {
        let lines = render(text, width, Theme::PLAIN);
        let lines: Vec<String> = lines
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    #[test]
    fn blocks_have_their_shape() {
        let table = [
            ("one\ntwo", "one\ntwo"),
            ("# Head\ntext", "Head\n\ntext"),
            ("a\n\nb", "a\n\nb"),
            ("- x\n- y\n  - z", "• x\n• y\n  • z"),
            ("3. x\n4. y", "3. x\n4. y"),
            ("> said", "▏ said"),
            ("```sh\nls -l\n\npwd\n```", "sh\n│ ls -l\n│\n│ pwd"),
            ("see [here](http://x.y)", "see here (http://x.y)"),
            ("<http://x.y>", "http://x.y"),
            ("a **b** *c* `d` ~~e~~", "a b c d e"),
            ("| a | b |\n|---|---|\n| 1 | 2 |", "a  b\n1  2"),
            ("- [x] done", "• [x] done"),
            ("<b>raw</b>", "<b>raw</b>"),
            ("```\nopen", "│ open"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text, 40), expected, "{text}");
        }
    }

    // A text that still grows is drawn at every moment, and no line is too wide.
    #[test]
    fn every_beginning_of_a_text_can_be_drawn() {
        let text = "# T\n\n1. **bold _both_** and `code`\n   - deeper 你好\n\n> q\n```rust\nlet x = \"long long line\";\n```\n| a |\n|-|\n| b |\n[l](u) ![i](j) <div>\n***";
        for (end, _) in text.char_indices() {
            for width in [1, 2, 12, 80] {
                for line in render(&text[..end], width, Theme::COLOR) {
                    assert!(width < 12 || line.width() <= width, "{line}");
                }
            }
        }
    }
}
