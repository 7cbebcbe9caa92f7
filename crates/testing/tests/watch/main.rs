//! Watches are exact: whoever starts at a revision sees every later change once, in order, whatever the watcher
//! does meanwhile. `model` proves it against a model, `load` under load; here are the edges of a watch's life.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod load;
mod model;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use server::Options;
use store::memory::MemoryStore;
use testing::{
    client::{Client, Lines},
    hub::{TestHub, eventually},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A kind that a namespace has none of by itself.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion is a number")
}

async fn head(client: &Client) -> Result<u64> {
    Ok(revision_of(&client.get(SECRETS).await?.json()))
}

async fn create(client: &Client, name: &str) -> Result<Value> {
    let made = client.post(SECRETS, &json!({"metadata": {"name": name}})).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    Ok(made.json())
}

/// Reads to the end, which must be one of the stream's own, and returns the types of the events.
async fn read_out(mut lines: Lines) -> Result<Vec<Value>> {
    let mut events = Vec::new();
    while let Some(event) = lines.next().await? {
        events.push(event);
    }
    Ok(events)
}

async fn with_quick_bookmarks() -> Result<TestHub> {
    let options = Options { bookmark_every: Duration::from_millis(20), ..Options::default() };
    TestHub::start_on(Arc::new(MemoryStore::new()), options).await
}

#[tokio::test]
async fn bookmarks_follow_the_revision_also_when_nothing_matches() -> Result<()> {
    let hub = with_quick_bookmarks().await?;
    let client = hub.admin().await?;
    let start = head(&client).await?;
    let path = format!("{SECRETS}?watch=true&resourceVersion={start}&fieldSelector=metadata.name=other");
    let mut asked = client.watch(&format!("{path}&allowWatchBookmarks=true")).await?;
    let mut did_not_ask = client.watch(&path).await?;

    let made = create(&client, "one").await?;

    loop {
        let bookmark = asked.expect().await?;
        assert_eq!(bookmark["type"], "BOOKMARK");
        let object = &bookmark["object"];
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Secret"), &json!("v1")));
        assert!(revision_of(object) <= revision_of(&made));
        if revision_of(object) == revision_of(&made) {
            break;
        }
    }
    create(&client, "other").await?;
    let first = did_not_ask.expect().await?;
    assert_eq!((text(&first, "/type"), text(&first, "/object/metadata/name")), ("ADDED", "other"));
    Ok(())
}

#[tokio::test]
async fn a_watch_ends_cleanly_at_its_time_and_with_a_bookmark_if_asked() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let made = create(&client, "one").await?;

    let plain = client.watch(&format!("{SECRETS}?watch=true&timeoutSeconds=1")).await?;
    let marked = format!("{SECRETS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true");
    let marked = client.watch(&marked).await?;

    let types =
        |events: &[Value]| -> Vec<String> { events.iter().map(|it| text(it, "/type").into()).collect() };
    assert_eq!(types(&read_out(plain).await?), ["ADDED"]);
    let events = read_out(marked).await?;
    assert_eq!(types(&events), ["ADDED", "BOOKMARK"]);
    assert_eq!(revision_of(&events[1]["object"]), revision_of(&made));
    Ok(())
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    create(&client, "one").await?;
    let last = create(&client, "two").await?;
    let path = format!("{SECRETS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true");

    let refused = client.get(&path).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "it needs a resourceVersionMatch");

    let not_older = format!("{path}&resourceVersionMatch=NotOlderThan");
    for start in ["", "&resourceVersion=0", &format!("&resourceVersion={}", revision_of(&last))] {
        let mut lines = client.watch(&format!("{not_older}{start}")).await?;
        for name in ["one", "two"] {
            let event = lines.expect().await?;
            assert_eq!((text(&event, "/type"), text(&event, "/object/metadata/name")), ("ADDED", name));
        }
        let end = lines.expect().await?;
        assert_eq!(end["type"], "BOOKMARK");
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(revision_of(&end["object"]), revision_of(&last));
    }
    let mut only_new = client.watch(&format!("{not_older}&sendInitialEvents=false")).await?;
    // The first value of a parameter counts, so say it in a path of its own as well.
    assert_eq!(only_new.expect().await?["type"], "ADDED");
    let path = format!("{SECRETS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut only_new = client.watch(&path).await?;
    create(&client, "three").await?;
    assert_eq!(text(&only_new.expect().await?, "/object/metadata/name"), "three");
    Ok(())
}

#[tokio::test]
async fn a_revision_that_has_not_happened_is_too_large() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let future = head(&client).await? + 1000;

    let watch = format!("{SECRETS}?watch=true&resourceVersion={future}");
    let list = format!("{SECRETS}?resourceVersion={future}&resourceVersionMatch=NotOlderThan");
    let initial = format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let get = format!("/api/v1/namespaces/default?resourceVersion={future}");
    let (watch, list, initial, get) =
        tokio::join!(client.get(&watch), client.get(&list), client.get(&initial), client.get(&get));

    for answer in [watch?, list?, initial?, get?] {
        let status = answer.json();
        assert_eq!(answer.code, StatusCode::GATEWAY_TIMEOUT, "{status}");
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    Ok(())
}

#[tokio::test]
async fn a_revision_that_is_about_to_happen_is_waited_for() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let next = head(&client).await? + 1;
    let path = format!("{SECRETS}?resourceVersion={next}&resourceVersionMatch=NotOlderThan");

    let (list, _) = tokio::join!(client.get(&path), create(&client, "one"));

    assert_eq!(list?.json()["items"][0]["metadata"]["name"], "one");
    Ok(())
}

fn is_expired(status: &Value) -> bool {
    status["kind"] == "Status" && status["code"] == 410 && status["reason"] == "Expired"
}

#[tokio::test]
async fn a_watcher_too_slow_for_the_history_is_told_to_list_again() -> Result<()> {
    // Given a history of a few dozen changes and a watcher that does not read.
    let options = store::live::Options { ring_bytes: 64 << 10, ..Default::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::with_options(options)), Options::default()).await?;
    let client = hub.admin().await?;
    let start = head(&client).await?;
    let slow = hub.admin_with_window(2000).await?;
    let path = format!("{SECRETS}?watch=true&resourceVersion={start}");
    let mut watch = slow.watch(&path).await?;

    // When much more happens than is kept.
    let filler = "x".repeat(500);
    let mut revisions = Vec::new();
    create(&client, "one").await?;
    revisions.push(head(&client).await?);
    for count in 0..600 {
        let patch = json!({"data": {"count": format!("{count:04}"), "filler": filler}});
        let changed = client.merge_patch(&format!("{SECRETS}/one"), &patch).await?;
        revisions.push(revision_of(&changed.json()));
    }

    // Then it reads what was on its way, without a hole, and then that the rest is gone.
    let mut seen = Vec::new();
    let expired = loop {
        let event = watch.expect().await?;
        if event["type"] == "ERROR" {
            break event;
        }
        seen.push(revision_of(&event["object"]));
    };
    assert!(is_expired(&expired["object"]), "{expired}");
    assert!(seen.len() < revisions.len());
    assert_eq!(seen, revisions[..seen.len()]);
    assert_eq!(watch.next().await?, None, "an error is the last event");

    // And starting there again is told the same at once, as upstream does it, while a new list goes on.
    let told = read_out(client.watch(&path).await?).await?;
    assert!(told.len() == 1 && told[0]["type"] == "ERROR" && is_expired(&told[0]["object"]), "{told:?}");
    let exact = format!("{SECRETS}?resourceVersion={start}&resourceVersionMatch=Exact");
    assert!(is_expired(&client.get(&exact).await?.json()));
    let again = head(&client).await?;
    let mut watch = slow.watch(&format!("{SECRETS}?watch=true&resourceVersion={again}")).await?;
    let made = create(&client, "two").await?;
    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": made}));
    Ok(())
}

#[tokio::test]
async fn a_page_whose_snapshot_is_gone_can_be_continued_inconsistently() -> Result<()> {
    let options = store::live::Options { ring_bytes: 16 << 10, ..Default::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::with_options(options)), Options::default()).await?;
    let client = hub.admin().await?;
    for name in ["a", "b", "c"] {
        create(&client, name).await?;
    }
    let first = client.get(&format!("{SECRETS}?limit=1")).await?.json();
    let token = text(&first, "/metadata/continue").to_owned();
    for count in 0..200 {
        client.merge_patch(&format!("{SECRETS}/c"), &json!({"data": {"n": format!("{count:04}")}})).await?;
    }

    let expired = client.get(&format!("{SECRETS}?limit=1&continue={token}")).await?;
    assert!(is_expired(&expired.json()), "{}", expired.text());
    let token = text(&expired.json(), "/metadata/continue").to_owned();
    let rest = client.get(&format!("{SECRETS}?continue={token}")).await?.json();
    let names: Vec<&str> =
        rest["items"].as_array().into_iter().flatten().map(|it| text(it, "/metadata/name")).collect();
    assert_eq!(names, ["b", "c"]);
    Ok(())
}

#[tokio::test]
async fn watches_that_are_dropped_leave_nothing_behind() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(client.watch(&format!("{SECRETS}?watch=true")).await?);
    }
    let open = || hub.peer.hub.shares.watches.of(&server::hub::default_id());
    assert_eq!(open(), 20);

    watches.clear();

    eventually("no watch is open", || async { Ok((open() == 0).then_some(())) }).await?;
    assert_eq!(hub.peer.hub.metrics.requests.in_flight(), 0);
    Ok(())
}

#[tokio::test]
async fn stopping_ends_watches_cleanly() -> Result<()> {
    // Given idle watches, one with a backlog, and one over HTTP/1.1.
    let hub = with_quick_bookmarks().await?;
    let client = hub.admin().await?;
    let slow = hub.admin_with_window(2000).await?;
    let start = head(&client).await?;
    let backlog = slow.watch(&format!("{SECRETS}?watch=true&resourceVersion={start}")).await?;
    for count in 0..50 {
        create(&client, &format!("c{count}")).await?;
    }
    let path =
        format!("{SECRETS}?watch=true&allowWatchBookmarks=true&resourceVersion={}", head(&client).await?);
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.push(client.watch(&path).await?);
    }
    let mut old = hub.dial("http/1.1").await?;
    old.write_all(format!("GET {path} HTTP/1.1\r\nHost: hanse\r\n\r\n").as_bytes()).await?;
    let mut first = [0; 16];
    old.read_exact(&mut first).await?;
    assert!(first.starts_with(b"HTTP/1.1 200 OK"));
    let url = hub.peer.url();
    let ca_pem = hub.peer.authority.certificate_pem().to_owned();

    // When the server stops.
    let stopped = tokio::spawn(hub.stop());

    // Then every stream ends as streams do, and nothing listens any more.
    for watch in idle {
        let events = read_out(watch).await?;
        assert!(events.iter().all(|event| event["type"] == "BOOKMARK"), "{events:?}");
    }
    let seen: Vec<u64> = read_out(backlog).await?.iter().map(|event| revision_of(&event["object"])).collect();
    assert_eq!(seen, (start + 1..).take(seen.len()).collect::<Vec<_>>());
    let mut rest = Vec::new();
    old.read_to_end(&mut rest).await?;
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    stopped.await?;
    assert!(Client::connect(&url, &ca_pem, None).await.is_err());
    Ok(())
}
