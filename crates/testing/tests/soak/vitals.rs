//! How a process is: memory, threads, files, disk. And whether that is flat.
//!
//! The same load is made in every round, and measured after it has settled. A *life* is the time between two restarts.
//!
//! * Within a life, memory after the last round may exceed that after the second by a tenth and 8 MiB. The first round
//!   fills caches and is left out. What is not given back after each of the rounds between adds up: a leak of 100 bytes
//!   per request shows from about 100 000 requests on, which is what the last life is for: it takes half of all the time,
//!   and is judged by itself. The median over all short lives counts, for one may have been measured while something else
//!   went on.
//! * Across lives, memory at the end of those in the last quarter may exceed that in the first by as much: what a
//!   restart brings back, such as objects that nobody removes, shows there.
//! * Threads and files at the end of a life may exceed those after its second round by a handful.
//! * Disk at the end may exceed twice what it was after the first life, and 256 MiB. On etcd that is its directory too:
//!   it keeps five files of its log, 64 MiB each, whatever is in them, and a backend that never shrinks but uses again
//!   what was compacted.
//! * So what etcd says its backend has *in use* is judged apart, and more strictly: at the end of a life in the last
//!   quarter at most twice what it was in the first, and 32 MiB. Half a minute of history is in it, which is how often
//!   servers compact.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use testing::lasting::LastingHub;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Resident, in bytes.
    pub memory: u64,
    pub threads: u64,
    pub files: u64,
    /// In bytes, etcd's with it.
    pub disk: u64,
    /// Bytes in use in etcd's backend.
    pub backend: u64,
}

const MIB: u64 = 1 << 20;
const MEMORY_SLACK: u64 = 8 * MIB;
const COUNT_SLACK: u64 = 8;
const DISK_SLACK: u64 = 256 * MIB;
const BACKEND_SLACK: u64 = 32 * MIB;

impl Vitals {
    pub fn of(server: &LastingHub) -> Result<Vitals> {
        let pid = server.hub()?.pid();
        let (of_etcd, backend) = match server.etcd() {
            Some(etcd) => {
                let in_use = etcd.metric(0, "etcd_mvcc_db_total_size_in_use_in_bytes")?;
                (disk(&etcd.data(0))?, in_use as u64)
            }
            None => (0, 0),
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            number.with_context(|| format!("no {name} of {pid}"))
        };
        Ok(Vitals {
            memory: field("VmRSS:")? * 1024,
            threads: field("Threads:")?,
            files: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            disk: disk(&server.data)? + of_etcd,
            backend,
        })
    }
}

/// What the files below `directory` take. One that goes while this looks counts for nothing.
fn disk(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        sum += if metadata.is_dir() {
            disk(&entry.path()).unwrap_or(0)
        } else {
            std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
        };
    }
    Ok(sum)
}

/// What is not flat, in words. `lives` are the vitals after each round of each life.
pub fn complaints(lives: &[Vec<Vitals>]) -> Vec<String> {
    // A life of two rounds has nothing to compare with, nor has the only one.
    let lives: Vec<&[Vitals]> = lives.iter().map(|life| life.get(1..).unwrap_or(&[])).collect();
    let lives: Vec<(Vitals, Vitals)> =
        lives.iter().filter(|life| life.len() > 1).map(|life| (life[0], life[life.len() - 1])).collect();
    let mut complaints = Vec::new();
    let mut compare = |what: &str, before: u64, after: u64, most: u64| {
        if after > most {
            complaints.push(format!("{what} grew from {before} to {after}, more than to {most}"));
        }
    };
    let growth = |of: fn(&Vitals) -> u64| {
        let mut pairs: Vec<(u64, u64)> = lives.iter().map(|(first, last)| (of(first), of(last))).collect();
        pairs.sort_by_key(|(first, last)| last.cast_signed() - first.cast_signed());
        pairs.get(pairs.len() / 2).copied()
    };
    if let Some((before, after)) = growth(|vitals| vitals.memory) {
        compare("memory within a life", before, after, before + before / 10 + MEMORY_SLACK);
    }
    if let Some((before, after)) = growth(|vitals| vitals.threads) {
        compare("threads within a life", before, after, before + COUNT_SLACK);
    }
    if let Some((before, after)) = growth(|vitals| vitals.files) {
        compare("files within a life", before, after, before + COUNT_SLACK);
    }
    if lives.len() > 1 {
        let quarter = lives.len().div_ceil(4);
        let median = |lives: &[(Vitals, Vitals)], of: fn(&Vitals) -> u64| {
            let mut all: Vec<u64> = lives.iter().map(|(_, last)| of(last)).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        let (first, last) = (&lives[..quarter], &lives[lives.len() - quarter..]);
        let (before, after) = (median(first, |it| it.memory), median(last, |it| it.memory));
        compare("memory across lives", before, after, before + before / 10 + MEMORY_SLACK);
        let (before, after) = (lives[0].1.disk, lives[lives.len() - 1].1.disk);
        compare("disk", before, after, 2 * before + DISK_SLACK);
        let (before, after) = (median(first, |it| it.backend), median(last, |it| it.backend));
        compare("etcd's backend", before, after, 2 * before + BACKEND_SLACK);
    }
    complaints
}

mod tests {
    use super::*;

    fn lives(memory: impl Fn(u64, u64) -> u64) -> Vec<Vec<Vitals>> {
        let round = |life, round| Vitals {
            memory: memory(life, round) * MIB,
            threads: 9,
            files: 40,
            disk: MIB,
            backend: 8 * MIB,
        };
        (0..8).map(|life| (0..4).map(|number| round(life, number)).collect()).collect()
    }

    #[test]
    fn what_stays_the_same_is_flat() {
        assert_eq!(complaints(&lives(|_, round| 80 + round % 2)), [] as [&str; 0]);
        // The first round fills caches.
        assert_eq!(complaints(&lives(|_, round| if round == 0 { 30 } else { 90 })), [] as [&str; 0]);
        assert_eq!(complaints(&[]), [] as [&str; 0]);
    }

    #[test]
    fn what_is_not_given_back_is_noticed() {
        let within = complaints(&lives(|_, round| 80 + 10 * round));
        assert!(within[0].starts_with("memory within a life grew"), "{within:?}");
        let across = complaints(&lives(|life, _| 80 + 6 * life));
        assert!(across[0].starts_with("memory across lives grew"), "{across:?}");
        let mut threads = lives(|_, _| 80);
        threads.iter_mut().for_each(|life| life[3].threads = 30);
        assert!(complaints(&threads)[0].starts_with("threads within a life grew"));
        let mut disk = lives(|_, _| 80);
        disk[7][3].disk = 400 * MIB;
        assert!(complaints(&disk)[0].starts_with("disk grew"));
        let mut backend = lives(|_, _| 80);
        backend[6..].iter_mut().for_each(|life| life[3].backend = 60 * MIB);
        assert!(complaints(&backend)[0].starts_with("etcd's backend grew"));
    }
}
