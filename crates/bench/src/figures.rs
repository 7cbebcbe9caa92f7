//! What is measured, before it is laid out: samples of rows, and single figures.

use std::{collections::BTreeMap, fmt, time::Duration};

use hdrhistogram::Histogram;

use crate::{
    machine::Usage,
    objects::{Kind, Verb},
    stages::PerWrite,
};

/// One line of a table of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// How many there are in the namespace that is worked on most.
    pub objects: usize,
    pub operation: Operation,
    pub workers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    One(Kind, Verb),
    Many(ListKind),
}

/// Ways to learn of all objects of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// No resourceVersion: as of now.
    Consistent,
    /// resourceVersion=0: whatever the server has at hand.
    Cached,
    /// Pages of 500 until the end.
    Paged,
    /// As an informer starts: list at resourceVersion=0, then open a watch from there.
    ListThenWatch,
    /// As a newer informer starts: a watch that sends the initial events, until the bookmark that ends them.
    InitialEvents,
}

impl ListKind {
    pub const ALL: [Self; 5] =
        [Self::Consistent, Self::Cached, Self::Paged, Self::ListThenWatch, Self::InitialEvents];
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::One(Kind::Pod, _) => "create a pod",
            Self::One(Kind::Thing, _) => "create a custom object",
            Self::One(Kind::ConfigMap, Verb::Create) => "create",
            Self::One(Kind::ConfigMap, Verb::Update) => "update (PUT)",
            Self::One(Kind::ConfigMap, Verb::MergePatch) => "merge patch",
            Self::One(Kind::ConfigMap, Verb::StrategicPatch) => "strategic merge patch",
            Self::One(Kind::ConfigMap, Verb::Apply) => "apply, new",
            Self::One(Kind::ConfigMap, Verb::ApplyUnchanged) => "apply, unchanged",
            Self::One(Kind::ConfigMap, Verb::Get) => "get",
            Self::One(Kind::ConfigMap, Verb::Delete) => "delete",
            Self::Many(ListKind::Consistent) => "list, consistent",
            Self::Many(ListKind::Cached) => "list, resourceVersion=0",
            Self::Many(ListKind::Paged) => "list, pages of 500, sum",
            Self::Many(ListKind::ListThenWatch) => "informer, list + watch",
            Self::Many(ListKind::InitialEvents) => "informer, sendInitialEvents",
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} objects, {}, {} worker{}",
            self.objects,
            self.operation,
            self.workers,
            if self.workers == 1 { "" } else { "s" }
        )
    }
}

/// A row, measured once.
pub struct Sample {
    /// Answered with 2xx, and as expected.
    pub operations: u64,
    /// The time they took together; the rate is what fits into it.
    pub timed: Duration,
    pub latencies: Latencies,
    /// Bytes of the answers' bodies.
    pub received: u64,
    pub errors: Errors,
    pub usage: Usage,
}

impl Sample {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.timed.as_secs_f64()
    }

    pub fn per_operation(&self, amount: f64) -> f64 {
        if self.operations == 0 { f64::NAN } else { amount / self.operations as f64 }
    }
}

/// 200 watchers on one stream of writes, measured once.
pub struct WatchSample {
    pub watchers: usize,
    /// Writes per second: wanted, and answered with 2xx.
    pub wanted: f64,
    pub achieved: f64,
    pub events: u64,
    /// From the answer to the write until a watcher has the event; 0 if the event was first.
    pub after_answer: Latencies,
    /// From sending the write until a watcher has the event.
    pub after_request: Latencies,
    pub lost: u64,
    pub duplicate: u64,
    pub reordered: u64,
    /// Watches that ended before their time, and were opened again where they ended.
    pub closed: u64,
    pub errors: Errors,
    pub usage: Usage,
}

/// A single number per repetition. Those with a number are about so many objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Milliseconds.
    ReadyEmpty,
    ReadyLoaded(usize),
    DefinitionToFirstObject,
    /// MiB.
    IdleMemory,
    LoadedMemory(usize),
    /// Bytes more than without objects, for each.
    BytesPerObject(usize),
    /// Percent of a core.
    IdleCpu,
    Crowd(Crowd, CrowdFigure),
}

/// Watchers that wait, and how they are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowd {
    /// Many streams on each connection, as clients with many informers are.
    Shared,
    /// A connection for each.
    Own,
}

impl Crowd {
    pub const ALL: [Self; 2] = [Self::Shared, Self::Own];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrowdFigure {
    Watchers,
    /// Watches opened per second.
    OpenedPerSecond,
    /// Server CPU, µs per watch that was opened.
    OpenCpu,
    /// KiB of resident memory per watcher, of the server.
    Memory,
    /// Percent of a core while nothing is written; bookmarks included.
    IdleCpu,
    /// Milliseconds from sending a write until half of the watchers have it, median over writes.
    HalfHaveIt,
    /// Until all have it: median and worst.
    AllHaveIt,
    AllHaveItWorst,
    /// Server CPU, µs per event.
    EventCpu,
    /// Watchers that missed an event, or got it twice.
    Wrong,
}

/// Everything one repetition found out about one server.
#[derive(Default)]
pub struct Repetition {
    /// As the server and its parts say.
    pub version: String,
    pub samples: BTreeMap<Row, Sample>,
    pub figures: BTreeMap<Figure, f64>,
    /// Of Hanse's writes: microseconds in each stage.
    pub stages: BTreeMap<Row, PerWrite>,
    pub watch: Option<WatchSample>,
    /// What could not be measured, and why.
    pub problems: Vec<String>,
}

/// Durations with three significant digits.
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_max(Self::LONGEST, 3).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Ten minutes; a longer one counts as this.
    const LONGEST: u64 = 600_000_000_000;

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// In milliseconds; not a number if nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.value_at_quantile(quantile) as f64 / 1e6 }
    }

    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }
}

/// How many requests failed, and how the first did.
#[derive(Debug, Clone, Default)]
pub struct Errors {
    pub count: u64,
    pub first: Option<String>,
}

impl Errors {
    pub fn add(&mut self, error: &dyn fmt::Display) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_string());
    }
}

/// One quantity over all repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// None without a single number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_between_the_extremes() {
        assert_eq!(
            Spread::of([3.0, f64::NAN, 1.0, 10.0]),
            Some(Spread { median: 3.0, low: 1.0, high: 10.0 })
        );
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn latencies_keep_three_digits() {
        let mut latencies = Latencies::default();
        assert!(latencies.quantile(0.5).is_nan());
        latencies.record(Duration::from_micros(1234));
        assert!((latencies.quantile(0.5) - 1.234).abs() < 0.002);
    }
}
