//! The page that a run leaves behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    time::Duration,
};

use crate::{
    aims::{self, Measure},
    api::{CONNECTIONS, PAYLOAD, Plan, WATCH_PAYLOAD},
    figures::{Figure, Latencies, ListKind, Operation, Repetition, Row, Sample, Spread, WatchSample},
    machine,
    servers::Subject,
    stages::STAGES,
};

/// All repetitions of each server.
pub struct Results<'a>(pub &'a BTreeMap<Subject, Vec<Repetition>>);

impl Results<'_> {
    fn repetitions(&self, subject: Subject) -> &[Repetition] {
        self.0.get(&subject).map_or(&[], Vec::as_slice)
    }

    fn samples(&self, subject: Subject, row: Row) -> impl Iterator<Item = &Sample> {
        self.repetitions(subject).iter().filter_map(move |repetition| repetition.samples.get(&row))
    }

    pub fn of_row(&self, subject: Subject, row: Row, take: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples(subject, row).map(take))
    }

    pub fn of_figure(&self, subject: Subject, figure: Figure) -> Option<Spread> {
        let figures = self.repetitions(subject).iter().filter_map(|found| found.figures.get(&figure));
        Spread::of(figures.copied())
    }

    fn of_watch(&self, subject: Subject, take: impl Fn(&WatchSample) -> f64) -> Option<Spread> {
        Spread::of(self.watches(subject).map(take))
    }

    fn watches(&self, subject: Subject) -> impl Iterator<Item = &WatchSample> {
        self.repetitions(subject).iter().filter_map(|repetition| repetition.watch.as_ref())
    }

    pub fn errors(&self, subject: Subject, row: Row) -> u64 {
        self.samples(subject, row).map(|sample| sample.errors.count).sum()
    }

    fn rows(&self) -> BTreeSet<Row> {
        self.0.values().flatten().flat_map(|repetition| repetition.samples.keys().copied()).collect()
    }
}

pub fn page(plan: &Plan, machine: &str, results: &BTreeMap<Subject, Vec<Repetition>>) -> String {
    let results = Results(results);
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, plan, machine, &results);
    page
}

fn write_page(page: &mut String, plan: &Plan, machine: &str, results: &Results) -> fmt::Result {
    writeln!(page, "# Hanse beside kube-apiserver + etcd\n")?;
    writeln!(
        page,
        "{}; {machine}. Client and server share the machine.\n",
        jiff::Timestamp::now().strftime("%F")
    )?;
    for subject in &plan.subjects {
        if let Some(repetition) = results.repetitions(*subject).first() {
            writeln!(page, "- {}: {}", subject.name(), repetition.version)?;
        }
    }
    writeln!(page, "\n## Aims\n")?;
    for line in aims::lines(results) {
        writeln!(page, "{line}")?;
    }
    let disturbed = |row: &Row| Subject::ALL.iter().any(|subject| is_disturbed(results, *subject, *row));
    let disturbed = results.rows().iter().filter(|row| disturbed(row)).count();
    if disturbed > 0 {
        writeln!(page, "\n† Other work on this machine disturbed {disturbed} rows: measure them again.")?;
    }
    writeln!(page, "\n## Requests\n\n{}\n", conditions(plan))?;
    write_requests(page, results)?;
    writeln!(page, "\n## Cost of a request\n\n{}\n", cost_notes(results))?;
    write_costs(page, results)?;
    write_stages(page, results)?;
    if results.0.values().flatten().any(|repetition| repetition.watch.is_some()) {
        write_watches(page, results)?;
    }
    write_figures(page, plan, results)?;
    write_failures(page, results)
}

fn conditions(plan: &Plan) -> String {
    format!(
        "{} ConfigMaps with {PAYLOAD} bytes of payload that does not compress, JSON, {CONNECTIONS} HTTP/2 \
         connections, closed loop, one client thread. {} with fresh data; where there are several: median \
         (lowest–highest). Ratios are hanse ÷ kube.",
        grouped(&plan.objects.to_string()),
        if plan.repetitions == 1 {
            "One repetition".to_owned()
        } else {
            format!("{} repetitions", plan.repetitions)
        },
    )
}

fn cost_notes(results: &Results) -> String {
    let samples = || results.0.values().flatten().flat_map(|repetition| repetition.samples.values());
    let steal = samples().map(|sample| share(sample.usage.steal, sample.usage.elapsed)).fold(0.0, f64::max);
    let mut text = format!(
        "CPU is that of all processes of a server, user and system. KiB written are those that \
         reached the disk, whoever wrote them. Client CPU is that of this benchmark. Other CPU is what the machine did besides, in percent of \
         all cores, interrupts included; † marks more than {DISTURBED} %, a row to measure again. The \
         hypervisor took at most {} % in any row.",
        number(steal)
    );
    let list = Row { operation: Operation::Many(ListKind::Consistent), workers: 1 };
    for subject in Subject::ALL {
        let size = results.of_row(subject, list, |sample| sample.per_operation(sample.received as f64));
        if let Some(size) = size {
            let mebibytes = number(size.median / 1024.0 / 1024.0);
            text.push_str(&format!(" A list of {} is {mebibytes} MiB.", subject.name()));
        }
    }
    text
}

/// Whether something else took enough of the machine, in any repetition, to make the row doubtful.
fn is_disturbed(results: &Results, subject: Subject, row: Row) -> bool {
    // The kernel counts in steps of 10 ms: too coarse to blame anyone in a shorter row.
    let mut samples = results.samples(subject, row).filter(|sample| sample.usage.elapsed.as_secs_f64() > 0.5);
    samples.any(|sample| other_share(sample) > DISTURBED)
}

fn other_share(sample: &Sample) -> f64 {
    share(sample.usage.other, sample.usage.elapsed)
}

/// In percent of all cores.
fn share(cpu: Duration, elapsed: Duration) -> f64 {
    100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64() / machine::cores() as f64
}

fn write_requests(page: &mut String, results: &Results) -> fmt::Result {
    header(
        page,
        &[
            "operation",
            "workers",
            "kube ops/s",
            "hanse ops/s",
            "rate ratio",
            "kube p50 ms",
            "hanse p50 ms",
            "kube p99 ms",
            "hanse p99 ms",
            "p99 ratio",
        ],
    )?;
    for row in results.rows() {
        let mut cells = vec![row.operation.to_string(), row.workers.to_string()];
        for subject in Subject::ALL {
            let mark = if results.errors(subject, row) > 0 { " ⚠" } else { "" };
            cells.push(format!("{}{mark}", spread(Measure::Rate.of(results, subject, row))));
        }
        cells.push(ratio(Measure::Rate.ratio(results, row)));
        cells.extend(Subject::ALL.map(|subject| median(Measure::P50.of(results, subject, row))));
        cells.extend(Subject::ALL.map(|subject| spread(Measure::P99.of(results, subject, row))));
        cells.push(ratio(Measure::P99.ratio(results, row)));
        line(page, &cells)?;
    }
    Ok(())
}

fn write_costs(page: &mut String, results: &Results) -> fmt::Result {
    header(
        page,
        &[
            "operation",
            "workers",
            "kube CPU µs/op",
            "hanse CPU µs/op",
            "CPU ratio",
            "kube KiB written/op",
            "hanse KiB written/op",
            "client CPU µs/op, kube",
            "hanse",
            "other CPU %, kube",
            "hanse",
        ],
    )?;
    for row in results.rows() {
        let of = |take: &dyn Fn(&Sample) -> f64| {
            Subject::ALL.map(|subject| median(results.of_row(subject, row, take)))
        };
        let mut cells = vec![row.operation.to_string(), row.workers.to_string()];
        cells.extend(Subject::ALL.map(|subject| spread(Measure::Cpu.of(results, subject, row))));
        cells.push(ratio(Measure::Cpu.ratio(results, row)));
        cells.extend(of(&|sample| {
            sample.per_operation(sample.usage.written.map_or(f64::NAN, |bytes| bytes as f64 / 1024.0))
        }));
        cells.extend(of(&|sample| sample.per_operation(sample.usage.client.as_secs_f64() * 1e6)));
        cells.extend(Subject::ALL.map(|subject| {
            let mark = if is_disturbed(results, subject, row) { " †" } else { "" };
            format!("{}{mark}", median(results.of_row(subject, row, other_share)))
        }));
        line(page, &cells)?;
    }
    Ok(())
}

/// Medians over the repetitions.
fn write_stages(page: &mut String, results: &Results) -> fmt::Result {
    let repetitions = results.repetitions(Subject::Hanse);
    let rows =
        results.rows().into_iter().filter(|row| repetitions.iter().any(|it| it.stages.contains_key(row)));
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        page,
        "\n## Cost of a write by stage\n\nInside of Hanse, µs of wall clock per write, as its own metrics say; `commit` \
         is until it is durable, and waits for others in the same batch.\n"
    )?;
    let columns: Vec<&str> = ["operation", "workers"].into_iter().chain(STAGES).collect();
    header(page, &columns)?;
    for row in rows {
        let mut cells = vec![row.operation.to_string(), row.workers.to_string()];
        for stage in 0..STAGES.len() {
            let mut spent: Vec<f64> =
                repetitions.iter().filter_map(|it| it.stages.get(&row).map(|all| all[stage])).collect();
            spent.sort_by(f64::total_cmp);
            cells.push(format!("{:.1}", spent[spent.len() / 2]));
        }
        line(page, &cells)?;
    }
    Ok(())
}

fn write_watches(page: &mut String, results: &Results) -> fmt::Result {
    let Some(first) = Subject::ALL.iter().find_map(|subject| results.watches(*subject).next()) else {
        return Ok(());
    };
    writeln!(
        page,
        "\n## Watch\n\n{} watchers of one namespace, {} writes/s wanted, {WATCH_PAYLOAD} bytes of payload. An \
         event that is there before the answer to its write counts as 0 ms after it.\n",
        first.watchers,
        number(first.wanted)
    )?;
    header(page, &["", "kube", "hanse", "ratio"])?;
    let quantiles: [Line<Latencies, f64>; 3] =
        [("p50", |of| of.quantile(0.5)), ("p99", |of| of.quantile(0.99)), ("max", Latencies::max)];
    let mut write = |name: &str, take: &dyn Fn(&WatchSample) -> f64| {
        compared(page, name, Subject::ALL.map(|subject| results.of_watch(subject, take)))
    };
    write("writes/s achieved", &|sample| sample.achieved)?;
    for (name, take) in quantiles {
        write(&format!("answer → event, {name} ms"), &|sample| take(&sample.after_answer))?;
    }
    for (name, take) in quantiles {
        write(&format!("request → event, {name} ms"), &|sample| take(&sample.after_request))?;
    }
    write("server CPU, µs per event", &|sample| {
        sample.usage.server.as_secs_f64() * 1e6 / sample.events as f64
    })?;
    write("client CPU, µs per event", &|sample| {
        sample.usage.client.as_secs_f64() * 1e6 / sample.events as f64
    })?;
    write("other CPU, % of all cores", &|sample| share(sample.usage.other, sample.usage.elapsed))?;
    let counts: [Line<WatchSample, u64>; 6] = [
        ("events", |sample| sample.events),
        ("lost", |sample| sample.lost),
        ("duplicate", |sample| sample.duplicate),
        ("reordered", |sample| sample.reordered),
        ("watches closed early and opened again", |sample| sample.closed),
        ("writes refused", |sample| sample.errors.count),
    ];
    for (name, take) in counts {
        let total = |subject| match results.watches(subject).count() {
            0 => ABSENT.to_owned(),
            _ => grouped(&results.watches(subject).map(take).sum::<u64>().to_string()),
        };
        line(
            page,
            &[format!("{name}, all repetitions"), total(Subject::Kube), total(Subject::Hanse), String::new()],
        )?;
    }
    Ok(())
}

fn write_figures(page: &mut String, plan: &Plan, results: &Results) -> fmt::Result {
    writeln!(page, "\n## Start and memory\n")?;
    header(page, &["", "kube", "hanse", "ratio"])?;
    let objects = grouped(&plan.objects.to_string());
    for (name, figure) in [
        ("start to /readyz, empty, ms".to_owned(), Figure::ReadyEmpty),
        (format!("start to /readyz, {objects} objects, ms"), Figure::ReadyLoaded),
        (
            "custom resource definition created to its first object created, ms".to_owned(),
            Figure::DefinitionToFirstObject,
        ),
        ("idle memory (RSS), MiB".to_owned(), Figure::IdleMemory),
        (format!("memory after {objects} creates, settled, MiB"), Figure::LoadedMemory),
        ("more per 10 000 ConfigMaps, MiB".to_owned(), Figure::GrowthPerTenThousand),
        ("idle CPU, percent of a core".to_owned(), Figure::IdleCpu),
    ] {
        compared(page, &name, Subject::ALL.map(|subject| results.of_figure(subject, figure)))?;
    }
    Ok(())
}

/// What was marked above, in words.
fn write_failures(page: &mut String, results: &Results) -> fmt::Result {
    let mut failures = Vec::new();
    for subject in Subject::ALL {
        let mut note = |text: String| failures.push(format!("{}, {}", subject.name(), one_line(&text)));
        for row in results.rows() {
            if let Some(first) = results.samples(subject, row).find_map(|sample| sample.errors.first.as_ref())
            {
                note(format!("{row}: {} failed, first: {first}", results.errors(subject, row)));
            }
        }
        for WatchSample { errors, lost, duplicate, reordered, .. } in results.watches(subject) {
            if let Some(first) = &errors.first {
                note(format!("watch: {} writes failed, first: {first}", errors.count));
            }
            if lost + duplicate + reordered > 0 {
                note(format!("watch: {lost} events lost, {duplicate} duplicate, {reordered} reordered"));
            }
        }
        for problem in results.repetitions(subject).iter().flat_map(|repetition| &repetition.problems) {
            note(problem.clone());
        }
    }
    if failures.is_empty() {
        return writeln!(page, "\nNo request failed.");
    }
    writeln!(page, "\n## ⚠ Errors\n\nA marked row counts only what succeeded.\n")?;
    failures.iter().try_for_each(|failure| writeln!(page, "- {failure}"))
}

const ABSENT: &str = "–";
/// In percent of all cores.
const DISTURBED: f64 = 5.0;

/// A line of a table: its name, and its number for one sample.
type Line<Sample, Number> = (&'static str, fn(&Sample) -> Number);

fn compared(page: &mut String, name: &str, [kube, hanse]: [Option<Spread>; 2]) -> fmt::Result {
    let quotient = Option::zip(hanse, kube).map(|(hanse, kube)| hanse.median / kube.median);
    line(
        page,
        &[name.to_owned(), spread(kube), spread(hanse), ratio(quotient.filter(|ratio| ratio.is_finite()))],
    )
}

fn header(page: &mut String, names: &[&str]) -> fmt::Result {
    writeln!(page, "| {} |", names.join(" | "))?;
    // Names to the left, numbers to the right.
    writeln!(page, "|---|{}", "--:|".repeat(names.len() - 1))
}

fn line(page: &mut String, cells: &[String]) -> fmt::Result {
    writeln!(page, "| {} |", cells.join(" | "))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| ABSENT.to_owned(), |ratio| format!("**{}**", number(ratio)))
}

fn median(spread: Option<Spread>) -> String {
    spread.map_or_else(|| ABSENT.to_owned(), |spread| number(spread.median))
}

fn spread(spread: Option<Spread>) -> String {
    let Some(Spread { median, low, high }) = spread else { return ABSENT.to_owned() };
    let (median, low, high) = (number(median), number(low), number(high));
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

/// Three digits or all before the point, thousands apart.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) =
        rest.split_once('.').map_or((rest, String::new()), |(whole, part)| (whole, format!(".{part}")));
    format!("{sign}{}{fraction}", grouped(whole))
}

/// Thousands apart.
fn grouped(digits: &str) -> String {
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(" ")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_what_can_be_read_off_them() {
        let shown = [0.0, 0.333, 9.99, 12.34, 123.4, 1234.5, 1_234_567.0, -1234.0].map(number);
        assert_eq!(shown, ["0.00", "0.33", "9.99", "12.3", "123", "1 234", "1 234 567", "-1 234"]);
    }

    #[test]
    fn a_spread_of_equal_numbers_is_one_number() {
        assert_eq!(spread(Spread::of([5.0, 5.001])), "5.00");
        assert_eq!(spread(Spread::of([1.0, 2.0, 4.0])), "2.00 (1.00–4.00)");
        assert_eq!(spread(None), ABSENT);
    }
}
