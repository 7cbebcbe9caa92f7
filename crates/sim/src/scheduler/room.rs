//! Room on a node: what it has, what those on it have asked for, and ports.

use compact_str::CompactString;
use serde_json::Value;

use super::{Candidate, Unfit, hopeless, unfit};
use crate::{pod::HostPort, tree};

pub struct Asked {
    requests: Box<[(CompactString, u64)]>,
    ports: Box<[HostPort]>,
}

fn allocatable(node: &Value, resource: &str) -> u64 {
    let pointer = format!("/status/allocatable/{}", resource.replace('~', "~0").replace('/', "~1"));
    tree::amount(resource, tree::text(node, &pointer))
}

fn used(candidate: &Candidate, resource: &str) -> u64 {
    let of = |(name, amount): &(CompactString, u64)| if name == resource { *amount } else { 0 };
    candidate.pods.iter().flat_map(|pod| pod.requests.iter()).map(of).sum()
}

impl Asked {
    pub fn of(pod: &Value) -> Asked {
        Asked { requests: tree::requests(pod), ports: tree::host_ports(pod) }
    }

    pub fn problem(&self, candidate: &Candidate) -> Option<Unfit> {
        let most = allocatable(&candidate.node, "pods") as usize;
        let mut short = Vec::new();
        let mut never = false;
        if candidate.pods.len() >= most {
            short.push("Too many pods".to_owned());
        }
        for (resource, amount) in self.requests.iter().filter(|(_, amount)| *amount > 0) {
            let has = allocatable(&candidate.node, resource);
            if used(candidate, resource) + amount > has {
                short.push(format!("Insufficient {resource}"));
                never |= *amount > has;
            }
        }
        if !short.is_empty() {
            let why = short.join("\n");
            return if never { hopeless(why) } else { unfit(why) };
        }
        let taken = |it: &HostPort| {
            let mut others = candidate.pods.iter().flat_map(|pod| pod.host_ports.iter());
            others.any(|other| other.clashes(it))
        };
        if self.ports.iter().any(taken) {
            return unfit("node(s) didn't have free ports for the requested pod ports");
        }
        None
    }

    /// From 0 to 10 000: how much would be left of what is asked for, cpu and memory if nothing is.
    pub fn room_left(&self, candidate: &Candidate) -> i64 {
        let left = |resource: &str| {
            let asked =
                self.requests.iter().find(|(name, _)| name == resource).map_or(0, |(_, amount)| *amount);
            // As upstream: what asks for nothing takes a little.
            let least = if resource == "cpu" { 100 } else { 200 << 20 };
            let has = allocatable(&candidate.node, resource).max(1);
            let taken =
                used(candidate, resource) + asked.max(least) + candidate.pods.len() as u64 * (least / 10);
            10_000 - (taken.min(has) as i128 * 10_000 / has as i128) as i64
        };
        (left("cpu") + left("memory")) / 2
    }
}
