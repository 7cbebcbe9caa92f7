//! Time: the wall clock for what people read, the monotonic clock for what is measured, and sleeping.

use std::time::Duration;

use jiff::Timestamp;

use crate::BoxFuture;

/// Tells the time and waits. `now` may jump (somebody sets the clock); `elapsed` never goes back.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time, for timestamps on objects.
    fn now(&self) -> Timestamp;
    /// Time since this clock was made; monotonic. Deadlines and leases count with this one.
    fn elapsed(&self) -> Duration;
    /// Resolves after `duration` on this clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The operating system's clocks. `elapsed` also counts the time that the machine sleeps: a lease runs out meanwhile.
pub struct RealClock {
    started: Duration,
}

fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

impl RealClock {
    pub fn new() -> Self {
        Self { started: since_boot() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.started)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Follows tokio's clock, which a test pauses and advances; the wall clock starts at a fixed date and can be set.
pub struct SimClock {
    started: tokio::time::Instant,
    wall_at_start: parking_lot::Mutex<Timestamp>,
}

impl SimClock {
    /// 2030-01-01T00:00:00Z: any fixed date will do, a round one is easy to recognise in output.
    const WALL_START_SECONDS: i64 = 1_893_456_000;

    pub fn new() -> Self {
        let start = Timestamp::from_second(Self::WALL_START_SECONDS).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { started: tokio::time::Instant::now(), wall_at_start: parking_lot::Mutex::new(start) }
    }

    /// Moves the wall clock by `seconds`, as an operator or NTP would; the monotonic clock does not notice.
    pub fn step_wall(&self, seconds: i64) {
        let mut wall = self.wall_at_start.lock();
        *wall = wall.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(*wall);
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let start = *self.wall_at_start.lock();
        let elapsed = jiff::SignedDuration::try_from(self.elapsed()).unwrap_or(jiff::SignedDuration::ZERO);
        start.checked_add(elapsed).unwrap_or(start)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
