//! Three real members, beside what Karmada was measured at with as many.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, json};
use tokio::time::sleep;

use super::{
    Options, Part,
    fleet::{Clusters, Fleet, Item, PATIENCE, WORKERS, config_map, deployment},
    page::{Aim, Section, in_seconds, milliseconds, rate, seconds},
    peers::{self, config_maps, deployments},
    traces::Times,
};
use crate::{machine::Usage, report::number};

const MEMBERS: usize = 3;
const REPLICAS: usize = 3;
const COLUMNS: [&str; 4] = ["", "Hanse", "Karmada, default", "Karmada, raised"];
/// Before and after a burst, so that nothing of something else is counted.
const CALM: Duration = Duration::from_secs(5);

/// Many at once.
struct Burst {
    count: usize,
    created: Duration,
    times: Times,
    usage: Usage,
    before: f64,
    after: f64,
    counted: String,
}

pub async fn run(hanse: &std::path::Path, options: &Options, sections: &mut Vec<Section>) -> Result<u64> {
    eprintln!("{MEMBERS} real members");
    let clusters = Clusters::real(MEMBERS, options.nodes)?;
    let mut fleet = Fleet::start(hanse, clusters).await?;
    fleet.join(|_| Map::new()).await?;
    let spec = json!({"select": [{"kinds": ["Deployment", "ConfigMap"]}], "strategy": "Duplicate"});
    fleet.placement("everywhere", &spec).await?;
    // Whatever is made once, such as the namespace in the members, is made before anything is measured.
    fleet.create_all(&[deployment_in_all("first"), config_map("first", MEMBERS)]).await?;
    fleet.traces.all_done(PATIENCE).await?;
    if options.has(Part::Unloaded) {
        sections.push(unloaded(&fleet, options.unloaded).await?);
    }
    if options.has(Part::Real) {
        let items: Vec<Item> =
            (0..options.deployments).map(|it| deployment_in_all(&format!("d-{it}"))).collect();
        sections.push(of_deployments(&burst(&fleet, &items).await?));
        let items: Vec<Item> =
            (0..options.config_maps).map(|it| config_map(&format!("c-{it}"), MEMBERS)).collect();
        sections.push(of_config_maps(&burst(&fleet, &items).await?));
    }
    Ok(fleet.traces.reopened())
}

fn deployment_in_all(name: &str) -> Item {
    // Of several whole copies the hub shows the one that is furthest behind.
    deployment(name, REPLICAS, MEMBERS, (REPLICAS, REPLICAS))
}

async fn unloaded(fleet: &Fleet, count: usize) -> Result<Section> {
    eprintln!("one at a time");
    fleet.traces.forget_all();
    let began = Instant::now();
    for number in 0..count {
        fleet.create(number, &deployment_in_all(&format!("u-{number}"))).await?;
        fleet.traces.all_done(PATIENCE).await?;
        sleep(Duration::from_millis(100)).await;
    }
    let all = fleet.traces.times(began);
    let mut section = Section::new(
        format!("One at a time → {MEMBERS} real members"),
        format!(
            "{count} Deployments of {REPLICAS} replicas, each made when all of the last one is over. {}.",
            peers::KARMADA
        ),
        &COLUMNS,
    );
    section.row(
        "in all members, p50 / p90 / p99, ms",
        &[&milliseconds(&all.arrived), &format!("{} at best", peers::KARMADA_FIRST), "–"],
    );
    section.row("status back, p50 / p90 / p99, ms", &[&milliseconds(&all.summed_up), "–", "–"]);
    section.row(
        "status after the last member was ready, p50 / p90 / p99, ms",
        &[&milliseconds(&all.lag), "–", "–"],
    );
    section.aims = vec![
        Aim::at_most("in all members when nothing else happens, p50", all.arrived.quantile(0.5), 100.0, "ms"),
        Aim::at_most(
            "in all members when nothing else happens, p99",
            all.arrived.quantile(0.99),
            300.0,
            "ms",
        ),
        Aim::at_most("status after the last member was ready, p99", all.lag.quantile(0.99), 300.0, "ms"),
    ];
    Ok(section)
}

async fn burst(fleet: &Fleet, items: &[Item]) -> Result<Burst> {
    eprintln!("{} at once", items.len());
    fleet.traces.forget_all();
    sleep(CALM).await;
    let (before, counted) = (fleet.resident()?, fleet.metrics().await?);
    let (began, reading) = (Instant::now(), fleet.reading()?);
    let created = fleet.create_all(items).await?;
    fleet.traces.all_done(PATIENCE).await?;
    let times = fleet.traces.times(began);
    // What it costs to hear of pods that come up late is part of it.
    sleep(CALM).await;
    let usage = reading.until(fleet.reading()?);
    let spent = fleet.metrics().await?.since(&counted);
    let of = |name: &str| number(spent.get(name).copied().unwrap_or(0.0) / items.len() as f64);
    let counted = format!(
        "{} decisions, {} writes of Assignments and sums, {} writes to members, {} reports",
        of("hanse_placement_decisions_total"),
        of("hanse_placement_writes_total"),
        of("hanse_copy_writes_total"),
        of("hanse_copy_reports_total"),
    );
    Ok(Burst { count: items.len(), created, times, usage, before, after: fleet.resident()?, counted })
}

impl Burst {
    /// Milliseconds.
    fn cpu(&self) -> f64 {
        self.usage.server.as_secs_f64() * 1000.0 / self.count as f64
    }

    fn rate(&self) -> f64 {
        rate(self.count, self.times.all_arrived)
    }

    /// For the columns: nothing to itself, then how many times each of the others.
    fn ratios(&self, others: [f64; 2]) -> [String; 3] {
        let [default, raised] = others.map(|other| number(self.rate() / other));
        ["–".to_owned(), default, raised]
    }

    fn written(&self) -> String {
        self.usage.written.map_or_else(|| "–".to_owned(), |bytes| number(bytes as f64 / 1024.0 / 1024.0))
    }

    fn busy(&self) -> String {
        let busy = self.usage.server + self.usage.client + self.usage.other;
        let cores = crate::machine::cores() as f64 * self.usage.elapsed.as_secs_f64();
        format!("{:.0} %", busy.as_secs_f64() * 100.0 / cores)
    }

    /// Of what was busy, the hub's part.
    fn share(&self) -> f64 {
        let busy = self.usage.server + self.usage.client + self.usage.other;
        self.usage.server.as_secs_f64() / busy.as_secs_f64()
    }

    /// Whether most of the machine went to others.
    fn members_are_the_limit(&self) -> bool {
        self.share() < 0.5
    }

    /// What was busy, and with whom.
    fn busyness(&self) -> String {
        let limit = if self.members_are_the_limit() { "members and the client are" } else { "it is" };
        let (busy, share) = (self.busy(), self.share() * 100.0);
        format!("{busy} of the machine was busy, {share:.0} % of that with the hub: {limit} the limit")
    }

    /// The aim is for the hub alone.
    fn rate_aim(&self, what: &str, best: [f64; 2]) -> Option<Aim> {
        (!self.members_are_the_limit()).then(|| Aim::times(what, self.rate(), best[1], 20.0))
    }
}

fn of_deployments(burst: &Burst) -> Section {
    let mut section = Section::new(
        format!("{} Deployments × {REPLICAS} replicas → {MEMBERS} real members", burst.count),
        format!(
            "Made by {WORKERS} workers at once; one Placement duplicates them to all members, which start pods on the same \
             cores. {}. What the hub does where members are not the limit is seen below, with simulated ones.",
            burst.busyness()
        ),
        &COLUMNS,
    );
    let times = &burst.times;
    section.beside("made in the hub, /s", &number(rate(burst.count, burst.created)), &deployments::CREATED);
    section.beside("in all members, p50 / p90 / p99, s", &seconds(&times.arrived), &deployments::ARRIVED);
    section.beside("all in all members, s", &in_seconds(times.all_arrived), &deployments::ALL_ARRIVED);
    section.beside("that is, /s", &number(burst.rate()), &deployments::RATE);
    section.row(
        "times as fast as Karmada",
        &burst.ratios(deployments::BEST_RATE).each_ref().map(String::as_str),
    );
    section.beside("status back, p50 / p90 / p99, s", &seconds(&times.summed_up), &deployments::SUMMED_UP);
    section.beside("all with status, s", &in_seconds(times.all_summed_up), &deployments::ALL_SUMMED_UP);
    section.beside(
        "status after the last member was ready, p50 / p90 / p99, s",
        &seconds(&times.lag),
        &deployments::LAG,
    );
    section.beside("control-plane CPU for each, ms", &number(burst.cpu()), &deployments::CPU);
    section.beside("memory idle, MiB", &number(burst.before), &deployments::IDLE);
    section.beside("memory afterwards, MiB", &number(burst.after), &deployments::AFTER);
    section.beside("written to the disk, members included, MiB", &burst.written(), &deployments::WRITTEN);
    section.row("for each Deployment", &[&burst.counted, "–", "–"]);
    section.aims.push(Aim::at_most(
        &format!("control-plane CPU for each Deployment on {MEMBERS} members"),
        burst.cpu(),
        10.0,
        "ms",
    ));
    section.aims.push(Aim::at_most(
        "status after the last member was ready, in the burst, p99",
        times.lag.quantile(0.99),
        300.0,
        "ms",
    ));
    section.aims.extend(
        burst.rate_aim("Deployments on real members, to Karmada's raised rate,", deployments::BEST_RATE),
    );
    section
}

fn of_config_maps(burst: &Burst) -> Section {
    let mut section = Section::new(
        format!("{} ConfigMaps → {MEMBERS} real members", crate::report::grouped(&burst.count.to_string())),
        format!("1 KiB each, by {WORKERS} workers at once. {}.", burst.busyness()),
        &COLUMNS,
    );
    let none = peers::Karmada { default: "–", raised: "–" };
    section.beside("made in the hub, /s", &number(rate(burst.count, burst.created)), &none);
    section.beside(
        "in all members, p50 / p90 / p99, s",
        &seconds(&burst.times.arrived),
        &config_maps::ARRIVED,
    );
    section.beside("all in all members, s", &in_seconds(burst.times.all_arrived), &config_maps::ALL_ARRIVED);
    section.beside("that is, /s", &number(burst.rate()), &config_maps::RATE);
    section.row(
        "times as fast as Karmada",
        &burst.ratios(config_maps::BEST_RATE).each_ref().map(String::as_str),
    );
    section.beside("control-plane CPU for each, ms", &number(burst.cpu()), &config_maps::CPU);
    section.beside("memory afterwards, MiB", &number(burst.after), &config_maps::AFTER);
    section.beside("written to the disk, members included, MiB", &burst.written(), &none);
    section.row("for each ConfigMap", &[&burst.counted, "–", "–"]);
    section.aims.extend(
        burst.rate_aim("ConfigMaps on real members, to Karmada's raised rate,", config_maps::BEST_RATE),
    );
    section
}
