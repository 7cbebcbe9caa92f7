//! What the comparison of every row came to.

use anyhow::{Result, bail};
use testing::{accepted::Accepted, compare::Difference};

/// Both answers to a row, and where they differ.
pub struct Outcome {
    pub row: String,
    pub request: String,
    pub kube: String,
    pub hanse: String,
    pub differences: Vec<Difference>,
}

pub struct Report {
    accepted: Accepted,
    /// Some scenarios only: every answer is shown, and unused rules mean nothing.
    partial: bool,
    same: usize,
    meant: usize,
    different: usize,
}

/// The suite is not to shrink unnoticed.
const LEAST_ROWS: usize = 760;

impl Report {
    pub fn new(accepted: Accepted, partial: bool) -> Report {
        Report { accepted, partial, same: 0, meant: 0, different: 0 }
    }

    pub fn add(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            self.add_row(&outcome);
        }
    }

    fn add_row(&mut self, outcome: &Outcome) {
        let row = &outcome.row;
        let reasons: Vec<Option<&str>> =
            outcome.differences.iter().map(|it| self.accepted.reason(row, &it.place)).collect();
        let verdict = if outcome.differences.is_empty() {
            self.same += 1;
            "same     "
        } else if reasons.iter().all(Option::is_some) {
            self.meant += 1;
            "accepted "
        } else {
            self.different += 1;
            "DIFFERENT"
        };
        println!("{verdict} {row}");
        if verdict == "DIFFERENT" || self.partial {
            println!("            {}", outcome.request);
        }
        for (difference, reason) in outcome.differences.iter().zip(reasons) {
            match reason {
                Some(why) => println!("            {}: {why}", difference.place),
                None => {
                    println!("        at  {}", difference.place);
                    println!("      kube  {}", difference.kube);
                    println!("     hanse  {}", difference.hanse);
                }
            }
        }
        if self.partial {
            println!("      kube  {}", outcome.kube);
            println!("     hanse  {}", outcome.hanse);
        }
    }

    pub fn finish(self) -> Result<()> {
        let Report { accepted, partial, same, meant, different } = self;
        let rows = same + meant + different;
        println!("{rows} rows: {same} the same, {meant} accepted, {different} different");
        let unused: Vec<String> = if partial { Vec::new() } else { accepted.unused().collect() };
        for rule in &unused {
            println!("no longer needed: {rule}");
        }
        if different > 0 || !unused.is_empty() {
            bail!("{different} rows differ, {} accepted differences are no more", unused.len());
        }
        if !partial && rows < LEAST_ROWS {
            bail!("only {rows} rows");
        }
        Ok(())
    }
}
