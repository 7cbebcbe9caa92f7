//! What is the members' own in copies stays as it is.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::NS,
    federated::web,
    words::{A, B, begin, federated, named, plain, restart, start, until_replicas, until_told},
    world::path,
};

#[tokio::test(flavor = "multi_thread")]
async fn scenario_15_members_keep_what_is_theirs() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let service = |label: &str| {
        let spec = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80}],
        });
        let template = json!({"metadata": {"labels": {"tier": label}}, "spec": spec});
        federated("Service", "web", json!({"template": template, "placement": named(&[A, B])}))
    };
    world.apply(&service("one")).await?;
    let copy = path(&plain(&service("")));
    let theirs = |it: &Value| {
        let fields = ["clusterIP", "clusterIPs", "ports", "healthCheckNodePort"];
        Value::from_iter(fields.map(|field| (field.to_owned(), it["spec"][field].clone())))
    };
    let members = [world.member(A).await?, world.member(B).await?];
    let mut before = Vec::new();
    for member in &members {
        let made = member
            .until(&copy, "it has an address", |it| it["spec"]["ports"][0]["nodePort"].is_u64())
            .await?;
        assert!(made["spec"]["healthCheckNodePort"].as_u64() > Some(0), "{made}");
        before.push(theirs(&made));
    }
    restart(&mut world, &[A, B]).await?;
    world.apply(&service("two")).await?;
    for (member, before) in members.iter().zip(before) {
        let after =
            member.until(&copy, "it has the label", |it| it["metadata"]["labels"]["tier"] == "two").await?;
        assert_eq!(theirs(&after), before);
    }

    // Replicas are the members' if that is asked for, and are put back if not.
    let mut web = web(json!([]));
    web["spec"]["retainReplicas"] = json!(true);
    world.apply(&web).await?;
    let deployment = plain(&web);
    until_replicas(&members[0], &deployment, 5).await?;
    members[0].client.merge_patch(&path(&deployment), &json!({"spec": {"replicas": 7}})).await?;
    web["spec"]["template"]["metadata"]["labels"]["tier"] = json!("new");
    world.apply(&web).await?;
    let changed = |it: &Value| it["metadata"]["labels"]["tier"] == "new";
    let kept = members[0].until(&path(&deployment), "it is changed", changed).await?;
    assert_eq!(kept["spec"]["replicas"], 7);
    restart(&mut world, &[A, B]).await?;
    world.barrier(NS, 0, &[A, B]).await?;
    assert_eq!(members[0].get(&path(&deployment)).await?["spec"]["replicas"], 7);
    web["spec"]["retainReplicas"] = json!(false);
    world.apply(&web).await?;
    until_replicas(&members[0], &deployment, 5).await.map(drop)
}

/// A kind, its template, and what its member decides of it.
type Kept = (&'static str, Value, fn(&Value) -> Value);

fn what_members_decide() -> [Kept; 3] {
    let mut job = crate::app::job("kept");
    job["spec"]["template"]["metadata"]["annotations"] = json!({"sim.hanse.io/exit-after": "1h"});
    let claim = crate::app::claim("kept");
    [
        ("PersistentVolumeClaim", json!({"spec": claim["spec"]}), |it| it["spec"]["volumeName"].clone()),
        ("ServiceAccount", json!({"automountServiceAccountToken": true}), |it| it["secrets"].clone()),
        ("Job", json!({"spec": job["spec"]}), |it| {
            json!([it["spec"]["selector"], it["spec"]["template"]["metadata"]["labels"]])
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_15_of_every_kind_members_keep_what_they_decide() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let members = [world.member(A).await?, world.member(B).await?];
    for member in &members {
        member.provide_volumes().await?;
    }
    for (kind, template, theirs) in what_members_decide() {
        let whole = |label: &str| {
            let mut template = template.clone();
            template["metadata"]["labels"]["tier"] = json!(label);
            federated(kind, "kept", json!({"template": template, "placement": named(&[A, B])}))
        };
        world.apply(&whole("one")).await?;
        let copy = path(&plain(&whole("")));
        let mut before = Vec::new();
        for member in &members {
            member.until_there(&copy).await?;
            if kind == "ServiceAccount" {
                // As older clusters do.
                member.client.merge_patch(&copy, &json!({"secrets": [{"name": "kept-token"}]})).await?;
            }
            let made = member.until(&copy, "its member has decided", |it| !theirs(it).is_null()).await?;
            before.push(theirs(&made));
        }
        until_told(&world, &whole(""), &[(A, ""), (B, "")], "True").await?;
        restart(&mut world, &[A, B]).await?;
        world.apply(&whole("two")).await?;
        for (member, before) in members.iter().zip(before) {
            let is_new = |it: &Value| it["metadata"]["labels"]["tier"] == "two";
            let after = member.until(&copy, "it has the label", is_new).await?;
            assert_eq!(theirs(&after), before, "{kind}");
        }
    }
    Ok(())
}

/// What is good in the hub alone stays there, and says so; members keep what they have under that name.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_15_tokens_never_leave_the_hub_and_members_keep_theirs() -> Result<()> {
    const TOKEN: &str = "kubernetes.io/service-account-token";
    let mut world = begin(&[A, B]).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let of_kept = json!({"kubernetes.io/service-account.name": "kept"});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TOKEN,
        "metadata": {"name": "kept-token", "namespace": NS, "annotations": of_kept},
    });
    for object in [&crate::app::namespace(NS), &crate::app::service_account("kept"), &secret] {
        a.create(object).await?;
    }
    let own = a.until(&path(&secret), "it has a token", |it| it["data"]["token"].is_string()).await?;
    world.namespace(NS).await?;
    world.apply(&federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}}))).await?;

    let template = json!({"type": TOKEN, "metadata": {"annotations": of_kept}});
    let whole = federated("Secret", "kept-token", json!({"template": template, "placement": named(&[A, B])}));
    world.apply(&whole).await?;
    let failed = [(A, "ComputeResourceFailed"), (B, "ComputeResourceFailed")];
    let told = until_told(&world, &whole, &failed, "FalseCheckClusters").await?;
    let message = crate::world::condition(&told, "Propagation")["message"].to_string();
    assert!(message.contains(TOKEN), "{message}");
    restart(&mut world, &[A, B]).await?;
    // What else is in that namespace goes on, and passes.
    let other =
        federated("ConfigMap", "other", json!({"template": {"data": {}}, "placement": named(&[A, B])}));
    world.apply(&other).await?;
    until_told(&world, &other, &[(A, ""), (B, "")], "True").await?;
    assert_eq!(a.get(&path(&secret)).await?["data"], own["data"]);
    assert_eq!(a.get(&path(&secret)).await?["metadata"]["uid"], own["metadata"]["uid"]);
    assert!(!b.has(&path(&secret)).await?);
    Ok(())
}
