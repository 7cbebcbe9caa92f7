//! What was found, as a page.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use super::{peers::Karmada, traces::Times};
use crate::{
    figures::Latencies,
    report::{header, line, number},
};

/// One part of the page.
pub struct Section {
    pub title: String,
    /// How it was done, and at which scale.
    pub method: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub aims: Vec<Aim>,
}

/// The section belongs to the page from now on: what is found until something fails is kept.
pub fn begin(sections: &mut Vec<Section>, section: Section) -> &mut Section {
    sections.push(section);
    sections.last_mut().expect("one was added")
}

/// What is to be, and what is.
pub struct Aim {
    pub what: String,
    pub is: String,
    pub met: bool,
}

impl Aim {
    pub fn at_most(what: &str, is: f64, most: f64, unit: &str) -> Aim {
        let what = format!("{what} at most {} {unit}", plain(most));
        Aim { what, is: format!("{} {unit}", number(is)), met: is <= most }
    }

    /// So many times a peer's rate; both in a second.
    pub fn times(what: &str, is: f64, peer: f64, least: f64) -> Aim {
        let what = format!("{what} at least {} × {}/s", plain(least), plain(peer));
        Aim { what, is: format!("{} × ({}/s)", number(is / peer), number(is)), met: is >= least * peer }
    }
}

fn plain(value: f64) -> String {
    if value.fract() == 0.0 { crate::report::grouped(&format!("{value:.0}")) } else { value.to_string() }
}

impl Section {
    pub fn new(title: impl Into<String>, method: impl Into<String>, columns: &[&'static str]) -> Section {
        Section {
            title: title.into(),
            method: method.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            aims: Vec::new(),
        }
    }

    pub fn row(&mut self, what: &str, cells: &[&str]) {
        eprintln!("  {what}: {}", cells.first().unwrap_or(&""));
        self.rows.push(std::iter::once(what).chain(cells.iter().copied()).map(str::to_owned).collect());
    }

    /// With the columns of Karmada.
    pub fn beside(&mut self, what: &str, is: &str, karmada: &Karmada) {
        self.row(what, &[is, karmada.default, karmada.raised]);
    }
}

/// p50, p90 and p99, in seconds.
pub fn seconds(latencies: &Latencies) -> String {
    [0.5, 0.9, 0.99].map(|quantile| number(latencies.quantile(quantile) / 1000.0)).join(" / ")
}

/// p50, p90 and p99, in milliseconds.
pub fn milliseconds(latencies: &Latencies) -> String {
    [0.5, 0.9, 0.99].map(|quantile| number(latencies.quantile(quantile))).join(" / ")
}

pub fn in_seconds(time: Duration) -> String {
    number(time.as_secs_f64())
}

/// How many in a second.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// What most loads tell.
pub fn times(section: &mut Section, count: usize, times: &Times) {
    section.row("until all members had it, p50 / p90 / p99, ms", &[&milliseconds(&times.arrived)]);
    section.row("all in all members after, s", &[&in_seconds(times.all_arrived)]);
    section.row("in a second", &[&number(rate(count, times.all_arrived))]);
    if times.summed_up.len() > 0 {
        section.row("all with their status back after, s", &[&in_seconds(times.all_summed_up)]);
        section
            .row("status after the last member was ready, p50 / p90 / p99, ms", &[&milliseconds(&times.lag)]);
    }
}

pub fn page(machine: &str, version: &str, sections: &[Section], failed: &[String], reopened: u64) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut page, machine, version, sections, failed, reopened);
    page
}

fn write(
    page: &mut String,
    machine: &str,
    version: &str,
    sections: &[Section],
    failed: &[String],
    reopened: u64,
) -> fmt::Result {
    let date = jiff::Zoned::now().date();
    writeln!(page, "# From the hub to its members and back\n")?;
    writeln!(
        page,
        "{date}; {machine}. {version}. Client, hub and members share the machine. Times are those of clients: from sending \
         a request to the hub until a watch at each member has the object, and until a watch at the hub has its status. \
         CPU and memory are those of the hub's process alone, sessions with members included.\n"
    )?;
    writeln!(page, "## Aims\n")?;
    for aim in sections.iter().flat_map(|section| &section.aims) {
        let verdict = if aim.met { "met" } else { "**missed**" };
        writeln!(page, "- {}: {}, {verdict}", aim.what, aim.is)?;
    }
    for part in failed {
        writeln!(page, "- **not measured**: {part}")?;
    }
    for section in sections {
        writeln!(page, "\n## {}\n\n{}\n", section.title, section.method)?;
        let columns: Vec<String> = section.columns.iter().map(|&name| name.to_owned()).collect();
        header(page, &columns)?;
        for row in &section.rows {
            line(page, row)?;
        }
    }
    writeln!(page, "\nWatches of the client that ended and were opened again: {reopened}.")
}
