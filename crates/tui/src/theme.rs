use ratatui::style::{Color, Modifier, Style};

/// How things look. Nothing is told by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    has_color: bool,
}

impl Theme {
    /// With the terminal's own sixteen colours.
    pub const COLOR: Self = Self { has_color: true };
    /// Without any colour, as `NO_COLOR` asks.
    pub const PLAIN: Self = Self { has_color: false };

    pub(crate) fn text(self) -> Style {
        Style::new()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn code(self) -> Style {
        self.colored(Color::Cyan)
    }

    pub(crate) fn accent(self) -> Style {
        self.colored(Color::Blue).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn good(self) -> Style {
        self.colored(Color::Green)
    }

    pub(crate) fn bad(self) -> Style {
        self.colored(Color::Red)
    }

    pub(crate) fn ask(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn colored(self, color: Color) -> Style {
        match self.has_color {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }
}
