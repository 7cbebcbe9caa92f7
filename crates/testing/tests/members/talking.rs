//! Pods in members talk to the hub: with a token of their workspace, and with none of the cluster they run in.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use store::{Store, memory::MemoryStore};
use sync::tokens::{
    policy::Address,
    template::{self, Facts},
};
use testing::{
    assignments::assign_namespace,
    client::{Answer, Client},
    hub::{TestHub, eventually},
    talking::{ACCOUNTS, HOME, NAMESPACE, cases, outcome},
};

use crate::world::{CLUSTERS, Members, World, brisk};

const POLICY: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/hanse-pods";

/// A hub whose workspace `team` has the namespace `shop`, and a member with a namespace for it.
struct Talk {
    world: World,
    members: Members,
}

fn address(hub: &TestHub) -> (String, String) {
    (hub.peer.address.ip().to_string(), hub.peer.address.port().to_string())
}

impl Talk {
    async fn start() -> Result<Talk> {
        Self::start_on(Arc::new(MemoryStore::new())).await
    }

    async fn start_on(store: Arc<dyn Store>) -> Result<Talk> {
        let world = World::start_on(store, None, brisk()).await?;
        let members = Members::start(&["one"]).await?;
        let team = json!({"metadata": {"name": "team"}});
        world.admin.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?;
        let talk = Talk { world, members };
        talk.in_hub("/api/v1/namespaces", json!({"metadata": {"name": HOME}})).await?;
        testing::hub::outfitted(&talk.world.admin, &format!("/clusters/team/api/v1/namespaces/{HOME}"))
            .await?;
        let labels = json!({api::WORKSPACE_LABEL: "team", api::NAMESPACE_LABEL: HOME});
        let namespace = json!({"metadata": {"name": NAMESPACE, "labels": labels}});
        talk.members.post("one", "/api/v1/namespaces", namespace).await?;
        let path = format!("/clusters/one/api/v1/namespaces/{NAMESPACE}");
        testing::hub::outfitted(&talk.members.admin, &path).await?;
        talk.world.join("eu-1", &talk.members.access("one")).await?;
        talk.send(HOME).await?;
        talk.until_installed().await?;
        Ok(talk)
    }

    /// Says that a namespace of `team` is sent to the cluster.
    async fn send(&self, namespace: &str) -> Result<()> {
        let cluster = self.world.cluster("eu-1").await?;
        let uid = cluster["metadata"]["uid"].as_str().context("no UID")?;
        assign_namespace(&self.world.hub.peer.hub, "team", namespace, &[("eu-1", uid)]).await
    }

    /// Until the member does what is asked of it.
    async fn until_installed(&self) -> Result<()> {
        let condition = || async {
            let cluster = self.world.cluster("eu-1").await?;
            Ok(api::cluster::condition(&cluster, "Tokens").cloned().filter(|it| it["status"] == "True"))
        };
        let found = eventually("tokens are seen to", condition).await;
        found.with_context(|| "the cluster says nothing of tokens").map(drop)
    }

    async fn in_hub(&self, path: &str, object: Value) -> Result<Value> {
        let made = self.world.admin.post(&format!("/clusters/team{path}"), &object).await?;
        ensure!(made.code == 201, "{path}: {}", made.text());
        Ok(made.json())
    }

    async fn mk_account(&self, name: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{HOME}/serviceaccounts");
        self.in_hub(&path, json!({"metadata": {"name": name}})).await
    }

    fn secret_path(account: &str) -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/hanse-token-{account}")
    }

    /// The Secret of an account, when it is as it is wanted.
    async fn secret(&self, account: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        let path = Self::secret_path(account);
        eventually(&path, || async {
            let found = self.members.get("one", &path).await?;
            Ok(Some(found.json()).filter(|secret| found.code == 200 && is_it(secret)))
        })
        .await
    }

    async fn token(&self, account: &str) -> Result<String> {
        Ok(data(&self.secret(account, |_| true).await?, "token"))
    }

    /// A pod's way to the hub.
    async fn call(&self, secret: &Value, path: &str) -> Result<Answer> {
        let client = Client::connect(&self.world.hub.peer.url(), &data(secret, "ca.crt"), None).await?;
        with_token(&client, &data(secret, "token"), path).await
    }

    async fn mk_pod(&self, name: &str, spec: Value) -> Result<Answer> {
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        self.members.admin.post(&format!("/clusters/one/api/v1/namespaces/{NAMESPACE}/pods"), &pod).await
    }
}

fn data(secret: &Value, key: &str) -> String {
    let text = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(BASE64_STANDARD.decode(text).unwrap_or_default()).unwrap_or_default()
}

async fn with_token(client: &Client, token: &str, path: &str) -> Result<Answer> {
    client.call(Method::GET, path, &[("authorization", &format!("Bearer {token}"))], "").await
}

/// What a token says, on its own word.
fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let bytes = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn containers() -> Value {
    json!({"containers": [{"name": "main", "image": "i"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn new_pods_are_given_the_hubs_token_authority_and_address() -> Result<()> {
    let talk = Talk::start().await?;
    for (name, automount) in ACCOUNTS {
        let account = json!({"metadata": {"name": name}, "automountServiceAccountToken": automount});
        talk.members.post("one", &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), account).await?;
    }
    let (host, port) = address(&talk.world.hub);
    let facts = Facts { address: None, home: HOME, mapped: true };
    for (number, case) in cases((&host, &port)).into_iter().enumerate() {
        // What a session has completed before is as good to the policies.
        let mut completed = case.spec.clone();
        template::rewrite(&mut completed, &facts);
        let answer = talk.mk_pod(&format!("completed-{number}"), completed).await?;
        let is_good = case.expected.as_ref().map(|expected| outcome(&answer.json()) == *expected);
        assert!(is_good.unwrap_or(answer.code == 403), "{}: {}", case.name, answer.text());
        let answer = talk.mk_pod(&format!("pod-{number}"), case.spec).await?;
        match case.expected {
            Ok(expected) => {
                assert_eq!(answer.code, 201, "{}: {}", case.name, answer.text());
                assert_eq!(outcome(&answer.json()), expected, "{}", case.name);
            }
            Err(why) => {
                assert_eq!(answer.code, 403, "{}: {}", case.name, answer.text());
                assert!(answer.text().contains(why), "{}: {}", case.name, answer.text());
            }
        }
    }
    // Namespaces that belong to no workspace are none of ours.
    let path = "/api/v1/namespaces/default/pods";
    let pod =
        talk.members.post("one", path, json!({"metadata": {"name": "a"}, "spec": containers()})).await?;
    assert!(pod.to_string().contains("serviceAccountToken"), "{pod}");
    let long = "a".repeat(250);
    let account = json!({"metadata": {"name": long}});
    talk.members.post("one", &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), account).await?;
    let mut spec = containers();
    spec["serviceAccountName"] = json!(long);
    let refused = talk.mk_pod("long", spec).await?;
    assert!(refused.code == 403 && refused.text().contains("241 characters"), "{}", refused.text());
    // What the member would fill with a token of its own is refused as well.
    let secret = json!({
        "metadata": {"name": "filled", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    });
    let path = format!("/clusters/one/api/v1/namespaces/{NAMESPACE}/secrets");
    let refused = talk.members.admin.post(&path, &secret).await?;
    assert!(refused.code == 403 && refused.text().contains("another type"), "{}", refused.text());
    Ok(())
}

/// Where a member has no such policies, the same is done to what is sent there.
#[test]
fn templates_are_completed_as_pods_are() {
    let known = Address { host: "192.0.2.1".into(), port: "6443".into() };
    let facts = Facts { address: Some(&known), home: HOME, mapped: true };
    for mut case in cases((&known.host, &known.port)) {
        let account = template::account(&case.spec).to_owned();
        let automount =
            ACCOUNTS.iter().find(|(name, _)| *name == account).and_then(|(_, automount)| *automount);
        template::mount(&mut case.spec, automount);
        template::rewrite(&mut case.spec, &facts);
        assert_eq!(case.spec["automountServiceAccountToken"], false, "{}", case.name);
        match case.expected {
            Ok(expected) => {
                assert_eq!(template::refused(&case.spec), None, "{}", case.name);
                assert_eq!(outcome(&json!({"spec": case.spec})), expected, "{}", case.name);
            }
            Err(why) => {
                let refused = template::refused(&case.spec).unwrap_or_default();
                assert!(refused.contains(why), "{}: {refused}", case.name);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_leads_to_its_workspace_and_to_no_other() -> Result<()> {
    let talk = Talk::start().await?;
    let account = talk.mk_account("robot").await?;
    let role = json!({
        "metadata": {"name": "readers"}, "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": HOME}],
    });
    talk.in_hub(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/rolebindings"), role).await?;
    let note = json!({"metadata": {"name": "note"}, "data": {"of": "team"}});
    talk.in_hub(&format!("/api/v1/namespaces/{HOME}/configmaps"), note).await?;
    let secret = talk.secret("robot", |_| true).await?;
    assert_eq!(data(&secret, "namespace"), HOME, "as it is called in the workspace");
    let claimed = claims(&data(&secret, "token"));
    assert_eq!(claimed["sub"], format!("system:serviceaccount:{HOME}:robot"));
    assert_eq!(claimed["kubernetes.io"]["serviceaccount"]["uid"], account["metadata"]["uid"]);
    let lifetime = claimed["exp"].as_i64().zip(claimed["iat"].as_i64()).map(|(end, begin)| end - begin);
    assert_eq!(lifetime, Some(48 * 3600));

    let found = talk.call(&secret, &format!("/api/v1/namespaces/{HOME}/configmaps/note")).await?;
    assert_eq!(found.json()["data"]["of"], "team", "without a path the token says which workspace it is");
    for (path, code) in [
        (format!("/clusters/team/api/v1/namespaces/{HOME}/configmaps"), 200),
        (format!("/api/v1/namespaces/{HOME}/secrets"), 403),
        ("/clusters/default/api/v1/namespaces".to_owned(), 401),
        ("/clusters/root/api/v1/namespaces".to_owned(), 401),
    ] {
        assert_eq!(talk.call(&secret, &path).await?.code, code, "{path}");
    }
    // The member does not know it at all.
    let member = talk.members.hub.nobody().await?;
    let answer = with_token(&member, &data(&secret, "token"), "/clusters/one/api/v1/namespaces").await?;
    assert_eq!(answer.code, 401);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_in_a_cluster_of_the_platform_gets_no_token_of_what_is_not_sent_there() -> Result<()> {
    let talk = Talk::start().await?;
    talk.in_hub("/api/v1/namespaces", json!({"metadata": {"name": "vault"}})).await?;
    testing::hub::outfitted(&talk.world.admin, "/clusters/team/api/v1/namespaces/vault").await?;
    let labels = json!({api::WORKSPACE_LABEL: "team", api::NAMESPACE_LABEL: "vault"});
    let namespace = json!({"metadata": {"name": "lure", "labels": labels}});
    talk.members.post("one", "/api/v1/namespaces", namespace).await?;
    // What comes later is seen to.
    talk.mk_account("robot").await?;
    talk.secret("robot", |_| true).await?;
    let path = "/api/v1/namespaces/lure/secrets/hanse-token-default";
    assert_eq!(talk.members.get("one", path).await?.code, 404);
    talk.send("vault").await?;
    eventually("there is a token", || async {
        Ok((talk.members.get("one", path).await?.code == 200).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_workspaces_own_cluster_end_with_it() -> Result<()> {
    let talk = Talk::start().await?;
    // One of the workspace `default`, where the cluster is.
    let labels = json!({api::WORKSPACE_LABEL: "default"});
    talk.members
        .post("one", "/api/v1/namespaces", json!({"metadata": {"name": "own", "labels": labels}}))
        .await?;
    let own = json!({"metadata": {"name": "own"}});
    assert_eq!(talk.world.admin.post("/api/v1/namespaces", &own).await?.code, 201);
    let path = "/api/v1/namespaces/own/secrets/hanse-token-default";
    let secret = eventually("there is a token", || async {
        let found = talk.members.get("one", path).await?;
        Ok((found.code == 200).then(|| found.json()))
    })
    .await?;
    let node = talk.world.admin.get("/api/v1/nodes/eu-1").await?.json();
    assert_eq!(claims(&data(&secret, "token"))["kubernetes.io"]["node"]["uid"], node["metadata"]["uid"]);
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_ne!(talk.call(&secret, who).await?.code, 401);
    talk.world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;
    eventually("it is worth nothing", || async {
        Ok((talk.call(&secret, who).await?.code == 401).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_again_when_what_they_stand_on_is_another() -> Result<()> {
    let talk = Talk::start().await?;
    talk.mk_account("robot").await?;
    let first = talk.secret("robot", |_| true).await?;
    let other = |secret: &Value, than: &Value| secret["data"]["token"] != than["data"]["token"];
    // Another key signs.
    let rotated =
        talk.world.admin.post("/clusters/team/openid/v1/rotation?keys=only-new", &json!({})).await?;
    assert_eq!(rotated.code, 200, "{}", rotated.text());
    let before = talk.secret("robot", |secret| other(secret, &first)).await?;
    let path = format!("/api/v1/namespaces/{HOME}/configmaps");
    assert_eq!(talk.call(&first, &path).await?.code, 401);
    assert_eq!(talk.call(&before, &path).await?.code, 403, "it is known, and may not");
    // The account is another one of the same name.
    let account = format!("/clusters/team/api/v1/namespaces/{HOME}/serviceaccounts/robot");
    talk.world.admin.delete(&account).await?;
    let made = talk.mk_account("robot").await?;
    let after = talk.secret("robot", |secret| {
        secret["metadata"]["annotations"][api::SOURCE_ANNOTATION] == made["metadata"]["uid"]
    });
    let after = after.await?;
    assert!(other(&after, &before));
    // Somebody removes it in the member, or writes into it.
    assert_eq!(
        talk.members.admin.delete(&format!("/clusters/one{}", Talk::secret_path("robot"))).await?.code,
        200
    );
    let again = talk.secret("robot", |secret| other(secret, &after)).await?;
    let path = format!("/clusters/one{}", Talk::secret_path("robot"));
    let old = json!({"metadata": {"annotations": {"hanse.io/token-issued": "2020-01-01T00:00:00Z"}}});
    talk.members.admin.merge_patch(&path, &old).await?;
    talk.secret("robot", |secret| other(secret, &again)).await?;
    let metrics = talk.world.admin.get("/metrics").await?.text();
    for reason in ["Made", "Renewed"] {
        assert!(metrics.contains(&format!("hanse_member_tokens_total{{reason=\"{reason}\"}}")), "{metrics}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_with_its_account_and_only_then() -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let talk = Talk::start_on(store).await?;
    talk.mk_account("robot").await?;
    talk.secret("robot", |_| true).await?;
    // One that nobody saw to be deleted, as after a hub was restored from an older state.
    let leftover = json!({
        "metadata": {
            "name": "hanse-token-unknown", "labels": {"hanse.io/token": "true"},
            "annotations": {api::SOURCE_ANNOTATION: "long-gone"},
        },
    });
    talk.members.post("one", &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), leftover).await?;
    let account = format!("/clusters/team/api/v1/namespaces/{HOME}/serviceaccounts/robot");
    talk.world.admin.delete(&account).await?;
    eventually("the Secret is gone", || async {
        Ok((talk.members.get("one", &Talk::secret_path("robot")).await?.code == 404).then_some(()))
    })
    .await?;
    assert_eq!(talk.members.get("one", &Talk::secret_path("unknown")).await?.code, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_somebody_else_is_left_alone_and_told_of() -> Result<()> {
    let talk = Talk::start().await?;
    let own = json!({"metadata": {"name": "hanse-token-robot"}, "data": {"token": "bWluZQ=="}});
    talk.members.post("one", &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), own).await?;
    talk.mk_account("robot").await?;
    talk.mk_account("zoe").await?;
    let told = eventually("the cluster says so", || async {
        let cluster = talk.world.cluster("eu-1").await?;
        let condition = api::cluster::condition(&cluster, "Tokens").cloned().unwrap_or_default();
        Ok((condition["status"] == "False").then_some(condition))
    });
    let told = told.await?;
    assert_eq!(told["reason"], "SecretsMissing");
    assert!(told["message"].as_str().is_some_and(|it| it.contains("rename it")), "{told}");
    assert_eq!(talk.token("robot").await?, "mine");
    talk.secret("zoe", |_| true).await.context("those after it get theirs")?;
    let path = format!("/clusters/one{}", Talk::secret_path("robot"));
    talk.members.admin.delete(&path).await?;
    talk.until_installed().await?;
    assert_ne!(talk.token("robot").await?, "mine");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_hub_away_pods_are_made_as_before() -> Result<()> {
    let talk = Talk::start().await?;
    let before = talk.secret("default", |_| true).await?;
    let (host, port) = address(&talk.world.hub);
    let Talk { world, members } = talk;
    world.hub.stop().await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let pod =
        members.post("one", &path, json!({"metadata": {"name": "healed"}, "spec": containers()})).await?;
    let expected = cases((&host, &port)).swap_remove(0).expected.unwrap_or_default();
    assert_eq!(outcome(&pod), expected);
    let after = members.get("one", &Talk::secret_path("default")).await?.json();
    assert_eq!(after["data"], before["data"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_in_the_policies_is_put_right_and_nothing_else_is_written() -> Result<()> {
    let talk = Talk::start().await?;
    let secret = talk.secret("default", |_| true).await?;
    let policy = talk.members.get("one", POLICY).await?.json();
    let change = json!({"spec": {"failurePolicy": "Ignore"}});
    talk.members.admin.merge_patch(&format!("/clusters/one{POLICY}"), &change).await?;
    // The link is lost and found again: then everything is compared.
    talk.world.cuts.cut(talk.members.hub.peer.address);
    talk.world.until("eu-1", "Timeout").await?;
    talk.world.cuts.heal(talk.members.hub.peer.address);
    talk.world.until("eu-1", "Ready").await?;
    eventually("the policy is as it was", || async {
        let found = talk.members.get("one", POLICY).await?.json();
        Ok((found["spec"] == policy["spec"]).then_some(()))
    })
    .await?;
    assert_eq!(talk.secret("default", |_| true).await?, secret, "what is good is not written again");
    Ok(())
}
