//! The real terminal: taken for the screen, and given back as it was, whatever happens.

use crate::say;
use crossterm::{cursor, execute, terminal};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;

/// Gives the terminal back when it goes.
pub(super) struct Terminal {
    /// Not dropped: it would panic over a terminal that has gone, and has nothing but what [`restore`] gives back.
    inner: ManuallyDrop<ratatui::Terminal<CrosstermBackend<Stdout>>>,
}

impl Terminal {
    pub(super) fn enter() -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        // What a panic says must be readable, in a terminal that works.
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        terminal::enable_raw_mode()?;
        say::hold();
        let entered = execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)
            .and_then(|()| ratatui::Terminal::new(CrosstermBackend::new(stdout())));
        match entered {
            Ok(inner) => Ok(Terminal { inner: ManuallyDrop::new(inner) }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.draw(render).map(|_| ())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// As it was before; what was to be said meanwhile is said now. Does nothing if the terminal is not ours.
fn restore() {
    if !say::is_held() {
        return;
    }
    // Nothing can be done about a terminal that has gone.
    let _ = execute!(stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    say::release();
}
