//! The terminal: draws the screen and reads keys. The terminal is restored on every exit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::Options;
use super::client::Client;
use super::feed::{self, Update};
use super::screen::{self, Theme};
use super::state::{Key, State, Tab};
use crate::base::clock;

/// Maximum number of updates and keys that wait to be drawn.
const QUEUED_UPDATES: usize = 64;

/// Interval of drawing without updates: the age of old data changes.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Input of the user.
#[derive(Debug)]
enum Input {
    Key(Key),
    Resized,
    Closed,
}

/// Restores the terminal when it is dropped. In a panic, `ratatui` does.
struct RestoredTerminal(DefaultTerminal);

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the gateway until the user quits or a signal arrives.
pub(super) async fn show(options: &Options) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let client = Arc::new(Client::new(options.target.clone()));
    let mut state = State::new(options.target.shown());
    let (sender, mut updates) = mpsc::channel::<Update>(QUEUED_UPDATES);
    let (selection, watched) = watch::channel(state.selection());
    let poll = {
        let (client, sender, interval) = (Arc::clone(&client), sender.clone(), options.interval);
        tokio::spawn(async move { feed::poll(&client, interval, watched, &sender).await })
    };
    let follow = tokio::spawn(async move { feed::follow(&client, &sender).await });

    let mut terminal = RestoredTerminal(ratatui::try_init()?);
    let mut keys = keys();
    let theme = Theme { color: options.color };
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    let ended = loop {
        let now = clock::now();
        if let Err(error) = terminal.0.draw(|frame| screen::draw(frame, &state, theme, now)) {
            break Err(error);
        }
        let stays = tokio::select! {
            Some(one) = updates.recv() => {
                state.take(one, clock::now());
                // All waiting updates are drawn at once.
                while let Ok(one) = updates.try_recv() {
                    state.take(one, clock::now());
                }
                true
            }
            input = keys.recv() => match input {
                Some(Input::Key(key)) => state.press(key),
                Some(Input::Resized) => true,
                Some(Input::Closed) | None => false,
            },
            _ = redraw.tick() => true,
            _ = terminate.recv() => false,
            _ = interrupt.recv() => false,
            _ = hang_up.recv() => false,
        };
        if !stays {
            break Ok(());
        }
        selection.send_if_modified(|selection| {
            let new = state.selection();
            let is_new = *selection != new;
            *selection = new;
            is_new
        });
    };
    poll.abort();
    follow.abort();
    ended
}

/// Reads keys on a separate thread, because reading a terminal blocks.
fn keys() -> mpsc::Receiver<Input> {
    let (sender, keys) = mpsc::channel(QUEUED_UPDATES);
    std::thread::spawn(move || {
        loop {
            let input = match event::read() {
                Ok(Event::Key(pressed)) => key(pressed).map(Input::Key),
                Ok(Event::Resize(..)) => Some(Input::Resized),
                Ok(_) => None,
                Err(_) => Some(Input::Closed),
            };
            let is_last = matches!(input, Some(Input::Closed));
            if let Some(input) = input
                && sender.blocking_send(input).is_err()
            {
                return;
            }
            if is_last {
                return;
            }
        }
    });
    keys
}

/// Returns what a key does, `None` if it does nothing.
fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return match pressed.code {
            KeyCode::Char('c' | 'd') => Some(Key::Quit),
            _ => None,
        };
    }
    Some(match pressed.code {
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Key::Help,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Char('1') => Key::Tab(Tab::Overview),
        KeyCode::Char('2') => Key::Tab(Tab::Clients),
        KeyCode::Char('3') => Key::Tab(Tab::Health),
        KeyCode::Char('4') => Key::Tab(Tab::Routes),
        KeyCode::Char('5') => Key::Tab(Tab::Refusals),
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('p' | ' ') => Key::Pause,
        KeyCode::Enter => Key::Open,
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        _ => return None,
    })
}
