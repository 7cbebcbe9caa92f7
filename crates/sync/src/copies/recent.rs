//! Which objects were written just now.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;

use super::work::Errand;

/// What is decided later than this after a write was hardly decided because of it.
const RECENT: Duration = Duration::from_secs(10);
/// Of more than so many the earliest are forgotten: nobody is served first if all are.
const MOST: usize = 4096;

#[derive(Default)]
pub struct Recent(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// When each was written last.
    at: HashMap<Errand, Duration>,
    /// All writes, the earliest first.
    order: VecDeque<(Duration, Errand)>,
}

impl Recent {
    pub fn note(&self, errand: &Errand, now: Duration) {
        let mut noted = self.0.lock();
        noted.at.insert(errand.clone(), now);
        noted.order.push_back((now, errand.clone()));
        noted.tidy(now);
    }

    pub fn contains(&self, errand: &Errand, now: Duration) -> bool {
        self.0.lock().at.get(errand).is_some_and(|at| *at + RECENT > now)
    }
}

impl Noted {
    fn tidy(&mut self, now: Duration) {
        while self.order.len() > MOST || self.order.front().is_some_and(|(at, _)| *at + RECENT <= now) {
            let Some((at, errand)) = self.order.pop_front() else { break };
            // It may have been written again.
            if self.at.get(&errand) == Some(&at) {
                self.at.remove(&errand);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use store::WorkspaceId;

    use super::*;

    #[test]
    fn what_was_written_is_remembered_for_a_while_and_not_too_much_of_it() {
        let errand = |number: usize| Errand::new(&WorkspaceId("w".into()), "n", &number.to_string());
        let seconds = Duration::from_secs;
        let recent = Recent::default();
        recent.note(&errand(1), seconds(0));
        recent.note(&errand(2), seconds(0));
        recent.note(&errand(2), seconds(8));
        assert!(recent.contains(&errand(1), seconds(9)) && !recent.contains(&errand(1), seconds(10)));
        recent.note(&errand(3), seconds(12));
        assert!(recent.contains(&errand(2), seconds(12)), "the later write counts");
        (0..2 * MOST).for_each(|number| recent.note(&errand(number), seconds(13)));
        assert!(
            !recent.contains(&errand(1), seconds(13)) && recent.contains(&errand(2 * MOST - 1), seconds(13))
        );
        let noted = recent.0.lock();
        assert!(noted.at.len() <= MOST && noted.order.len() <= MOST);
    }
}
