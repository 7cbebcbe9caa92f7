//! Tables: a column for each server, and one for each ratio to kube.

use std::fmt::{self, Write};

use crate::{figures::Spread, servers::Subject};

pub const ABSENT: &str = "–";

/// Which servers have a column.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    pub subjects: &'a [Subject],
}

impl Table<'_> {
    fn is_compared(&self) -> bool {
        self.subjects.contains(&Subject::Kube)
    }

    fn others(&self) -> impl Iterator<Item = Subject> {
        self.subjects.iter().copied().filter(|subject| *subject != Subject::Kube)
    }

    /// Names of a column per server, with `unit`, and per ratio.
    pub fn columns(&self, unit: &str) -> Vec<String> {
        let mut names: Vec<String> =
            self.subjects.iter().map(|subject| format!("{}{unit}", subject.name())).collect();
        if self.is_compared() {
            names.extend(self.others().map(|subject| format!("{} ÷ kube", subject.name())));
        }
        names
    }

    /// What belongs under [`Table::columns`].
    pub fn cells(&self, of: impl Fn(Subject) -> Option<Spread>) -> Vec<String> {
        let mut cells: Vec<String> = self.subjects.iter().map(|subject| spread(of(*subject))).collect();
        if self.is_compared() {
            let kube = of(Subject::Kube);
            cells.extend(self.others().map(|subject| {
                let ratio = of(subject).zip(kube).map(|(of, kube)| of.median / kube.median);
                bold(ratio.filter(|ratio| ratio.is_finite()))
            }));
        }
        cells
    }

    /// As [`Table::cells`], without what varied and without ratios.
    pub fn medians(&self, of: impl Fn(Subject) -> Option<Spread>) -> Vec<String> {
        self.subjects
            .iter()
            .map(|subject| of(*subject).map_or_else(|| ABSENT.to_owned(), |spread| number(spread.median)))
            .collect()
    }
}

pub fn header(page: &mut String, names: &[String]) -> fmt::Result {
    writeln!(page, "| {} |", names.join(" | "))?;
    // Names to the left, numbers to the right.
    writeln!(page, "|---|{}", "--:|".repeat(names.len().saturating_sub(1)))
}

pub fn line(page: &mut String, cells: &[String]) -> fmt::Result {
    writeln!(page, "| {} |", cells.join(" | "))
}

fn bold(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| ABSENT.to_owned(), |ratio| format!("**{}**", number(ratio)))
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
pub fn grouped(digits: &str) -> String {
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(" ")
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

    #[test]
    fn every_server_is_beside_kube_if_kube_was_measured() {
        let of = |subject| Spread::of([if subject == Subject::Kube { 2.0 } else { 6.0 }]);
        let both = Table { subjects: &[Subject::Kube, Subject::Hanse] };
        assert_eq!(both.columns("/s"), ["kube/s", "hanse/s", "hanse ÷ kube"]);
        assert_eq!(both.cells(of), ["2.00", "6.00", "**3.00**"]);
        let alone = Table { subjects: &[Subject::Hanse] };
        assert_eq!((alone.columns(""), alone.cells(of)), (vec!["hanse".to_owned()], vec!["6.00".to_owned()]));
    }
}
