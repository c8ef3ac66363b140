//! The real terminal: keys in, frames out.

use crate::TopError;
use crate::app::App;
use crate::draw::draw;
use crate::look::Look;
use crate::source::Source;
use crate::view::View;
use crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

/// How long to wait for a key before checking for a snapshot.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Shows the instance of `source` every `interval`, until the user or a signal ends it.
///
/// # Errors
/// If there is no terminal, or it cannot be written to.
pub fn run(source: Source, view: View, interval: Duration) -> Result<(), TopError> {
    if !std::io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    let must_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&must_end))?;
    }
    // Restores the terminal after a panic, too.
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, source, view, interval, &must_end);
    ratatui::try_restore()?;
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: Source,
    view: View,
    interval: Duration,
    must_end: &AtomicBool,
) -> Result<(), TopError> {
    let look = Look::from_environment();
    let mut app = App::new(view);
    let feeds = source.follow(interval);
    let mut is_changed = true;
    while !app.is_done() && !must_end.load(Ordering::Relaxed) {
        if is_changed {
            terminal.draw(|frame| draw(&app, frame, look))?;
        }
        is_changed = event::poll(TIMEOUT)?;
        if is_changed
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            app.key(key);
        }
        loop {
            match feeds.try_recv() {
                Ok(feed) => app.feed(feed),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            is_changed = true;
        }
    }
    Ok(())
}
