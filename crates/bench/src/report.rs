//! The page that a run leaves behind: aims, one table per part, details, errors.

mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
    time::Duration,
};

use crate::{
    aims::{self, Measure},
    api::{CONNECTIONS, PAYLOAD, Part, Plan, UPDATED_SHARE, WATCH_PAYLOAD},
    figures::{
        Crowd, CrowdFigure, Figure, Latencies, ListKind, Operation, Repetition, Row, Sample, Spread,
        WatchSample,
    },
    machine,
    servers::Subject,
    setting,
    stages::STAGES,
};
use table::{ABSENT, Table};
pub use table::{grouped, header, line, number};

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
    let mut report = Report {
        plan,
        results: Results(results),
        table: Table { subjects: &plan.subjects },
        page: String::new(),
    };
    // Writing to a string does not fail.
    let _ = report.write(machine);
    report.page
}

struct Report<'a> {
    plan: &'a Plan,
    results: Results<'a>,
    table: Table<'a>,
    page: String,
}

impl Report<'_> {
    fn write(&mut self, machine: &str) -> fmt::Result {
        self.head(machine)?;
        let objects = self.plan.objects;
        if self.plan.has(Part::Writes) {
            self.section("Requests", &self.conditions())?;
            self.requests(&["operation", "workers"], |row| {
                let one = row.objects == objects && matches!(row.operation, Operation::One(..));
                one.then(|| vec![row.operation.to_string(), row.workers.to_string()])
            })?;
        }
        if self.plan.has(Part::Lists) {
            self.section("Lists", &self.list_conditions())?;
            self.requests(&["operation"], |row| {
                let many = row.objects == objects && matches!(row.operation, Operation::Many(..));
                many.then(|| vec![row.operation.to_string()])
            })?;
        }
        self.watch()?;
        self.crowds()?;
        self.series()?;
        self.memory()?;
        self.stages()?;
        self.details()?;
        self.failures()
    }

    fn head(&mut self, machine: &str) -> fmt::Result {
        writeln!(self.page, "# Hanse beside kube-apiserver + etcd\n")?;
        writeln!(
            self.page,
            "{}; {machine}. Client and server share the machine.\n",
            jiff::Timestamp::now().strftime("%F")
        )?;
        for subject in self.table.subjects {
            if let Some(repetition) = self.results.repetitions(*subject).first() {
                writeln!(self.page, "- {}: {}", subject.name(), repetition.version)?;
            }
        }
        writeln!(self.page, "\nSwitched on in each of them: {}.", setting::IN_WORDS)?;
        writeln!(self.page, "\n## Aims\n")?;
        for line in aims::lines(self.plan, &self.results) {
            writeln!(self.page, "{line}")?;
        }
        let disturbed = self.results.rows().into_iter().filter(|row| self.is_disturbed(*row)).count();
        if disturbed > 0 {
            writeln!(
                self.page,
                "\n† Other work on this machine disturbed {disturbed} rows: measure them again."
            )?;
        }
        Ok(())
    }

    fn section(&mut self, title: &str, notes: &str) -> fmt::Result {
        writeln!(self.page, "\n## {title}\n\n{notes}\n")
    }

    fn conditions(&self) -> String {
        format!(
            "{} ConfigMaps with {PAYLOAD} bytes of payload that does not compress, JSON, {CONNECTIONS} HTTP/2 \
             connections, closed loop, one client thread. {} with fresh data; where there are several: median \
             (lowest–highest). Rates are per second; p99 in ms; CPU in µs per request, of all processes of a \
             server.",
            grouped(&self.plan.objects.to_string()),
            if self.plan.repetitions == 1 {
                "One repetition".to_owned()
            } else {
                format!("{} repetitions", self.plan.repetitions)
            },
        )
    }

    fn list_conditions(&self) -> String {
        let mut text = format!(
            "Of a namespace with {} ConfigMaps, one after the other. The clock runs while the server works and the \
             answer arrives, not while the client reads it.",
            grouped(&self.plan.objects.to_string())
        );
        let operation = Operation::Many(ListKind::Consistent);
        let row = Row { objects: self.plan.objects, operation, workers: 1 };
        for subject in self.table.subjects {
            let size =
                self.results.of_row(*subject, row, |sample| sample.per_operation(sample.received as f64));
            if let Some(size) = size {
                let mebibytes = number(size.median / 1024.0 / 1024.0);
                text.push_str(&format!(" A list of {} is {mebibytes} MiB.", subject.name()));
            }
        }
        text
    }

    /// One line for each row that `labels` has a name for.
    fn requests(&mut self, heads: &[&str], labels: impl Fn(Row) -> Option<Vec<String>>) -> fmt::Result {
        let table = self.table;
        let mut names: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        names.extend(table.columns("/s"));
        names.extend(table.subjects.iter().map(|subject| format!("p99 {}", subject.name())));
        names.extend(table.subjects.iter().map(|subject| format!("CPU {}", subject.name())));
        header(&mut self.page, &names)?;
        for row in self.results.rows() {
            let Some(mut cells) = labels(row) else { continue };
            let results = &self.results;
            let mut rates = table.cells(|subject| Measure::Rate.of(results, subject, row));
            for (cell, subject) in rates.iter_mut().zip(table.subjects) {
                if results.errors(*subject, row) > 0 {
                    cell.push_str(" ⚠");
                }
            }
            cells.extend(rates);
            cells.extend(table.medians(|subject| Measure::P99.of(results, subject, row)));
            cells.extend(table.medians(|subject| Measure::Cpu.of(results, subject, row)));
            if self.is_disturbed(row)
                && let Some(first) = cells.first_mut()
            {
                first.push_str(" †");
            }
            line(&mut self.page, &cells)?;
        }
        Ok(())
    }

    /// Whether something else took enough of the machine, in any repetition, to make the row doubtful.
    fn is_disturbed(&self, row: Row) -> bool {
        let samples = self.table.subjects.iter().flat_map(|subject| self.results.samples(*subject, row));
        // The kernel counts in steps of 10 ms: too coarse to blame anyone in a shorter row.
        let mut long = samples.filter(|sample| sample.usage.elapsed.as_secs_f64() > 0.5);
        long.any(|sample| other_share(sample) > DISTURBED)
    }

    fn watch(&mut self) -> fmt::Result {
        let table = self.table;
        let Some(first) = table.subjects.iter().find_map(|subject| self.results.watches(*subject).next())
        else {
            return Ok(());
        };
        let notes = format!(
            "{} watchers of one namespace, {} writes/s wanted, {WATCH_PAYLOAD} bytes of payload. An event that is \
             there before the answer to its write counts as 0 ms after it.",
            first.watchers,
            number(first.wanted)
        );
        self.section("Watch", &notes)?;
        self.unnamed_header()?;
        let (page, results) = (&mut self.page, &self.results);
        let mut write = |name: String, take: &dyn Fn(&WatchSample) -> f64| {
            let mut cells = vec![name];
            cells.extend(table.cells(|subject| results.of_watch(subject, take)));
            line(page, &cells)
        };
        let quantiles: [Quantile; 3] =
            [("p50", |of| of.quantile(0.5)), ("p99", |of| of.quantile(0.99)), ("max", Latencies::max)];
        write("writes/s achieved".to_owned(), &|sample| sample.achieved)?;
        for (name, take) in quantiles {
            write(format!("answer → event, {name} ms"), &|sample| take(&sample.after_answer))?;
        }
        for (name, take) in quantiles {
            write(format!("request → event, {name} ms"), &|sample| take(&sample.after_request))?;
        }
        write("server CPU, µs per event".to_owned(), &|sample| {
            sample.usage.server.as_secs_f64() * 1e6 / sample.events as f64
        })?;
        write("client CPU, µs per event".to_owned(), &|sample| {
            sample.usage.client.as_secs_f64() * 1e6 / sample.events as f64
        })?;
        write("other CPU, % of all cores".to_owned(), &|sample| {
            share(sample.usage.other, sample.usage.elapsed)
        })?;
        self.watch_counts()
    }

    fn watch_counts(&mut self) -> fmt::Result {
        let counts: [Count; 6] = [
            ("events", |sample| sample.events),
            ("lost", |sample| sample.lost),
            ("duplicate", |sample| sample.duplicate),
            ("reordered", |sample| sample.reordered),
            ("watches closed early and opened again", |sample| sample.closed),
            ("writes refused", |sample| sample.errors.count),
        ];
        let width = self.table.columns("").len();
        for (name, take) in counts {
            let mut cells = vec![format!("{name}, all repetitions")];
            cells.extend(self.table.subjects.iter().map(
                |subject| match self.results.watches(*subject).count() {
                    0 => ABSENT.to_owned(),
                    _ => grouped(&self.results.watches(*subject).map(take).sum::<u64>().to_string()),
                },
            ));
            cells.resize(width + 1, String::new());
            line(&mut self.page, &cells)?;
        }
        Ok(())
    }

    fn crowds(&mut self) -> fmt::Result {
        if !self.plan.has(Part::Watchers) {
            return Ok(());
        }
        self.section(
            "Watchers that wait",
            "Measured once. Memory is what the server has more than before the first of them, CPU while they wait \
             includes bookmarks. Then one object after the other is created, each when everybody has seen the one \
             before; times are from sending the write until its event has reached half of them, and all.",
        )?;
        self.unnamed_header()?;
        for crowd in Crowd::ALL {
            let load = self.plan.crowds.iter().find(|load| load.crowd == crowd);
            let who = format!(
                "{} {}",
                grouped(&load.map_or(0, |load| load.watchers).to_string()),
                match crowd {
                    Crowd::Shared => "on shared connections",
                    Crowd::Own => "each on its own connection",
                }
            );
            for (name, figure) in [
                ("KiB per watcher", CrowdFigure::Memory),
                ("CPU while they wait, % of a core", CrowdFigure::IdleCpu),
                ("opened/s", CrowdFigure::OpenedPerSecond),
                ("CPU to open one, µs", CrowdFigure::OpenCpu),
                ("half have an event after, ms", CrowdFigure::HalfHaveIt),
                ("all have an event after, ms", CrowdFigure::AllHaveIt),
                ("all have an event after, worst, ms", CrowdFigure::AllHaveItWorst),
                ("CPU per event, µs", CrowdFigure::EventCpu),
                ("events lost or twice", CrowdFigure::Wrong),
            ] {
                self.figure(format!("{who}: {name}"), Figure::Crowd(crowd, figure))?;
            }
        }
        Ok(())
    }

    fn series(&mut self) -> fmt::Result {
        if !self.plan.has(Part::Series) || self.plan.larger.is_empty() {
            return Ok(());
        }
        let notes = format!(
            "As above with more ConfigMaps, measured once: all are created, the server is restarted, objects are \
             read, one in {UPDATED_SHARE} is updated. {} workers for one object, one for lists.",
            self.plan.most_workers()
        );
        self.section("More objects", &notes)?;
        let larger = self.plan.larger.clone();
        self.requests(&["operation", "objects"], |row| {
            let objects = grouped(&row.objects.to_string());
            larger.contains(&row.objects).then(|| vec![row.operation.to_string(), objects])
        })
    }

    fn memory(&mut self) -> fmt::Result {
        let mut sizes = vec![];
        if self.plan.has(Part::Memory) {
            sizes.push(self.plan.objects);
        }
        if self.plan.has(Part::Series) {
            sizes.extend(&self.plan.larger);
        }
        if sizes.is_empty() {
            return Ok(());
        }
        self.section(
            "Start and memory",
            "Memory is resident (RSS), of all processes of a server, some seconds after the last request.",
        )?;
        self.unnamed_header()?;
        if self.plan.has(Part::Memory) {
            self.figure("idle memory, MiB".to_owned(), Figure::IdleMemory)?;
            self.figure("idle CPU, percent of a core".to_owned(), Figure::IdleCpu)?;
            self.figure("start to /readyz, empty, ms".to_owned(), Figure::ReadyEmpty)?;
        }
        for size in &sizes {
            let objects = grouped(&size.to_string());
            self.figure(format!("start to /readyz, {objects} objects, ms"), Figure::ReadyLoaded(*size))?;
            self.figure(format!("memory with {objects} objects, MiB"), Figure::LoadedMemory(*size))?;
            self.figure(format!("bytes more per object, {objects} objects"), Figure::BytesPerObject(*size))?;
        }
        if self.plan.has(Part::Writes) {
            let name = "custom resource definition created to its first object created, ms".to_owned();
            self.figure(name, Figure::DefinitionToFirstObject)?;
        }
        Ok(())
    }

    fn unnamed_header(&mut self) -> fmt::Result {
        let mut names = vec![String::new()];
        names.extend(self.table.columns(""));
        header(&mut self.page, &names)
    }

    fn figure(&mut self, name: String, figure: Figure) -> fmt::Result {
        let mut cells = vec![name];
        cells.extend(self.table.cells(|subject| self.results.of_figure(subject, figure)));
        line(&mut self.page, &cells)
    }

    /// Medians over the repetitions.
    fn stages(&mut self) -> fmt::Result {
        for subject in [Subject::Hanse, Subject::HanseEtcd] {
            let repetitions = self.results.repetitions(subject);
            let of_row = |row: Row| repetitions.iter().filter_map(move |it| it.stages.get(&row));
            let rows = self.results.rows().into_iter().filter(|row| row.objects == self.plan.objects);
            let rows: Vec<Row> = rows.filter(|row| of_row(*row).next().is_some()).collect();
            if rows.is_empty() {
                continue;
            }
            let (page, name) = (&mut self.page, subject.name());
            writeln!(
                page,
                "\n## Cost of a write by stage: {name}\n\nInside of Hanse, µs of wall clock per write, as its own \
                 metrics say; `commit` is until it is durable, and waits for others in the same batch.\n"
            )?;
            let names = ["operation", "workers"].into_iter().chain(STAGES).map(str::to_owned);
            header(page, &names.collect::<Vec<_>>())?;
            for row in rows {
                let mut cells = vec![row.operation.to_string(), row.workers.to_string()];
                for stage in 0..STAGES.len() {
                    let spent = Spread::of(of_row(row).map(|all| all[stage]));
                    cells.push(format!("{:.1}", spent.map_or(f64::NAN, |spent| spent.median)));
                }
                line(page, &cells)?;
            }
        }
        Ok(())
    }

    fn details(&mut self) -> fmt::Result {
        let rows = self.results.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let samples = || self.results.0.values().flatten().flat_map(|repetition| repetition.samples.values());
        let steal =
            samples().map(|sample| share(sample.usage.steal, sample.usage.elapsed)).fold(0.0, f64::max);
        let notes = format!(
            "Medians: p50 in ms; KiB per request that reached the disk, whoever wrote them; µs of CPU per request of \
             this benchmark; and the most that the machine did besides, in percent of all cores, interrupts included. \
             † marks more than {DISTURBED} %, a row to measure again. The hypervisor took at most {} % in any row.",
            number(steal)
        );
        self.section("Details", &notes)?;
        let table = self.table;
        let mut names: Vec<String> = ["operation", "objects", "workers"].map(str::to_owned).to_vec();
        for unit in ["p50", "KiB", "client"] {
            names.extend(table.subjects.iter().map(|subject| format!("{unit} {}", subject.name())));
        }
        names.push("other".to_owned());
        header(&mut self.page, &names)?;
        for row in rows {
            let mut cells =
                vec![row.operation.to_string(), grouped(&row.objects.to_string()), row.workers.to_string()];
            for measure in [Measure::P50, Measure::Written, Measure::ClientCpu] {
                cells.extend(table.medians(|subject| measure.of(&self.results, subject, row)));
            }
            let samples = table.subjects.iter().flat_map(|subject| self.results.samples(*subject, row));
            let mark = if self.is_disturbed(row) { " †" } else { "" };
            cells.push(format!("{}{mark}", number(samples.map(other_share).fold(0.0, f64::max))));
            line(&mut self.page, &cells)?;
        }
        Ok(())
    }

    /// What was marked above, in words.
    fn failures(&mut self) -> fmt::Result {
        let results = &self.results;
        let mut failures = Vec::new();
        for subject in self.table.subjects.iter().copied() {
            let mut note = |text: String| failures.push(format!("{}, {}", subject.name(), one_line(&text)));
            for row in results.rows() {
                if let Some(first) =
                    results.samples(subject, row).find_map(|sample| sample.errors.first.as_ref())
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
            return writeln!(self.page, "\nNo request failed.");
        }
        writeln!(self.page, "\n## ⚠ Errors\n\nA marked row counts only what succeeded.\n")?;
        failures.iter().try_for_each(|failure| writeln!(self.page, "- {failure}"))
    }
}

/// In percent of all cores.
const DISTURBED: f64 = 5.0;

/// A name, and its number for what was measured.
type Quantile = (&'static str, fn(&Latencies) -> f64);
type Count = (&'static str, fn(&WatchSample) -> u64);

fn other_share(sample: &Sample) -> f64 {
    share(sample.usage.other, sample.usage.elapsed)
}

/// In percent of all cores.
fn share(cpu: Duration, elapsed: Duration) -> f64 {
    100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64() / machine::cores() as f64
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
