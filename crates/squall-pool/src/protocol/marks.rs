//! The marks of the seventh strategy: the master knows the members that may have elements.
//!
//! - I1. A member that is not the master counts elements only while the master has its mark (`protocol/I6`).
//! - I2. A member clears its mark only while it counts and awaits no element. It then adds an element only
//!   after an answer to `Mark`, to a later `Find` that leaves the mark, or in a view with another master.
//! - I3. A member that asks `Find`, and is sure that it counts no element, counts no new one until the
//!   answer: the master may clear its mark. Adds wait, and so do offers.
//! - I4. A master begins with the marks of all others set, and sets that of each newcomer.

use super::guard::Guard;
use super::message::Message;
use super::search::Search;
use super::shard::{Phase, Shard};
use super::{Completion, MemberId, Time, View};
use serde::{Deserialize, Serialize};

/// The mark of this shard at the master, as far as the shard knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mark {
    Set,
    /// The master may clear it with its answer (I3).
    Uncertain,
    Cleared,
    /// The shard has asked for it.
    Asked,
}

/// A question `Find` that is under way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finding {
    id: u64,
    sure: bool,
    /// Gets before this ticket had begun before the question.
    until: u64,
}

impl Shard {
    /// Returns whether this shard may count a new element.
    pub(super) fn may_hold(&self) -> bool {
        let held_back = match self.mark {
            Mark::Set => false,
            Mark::Uncertain => !Guard::HoldWhileFinding.is_removed(),
            Mark::Cleared | Mark::Asked => !Guard::MarkFirst.is_removed(),
        };
        let welcome = Guard::Welcome.or(self.phase != Phase::Joining);
        welcome && (!self.attributes.directory() || self.is_master() || !held_back)
    }

    pub(super) fn ask_mark(&mut self) {
        if self.mark == Mark::Cleared
            && self.phase != Phase::Joining
            && let Some(master) = self.master()
        {
            self.mark = Mark::Asked;
            self.send(master, Message::Mark);
        }
    }

    /// Clears the mark if that is allowed (I2).
    pub(super) fn unmark(&mut self) {
        let Some(master) = self.master() else { return };
        let counts_none =
            self.store.is_empty() && Guard::SureToUnmark.or(self.moving() == 0 && self.held.is_empty());
        if self.attributes.directory()
            && !self.is_master()
            && self.phase != Phase::Joining
            && self.mark == Mark::Set
            && counts_none
            && Guard::SureToUnmark.or(self.asks.is_empty())
            && self.finding.is_none()
        {
            self.mark = Mark::Cleared;
            self.send(master, Message::Unmark);
        }
    }

    /// Notes that the mark is set: adds and offers go on.
    pub(super) fn marked(&mut self) {
        self.mark = Mark::Set;
        for (op, element) in std::mem::take(&mut self.marking) {
            self.arrivals += 1;
            self.store.push_back(element);
            self.complete(op, Completion::Added);
        }
        self.accept_held();
        self.serve();
    }

    pub(super) fn set_mark_of(&mut self, from: MemberId) {
        if self.answers_marks(from, None) {
            self.marks.insert(from);
            self.send(from, Message::Marked);
        }
    }

    /// A master that leaves must not answer: a later master may have other marks. It notes the question.
    fn answers_marks(&mut self, from: MemberId, search: Option<u64>) -> bool {
        let silent = self.phase == Phase::Leaving && !Guard::SilentLeaver.is_removed();
        if self.is_master() && silent {
            self.unanswered.push((from, search));
        }
        self.is_master() && !silent
    }

    /// Answers the questions that came while this shard was about to leave. It stays, perhaps as the master.
    pub(super) fn answer_late(&mut self) {
        for (from, search) in std::mem::take(&mut self.unanswered) {
            if self.is_master() {
                // A mark too many is allowed.
                self.marks.insert(from);
                let answer = search.map_or(Message::Marked, |search| Message::Busy { search });
                self.send(from, answer);
            }
        }
    }

    /// Asks for a member with elements besides those that were tried.
    pub(super) fn find(&mut self, now: Time, tried: Vec<MemberId>) {
        if self.is_master() {
            return match self.fullest(self.me, &tried) {
                Some(member) => self.ask_found(now, member),
                None if self.marks.is_empty() && self.census().is_empty() => {
                    self.search = None;
                    self.found_empty(now, self.next_ticket);
                }
                None => self.pause_search(now),
            };
        }
        let Some(master) = self.master() else { return };
        let sure =
            self.store.is_empty() && self.moving() == 0 && self.held.is_empty() && self.asks.is_empty();
        let id = self.new_id();
        self.finding = Some(Finding { id, sure, until: self.next_ticket });
        if sure {
            self.mark = Mark::Uncertain;
        }
        self.send(master, Message::Find { search: id, sure, tried });
    }

    /// Returns a member with elements as far as this master knows, the fullest one by estimate.
    fn fullest(&self, asker: MemberId, tried: &[MemberId]) -> Option<MemberId> {
        let marked = self.marks.iter().copied().filter(|member| *member != asker && !tried.contains(member));
        let mine = Some(self.me).filter(|_| asker != self.me && !self.store.is_empty());
        let estimate = |member: &MemberId| match *member == self.me {
            true => self.store.len() as u64,
            false => self.estimates.get(member).copied().unwrap_or(0),
        };
        marked.chain(mine).max_by_key(|member| (estimate(member), std::cmp::Reverse(*member)))
    }

    pub(super) fn find_for(&mut self, from: MemberId, search: u64, sure: bool, tried: &[MemberId]) {
        if !self.answers_marks(from, Some(search)) {
            return;
        }
        self.marks.insert(from);
        let answer = match self.fullest(from, tried) {
            Some(member) => Message::At { search, member },
            None => {
                let others = self.marks.iter().any(|member| *member != from);
                if sure {
                    self.marks.remove(&from);
                }
                match others || !self.census().is_empty() {
                    true => Message::Busy { search },
                    false => Message::Nothing { search },
                }
            }
        };
        self.send(from, answer);
    }

    fn end_finding(&mut self, search: u64) -> Option<Finding> {
        self.finding.take_if(|finding| finding.id == search)
    }

    pub(super) fn found_at(&mut self, now: Time, search: u64, member: MemberId) {
        if self.end_finding(search).is_none() {
            return;
        }
        // The master has set the mark for the answer of `member`.
        self.marked();
        self.ask_found(now, member);
    }

    fn ask_found(&mut self, now: Time, member: MemberId) {
        let Some(Search::Directory { .. }) = &self.search else { return };
        if member == self.me || !self.view.members.contains(&member) {
            return self.pause_search(now);
        }
        let (id, until) = (self.ask(member), self.deadline(now));
        if let Some(Search::Directory { asked, deadline, .. }) = &mut self.search {
            (*asked, *deadline) = (Some((id, member)), until);
        }
    }

    pub(super) fn found_nothing(&mut self, now: Time, search: u64) {
        let Some(finding) = self.end_finding(search) else { return };
        self.cleared_by_answer(&finding);
        self.search = None;
        if finding.sure || Guard::SureToUnmark.is_removed() {
            self.found_empty(now, finding.until);
        } else {
            self.pause_search(now);
        }
    }

    pub(super) fn found_busy(&mut self, now: Time, search: u64) {
        let Some(finding) = self.end_finding(search) else { return };
        self.cleared_by_answer(&finding);
        if !self.waiting.is_empty() {
            self.pause_search(now);
        }
    }

    fn cleared_by_answer(&mut self, finding: &Finding) {
        if !finding.sure {
            return;
        }
        self.mark = Mark::Cleared;
        if !self.marking.is_empty() || !self.held.is_empty() {
            self.ask_mark();
        }
    }

    /// Goes on with another master, or as the master.
    pub(super) fn change_master(&mut self, before: &View) {
        let others = self.view.members.iter().copied().filter(|member| *member != self.me);
        if before.members.first() == self.view.members.first() {
            if self.is_master() {
                self.marks.extend(others.filter(|member| !before.members.contains(member)));
            }
            return;
        }
        if self.is_master() && !Guard::AllMarked.is_removed() {
            self.marks = others.collect();
        }
        self.finding = None;
        self.told = 0;
        self.mark = Mark::Set;
        if self.phase != Phase::Joining {
            self.marked();
        }
    }
}
