//! One thread that calls an object of another process, and judges the answers.

use std::time::Duration;

use squall::call::with_deadline;
use squall::{CallError, CallErrorKind, Handle, MessageError, Transport};

use super::account::Account;
use crate::run::Rng;

/// Longest argument of `echo`. Longer ones than a message are refused.
const ECHO_MAX: u64 = 9_000;
/// Bytes of an argument that each transport takes.
const ECHO_SURE: u64 = 8_000;
/// Longest time that a method holds its caller, in microseconds.
const HOLD_MAX: u64 = 500;

/// The end of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// `enter` has returned.
    Entered,
    /// `enter` has failed, and may have run.
    Unsure,
    /// Another method has returned, or failed as it may.
    Other,
    /// The other process is gone. `enter` may have run if the flag is set.
    Gone(bool),
    /// A wrong answer.
    Wrong(String),
}

/// The calls of one thread.
pub(super) struct Calls {
    object: Handle<dyn Account>,
    thread: u32,
    /// Calls of `enter` that have returned, and those that may have run besides.
    entered: u64,
    unsure: u64,
}

impl Calls {
    pub(super) fn new(object: Handle<dyn Account>, thread: u32) -> Calls {
        Calls { object, thread, entered: 0, unsure: 0 }
    }

    /// Makes a random call. An honest peer's answers are judged by the caller of this function.
    pub(super) fn call(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(16) {
            0..8 => {
                let short = rng.one_in(16).then(|| Duration::from_micros(rng.below(200)));
                let entered = match short {
                    Some(short) => with_deadline(short, || self.object.try_enter(self.thread)),
                    None => self.object.try_enter(self.thread),
                };
                self.judge_enter(entered, short.is_some())
            }
            8..12 => self.echo(rng),
            12 => {
                let micros = rng.below(HOLD_MAX) as u32;
                self.judge(self.object.try_hold(micros), |held| *held == micros, &[])
            }
            13 => {
                let short = Duration::from_micros(rng.below(HOLD_MAX));
                let held = with_deadline(short, || self.object.try_hold(HOLD_MAX as u32));
                self.judge(held, |held| *held == HOLD_MAX as u32, &[Transport::Deadline, Transport::Busy])
            }
            14 => self.judge(self.object.try_fail(), |()| false, &[Transport::Panicked]),
            _ => {
                let word = rng.next();
                self.judge(self.object.try_guarded(word), |same| *same == word, &[Transport::Denied])
            }
        }
    }

    fn echo(&self, rng: &mut Rng) -> Outcome {
        let length = if rng.one_in(2) { rng.below(200) } else { rng.below(ECHO_MAX) };
        let bytes: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(rng.next() as u8 | 1)).collect();
        let too_large =
            [Transport::BadArguments(MessageError::TooLarge), Transport::BadResult(MessageError::TooLarge)];
        let refusable = if length > ECHO_SURE { &too_large[..] } else { &[] };
        let is_echo = |echo: &Vec<u8>| {
            echo.len() == bytes.len()
                && echo.iter().zip(&bytes).all(|(echo, byte)| *echo == byte.wrapping_add(1))
        };
        self.judge(self.object.try_echo(&bytes), is_echo, refusable)
    }

    fn judge_enter(&mut self, entered: Result<u64, CallError>, short: bool) -> Outcome {
        match entered {
            Ok(number) => {
                let (least, most) = (self.entered + 1, self.entered + 1 + self.unsure);
                if !(least..=most).contains(&number) {
                    return Outcome::Wrong(format!("`enter` returned {number}, not {least} to {most}"));
                }
                self.entered += 1;
                Outcome::Entered
            }
            Err(error) => match error.reason() {
                CallErrorKind::Transport(Transport::Deadline) if short => {
                    self.unsure += 1;
                    Outcome::Unsure
                }
                CallErrorKind::Transport(Transport::Busy) if short => Outcome::Other,
                CallErrorKind::Transport(Transport::PeerGone) => Outcome::Gone(true),
                CallErrorKind::Transport(
                    Transport::Disconnected | Transport::NoSuchObject | Transport::Destroyed,
                ) => Outcome::Gone(false),
                _ => Outcome::Wrong(format!("`enter` failed: {error}")),
            },
        }
    }

    /// Judges a call of another method than `enter`. It may fail with these errors.
    fn judge<T: std::fmt::Debug>(
        &self,
        answer: Result<T, CallError>,
        is_right: impl Fn(&T) -> bool,
        allowed: &[Transport],
    ) -> Outcome {
        match answer {
            Ok(value) if is_right(&value) => Outcome::Other,
            Ok(_) => Outcome::Wrong("a result belongs to other arguments".to_owned()),
            Err(error) => match error.reason() {
                CallErrorKind::Transport(kind) if allowed.contains(&kind) => Outcome::Other,
                CallErrorKind::Transport(
                    Transport::PeerGone
                    | Transport::Disconnected
                    | Transport::NoSuchObject
                    | Transport::Destroyed,
                ) => Outcome::Gone(false),
                _ => Outcome::Wrong(format!("a call failed: {error}")),
            },
        }
    }
}
