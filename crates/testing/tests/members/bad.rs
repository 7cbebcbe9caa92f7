//! Members that behave badly: each says so on its `Cluster`, with the reason, and none holds up another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::StatusCode;
use rcgen::CertificateParams;
use serde_json::{Value, json};
use testing::{
    hub::eventually,
    webhook::{Asked, Reply, Webhook},
};

use crate::world::{CLUSTERS, Members, World, brisk, ready};

fn kube_system(uid: &str) -> Reply {
    Reply::Json(json!({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}}))
}

/// A member of that identity that has nothing.
fn empty_member(uid: &str, asked: &Asked) -> Reply {
    let path = asked.path.split('?').next().unwrap_or_default();
    match path {
        "/readyz" => Reply::Raw(StatusCode::OK, "text/plain", Bytes::from_static(b"ok")),
        "/api/v1/namespaces/kube-system" => kube_system(uid),
        _ if asked.path.contains("watch=true") => Reply::Nothing,
        _ => Reply::Json(json!({"kind": "SomeList", "metadata": {"resourceVersion": "1"}, "items": []})),
    }
}

/// What a member is asked, until that is so much.
async fn asked_until(member: &Webhook, count: usize) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    eventually("it is asked", || {
        asked.extend(member.take());
        let is_enough = asked.len() >= count;
        async move { Ok(is_enough.then_some(())) }
    })
    .await?;
    Ok(asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_too_much_is_shown_as_it_was_and_says_so() -> Result<()> {
    let options = sync::Options { most_bytes: 256 << 10, learn_every: Duration::from_millis(500), ..brisk() };
    let world = World::start_with(options).await?;
    let members = Members::start(&["large", "small"]).await?;
    for member in ["large", "small"] {
        members.mk_node(member, "node").await?;
        members.mk_pod(member, "default", &format!("{member}-pod"), "node").await?;
        world.join(member, &members.access(member)).await?;
    }
    let shown = |name: &'static str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let world = &world;
        async move { world.admin.get(&path).await }
    };
    eventually("both show", || async {
        Ok((shown("large-pod").await?.code == 200 && shown("small-pod").await?.code == 200).then_some(()))
    })
    .await?;
    let pods = "/api/v1/namespaces/default/pods";
    for number in 0..4 {
        let pod = json!({
            "metadata": {"name": format!("fat-{number}"), "annotations": {"fat": "x".repeat(100 << 10)}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
        });
        members.post("large", pods, pod).await?;
    }

    let complete = |cluster: &Value| api::cluster::condition(cluster, "Complete").cloned();
    let said = eventually("it is said", || async { Ok(complete(&world.cluster("large").await?)) }).await?;
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("TooLarge")));
    assert!(said["message"].as_str().is_some_and(|it| it.contains("/api/v1/pods cannot")), "{said}");
    let old = shown("large-pod").await?.json();
    assert!(old["metadata"]["annotations"]["hanse.io/stale"].is_string(), "{old}");
    assert_eq!(ready(&world.cluster("large").await?)["status"], "True", "it can be used all the same");
    let other = shown("small-pod").await?.json();
    assert!(other["metadata"]["annotations"]["hanse.io/stale"].is_null(), "{other}");
    assert_eq!(complete(&world.cluster("small").await?), None);

    for number in 0..3 {
        members.admin.delete(&format!("/clusters/large{pods}/fat-{number}?gracePeriodSeconds=0")).await?;
    }
    eventually("it is complete again", || async {
        let is_new = shown("large-pod").await?.json()["metadata"]["annotations"]["hanse.io/stale"].is_null();
        let is_said = complete(&world.cluster("large").await?).is_some();
        Ok((is_new && !is_said && shown("fat-3").await?.code == 200).then_some(()))
    })
    .await?;
    assert_eq!(shown("fat-0").await?.code, 404);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_member_is_said_and_holds_up_nobody() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["good"]).await?);
    let refusing = Webhook::start(|_| {
        let status = json!({"kind": "Status", "message": "Unauthorized", "code": 401}).to_string();
        Reply::Raw(StatusCode::UNAUTHORIZED, "application/json", status.into())
    })
    .await?;
    let garbage =
        Webhook::start(|_| Reply::Raw(StatusCode::OK, "text/html", Bytes::from_static(b"<html>"))).await?;
    let hanging = Webhook::start(|_| Reply::Nothing).await?;
    let dripping = Webhook::start(|_| Reply::Beginning(Bytes::from_static(b"{"))).await?;
    let closing = Webhook::start(|_| Reply::Close).await?;
    let throttling = Webhook::start(|_| Reply::Later(StatusCode::TOO_MANY_REQUESTS, 3600)).await?;
    let failing = Webhook::start(|_| {
        Reply::Raw(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Bytes::from_static(b"etcd failed"))
    })
    .await?;
    let endless = Webhook::start(|asked| match asked.path.as_str() {
        "/readyz" => Reply::Raw(StatusCode::OK, "text/plain", Bytes::from(vec![b'x'; 8 << 20])),
        _ => Reply::Nothing,
    })
    .await?;
    let mut expired = CertificateParams::new(["127.0.0.1".to_owned()])?;
    expired.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let expired = Webhook::start_as(expired, |_| Reply::Nothing).await?;
    let mut foreign = CertificateParams::new(["elsewhere.example".to_owned()])?;
    foreign.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let foreign = Webhook::start_as(foreign, |_| Reply::Nothing).await?;
    let cases = [
        ("refusing", &refusing.url, &refusing.ca_bundle, "Unauthorized", "Unauthorized"),
        ("garbage", &garbage.url, &garbage.ca_bundle, "BadAnswer", "no UID"),
        ("hanging", &hanging.url, &hanging.ca_bundle, "Timeout", "no answer within"),
        ("dripping", &dripping.url, &dripping.ca_bundle, "Timeout", "no answer within"),
        ("closing", &closing.url, &closing.ca_bundle, "Unreachable", "the connection broke"),
        ("throttling", &throttling.url, &throttling.ca_bundle, "Throttled", "429"),
        ("failing", &failing.url, &failing.ca_bundle, "NotReady", "etcd failed"),
        ("endless", &endless.url, &endless.ca_bundle, "BadAnswer", "longer than"),
        ("expired", &expired.url, &expired.ca_bundle, "CertificateExpired", "has expired"),
        ("foreign", &foreign.url, &foreign.ca_bundle, "CertificateUntrusted", "another name"),
        ("untrusted", &hanging.url, &refusing.ca_bundle, "CertificateUntrusted", "none of the authorities"),
        ("absent", &"https://127.0.0.1:1".to_owned(), &hanging.ca_bundle, "Unreachable", "cannot reach"),
        (
            "nameless",
            &"https://no-such-host.invalid".to_owned(),
            &hanging.ca_bundle,
            "NameNotFound",
            "cannot find",
        ),
        ("bundleless", &hanging.url, &BASE64_STANDARD.encode("no certificate"), "AccessInvalid", "authority"),
    ];
    for (name, url, bundle, ..) in cases {
        world.cluster_by_hand(name, url, bundle).await?;
    }
    // One that is well comes last, and is ready all the same.
    world.join("good", &members.access("good")).await?;
    world.until("good", "Ready").await?;
    for (name, _, _, reason, part) in cases {
        let cluster = world.until(name, reason).await?;
        let ready = ready(&cluster);
        assert_eq!(ready["status"], "False", "{name}");
        assert!(ready["message"].as_str().is_some_and(|it| it.contains(part)), "{name}: {ready}");
        assert_eq!(world.admin.get(&format!("/api/v1/nodes/{name}")).await?.code, 404, "{name} is not used");
    }
    assert!(throttling.take().len() < 10, "it wants to be left alone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_becomes_another_cluster_is_not_used() -> Result<()> {
    let world = World::start().await?;
    let identity = Arc::new(AtomicUsize::new(1));
    let now = identity.clone();
    let member =
        Webhook::start(move |asked| empty_member(&format!("cluster-{}", now.load(Ordering::SeqCst)), asked))
            .await?;
    world.cluster_by_hand("eu-1", &member.url, &member.ca_bundle).await?;
    let first = world.until("eu-1", "Ready").await?;
    assert_eq!(first["status"]["identity"], "cluster-1");
    identity.store(2, Ordering::SeqCst);
    let changed = world.until("eu-1", "IdentityChanged").await?;
    assert_eq!(changed["status"]["identity"], "cluster-1", "it stands for what was joined");
    let condition = api::cluster::condition(&changed, "IdentityChanged").cloned().unwrap_or_default();
    assert_eq!(condition["status"], "True");
    assert!(condition["message"].as_str().is_some_and(|it| it.contains("cluster-2")), "{condition}");
    // Nothing but its identity is asked of it from then on. What was under way may still arrive.
    asked_until(&member, 4).await?;
    for it in asked_until(&member, 8).await? {
        assert!(matches!(it.path.as_str(), "/readyz" | "/api/v1/namespaces/kube-system"), "{}", it.path);
    }
    // The one that was joined is back.
    identity.store(1, Ordering::SeqCst);
    let back = world.until("eu-1", "Ready").await?;
    assert!(api::cluster::condition(&back, "IdentityChanged").is_none());
    assert_eq!(world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?.code, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_forgets_at_once_is_not_asked_at_once() -> Result<()> {
    let world = World::start().await?;
    let member = Webhook::start(|asked| match asked.path.contains("watch=true") {
        true => Reply::Json(
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}),
        ),
        false => empty_member("cluster-1", asked),
    })
    .await?;
    world.cluster_by_hand("eu-1", &member.url, &member.ca_bundle).await?;
    world.until("eu-1", "Ready").await?;
    let asked = asked_until(&member, 200).await?;
    let count = |part: &str| asked.iter().filter(|it| it.path.contains(part)).count();
    let (lists, probes) = (count("/pods?limit="), count("/readyz"));
    assert!(lists > 1, "it is listed again");
    assert!(lists <= 10 * (probes + 1), "{lists} lists, and {probes} probes meanwhile");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_answers_others_is_busy_and_not_lost() -> Result<()> {
    let options = sync::Options { request_limit: Duration::from_millis(300), ..brisk() };
    let world = World::start_with(options).await?;
    let (well, busy, silent) = (0, 1, 2);
    let state = Arc::new(AtomicUsize::new(well));
    let now = state.clone();
    let member = Webhook::start(move |asked| match now.load(Ordering::SeqCst) {
        // Watches end at once, so that it is asked for lists all the time.
        state if state != silent && asked.path.contains("watch=true") => Reply::Json(
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}),
        ),
        state if state == silent || (state == busy && asked.path == "/readyz") => Reply::Nothing,
        _ => empty_member("cluster-1", asked),
    })
    .await?;
    world.cluster_by_hand("eu-1", &member.url, &member.ca_bundle).await?;
    world.until("eu-1", "Ready").await?;
    state.store(busy, Ordering::SeqCst);
    let mut probes = 0;
    while probes < 8 {
        probes += asked_until(&member, 1).await?.iter().filter(|it| it.path == "/readyz").count();
        let cluster = world.cluster("eu-1").await?;
        assert_eq!(ready(&cluster)["reason"], "Ready", "after {probes} probes without answer");
    }
    state.store(silent, Ordering::SeqCst);
    let lost = world.until("eu-1", "Timeout").await?;
    assert_eq!(ready(&lost)["status"], "False");
    Ok(())
}
