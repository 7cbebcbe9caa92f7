//! What can go wrong between a client and the cluster.

use std::time::Duration;

use env::{Random, random::SeededRandom};

/// How likely each mishap is on a link, in thousandths of the calls; and how long things take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A call, each way, and what a watch tells, take up to so long.
    pub delay: Duration,
    /// A call cannot be made: [`crate::Error::Unreachable`].
    pub unreachable: u32,
    /// A call is lost on its way; the caller cannot tell.
    pub lost: u32,
    /// A call has its effect, and its answer is lost.
    pub unanswered: u32,
    /// A call has its effect only after the caller was told that there is no answer: up to `late_by` after.
    pub late: u32,
    pub late_by: Duration,
    /// A call has its effect, and is told that etcd is full, if it put something.
    pub filling: u32,
    /// A beat of a lease is lost, besides what befalls every call.
    pub beats_lost: u32,
    /// A watch ends instead of telling.
    pub watches_ended: u32,
}

impl Faults {
    /// Nothing goes wrong, and nothing takes time.
    pub const NONE: Self = Self {
        delay: Duration::ZERO,
        unreachable: 0,
        lost: 0,
        unanswered: 0,
        late: 0,
        late_by: Duration::ZERO,
        filling: 0,
        beats_lost: 0,
        watches_ended: 0,
    };

    /// About one call in seven goes wrong, in every way in which a network fails.
    pub const HARSH: Self = Self {
        delay: Duration::from_millis(20),
        unreachable: 40,
        lost: 30,
        unanswered: 40,
        late: 30,
        late_by: Duration::from_secs(3),
        filling: 0,
        beats_lost: 100,
        watches_ended: 30,
    };
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    Unreachable,
    Lost,
    Unanswered,
    Late(Duration),
    Filling,
}

/// A call's fate and how long its ways take, all drawn when it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) fate: Fate,
    pub(super) there: Duration,
    pub(super) back: Duration,
}

impl Faults {
    pub(super) fn plan(&self, random: &SeededRandom, is_beat: bool) -> Plan {
        let (there, back) = (self.wait(random), self.wait(random));
        let fate = match () {
            () if is_beat && strikes(random, self.beats_lost) => Fate::Lost,
            () if strikes(random, self.unreachable) => Fate::Unreachable,
            () if strikes(random, self.lost) => Fate::Lost,
            () if strikes(random, self.unanswered) => Fate::Unanswered,
            () if strikes(random, self.late) => Fate::Late(up_to(random, self.late_by)),
            () if strikes(random, self.filling) => Fate::Filling,
            () => Fate::Answered,
        };
        Plan { fate, there, back }
    }

    pub(super) fn wait(&self, random: &SeededRandom) -> Duration {
        up_to(random, self.delay)
    }

    pub(super) fn ends_watch(&self, random: &SeededRandom) -> bool {
        strikes(random, self.watches_ended)
    }
}

fn strikes(random: &SeededRandom, thousandths: u32) -> bool {
    random.below(1000) < u64::from(thousandths)
}

fn up_to(random: &SeededRandom, most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.below(nanos.saturating_add(1).max(1)))
}

/// A lease's id, as etcd chooses them: any but 0.
pub(super) fn lease_id(random: &SeededRandom) -> i64 {
    i64::try_from(random.next_u64() >> 1).unwrap_or(i64::MAX).max(1)
}
