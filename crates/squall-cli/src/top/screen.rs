//! The screen on a terminal: polls, draws, waits for keys and runs their actions.

use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use squall::browse::{Client, ClientError, Target};

use super::args::{Key, TIMEOUT, TopArgs};
use super::state::{Action, Prompt, State};
use super::watch::Watch;
use super::{command, draw, keys, nodes};
use crate::output::Failure;

/// Default time to count the calls of one object, in milliseconds.
const SAMPLE_MS: u64 = 10;
/// Calls of some object are counted during one part in this many of the time.
const SAMPLE_SHARE: u64 = 4;

/// Runs the screen until the user quits. The terminal is restored, also after a panic.
pub(super) fn run(mut client: Client, watch: Watch, args: &TopArgs) -> Result<(), Failure> {
    let hello = client.hello()?;
    let title = format!("{} ({})", super::text::clean(&hello.program), hello.pid);
    let counting = args.sample.is_some() || args.sort == Key::Calls;
    let screen = Screen {
        target: args.target.clone(),
        client: Some(client),
        watch,
        state: State { readings: args.readings, ..State::new(title, args.sort, counting) },
        interval: Duration::from_millis(args.interval),
        sample_ms: args.sample.unwrap_or(SAMPLE_MS),
    };
    let failed = |error: io::Error| Failure::new(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let result = screen.run(&mut terminal);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(failed)
}

struct Screen {
    target: Target,
    /// The connection; absent while the program cannot be reached.
    client: Option<Client>,
    watch: Watch,
    state: State,
    interval: Duration,
    sample_ms: u64,
}

impl Screen {
    fn run(mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let mut next_look = Instant::now();
        loop {
            let now = Instant::now();
            if now >= next_look {
                self.look();
                next_look = now + self.interval;
            }
            terminal.draw(|frame| draw::draw(frame, &self.state))?;
            if !event::poll(next_look.saturating_duration_since(Instant::now()))? {
                continue;
            }
            let Some(press) = keys::press(&event::read()?) else { continue };
            match self.state.press(press) {
                Action::Quit => return Ok(()),
                Action::None => {}
                Action::Look => next_look = Instant::now(),
                action => {
                    self.act(action);
                    next_look = Instant::now();
                }
            }
        }
    }

    /// Runs `run` with the connection. Connects first if needed, and drops the connection if it breaks.
    fn with_client<T>(
        &mut self,
        run: impl FnOnce(&mut Client, &mut Watch, &mut State) -> Result<T, ClientError>,
    ) -> Option<T> {
        let connected = match self.client.take() {
            Some(client) => Ok(client),
            None => Client::connect_within(&self.target, TIMEOUT),
        };
        let result = connected.and_then(|mut client| {
            let result = run(&mut client, &mut self.watch, &mut self.state);
            if result.as_ref().err().is_none_or(ClientError::is_refusal) {
                self.client = Some(client);
            }
            result
        });
        match result {
            Ok(value) => {
                self.state.trouble = None;
                Some(value)
            }
            Err(ClientError::Refused(refusal)) => {
                self.state.trouble = None;
                self.state.message = Some(super::text::clean(&refusal.message));
                None
            }
            Err(error) => {
                let again = if matches!(error, ClientError::NoProcess(_)) {
                    "press q to quit"
                } else {
                    "trying again"
                };
                self.state.trouble = Some(format!("{error}; {again}"));
                None
            }
        }
    }

    /// Polls all objects, and the selected object in detail.
    fn look(&mut self) {
        let span_ms = self.sample_ms;
        let objects_max = self.interval.as_millis() as u64 / SAMPLE_SHARE / span_ms;
        let looked = self.with_client(|client, watch, state| {
            let mut look = watch.look(client, state.sort)?;
            if state.counting {
                watch.count(client, &mut look.rows, span_ms, objects_max.max(1) as usize)?;
            }
            Ok(look)
        });
        if let Some(look) = looked {
            self.state.see(look);
            if let Some(id) = self.state.selected.clone() {
                self.look_closely(&id);
            }
        }
    }

    fn look_closely(&mut self, id: &str) {
        let found = self.with_client(|client, _, _| match client.object(id) {
            Ok(detail) => Ok(Some((detail, client.history(id)?))),
            // The object is gone.
            Err(error) if error.is_refusal() => Ok(None),
            Err(error) => Err(error),
        });
        if let Some(detail) = found {
            self.state.detail = detail;
            if self.state.detail.is_none() {
                self.state.prompt = Prompt::None;
            }
        }
    }

    /// Runs the action of a key and shows its result.
    fn act(&mut self, action: Action) {
        let message = match action {
            Action::None | Action::Quit | Action::Look => None,
            Action::Nodes => {
                let found = self.with_client(|client, _, _| nodes::summary(client));
                let is_empty = found.as_ref().is_some_and(Vec::is_empty);
                if let Some(lines) = found.filter(|lines| !lines.is_empty()) {
                    self.state.prompt = Prompt::Nodes(lines);
                }
                is_empty.then(|| "The program has no nodes of groups and no members of pools.".to_owned())
            }
            Action::Detail(id) => {
                self.look_closely(&id);
                None
            }
            Action::Freeze { id, frozen } => self.with_client(|client, _, _| {
                client.freeze(&id, frozen)?;
                Ok(format!("{id} is {}.", if frozen { "frozen" } else { "thawed" }))
            }),
            Action::FreezeAll(frozen) => self.with_client(|client, _, _| {
                client.freeze_all(frozen)?;
                Ok(if frozen { "Every policy is frozen." } else { "Policies are thawed." }.to_owned())
            }),
            Action::Set { id, name, value } => self.with_client(|client, _, _| {
                client.set(&id, &name, &value)?;
                Ok(format!("{id}: {name} is {value}."))
            }),
            Action::Swap { id, implementation } => self.with_client(|client, _, _| {
                let swap = client.swap(&id, &implementation)?;
                Ok(command::swap_line(&swap))
            }),
        };
        if message.is_some() {
            self.state.message = message;
        }
    }
}
