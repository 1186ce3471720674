//! The keys of the screen.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::state::Press;

/// The keys and their effects, as the help shows them.
pub(super) const HELP: [(&str, &str); 13] = [
    ("c t m", "sort by calls, contention, memory"),
    ("i w r d", "sort by misses, swaps, representatives, id"),
    ("up down", "select an object; also page up, page down, home, end"),
    ("f", "freeze or thaw the object; a frozen object does not adapt"),
    ("F", "freeze or thaw all objects"),
    ("a", "set an attribute of the object"),
    ("s", "swap the object to another implementation"),
    ("n", "start or stop counting calls; counted calls are slower"),
    ("g", "show the nodes of groups and the members of pools in the program"),
    ("v", "show or hide the readings that decisions rest on"),
    ("?", "this help"),
    ("escape", "leave a list or a prompt"),
    ("q", "quit"),
];

/// The line at the bottom of the screen.
pub(super) const LINE: &str =
    "c calls  t contention  m memory  f freeze  a attribute  s swap  n count  ? help  q quit";

/// Translates a terminal event into a key of the screen, if it is one.
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
    fn control_and_a_letter_is_not_the_letter() {
        let event = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert_eq!(press(&event(KeyCode::Char('c'), KeyModifiers::NONE)), Some(Press::Letter('c')));
        assert_eq!(press(&event(KeyCode::Char('F'), KeyModifiers::SHIFT)), Some(Press::Letter('F')));
        assert_eq!(press(&event(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Press::Interrupt));
        assert_eq!(press(&event(KeyCode::Char('f'), KeyModifiers::CONTROL)), None);
        assert_eq!(press(&Event::FocusLost), None);
    }
}
