//! What becomes of objects when those they belong to go: owners, finalizers, namespaces, mass deletion.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use testing::{
    client::{Answer, Client},
    hub::{TestHub, eventually},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const HOLD: &str = "example.com/hold";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    Ok(made.json())
}

/// A reference to `owner`, which waits for its dependents if it `blocks`.
fn belongs_to(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

fn mk_object(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}})
}

async fn mk(client: &Client, name: &str, owners: &[Value]) -> Result<Value> {
    create(client, CONFIG_MAPS, mk_object(name, owners, &[])).await
}

async fn mk_held(client: &Client, name: &str, owners: &[Value]) -> Result<Value> {
    create(client, CONFIG_MAPS, mk_object(name, owners, &[HOLD])).await
}

fn at(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

async fn delete_with(client: &Client, path: &str, options: Value) -> Result<Answer> {
    client.call(Method::DELETE, path, &[("content-type", "application/json")], options.to_string()).await
}

async fn delete_as(client: &Client, path: &str, policy: &str) -> Result<Answer> {
    delete_with(client, path, json!({"propagationPolicy": policy})).await
}

async fn release(client: &Client, path: &str) -> Result<()> {
    let released = client.merge_patch(path, &json!({"metadata": {"finalizers": null}})).await?;
    assert_eq!(released.code, StatusCode::OK, "{}", released.text());
    Ok(())
}

async fn is_gone(client: &Client, path: &str) -> Result<()> {
    eventually(&format!("{path} is gone"), || async {
        Ok((client.get(path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

/// Waits until the object looks as `done` says.
async fn becomes(client: &Client, path: &str, done: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(&format!("{path} changes"), || async {
        let answer = client.get(path).await?;
        assert_eq!(answer.code, StatusCode::OK, "{path}: {}", answer.text());
        Ok(Some(answer.json()).filter(&done))
    })
    .await
}

fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The collector has had its chance at everything that happened before: later garbage is gone.
async fn collector_has_passed(client: &Client) -> Result<()> {
    for name in ["canary-1", "canary-2", "canary-3"] {
        let nobody = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "none"});
        create(client, SECRETS, mk_object(name, &[nobody], &[])).await?;
        is_gone(client, &format!("{SECRETS}/{name}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn in_the_background_dependents_follow_their_owner() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for policy in ["", "Background"] {
        let owner = mk(&client, "owner", &[]).await?;
        let child = mk(&client, "child", &[belongs_to(&owner, true)]).await?;
        create(&client, SECRETS, mk_object("other-kind", &[belongs_to(&owner, false)], &[])).await?;
        mk(&client, "grandchild", &[belongs_to(&child, true)]).await?;
        mk(&client, "bystander", &[]).await?;

        let answer = delete_as(&client, &at("owner"), policy).await?;

        assert_eq!((answer.code, text(&answer.json(), "/status")), (StatusCode::OK, "Success"));
        assert_eq!(answer.json()["details"]["uid"], owner["metadata"]["uid"]);
        assert_eq!(client.get(&at("owner")).await?.code, StatusCode::NOT_FOUND, "the owner goes at once");
        for path in [at("child"), at("grandchild"), format!("{SECRETS}/other-kind")] {
            is_gone(&client, &path).await?;
        }
        collector_has_passed(&client).await?;
        assert_eq!(client.delete(&at("bystander")).await?.code, StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn in_the_foreground_dependents_go_first() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let owner = mk(&client, "owner", &[]).await?;
    let child = mk(&client, "child", &[belongs_to(&owner, true)]).await?;
    mk(&client, "grandchild", &[belongs_to(&child, true)]).await?;
    let revision = text(&client.get(CONFIG_MAPS).await?.json(), "/metadata/resourceVersion").to_owned();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await?;

    let answer = delete_as(&client, &at("owner"), "Foreground").await?;

    assert_eq!(answer.code, StatusCode::OK);
    assert!(is_deleting(&answer.json()), "{}", answer.text());
    assert_eq!(answer.json()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let mut order = Vec::new();
    while order.len() < 3 {
        let event = watch.expect().await?;
        if event["type"] == "DELETED" {
            order.push(name_of(&event["object"]).to_owned());
        }
    }
    assert_eq!(order, ["grandchild", "child", "owner"]);
    Ok(())
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits_for_those_that_block_only() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let patient = mk(&client, "patient", &[]).await?;
    mk_held(&client, "blocking", &[belongs_to(&patient, true)]).await?;
    let hasty = mk(&client, "hasty", &[]).await?;
    mk_held(&client, "not-blocking", &[belongs_to(&hasty, false)]).await?;

    delete_as(&client, &at("patient"), "Foreground").await?;
    delete_as(&client, &at("hasty"), "Foreground").await?;

    is_gone(&client, &at("hasty")).await?;
    becomes(&client, &at("not-blocking"), is_deleting).await?;
    becomes(&client, &at("blocking"), is_deleting).await?;
    collector_has_passed(&client).await?;
    assert_eq!(client.get(&at("patient")).await?.code, StatusCode::OK, "it waits");
    release(&client, &at("blocking")).await?;
    is_gone(&client, &at("patient")).await?;
    release(&client, &at("not-blocking")).await?;
    is_gone(&client, &at("not-blocking")).await
}

#[tokio::test]
async fn in_the_foreground_a_circle_of_owners_goes_as_a_whole() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    // Both of these deletions would wait for each other if it were not for the circle.
    for first_deleted in [&["a"][..], &["a", "b", "c"]] {
        let made = [mk(&client, "a", &[]).await?, mk(&client, "b", &[]).await?, mk(&client, "c", &[]).await?];
        for (name, owner) in ["a", "b", "c"].iter().zip([&made[2], &made[0], &made[1]]) {
            let owners = json!({"metadata": {"ownerReferences": [belongs_to(owner, true)]}});
            assert_eq!(client.merge_patch(&at(name), &owners).await?.code, StatusCode::OK);
        }
        for name in first_deleted {
            delete_as(&client, &at(name), "Foreground").await?;
        }
        for name in ["a", "b", "c"] {
            is_gone(&client, &at(name)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_owner_alone_needs_to_wait_for_nobody() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for policy in ["Foreground", "Orphan"] {
        mk(&client, "alone", &[]).await?;
        delete_as(&client, &at("alone"), policy).await?;
        is_gone(&client, &at("alone")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn orphans_stay_and_belong_to_nobody() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for options in [json!({"propagationPolicy": "Orphan"}), json!({"orphanDependents": true})] {
        let owner = mk(&client, "owner", &[]).await?;
        for name in ["first", "second"] {
            mk(&client, name, &[belongs_to(&owner, true)]).await?;
        }

        let answer = delete_with(&client, &at("owner"), options).await?;

        assert_eq!(answer.json()["metadata"]["finalizers"], json!(["orphan"]), "{}", answer.text());
        is_gone(&client, &at("owner")).await?;
        collector_has_passed(&client).await?;
        for name in ["first", "second"] {
            let orphan = client.get(&at(name)).await?.json();
            assert_eq!(orphan["metadata"].get("ownerReferences"), None, "{orphan}");
            client.delete(&at(name)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_later_deletion_may_change_its_mind() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let owner = mk_held(&client, "owner", &[]).await?;
    mk_held(&client, "child", &[belongs_to(&owner, true)]).await?;

    delete_as(&client, &at("owner"), "Foreground").await?;
    let after = delete_as(&client, &at("owner"), "Background").await?.json();

    assert_eq!(after["metadata"]["finalizers"], json!([HOLD]));
    release(&client, &at("owner")).await?;
    assert_eq!(client.get(&at("owner")).await?.code, StatusCode::NOT_FOUND);
    release(&client, &at("child")).await?;
    is_gone(&client, &at("child")).await
}

#[tokio::test]
async fn whoever_has_another_owner_stays() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for policy in ["Background", "Foreground"] {
        let first = mk(&client, "first", &[]).await?;
        let second = mk(&client, "second", &[]).await?;
        mk(&client, "child", &[belongs_to(&first, true), belongs_to(&second, true)]).await?;

        delete_as(&client, &at("first"), policy).await?;

        is_gone(&client, &at("first")).await?;
        let only_one =
            |child: &Value| child["metadata"]["ownerReferences"] == json!([belongs_to(&second, true)]);
        becomes(&client, &at("child"), only_one).await?;
        collector_has_passed(&client).await?;
        assert_eq!(client.get(&at("child")).await?.code, StatusCode::OK);

        delete_as(&client, &at("second"), policy).await?;
        is_gone(&client, &at("child")).await?;
        is_gone(&client, &at("second")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_owner_that_is_not_there_collects() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let owner = mk(&client, "owner", &[]).await?;
    let mut other_uid = belongs_to(&owner, false);
    other_uid["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let mut never_was = other_uid.clone();
    never_was["name"] = json!("never-was");
    mk(&client, "other-uid", &[other_uid]).await?;
    mk(&client, "never-was-child", &[never_was]).await?;
    // Owners are looked for in the dependent's own namespace, as upstream does.
    let elsewhere = "/api/v1/namespaces/kube-public/configmaps";
    create(&client, elsewhere, mk_object("stray", &[belongs_to(&owner, false)], &[])).await?;

    for path in [at("other-uid"), at("never-was-child"), format!("{elsewhere}/stray")] {
        is_gone(&client, &path).await?;
    }
    assert_eq!(client.get(&at("owner")).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn what_is_unknown_is_not_gone() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let unknown = json!({"apiVersion": "no.such/v1", "kind": "Thing", "name": "thing", "uid": "some-uid"});
    let other_version = json!({"apiVersion": "v7", "kind": "ConfigMap", "name": "thing", "uid": "some-uid"});
    mk(&client, "of-unknown", &[unknown]).await?;
    mk(&client, "of-other-version", &[other_version]).await?;
    // A cluster-scoped object cannot belong to a namespaced one; that is no reason to remove it.
    let owner = mk(&client, "owner", &[]).await?;
    create(&client, CLUSTER_ROLES, mk_object("of-namespaced", &[belongs_to(&owner, false)], &[])).await?;

    client.delete(&at("owner")).await?;
    collector_has_passed(&client).await?;

    for path in [at("of-unknown"), at("of-other-version"), format!("{CLUSTER_ROLES}/of-namespaced")] {
        assert_eq!(client.get(&path).await?.code, StatusCode::OK, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn owners_of_the_whole_cluster_and_of_the_base_count_too() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let own = create(&client, CLUSTER_ROLES, json!({"metadata": {"name": "own"}})).await?;
    let base = client.get(&format!("{CLUSTER_ROLES}/view")).await?.json();
    mk(&client, "of-own", &[belongs_to(&own, true)]).await?;
    mk(&client, "of-base", &[belongs_to(&base, true)]).await?;
    collector_has_passed(&client).await?;
    for name in ["of-own", "of-base"] {
        assert_eq!(client.get(&at(name)).await?.code, StatusCode::OK, "{name} has its owner");
    }

    client.delete(&format!("{CLUSTER_ROLES}/own")).await?;
    client.delete(&format!("{CLUSTER_ROLES}/view")).await?;

    is_gone(&client, &at("of-own")).await?;
    is_gone(&client, &at("of-base")).await
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_removed() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let finalizers = ["example.com/a", "example.com/b"];
    create(&client, CONFIG_MAPS, mk_object("held", &[], &finalizers)).await?;

    // Given an object marked for deletion, which is still there.
    let marked = client.delete(&at("held")).await?;
    assert_eq!(marked.code, StatusCode::OK);
    let marked = marked.json();
    assert!(is_deleting(&marked));
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(client.delete(&at("held")).await?.json(), marked, "deleting again changes nothing");

    // Then it can be changed, but neither revived nor held by anybody new.
    let labelled = client.merge_patch(&at("held"), &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    assert_eq!(labelled.code, StatusCode::OK);
    let revived = client.merge_patch(&at("held"), &json!({"metadata": {"deletionTimestamp": null}})).await?;
    assert_eq!(revived.json()["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let refused = client.merge_patch(&at("held"), &more).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    assert_eq!(client.post(CONFIG_MAPS, &mk_object("held", &[], &[])).await?.code, StatusCode::CONFLICT);

    // And it goes with its last finalizer, in the very write that removes it.
    let fewer = json!({"metadata": {"finalizers": ["example.com/b"]}});
    assert_eq!(client.merge_patch(&at("held"), &fewer).await?.code, StatusCode::OK);
    assert_eq!(client.get(&at("held")).await?.code, StatusCode::OK);
    release(&client, &at("held")).await?;
    assert_eq!(client.get(&at("held")).await?.code, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn deleting_a_collection_takes_what_is_selected() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let labelled = |name: &str, value: &str| json!({"metadata": {"name": name, "labels": {"set": value}}});
    for (name, value) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        create(&client, CONFIG_MAPS, labelled(name, value)).await?;
    }
    let held = json!({"metadata": {"name": "a3", "labels": {"set": "a"}, "finalizers": [HOLD]}});
    create(&client, CONFIG_MAPS, held).await?;
    let elsewhere = "/api/v1/namespaces/kube-public/configmaps";
    create(&client, elsewhere, labelled("a1", "a")).await?;

    let dry = client.delete(&format!("{CONFIG_MAPS}?labelSelector=set=a&dryRun=All")).await?;
    assert_eq!(names(&dry.json()), ["a1", "a2", "a3"]);
    assert_eq!(names(&client.get(CONFIG_MAPS).await?.json()), ["a1", "a2", "a3", "b1"]);

    let answer = client.delete(&format!("{CONFIG_MAPS}?labelSelector=set=a")).await?;

    assert_eq!(
        (answer.code, names(&answer.json())),
        (StatusCode::OK, vec!["a1".into(), "a2".into(), "a3".into()])
    );
    assert_eq!(answer.json()["kind"], "ConfigMapList");
    assert_eq!(names(&client.get(CONFIG_MAPS).await?.json()), ["a3", "b1"]);
    assert!(is_deleting(&client.get(&at("a3")).await?.json()));
    assert_eq!(client.get(&format!("{elsewhere}/a1")).await?.code, StatusCode::OK, "another namespace");

    let by_field = client.delete(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name=b1")).await?;
    assert_eq!(names(&by_field.json()), ["b1"]);
    release(&client, &at("a3")).await?;
    assert_eq!(names(&client.delete(CONFIG_MAPS).await?.json()), [] as [&str; 0]);
    Ok(())
}

const NAMESPACES: &str = "/api/v1/namespaces";

/// Without what every namespace has.
fn names(list: &Value) -> Vec<String> {
    let names = list["items"].as_array().into_iter().flatten().map(|it| name_of(it).to_owned());
    names.filter(|name| !matches!(name.as_str(), "default" | "kube-root-ca.crt")).collect()
}

async fn mk_namespace(client: &Client, name: &str) -> Result<Value> {
    create(client, NAMESPACES, json!({"metadata": {"name": name}})).await
}

#[tokio::test]
async fn a_namespace_goes_with_all_that_is_in_it() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let first = mk_namespace(&client, "team").await?;
    assert_eq!(first["status"]["phase"], "Active");
    let collections = [
        "/api/v1/namespaces/team/configmaps",
        "/api/v1/namespaces/team/secrets",
        "/api/v1/namespaces/team/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles",
        "/apis/coordination.k8s.io/v1/namespaces/team/leases",
    ];
    for path in collections {
        for count in 0..5 {
            create(&client, path, json!({"metadata": {"name": format!("thing-{count}")}})).await?;
        }
    }
    mk(&client, "bystander", &[]).await?;

    let answer = client.delete(&format!("{NAMESPACES}/team")).await?;

    assert_eq!(answer.code, StatusCode::OK);
    assert_eq!(answer.json()["status"]["phase"], "Terminating");
    is_gone(&client, &format!("{NAMESPACES}/team")).await?;
    assert_eq!(client.get(&at("bystander")).await?.code, StatusCode::OK);
    let missing = client.post(collections[0], &mk_object("late", &[], &[])).await?;
    assert_eq!(missing.code, StatusCode::NOT_FOUND);
    let again = mk_namespace(&client, "team").await?;
    assert_ne!(again["metadata"]["uid"], first["metadata"]["uid"]);
    for path in collections {
        assert_eq!(names(&client.get(path).await?.json()), [] as [&str; 0], "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn a_namespace_waits_for_content_that_is_held_and_says_so() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_namespace(&client, "team").await?;
    let (namespace, content) = (format!("{NAMESPACES}/team"), format!("{NAMESPACES}/team/configmaps"));
    create(&client, &content, mk_object("held", &[], &[HOLD])).await?;
    create(&client, &content, mk_object("free", &[], &[])).await?;

    client.delete(&namespace).await?;

    // Then what can go goes, and the namespace names what cannot.
    is_gone(&client, &format!("{content}/free")).await?;
    let condition = |object: &Value, kind: &str| -> Value {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|it| it["type"] == kind).cloned().unwrap_or_default()
    };
    let waits = |object: &Value| condition(object, "NamespaceFinalizersRemaining")["status"] == "True";
    let stuck = becomes(&client, &namespace, waits).await?;
    let remaining = condition(&stuck, "NamespaceContentRemaining");
    assert_eq!((&remaining["status"], &remaining["reason"]), (&json!("True"), &json!("SomeResourcesRemain")));
    assert!(text(&remaining, "/message").contains("configmaps. has 1 resource instances"), "{remaining}");
    let message = condition(&stuck, "NamespaceFinalizersRemaining")["message"].to_string();
    assert!(message.contains("example.com/hold in 1 resource instances"), "{message}");
    assert_eq!(condition(&stuck, "NamespaceDeletionContentFailure")["status"], "False");

    // And nothing new comes in, while what is there can still be changed.
    let refused = client.post(&content, &mk_object("late", &[], &[])).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text());
    let status = refused.json();
    assert_eq!(status["reason"], "Forbidden");
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.namespace");
    let changed = client.merge_patch(&format!("{content}/held"), &json!({"data": {"a": "b"}})).await?;
    assert_eq!(changed.code, StatusCode::OK, "{}", changed.text());

    release(&client, &format!("{content}/held")).await?;
    is_gone(&client, &namespace).await
}

#[tokio::test]
async fn pods_leave_a_namespace_before_what_they_use() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_namespace(&client, "team").await?;
    let (namespace, settings) = (format!("{NAMESPACES}/team"), format!("{NAMESPACES}/team/configmaps"));
    let pods = format!("{NAMESPACES}/team/pods");
    let mut pod = mk_object("held", &[], &[HOLD]);
    pod["spec"] = json!({"containers": [{"name": "main", "image": "example.com/web"}]});
    create(&client, &pods, pod).await?;
    create(&client, &settings, mk_object("used", &[], &[])).await?;

    client.delete(&namespace).await?;

    let waits = |object: &Value| object["status"]["conditions"].is_array();
    becomes(&client, &namespace, waits).await?;
    let pod = client.get(&format!("{pods}/held")).await?.json();
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    assert_eq!(client.get(&format!("{settings}/used")).await?.code, StatusCode::OK, "a pod may still use it");

    release(&client, &format!("{pods}/held")).await?;
    is_gone(&client, &namespace).await
}

#[tokio::test]
async fn a_namespace_may_have_finalizers_of_its_own() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let object = json!({"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/hold"]}});
    let made = create(&client, NAMESPACES, object).await?;
    assert!(
        made["spec"]["finalizers"].as_array().is_some_and(|it| it.contains(&json!("kubernetes"))),
        "{made}"
    );
    let namespace = format!("{NAMESPACES}/team");

    client.delete(&namespace).await?;

    let emptied = |object: &Value| object["spec"]["finalizers"] == json!([HOLD]);
    let mut object = becomes(&client, &namespace, emptied).await?;
    object["spec"]["finalizers"] = json!([]);
    let kept = client.put(&namespace, &object).await?;
    assert_eq!(kept.json()["spec"]["finalizers"], json!([HOLD]), "only the subresource removes them");
    object["metadata"]["resourceVersion"] = json!("");
    let finalized = client.put(&format!("{namespace}/finalize"), &object).await?;
    assert_eq!(finalized.code, StatusCode::OK, "{}", finalized.text());
    is_gone(&client, &namespace).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_slips_into_a_namespace_that_goes() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for round in 0..5 {
        let namespace = format!("{NAMESPACES}/racy-{round}");
        mk_namespace(&client, &format!("racy-{round}")).await?;
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (client, path) = (client.clone(), format!("{namespace}/configmaps"));
                tokio::spawn(async move {
                    let object = json!({"metadata": {"generateName": "racer-"}});
                    loop {
                        let answer = client.post(&path, &object).await?;
                        match answer.code.as_u16() {
                            201 => continue,
                            403 | 404 => return anyhow::Ok(()),
                            _ => panic!("{}", answer.text()),
                        }
                    }
                })
            })
            .collect();
        eventually("something is written", || async {
            let list = client.get(&format!("{namespace}/configmaps?limit=3")).await?.json();
            Ok((!names(&list).is_empty()).then_some(()))
        })
        .await?;

        client.delete(&namespace).await?;

        for writer in writers {
            writer.await??;
        }
        is_gone(&client, &namespace).await?;
        assert_eq!(names(&client.get("/api/v1/configmaps").await?.json()), [] as [&str; 0]);
    }
    Ok(())
}
