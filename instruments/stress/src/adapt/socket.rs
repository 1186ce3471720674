//! An operator that steers the objects over the socket, and a client that sends garbage.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use squall::Id;
use squall::browse::protocol::{ListQuery, RefusalKind, Sort};
use squall::browse::{Client, ClientError, Target};

use super::counts::{Stat, count};
use super::operators::Operator;
use super::tracked_counter::TrackedCounter;
use super::world::{PLACES, World};
use crate::run::Rng;

/// Length of a request that is too long.
const HUGE: usize = 100 * 1024;
const GARBAGE_MAX: u64 = 300;
const SLEEP_US: u64 = 6_000;
/// Maximum time that garbage waits for an answer.
const WAIT: Duration = Duration::from_millis(2);

/// A client that keeps its connection as long as it works.
#[derive(Default)]
pub(super) struct SocketOperator(Option<Client>);

impl SocketOperator {
    /// Runs a random step.
    pub(super) fn steer(&mut self, world: &'static World, rng: &mut Rng) {
        match rng.below(64) {
            0..6 => send_garbage(world, rng),
            6..8 => self.0 = None,
            8 => self.all(world, rng),
            _ => self.one(world, rng),
        }
        std::thread::sleep(Duration::from_micros(rng.below(SLEEP_US)));
    }

    /// Sends a request. Connects first if there is no connection. The error text explains a refusal.
    fn ask<T>(
        &mut self,
        world: &World,
        f: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, String> {
        let client = match &mut self.0 {
            Some(client) => client,
            none => match Client::connect(&Target::Path(world.socket.clone())) {
                Ok(client) => none.insert(client),
                Err(error) => {
                    lost(world, &error);
                    return Err(error.to_string());
                }
            },
        };
        match f(client) {
            Ok(answer) => {
                count(Stat::Asked);
                Ok(answer)
            }
            Err(error) => {
                count(Stat::AskedRefused);
                if !error.is_refusal() {
                    self.0 = None;
                    lost(world, &error);
                }
                Err(error.to_string())
            }
        }
    }

    /// Runs requests that concern all objects or none.
    fn all(&mut self, world: &'static World, rng: &mut Rng) {
        let Some(alone) = world.alone() else { return };
        let must = |doing: &str, answer: Result<(), String>| {
            if let Err(error) = answer {
                world.run_state.fail(format!("{doing} over the socket was refused: {error}"));
            }
        };
        must("a freeze of all objects", self.ask(world, |client| client.freeze_all(true)));
        let hello = self.ask(world, Client::hello);
        must("a greeting", hello.clone().map(|_| ()));
        if hello.is_ok_and(|hello| hello.pid != std::process::id() || !hello.all_frozen) {
            world.run_state.fail(
                "the greeting over the socket names another process or reports objects that are not frozen"
                    .to_owned(),
            );
        }
        must("a thaw of all objects", self.ask(world, |client| client.freeze_all(false)));
        drop(alone);
        must("a request for the decisions", self.ask(world, Client::decisions).map(|_| ()));
        must("a request for the swaps", self.ask(world, Client::swaps).map(|_| ()));
        let sort = [Sort::Id, Sort::Bytes, Sort::Contended, Sort::Swaps][rng.below(4) as usize];
        let query = ListQuery { sort, interface: Some("Counter".to_owned()), ..ListQuery::default() };
        match self.ask(world, |client| client.list(&query)) {
            // Two counters live until the end of the run.
            Ok(list) if list.total < 2 => {
                world.run_state.fail(format!(
                    "the list over the socket has {} counters, but two live until the end of the run",
                    list.total
                ));
            }
            Ok(_) => {}
            Err(error) => world.run_state.fail(format!("a list over the socket was refused: {error}")),
        }
    }

    /// Runs a request that concerns one object.
    fn one(&mut self, world: &'static World, rng: &mut Rng) {
        let place = world.any_place(rng);
        let Some(steering) = world.steer(place) else { return };
        let Some(tracked) = world.shown(place).filter(|tracked| !tracked.lifecycle.is_ending()) else {
            return;
        };
        let (tracked, operator) = (&*tracked, Operator { world });
        let id = tracked.id().to_string();
        let mut set = |id: Id, name: &str, text: &str| {
            self.ask(world, |client| client.set(&id.to_string(), name, text))
        };
        match rng.below(16) {
            0..2 if place < PLACES => operator.set_right(tracked, &mut set, rng),
            0..4 => operator.set_wrong(tracked, &mut set, rng),
            4 => {
                let mut freeze =
                    |id: Id, frozen| self.ask(world, |client| client.freeze(&id.to_string(), frozen));
                operator.freeze(tracked, place, &mut freeze, rng);
            }
            5..8 => self.swap(world, tracked, rng),
            8 => {
                // Its calls may be counted, or it may be swapped, already.
                let _ = self.ask(world, |client| client.sample(&id, 1));
            }
            9..12 => {
                let history = self.ask(world, |client| client.history(&id)).map(|_| ());
                expect(operator, tracked, "its history", history);
            }
            _ => match self.ask(world, |client| client.object(&id)) {
                Ok(detail) if detail.row.id != id => {
                    world.run_state.fail(format!(
                        "a request over the socket for object {id} was answered for {}",
                        detail.row.id
                    ));
                }
                answer => expect(operator, tracked, "a request for its details", answer.map(|_| ())),
            },
        }
        drop(steering);
    }

    fn swap(&mut self, world: &'static World, tracked: &TrackedCounter, rng: &mut Rng) {
        let form = ["shared", "distributed", "round"][rng.below(3) as usize];
        let id = tracked.id().to_string();
        match self.ask(world, |client| client.swap(&id, form)) {
            Ok(swap) if form == "round" || swap.id != id => {
                world.run_state.fail(format!("a swap of {id} to {form} over the socket returned {swap:?}"));
            }
            Ok(_) => count(Stat::ByHand),
            Err(_) => count(Stat::ByHandFailed),
        }
    }
}

fn expect(operator: Operator, tracked: &TrackedCounter, doing: &str, answer: Result<(), String>) {
    if let Err(error) = answer {
        operator.refused(tracked, doing, &error);
    }
}

/// Checks why a connection failed. Only the limit of clients is a valid reason.
fn lost(world: &World, error: &ClientError) {
    match error {
        ClientError::Refused(refusal) if refusal.kind == RefusalKind::TooManyClients => {}
        error => world.run_state.fail(format!("a request over the socket failed: {error}")),
    }
}

/// Connects, sends an invalid, partial or huge request, and perhaps does not wait for the answer.
fn send_garbage(world: &World, rng: &mut Rng) {
    let Ok(mut stream) = UnixStream::connect(&world.socket) else {
        return world.run_state.fail("a connection to the socket failed".to_owned());
    };
    let _ = stream.set_write_timeout(Some(WAIT));
    let _ = stream.set_read_timeout(Some(WAIT));
    let mut bytes: Vec<u8> = match rng.below(4) {
        0 => (0..rng.below(GARBAGE_MAX)).map(|_| rng.next() as u8).collect(),
        1 => br#"{"op":"freeze","id":"#.to_vec(),
        2 => vec![b'x'; HUGE],
        _ => br#"{"op":"set","id":"0.0","name":"freeze","value":"true"}"#.to_vec(),
    };
    if rng.one_in(2) {
        bytes.push(b'\n');
    }
    // The server may refuse the client or close the connection early.
    let _ = stream.write_all(&bytes);
    if rng.one_in(2) {
        let _ = stream.read(&mut [0; 512]);
    }
    count(Stat::Garbage);
}
