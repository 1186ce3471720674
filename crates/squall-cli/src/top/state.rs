//! The state of the screen and the effect of keys on it, without terminal, connection or clock.

use squall::browse::protocol::{AttributeView, DecisionView, Detail};

use super::args::Key;
use super::watch::{Look, Row, order};

/// An action that a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// No action.
    None,
    /// End the screen.
    Quit,
    /// Poll at once, because other data is needed.
    Look,
    /// Show the nodes and the members of pools of the program.
    Nodes,
    /// Show the selected object in detail.
    Detail(String),
    Freeze {
        id: String,
        frozen: bool,
    },
    FreezeAll(bool),
    Set {
        id: String,
        name: String,
        value: String,
    },
    Swap {
        id: String,
        implementation: String,
    },
}

/// A question to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// No question.
    None,
    /// The list of keys.
    Help,
    /// The nodes and the members of pools of the program, one on a line.
    Nodes(Vec<String>),
    /// Choose one of the object's attributes.
    Attribute { id: String, chosen: usize },
    /// Enter a value for the attribute.
    Value { id: String, name: String, value: String },
    /// Choose an implementation to swap to.
    Implementation { id: String, chosen: usize },
}

/// A key that has an effect on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Interrupt,
}

/// Rows per page for page up and page down.
const PAGE: usize = 10;

/// The data on the screen, the selection, and the current question.
#[derive(Debug)]
pub(super) struct State {
    /// Name and number of the program.
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
    pub(super) total: usize,
    pub(super) all_frozen: bool,
    pub(super) sort: Key,
    /// The id of the selected object. The selection follows the object when its row moves.
    pub(super) selected: Option<String>,
    /// Whether the program counts calls for this screen.
    pub(super) counting: bool,
    /// Details of the selected object, and the decisions about it, oldest first.
    pub(super) detail: Option<(Detail, Vec<DecisionView>)>,
    /// Whether the decisions are shown with their readings.
    pub(super) readings: bool,
    pub(super) prompt: Prompt,
    /// The result of the last action.
    pub(super) message: Option<String>,
    /// The reason why the data is stale.
    pub(super) trouble: Option<String>,
}

impl State {
    pub(super) fn new(title: String, sort: Key, counting: bool) -> State {
        State {
            title,
            rows: Vec::new(),
            total: 0,
            all_frozen: false,
            sort,
            selected: None,
            counting,
            detail: None,
            readings: false,
            prompt: Prompt::None,
            message: None,
            trouble: None,
        }
    }

    /// Takes over the result of a poll.
    pub(super) fn see(&mut self, look: Look) {
        let place = self.place().unwrap_or(0);
        (self.rows, self.total, self.all_frozen) = (look.rows, look.total, look.all_frozen);
        order(&mut self.rows, self.sort);
        if self.place().is_none() {
            // The object is gone; the next object takes its place.
            self.select(place);
        }
        if self.detail.as_ref().is_some_and(|(detail, _)| Some(&detail.row.id) != self.selected.as_ref()) {
            self.detail = None;
        }
    }

    /// Returns the row of the selected object.
    pub(super) fn place(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows.iter().position(|row| row.object.id == *selected)
    }

    fn selected_row(&self) -> Option<&Row> {
        self.place().map(|place| &self.rows[place])
    }

    fn select(&mut self, place: usize) {
        let row = self.rows.get(place).or(self.rows.last());
        self.selected = row.map(|row| row.object.id.clone());
    }

    fn go(&mut self, place: usize) -> Action {
        self.select(place);
        self.detail = None;
        self.selected.clone().map_or(Action::None, Action::Detail)
    }

    fn sort_by(&mut self, key: Key) -> Action {
        self.sort = key;
        if key == Key::Calls && !self.counting {
            self.counting = true;
            self.message = Some("Calls are now counted; press n to stop.".to_owned());
        }
        order(&mut self.rows, key);
        Action::Look
    }

    /// Handles a key and returns the action to run.
    pub(super) fn press(&mut self, press: Press) -> Action {
        if press == Press::Interrupt {
            return Action::Quit;
        }
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::None => self.press_in_table(press),
            Prompt::Help | Prompt::Nodes(_) => Action::None,
            Prompt::Attribute { id, chosen } => self.press_in_attributes(press, id, chosen),
            Prompt::Value { id, name, value } => self.press_in_value(press, id, name, value),
            Prompt::Implementation { id, chosen } => self.press_in_implementations(press, id, chosen),
        }
    }

    fn press_in_table(&mut self, press: Press) -> Action {
        let place = self.place().unwrap_or(0);
        self.message = None;
        match press {
            Press::Letter('q') | Press::Escape => Action::Quit,
            Press::Letter('?' | 'h') => {
                self.prompt = Prompt::Help;
                Action::None
            }
            Press::Up | Press::Letter('k') => self.go(place.saturating_sub(1)),
            Press::Down | Press::Letter('j') => self.go(place + 1),
            Press::PageUp => self.go(place.saturating_sub(PAGE)),
            Press::PageDown => self.go(place + PAGE),
            Press::Home => self.go(0),
            Press::End => self.go(usize::MAX),
            Press::Letter('c') => self.sort_by(Key::Calls),
            Press::Letter('t') => self.sort_by(Key::Contention),
            Press::Letter('m') => self.sort_by(Key::Memory),
            Press::Letter('i') => self.sort_by(Key::Misses),
            Press::Letter('w') => self.sort_by(Key::Swaps),
            Press::Letter('r') => self.sort_by(Key::Reps),
            Press::Letter('d') => self.sort_by(Key::Id),
            Press::Letter('n') => {
                self.counting = !self.counting;
                self.message = Some(
                    if self.counting { "Calls are counted." } else { "Calls are no longer counted." }.into(),
                );
                Action::Look
            }
            Press::Letter('v') => {
                self.readings = !self.readings;
                Action::None
            }
            Press::Letter('g') => Action::Nodes,
            Press::Letter('F') => Action::FreezeAll(!self.all_frozen),
            Press::Letter('f') => self.freeze(),
            Press::Letter('a') => self.ask_attribute(),
            Press::Letter('s') => self.ask_implementation(),
            _ => Action::None,
        }
    }

    fn freeze(&mut self) -> Action {
        match self.selected_row() {
            Some(row) => Action::Freeze { id: row.object.id.clone(), frozen: !row.object.frozen },
            None => self.nothing_selected(),
        }
    }

    fn nothing_selected(&mut self) -> Action {
        self.message = Some("No object is selected.".to_owned());
        Action::None
    }

    /// Returns the attributes of the selected object.
    pub(super) fn attributes(&self) -> &[AttributeView] {
        self.detail.as_ref().map_or(&[], |(detail, _)| &detail.attributes)
    }

    /// Returns the implementations that the selected object can be swapped to.
    pub(super) fn implementations(&self) -> &[String] {
        self.detail.as_ref().map_or(&[], |(detail, _)| &detail.implementations)
    }

    fn ask_attribute(&mut self) -> Action {
        let Some(id) = self.selected.clone() else { return self.nothing_selected() };
        if self.attributes().is_empty() {
            self.message = Some(format!("{id} has no attributes."));
        } else {
            self.prompt = Prompt::Attribute { id, chosen: 0 };
        }
        Action::None
    }

    fn ask_implementation(&mut self) -> Action {
        let Some(id) = self.selected.clone() else { return self.nothing_selected() };
        if self.implementations().is_empty() {
            self.message = Some(format!("The program registered no implementation for {id}."));
        } else {
            self.prompt = Prompt::Implementation { id, chosen: 0 };
        }
        Action::None
    }

    /// Returns whether the details are still those of the object `id`.
    fn is_of(&self, id: &str) -> bool {
        self.detail.as_ref().is_some_and(|(detail, _)| detail.row.id == id)
    }

    fn press_in_attributes(&mut self, press: Press, id: String, chosen: usize) -> Action {
        if !self.is_of(&id) || press == Press::Escape {
            return Action::None;
        }
        self.prompt = match (press, self.attributes().get(chosen)) {
            (Press::Enter, Some(attribute)) => {
                Prompt::Value { id, name: attribute.name.clone(), value: attribute.value.clone() }
            }
            (press, _) => Prompt::Attribute { id, chosen: moved(press, chosen, self.attributes().len()) },
        };
        Action::None
    }

    fn press_in_value(&mut self, press: Press, id: String, name: String, mut value: String) -> Action {
        match press {
            Press::Escape => return Action::None,
            Press::Enter => return Action::Set { id, name, value: value.trim().to_owned() },
            Press::Backspace => drop(value.pop()),
            Press::Letter(letter) => value.push(letter),
            _ => {}
        }
        self.prompt = Prompt::Value { id, name, value };
        Action::None
    }

    fn press_in_implementations(&mut self, press: Press, id: String, chosen: usize) -> Action {
        if !self.is_of(&id) || press == Press::Escape {
            return Action::None;
        }
        match (press, self.implementations().get(chosen)) {
            (Press::Enter, Some(name)) => Action::Swap { id, implementation: name.clone() },
            (press, _) => {
                let chosen = moved(press, chosen, self.implementations().len());
                self.prompt = Prompt::Implementation { id, chosen };
                Action::None
            }
        }
    }
}

/// Returns the index chosen after a key, out of `count` entries.
fn moved(press: Press, chosen: usize, count: usize) -> usize {
    let last = count.saturating_sub(1);
    match press {
        Press::Up | Press::Letter('k') => chosen.saturating_sub(1),
        Press::Down | Press::Letter('j') => (chosen + 1).min(last),
        Press::Home | Press::PageUp => 0,
        Press::End | Press::PageDown => last,
        _ => chosen.min(last),
    }
}
