//! Agreement of a group on its directory, the deaths of members, and leases.
//!
//! Problem: a member that seems dead may only be cut off. It must not answer for shards that have a new
//! owner. Idea: up to five members vote. They agree on one sequence of changes by the Raft algorithm, kept in
//! memory only: a node that dies comes back as another one. The leader gives each member a lease with each
//! beat. A member serves while its lease lasts. The leader removes a silent member after its lease has ended.
//!
//! - I1. One leader per term. It has each change that a majority of voters has held.
//! - I2. A committed change is never lost, while a majority of the voters lives. Voters change by one at a
//!   time, once all changes before are committed, by a majority of the old and of the new voters.
//! - I3. A lease lasts `lease` from the time, on the member's own clock, of the newest message that the beat
//!   answers. So it ends before the leader, which counts from the receipt of that message, gives it up.
//! - I4. A leader gives leases only while a majority has answered beats so recently that it elects no other
//!   leader, and once a change of its term is committed. A new leader counts all leases from its election.
//! - I5. A node known to be dead (the kernel said so) holds no lease, and cannot vote. If the living voters
//!   share a member with every majority, all of them together decide.
//! - I6. A leader that leaves goes on leading until enough voters to decide know of its removal, and all that
//!   answer. Until then they need its vote. It serves nothing, and makes no change. If another node leads
//!   before, it stays until that one has committed its removal.
//!
//! Not promised: progress while a majority of the voters is cut off. Two machines cannot tell a death from
//! a cut: if the leader of two is the one that is silent, the other waits.
//! Cost: a beat and an answer for each member and interval.
//! Source: Ongaro and Ousterhout, *In search of an understandable consensus algorithm*, 2014; Gray and
//! Cheriton, *Leases*, 1989; Wentzlaff 2012, §3.2.4.

use super::directory::{Change, Directory, Member, Request, VOTERS_MAX};
use super::frame::{Beat, Body, Position};
use super::guard::Guard;
use super::location::Location;
pub(crate) use super::timing::Timing;
use super::{NodeId, Random, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most changes in one beat. Few in tests, so that a member gets changes of one leader in several beats.
const CHANGES_MAX: usize = if cfg!(test) { 4 } else { 64 };
/// Committed changes that a node keeps for members that are behind.
const KEPT: usize = 256;
/// The most changes that wait for a majority.
const PENDING_MAX: u64 = 1_024;
/// The longest endpoint of a member, in bytes.
pub(crate) const ENDPOINT_BYTES_MAX: usize = 255;
/// The most members of a group.
const MEMBERS_MAX: usize = 1024;

/// A member as its leader knows it.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The last change that it holds for certain.
    held: Position,
    /// The next beat has the changes after this one, or the whole directory if they are gone.
    after: Position,
    /// The time of the leader's clock at which the last answered beat was sent.
    answered: Time,
    /// The time at which the leader last received an answer.
    heard: Time,
    /// The time of the member's clock at which it sent its last answer.
    echo: Option<Time>,
    /// The last change that it knows to be committed.
    committed: Position,
}

#[derive(Debug)]
enum Role {
    Follower,
    /// Before an election, it asks whether it would be elected.
    Candidate {
        pre: bool,
        votes: BTreeSet<NodeId>,
    },
    Leader {
        progress: BTreeMap<NodeId, Progress>,
        beat_at: Time,
    },
}

/// The part of one node in the agreement.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) me: NodeId,
    timing: Timing,
    random: Random,
    term: u64,
    voted: Option<NodeId>,
    role: Role,
    leader: Option<NodeId>,
    /// The last beat of a leader that may be alive.
    heard: Option<Time>,
    elect_at: Time,
    ticked: Time,
    /// The committed directory, and the last change in it.
    pub(crate) directory: Directory,
    committed: Position,
    /// The change before the first one of `log`.
    base: Position,
    /// Changes with their positions. Those after `committed` may be replaced by a new leader.
    log: VecDeque<(Position, Change)>,
    /// Until when this node may serve.
    lease: Time,
    /// Nodes that are dead for certain.
    dead: BTreeSet<NodeId>,
    out: Vec<(NodeId, Body)>,
    /// Members that were leaving when they were removed.
    left: Vec<NodeId>,
    /// The last change that this node had committed when it ceased to lead before the others knew of its
    /// removal (I6).
    unheard: Option<Position>,
}

impl Group {
    /// A node that has not joined a group.
    pub(crate) fn new(me: NodeId, timing: Timing, random: Random, now: Time) -> Group {
        let mut group = Group {
            me,
            timing,
            random,
            term: 0,
            voted: None,
            role: Role::Follower,
            leader: None,
            heard: None,
            elect_at: Time::MAX,
            ticked: now,
            directory: Directory::empty(),
            committed: Position::default(),
            base: Position::default(),
            log: VecDeque::new(),
            lease: 0,
            dead: BTreeSet::new(),
            out: Vec::new(),
            left: Vec::new(),
            unheard: None,
        };
        group.delay_election(now);
        group
    }

    /// Makes a group of this node alone.
    pub(crate) fn found(&mut self, now: Time, root: u128, endpoint: String, location: Location) {
        self.directory = Directory::new(root, self.me, endpoint, location);
        self.committed = Position { term: 0, index: 1 };
        self.base = self.committed;
        self.term = 1;
        self.lead(now);
    }

    pub(crate) fn is_member(&self) -> bool {
        self.directory.members.contains_key(&self.me)
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    pub(crate) fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Returns whether the others may need this node, although it is removed (I6).
    pub(crate) fn stays(&self) -> bool {
        self.is_leader() || self.unheard.is_some()
    }

    /// Notes that a leader has committed these changes (I6).
    pub(crate) fn hear_of_changes(&mut self, committed: Position) {
        if self.unheard.is_some_and(|removal| committed >= removal) {
            self.unheard = None;
        }
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    pub(crate) fn committed(&self) -> Position {
        self.committed
    }

    /// Returns whether this node may serve at `now` (I3). A leader serves while it is certain to lead.
    pub(crate) fn may_serve(&self, now: Time) -> bool {
        let leads = now < self.authority(now) || (Guard::Authority.is_removed() && self.is_leader());
        self.is_member() && (now < self.lease || leads)
    }

    /// The time for which this node may still serve.
    pub(crate) fn lease_left(&self, now: Time) -> Time {
        if self.is_member() { self.lease.max(self.authority(now)).saturating_sub(now) } else { 0 }
    }

    /// The time since the last beat of a leader, or on a leader since the end of its authority.
    pub(crate) fn silence(&self, now: Time) -> Time {
        let heard = if self.is_leader() { self.authority(now) } else { self.heard.unwrap_or(0) };
        now.saturating_sub(heard)
    }

    pub(crate) fn take_frames(&mut self) -> Vec<(NodeId, Body)> {
        std::mem::take(&mut self.out)
    }

    /// Takes the members that have left since the last time.
    pub(crate) fn take_left(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.left)
    }

    /// The last change held.
    pub(crate) fn last(&self) -> Position {
        self.log.back().map_or(self.base, |(position, _)| *position)
    }

    /// The changes that it holds, in their order.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> impl Iterator<Item = &(Position, Change)> {
        self.log.iter()
    }

    /// The voters by the last change held.
    pub(crate) fn voters(&self) -> BTreeSet<NodeId> {
        let mut voters = self.directory.voters.clone();
        for (position, change) in &self.log {
            if *position > self.committed {
                match change {
                    Change::Promote { node } => drop(voters.insert(*node)),
                    Change::Remove { node } => drop(voters.remove(node)),
                    _ => {}
                }
            }
        }
        voters
    }

    /// The voters before an uncommitted change of voters. It needs a decision of both: a node that does not
    /// know of the change may count dead voters as this node does (I5). A voter that is dead for certain is
    /// removed without.
    fn voters_before(&self, voters: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let stays = |node: &NodeId| voters.contains(node) || !self.dead.contains(node);
        self.directory.voters.iter().copied().filter(stays).collect()
    }

    /// Returns whether these nodes decide, before and after an uncommitted change of voters (I2, I5).
    fn decides(&self, nodes: &dyn Fn(NodeId) -> bool) -> bool {
        let (voters, all) = (self.voters(), self.directory.voters.len());
        let all = if Guard::DeadCount.is_removed() { 0 } else { all };
        self.decide_of(&voters, 0, nodes)
            && Guard::BothMajorities.or(self.decide_of(&self.voters_before(&voters), all, nodes))
    }

    /// Returns whether these nodes decide for a set of voters (I5). `all` counts a dead voter that the set
    /// lacks, since other nodes may still count it. A majority of the set shares a member with each majority
    /// of all. The living of the set do so only if they are more than a majority of all spares. Else a leader
    /// could remove dead voters one by one, until it decides alone.
    fn decide_of(&self, voters: &BTreeSet<NodeId>, all: usize, nodes: &dyn Fn(NodeId) -> bool) -> bool {
        let (majority, all) = (voters.len() / 2 + 1, all.max(voters.len()));
        let yes = voters.iter().filter(|voter| nodes(**voter)).count();
        if voters.is_empty() || yes >= majority {
            return true;
        }
        // Not with the votes of the dead: a majority that they were in may have decided otherwise.
        let living = || voters.iter().filter(|voter| !self.dead.contains(voter));
        living().all(|voter| nodes(*voter)) && living().count() > all - (all / 2 + 1)
    }

    /// The time until which no other leader can be elected (I4). 0 if this node does not lead.
    fn authority(&self, now: Time) -> Time {
        let Role::Leader { progress, .. } = &self.role else { return 0 };
        // Before its term has a committed change, it does not know all that is committed.
        if self.committed.term != self.term {
            return 0;
        }
        let voters = self.voters();
        let answered = |voter| {
            if voter == self.me { now } else { progress.get(&voter).map_or(0, |progress| progress.answered) }
        };
        let mut times: Vec<Time> = voters.iter().map(|voter| answered(*voter)).collect();
        times.push(now);
        times.sort_unstable();
        let decisive = |time: Time| self.decides(&|voter| answered(voter) >= time);
        let newest = times.into_iter().rev().find(|time| decisive(*time)).unwrap_or(0);
        newest.saturating_add(self.timing.trust())
    }

    fn delay_election(&mut self, now: Time) {
        self.elect_at = now + self.timing.loyal + self.random.below(self.timing.loyal);
    }

    /// The time of the next tick that does something.
    pub(crate) fn wake_at(&self) -> Time {
        match &self.role {
            Role::Leader { beat_at, .. } => *beat_at,
            _ if self.voters().contains(&self.me) => self.elect_at,
            _ => Time::MAX,
        }
    }

    /// Notes that a node is dead for certain.
    pub(crate) fn died(&mut self, now: Time, node: NodeId) {
        if node == self.me || !self.directory.members.contains_key(&node) || !self.dead.insert(node) {
            return;
        }
        if self.leader == Some(node) {
            self.leader = None;
            self.heard = None;
            self.elect_at = now + self.random.below(self.timing.beat / 4);
        }
        // If all other voters are dead, none needs this node.
        if self.directory.voters.iter().all(|voter| self.dead.contains(voter)) {
            self.unheard = None;
        }
        self.tick(now);
    }

    /// Notes that time has passed. After a pause of this node, the answers of the members may be waiting.
    fn note_time(&mut self, now: Time) {
        let paused = now.saturating_sub(self.ticked) > self.timing.loyal;
        self.ticked = now;
        if paused && let Role::Leader { progress, .. } = &mut self.role {
            progress.values_mut().for_each(|progress| progress.heard = now);
        }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.note_time(now);
        if !self.is_leader() {
            if now >= self.elect_at && self.voters().contains(&self.me) {
                self.campaign(now, true);
            }
            return;
        }
        // Some voters may be dead for certain now.
        self.commit(now);
        self.change_members(now);
        self.hand_over(now);
        if let Role::Leader { beat_at, .. } = &mut self.role
            && now >= *beat_at
        {
            *beat_at = now + self.timing.beat;
            self.beat_all(now);
        }
    }

    /// Returns the next change of members, if there is one and all changes before are committed (I2).
    fn change_members(&mut self, now: Time) {
        let Role::Leader { progress, .. } = &self.role else { return };
        if !self.is_member()
            || Guard::OneChange.and(self.last() != self.committed || self.committed.term != self.term)
        {
            return;
        }
        let silence = self.timing.silence();
        let silence = if Guard::SilenceBeforeRemoval.is_removed() { self.timing.loyal } else { silence };
        let silent = |node: NodeId| {
            node != self.me
                && (self.dead.contains(&node)
                    || progress.get(&node).is_some_and(|progress| now >= progress.heard + silence))
        };
        let has_left = |node| {
            self.directory.members[&node].leaving && !self.directory.has_places(node)
                // The leader goes last, or hands the group over to a voter.
                && (node != self.me
                    || self.directory.voters.len() > 1
                    || self.directory.members.len() == 1)
        };
        let members = &self.directory.members;
        // Those that stay must be able to commit the removal.
        let voters = self.voters();
        let answers = |node: NodeId| {
            let recent = |progress: &Progress| now < progress.heard + self.timing.lease;
            node == self.me || progress.get(&node).is_some_and(recent)
        };
        let without = |node| {
            let rest: BTreeSet<NodeId> = voters.iter().copied().filter(|voter| *voter != node).collect();
            self.decide_of(&rest, voters.len(), &answers)
                && (self.dead.contains(&node) || self.decide_of(&voters, 0, &answers))
        };
        let gone = |node: &NodeId| (silent(*node) || has_left(*node)) && without(*node);
        let gone = members.keys().copied().find(gone);
        let change = gone.map(|node| Change::Remove { node }).or_else(|| {
            let behind =
                |node: NodeId| progress.get(&node).is_none_or(|progress| progress.held != self.last());
            // With two voters on two machines, each death would stop the group. With one, only that one's.
            let Member { location, leaving, .. } = *members.get(&self.me)?;
            let alone = !leaving && self.directory.voters.len() == 1 && members.len() == 2;
            let fit = |node: NodeId, member: &Member| {
                let helps = !alone || member.location.host == location.host;
                helps && !self.directory.voters.contains(&node) && !member.leaving && !behind(node)
            };
            let node = *members.iter().find(|(node, member)| fit(**node, member))?.0;
            (self.directory.voters.len() < VOTERS_MAX).then_some(Change::Promote { node })
        });
        if let Some(change) = change {
            self.append(now, change);
        }
    }

    /// Adds a change. Only a leader does.
    fn append(&mut self, now: Time, change: Change) {
        let index = self.last().index.saturating_add(1);
        self.log.push_back((Position { term: self.term, index }, change));
        self.commit(now);
        self.beat_all(now);
    }

    /// Returns whether one more change may wait for a majority. A leader makes no change after its removal.
    fn has_room(&self) -> bool {
        self.is_member() && self.last().index - self.committed.index < PENDING_MAX
    }

    /// Proposes a member's request. Returns false if this node does not lead.
    pub(crate) fn propose(&mut self, now: Time, node: NodeId, number: u64, request: Request) -> bool {
        if !self.is_leader() {
            return false;
        }
        let pending = |(_, change): &(Position, Change)| matches!(change, Change::Of { node: other, number: same, .. } if *other == node && *same == number);
        let fresh = |member: &Member| Guard::RequestNumbers.or(member.request < number);
        let known = self.directory.members.get(&node).is_some_and(fresh);
        if known && self.has_room() && Guard::RequestNumbers.or(!self.log.iter().any(pending)) {
            self.append(now, Change::Of { node, number, request });
        }
        true
    }

    /// Returns whether this node leads, and has removed `node` lately.
    pub(crate) fn was_removed(&self, node: NodeId) -> bool {
        let remove = Change::Remove { node };
        self.is_leader() && self.log.iter().any(|(_, change)| *change == remove)
    }

    /// Adds a member. Returns false if this node does not lead.
    pub(crate) fn admit(&mut self, now: Time, node: NodeId, endpoint: String, location: Location) -> bool {
        if !self.is_leader() {
            return false;
        }
        let joins = |(_, change): &(Position, Change)| matches!(change, Change::Join { node: other, .. } if *other == node);
        let full = self.directory.members.len() >= MEMBERS_MAX;
        let fits = !full && self.has_room() && endpoint.len() <= ENDPOINT_BYTES_MAX;
        if fits && !self.directory.members.contains_key(&node) && !self.log.iter().any(joins) {
            self.append(now, Change::Join { node, endpoint, location });
        }
        true
    }

    fn campaign(&mut self, now: Time, pre: bool) {
        self.delay_election(now);
        if !pre {
            self.term = self.term.saturating_add(1);
            self.voted = Some(self.me);
        }
        self.leader = None;
        self.role = Role::Candidate { pre, votes: BTreeSet::from([self.me]) };
        let term = if pre { self.term.saturating_add(1) } else { self.term };
        let voters = self.voters();
        for voter in voters.union(&self.voters_before(&voters)) {
            if *voter != self.me {
                self.out.push((*voter, Body::Vote { term, last: self.last(), pre }));
            }
        }
        self.count_votes(now);
    }

    fn count_votes(&mut self, now: Time) {
        let Role::Candidate { pre, votes } = &self.role else { return };
        if self.decides(&|voter| votes.contains(&voter)) {
            if *pre { self.campaign(now, false) } else { self.lead(now) }
        }
    }

    fn lead(&mut self, now: Time) {
        let members = self.directory.members.keys().copied();
        let mut fresh = self.progress(now);
        if Guard::SilenceFromElection.is_removed() {
            fresh.heard = now.saturating_sub(self.timing.silence());
        }
        let progress = members.filter(|member| *member != self.me).map(|member| (member, fresh)).collect();
        self.role = Role::Leader { progress, beat_at: now + self.timing.beat };
        self.leader = Some(self.me);
        self.append(now, Change::Nothing);
    }

    /// A member that holds nothing for certain. Its lease counts from now (I4).
    fn progress(&self, now: Time) -> Progress {
        let (held, committed) = (Position::default(), Position::default());
        Progress { held, after: self.committed, answered: 0, heard: now, echo: None, committed }
    }

    fn follow(&mut self, now: Time, term: u64) {
        if term > self.term {
            self.term = term;
            self.voted = None;
        }
        if !matches!(self.role, Role::Follower) {
            if self.is_leader() && !self.is_member() && !Guard::LeaderLast.is_removed() {
                self.unheard = Some(self.committed);
            }
            self.role = Role::Follower;
            self.delay_election(now);
        }
        self.leader = None;
    }

    /// Sends a beat to each member.
    fn beat_all(&mut self, now: Time) {
        let Role::Leader { progress, .. } = &self.role else { return };
        let may_lease = Guard::LeaseByMajority.or(now < self.authority(now));
        let uncommitted = self.log.range(self.log.partition_point(|(at, _)| *at <= self.committed)..);
        let removed = |member| {
            let remove = Change::Remove { node: member };
            Guard::NoLeaseInRemoval.and(uncommitted.clone().any(|(_, change)| *change == remove))
        };
        let mut beats = Vec::with_capacity(progress.len());
        for (member, progress) in progress {
            // A change that was removed from the log, or a member that has lost the thread.
            let (whole, after) = if progress.after < self.base {
                (Some((self.committed, self.directory.clone())), self.committed)
            } else {
                (None, progress.after)
            };
            let changes = self
                .log
                .iter()
                .filter(|(position, _)| *position > after)
                .take(CHANGES_MAX)
                .cloned()
                .collect();
            let beat = Beat {
                term: self.term,
                sent: now,
                committed: self.committed,
                echo: progress.echo.filter(|_| may_lease && !removed(*member)),
                whole,
                after,
                changes,
            };
            beats.push((*member, Body::Beat(Box::new(beat))));
        }
        self.out.append(&mut beats);
    }

    /// Commits the changes that a majority holds, and applies them. Keeps some for members that are behind.
    fn commit(&mut self, now: Time) {
        // A removal that is committed leaves fewer voters to wait for.
        while let Role::Leader { progress, .. } = &self.role {
            let holds = |voter: NodeId, position: Position| {
                voter == self.me || progress.get(&voter).is_some_and(|progress| progress.held >= position)
            };
            let decided = |position: Position| {
                Guard::OwnTerm.or(position.term == self.term) && self.decides(&|voter| holds(voter, position))
            };
            let newest = self.log.iter().rev().map(|(position, _)| *position);
            let Some(position) = newest.take_while(|p| *p > self.committed).find(|p| decided(*p)) else {
                break;
            };
            self.apply_to(now, position);
        }
    }

    fn apply_to(&mut self, now: Time, position: Position) {
        let from = self.log.partition_point(|(other, _)| *other <= self.committed);
        for index in from..self.log.len() {
            let (at, change) = &self.log[index];
            if *at > position {
                break;
            }
            if let Change::Remove { node } = change
                && self.directory.members.get(node).is_some_and(|member| member.leaving)
            {
                self.left.push(*node);
            }
            self.directory.apply(change);
            self.committed = *at;
        }
        while self.log.front().is_some_and(|(at, _)| *at <= self.committed) && self.log.len() > KEPT {
            self.base = self.log.pop_front().map_or(self.base, |(at, _)| at);
        }
        let members = &self.directory.members;
        self.dead.retain(|node| members.contains_key(node));
        let fresh = self.progress(now);
        if let Role::Leader { progress, .. } = &mut self.role {
            progress.retain(|node, _| members.contains_key(node));
            for node in members.keys().filter(|node| **node != self.me) {
                progress.entry(*node).or_insert(Progress { after: Position::default(), ..fresh });
            }
            if !members.contains_key(&self.me) {
                self.beat_all(now);
                self.hand_over(now);
            }
        }
    }

    /// Leads no more once it is removed, and the voters know that (I6).
    fn hand_over(&mut self, now: Time) {
        let Role::Leader { progress, .. } = &self.role else { return };
        if self.is_member() {
            return;
        }
        let remove = Change::Remove { node: self.me };
        let removal = self.log.iter().rev().find(|(_, change)| *change == remove);
        let removal = removal.map_or(self.base, |(position, _)| *position);
        let knows = |voter| progress.get(&voter).is_some_and(|progress| progress.committed >= removal);
        let answers = |voter| progress.get(&voter).is_some_and(|it| now < it.heard + self.timing.silence());
        let mut living = self.directory.voters.iter().copied().filter(|voter| !self.dead.contains(voter));
        // If all other voters are dead, the group has ended.
        let ends = living.clone().next().is_none();
        let is_known = self.decides(&knows) && living.all(|voter| knows(voter) || !answers(voter));
        if Guard::LeaderLast.and(!ends && !is_known) {
            return;
        }
        self.role = Role::Follower;
        self.leader = None;
        self.elect_at = Time::MAX;
    }

    /// Learns that another member has committed a change. A leader that died may have committed a change of
    /// voters and told that member alone. The voters hold the change, but might need the vote of the dead
    /// leader to commit it again.
    pub(crate) fn learn(&mut self, now: Time, committed: Position) {
        if committed > self.committed && self.log.iter().any(|(position, _)| *position == committed) {
            self.apply_to(now, committed);
        }
    }

    pub(crate) fn receive(&mut self, now: Time, from: NodeId, body: Body) {
        self.note_time(now);
        match body {
            Body::Beat(beat) => self.receive_beat(now, from, *beat),
            Body::Held { term, held, committed, missed, sent, at } => {
                self.receive_held(now, from, term, held, committed, missed, sent, at);
            }
            Body::Vote { term, last, pre } => self.receive_vote(now, from, term, last, pre),
            Body::Voted { term, pre, granted } => {
                let expected = self.term.saturating_add(u64::from(pre));
                match &mut self.role {
                    Role::Candidate { .. } if !granted && term > self.term => self.follow(now, term),
                    Role::Candidate { pre: mine, votes }
                        if (granted, pre, term) == (true, *mine, expected) =>
                    {
                        votes.insert(from);
                        self.count_votes(now);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn receive_vote(&mut self, now: Time, from: NodeId, term: u64, last: Position, pre: bool) {
        // It was removed, and does not know.
        if self.is_leader() && !self.directory.members.contains_key(&from) {
            self.out.push((from, Body::NoMember { committed: self.committed }));
            return;
        }
        let loyal = match self.role {
            Role::Leader { .. } => now < self.authority(now),
            _ => self.heard.is_some_and(|heard| now < heard + self.timing.loyal),
        };
        if loyal || self.dead.contains(&from) {
            // Its term stays unknown to the candidate: a loyal voter unsettles no one.
            return;
        }
        let current = Guard::VoteByLog.or(last >= self.last());
        if pre {
            if term > self.term && current {
                self.out.push((from, Body::Voted { term, pre, granted: true }));
            } else {
                self.out.push((from, Body::Voted { term: self.term, pre, granted: false }));
            }
            return;
        }
        if term > self.term {
            self.follow(now, term);
        }
        let free = Guard::OneVote.or(self.voted.is_none_or(|voted| voted == from));
        if term == self.term && current && free && !self.is_leader() {
            self.voted = Some(from);
            self.delay_election(now);
            self.out.push((from, Body::Voted { term, pre, granted: true }));
        } else {
            self.out.push((from, Body::Voted { term: self.term, pre, granted: false }));
        }
    }

    /// Extends the lease, from the time of a message of this node. No such message is newer than its clock.
    fn extend_lease(&mut self, now: Time, sent: Time) {
        let begin = if Guard::LeaseFromMessage.is_removed() { now } else { sent.min(now) };
        self.lease = self.lease.max(begin + self.timing.lease);
    }

    fn receive_beat(&mut self, now: Time, from: NodeId, beat: Beat) {
        if beat.term < self.term || self.dead.contains(&from) {
            // The old leader learns the term from the answer.
            return self.answer_beat(now, from, beat.sent, Some(Position::default()));
        }
        if beat.term > self.term || !matches!(self.role, Role::Follower) {
            self.follow(now, beat.term);
        }
        self.hear_of_changes(beat.committed);
        self.leader = Some(from);
        self.heard = Some(now);
        self.delay_election(now);
        if let Some((position, directory)) = beat.whole
            && position > self.committed
        {
            self.directory = directory;
            (self.committed, self.base) = (position, position);
            // Changes after it were acknowledged, if it is in the log.
            match self.log.iter().position(|(at, _)| *at == position) {
                Some(at) => drop(self.log.drain(..=at)),
                None => self.log.clear(),
            }
        }
        let known = beat.after == self.base
            || Guard::KnownBefore.is_removed()
            || beat.after <= self.committed
            || self.log.iter().any(|(position, _)| *position == beat.after);
        let mut held = beat.after;
        if known {
            for (position, change) in beat.changes {
                held = position;
                if position <= self.committed {
                    continue;
                }
                let at = self.log.partition_point(|(other, _)| other.index < position.index);
                if position.index <= self.committed.index {
                    // Never: a leader has all committed changes.
                    return;
                }
                match self.log.get(at) {
                    Some((other, _)) if *other == position => {}
                    _ => {
                        self.log.truncate(at);
                        self.log.push_back((position, change));
                    }
                }
            }
            self.apply_to(now, beat.committed.min(held));
        }
        // Only now: the lease is for a member that knows of its removal, if the leader does.
        if let Some(echo) = beat.echo {
            self.extend_lease(now, echo);
        }
        self.answer_beat(now, from, beat.sent, known.then_some(held));
    }

    /// Answers a beat. Without `held`, this node lacks the change before the first one of the beat.
    fn answer_beat(&mut self, now: Time, to: NodeId, sent: Time, held: Option<Position>) {
        let (term, committed) = (self.term, self.committed);
        let missed = held.is_none();
        let held = held.unwrap_or(committed);
        self.out.push((to, Body::Held { term, held, committed, missed, sent, at: now }));
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    fn receive_held(
        &mut self,
        now: Time,
        from: NodeId,
        term: u64,
        held: Position,
        committed: Position,
        missed: bool,
        sent: Time,
        at: Time,
    ) {
        if term > self.term {
            self.follow(now, term);
            return;
        }
        if term != self.term || sent > now {
            return;
        }
        let Role::Leader { progress, .. } = &mut self.role else { return };
        let Some(progress) = progress.get_mut(&from) else {
            self.out.push((from, Body::NoMember { committed: self.committed }));
            return;
        };
        progress.answered = progress.answered.max(sent);
        progress.heard = now;
        progress.echo = progress.echo.max(Some(at));
        // If it missed some, `held` is its last committed change, which every leader has.
        progress.held = progress.held.max(held);
        progress.committed = progress.committed.max(committed);
        progress.after = if missed { held } else { progress.after.max(held) };
        self.learn(now, committed);
        self.commit(now);
        self.change_members(now);
        self.hand_over(now);
    }
}
