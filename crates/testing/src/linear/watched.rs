//! What watches were told: the same everywhere, in order, without gaps.
//!
//! A stream is one watcher's whole life: a list, events, bookmarks, and going on elsewhere from the last revision it
//! was told when a connection or a server is lost. All streams together are the log of the collection.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{Commit, Content, Seen, Violation};

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added(Content),
    Modified(Content),
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub revision: u64,
    pub key: String,
    pub uid: String,
    pub change: Change,
}

impl Event {
    fn apply(&self, cache: &mut BTreeMap<String, Seen>) {
        match self.change {
            Change::Added(content) | Change::Modified(content) => {
                cache.insert(self.key.clone(), Seen { content, revision: self.revision });
            }
            Change::Deleted => {
                cache.remove(&self.key);
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            Change::Added(content) => write!(formatter, "{}: added {} ({content})", self.revision, self.key),
            Change::Modified(content) => {
                write!(formatter, "{}: modified {} ({content})", self.revision, self.key)
            }
            Change::Deleted => write!(formatter, "{}: deleted {}", self.revision, self.key),
        }
    }
}

/// One thing that a watcher was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It listed, to begin or because it had to begin anew.
    Listed {
        revision: u64,
        items: BTreeMap<String, Seen>,
    },
    Event(Event),
    /// That it has been told everything up to here.
    Bookmark(u64),
    /// It asked a server to go on from here.
    Resumed {
        server: usize,
        after: u64,
    },
    /// That it cannot go on from where it is.
    Gone,
}

/// One watcher, from its first list on.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub name: String,
    pub told: Vec<Told>,
}

/// What streams together know.
pub struct Log {
    pub commits: Vec<Commit>,
    /// What is not here never happened.
    pub is_complete: bool,
}

fn violation(rule: &'static str, stream: &Stream, evidence: impl fmt::Display) -> Violation {
    Violation { rule, evidence: format!("stream {}: {evidence}", stream.name) }
}

impl Stream {
    /// What an informer had in its cache when it had been told everything up to a revision; `None` if it began later.
    pub fn cache_at(&self, revision: u64) -> Option<BTreeMap<String, Seen>> {
        let mut cache = None;
        for told in &self.told {
            match told {
                Told::Listed { revision: at, items } if *at <= revision => cache = Some(items.clone()),
                Told::Listed { .. } => return None,
                Told::Event(event) if event.revision <= revision => event.apply(cache.as_mut()?),
                _ => {}
            }
        }
        cache
    }

    /// How far it has been told.
    pub fn position(&self) -> u64 {
        let position = |told: &Told| match told {
            Told::Listed { revision, .. } | Told::Bookmark(revision) => Some(*revision),
            Told::Event(event) => Some(event.revision),
            _ => None,
        };
        self.told.iter().rev().find_map(position).unwrap_or(0)
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.told.iter().filter_map(|told| match told {
            Told::Event(event) => Some(event),
            _ => None,
        })
    }

    /// Ranges of revisions in which it was told everything: after the first, up to the second.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for told in &self.told {
            match (told, ranges.last_mut()) {
                (Told::Listed { revision, .. }, _) => ranges.push((*revision, *revision)),
                (Told::Event(Event { revision, .. }) | Told::Bookmark(revision), Some((_, end))) => {
                    *end = *revision;
                }
                _ => {}
            }
        }
        ranges
    }
}

/// Between the first list and the last event there is nothing that no stream was told of.
fn is_covered(streams: &[Stream]) -> bool {
    let mut ranges: Vec<(u64, u64)> = streams.iter().flat_map(Stream::ranges).collect();
    ranges.sort_unstable();
    let mut reached = ranges.first().map_or(0, |(start, _)| *start);
    ranges.iter().all(|(start, end)| {
        let is_joined = *start <= reached;
        reached = reached.max(*end);
        is_joined
    })
}

/// Checks all streams of a collection against each other. `may_be_gone`: a history shorter than what was asked for is
/// within the rules.
///
/// # Errors
/// The first stream that was told something else than the others, or in another order, or not all of it.
pub fn check(streams: &[Stream], may_be_gone: bool) -> Result<Log, Violation> {
    let mut log: BTreeMap<u64, (&Event, &Stream)> = BTreeMap::new();
    for stream in streams {
        for event in stream.events() {
            let (known, other) = log.entry(event.revision).or_insert((event, stream));
            if *known != event {
                let evidence = format!("{event}\nstream {}: {known}", other.name);
                return Err(violation("watchers are told the same", stream, evidence));
            }
        }
    }
    let log: BTreeMap<u64, &Event> =
        log.into_iter().map(|(revision, (event, _))| (revision, event)).collect();
    for stream in streams {
        check_stream(stream, &log, may_be_gone)?;
    }
    let is_complete = is_covered(streams);
    if is_complete {
        check_lives(streams, &log)?;
    }
    let commits = log.into_iter().map(|(revision, event)| Commit {
        revision,
        key: event.key.clone(),
        content: match event.change {
            Change::Added(content) | Change::Modified(content) => Some(content),
            Change::Deleted => None,
        },
    });
    Ok(Log { commits: commits.collect(), is_complete })
}

fn check_stream(stream: &Stream, log: &BTreeMap<u64, &Event>, may_be_gone: bool) -> Result<(), Violation> {
    let mut position = 0;
    for told in &stream.told {
        let next = match told {
            Told::Listed { revision, .. } | Told::Bookmark(revision) => *revision,
            Told::Event(event) if event.revision > position => event.revision,
            Told::Event(event) => {
                let evidence = format!("{event}\nwas told up to {position} already");
                return Err(violation("events come once and in order", stream, evidence));
            }
            Told::Resumed { after, .. } => {
                // Where a watcher goes on is its own doing.
                debug_assert_eq!(*after, position);
                continue;
            }
            Told::Gone if may_be_gone => continue,
            Told::Gone => {
                let evidence = format!("410 for a watch from {position}");
                return Err(violation("a history is kept for a while", stream, evidence));
            }
        };
        if next < position {
            let evidence = format!("{next} after {position}");
            return Err(violation("bookmarks and lists do not go back", stream, evidence));
        }
        let is_list = matches!(told, Told::Listed { .. });
        let end = if matches!(told, Told::Event(_)) { next } else { next.saturating_add(1) };
        if let Some((_, missed)) = log.range(position.saturating_add(1)..end).next()
            && !is_list
        {
            let evidence = format!("was at {position}, then at {next}, and was not told\n{missed}");
            return Err(violation("a watch has no gap", stream, evidence));
        }
        position = next;
    }
    Ok(())
}

/// Objects are added, modified, deleted in that order, and keep their uid for as long as they live.
fn check_lives(streams: &[Stream], log: &BTreeMap<u64, &Event>) -> Result<(), Violation> {
    let mut alive: BTreeMap<&str, &str> = BTreeMap::new();
    let mut dead: BTreeSet<&str> = BTreeSet::new();
    let at_first = streams.iter().filter_map(|stream| match stream.told.first() {
        Some(Told::Listed { revision, items }) => Some((*revision, items)),
        _ => None,
    });
    // Whatever was there before any of the events has lived already.
    let before: BTreeSet<&String> = at_first.flat_map(|(_, items)| items.keys()).collect();
    for event in log.values() {
        let life = alive.get(event.key.as_str()).copied();
        let fits = match (event.change, life) {
            (Change::Added(_), None) => !dead.contains(event.uid.as_str()),
            (Change::Modified(_) | Change::Deleted, Some(uid)) => uid == event.uid,
            (Change::Modified(_) | Change::Deleted, None) => before.contains(&event.key),
            (Change::Added(_), Some(_)) => false,
        };
        if !fits {
            let evidence = format!("{event}\nwhose uid is {}; alive is {life:?}", event.uid);
            return Err(Violation { rule: "an object has one life at a time", evidence });
        }
        match event.change {
            Change::Deleted => {
                alive.remove(event.key.as_str());
                dead.insert(&event.uid);
            }
            _ => {
                alive.insert(&event.key, &event.uid);
            }
        }
    }
    Ok(())
}

/// Compares what a watcher has made of all it was told with what a server listed.
///
/// # Errors
/// They differ.
pub fn check_cache(
    stream: &Stream,
    server: usize,
    revision: u64,
    items: &BTreeMap<String, Seen>,
) -> Result<(), Violation> {
    let Some(cache) = stream.cache_at(revision) else { return Ok(()) };
    let differs = |key: &&String| cache.get(*key) != items.get(*key);
    match cache.keys().chain(items.keys()).find(differs) {
        None => Ok(()),
        Some(key) => {
            let shown = |seen: Option<&Seen>| seen.map_or("nothing".to_owned(), Seen::to_string);
            let (cached, listed) = (shown(cache.get(key)), shown(items.get(key)));
            let evidence =
                format!("at {revision} {key} is {cached} in the cache and {listed} at server {server}");
            Err(violation("a cache becomes what is listed", stream, evidence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, change: Change) -> Event {
        // Every third revision ends the object's life.
        Event { revision, key: "a".into(), uid: format!("uid-{}", (revision - 10) / 3), change }
    }

    /// Added, modified, deleted, over and over.
    fn life(count: u64) -> Vec<Told> {
        let changes = (10..10 + count).map(|revision| {
            let change = match (revision - 10) % 3 {
                0 => Change::Added(Content::of(revision)),
                1 => Change::Modified(Content::of(revision)),
                _ => Change::Deleted,
            };
            Told::Event(event(revision, change))
        });
        std::iter::once(Told::Listed { revision: 9, items: BTreeMap::new() }).chain(changes).collect()
    }

    fn stream(name: &str, told: Vec<Told>) -> Stream {
        Stream { name: name.into(), told }
    }

    fn verdict(told: Vec<Told>, may_be_gone: bool) -> Result<Log, Violation> {
        check(&[stream("right", life(9)), stream("other", told)], may_be_gone)
    }

    #[test]
    fn streams_that_agree_are_the_log() {
        let log = verdict(life(9), false).expect("they agree");
        assert!(log.is_complete);
        assert_eq!(log.commits.len(), 9);
        assert_eq!(log.commits[2], Commit { revision: 12, key: "a".into(), content: None });
    }

    #[test]
    fn what_is_wrong_with_a_stream_is_found() {
        let mut gap = life(9);
        gap.remove(4);
        let mut doubled = life(9);
        doubled.insert(4, doubled[3].clone());
        let mut swapped = life(9);
        swapped.swap(3, 4);
        let mut other = life(9);
        other[2] = Told::Event(event(11, Change::Modified(Content::of(77))));
        let mut early_bookmark = life(4);
        early_bookmark.push(Told::Bookmark(15));
        let mut backwards = life(9);
        backwards.push(Told::Bookmark(12));
        let mut relisted_back = life(9);
        relisted_back.push(Told::Listed { revision: 11, items: BTreeMap::new() });
        let mut gone = life(5);
        gone.push(Told::Gone);
        let cases = [
            ("a watch has no gap", gap),
            ("events come once and in order", doubled),
            ("a watch has no gap", swapped),
            ("watchers are told the same", other),
            ("a watch has no gap", early_bookmark),
            ("bookmarks and lists do not go back", backwards),
            ("bookmarks and lists do not go back", relisted_back),
            ("a history is kept for a while", gone),
        ];
        for (rule, told) in cases {
            let found = verdict(told, false).map(|_| ()).expect_err(rule);
            assert_eq!(found.rule, rule, "{found}");
        }
    }

    #[test]
    fn who_is_told_that_history_is_gone_begins_anew() {
        let mut told = life(4);
        told.push(Told::Gone);
        let content = Content::of(17);
        let items = [("a".to_owned(), Seen { content, revision: 17 })].into();
        told.push(Told::Listed { revision: 17, items });
        told.push(Told::Event(event(18, Change::Deleted)));
        let log = verdict(told.clone(), true).expect("that is within the rules");
        assert!(log.is_complete, "the other stream has all");
        let log = check(&[stream("other", told.clone())], true).expect("that is within the rules");
        assert!(!log.is_complete, "nobody was told of what happened between");
        let stream = stream("other", told);
        assert_eq!(stream.cache_at(18), Some(BTreeMap::new()));
        assert_eq!(stream.cache_at(12), None, "it began anew after that");
    }

    #[test]
    fn an_object_is_not_modified_before_it_is_added() {
        let told = vec![
            Told::Listed { revision: 9, items: BTreeMap::new() },
            Told::Event(event(11, Change::Modified(Content::of(11)))),
        ];
        let found = check(&[stream("one", told)], false).map(|_| ()).expect_err("it is found");
        assert_eq!(found.rule, "an object has one life at a time");
    }

    #[test]
    fn a_cache_that_differs_from_the_list_is_found() {
        let stream = stream("one", life(2));
        let right = Seen { content: Content::of(11), revision: 11 };
        check_cache(&stream, 0, 11, &[("a".to_owned(), right)].into()).expect("the same");
        check_cache(&stream, 0, 11, &BTreeMap::new()).expect_err("not the same");
    }
}
