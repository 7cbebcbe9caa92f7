//! Writes that wait are charged together: in one commit, each by its own merits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use anyhow::Result;
use env::BoxFuture;
use http::StatusCode;
use serde_json::{Value, json};
use store::{
    Bounds, Collection, Commit, Committed, Error, Key, Store, Usage, WorkspaceId, memory::MemoryStore,
};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually, outfitted},
    interposed::{Between, Interposed},
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{NAMESPACE, eventually_used, mk, mk_pod, mk_quota, refusal, used};

/// `None`: it passes.
type Failures = Arc<Mutex<VecDeque<Option<Error>>>>;

/// A store that holds charges back until they may pass, and counts them.
struct Gate {
    open: watch::Receiver<bool>,
    /// Charges that have come.
    charges: watch::Sender<usize>,
    /// What the next ones come to instead of being committed.
    failures: Failures,
}

impl Between for Gate {
    fn commit(
        &self,
        store: &MemoryStore,
        workspace: &WorkspaceId,
        commit: Commit,
    ) -> BoxFuture<'static, Result<Vec<Committed>, Error>> {
        let is_quota = |commit: &Commit| {
            commit.writes.iter().any(|write| write.key.collection == Collection::new("", "resourcequotas"))
        };
        let is_charge = commit.writes.len() > 1 && is_quota(&commit);
        let (mut open, charges, failures) = (self.open.clone(), self.charges.clone(), self.failures.clone());
        let passed = store.commit(workspace, commit);
        Box::pin(async move {
            if is_charge {
                charges.send_modify(|count| *count += 1);
                let _ = open.wait_for(|open| *open).await;
                let failure = failures.lock().expect("nobody panicked").pop_front();
                if let Some(error) = failure.flatten() {
                    return Err(error);
                }
            }
            passed.await
        })
    }
}

/// A hub whose charges can be held back.
struct Held {
    hub: TestHub,
    client: Client,
    gate: watch::Sender<bool>,
    charges: watch::Receiver<usize>,
    failures: Failures,
}

impl Held {
    async fn start() -> Result<Held> {
        let (gate, open) = watch::channel(true);
        let (sender, charges) = watch::channel(0);
        let failures = Failures::default();
        let between = Gate { open, charges: sender, failures: failures.clone() };
        let hub = TestHub::start_on(Interposed::new(between), Default::default()).await?;
        let client = hub.admin().await?;
        mk(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await?;
        outfitted(&client, NAMESPACE).await?;
        Ok(Held { hub, client, gate, charges, failures })
    }

    fn post(&self, pod: Value) -> JoinHandle<Result<Answer>> {
        let client = self.client.clone();
        tokio::spawn(async move { client.post(&format!("{NAMESPACE}/pods"), &pod).await })
    }

    /// Holds charges back, and sends one that is held.
    async fn hold(&mut self, pod: Value) -> Result<JoinHandle<Result<Answer>>> {
        self.gate.send(false)?;
        let before = *self.charges.borrow_and_update();
        let first = self.post(pod);
        self.charges.wait_for(|count| *count > before).await?;
        Ok(first)
    }

    /// Until so many wait behind the one that is held.
    async fn until_waiting(&self, wanted: i64) -> Result<()> {
        eventually(&format!("{wanted} wait"), async || {
            Ok((self.hub.peer.hub.metrics.quota.waiting.get() == wanted).then_some(()))
        })
        .await
    }

    async fn pods(&self) -> Result<Vec<String>> {
        let list = self.client.get(&format!("{NAMESPACE}/pods")).await?.json();
        let items = list["items"].as_array().into_iter().flatten();
        Ok(items.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect())
    }
}

#[tokio::test]
async fn many_at_once_are_charged_in_few_writes_of_the_quota() -> Result<()> {
    // Given a quota of forty, and one charge that takes its time
    let mut held = Held::start().await?;
    mk_quota(&held.client, "q", json!({"hard": {"pods": "40", "requests.cpu": "100"}})).await?;
    let path = format!("{NAMESPACE}/resourcequotas?watch=1&resourceVersion=0");
    let mut changes = held.client.watch(&path).await?;
    changes.expect().await?;
    let mut running = vec![held.hold(mk_pod("p-0", "100m")).await?];
    // When sixty-three more come meanwhile
    running.extend((1..64).map(|number| held.post(mk_pod(&format!("p-{number}"), "100m"))));
    held.until_waiting(63).await?;
    held.gate.send(true)?;
    // Then exactly as many come in as fit, and the others are told why
    let mut accepted = 0;
    for task in running {
        let answer = task.await??;
        match answer.code {
            StatusCode::CREATED => accepted += 1,
            _ => assert!(
                refusal(&answer)
                    .ends_with("exceeded quota: q, requested: pods=1, used: pods=40, limited: pods=40"),
                "{}",
                answer.text()
            ),
        }
    }
    assert_eq!(accepted, 40);
    assert_eq!(held.pods().await?.len(), 40);
    assert_eq!(used(&held.client, "q").await?, json!({"pods": "40", "requests.cpu": "4"}));
    // And the quota was written for the first, and once for all others that fit
    let mut seen = Vec::new();
    mk(&held.client, &format!("{NAMESPACE}/resourcequotas"), json!({"metadata": {"name": "end"}})).await?;
    loop {
        let event = changes.expect().await?;
        if event["object"]["metadata"]["name"] == "end" {
            break;
        }
        seen.push(event["object"]["status"]["used"]["pods"].clone());
    }
    assert_eq!(seen, ["1", "40"]);
    Ok(())
}

#[tokio::test]
async fn of_a_batch_each_is_judged_by_itself() -> Result<()> {
    // Given two quotas, one of them of a scope, and a charge that takes its time
    let mut held = Held::start().await?;
    mk_quota(&held.client, "all", json!({"hard": {"requests.cpu": "1100m"}})).await?;
    let best_effort = json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]});
    mk_quota(&held.client, "best", best_effort).await?;
    let first = held.hold(mk_pod("first", "100m")).await?;
    // When some come that fit, and some that do not, and one twice
    let rows = [
        ("large", "600m", ""),
        (
            "larger",
            "700m",
            "requested: requests.cpu=700m, used: requests.cpu=700m, limited: requests.cpu=1100m",
        ),
        ("small", "200m", ""),
        ("small", "50m", "already exists"),
        ("tiny", "100m", ""),
        ("last", "200m", "requested: requests.cpu=200m, used: requests.cpu=1, limited: requests.cpu=1100m"),
    ];
    let mut running = Vec::new();
    for (place, (name, cpu, _)) in rows.iter().enumerate() {
        running.push(held.post(mk_pod(name, cpu)));
        held.until_waiting(place as i64 + 1).await?;
    }
    held.gate.send(true)?;
    // Then each gets the answer that it would get alone
    assert_eq!(first.await??.code, StatusCode::CREATED);
    for ((name, cpu, why), task) in rows.iter().zip(running) {
        let answer = task.await??;
        match why.is_empty() {
            true => assert_eq!(answer.code, StatusCode::CREATED, "{name} {cpu}: {}", answer.text()),
            false => assert!(answer.text().contains(why), "{name} {cpu}: {}", answer.text()),
        }
    }
    assert_eq!(held.pods().await?, ["first", "large", "small", "tiny"]);
    assert_eq!(used(&held.client, "all").await?, json!({"requests.cpu": "1"}));
    assert_eq!(used(&held.client, "best").await?, json!({"pods": "0"}));
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_takes_nobody_with_it() -> Result<()> {
    // Given a charge that takes its time, and others that wait behind it
    let mut held = Held::start().await?;
    mk_quota(&held.client, "q", json!({"hard": {"pods": "100", "requests.cpu": "100"}})).await?;
    let first = held.hold(mk_pod("first", "1")).await?;
    let mut running = Vec::new();
    for number in 0..10 {
        running.push(held.post(mk_pod(&format!("p-{number}"), "1")));
        held.until_waiting(number + 1).await?;
    }
    // When the first one's client goes, and those of every second that waits
    first.abort();
    for (number, task) in running.iter().enumerate() {
        if number % 2 == 0 {
            task.abort();
        }
    }
    held.until_waiting(5).await?;
    held.gate.send(true)?;
    // Then the others are answered, and nothing is left of those who went but what was being written already
    for (number, task) in running.into_iter().enumerate() {
        if number % 2 == 1 {
            assert_eq!(task.await??.code, StatusCode::CREATED);
        }
    }
    assert_eq!(held.pods().await?, ["first", "p-1", "p-3", "p-5", "p-7", "p-9"]);
    assert_eq!(used(&held.client, "q").await?, json!({"pods": "6", "requests.cpu": "6"}));
    // And whoever comes later is served
    mk(&held.client, &format!("{NAMESPACE}/pods"), mk_pod("later", "1")).await?;
    held.until_waiting(0).await
}

#[tokio::test]
async fn a_batch_that_the_store_refuses_is_tried_as_far_as_it_can_be() -> Result<()> {
    let quota = Key::new("", "resourcequotas", "shop", "q");
    let pod = Key::new("", "pods", "shop", "second");
    let full = || Error::Full { usage: Usage::default(), bounds: Bounds::NONE };
    let conflict = |key: &Key| Error::Conflict { key: key.clone(), current: None };
    // What the store says to the second and third together; what they are told; and how often it was asked for them.
    // There is room for one of them.
    let rows = [
        ("the quota was written by another server", conflict(&quota), [201, 403], 2),
        ("somebody made one of them: it is tried again by itself", conflict(&pod), [403, 201], 2),
        ("together they are too much for the workspace", full(), [201, 403], 2),
        (
            "nothing can be written: who would not have fitted may now",
            Error::Unavailable("why".into()),
            [503, 201],
            2,
        ),
        ("nobody knows", Error::Unknown("why".into()), [504, 201], 2),
    ];
    for (what, error, codes, asked) in rows {
        let mut held = Held::start().await?;
        mk_quota(&held.client, "q", json!({"hard": {"requests.cpu": "2"}})).await?;
        let first = held.hold(mk_pod("first", "1")).await?;
        let second = held.post(mk_pod("second", "1"));
        held.until_waiting(1).await?;
        let third = held.post(mk_pod("third", "1"));
        held.until_waiting(2).await?;
        held.failures.lock().expect("nobody panicked").extend([None, Some(error)]);
        let before = *held.charges.borrow_and_update();
        held.gate.send(true)?;
        assert_eq!(first.await??.code, StatusCode::CREATED, "{what}");
        let told = [second.await??.code.as_u16(), third.await??.code.as_u16()];
        assert_eq!(told, codes, "{what}");
        assert_eq!(*held.charges.borrow() - before, asked, "{what}");
        assert_eq!(used(&held.client, "q").await?, json!({"requests.cpu": "2"}), "{what}");
        assert_eq!(held.pods().await?.len(), 2, "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn a_quota_that_changes_while_somebody_waits_is_asked_as_it_is_then() -> Result<()> {
    // Given a charge that takes its time, and one that waits
    let mut held = Held::start().await?;
    mk_quota(&held.client, "q", json!({"hard": {"pods": "10"}})).await?;
    let first = held.hold(mk_pod("first", "1")).await?;
    let second = held.post(mk_pod("second", "1"));
    held.until_waiting(1).await?;
    // When another quota comes, into which neither fits
    mk_quota(&held.client, "r", json!({"hard": {"requests.cpu": "500m"}})).await?;
    held.gate.send(true)?;
    // Then who waited is refused by it, and who was being written is counted
    assert_eq!(first.await??.code, StatusCode::CREATED);
    assert!(refusal(&second.await??).contains("exceeded quota: r, requested: requests.cpu=1, "));
    eventually_used(&held.client, "r", json!({"requests.cpu": "1"})).await?;
    assert_eq!(used(&held.client, "q").await?, json!({"pods": "1"}));
    Ok(())
}
