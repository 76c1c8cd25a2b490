//! Styles of the screen. No information is shown by colour alone.

use ratatui::style::{Color, Modifier, Style};

/// Style of titles and of the program's name.
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// Style of secondary text, such as column names.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// Style of the selected tab or line.
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The colours of the screen; if `color` is false, only bold, dim and reversed text.
#[derive(Debug, Clone, Copy)]
pub(in crate::top) struct Theme {
    pub(in crate::top) color: bool,
}

impl Theme {
    fn of(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn good(self) -> Style {
        self.of(Color::Green)
    }

    pub(super) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn refused(self) -> Style {
        self.of(Color::Red)
    }

    pub(super) fn warn(self) -> Style {
        self.of(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}
