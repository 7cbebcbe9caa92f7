//! Clusters in the words of the registry and of KubeFed.

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sync::{
    client::{Access, Identity},
    unjoin,
};

use crate::{
    app::NS,
    words::{A, B, begin, create, federated, label_cluster, named, plain, restart, start, until_told},
    world::{CLUSTERS, World, access, condition, items, path, sync_client},
};

/// A hub, and a cluster that it does not know yet.
async fn stranger(name: &str) -> Result<(World, Access)> {
    let world = begin(&[]).await?;
    world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    let access = world.member_access(name)?;
    Ok((world, access))
}

fn secret(namespace: &str, name: &str, access: &Access) -> Value {
    let data = match &access.identity {
        Identity::Certificate { certificate, key } => {
            json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)})
        }
        Identity::Token(token) => json!({"token": STANDARD.encode(token)}),
    };
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data,
    })
}

/// Credentials of an account there, as those have who are given no certificate.
async fn with_token(world: &World, name: &str, access: Access) -> Result<(Access, String)> {
    let member = world.member(name).await?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "federation", "namespace": "default"},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "federation"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "federation", "namespace": "default"}],
    });
    for object in [&account, &binding] {
        member.create(object).await?;
    }
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let given = member.client.post(&format!("{}/token", path(&account)), &asked).await?.json();
    let token = given["status"]["token"].as_str().context("no token")?.to_owned();
    let access = Access { identity: Identity::Token(token.clone()), ..access };
    Ok((access, token))
}

async fn table(world: &World, list: &str) -> Result<Value> {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    Ok(world.client.call(http::Method::GET, list, &accept, String::new()).await?.json())
}

const REGISTRY: &str = "kube-multicluster-public";
const SYSTEM: &str = "kube-multicluster-system";

/// An entry of the registry, in one namespace, that points to a Secret in another.
fn entry(access: &Access, namespace: &str, secret_namespace: &str) -> Value {
    let address = access.server.trim_start_matches("https://");
    json!({
        "apiVersion": "clusterregistry.k8s.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": A, "namespace": namespace, "labels": {"size": "big"}},
        "spec": {
            "kubernetesApiEndpoints": {
                "serverEndpoints": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
                "caBundle": STANDARD.encode(&access.authority),
            },
            "authInfo": {"controller": {"kind": "Secret", "namespace": secret_namespace, "name": "a-cred"}},
        },
    })
}

fn kubefed_cluster(access: &Access, namespace: &str) -> Value {
    json!({
        "apiVersion": "core.kubefed.io/v1beta1", "kind": "KubeFedCluster",
        "metadata": {"name": A, "namespace": namespace},
        "spec": {
            "apiEndpoint": access.server, "caBundle": STANDARD.encode(&access.authority), "secretRef": {"name": "a-cred"},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_01_a_registry_without_credentials() -> Result<()> {
    let (mut world, access) = stranger(A).await?;
    let (access, token) = with_token(&world, A, access).await?;
    for namespace in [REGISTRY, SYSTEM] {
        world.namespace(namespace).await?;
    }
    let credential = secret(SYSTEM, "a-cred", &access);
    create(&world, &credential).await?;
    let address = access.server.strip_prefix("https://").context("it is https")?;
    let entry = entry(&access, REGISTRY, SYSTEM);
    create(&world, &entry).await?;

    let ok = |status: &'static str| move |it: &Value| condition(it, "OK")["status"] == status;
    let shown = world.until(&path(&entry), "it is well", ok("True")).await?;
    assert!(!shown.to_string().contains("token"), "{shown}");
    for shown in [shown, world.get(&format!("{CLUSTERS}/{A}")).await?] {
        let is_shown = |it: &str| shown.to_string().contains(it);
        assert!(!is_shown(&token) && !is_shown(&STANDARD.encode(&token)), "{shown}");
    }
    let table = table(&world, "/apis/clusterregistry.k8s.io/v1alpha1/clusters").await?;
    assert_eq!(
        table["rows"][0]["cells"].as_array().context("cells")?[..3],
        [json!(A), json!("0.0.0.0/0"), json!(address)]
    );
    assert_eq!(table["columnDefinitions"][3]["name"], "Age");
    assert!(table["rows"][0]["cells"][3].is_string(), "{table}");
    assert_eq!(world.get(&format!("{CLUSTERS}/{A}")).await?["metadata"]["labels"]["size"], "big");

    restart(&mut world, &[A]).await?;
    world.until(&path(&entry), "it is well still", ok("True")).await?;
    world.client.delete(&path(&credential)).await?;
    let lost = world.until(&path(&entry), "its credential is missed", ok("False")).await?;
    let message = condition(&lost, "OK")["message"].to_string();
    assert!(message.contains("a-cred"), "{message}");
    create(&world, &credential).await?;
    world.until(&path(&entry), "it is well again", ok("True")).await?;

    // Nothing of the reserved namespaces goes to a member, whatever is asked for.
    world.namespace(KUBEFED).await?;
    let reserved = [REGISTRY, SYSTEM, KUBEFED];
    for namespace in reserved {
        let mut config = crate::app::config_map("inside", "secret");
        config["metadata"]["namespace"] = json!(namespace);
        config["metadata"]["annotations"] = json!({"hanse.io/clusters": A});
        world.apply(&config).await?;
    }
    world.namespace(NS).await?;
    world.until_ready(A).await?;
    world.barrier(NS, 0, &[A]).await?;
    let member = world.member(A).await?;
    for namespace in reserved {
        assert!(!member.has(&format!("/api/v1/namespaces/{namespace}")).await?, "{namespace}");
    }

    // It goes, and what runs there goes on.
    let web = crate::app::deployment("web", 2);
    world.apply(&web).await?;
    let runs = |it: &Value| it["status"]["readyReplicas"] == 2;
    let copy = member.until(&path(&web), "its replicas run", runs).await?;
    world.client.delete(&path(&entry)).await?;
    world.until_gone(&path(&entry)).await?;
    world.until_gone(&format!("{CLUSTERS}/{A}")).await?;
    world.clusters.settled().await?;
    let left = member.get(&path(&web)).await?;
    assert_eq!(
        [&left["metadata"]["uid"], &left["metadata"]["generation"], &left["status"]["readyReplicas"]],
        [&copy["metadata"]["uid"], &copy["metadata"]["generation"], &json!(2)],
    );
    Ok(())
}

const KUBEFED: &str = "kube-federation-system";

/// By name, as `kubectl get` shows it.
async fn ready_column(world: &World, list: &str) -> Result<Vec<(Value, Value)>> {
    let table = table(world, list).await?;
    let columns = table["columnDefinitions"].as_array().context("columns")?;
    let at = |name: &str| columns.iter().position(|it| it["name"] == name).context("no such column");
    let (name, ready) = (at("Name")?, at("Ready")?);
    let rows = table["rows"].as_array().context("rows")?.iter();
    Ok(rows.map(|row| (row["cells"][name].clone(), row["cells"][ready].clone())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_02_clusters_that_were_joined_show_how_they_are() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(KUBEFED).await?;
    let list = format!("/apis/core.kubefed.io/v1beta1/namespaces/{KUBEFED}/kubefedclusters");
    let all_ready = |it: &Value| {
        let items = it["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = |it: &Value| {
            condition(it, "Ready")["status"] == "True" && it["status"]["kubernetesVersion"].is_string()
        };
        items.len() == 2 && items.iter().all(ready)
    };
    world.until(&list, "both are ready", all_ready).await?;
    let first = world.get(&format!("{list}/{B}")).await?;
    assert_eq!(ready_column(&world, &list).await?, [(json!(A), json!("True")), (json!(B), json!("True"))]);

    world.cut(B)?;
    let is_lost = |it: &Value| condition(it, "Offline")["status"] == "True";
    let lost = world.until(&format!("{list}/{B}"), "it is lost", is_lost).await?;
    assert_eq!(ready_column(&world, &list).await?, [(json!(A), json!("True")), (json!(B), json!("False"))]);
    let ready = condition(&lost, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ClusterNotReachable")));
    assert!(!ready["message"].as_str().unwrap_or_default().is_empty());
    assert!(
        ready["lastTransitionTime"].as_str() >= condition(&first, "Ready")["lastTransitionTime"].as_str()
    );
    restart(&mut world, &[A]).await?;
    let still = world.until(&format!("{list}/{B}"), "it is lost still", is_lost).await?;
    assert_eq!(condition(&still, "Ready")["lastTransitionTime"], ready["lastTransitionTime"]);
    world.heal(B)?;
    world.until(&list, "both are ready again", all_ready).await?;

    // Labels of the cluster are its labels here.
    label_cluster(&world, B, json!({"size": "big"})).await?;
    world
        .until(&format!("{list}/{B}"), "it has the label", |it| it["metadata"]["labels"]["size"] == "big")
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_02_a_kubefed_cluster_is_joined_by_being_written_down() -> Result<()> {
    let (mut world, access) = stranger(A).await?;
    world.namespace(KUBEFED).await?;
    world.namespace(NS).await?;
    create(&world, &secret(KUBEFED, "a-cred", &access)).await?;
    let entry = kubefed_cluster(&access, KUBEFED);
    create(&world, &entry).await?;
    world.until(&path(&entry), "it is ready", |it| condition(it, "Ready")["status"] == "True").await?;
    world.until_ready(A).await?;
    restart(&mut world, &[A]).await?;
    world.barrier(NS, 0, &[A]).await?;

    // Without its Secret nobody can talk to it, which is said in KubeFed's word; with it all is well again.
    let credential = secret(KUBEFED, "a-cred", &access);
    world.client.delete(&path(&credential)).await?;
    let malformed = |it: &Value| condition(it, "ConfigMalformed")["status"] == "True";
    let told = world.until(&path(&entry), "its credential is missed", malformed).await?;
    assert!(condition(&told, "ConfigMalformed")["message"].to_string().contains("a-cred"), "{told}");
    assert_ne!(condition(&told, "Ready")["status"], "True");
    create(&world, &credential).await?;
    world.until(&path(&entry), "it is ready again", |it| condition(it, "Ready")["status"] == "True").await?;
    world.client.delete(&path(&entry)).await?;
    world.until_gone(&path(&entry)).await?;
    world.until_gone(&format!("{CLUSTERS}/{A}")).await
}

/// Whoever may write in a namespace of their own registers no cluster for the workspace, and has no Secret of others sent to
/// where they like.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_01_and_02_entries_count_in_their_namespace_and_say_so_elsewhere() -> Result<()> {
    let (world, access) = stranger(A).await?;
    for namespace in [REGISTRY, SYSTEM, KUBEFED, NS] {
        world.namespace(namespace).await?;
    }
    for namespace in [KUBEFED, NS] {
        create(&world, &secret(namespace, "a-cred", &access)).await?;
    }
    let rows = [
        (entry(&access, NS, NS), "OK", REGISTRY),
        (entry(&access, NS, SYSTEM), "OK", REGISTRY),
        (entry(&access, REGISTRY, NS), "OK", "its Secret is not read"),
        (entry(&access, REGISTRY, KUBEFED), "OK", "its Secret is not read"),
        (kubefed_cluster(&access, NS), "ConfigMalformed", KUBEFED),
    ];
    for (entry, kind, why) in rows {
        create(&world, &entry).await?;
        let says_why = |it: &Value| condition(it, kind)["message"].to_string().contains(why);
        world.until(&path(&entry), &format!("it says {why:?}"), says_why).await?;
        assert_eq!(world.get(&format!("{CLUSTERS}/{A}")).await?["code"], 404, "{entry}");
        world.client.delete(&path(&entry)).await?;
        world.until_gone(&path(&entry)).await?;
    }
    create(&world, &secret(REGISTRY, "a-cred", &access)).await?;
    create(&world, &entry(&access, REGISTRY, REGISTRY)).await?;
    world.until_ready(A).await
}

/// As an earlier version left it: entries counted wherever they were. What is joined stays so, says so, and is taken over.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_01_and_02_an_entry_that_counts_takes_over_the_cluster_of_one_that_did() -> Result<()> {
    for is_kubefed in [false, true] {
        let (world, access) = stranger(A).await?;
        for namespace in [REGISTRY, SYSTEM, KUBEFED, NS] {
            world.namespace(namespace).await?;
        }
        let (mut former, next, kind, home) = match is_kubefed {
            false => (entry(&access, NS, NS), entry(&access, REGISTRY, REGISTRY), "OK", REGISTRY),
            true => {
                (kubefed_cluster(&access, NS), kubefed_cluster(&access, KUBEFED), "ConfigMalformed", KUBEFED)
            }
        };
        create(&world, &secret(NS, "a-cred", &access)).await?;
        former["metadata"]["finalizers"] = json!(["hanse.io/registered"]);
        let made_from = create(&world, &former).await?["metadata"]["uid"].clone();
        let cluster = json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": A, "annotations": {"hanse.io/registered-as": made_from}},
            "spec": {
                "endpoint": access.server, "caBundle": STANDARD.encode(&access.authority),
                "secretRef": {"namespace": NS, "name": "a-cred"},
            },
        });
        let uid = world.apply(&cluster).await?["metadata"]["uid"].clone();
        world.until_ready(A).await?;
        let says = |it: &Value, what: &str| condition(it, kind)["message"].to_string().contains(what);
        let goes_on = "is used on as it was written then";
        let told = world.until(&path(&former), "it is used on", |it| says(it, goes_on)).await?;
        assert!(says(&told, home), "{told}");

        create(&world, &secret(home, "a-cred", &access)).await?;
        let by = create(&world, &next).await?["metadata"]["uid"].clone();
        let is_taken_over = |it: &Value| {
            it["metadata"]["annotations"]["hanse.io/registered-as"] == by
                && it["spec"]["secretRef"]["namespace"] == home
        };
        world.until(&path(&cluster), "it is taken over", is_taken_over).await?;
        let is_free = |it: &Value| says(it, home) && !says(it, goes_on);
        world.until(&path(&former), "it is not used any more", is_free).await?;
        world.client.delete(&path(&former)).await?;
        world.until_gone(&path(&former)).await?;
        let left = world.get(&path(&cluster)).await?;
        assert_eq!(left["metadata"]["uid"], uid, "{left}");
        assert!(left["metadata"]["deletionTimestamp"].is_null(), "{left}");

        // The one that took it over lets go of it.
        world.client.delete(&path(&next)).await?;
        world.until_gone(&path(&cluster)).await?;
    }
    Ok(())
}

fn settings() -> Value {
    federated(
        "ConfigMap",
        "settings",
        json!({"template": {"data": {"key": "value"}}, "placement": named(&[A, B])}),
    )
}

pub async fn leave(world: &World, name: &str, forget: bool) -> Result<unjoin::Unjoined> {
    unjoined(world, name, forget, false).await
}

async fn unjoined(
    world: &World,
    name: &str,
    forget: bool,
    delete_namespaces: bool,
) -> Result<unjoin::Unjoined> {
    let hub = sync_client(&access(&world.hub, api::DEFAULT));
    let request = unjoin::Request { name, hub: &hub, member: None, forget, delete_namespaces };
    Ok(unjoin::unjoin(&request).await?)
}

/// The policy to delete: what was placed there goes first, and what others made there stays.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_unjoining_can_take_what_was_placed_with_it() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    world.apply(&settings()).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await?;
    let b = world.member(B).await?;
    b.create(&crate::app::namespace("theirs")).await?;

    let left = unjoined(&world, B, false, true).await?;
    assert_eq!(left.deleted, [NS]);
    b.until_gone(&path(&plain(&settings()))).await?;
    b.until_gone(&format!("/api/v1/namespaces/{NS}")).await?;
    assert!(b.has("/api/v1/namespaces/theirs").await?);
    until_told(&world, &settings(), &[(A, "")], "True").await?;

    restart(&mut world, &[A]).await?;
    until_told(&world, &settings(), &[(A, "")], "True").await?;

    // At once, under the same name.
    world.join(B).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await.map(drop)
}

/// In namespaces that the cluster had itself, too: there, all that others made stays.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_copies_go_from_namespaces_that_stay() -> Result<()> {
    let world = start(&[A, B]).await?;
    let b = world.member(B).await?;
    b.create(&crate::app::namespace("theirs")).await?;
    world.namespace("theirs").await?;
    let homes = ["default", "theirs"];
    let config = |home: &str, name: &str| {
        let mut config = crate::app::config_map(name, "value");
        config["metadata"]["namespace"] = json!(home);
        config
    };
    for home in homes {
        b.create(&config(home, "others")).await?;
        let mut ours = config(home, "ours");
        ours["metadata"]["annotations"] = json!({"hanse.io/clusters": B});
        world.apply(&ours).await?;
        b.until_there(&path(&ours)).await?;
    }

    let left = unjoined(&world, B, false, true).await?;
    let mut removed = left.removed;
    removed.sort();
    assert_eq!(removed, homes.map(|home| path(&config(home, "ours"))));
    for home in homes {
        b.until_gone(&path(&config(home, "ours"))).await?;
        assert!(b.has(&path(&config(home, "others"))).await?);
    }
    Ok(())
}

/// What cannot be deleted is named, one by one, and all else goes.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_what_cannot_be_deleted_is_listed() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let (b, kept) = (world.member(B).await?, ["kept-1", "kept-2"]);
    for name in kept {
        world.namespace(name).await?;
        let mut config = crate::app::config_map("inside", "value");
        config["metadata"]["namespace"] = json!(name);
        config["metadata"]["annotations"] = json!({"hanse.io/clusters": B});
        world.apply(&config).await?;
        b.until_there(&path(&config)).await?;
    }
    world.apply(&settings()).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await?;
    // Whoever runs the cluster wants to keep these.
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "kept"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["namespaces"],
            }]},
            "validations": [{"expression": "!oldObject.metadata.name.startsWith('kept-')", "message": "it is kept"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "kept"}, "spec": {"policyName": "kept", "validationActions": ["Deny"]},
    });
    for object in [&policy, &binding] {
        b.create(object).await?;
    }
    let place = format!("/api/v1/namespaces/{}?dryRun=All", kept[0]);
    testing::hub::eventually("they are kept", || async {
        Ok((b.client.delete(&place).await?.code == 422).then_some(()))
    })
    .await?;

    restart(&mut world, &[A, B]).await?;
    let refused = unjoined(&world, B, false, true).await;
    let why = refused.err().context("all of them went")?.to_string();
    assert!(kept.iter().all(|name| why.contains(name)) && why.contains("it is kept"), "{why}");
    b.until_gone(&format!("/api/v1/namespaces/{NS}")).await?;
    for name in kept {
        assert!(b.has(&format!("/api/v1/namespaces/{name}")).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_unjoining_leaves_what_runs_and_takes_what_is_hanses() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    world.apply(&settings()).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await?;
    let b = world.member(B).await?;
    let copy = path(&plain(&settings()));
    let before = b.get(&copy).await?;
    assert_eq!(before["metadata"]["labels"]["kubefed.io/managed"], "true");

    leave(&world, B, false).await?;
    until_told(&world, &settings(), &[(A, "")], "True").await?;
    let after = b.get(&copy).await?;
    assert_eq!((&after["metadata"]["uid"], &after["data"]), (&before["metadata"]["uid"], &before["data"]));
    assert_eq!(after["metadata"]["labels"].get("kubefed.io/managed"), None, "nobody manages it");
    b.until_gone("/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse:session").await?;
    b.until_gone("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/hanse:session").await?;
    b.until_gone("/api/v1/namespaces/hanse-system/serviceaccounts/hanse-session").await?;
    b.until_gone("/api/v1/namespaces/hanse-system").await?;
    let secrets = items(&world.client, "/api/v1/namespaces/hanse-system/secrets").await?;
    assert!(!secrets.iter().any(|it| it["metadata"]["name"] == "cluster-b"));

    restart(&mut world, &[A]).await?;
    // It comes back under the same name, and what it had is taken up as it is.
    world.join(B).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await?;
    let taken_up = b.get(&copy).await?;
    assert_eq!(taken_up["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(taken_up["metadata"]["labels"]["kubefed.io/managed"], "true");

    // What others have in the namespace of Hanse's own keeps it there, and is not touched.
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "hanse-system"},
        "data": {"key": "value"},
    });
    let theirs = b.create(&theirs).await?;
    let rights = [
        "rbac.authorization.k8s.io/v1/clusterroles/hanse:session",
        "rbac.authorization.k8s.io/v1/clusterroles/hanse:session:placed",
        "rbac.authorization.k8s.io/v1/clusterrolebindings/hanse:session",
        "rbac.authorization.k8s.io/v1/clusterrolebindings/hanse:session:placed",
        "admissionregistration.k8s.io/v1/validatingadmissionpolicies/hanse-rights",
        "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/hanse-rights",
    ];
    for path in rights {
        assert!(b.has(&format!("/apis/{path}")).await?, "{path}");
    }
    let hub = sync_client(&access(&world.hub, api::DEFAULT));
    let admin = sync_client(&world.member_access(B)?);
    let request =
        unjoin::Request { name: B, hub: &hub, member: Some(&admin), forget: false, delete_namespaces: false };
    let left = unjoin::unjoin(&request).await?.left_behind.context("the namespace stays")?;
    assert!(left.contains("hanse-system") && !left.contains("role"), "{left}");
    b.until_gone("/api/v1/namespaces/hanse-system/serviceaccounts/hanse-session").await?;
    for path in rights {
        assert!(!b.has(&format!("/apis/{path}")).await?, "{path}");
    }
    assert_eq!(b.get(&path(&theirs)).await?, theirs);

    // Only an admin may take rights away: without one, it is said that they stay and what to do.
    world.join(B).await?;
    let left = leave(&world, B, false).await?.left_behind.context("the namespace stays")?;
    assert!(
        left.contains("kubectl delete clusterrolebinding,clusterrole hanse:session hanse:session:placed"),
        "{left}"
    );
    b.until_gone("/api/v1/namespaces/hanse-system/serviceaccounts/hanse-session").await?;
    assert_eq!(b.get(&path(&theirs)).await?, theirs);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_a_cluster_that_is_dead_can_be_forgotten() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    world.apply(&settings()).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await?;
    world.cut(B)?;
    let forgotten =
        tokio::time::timeout(std::time::Duration::from_secs(30), leave(&world, B, true)).await??;
    assert!(forgotten.was_joined);
    until_told(&world, &settings(), &[(A, "")], "True").await?;

    restart(&mut world, &[A]).await?;
    // If it is not dead after all, it can be joined again, at once and under that name.
    world.heal(B)?;
    world.join(B).await?;
    until_told(&world, &settings(), &[(A, ""), (B, "")], "True").await.map(drop)
}
