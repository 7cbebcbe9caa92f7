//! Many watchers of the same changes while many write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use env::random::SeededRandom;
use serde_json::{Value, json};
use server::Options;
use store::memory::MemoryStore;
use testing::{
    client::{Client, Fingerprint, Lines, fingerprint},
    hub::TestHub,
};
use tokio::sync::Barrier;

use crate::{SECRETS, create, head, revision_of, text};

const WRITERS: usize = 8;
const WRITES: usize = 250;
const CONNECTIONS: usize = 8;
const END: &str = "the-end";

/// What one writer was told.
#[derive(Default)]
struct Acknowledged {
    objects: BTreeMap<u64, Value>,
    deletions: usize,
}

/// Creates, changes and deletes objects of its own.
async fn write(client: Client, writer: usize) -> Result<Acknowledged> {
    let random = SeededRandom::new(writer as u64);
    let mut acknowledged = Acknowledged::default();
    let mut exists = [false; 10];
    for count in 0..WRITES {
        let slot = random.below(exists.len() as u64) as usize;
        let name = format!("w{writer}-{slot}");
        let path = format!("{SECRETS}/{name}");
        let data = json!({"count": format!("{count:04}")});
        let answer = match (exists[slot], random.below(4)) {
            (false, _) => {
                let object = json!({"metadata": {"name": name}, "data": data});
                client.post(SECRETS, &object).await?
            }
            (true, 0) => {
                let answer = client.delete(&path).await?;
                ensure!(answer.code.is_success(), "{}", answer.text());
                acknowledged.deletions += 1;
                exists[slot] = false;
                continue;
            }
            (true, _) => client.merge_patch(&path, &json!({"data": data})).await?,
        };
        ensure!(answer.code.is_success(), "{}", answer.text());
        exists[slot] = true;
        let object = answer.json();
        let doubled = acknowledged.objects.insert(revision_of(&object), object);
        ensure!(doubled.is_none(), "a revision was given twice");
    }
    Ok(acknowledged)
}

fn is_end(line: &Bytes) -> bool {
    let needle = format!("\"name\":\"{END}\"");
    line.windows(needle.len()).any(|window| window == needle.as_bytes())
}

async fn read_to_end(mut lines: Lines) -> Result<Vec<Bytes>> {
    let mut all = Vec::new();
    loop {
        let line = lines.next_line().await?.context("the watch ended early")?;
        all.push(line.clone());
        if is_end(&line) {
            return Ok(all);
        }
    }
}

/// Reads everything, beginning anew now and then where it stands.
async fn read_with_breaks(client: Client, start: u64, every: usize) -> Result<Vec<Fingerprint>> {
    let mut all: Vec<Fingerprint> = Vec::new();
    loop {
        let after = all.last().map_or(start, |(revision, _)| *revision);
        let mut lines = client.watch(&format!("{SECRETS}?watch=true&resourceVersion={after}")).await?;
        for _ in 0..every {
            let line = lines.next_line().await?.context("the watch ended early")?;
            all.push(fingerprint(&line));
            if is_end(&line) {
                return Ok(all);
            }
        }
    }
}

/// Reads everything with bookmarks between, which must never be ahead of an event that is still to come.
async fn read_with_bookmarks(mut lines: Lines) -> Result<Vec<Fingerprint>> {
    let mut all: Vec<Fingerprint> = Vec::new();
    let mut complete_to = 0;
    loop {
        let line = lines.next_line().await?.context("the watch ended early")?;
        let event = fingerprint(&line);
        if line.starts_with(br#"{"type":"BOOKMARK""#) {
            let last = all.last().map_or(0, |(revision, _)| *revision);
            ensure!(event.0 >= complete_to.max(last), "a bookmark at {} goes back", event.0);
            complete_to = event.0;
            continue;
        }
        ensure!(event.0 > complete_to, "{} comes after a bookmark at {complete_to}", event.0);
        all.push(event);
        if is_end(&line) {
            return Ok(all);
        }
    }
}

/// Lists in the middle of it all and goes on from there: (revision of the list, what was in it, what came after).
async fn join_late(client: Client) -> Result<(u64, BTreeMap<String, u64>, Vec<Fingerprint>)> {
    let list = client.get(SECRETS).await?.json();
    let revision = revision_of(&list);
    let items = list["items"].as_array().context("a list has items")?;
    let items =
        items.iter().map(|item| (text(item, "/metadata/name").to_owned(), revision_of(item))).collect();
    let lines = client.watch(&format!("{SECRETS}?watch=true&resourceVersion={revision}")).await?;
    Ok((revision, items, read_to_end(lines).await?.iter().map(|line| fingerprint(line)).collect()))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_watchers_see_one_sequence() -> Result<()> {
    let options = Options { bookmark_every: Duration::from_millis(1), ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    let start = head(&admin).await?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(hub.admin().await?);
    }
    let of = |watcher: usize| clients[watcher % CONNECTIONS].clone();
    let from_start = format!("{SECRETS}?watch=true&resourceVersion={start}");

    // Given 100 watchers from the start, 20 with bookmarks, 40 that come back again and again, and 40 that will join
    // under way.
    let reference = tokio::spawn(read_to_end(admin.watch(&from_start).await?));
    let mut steady = Vec::new();
    for watcher in 1..100 {
        let lines = of(watcher).watch(&from_start).await?;
        steady.push(tokio::spawn(async move {
            anyhow::Ok(read_to_end(lines).await?.iter().map(|line| fingerprint(line)).collect::<Vec<_>>())
        }));
    }
    for watcher in 0..20 {
        let lines = of(watcher).watch(&format!("{from_start}&allowWatchBookmarks=true")).await?;
        steady.push(tokio::spawn(read_with_bookmarks(lines)));
    }
    steady.extend((0..40).map(|it| tokio::spawn(read_with_breaks(of(it), start, 20 + 7 * it))));

    // When eight write at once.
    let under_way = Arc::new(Barrier::new(WRITERS + 1));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (client, under_way) = (of(writer), under_way.clone());
            tokio::spawn(async move {
                under_way.wait().await;
                write(client, writer).await
            })
        })
        .collect();
    under_way.wait().await;
    let late: Vec<_> = (0..40).map(|watcher| tokio::spawn(join_late(of(watcher)))).collect();
    let mut acknowledged = Acknowledged::default();
    for writer in writers {
        let told = writer.await??;
        acknowledged.deletions += told.deletions;
        for (revision, object) in told.objects {
            assert!(acknowledged.objects.insert(revision, object).is_none(), "{revision} was given twice");
        }
    }
    let end = create(&admin, END).await?;
    acknowledged.objects.insert(revision_of(&end), end);

    // Then the sequence is what the writers were told, and everybody has the same one.
    let reference = reference.await??;
    let mut deletions = 0;
    let mut state = BTreeMap::new();
    let mut states = BTreeMap::from([(start, state.clone())]);
    for line in &reference {
        let event: Value = serde_json::from_slice(line)?;
        let (revision, object) = (revision_of(&event["object"]), &event["object"]);
        let name = text(object, "/metadata/name").to_owned();
        match text(&event, "/type") {
            "DELETED" => {
                deletions += 1;
                state.remove(&name);
            }
            _ => {
                assert_eq!(acknowledged.objects.remove(&revision).as_ref(), Some(object));
                state.insert(name, revision);
            }
        }
        states.insert(revision, state.clone());
    }
    assert_eq!((acknowledged.objects.len(), deletions), (0, acknowledged.deletions));
    let sequence: Vec<Fingerprint> = reference.iter().map(|line| fingerprint(line)).collect();
    assert!(sequence.is_sorted_by_key(|(revision, _)| *revision));
    for watcher in steady {
        assert!(watcher.await?? == sequence, "a watcher saw something else");
    }
    for watcher in late {
        let (revision, items, rest) = watcher.await??;
        assert_eq!(states.range(..=revision).next_back().map(|(_, state)| state), Some(&items));
        let later: Vec<Fingerprint> = sequence.iter().copied().filter(|(it, _)| *it > revision).collect();
        assert!(rest == later, "a watcher that joined at {revision} saw something else");
    }
    Ok(())
}
