//! The terminal: lines that stay, and below them a view that is redrawn. Without a terminal: lines only.

use std::io::{IsTerminal, Write};

/// Where the demo is shown.
#[derive(Debug)]
pub(super) struct Screen {
    live: bool,
    drawn: usize,
    width: usize,
}

impl Screen {
    /// Standard error, as everything the harness tells people.
    pub fn new() -> Self {
        let live = std::io::stderr().is_terminal();
        Self { live, drawn: 0, width: width().unwrap_or(100) }
    }

    /// Whether a view can be redrawn.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Prints a line that stays, above the view.
    pub fn say(&mut self, line: &str) {
        let text =
            if self.live { format!("{}\x1b[1m==>\x1b[0m {line}\n", self.erase()) } else { format!("==> {line}\n") };
        self.drawn = 0;
        put(&text);
    }

    /// Draws the view anew, below everything else.
    pub fn draw(&mut self, lines: &[String]) {
        let mut text = self.erase();
        for line in lines {
            // A line that wraps would be two when it is erased.
            let line: String = line.chars().take(self.width.saturating_sub(1)).collect();
            text.push_str(&line);
            text.push('\n');
        }
        self.drawn = lines.len();
        put(&text);
    }

    /// Moves to the first line of the view and clears from there on.
    fn erase(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.drawn) }
    }
}

fn put(text: &str) {
    let mut terminal = std::io::stderr().lock();
    // A closed terminal must not stop the demo: the verdict is in its exit status too.
    terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()).ok();
}

fn width() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the given address, which is that of a winsize.
    let answer = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
