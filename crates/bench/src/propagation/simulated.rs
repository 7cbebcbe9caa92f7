//! Many simulated members: a steady stream, an open loop, and very many.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{
    Options, Part,
    fleet::{Clusters, Fleet, Item, NAMESPACE, PATIENCE, config_map, deployment},
    page::{Aim, Section, begin, in_seconds, milliseconds, rate, times},
    peers,
    restart::{Changed, restart},
    traces::{Kind, Times, Wish},
};
use crate::{
    figures::Latencies,
    report::{grouped, number},
};

/// Groups that members are in, one after the other.
const GROUPS: usize = 10;
const GROUP_LABEL: &str = "bench.hanse.io/group";
/// Of each member, beside those that the load fills.
const NODES: usize = 3;
/// The namespace of the open loop: the others stay where they are.
const W2: &str = "w2";
/// New ones on top of those that are there.
const NEW: usize = 10;
/// New versions at once.
const ROLLOUTS: usize = 100;
/// ConfigMaps that are changed in members while the hub is down.
const CHANGED: usize = 20;

/// W1 and W2: a hundred members.
pub async fn streams(hanse: &Path, options: &Options, sections: &mut Vec<Section>) -> Result<u64> {
    let clusters = options.clusters;
    eprintln!("{clusters} simulated members");
    let pods = options.w1 + options.w2_seconds * options.w2_rate / clusters.max(1);
    let mut fleet =
        Fleet::start(hanse, Clusters::simulated(clusters, pods.div_ceil(100) + NODES).await?).await?;
    fleet.join(|_| Map::new()).await?;
    if options.has(Part::W1) {
        let spec = json!({
            "select": [{"kinds": ["Deployment"], "namespaces": [NAMESPACE]}], "strategy": "Divide",
            "spread": spread_over(clusters),
        });
        fleet.placement("divided", &spec).await?;
        let items =
            (0..options.w1).map(|it| deployment(&format!("w1-{it}"), clusters, clusters, (1, clusters)));
        let section = begin(
            sections,
            Section::new(
                format!("W1: one Deployment per second, each divided between {clusters} simulated members"),
                format!(
                    "{} Deployments of {clusters} replicas, one in each member; the original has 1 000 replicas, one Deployment \
                 in ten seconds, and 20 000 other pods in each member. Its members are on other machines, here they share \
                 the cores. Beside it: {}.",
                    options.w1,
                    peers::W1
                ),
                &["", "Hanse"],
            ),
        );
        let Streamed { times, cores, resident } =
            stream(&fleet, items.collect(), 1.0, clusters, section).await?;
        let what = format!("W1: until all {clusters} members had it, p99");
        section.aims.extend([
            Aim::at_most(&what, times.arrived.quantile(0.99), 989.0, "ms"),
            Aim::at_most(
                "W1: status after the last member was ready, p99",
                times.lag.quantile(0.99),
                300.0,
                "ms",
            ),
            Aim::at_most("W1: CPU of the hub", cores, 6.65, "cores"),
            Aim::at_most("W1: memory of the hub", resident, 11.4 * 1024.0, "MiB"),
        ]);
    }
    if options.has(Part::W2) {
        let targets = options.w2_targets.min(clusters);
        let spec = json!({
            "select": [{"kinds": ["Deployment"], "namespaces": [W2]}], "strategy": "Divide",
            "spread": spread_over(targets),
        });
        fleet.namespace(W2).await?;
        fleet.placement("to-a-few", &spec).await?;
        let count = options.w2_seconds * options.w2_rate;
        let item = |it| deployment(&format!("w2-{it}"), targets, targets, (1, targets)).within(W2);
        let items = (0..count).map(item);
        let section = begin(
            sections,
            Section::new(
                format!(
                    "W2: {} Deployments per second → {targets} of {clusters} simulated members",
                    options.w2_rate
                ),
                format!(
                    "Open loop for {} s, {targets} replicas each; the original goes to all members. Beside it: {}.",
                    options.w2_seconds,
                    peers::W2
                ),
                &["", "Hanse"],
            ),
        );
        let found = stream(&fleet, items.collect(), options.w2_rate as f64, targets, section).await?;
        let made = rate(count, found.times.all_arrived);
        section.aims.extend([
            Aim::times(
                "W2: Deployments in their members, to Karmada's bindings with an estimator,",
                made,
                22.0,
                1.0,
            ),
            Aim::times("W2: copies, to Karmada's Work objects,", made * targets as f64, 200.0, 1.0),
        ]);
        for (peer, best) in ["default", "raised"].into_iter().zip(peers::deployments::BEST_RATE) {
            let what = format!("W2: Deployments on {targets} members, to Karmada's {peer} on 3,");
            section.aims.push(Aim::times(&what, made, best, 20.0));
        }
    }
    Ok(fleet.traces.reopened())
}

/// Exactly so many, also when members are too busy to answer: others are chosen, or they are waited for.
fn spread_over(members: usize) -> Value {
    json!([{"topologyKey": "hanse.io/cluster", "minDomains": members, "maxDomains": members, "maxSkew": 1}])
}

/// What became of a stream.
struct Streamed {
    times: Times,
    /// Of the hub, on average.
    cores: f64,
    /// Memory of the hub at the end, MiB.
    resident: f64,
}

async fn stream(
    fleet: &Fleet,
    items: Vec<Item>,
    per_second: f64,
    targets: usize,
    section: &mut Section,
) -> Result<Streamed> {
    eprintln!("{}", section.title);
    fleet.traces.forget_all();
    let (count, began, reading) = (items.len(), Instant::now(), fleet.reading()?);
    let created = fleet.create_at(items, per_second).await?;
    fleet.traces.all_done(PATIENCE).await?;
    let (found, usage) = (fleet.traces.times(began), reading.until(fleet.reading()?));
    section.row("made in the hub, /s", &[&number(rate(count, created))]);
    times(section, count, &found);
    section.row("copies in members, /s", &[&number(rate(count * targets, found.all_arrived))]);
    let cores = usage.server.as_secs_f64() / usage.elapsed.as_secs_f64();
    section.row("CPU of the hub, cores", &[&number(cores)]);
    section.row(
        "CPU of the hub for each copy, ms",
        &[&number(usage.server.as_secs_f64() * 1000.0 / (count * targets) as f64)],
    );
    let resident = fleet.resident()?;
    section.row("memory of the hub, MiB", &[&number(resident)]);
    Ok(Streamed { times: found, cores, resident })
}

/// W5: a thousand members in ten groups, and placements that each mean one group.
pub async fn crowd(hanse: &Path, options: &Options, sections: &mut Vec<Section>) -> Result<u64> {
    let (clusters, placements) = (options.w5_clusters, options.w5);
    eprintln!("{clusters} simulated members");
    let mut fleet = Fleet::start(hanse, Clusters::simulated(clusters, 1).await?).await?;
    let group =
        |number: usize| Map::from_iter([(GROUP_LABEL.to_owned(), json!((number % GROUPS).to_string()))]);
    let joined = fleet.join(group).await?;
    let section = begin(
        sections,
        Section::new(
            format!("W5: {} simulated members, {placements} placements", grouped(&clusters.to_string())),
            format!(
                "A placement is a namespace with a ConfigMap of 1 KiB and a Deployment of no replicas, and a Placement that \
             duplicates them to a tenth of the members by a label; the original has 1 000 of them. Beside it: {}.",
                peers::W5
            ),
            &["", "Hanse"],
        ),
    );
    section.row("joined and ready after, s", &[&in_seconds(joined)]);
    section.row("memory of the hub, idle, MiB", &[&number(fleet.resident()?)]);
    let (began, reading) = (Instant::now(), fleet.reading()?);
    fleet.each(placements, |number| place(&fleet, clusters, number)).await?;
    fleet.traces.all_done(PATIENCE).await?;
    let (found, usage) = (fleet.traces.times(began), reading.until(fleet.reading()?));
    let copies = placements * 3 * (clusters / GROUPS);
    section.row("all in their members after, s", &[&in_seconds(found.all_arrived)]);
    section.row("copies in members, /s", &[&number(rate(copies, found.all_arrived))]);
    section.row(
        "CPU of the hub for each copy, ms",
        &[&number(usage.server.as_secs_f64() * 1000.0 / copies as f64)],
    );
    let mut new = Latencies::default();
    for number in placements..placements + NEW {
        fleet.traces.forget_all();
        let began = Instant::now();
        place(&fleet, clusters, number).await?;
        fleet.traces.all_arrived(PATIENCE).await?;
        new.record(began.elapsed());
        fleet.traces.all_done(PATIENCE).await?;
    }
    section
        .row("a new placement, until all its members have it, p50 / p90 / p99, ms", &[&milliseconds(&new)]);
    section.aims.push(Aim::at_most(
        "W5: a new placement in all its members, p90",
        new.quantile(0.9),
        20_000.0,
        "ms",
    ));
    let one = rollout(&fleet, clusters, &[0]).await?;
    section.row("a new version of one, until all its members have it, s", &[&in_seconds(one)]);
    section.aims.push(Aim::at_most(
        "W5: a new version of one in all its members after",
        one.as_secs_f64(),
        96.0,
        "s",
    ));
    let many: Vec<usize> = (0..placements.min(ROLLOUTS)).collect();
    let all = rollout(&fleet, clusters, &many).await?;
    section
        .row(&format!("new versions of {} at once, until all have them, s", many.len()), &[&in_seconds(all)]);
    section.aims.push(Aim::at_most("W5: new versions of many at once after", all.as_secs_f64(), 135.0, "s"));
    section.row("memory of the hub, MiB", &[&number(fleet.resident()?)]);
    let files = fleet.on_disk()?;
    section.row("the hub's files, MiB", &[&number(files)]);
    section.aims.push(Aim::at_most("W5: the hub's files", files, 1600.0, "MiB"));
    let changed: Vec<Changed> = (0..CHANGED.min(placements))
        .map(|at| {
            let number = at * placements / CHANGED.min(placements);
            Changed {
                namespace: namespace(number),
                name: format!("c-{number}"),
                // The first of its group.
                member: number % GROUPS,
                mark: if many.contains(&number) { version(&many) } else { "0".to_owned() },
            }
        })
        .collect();
    let settled = restart(&mut fleet, &changed, section).await?;
    section.aims.push(Aim::at_most("W5: restart, settled after", settled.seconds, 660.0, "s"));
    Ok(fleet.traces.reopened())
}

/// New versions of the ConfigMaps of these placements, all at once; how long until all their members have them.
async fn rollout(fleet: &Fleet, clusters: usize, placements: &[usize]) -> Result<Duration> {
    fleet.traces.forget_all();
    let began = Instant::now();
    for number in placements {
        let members = (0..clusters).filter(|it| it % GROUPS == number % GROUPS).count();
        let wish = Wish { members, ready: None, mark: Some(version(placements)) };
        fleet.traces.expect(Kind::ConfigMap, &format!("c-{number}"), wish);
    }
    let mark = version(placements);
    fleet
        .each(placements.len(), |at| {
            let (number, mark) = (placements[at], mark.clone());
            async move { fleet.mark(&fleet.hub, &namespace(number), &format!("c-{number}"), &mark).await }
        })
        .await?;
    fleet.traces.all_arrived(PATIENCE).await?;
    Ok(began.elapsed())
}

/// What is written when so many are changed at once.
fn version(placements: &[usize]) -> String {
    format!("version-{}", placements.len())
}

fn namespace(number: usize) -> String {
    format!("w5-{number}")
}

async fn place(fleet: &Fleet, clusters: usize, number: usize) -> Result<()> {
    let (group, namespace) = (number % GROUPS, namespace(number));
    let members = (0..clusters).filter(|it| it % GROUPS == group).count();
    let spec: Value = json!({
        "select": [{"kinds": ["Deployment", "ConfigMap"], "namespaces": [namespace]}],
        "clusters": {"selector": {"matchLabels": {GROUP_LABEL: group.to_string()}}},
        "strategy": "Duplicate",
    });
    fleet.namespace(&namespace).await?;
    fleet.placement(&namespace, &spec).await?;
    fleet.create(number, &config_map(&format!("c-{number}"), members).within(&namespace)).await?;
    fleet.create(number, &deployment(&format!("d-{number}"), 0, members, (0, 0)).within(&namespace)).await
}
