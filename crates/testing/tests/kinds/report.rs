//! How far Hanse agrees with the real server, kind by kind.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use testing::{
    accepted::Accepted,
    compare::{Difference, shorten},
};

use super::{
    plan::Verb,
    run::{Answered, KindRun},
    scope::Kind,
    verdict::{Answers, By, Verdict, judge},
};

/// Of what the real server refuses of a kind, Hanse refuses so much.
const LEAST_REFUSED: f64 = 98.0;
/// Of what both accept of a kind, so much comes out equal.
const LEAST_EQUAL: f64 = 95.0;
/// The suite is not to shrink unnoticed.
const LEAST_REQUESTS: usize = 30_000;
/// Differences of a sort that are shown of a kind, unless few kinds run.
const SHOWN: usize = 10;

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: usize,
    /// By the real server.
    accepted: usize,
    refused_only_here: usize,
    equal: usize,
    same_warnings: usize,
    /// By the real server.
    refused: usize,
    accepted_only_here: usize,
    same_causes: usize,
    same_message: usize,
    /// In tables.
    other_cells: usize,
}

pub struct Report {
    accepted: Accepted,
    started: jiff::Timestamp,
    partial: bool,
    rows: Vec<(String, Counts)>,
    missing: Vec<String>,
    /// Differences that no line of `accepted.txt` explains.
    unexplained: usize,
}

/// What is shown of one kind, by the sort of difference.
struct Shown {
    left: BTreeMap<&'static str, usize>,
    limit: usize,
}

impl Shown {
    fn show(&mut self, sort: &'static str, name: &str, lines: &[(&str, String)]) {
        let count = self.left.entry(sort).or_default();
        *count += 1;
        if *count > self.limit {
            return;
        }
        println!("{sort} {name}");
        for (label, text) in lines {
            println!("      {label:6} {}", shorten(text.clone()));
        }
    }

    fn finish(self) {
        for (sort, count) in self.left.into_iter().filter(|(_, count)| *count > self.limit) {
            println!("{sort} and {} more", count - self.limit);
        }
    }
}

impl Report {
    pub fn new(accepted: Accepted, partial: bool) -> Report {
        // Times are written in whole seconds.
        let started = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(1);
        Report { accepted, started, partial, rows: Vec::new(), missing: Vec::new(), unexplained: 0 }
    }

    pub fn missing(&mut self, kind: &Kind) {
        self.missing.push(kind.to_string());
    }

    pub fn add(&mut self, kind: &Kind, run: &KindRun, tables: &[(String, Difference)]) {
        let mut counts = Counts { other_cells: tables.len(), ..Counts::default() };
        let limit = if self.partial { usize::MAX } else { SHOWN };
        let mut shown = Shown { left: BTreeMap::new(), limit };
        for answered in &run.answered {
            self.add_case(kind, answered, &mut counts, &mut shown);
        }
        for (name, reply) in &run.not_created {
            let lines = [("hanse", reply.body["message"].to_string())];
            shown.show("NOT CREATED", &format!("{kind}/{name}"), &lines);
            self.unexplained += 1;
        }
        for (name, difference) in tables {
            let row = format!("{kind}/{name} table");
            if self.accepted.reason(&row, &difference.place).is_none() {
                self.unexplained += 1;
                let lines = sides(&difference.place, &difference.kube, &difference.hanse);
                shown.show("OTHER TABLE", &row, &lines);
            }
        }
        shown.finish();
        self.rows.push((kind.to_string(), counts));
    }

    fn add_case(&mut self, kind: &Kind, answered: &Answered, counts: &mut Counts, shown: &mut Shown) {
        let Answered { case, kube, hanse: Some(hanse), .. } = answered else { return };
        let row = format!("{kind}/{}", case.name);
        let answers =
            Answers { sent: &case.object, kube: (kube.code, &kube.body), hanse: (hanse.code, &hanse.body) };
        let said = |label, body: &serde_json::Value| (label, body["message"].to_string());
        let both = [said("kube", &kube.body), said("hanse", &hanse.body)];
        counts.requests += 1;
        match judge(&answers, By::Server) {
            Verdict::NothingToCompare => {}
            Verdict::RefusedOnlyHere => {
                counts.accepted += 1;
                counts.refused_only_here += 1;
                self.explain(&row, "refused", || shown.show("REFUSED    ", &row, &both[1..]));
            }
            Verdict::AcceptedOnlyHere => {
                counts.refused += 1;
                counts.accepted_only_here += 1;
                self.explain(&row, "accepted", || shown.show("ACCEPTED   ", &row, &both[..1]));
            }
            Verdict::Refused { same_causes, same_message } => {
                counts.refused += 1;
                counts.same_causes += usize::from(same_causes);
                counts.same_message += usize::from(same_message);
                if self.partial && !same_message {
                    let sort = if same_causes { "message    " } else { "causes     " };
                    shown.show(sort, &row, &both);
                }
            }
            Verdict::Accepted(mut differences) => {
                differences.retain(|it| !(self.is_now(&it.kube) && self.is_now(&it.hanse)));
                if case.verb == Verb::Update && kind.is_written_by_controllers() {
                    differences.retain(|difference| !difference.place.starts_with(".status"));
                }
                counts.accepted += 1;
                counts.equal += usize::from(differences.is_empty());
                counts.same_warnings += usize::from(kube.warnings == hanse.warnings);
                for difference in &differences {
                    let lines = sides(&difference.place, &difference.kube, &difference.hanse);
                    self.explain(&row, &difference.place, || shown.show("OTHER      ", &row, &lines));
                }
                if self.partial && kube.warnings != hanse.warnings {
                    let lines = [
                        ("kube", format!("{:?}", kube.warnings)),
                        ("hanse", format!("{:?}", hanse.warnings)),
                    ];
                    shown.show("warnings   ", &row, &lines);
                }
            }
        }
    }

    /// A time that a server set: both may have set it, each when it was asked.
    fn is_now(&self, text: &str) -> bool {
        let time = text.trim_matches('"').parse::<jiff::Timestamp>();
        time.is_ok_and(|time| time >= self.started && time <= jiff::Timestamp::now())
    }

    /// Shows a difference that nothing explains.
    fn explain(&mut self, row: &str, place: &str, show: impl FnOnce()) {
        if self.accepted.reason(row, place).is_none() {
            self.unexplained += 1;
            show();
        }
    }

    pub fn finish(self) -> Result<()> {
        let mut total = Counts::default();
        println!("\n{HEADING}");
        for (kind, counts) in &self.rows {
            println!("{}", counts.line(kind));
            total = total.plus(counts);
        }
        println!("{}", total.line("in total"));
        let mut wrong = self.wrong(&total);
        if self.partial {
            return Ok(());
        }
        wrong.extend(self.accepted.unused().map(|rule| format!("no longer needed: {rule}")));
        for text in &wrong {
            println!("{text}");
        }
        if !wrong.is_empty() {
            bail!("{}", wrong.join("; "));
        }
        Ok(())
    }

    fn wrong(&self, total: &Counts) -> Vec<String> {
        let mut wrong = Vec::new();
        wrong.extend(self.missing.iter().map(|kind| format!("{kind} is not served")));
        if self.unexplained > 0 {
            wrong.push(format!("{} differences that accepted.txt does not explain", self.unexplained));
        }
        for (kind, counts) in &self.rows {
            let (refused, equal) = (counts.refused_share(), counts.equal_share());
            if refused < LEAST_REFUSED {
                wrong.push(format!("{kind}: only {refused:.2} % of refusals matched"));
            }
            if equal < LEAST_EQUAL {
                wrong.push(format!("{kind}: only {equal:.2} % of results equal"));
            }
        }
        if total.requests < LEAST_REQUESTS {
            wrong.push(format!("only {} requests", total.requests));
        }
        wrong
    }
}

fn sides(place: &str, kube: &str, hanse: &str) -> [(&'static str, String); 3] {
    [("at", place.to_owned()), ("kube", kube.to_owned()), ("hanse", hanse.to_owned())]
}

const HEADING: &str = "kind                                                         accepted  refused   equal   same   \
                       | refused  matched   same    same    | other\n                                                 \
                       \x20           by kube   only here results warning | by kube           causes  message | cells";

impl Counts {
    fn plus(self, other: &Counts) -> Counts {
        Counts {
            requests: self.requests + other.requests,
            accepted: self.accepted + other.accepted,
            refused_only_here: self.refused_only_here + other.refused_only_here,
            equal: self.equal + other.equal,
            same_warnings: self.same_warnings + other.same_warnings,
            refused: self.refused + other.refused,
            accepted_only_here: self.accepted_only_here + other.accepted_only_here,
            same_causes: self.same_causes + other.same_causes,
            same_message: self.same_message + other.same_message,
            other_cells: self.other_cells + other.other_cells,
        }
    }

    fn refused_share(&self) -> f64 {
        percent(self.refused - self.accepted_only_here, self.refused)
    }

    fn equal_share(&self) -> f64 {
        percent(self.equal, self.accepted - self.refused_only_here)
    }

    fn line(&self, name: &str) -> String {
        let both = self.accepted - self.refused_only_here;
        format!(
            "{name:60} {:8} {:10} {:6.1}% {:6.1}% | {:7} {:7.1}% {:6.1}% {:6.1}% | {:5}",
            self.accepted,
            self.refused_only_here,
            self.equal_share(),
            percent(self.same_warnings, both),
            self.refused,
            self.refused_share(),
            percent(self.same_causes, self.refused),
            percent(self.same_message, self.refused),
            self.other_cells,
        )
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}
