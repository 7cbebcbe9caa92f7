//! What Hanse aims at, and whether this run got there. An aim that is missed is reported, never an error.

use crate::{
    api::Plan,
    figures::{Crowd, CrowdFigure, Figure, ListKind, Operation, Row, Spread},
    objects::{Kind, Verb},
    report::{Results, grouped, number},
    servers::Subject,
};

/// The aims for rates and latencies are meant at this concurrency.
const WORKERS: usize = 32;
const WRITES: [Operation; 9] = [
    Operation::One(Kind::ConfigMap, Verb::Create),
    Operation::One(Kind::ConfigMap, Verb::Update),
    Operation::One(Kind::ConfigMap, Verb::MergePatch),
    Operation::One(Kind::ConfigMap, Verb::StrategicPatch),
    Operation::One(Kind::ConfigMap, Verb::Apply),
    Operation::One(Kind::ConfigMap, Verb::ApplyUnchanged),
    Operation::One(Kind::ConfigMap, Verb::Delete),
    Operation::One(Kind::Pod, Verb::Create),
    Operation::One(Kind::Thing, Verb::Create),
];
const GETS: [Operation; 1] = [Operation::One(Kind::ConfigMap, Verb::Get)];

enum Verdict {
    Met,
    Missed,
    NotMeasured,
}

/// One line per aim.
pub fn lines(plan: &Plan, results: &Results) -> Vec<String> {
    let lists = ListKind::ALL.map(Operation::Many);
    let ratios = |subject| Ratios { results, subject, objects: plan.objects };
    let on_etcd = ratios(Subject::HanseEtcd);
    let mut lines = Vec::new();
    // The same on either engine.
    for (on, ratios) in [("", ratios(Subject::Hanse)), ("on etcd: ", ratios(Subject::HanseEtcd))] {
        let mut aim = |aim: &str, operations: &[Operation], measure, is_met: fn(f64) -> bool| {
            lines.push(ratios.line(&format!("{on}{aim}"), operations.iter().copied(), measure, is_met));
        };
        aim("writes ≥ 5 × kube", &WRITES, Measure::Rate, |ratio| ratio >= 5.0);
        aim("reads ≥ 10 × kube", &GETS, Measure::Rate, |ratio| ratio >= 10.0);
        aim("p99 ≤ ⅓ of kube's", &[&WRITES[..], &GETS].concat(), Measure::P99, |ratio| {
            ratio <= 1.0 / 3.0
        });
        aim("lists ≥ 5 × kube", &lists, Measure::Rate, |ratio| ratio >= 5.0);
    }
    // Whatever etcd itself takes of each write, less than this is no gain.
    lines.extend([
        on_etcd
            .line("on etcd, at the least: writes ≥ 2 × kube", WRITES, Measure::Rate, |ratio| ratio >= 2.0),
        on_etcd.line("on etcd, at the least: reads ≥ 4 × kube", GETS, Measure::Rate, |ratio| ratio >= 4.0),
        figure(results, "idle ≤ 40 MiB", Figure::IdleMemory, 40.0, "MiB"),
        figure(results, "ready ≤ 300 ms, empty", Figure::ReadyEmpty, 300.0, "ms"),
        figure(results, "ready ≤ 300 ms, with the objects", Figure::ReadyLoaded(plan.objects), 300.0, "ms"),
    ]);
    for objects in [plan.objects].iter().chain(&plan.larger) {
        // 30 MiB more for 10 000 of them.
        let aim =
            format!("≤ 3 146 bytes more per ConfigMap of 1 KiB, {} of them", grouped(&objects.to_string()));
        lines.push(figure(results, &aim, Figure::BytesPerObject(*objects), 3146.0, "bytes"));
    }
    let crowd = |figure| Figure::Crowd(Crowd::Shared, figure);
    lines.push(figure(results, "≤ 16 KiB per idle watcher", crowd(CrowdFigure::Memory), 16.0, "KiB"));
    lines.push(figure(results, "idle watchers ≤ 5 % of a core", crowd(CrowdFigure::IdleCpu), 5.0, "%"));
    lines
}

#[derive(Clone, Copy)]
pub enum Measure {
    Rate,
    P50,
    P99,
    /// Server CPU per operation, µs.
    Cpu,
    /// Of this benchmark, µs per operation.
    ClientCpu,
    /// KiB that reached the disk, per operation.
    Written,
}

impl Measure {
    pub fn of(self, results: &Results, subject: Subject, row: Row) -> Option<Spread> {
        results.of_row(subject, row, |sample| match self {
            Self::Rate => sample.rate(),
            Self::P50 => sample.latencies.quantile(0.5),
            Self::P99 => sample.latencies.quantile(0.99),
            Self::Cpu => sample.per_operation(sample.usage.server.as_secs_f64() * 1e6),
            Self::ClientCpu => sample.per_operation(sample.usage.client.as_secs_f64() * 1e6),
            Self::Written => {
                sample.per_operation(sample.usage.written.map_or(f64::NAN, |bytes| bytes as f64 / 1024.0))
            }
        })
    }

    /// `subject` ÷ kube.
    pub fn ratio(self, results: &Results, subject: Subject, row: Row) -> Option<f64> {
        let kube = self.of(results, Subject::Kube, row)?;
        Some(self.of(results, subject, row)?.median / kube.median).filter(|ratio| ratio.is_finite())
    }
}

/// One server beside kube.
struct Ratios<'a> {
    results: &'a Results<'a>,
    subject: Subject,
    objects: usize,
}

impl Ratios<'_> {
    /// An aim for several rows is met when each of them meets it, without an error.
    fn line(
        &self,
        aim: &str,
        operations: impl IntoIterator<Item = Operation>,
        measure: Measure,
        is_met: impl Fn(f64) -> bool,
    ) -> String {
        let mut verdict = Verdict::Met;
        let mut found = Vec::new();
        for operation in operations {
            let workers = if matches!(operation, Operation::Many(_)) { 1 } else { WORKERS };
            let row = Row { objects: self.objects, operation, workers };
            let Some(ratio) = measure.ratio(self.results, self.subject, row) else {
                return line(&Verdict::NotMeasured, aim, "");
            };
            let failed = self.results.errors(self.subject, row) > 0;
            if failed || !is_met(ratio) {
                verdict = Verdict::Missed;
            }
            found.push(format!("{operation} {}{}", number(ratio), if failed { " ⚠" } else { "" }));
        }
        line(&verdict, aim, &found.join("; "))
    }
}

/// Of Hanse on its own engine alone: figures are of all processes of a server, and on etcd have etcd's own in them.
fn figure(results: &Results, aim: &str, figure: Figure, most: f64, unit: &str) -> String {
    let Some(found) = results.of_figure(Subject::Hanse, figure) else {
        return line(&Verdict::NotMeasured, aim, "");
    };
    let verdict = if found.median <= most { Verdict::Met } else { Verdict::Missed };
    line(&verdict, aim, &format!("{} {unit}", number(found.median)))
}

fn line(verdict: &Verdict, aim: &str, found: &str) -> String {
    match verdict {
        Verdict::Met => format!("- **met**: {aim}: {found}"),
        Verdict::Missed => format!("- **missed**: {aim}: {found}"),
        Verdict::NotMeasured => format!("- not measured: {aim}"),
    }
}
