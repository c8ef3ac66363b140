//! The look of the screen: colours, block characters.

use ratatui::style::{Color, Modifier, Style};
use std::env;

/// The features of the terminal to use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Colours. Without them, bold and reversed text say the same.
    pub is_coloured: bool,
    /// ASCII characters only.
    pub is_ascii: bool,
}

impl Look {
    /// From the environment: no colour if `NO_COLOR` is set (no-color.org) or on a `dumb` terminal;
    /// ASCII if the locale's character set is not UTF-8.
    pub fn from_environment() -> Self {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_lowercase();
        Self {
            is_coloured: set("NO_COLOR").is_none() && set("TERM").as_deref() != Some("dumb"),
            is_ascii: !locale.contains("utf-8") && !locale.contains("utf8"),
        }
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        if self.is_coloured { style.fg(colour) } else { style }
    }

    pub(crate) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn warning(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }

    pub(crate) fn bars(self) -> Style {
        self.coloured(Style::new(), Color::Green)
    }

    pub(crate) fn heading(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
