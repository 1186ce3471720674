//! The crew of a torture: who starts its threads anew, moves them, lets them pause, and notices when one of them stands
//! still.
//!
//! - I1. The random numbers of a life depend on the run's seed, on its post, and on how many lives began there before it;
//!   those of the crew on the seed alone.
//! - I2. A thread is joined only when it has finished and has said its farewells (`post/I3`): who waits in a join watches
//!   nobody.
//! - I3. A thread that begins no step for [`STANDSTILL`], or takes longer to end, is accused. So a run ends even where the
//!   library lets somebody wait for ever.
//! - I4. A thread may end by a planned panic; one that ends by another is accused.
//!
//! Not seen: that the crew itself stands still, in what it does to the others.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall_rcu::{ReclaimerState, reclaimer_state, set_reclaimer};

use super::places::Home;
use super::planned::Planned;
use super::post::Post;
use super::trial::Trial;
use super::{Rng, Run, Violation};

/// A thread that begins no step for so long stands still. Steps take milliseconds; on an emulated machine with more
/// processors than the real one, seconds.
pub(crate) const STANDSTILL: Duration = Duration::from_secs(300);
/// Streams of random numbers: of the crew, and the first of the lives'.
pub(crate) const CREW: u64 = u64::MAX;
const LIVES: u64 = 1 << 32;

/// A torture's own part of the work. Posts go by their number.
pub(crate) trait Torture {
    /// Starts a life at a post, which is empty.
    ///
    /// # Errors
    /// The system's. It is tried again a little later.
    fn start(&mut self, post: usize, rng: Rng) -> io::Result<JoinHandle<()>>;

    /// What an accusation calls a post.
    fn name(&self, post: usize) -> String;

    /// What all of them are doing, for the accusation of one that stands still.
    fn scene(&self) -> String {
        String::new()
    }

    /// One random thing to do to the others.
    fn chore(&mut self, crew: &mut Crew);

    /// What has to be done now and then while all are to end, so that they can.
    fn let_end(&mut self, _crew: &Crew) {}

    /// Whether somebody will never end, and was accused of it: then nobody is waited for.
    fn is_hopeless(&self) -> bool {
        false
    }
}

pub(crate) struct Crew {
    trial: &'static Trial,
    places: Vec<Place>,
    home: Home,
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    /// The reclaimer may be switched on and off: nobody switched it off from outside.
    switchable: bool,
    pub(crate) born: u64,
    pub(crate) moves: u64,
    pub(crate) pauses: u64,
    pub(crate) switches: u64,
}

/// A post and who lives there now.
struct Place {
    post: &'static Post,
    thread: Option<JoinHandle<()>>,
    lives: u64,
    /// The steps begun there when that number was last seen to grow, and when that was.
    beats: u64,
    since: Instant,
}

impl Crew {
    /// Starts the first lives, which wait at the gate.
    ///
    /// # Errors
    /// The system does not say where threads may run.
    pub(crate) fn hire(
        run: &Run,
        trial: &'static Trial,
        posts: impl Iterator<Item = &'static Post>,
        torture: &mut impl Torture,
    ) -> Result<Crew, Violation> {
        let off = std::env::var_os("SQUALL_RECLAIMER").is_some_and(|value| value == "off");
        let place = |post| Place { post, thread: None, lives: 0, beats: 0, since: Instant::now() };
        let mut crew = Crew {
            trial,
            places: posts.map(place).collect(),
            home: Home::find()?,
            seed: run.seed,
            rng: run.rng(CREW),
            switchable: !off && reclaimer_state() != ReclaimerState::Off,
            born: 0,
            moves: 0,
            pauses: 0,
            switches: 0,
        };
        (0..crew.places.len()).for_each(|index| crew.fill(index, torture));
        Ok(crew)
    }

    /// Starts a life at an empty post.
    fn fill(&mut self, index: usize, torture: &mut impl Torture) {
        let place = &mut self.places[index];
        let rng = Rng::new(self.seed, LIVES * (index as u64 + 1) + place.lives);
        place.lives += 1;
        place.since = Instant::now();
        // Where the system is out of threads for now, the next round tries again.
        place.thread = torture.start(index, rng).ok();
        self.born += u64::from(place.thread.is_some());
    }

    /// Whether the post is empty; takes note of how its thread ended (I2, I4), or of whether it stands still (I3).
    fn reap(&mut self, index: usize, torture: &impl Torture) -> bool {
        let place = &mut self.places[index];
        let Some(thread) = &place.thread else { return true };
        let beats = place.post.beats();
        if beats != place.beats {
            (place.beats, place.since) = (beats, Instant::now());
        } else if place.since.elapsed() > STANDSTILL {
            let (name, scene) = (torture.name(index), torture.scene());
            self.trial.accuse(format!("the thread of {name} stands still{scene}"));
        }
        if !thread.is_finished() || place.post.farewells.are_due() {
            return false;
        }
        if let Some(Err(payload)) = place.thread.take().map(JoinHandle::join)
            && !payload.is::<Planned>()
        {
            self.trial.accuse(format!("the thread of {} has panicked", torture.name(index)));
        }
        true
    }

    /// Keeps all at work until the time is up or somebody is accused.
    pub(crate) fn work(&mut self, run: &Run, torture: &mut impl Torture) {
        while !run.is_over() && !self.trial.is_stopped() {
            for index in 0..self.places.len() {
                if self.reap(index, torture) {
                    self.fill(index, torture);
                }
            }
            torture.chore(self);
            thread::sleep(Duration::from_micros(200 + self.rng.below(1800)));
        }
    }

    /// Lets everybody end.
    pub(crate) fn dismiss(&mut self, torture: &mut impl Torture) {
        self.trial.stop();
        if self.switches % 2 == 1 {
            set_reclaimer(true);
        }
        let since = Instant::now();
        loop {
            let mut stays = None;
            for index in 0..self.places.len() {
                if !self.reap(index, torture) {
                    stays = Some(index);
                }
            }
            torture.let_end(self);
            let Some(index) = stays.filter(|_| !torture.is_hopeless()) else { return };
            if since.elapsed() > STANDSTILL {
                let (name, scene) = (torture.name(index), torture.scene());
                return self.trial.accuse(format!("the thread of {name} does not end{scene}"));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// A random post.
    pub(crate) fn any_post(&mut self) -> &'static Post {
        self.places[self.rng.below(self.places.len() as u64) as usize].post
    }

    /// Lets a random thread run elsewhere.
    pub(crate) fn move_any(&mut self) {
        let post = self.any_post();
        post.with_thread(|thread| self.home.shuffle(thread, &mut self.rng));
        self.moves += 1;
    }

    /// All pause for a moment.
    pub(crate) fn pause(&mut self) {
        self.pauses += 1;
        self.trial.set_paused(true);
        thread::sleep(Duration::from_millis(1 + self.rng.below(10)));
        self.trial.set_paused(false);
    }

    /// Switches the library's reclaimer off, or on again, where that is ours to do.
    pub(crate) fn switch_reclaimer(&mut self) {
        if self.switchable {
            set_reclaimer(self.switches % 2 == 1);
            self.switches += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leak;
    use crate::planned::panic_as_planned;
    use std::panic::resume_unwind;

    const LIVES_ENOUGH: usize = 20;

    /// Two posts whose threads all do the same.
    struct Same {
        life: fn(&Trial),
        trial: &'static Trial,
        numbers: Vec<(usize, u64)>,
    }

    impl Torture for Same {
        fn start(&mut self, post: usize, mut rng: Rng) -> io::Result<JoinHandle<()>> {
            self.numbers.push((post, rng.next()));
            let (life, trial) = (self.life, self.trial);
            thread::Builder::new().spawn(move || life(trial))
        }
        fn name(&self, post: usize) -> String {
            format!("number {post}")
        }
        fn chore(&mut self, _crew: &mut Crew) {
            if self.numbers.len() >= LIVES_ENOUGH {
                self.trial.stop();
            }
        }
    }

    fn hired(life: fn(&Trial)) -> (Run, Same, Crew) {
        let run = Run::new(7, 2, false, Duration::from_secs(3600));
        let (trial, posts) = (leak(Trial::default()), leak([Post::default(), Post::default()]));
        let mut same = Same { life, trial, numbers: Vec::new() };
        let crew = Crew::hire(&run, trial, posts.iter(), &mut same).expect("a mask");
        (run, same, crew)
    }

    #[test]
    fn lives_follow_each_other_with_numbers_of_their_own() {
        let (run, mut same, mut crew) = hired(|_| panic_as_planned());
        crew.work(&run, &mut same);
        crew.dismiss(&mut same);
        assert_eq!(same.trial.accusation(), None, "panics that were planned");
        assert_eq!(crew.born, same.numbers.len() as u64);
        let mut lives = [0, 0];
        for (post, number) in same.numbers {
            assert_eq!(number, Rng::new(7, LIVES * (post as u64 + 1) + lives[post]).next());
            lives[post] += 1;
        }
    }

    #[test]
    fn a_thread_that_panics_is_accused() {
        let (run, mut same, mut crew) = hired(|_| resume_unwind(Box::new("unplanned")));
        crew.work(&run, &mut same);
        crew.dismiss(&mut same);
        let accusation = same.trial.accusation().expect("it panicked");
        assert!(
            accusation.contains("the thread of number") && accusation.ends_with("has panicked"),
            "{accusation}"
        );
    }

    #[test]
    fn a_thread_that_stands_still_is_accused_and_one_that_goes_on_is_not() {
        let (_, mut same, mut crew) = hired(|trial| {
            while !trial.is_stopped() {
                thread::yield_now();
            }
        });
        let Some(long_ago) = Instant::now().checked_sub(2 * STANDSTILL) else {
            // The machine has not been on for so long, and its clock begins with it.
            return crew.dismiss(&mut same);
        };
        crew.places.iter_mut().for_each(|place| place.since = long_ago);
        crew.places[0].post.beat();
        assert!(!crew.reap(0, &same));
        assert_eq!(same.trial.accusation(), None, "it began a step meanwhile");
        crew.reap(1, &same);
        let accusation = same.trial.accusation().expect("it stood still");
        assert!(accusation.ends_with("the thread of number 1 stands still"), "{accusation}");
        crew.dismiss(&mut same);
        assert!(crew.places.iter().all(|place| place.thread.is_none()));
    }

    #[test]
    fn a_thread_is_not_joined_before_its_farewells() {
        let (_, mut same, mut crew) = hired(|_| ());
        let farewells = &crew.places[0].post.farewells;
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            farewells.say_after_the_library(move || {
                let _ = begun.send(());
                let _ = told.recv();
            });
        });
        crew.places[0].thread = Some(thread);
        has_begun.recv().expect("it says its farewell");
        assert!(!crew.reap(0, &same), "it would wait for the farewell");
        drop(tell);
        crew.dismiss(&mut same);
        assert_eq!(same.trial.accusation(), None);
    }
}
