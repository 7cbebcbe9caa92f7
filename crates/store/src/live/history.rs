//! The epochs of a history, and which positions in it ever existed.

use std::sync::Arc;

use machinery::Revision;

use crate::Error;

/// An epoch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastEpoch {
    /// The position before its first record.
    pub start: Revision,
    /// Its last record that is part of this history.
    pub end: Revision,
}

/// The epochs of one history, oldest first.
///
/// A position of an earlier epoch that lies after the end known here was seen by somebody on a branch that is not
/// part of this history: a home that was lost, or the time after a backup. Whoever saw it must start again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epochs {
    past: Arc<[PastEpoch]>,
    /// The position before the first record of the current epoch.
    start: Revision,
}

impl Epochs {
    pub fn starting_at(origin: Revision) -> Self {
        Self { past: Arc::new([]), start: origin }
    }

    pub fn from_parts(past: Vec<PastEpoch>, start: Revision) -> Self {
        Self { past: past.into(), start }
    }

    pub fn past(&self) -> &[PastEpoch] {
        &self.past
    }

    pub fn start(&self) -> Revision {
        self.start
    }

    /// The position before the very first record.
    pub fn origin(&self) -> Revision {
        self.past.first().map_or(self.start, |epoch| epoch.start)
    }

    /// Ends the current epoch at `head` and begins another at `start`.
    #[must_use]
    pub fn followed_by(&self, head: Revision, start: Revision) -> Self {
        let ended = PastEpoch { start: self.start, end: head };
        Self { past: self.past.iter().copied().chain([ended]).collect(), start }
    }

    /// Where somebody goes on who has seen everything up to `after`, in a history that stands at `head`.
    pub(crate) fn resume(&self, after: Revision, head: Revision) -> Result<Revision, Error> {
        if after > head {
            return Err(Error::Ahead { current: head });
        }
        // Epoch 0 is before every history: who stands there has seen nothing.
        if after.epoch() == 0 {
            return Ok(self.origin());
        }
        let known =
            after >= self.start || self.past.iter().any(|epoch| epoch.start <= after && after <= epoch.end);
        if known { Ok(after) } else { Err(Error::Expired { oldest: self.start }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u32, seq: u64) -> Revision {
        Revision::from_u64(Revision::start_of_epoch(epoch).as_u64() + seq).unwrap()
    }

    #[test]
    fn positions_on_lost_branches_have_expired() {
        let epochs = Epochs::starting_at(at(1, 0)).followed_by(at(1, 5), at(3, 0));
        let head = at(3, 2);
        for known in [at(1, 0), at(1, 5), at(3, 0), at(3, 2)] {
            assert_eq!(epochs.resume(known, head).unwrap(), known);
        }
        for lost in [at(1, 6), at(2, 0), at(2, 9)] {
            assert!(matches!(epochs.resume(lost, head), Err(Error::Expired { .. })), "{lost:?}");
        }
        assert!(matches!(epochs.resume(at(3, 3), head), Err(Error::Ahead { .. })));
        assert_eq!(epochs.resume(Revision::ZERO, head).unwrap(), at(1, 0));
    }
}
