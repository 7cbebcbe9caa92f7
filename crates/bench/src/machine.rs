//! What Linux says about processes and about the machine they share.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Counters at one moment; two of them make a [`Usage`].
pub struct Reading {
    at: Instant,
    server: Duration,
    client: Duration,
    machine: Duration,
    steal: Duration,
    written: Option<u64>,
}

/// What a stretch of time cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub elapsed: Duration,
    pub server: Duration,
    pub client: Duration,
    /// Of all cores: neither server nor client. It includes the kernel's interrupt time.
    pub other: Duration,
    pub steal: Duration,
    /// Bytes that reached the disk with the data, whoever wrote them; None if the disk cannot be told.
    pub written: Option<u64>,
}

impl Reading {
    pub fn take(server: &[u32]) -> Result<Self> {
        let (machine, steal) = machine_cpu()?;
        Ok(Self {
            at: Instant::now(),
            server: server.iter().map(|pid| process_cpu(*pid)).sum::<Result<_>>()?,
            client: process_cpu(std::process::id())?,
            machine,
            steal,
            written: disk_written(&std::env::temp_dir())?,
        })
    }

    pub fn until(self, later: Self) -> Usage {
        let server = later.server.saturating_sub(self.server);
        let client = later.client.saturating_sub(self.client);
        let machine = later.machine.saturating_sub(self.machine);
        Usage {
            elapsed: later.at - self.at,
            server,
            client,
            other: machine.saturating_sub(server + client),
            steal: later.steal.saturating_sub(self.steal),
            written: later.written.zip(self.written).map(|(later, earlier)| later.saturating_sub(earlier)),
        }
    }
}

/// Resident memory of the processes, in bytes.
pub fn resident(pids: &[u32]) -> Result<u64> {
    pids.iter()
        .map(|pid| {
            let status = read(&format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS")?;
            Ok(kib.trim().parse::<u64>()? * 1024)
        })
        .sum()
}

/// Of all files below it, as long as they say they are.
pub fn bytes_below(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { bytes_below(&entry.path())? } else { meta.len() };
    }
    Ok(sum)
}

/// As many open files as this machine lets a process have: a server that is started from here inherits it, and needs
/// one for each connection.
pub fn allow_many_files() -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)?)
}

/// True once the process has ended, whether or not its parent has taken note.
pub fn has_ended(pid: u32) -> bool {
    let Ok(stat) = read(&format!("/proc/{pid}/stat")) else { return true };
    matches!(after_name(&stat).next(), None | Some("Z" | "X"))
}

/// User and system time of all threads, including those that have ended.
fn process_cpu(pid: u32) -> Result<Duration> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // utime and stime are fields 14 and 15; the state, first after the name, is field 3.
    let counters = after_name(&stat).skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks(counters.sum::<Result<u64, _>>()?))
}

/// The fields after the process's name, which may itself contain spaces and parentheses.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Bytes written to the disk that holds `path`, since the machine started.
///
/// `write_bytes` of a process will not do: the kernel adds a whole folio when any part of it becomes dirty, and a
/// folio of a file that was allocated in one go is up to 1 MiB, however little of it is then written out.
fn disk_written(path: &Path) -> Result<Option<u64>> {
    const SECTOR: u64 = 512;
    let device = fs::metadata(path)?.dev();
    let device = [rustix::fs::major(device), rustix::fs::minor(device)].map(|number| number.to_string());
    let disks = read("/proc/diskstats")?;
    let sectors = disks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(..2)? == device).then(|| fields.get(9)?.parse::<u64>().ok())?
    });
    Ok(sectors.map(|sectors| sectors * SECTOR))
}

/// Busy time of all cores, and the time the hypervisor took.
fn machine_cpu() -> Result<(Duration, Duration)> {
    let stat = read("/proc/stat")?;
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
        anyhow::bail!("unknown form of /proc/stat");
    };
    Ok((ticks(user + nice + system + irq + softirq), ticks(steal)))
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Of the program that is measured, with a `+` if what it was built from is not all in it; the script that builds it sets it.
const BUILT_FROM: &str = "HANSE_BUILT_FROM";

/// Cores, processor, memory, kernel and the file system of `data`, and of which commit the program is if that is known, in
/// one line.
pub fn describe(data: &Path) -> Result<String> {
    let processor = read("/proc/cpuinfo")?
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()))
        .unwrap_or_else(|| "unknown processor".to_owned());
    let memory = read("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok())
        .context("no MemTotal")?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let commit = std::env::var(BUILT_FROM).unwrap_or_default();
    Ok(format!(
        "{} cores ({processor}), {:.1} GiB of memory, Linux {}, data on {}{}",
        cores(),
        memory / 1024.0 / 1024.0,
        kernel.trim(),
        file_system(data)?,
        built_from(&commit)
    ))
}

fn built_from(commit: &str) -> String {
    if commit.is_empty() { String::new() } else { format!("; built from {commit}") }
}

/// The type of the file system that holds `path`: that of the longest mount point above it.
pub fn file_system(path: &Path) -> Result<String> {
    let path = path.canonicalize()?;
    let mounts = read("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    Ok(mount.map_or("unknown", |(_, kind)| kind).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0";
        assert_eq!(after_name(stat).nth(11), Some("150"));
    }

    #[test]
    fn a_commit_is_named_if_it_is_known() {
        assert_eq!(built_from("1a2b3c4+"), "; built from 1a2b3c4+");
        assert_eq!(built_from(""), "");
    }

    #[test]
    fn this_process_has_cpu_time_and_memory() {
        let pids = [std::process::id()];
        let before = Reading::take(&pids).unwrap();
        assert!(resident(&pids).unwrap() > 0);
        assert!(!has_ended(pids[0]));
        let usage = before.until(Reading::take(&pids).unwrap());
        assert!(usage.elapsed > Duration::ZERO);
    }
}
