//! UIDs, of which every object and every request needs one: the operating system is asked for many at once.

use env::Random;
use machinery::names;
use parking_lot::Mutex;

const BYTES: usize = 16;
const AT_ONCE: usize = 64;

/// Random bytes for the next UIDs. They are no secrets, neither before nor after.
#[derive(Default)]
pub struct Uids(Mutex<Vec<u8>>);

impl Uids {
    pub fn next(&self, random: &dyn Random) -> String {
        let mut bytes = [0; BYTES];
        let mut drawn = self.0.lock();
        if drawn.is_empty() {
            drawn.resize(AT_ONCE * BYTES, 0);
            random.fill(&mut drawn);
        }
        let rest = drawn.len().saturating_sub(BYTES);
        bytes.copy_from_slice(&drawn[rest..]);
        drawn.truncate(rest);
        drop(drawn);
        names::uuid_v4(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use env::random::SeededRandom;

    use super::*;

    #[test]
    fn none_is_given_twice() {
        let (uids, random) = (Uids::default(), SeededRandom::new(1));
        let given: HashSet<String> = (0..10 * AT_ONCE).map(|_| uids.next(&random)).collect();
        assert_eq!(given.len(), 10 * AT_ONCE);
    }
}
