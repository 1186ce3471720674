//! The shards of a node: they begin, end, and move to other members.
//!
//! Cost: a change of the directory looks at all shards of all names. Other events look at the moving ones.

use super::{ANY, Core, Output};
use crate::protocol::directory::Shard;
use crate::protocol::frame::{Body, State};
use crate::protocol::guard::Guard;
use crate::protocol::name::NameAlias;
use crate::protocol::serving::{Handover, PIECE, Serving};
use crate::protocol::{AGAIN, Time};

impl Core {
    /// Begins with the shards that this node owns now, and forgets those that it lost.
    pub(super) fn settle_shards(&mut self, now: Time) {
        let me = self.group.me;
        let directory = &self.group.directory;
        let state = |name: NameAlias, shard: u32| directory.shard(name, shard).copied();
        // Shards that went away, or began with a new state.
        let local = self.serving.shards.iter();
        let gone: Vec<(NameAlias, u32)> = local
            .filter(|((name, shard), local)| {
                state(*name, *shard).is_none_or(|state| state.owner != Some(me) || state.born != local.born)
            })
            .map(|(at, _)| *at)
            .collect();
        for (name, shard) in gone {
            if let Some(local) = self.serving.end(now, name, shard) {
                self.outputs.push_back(Output::Drop { service: local.service, shard });
            }
        }
        let mine: Vec<(NameAlias, u32, u64, Shard)> = (directory.names())
            .flat_map(|(name, entry)| {
                let service = entry.place_of(me).map_or(0, |place| place.service);
                let shards = (0u32..).zip(&entry.shards);
                let owned = shards.filter(|(_, shard)| shard.owner == Some(me));
                owned.map(move |(number, shard)| (name.alias(), number, service, *shard))
            })
            .collect();
        let is_last = |name: NameAlias| directory.entry(name).is_some_and(|(_, entry)| entry.is_last(me));
        let moves = |state: &Shard| state.target.is_some();
        let moving = mine.iter().filter(|(.., state)| moves(state)).map(|(name, shard, ..)| (*name, *shard));
        let moving = std::mem::replace(&mut self.serving.moving, moving.collect());
        let given_up = mine.iter().filter(|(name, _, _, state)| !moves(state) && is_last(*name));
        self.serving.given_up = given_up.map(|(name, shard, ..)| (*name, *shard)).collect();
        for at in moving.difference(&self.serving.moving) {
            // The move was given up: it serves again.
            if let Some(local) = self.serving.shards.get_mut(at) {
                local.handover = None;
            }
        }
        for (name, shard, service, state) in mine {
            if !self.serving.shards.contains_key(&(name, shard)) {
                self.serving.begin(name, shard, state.born, service);
                let incoming = self.serving.incoming.remove(&(name, shard));
                let handed = incoming.filter(|incoming| {
                    incoming.is_complete() && Guard::EpochOfBirth.or(incoming.epoch >= state.born)
                });
                let handed = handed.and_then(|incoming| postcard::from_bytes::<State>(&incoming.bytes).ok());
                match handed {
                    Some(State { service: bytes, sessions }) => {
                        self.serving.adopt(now, sessions);
                        self.outputs.push_back(Output::Import { service, shard, state: bytes });
                    }
                    None => self.outputs.push_back(Output::Create { service, shard }),
                }
            }
        }
        let directory = &self.group.directory;
        self.serving.incoming.retain(|(name, shard), incoming| {
            let state = directory.shard(*name, *shard);
            state.is_some_and(|state| state.target == Some(me) && state.epoch == incoming.epoch)
        });
        self.hand_over(now);
    }

    /// Moves the shards that have a target: exports each one, and sends its pieces.
    pub(super) fn hand_over(&mut self, now: Time) {
        let directory = &self.group.directory;
        let mut frames = Vec::new();
        let Serving { shards, moving, .. } = &mut self.serving;
        for (name, shard) in moving.iter() {
            let Some(local) = shards.get_mut(&(*name, *shard)) else { continue };
            let state = directory.shard(*name, *shard);
            // If the move was given up, `settle_shards` follows.
            let Some(state) = state.filter(|state| state.target.is_some()) else { continue };
            let to = state.target.unwrap_or(ANY);
            if local.handover.as_ref().is_none_or(|handover| handover.epoch != state.epoch) {
                let handover =
                    Handover { epoch: state.epoch, to, bytes: None, piece: 0, send_at: now, moved_at: now };
                local.handover = Some(handover);
                // Exported below, once no call runs.
            }
            let Some(handover) = &mut local.handover else { continue };
            if let Some(bytes) = &handover.bytes
                && now >= handover.send_at
            {
                handover.send_at = now + AGAIN;
                let pieces = Handover::pieces(bytes);
                let start = handover.piece as usize * PIECE;
                if handover.piece < pieces {
                    let piece = &bytes[start..bytes.len().min(start + PIECE)];
                    let body = Body::Handover {
                        name: *name,
                        shard: *shard,
                        epoch: handover.epoch,
                        piece: handover.piece,
                        pieces,
                        bytes: piece.to_vec(),
                    };
                    frames.push((handover.to, body));
                } else {
                    // All pieces are there. The target asks the leader.
                    handover.send_at = Time::MAX;
                }
            }
        }
        for (to, body) in frames {
            self.send(to, body);
        }
        let ready: Vec<(NameAlias, u32)> = (self.serving.moving.iter())
            .filter(|at| {
                let asked = |handover: &Handover| handover.bytes.is_none() && now >= handover.send_at;
                let local = self.serving.shards.get(at);
                local.is_some_and(|local| {
                    local.handover.as_ref().is_some_and(asked)
                        && Guard::IdleBeforeExport.or(!local.is_running())
                })
            })
            .copied()
            .collect();
        for (name, shard) in ready {
            let Some(local) = self.serving.shards.get_mut(&(name, shard)) else { continue };
            let Some(handover) = &mut local.handover else { continue };
            // Marks it as asked for.
            handover.bytes = Some(Vec::new());
            handover.send_at = Time::MAX;
            let (service, epoch) = (local.service, handover.epoch);
            self.outputs.push_back(Output::Export { service, name, shard, epoch });
        }
    }

    /// Forgets all shards.
    pub(super) fn drop_shards(&mut self, now: Time) {
        let shards: Vec<(NameAlias, u32)> = self.serving.shards.keys().copied().collect();
        for (name, shard) in shards {
            if let Some(local) = self.serving.end(now, name, shard) {
                self.outputs.push_back(Output::Drop { service: local.service, shard });
            }
        }
    }
}
