//! Everything at once: objects that are there before any cluster is, an edit in the middle of it, and a restart.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::{Map, json};
use tokio::time::sleep;

use super::{
    Options, Part,
    fleet::{Clusters, Fleet, NAMESPACE, PATIENCE, config_map, deployment},
    page::{Aim, Section, begin, in_seconds, milliseconds, rate},
    peers,
    restart::{Changed, restart},
    traces::{Kind, Wish},
};
use crate::{
    figures::Latencies,
    report::{grouped, number},
};

const MEMBERS: usize = 2;
/// Objects that are changed while others wait.
const EDITS: usize = 5;
/// ConfigMaps that are changed in members while the hub is down.
const CHANGED: usize = 20;

/// One of these loads.
pub struct Load {
    part: Part,
    count: usize,
    replicas: usize,
    beside: &'static str,
    /// How long that took whoever published it, in seconds.
    published: f64,
    edits: bool,
}

/// Those that were asked for.
pub fn loads(options: &Options) -> Vec<Load> {
    let loads = [
        Load {
            part: Part::W3,
            count: options.w3,
            replicas: 1,
            beside: peers::W3,
            published: 240.0,
            edits: false,
        },
        Load {
            part: Part::W4,
            count: options.w4,
            replicas: options.w4_replicas,
            beside: peers::W4,
            published: 300.0,
            edits: options.has(Part::W7),
        },
    ];
    // An edit needs the backlog of W4.
    loads.into_iter().filter(|load| options.has(load.part) || load.edits).collect()
}

impl Load {
    pub fn name(&self) -> &'static str {
        match self.part {
            Part::W3 => "w3",
            _ => "w4, w7",
        }
    }
}

pub async fn cold(hanse: &Path, load: &Load, sections: &mut Vec<Section>) -> Result<u64> {
    let Load { part, count, replicas, .. } = *load;
    let count_text = grouped(&count.to_string());
    eprintln!("{part:?}: {count} of each");
    let nodes = (count * replicas).div_ceil(100) + 1;
    let mut fleet = Fleet::start(hanse, Clusters::simulated(MEMBERS, nodes).await?).await?;
    let edits = if load.edits { format!(" W7: {}.", peers::W7) } else { String::new() };
    let section = begin(
        sections,
        Section::new(
            format!(
                "{part:?}: {count_text} Deployments, ConfigMaps and Placements → {MEMBERS} simulated members"
            ),
            format!(
                "Each Deployment (replicas: {replicas}) and its ConfigMap of 1 KiB have a Placement of their own that duplicates \
             them. They are made before any cluster is joined; the time begins when the clusters are joined. Beside it: \
             {}.{edits}",
                load.beside
            ),
            &["", "Hanse"],
        ),
    );
    let reading = fleet.reading()?;
    let created = fleet.each(count, |number| make(&fleet, number, replicas)).await?;
    // Whatever is decided while there are no clusters is over before they come.
    fleet.at_rest(0).await?;
    let usage = reading.until(fleet.reading()?);
    section.row("made in the hub, objects/s", &[&number(rate(count * 3, created))]);
    section.row(
        "CPU of the hub for each object made, ms",
        &[&number(usage.server.as_secs_f64() * 1000.0 / (count * 3) as f64)],
    );
    section.row("memory of the hub, MiB", &[&number(fleet.resident()?)]);
    let (began, reading) = (Instant::now(), fleet.reading()?);
    fleet.join(|_| Map::new()).await?;
    if load.edits {
        edit(&fleet, count, section).await?;
    }
    fleet.traces.all_done(PATIENCE).await?;
    let (found, usage) = (fleet.traces.times(began), reading.until(fleet.reading()?));
    let copies = count * 2 * MEMBERS;
    section.row("all in both members after, s", &[&in_seconds(found.all_arrived)]);
    section.row("all with their status back after, s", &[&in_seconds(found.all_summed_up)]);
    section.row("copies in members, /s", &[&number(rate(copies, found.all_arrived))]);
    section.row(
        "CPU of the hub for each copy, ms",
        &[&number(usage.server.as_secs_f64() * 1000.0 / copies as f64)],
    );
    section.row("memory of the hub afterwards, MiB", &[&number(fleet.resident()?)]);
    fleet.at_rest(copies).await?;
    let changed: Vec<Changed> = (0..CHANGED.min(count))
        .map(|at| Changed {
            namespace: NAMESPACE.to_owned(),
            name: name(at * count / CHANGED.min(count)),
            member: at % MEMBERS,
            mark: "0".to_owned(),
        })
        .filter(|it| !load.edits || !edited(count).contains(&it.name))
        .collect();
    let settled = restart(&mut fleet, &changed, section).await?;
    let [_, best] = peers::config_maps::BEST_RATE;
    let what = format!("{part:?}: objects in both members, to Karmada's raised rate of ConfigMaps on 3,");
    section.aims.push(Aim::times(&what, rate(count * 2, found.all_arrived), best, 20.0));
    let what = format!("{part:?}: {count_text} workloads in both members with their status back after");
    section.aims.push(Aim::at_most(&what, found.all_summed_up.as_secs_f64(), load.published, "s"));
    if part == Part::W4 {
        let what = format!("restart with {count_text} workloads, settled after");
        section.aims.push(Aim::at_most(&what, settled.seconds, 30.0, "s"));
    }
    Ok(fleet.traces.reopened())
}

fn name(number: usize) -> String {
    format!("cold-{number}")
}

/// Those that are changed in the middle of it: early and late ones.
fn edited(count: usize) -> Vec<String> {
    (1..=EDITS.min(count)).map(|at| name(at * count / (EDITS + 1))).collect()
}

async fn make(fleet: &Fleet, number: usize, replicas: usize) -> Result<()> {
    let name = name(number);
    let selection = json!({
        "kinds": ["Deployment", "ConfigMap"], "namespaces": [NAMESPACE], "labelSelector": {"matchLabels": {"app": name}},
    });
    fleet.placement(&name, &json!({"select": [selection], "strategy": "Duplicate"})).await?;
    fleet.create(number, &config_map(&name, MEMBERS)).await?;
    fleet.create(number, &deployment(&name, replicas, MEMBERS, (replicas, replicas))).await
}

/// When a tenth has arrived, some objects are changed, one after the other.
async fn edit(fleet: &Fleet, count: usize, section: &mut Section) -> Result<()> {
    let began = Instant::now();
    while fleet.traces.under_way() > count * 2 * 9 / 10 {
        ensure!(began.elapsed() < PATIENCE, "hardly anything arrives");
        sleep(Duration::from_millis(5)).await;
    }
    let mut latencies = Latencies::default();
    for name in edited(count) {
        let wish = Wish { members: MEMBERS, ready: None, mark: Some("edited".to_owned()) };
        fleet.traces.expect(Kind::ConfigMap, &name, wish);
        let sent = Instant::now();
        fleet.mark(&fleet.hub, NAMESPACE, &name, "edited").await?;
        while !fleet.traces.has_arrived(Kind::ConfigMap, &name) {
            ensure!(sent.elapsed() < PATIENCE, "an edit does not arrive");
            sleep(Duration::from_millis(2)).await;
        }
        latencies.record(sent.elapsed());
    }
    let waiting = number(fleet.traces.under_way() as f64);
    section.row(
        "W7: an edit in the middle of it, until both members have it, p50 / p90 / p99, ms",
        &[&milliseconds(&latencies)],
    );
    section.row("W7: objects that still waited after the edits", &[&waiting]);
    section.aims.push(Aim::at_most(
        "W7: an edit while others wait, until both members have it, the slowest,",
        latencies.max(),
        1000.0,
        "ms",
    ));
    Ok(())
}
