//! What was written, by name, and whether what a client was told is exactly that.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, Result, bail, ensure};

/// One change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Made or changed, at this version.
    Put(u64),
    /// The answer to a deletion does not tell its version.
    Deleted,
}

/// All that happened to each name, in order. Whoever writes a name waits for each answer before the next write.
pub type Histories = BTreeMap<String, Vec<Entry>>;

/// What must be there after all of it.
pub fn outcome(histories: &Histories) -> BTreeMap<String, u64> {
    let last = histories.iter().filter_map(|(name, entries)| match entries.last() {
        Some(Entry::Put(version)) => Some((name.clone(), *version)),
        _ => None,
    });
    last.collect()
}

/// What a client's lines came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events.
    pub changed: usize,
    /// Times that a list, or a watch that begins with one, ended as it should.
    pub initialized: usize,
    /// Lists that were asked for instead.
    pub lists: usize,
    pub expired: usize,
    pub handled: usize,
}

/// Checks the lines of one client (see `tests/clients/go/churn`) against the histories.
pub struct Check<'a> {
    histories: &'a Histories,
    /// How much of each history has been told.
    told: HashMap<&'a str, usize>,
    /// What was told of while a list was coming.
    listing: Option<HashMap<String, u64>>,
    /// Everything up to here has been told.
    complete_to: u64,
    /// Names that were not in the last list, whose version is not known, only that it is not before `complete_to`: what
    /// it left out may have been made and deleted since.
    hidden: HashSet<&'a str>,
    handled: HashMap<String, u64>,
    tally: Tally,
}

impl<'a> Check<'a> {
    pub fn new(histories: &'a Histories) -> Self {
        Self {
            histories,
            told: HashMap::new(),
            listing: None,
            complete_to: 0,
            hidden: HashSet::new(),
            handled: HashMap::new(),
            tally: Tally::default(),
        }
    }

    pub fn all<'l>(mut self, lines: impl IntoIterator<Item = &'l str>) -> Result<Tally> {
        for (number, line) in lines.into_iter().enumerate() {
            self.line(line).with_context(|| format!("line {}: {line}", number + 1))?;
        }
        self.finish()
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["init"] => self.listing = Some(HashMap::new()),
            ["list"] => self.tally.lists += 1,
            ["expired"] => self.tally.expired += 1,
            ["listed", name, version] => {
                let listing = self.listing.as_mut().context("an object of no list")?;
                let before = listing.insert(name.to_owned(), version.parse()?);
                ensure!(before.is_none(), "listed twice");
            }
            ["initialized", "-"] => self.initialized(None)?,
            ["initialized", version] => self.initialized(Some(version.parse()?))?,
            ["opened", version] => {
                let version: u64 = version.parse()?;
                ensure!(version == self.complete_to, "it had seen all up to {}", self.complete_to);
            }
            ["bookmark", version] => self.bookmark(version.parse()?)?,
            ["changed", kind, name, version] => self.changed(kind == "DELETED", name, version.parse()?)?,
            ["handled", kind, name, version] => self.handled(kind == "DELETED", name, version.parse()?)?,
            _ => bail!("not a line that a client writes"),
        }
        Ok(())
    }

    /// The objects that were listed are those that were there at that version, all of them, and no step back.
    fn initialized(&mut self, version: Option<u64>) -> Result<()> {
        let listed = self.listing.take().context("the end of no list")?;
        let newest = listed.values().copied().max().unwrap_or(0);
        let at = version.unwrap_or(newest.max(self.complete_to));
        ensure!(at >= self.complete_to, "it had seen all up to {}", self.complete_to);
        self.hidden.clear();
        for (name, entries) in self.histories {
            let told = self.told.entry(name).or_default();
            let mut reached = match listed.get(name) {
                Some(version) => {
                    let place = entries.iter().position(|entry| *entry == Entry::Put(*version));
                    place.with_context(|| format!("{name} never was at {version}"))? + 1
                }
                None => {
                    let later =
                        entries.iter().position(|entry| matches!(entry, Entry::Put(put) if *put > at));
                    later.unwrap_or(entries.len())
                }
            };
            if version.is_none() && !listed.contains_key(name) {
                reached = reached.max(*told);
                self.hidden.insert(name);
                if reached > 0 && entries[reached - 1] != Entry::Deleted {
                    reached += life(entries, reached).map_or(0, <[Entry]>::len);
                }
            }
            ensure!(reached >= *told, "{name} went back to {:?}", listed.get(name));
            let was_there = reached > 0 && matches!(entries[reached - 1], Entry::Put(_));
            ensure!(was_there == listed.contains_key(name), "{name} is not listed");
            if let Some(Entry::Put(next)) = entries.get(reached) {
                ensure!(*next > at, "{name} is listed as it was before {next}");
            }
            *told = reached;
        }
        self.complete_to = at;
        self.tally.initialized += 1;
        Ok(())
    }

    /// It promises that nothing up to there is missing.
    fn bookmark(&mut self, version: u64) -> Result<()> {
        ensure!(version >= self.complete_to, "it had seen all up to {}", self.complete_to);
        for (name, entries) in self.histories {
            let told = self.told.get(name.as_str()).copied().unwrap_or(0);
            if let Some(Entry::Put(next)) = entries.get(told) {
                ensure!(*next > version, "{name} at {next} was not told of");
            }
        }
        self.complete_to = version;
        Ok(())
    }

    /// Later than everything before, and the next thing that happened to the name.
    fn changed(&mut self, deleted: bool, name: &str, version: u64) -> Result<()> {
        ensure!(self.listing.is_none(), "an event in the middle of a list");
        ensure!(version > self.complete_to, "it had seen all up to {}", self.complete_to);
        self.complete_to = version;
        self.tally.changed += 1;
        // Every namespace has objects that others write.
        let Some((name, entries)) = self.histories.get_key_value(name) else { return Ok(()) };
        let told = self.told.entry(name).or_default();
        let wanted = if deleted { Entry::Deleted } else { Entry::Put(version) };
        if self.hidden.remove(name.as_str()) {
            while entries.get(*told) != Some(&wanted)
                && let Some(hidden) = life(entries, *told).filter(|life| life.ends_with(&[Entry::Deleted]))
            {
                *told += hidden.len();
            }
        }
        ensure!(entries.get(*told) == Some(&wanted), "{:?} comes next", entries.get(*told));
        *told += 1;
        Ok(())
    }

    /// Handlers may be spared what a new list made up for, never told what is older than what they know.
    fn handled(&mut self, deleted: bool, name: &str, version: u64) -> Result<()> {
        self.tally.handled += 1;
        let last = self.handled.insert(name.to_owned(), version).unwrap_or(0);
        ensure!(version > last || (deleted && version == last), "its handler had seen {last}");
        Ok(())
    }

    fn finish(self) -> Result<Tally> {
        for (name, entries) in self.histories {
            let mut told = self.told.get(name.as_str()).copied().unwrap_or(0);
            while self.hidden.contains(name.as_str())
                && let Some(hidden) = life(entries, told).filter(|life| life.ends_with(&[Entry::Deleted]))
            {
                told += hidden.len();
            }
            ensure!(told == entries.len(), "{name} at {:?} was not told of", entries.get(told));
        }
        Ok(self.tally)
    }
}

/// The entries from `start` to the next deletion, or to the end; `None` if there are none.
fn life(entries: &[Entry], start: usize) -> Option<&[Entry]> {
    let rest = entries.get(start..).filter(|rest| !rest.is_empty())?;
    let end = rest.iter().position(|entry| *entry == Entry::Deleted).map_or(rest.len(), |at| at + 1);
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histories() -> Histories {
        let put = Entry::Put;
        Histories::from([
            ("a".into(), vec![put(1), put(4), Entry::Deleted]),
            ("b".into(), vec![put(2), put(6)]),
            ("c".into(), vec![put(7)]),
        ])
    }

    fn check(lines: &str) -> Result<Tally> {
        Check::new(&histories()).all(lines.lines().map(str::trim))
    }

    const LISTED_AT_2: &str = "init\nlisted a 1\nlisted b 2\ninitialized 2\n";

    #[test]
    fn every_change_once_and_in_order_is_good() {
        let all = format!(
            "{LISTED_AT_2}changed MODIFIED a 4\nchanged DELETED a 5\nopened 5\nchanged MODIFIED b 6\nchanged ADDED c 7"
        );
        assert_eq!(check(&all).unwrap(), Tally { changed: 4, initialized: 1, ..Tally::default() });
        let again = format!(
            "{LISTED_AT_2}expired\ninit\nlisted b 6\nlisted c 7\ninitialized 9\nbookmark 11\nopened 11"
        );
        assert_eq!(check(&again).unwrap(), Tally { initialized: 2, expired: 1, ..Tally::default() });
    }

    #[test]
    fn what_is_missing_double_reordered_or_stale_is_noticed() {
        for (lines, complaint) in [
            ("changed MODIFIED a 4\nchanged DELETED a 5\nchanged MODIFIED b 6", "c at Some(Put(7))"),
            ("changed MODIFIED b 6", "a at Some(Put(4))"),
            ("changed DELETED a 5", "Some(Put(4)) comes next"),
            ("changed MODIFIED a 4\nchanged MODIFIED a 4", "it had seen all up to 4"),
            ("changed MODIFIED b 6\nchanged MODIFIED a 4", "it had seen all up to 6"),
            ("bookmark 5", "a at 4 was not told of"),
            ("changed MODIFIED a 4\nopened 2", "it had seen all up to 4"),
            ("init\nlisted b 6\ninitialized 7", "c is not listed"),
            ("init\nlisted a 1\nlisted b 2\ninitialized 4", "a is listed as it was before 4"),
            ("init\nlisted a 3\ninitialized 4", "a never was at 3"),
            ("handled ADDED a 4\nhandled MODIFIED a 4", "its handler had seen 4"),
        ] {
            let told = check(&format!("{LISTED_AT_2}{lines}"));
            let error = format!("{:#}", told.expect_err(lines));
            assert!(error.contains(complaint), "{lines}: {error}");
        }
    }

    #[test]
    fn a_list_of_unknown_version_may_hide_what_came_and_went() {
        let lines = "init\nlisted b 2\ninitialized -\nchanged APPLIED b 6\nchanged APPLIED c 7";
        assert_eq!(check(lines).unwrap().changed, 2);
        let lines = "init\nlisted a 1\nlisted b 2\ninitialized -\nchanged APPLIED b 6\nchanged APPLIED c 7";
        assert!(check(lines).is_err(), "what was listed is told of until it goes");
    }
}
