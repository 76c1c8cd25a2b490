//! How things look: by colour where colour is wanted, and never by colour alone.

use ratatui::style::{Color, Modifier, Style};

/// What is to be seen first.
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// What may be passed over.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// What is selected.
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Whether there are colours.
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
