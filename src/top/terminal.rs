//! The screen and the keys. The terminal is given back as it was, however this ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::Asked;
use super::client::Client;
use super::feed::{self, News};
use super::screen::{self, Theme};
use super::state::{Key, State, Tab};
use crate::clock;

/// How much may have come and not been drawn. Who tells more waits.
const NEWS: usize = 64;

/// How often it is drawn where nothing happens: an age on it grows.
const REDRAW: Duration = Duration::from_secs(1);

/// What the user does.
#[derive(Debug)]
enum Done {
    Key(Key),
    Resized,
    /// Nobody is there any more.
    Gone,
}

/// Gives the terminal back when it is dropped. `ratatui` does so in a panic.
struct Borrowed(DefaultTerminal);

impl Drop for Borrowed {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the gateway until the user leaves, or a signal ends it.
pub(super) async fn show(asked: &Asked) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let client = Arc::new(Client::new(asked.target.clone()));
    let mut state = State::new(asked.target.shown());
    let (tell, mut news) = mpsc::channel::<News>(NEWS);
    let (want, wanted) = watch::channel(state.wanted());
    let polled = {
        let (client, tell, interval) = (Arc::clone(&client), tell.clone(), asked.interval);
        tokio::spawn(async move { feed::poll(&client, interval, wanted, &tell).await })
    };
    let followed = tokio::spawn(async move { feed::follow(&client, &tell).await });

    let mut terminal = Borrowed(ratatui::try_init()?);
    let mut keys = keys();
    let theme = Theme { color: asked.color };
    let mut redraw = tokio::time::interval(REDRAW);
    let ended = loop {
        let now = clock::now();
        if let Err(error) = terminal.0.draw(|frame| screen::draw(frame, &state, theme, now)) {
            break Err(error);
        }
        let stays = tokio::select! {
            Some(one) = news.recv() => {
                state.take(one, clock::now());
                // Whatever came with it is drawn with it.
                while let Ok(one) = news.try_recv() {
                    state.take(one, clock::now());
                }
                true
            }
            done = keys.recv() => match done {
                Some(Done::Key(key)) => state.press(key),
                Some(Done::Resized) => true,
                Some(Done::Gone) | None => false,
            },
            _ = redraw.tick() => true,
            _ = terminate.recv() => false,
            _ = interrupt.recv() => false,
            _ = hang_up.recv() => false,
        };
        if !stays {
            break Ok(());
        }
        want.send_if_modified(|wanted| {
            let new = state.wanted();
            let is_new = *wanted != new;
            *wanted = new;
            is_new
        });
    };
    polled.abort();
    followed.abort();
    ended
}

/// What the user does, from a thread of its own: a terminal is read by waiting for it.
fn keys() -> mpsc::Receiver<Done> {
    let (tell, keys) = mpsc::channel(NEWS);
    std::thread::spawn(move || {
        loop {
            let done = match event::read() {
                Ok(Event::Key(pressed)) => key(pressed).map(Done::Key),
                Ok(Event::Resize(..)) => Some(Done::Resized),
                Ok(_) => None,
                Err(_) => Some(Done::Gone),
            };
            let is_last = matches!(done, Some(Done::Gone));
            if let Some(done) = done
                && tell.blocking_send(done).is_err()
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

/// What a key means, where it means something.
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
