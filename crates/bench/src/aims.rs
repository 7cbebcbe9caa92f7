//! What Hanse aims at, and whether this run got there. An aim that is missed is reported, never an error.

use crate::{
    figures::{Figure, Operation, Row, Spread},
    objects::Verb,
    report::{Results, number},
    servers::Subject,
};

/// The aims for rates and latencies are meant at this concurrency.
const WORKERS: usize = 32;
const WRITES: [Verb; 7] = [
    Verb::Create,
    Verb::Update,
    Verb::MergePatch,
    Verb::StrategicPatch,
    Verb::Apply,
    Verb::ApplyUnchanged,
    Verb::Delete,
];
const READS: [Verb; 1] = [Verb::Get];

enum Verdict {
    Met,
    Missed,
    NotMeasured,
}

/// One line per aim.
pub fn lines(results: &Results) -> Vec<String> {
    let all = || WRITES.into_iter().chain(READS);
    vec![
        rows(results, "writes ≥ 5 × kube", WRITES, Measure::Rate, |ratio| ratio >= 5.0),
        rows(results, "reads ≥ 10 × kube", READS, Measure::Rate, |ratio| ratio >= 10.0),
        rows(results, "p99 ≤ ⅓ of kube's", all(), Measure::P99, |ratio| ratio <= 1.0 / 3.0),
        figure(results, "idle ≤ 40 MiB", Figure::IdleMemory, 40.0, "MiB"),
        figure(
            results,
            "≤ 30 MiB more per 10 000 ConfigMaps of 1 KiB",
            Figure::GrowthPerTenThousand,
            30.0,
            "MiB",
        ),
        figure(results, "ready ≤ 300 ms, empty", Figure::ReadyEmpty, 300.0, "ms"),
        figure(results, "ready ≤ 300 ms, with the objects", Figure::ReadyLoaded, 300.0, "ms"),
    ]
}

#[derive(Clone, Copy)]
pub enum Measure {
    Rate,
    P50,
    P99,
    /// Server CPU per operation.
    Cpu,
}

impl Measure {
    pub fn of(self, results: &Results, subject: Subject, row: Row) -> Option<Spread> {
        results.of_row(subject, row, |sample| match self {
            Self::Rate => sample.rate(),
            Self::P50 => sample.latencies.quantile(0.5),
            Self::P99 => sample.latencies.quantile(0.99),
            Self::Cpu => sample.per_operation(sample.usage.server.as_secs_f64() * 1e6),
        })
    }

    /// Hanse ÷ kube.
    pub fn ratio(self, results: &Results, row: Row) -> Option<f64> {
        let [kube, hanse] = Subject::ALL.map(|subject| self.of(results, subject, row));
        Some(hanse?.median / kube?.median).filter(|ratio| ratio.is_finite())
    }
}

/// An aim for several rows is met when each of them meets it, without an error.
fn rows(
    results: &Results,
    aim: &str,
    verbs: impl IntoIterator<Item = Verb>,
    measure: Measure,
    is_met: impl Fn(f64) -> bool,
) -> String {
    let mut verdict = Verdict::Met;
    let mut found = Vec::new();
    for verb in verbs {
        let row = Row { operation: Operation::One(verb), workers: WORKERS };
        let Some(ratio) = measure.ratio(results, row) else {
            return line(&Verdict::NotMeasured, &format!("{aim}, {WORKERS} workers"), "");
        };
        let failed = results.errors(Subject::Hanse, row) > 0;
        if failed || !is_met(ratio) {
            verdict = Verdict::Missed;
        }
        found.push(format!("{} {}{}", row.operation, number(ratio), if failed { " ⚠" } else { "" }));
    }
    line(&verdict, &format!("{aim}, {WORKERS} workers"), &found.join(", "))
}

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
