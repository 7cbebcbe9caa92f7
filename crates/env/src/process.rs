//! What the operating system says of this process.

use std::{fs, sync::OnceLock, time::Duration};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    pub cpu: Duration,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub open_files: u64,
    pub max_files: u64,
    /// Seconds since 1970.
    pub started: f64,
}

pub trait Process: Send + Sync + 'static {
    /// `None`: it cannot be told.
    fn usage(&self) -> Option<ProcessUsage>;

    /// Lets it have as many files open, and so connections, as it may give itself. How many that were, and are; `None`: it
    /// had that already, or cannot.
    fn raise_open_files(&self) -> Option<(u64, u64)>;
}

/// Where there is no limit to what a process may give itself: as many as Linux gives to any.
const MOST_OPEN_FILES: u64 = 1 << 20;

/// As Linux tells it under `/proc`.
pub struct RealProcess;

impl Process for RealProcess {
    fn usage(&self) -> Option<ProcessUsage> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name may hold anything, also spaces and parentheses; the state after it is field 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |count: u64| count as f64 / ticks;
        Some(ProcessUsage {
            cpu: Duration::from_secs_f64(seconds(field(14)? + field(15)?)),
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            max_files: max_files().unwrap_or(0),
            started: boot_time() + seconds(field(22)?),
        })
    }

    fn raise_open_files(&self) -> Option<(u64, u64)> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let (before, after) = (current?, maximum.unwrap_or(MOST_OPEN_FILES));
        if before >= after {
            return None;
        }
        setrlimit(Resource::Nofile, Rlimit { current: Some(after), maximum }).ok()?;
        Some((before, after))
    }
}

fn max_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Seconds since 1970. A `/proc` that shows nothing but processes does not say; then it is worked out once, so that a
/// process has started at one time, however often somebody asks.
fn boot_time() -> f64 {
    static BY_CLOCKS: OnceLock<f64> = OnceLock::new();
    told_boot_time().unwrap_or_else(|| *BY_CLOCKS.get_or_init(boot_time_by_clocks))
}

fn told_boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn boot_time_by_clocks() -> f64 {
    let seconds = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    seconds(ClockId::Realtime) - seconds(ClockId::Boottime)
}

/// A simulated machine says nothing.
pub struct SimProcess;

impl Process for SimProcess {
    fn usage(&self) -> Option<ProcessUsage> {
        None
    }

    fn raise_open_files(&self) -> Option<(u64, u64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let usage = RealProcess.usage().unwrap();
        assert!(usage.resident_bytes > 100_000 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.open_files > 2 && usage.max_files >= usage.open_files);
        assert!(usage.started > 1.7e9);
    }

    #[test]
    fn clocks_say_when_the_machine_started_as_the_kernel_does() {
        let told = told_boot_time().unwrap();
        assert!((boot_time_by_clocks() - told).abs() < 2.0, "{told}, by clocks {}", boot_time_by_clocks());
    }
}
