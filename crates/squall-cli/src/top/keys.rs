//! Keys of the terminal, and what they are for.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::state::Press;

/// What the keys do, as the help shows it.
pub(super) const HELP: [(&str, &str); 11] = [
    ("c t m", "sort by calls, contention, memory"),
    ("i w r d", "sort by misses, swaps, representatives, id"),
    ("up down", "select an object; also page up, page down, home, end"),
    ("f", "freeze the object, or thaw it: its policy leaves it as it is"),
    ("F", "freeze every policy, or thaw them"),
    ("a", "set an attribute of the object"),
    ("s", "swap the object for another implementation"),
    ("n", "count calls, or stop it; each call of an object being counted costs more"),
    ("?", "this help"),
    ("escape", "leave a list or a prompt"),
    ("q", "quit"),
];

/// The line at the bottom.
pub(super) const LINE: &str =
    "c calls  t contention  m memory  f freeze  a attribute  s swap  n count  ? help  q quit";

/// What an event of the terminal means, if it is a key that means something.
pub(super) fn press(event: &Event) -> Option<Press> {
    let Event::Key(key) = event else { return None };
    if !matches!(key.kind, KeyEventKind::Press | KeyEventKind::Repeat) {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Press::Interrupt,
        KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            return None;
        }
        KeyCode::Char(letter) => Press::Letter(letter),
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        KeyCode::PageUp => Press::PageUp,
        KeyCode::PageDown => Press::PageDown,
        KeyCode::Home => Press::Home,
        KeyCode::End => Press::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn a_letter_with_control_is_no_letter() {
        let event = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert_eq!(press(&event(KeyCode::Char('c'), KeyModifiers::NONE)), Some(Press::Letter('c')));
        assert_eq!(press(&event(KeyCode::Char('F'), KeyModifiers::SHIFT)), Some(Press::Letter('F')));
        assert_eq!(press(&event(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Press::Interrupt));
        assert_eq!(press(&event(KeyCode::Char('f'), KeyModifiers::CONTROL)), None);
        assert_eq!(press(&Event::FocusLost), None);
    }
}
