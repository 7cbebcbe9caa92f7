//! Who breaks things: what, when and for how long, all from a seed.

use std::{
    fmt,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use env::random::SeededRandom;
use serde_json::{Value, json};
use testing::{etcd::EtcdCluster, patience::Patience};

use crate::cluster::{CLIENT, Cluster, QUOTA_BYTES, Subject};

/// What may happen to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9` of a server.
    KillServer,
    /// A server is told to stop, and does.
    StopServer,
    /// A server hangs for longer than its lease, and then goes on as if nothing had been.
    PauseServer,
    /// `kill -9` of all servers.
    KillServers,
    /// `kill -9` of a member that follows.
    KillMember,
    /// `kill -9` of the member that leads.
    KillLeader,
    PauseMember,
    /// `kill -9` of all of etcd.
    KillMembers,
    /// A server and etcd do not reach each other, or only one way.
    CutServerFromEtcd,
    /// The servers do not reach each other.
    CutServers,
    /// Clients do not reach a server, or only one way.
    CutClients,
    /// A member reaches nobody, or nobody reaches it.
    CutMember,
    /// A server and one member on one side, everything else on the other.
    Split,
    /// Every eighth packet is lost, everywhere.
    LosePackets,
    /// Links of 400 kbit/s.
    SlowLinks,
    /// A member's disk takes few writes per second.
    SlowDisk,
    /// A member's disk takes none.
    HangingDisk,
    FullDisk,
    /// etcd's own limit is reached; it is recovered by hand, as its manual says.
    FullQuota,
    /// Somebody compacts etcd's history to its last revision.
    Compact,
    /// The same while a server does not reach etcd and has not seen the last of it.
    CompactUnseen,
    /// A member is lost with its disk, and another takes its place.
    ReplaceMember,
    /// A server's wall clock goes forward or back by up to hours, and back again.
    StepClock,
}

pub const ALL_KINDS: [Kind; 23] = [
    Kind::KillServer,
    Kind::StopServer,
    Kind::PauseServer,
    Kind::KillServers,
    Kind::KillMember,
    Kind::KillLeader,
    Kind::PauseMember,
    Kind::KillMembers,
    Kind::CutServerFromEtcd,
    Kind::CutServers,
    Kind::CutClients,
    Kind::CutMember,
    Kind::Split,
    Kind::LosePackets,
    Kind::SlowLinks,
    Kind::SlowDisk,
    Kind::HangingDisk,
    Kind::FullDisk,
    Kind::FullQuota,
    Kind::Compact,
    Kind::CompactUnseen,
    Kind::ReplaceMember,
    Kind::StepClock,
];

impl Kind {
    /// Whom of etcd it happens to, the time that it comes for the `turn`th time; `otherwise` where that is all the same.
    fn member(self, turn: u64, otherwise: Pick) -> Pick {
        let in_turn = |turn: u64| if turn.is_multiple_of(2) { Pick::Leader } else { Pick::Follower };
        match self {
            Kind::KillLeader => Pick::Leader,
            Kind::KillMember => Pick::Follower,
            Kind::PauseMember => in_turn(turn),
            Kind::ReplaceMember => in_turn(turn + 1),
            _ => otherwise,
        }
    }

    /// It can happen to this subject.
    pub fn concerns(self, subject: Subject) -> bool {
        match subject {
            Subject::Embedded | Subject::Apart => {
                use Kind::{
                    CutClients, KillServer, LosePackets, PauseServer, SlowLinks, StepClock, StopServer,
                };
                [KillServer, StopServer, PauseServer, CutClients, LosePackets, SlowLinks, StepClock]
                    .contains(&self)
            }
            // Its clock is not ours to set: Go asks the kernel.
            Subject::Kubernetes => self != Kind::StepClock,
            Subject::Etcd => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    Leader,
    Follower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Both,
    Out,
    In,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub struct Step {
    pub quiet: Duration,
    pub kind: Kind,
    pub server: usize,
    pub member: Pick,
    pub way: Way,
    pub length: Duration,
    pub seconds: i64,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { quiet, kind, server, member, way, length, seconds } = self;
        write!(formatter, "after {quiet:.1?} {kind:?} for {length:.1?} (server {server}, {member:?}, ")?;
        write!(formatter, "{way:?}, {seconds} s)")
    }
}

/// The same seed makes the same schedule.
pub fn schedule(seed: u64, subject: Subject, kinds: &[Kind], steps: usize) -> Vec<Step> {
    let random = SeededRandom::new(seed);
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.concerns(subject)).collect();
    let mut left = Vec::new();
    // Another seed begins with the other one.
    let mut turn = seed;
    let mut one = || {
        // Each once before any comes again.
        if left.is_empty() {
            left.clone_from(&kinds);
            turn += 1;
        }
        let kind = left.swap_remove(random.below(left.len() as u64) as usize);
        let shortest = if matches!(kind, Kind::PauseServer | Kind::CutServerFromEtcd) { 7000 } else { 3000 };
        let pick = |count| random.below(count);
        let any = if pick(2) == 0 { Pick::Leader } else { Pick::Follower };
        Step {
            quiet: Duration::from_millis(500 + pick(2000)),
            kind,
            server: pick(subject.servers() as u64) as usize,
            member: kind.member(turn, any),
            way: [Way::Both, Way::Both, Way::Out, Way::In][pick(4) as usize],
            length: Duration::from_millis(shortest + pick(5000)),
            seconds: [-7200, -60, 60, 7200][pick(4) as usize],
        }
    };
    (0..steps).map(|_| one()).collect()
}

/// Does one after the other. Blocks for as long as that takes.
pub fn run(cluster: &mut Cluster, steps: &[Step]) -> Result<()> {
    for step in steps {
        println!("  {step}");
        sleep(step.quiet);
        let member = cluster.etcd.as_ref().map(|etcd| resolve(etcd, step.member)).transpose()?.unwrap_or(0);
        begin(cluster, step, member).with_context(|| format!("beginning {:?}", step.kind))?;
        sleep(step.length);
        end(cluster, step, member).with_context(|| format!("ending {:?}", step.kind))?;
        cluster.supervise()?;
    }
    Ok(())
}

fn resolve(etcd: &EtcdCluster, pick: Pick) -> Result<usize> {
    let leader = etcd.leader()?;
    Ok(if pick == Pick::Leader { leader } else { (leader + 1) % etcd.endpoints().len() })
}

fn members(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.subject.members()).map(|member| cluster.member_node(member)).collect()
}

fn servers(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.servers.len()).map(|server| cluster.server_node(server)).collect()
}

fn etcd(cluster: &mut Cluster) -> Result<&mut EtcdCluster> {
    cluster.etcd.as_mut().context("there is no etcd")
}

fn cut(cluster: &Cluster, here: &[usize], there: &[usize], way: Way) -> Result<()> {
    for one in here {
        for other in there.iter().filter(|other| *other != one) {
            if way != Way::In {
                cluster.net.cut(*one, *other)?;
            }
            if way != Way::Out {
                cluster.net.cut(*other, *one)?;
            }
        }
    }
    Ok(())
}

fn begin(cluster: &mut Cluster, step: &Step, member: usize) -> Result<()> {
    let (server, node) = (cluster.server_node(step.server), cluster.member_node(member));
    let everything: Vec<usize> = [vec![CLIENT], servers(cluster), members(cluster)].concat();
    match step.kind {
        Kind::KillServer => cluster.servers[step.server].kill(),
        Kind::StopServer => cluster.servers[step.server].terminate()?,
        Kind::PauseServer => cluster.servers[step.server].stop()?,
        Kind::KillServers => cluster.servers.iter_mut().for_each(testing::world::Server::kill),
        Kind::KillMember | Kind::KillLeader => etcd(cluster)?.kill(member),
        Kind::PauseMember => etcd(cluster)?.stop(member)?,
        Kind::KillMembers => (0..cluster.subject.members())
            .try_for_each(|member| etcd(cluster).map(|etcd| etcd.kill(member)))?,
        Kind::CutServerFromEtcd => cut(cluster, &[server], &members(cluster), step.way)?,
        Kind::CompactUnseen => cut(cluster, &[server], &members(cluster), Way::Both)?,
        Kind::CutServers => cut(cluster, &servers(cluster), &servers(cluster), step.way)?,
        Kind::CutClients => cut(cluster, &[CLIENT], &[server], step.way)?,
        Kind::CutMember => cut(cluster, &[node], &everything, step.way)?,
        Kind::Split => {
            let rest: Vec<usize> =
                everything.into_iter().filter(|it| *it != CLIENT && *it != server && *it != node).collect();
            cut(cluster, &[server, node], &rest, Way::Both)?;
        }
        Kind::LosePackets => lose_packets(cluster, &everything)?,
        Kind::SlowLinks => everything.iter().try_for_each(|node| cluster.net.make_slow(*node, 400))?,
        Kind::SlowDisk => cluster.disks[member].limit_writes(Some(15))?,
        Kind::HangingDisk => cluster.disks[member].freeze()?,
        Kind::FullDisk => {
            cluster.disks[member].fill()?;
            until_it_cannot_write(etcd(cluster)?, member)?;
        }
        Kind::FullQuota => fill_quota(etcd(cluster)?)?,
        Kind::Compact => compact(cluster)?,
        Kind::ReplaceMember => etcd(cluster)?.replace(member)?,
        Kind::StepClock => cluster.clocks[step.server].set(step.seconds)?,
    }
    Ok(())
}

fn end(cluster: &mut Cluster, step: &Step, member: usize) -> Result<()> {
    match step.kind {
        Kind::KillServer | Kind::StopServer => cluster.servers[step.server].launch()?,
        Kind::PauseServer => cluster.servers[step.server].go_on()?,
        Kind::KillServers => cluster.servers.iter_mut().try_for_each(testing::world::Server::launch)?,
        Kind::KillMember => etcd(cluster)?.launch(member)?,
        Kind::KillLeader => {
            let etcd = etcd(cluster)?;
            anyhow::ensure!(etcd.leader()? != member, "who was killed leads");
            etcd.launch(member)?;
        }
        Kind::PauseMember => etcd(cluster)?.go_on(member)?,
        Kind::KillMembers => (0..cluster.subject.members())
            .try_for_each(|member| etcd(cluster).and_then(|etcd| etcd.launch(member)))?,
        Kind::CutServerFromEtcd
        | Kind::CutServers
        | Kind::CutClients
        | Kind::CutMember
        | Kind::Split
        | Kind::LosePackets
        | Kind::SlowLinks => cluster.net.heal()?,
        Kind::CompactUnseen => {
            compact(cluster)?;
            cluster.net.heal()?;
        }
        Kind::SlowDisk => cluster.disks[member].limit_writes(None)?,
        Kind::HangingDisk => cluster.disks[member].thaw()?,
        Kind::FullDisk => {
            cluster.disks[member].make_room()?;
            etcd(cluster)?.launch(member)?;
            recover_quota(cluster)?;
        }
        Kind::FullQuota => recover_quota(cluster)?,
        Kind::Compact | Kind::ReplaceMember => {}
        Kind::StepClock => cluster.clocks[step.server].set(0)?,
    }
    Ok(())
}

fn lose_packets(cluster: &Cluster, nodes: &[usize]) -> Result<()> {
    for from in nodes {
        for to in nodes.iter().filter(|to| *to != from) {
            cluster.net.make_lossy(*from, *to)?;
        }
    }
    Ok(())
}

/// Asks whichever member answers, until one does or all refuse.
fn ask(etcd: &EtcdCluster, path: &str, body: &Value) -> Result<Value> {
    let mut patience = Patience::default();
    loop {
        for member in 0..etcd.endpoints().len() {
            match etcd.gateway(member, path, body) {
                Ok(answer) => return Ok(answer),
                // A refusal is an answer; members that elect or hang have none.
                Err(error) if is_refusal(&error) || !patience.lasts(()) => return Err(error),
                Err(_) => {}
            }
        }
        sleep(Duration::from_millis(200));
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    text.contains("space exceeded") || text.contains("has been compacted")
}

fn compact(cluster: &mut Cluster) -> Result<()> {
    let etcd = etcd(cluster)?;
    let key = json!({"key": BASE64_STANDARD.encode("/"), "keys_only": true});
    let head = ask(etcd, "/v3/kv/range", &key)?;
    let revision = head["header"]["revision"].clone();
    match ask(etcd, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})) {
        // An attempt of ours whose answer was lost.
        Err(error) if !is_refusal(&error) => return Err(error),
        _ => {}
    }
    cluster.compactions.push(Instant::now());
    Ok(())
}

const BALLAST: &str = "/ballast/";
const BALLAST_BYTES: usize = 700_000;

/// Writes until etcd takes no more.
fn fill_quota(etcd: &EtcdCluster) -> Result<()> {
    for number in 0..2 * QUOTA_BYTES as usize / BALLAST_BYTES {
        if !put_ballast(etcd, number)? {
            return Ok(());
        }
    }
    anyhow::bail!("etcd took more than its quota")
}

/// Whether etcd had room for it.
fn put_ballast(etcd: &EtcdCluster, number: usize) -> Result<bool> {
    let value = BASE64_STANDARD.encode(vec![b'x'; BALLAST_BYTES]);
    let key = BASE64_STANDARD.encode(format!("{BALLAST}{number}"));
    match ask(etcd, "/v3/kv/put", &json!({"key": key, "value": value})) {
        Ok(_) => Ok(true),
        Err(error) if format!("{error:#}").contains("space exceeded") => Ok(false),
        Err(error) => Err(error),
    }
}

/// A member has room of its own in its files, and ends when it needs more than that. So it is given more to keep.
fn until_it_cannot_write(etcd: &EtcdCluster, member: usize) -> Result<()> {
    let mut patience = Patience::default();
    let mut kept = 0;
    while !has_ended(etcd, member) {
        if put_ballast(etcd, kept)? {
            kept += 1;
        }
        anyhow::ensure!(patience.lasts(()), "member {member} goes on without a disk to write to");
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Whether it is gone, but for who asks how it ended.
fn has_ended(etcd: &EtcdCluster, member: usize) -> bool {
    let Some(pid) = etcd.pid(member) else { return true };
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z')),
        Err(_) => true,
    }
}

/// Delete, compact, defragment, disarm.
fn recover_quota(cluster: &mut Cluster) -> Result<()> {
    let range = json!({
        "key": BASE64_STANDARD.encode(BALLAST),
        "range_end": BASE64_STANDARD.encode(BALLAST.replace("t/", "t0")),
    });
    ask(etcd(cluster)?, "/v3/kv/deleterange", &range)?;
    compact(cluster)?;
    let etcd = etcd(cluster)?;
    for member in 0..etcd.endpoints().len() {
        // It may take longer than we wait; the alarm says whether it was enough.
        let _ = etcd.gateway(member, "/v3/maintenance/defragment", &json!({}));
    }
    let alarms = ask(etcd, "/v3/maintenance/alarm", &json!({"action": "GET"}))?;
    for alarm in alarms["alarms"].as_array().into_iter().flatten() {
        let disarm = json!({"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]});
        ask(etcd, "/v3/maintenance/alarm", &disarm)?;
    }
    Ok(())
}
