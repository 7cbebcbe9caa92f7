//! Sets of indexes, written as `1,3-5,7`.

use std::fmt;

/// Intervals in order, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Those below `completions`; what cannot be read is left out.
    pub fn parse(text: &str, completions: i64) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
            if first < completions {
                indexes.add(first, last.min(completions - 1));
            }
        }
        indexes
    }

    fn add(&mut self, first: i64, last: i64) {
        if first > last {
            return;
        }
        self.0.push((first, last));
        self.0.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(self.0.len());
        for &(first, last) in &self.0 {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }

    pub fn extend(&mut self, mut indexes: Vec<i64>) {
        indexes.sort_unstable();
        let mut added = Indexes::default();
        for index in indexes {
            match added.0.last_mut() {
                Some(before) if index <= before.1 + 1 => before.1 = before.1.max(index),
                _ => added.0.push((index, index)),
            }
        }
        self.merge(&added);
    }

    pub fn merge(&mut self, other: &Indexes) {
        for &(first, last) in &other.0 {
            self.add(first, last);
        }
    }

    pub fn contains(&self, index: i64) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&index))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many are in both.
    pub fn common(&self, other: &Indexes) -> i64 {
        let overlap = |a: &(i64, i64), b: &(i64, i64)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        self.0.iter().map(|a| other.0.iter().map(|b| overlap(a, b)).sum::<i64>()).sum()
    }

    /// The first ones below `completions` that are not in the set.
    pub fn first_missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut missing = Vec::new();
        let mut next = 0;
        for &(first, last) in self.0.iter().chain(&[(completions, completions)]) {
            let end = first.min(completions);
            missing.extend((next..end.max(next)).take(count - missing.len()));
            next = next.max(last + 1);
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_short_as_possible() {
        let table = [
            ("", 10, "", 0),
            ("0", 10, "0", 1),
            ("0,1,2", 10, "0-2", 3),
            ("0-1,3,5-7", 10, "0,1,3,5-7", 6),
            ("3-20", 10, "3-9", 7),
            ("12", 10, "", 0),
            ("x,2,3-y,5-4", 10, "2", 1),
        ];
        for (text, completions, expected, total) in table {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (expected, total), "{text}");
        }
    }

    #[test]
    fn what_is_missing_comes_in_order() {
        let indexes = Indexes::parse("0,2-3,6", 8);
        assert_eq!(indexes.first_missing(10, 8), [1, 4, 5, 7]);
        assert_eq!(indexes.first_missing(2, 8), [1, 4]);
        assert_eq!(Indexes::default().first_missing(3, 2), [0, 1]);
        assert_eq!(Indexes::parse("0-7", 8).first_missing(3, 8), [] as [i64; 0]);
    }

    #[test]
    fn sets_can_be_joined_and_compared() {
        let mut indexes = Indexes::parse("1,5", 10);
        indexes.extend(vec![7, 2, 6, 2]);
        assert_eq!(indexes.to_string(), "1,2,5-7");
        assert_eq!(indexes.common(&Indexes::parse("2-5", 10)), 2);
        assert!(indexes.contains(6) && !indexes.contains(4));
    }
}
