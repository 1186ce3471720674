//! `squall fleet top`: the directory of a group, again and again.
//!
//! On a terminal it opens a screen. With `--once`, or without a terminal, it prints the tables once. With
//! `--json` it prints one object per line at every interval.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use squall::fleet::{GroupInfo, Node, NodeFigures, NodeId};

use super::group::VisitArgs;
use super::list::{Listing, Rates};
use crate::output::{Failure, line};

/// The longest time that a look of the screen waits, so that keys are answered.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The longest wait for the figures of members. One that is dead does not answer.
const FIGURES_MAX: Duration = Duration::from_millis(300);
/// The line at the bottom of the screen.
const KEYS: &str = "up down  scroll   q quit";

#[derive(Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    visit: VisitArgs,
    /// Print the tables once, and exit.
    #[arg(long)]
    once: bool,
    /// Print one JSON object per line, and no other text, to stdout: once with --once, else at every
    /// interval.
    #[arg(long)]
    json: bool,
    /// Polling interval in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
}

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let visitor = args.visit.visit()?;
    if args.json && !args.once {
        return stream(&visitor, args);
    }
    if args.json || args.once || !io::stdout().is_terminal() {
        let listing = look(&visitor, args, &mut Rates::default())?;
        return if args.json {
            listing.print_json()
        } else {
            listing.lines(true).into_iter().try_for_each(line)
        };
    }
    let failed = |error: io::Error| Failure::new(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let result = screen(&visitor, args, &mut terminal);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(failed)
}

/// Looks at the group, and asks its members for their figures.
fn look(visitor: &Node, args: &TopArgs, rates: &mut Rates) -> Result<Listing, Failure> {
    let info = args.visit.show(visitor)?;
    Ok(Listing::new(&info, &figures(visitor, &info), rates))
}

fn figures(visitor: &Node, info: &GroupInfo) -> BTreeMap<NodeId, NodeFigures> {
    let members: Vec<NodeId> = info.members.iter().map(|member| member.node).collect();
    visitor.figures_of(&members, FIGURES_MAX)
}

/// Prints the group at every interval, until it ends or the reader of stdout is gone.
fn stream(visitor: &Node, args: &TopArgs) -> Result<(), Failure> {
    let (interval, mut rates, mut was_there) =
        (Duration::from_millis(args.interval), Rates::default(), false);
    loop {
        let began = Instant::now();
        match look(visitor, args, &mut rates) {
            Ok(listing) => listing.print_json()?,
            // The group ended while it was watched. That is a success.
            Err(silence) if was_there => {
                eprintln!("squall: {silence}");
                return Ok(());
            }
            Err(silence) => return Err(silence),
        }
        was_there = true;
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
}

/// The data that the screen shows.
#[derive(Default)]
struct Shown {
    title: String,
    lines: Vec<String>,
    /// The first line that is shown.
    top: usize,
    trouble: Option<String>,
}

/// An effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Press {
    Quit,
    /// Scrolls by so many lines.
    Scroll(isize),
}

fn screen(visitor: &Node, args: &TopArgs, terminal: &mut DefaultTerminal) -> io::Result<()> {
    let (mut rates, mut next_look) = (Rates::default(), Instant::now());
    let interval = Duration::from_millis(args.interval);
    let mut shown = Shown { title: args.visit.endpoints.join(", "), ..Shown::default() };
    loop {
        let now = Instant::now();
        if now >= next_look {
            match visitor.show(LOOK_MAX) {
                Ok(info) => {
                    (shown.lines, shown.trouble) =
                        (Listing::new(&info, &figures(visitor, &info), &mut rates).lines(true), None);
                }
                Err(_) => shown.trouble = Some("no member answers; trying again".to_owned()),
            }
            next_look = now + interval;
        }
        terminal.draw(|frame| draw(frame, &mut shown))?;
        if !event::poll(next_look.saturating_duration_since(Instant::now()))? {
            continue;
        }
        match press(&event::read()?) {
            Some(Press::Quit) => return Ok(()),
            Some(Press::Scroll(by)) => shown.top = shown.top.saturating_add_signed(by),
            None => {}
        }
    }
}

fn press(event: &Event) -> Option<Press> {
    let Event::Key(key) = event else { return None };
    if !matches!(key.kind, KeyEventKind::Press | KeyEventKind::Repeat) {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Press::Quit),
        KeyCode::Char('q') if key.modifiers.is_empty() => Some(Press::Quit),
        KeyCode::Up => Some(Press::Scroll(-1)),
        KeyCode::Down => Some(Press::Scroll(1)),
        KeyCode::PageUp => Some(Press::Scroll(-10)),
        KeyCode::PageDown => Some(Press::Scroll(10)),
        _ => None,
    }
}

fn draw(frame: &mut Frame<'_>, shown: &mut Shown) {
    let parts = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
    let title = match &shown.trouble {
        Some(trouble) => Line::from(format!("{}: {trouble}", shown.title)).red(),
        None => Line::from(format!("group of {}", shown.title)).bold(),
    };
    frame.render_widget(Paragraph::new(title), head);
    let height = usize::from(body.height);
    shown.top = shown.top.min(shown.lines.len().saturating_sub(height));
    let lines = shown.lines.iter().skip(shown.top).take(height);
    let lines: Vec<Line<'_>> = lines.map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().dim()), foot);
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::listing;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    fn drawn(shown: &mut Shown, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, shown)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    #[test]
    fn the_screen_scrolls_to_the_last_line_and_no_further() {
        let lines = listing().lines(true);
        let mut shown = Shown { title: "host/a".to_owned(), lines: lines.clone(), ..Shown::default() };
        let rows = drawn(&mut shown, 120, 6);
        assert_eq!((&*rows[0], &rows[1], &*rows[5]), ("group of host/a", &lines[0], KEYS));
        shown.top = 1_000;
        let rows = drawn(&mut shown, 120, 6);
        assert_eq!((&rows[4], shown.top), (&lines[lines.len() - 1], lines.len() - 4));
        shown.trouble = Some("no member answers".to_owned());
        assert_eq!(drawn(&mut shown, 120, 6)[0], "host/a: no member answers");
        // A terminal of any size is drawn.
        drawn(&mut shown, 1, 1);
    }

    #[test]
    fn keys_scroll_and_quit() {
        let key = |code, modifiers| press(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Press::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Press::Quit));
        assert_eq!(key(KeyCode::Down, KeyModifiers::NONE), Some(Press::Scroll(1)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(press(&Event::FocusLost), None);
    }
}
