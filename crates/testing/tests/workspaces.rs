//! Workspaces are complete, isolated Kubernetes APIs: nothing of one is seen, counted or allowed in another.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};

const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion is a number")
}

/// Without what every namespace has.
fn names(list: &Value) -> Vec<String> {
    let names =
        list["items"].as_array().into_iter().flatten().map(|it| text(it, "/metadata/name").to_owned());
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

fn inside(workspace: &str, path: &str) -> String {
    format!("/clusters/{workspace}{path}")
}

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

async fn mk_workspace(client: &Client, name: &str) -> Result<Value> {
    create(client, WORKSPACES, json!({"metadata": {"name": name}})).await
}

async fn mk_config_map(client: &Client, workspace: &str, name: &str, value: &str) -> Result<Value> {
    let object = json!({"metadata": {"name": name}, "data": {"value": value}});
    create(client, &inside(workspace, CONFIG_MAPS), object).await
}

async fn code_of(client: &Client, path: &str) -> Result<u16> {
    Ok(client.get(path).await?.code.as_u16())
}

async fn is_gone(client: &Client, path: &str) -> Result<()> {
    eventually(&format!("{path} is gone"), || async {
        Ok((client.get(path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_workspace_is_an_object_of_root_and_ready_at_once() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    assert_eq!(code_of(&client, &inside("team", CONFIG_MAPS)).await?, 404);

    let made = mk_workspace(&client, "team").await?;

    assert_eq!((text(&made, "/kind"), text(&made, "/status/phase")), ("Workspace", "Ready"));
    assert_eq!(names(&client.get(WORKSPACES).await?.json()), ["team"]);
    let namespaces = client.get(&inside("team", "/api/v1/namespaces")).await?.json();
    assert_eq!(names(&namespaces), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let roles = names(&client.get(&inside("team", &format!("{RBAC}/clusterroles"))).await?.json());
    for role in ["cluster-admin", "admin", "edit", "view"] {
        assert!(roles.iter().any(|it| it == role), "{role} in {roles:?}");
    }
    mk_config_map(&client, "team", "first", "1").await?;
    assert_eq!(client.get(&inside("team", "/version")).await?.json()["major"], "1");
    Ok(())
}

#[tokio::test]
async fn names_that_cannot_be() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    for name in ["root", "default", "Upper", "a.b", "a/b", "-a", &"a".repeat(64)] {
        let refused = client.post(WORKSPACES, &json!({"metadata": {"name": name}})).await?;
        assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{name}: {}", refused.text());
    }
    mk_workspace(&client, "team").await?;
    let again = client.post(WORKSPACES, &json!({"metadata": {"name": "team"}})).await?;
    assert_eq!((again.code, text(&again.json(), "/reason")), (StatusCode::CONFLICT, "AlreadyExists"));
    Ok(())
}

#[tokio::test]
async fn without_a_prefix_a_path_is_of_the_default_workspace() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let made = create(&client, CONFIG_MAPS, json!({"metadata": {"name": "here"}})).await?;

    assert_eq!(client.get(&inside("default", &format!("{CONFIG_MAPS}/here"))).await?.json(), made);
    assert_eq!(code_of(&client, &inside("root", &format!("{CONFIG_MAPS}/here"))).await?, 404);
    let list = client.get(&inside("default", CONFIG_MAPS)).await?.json();
    assert_eq!(list, client.get(CONFIG_MAPS).await?.json());
    Ok(())
}

#[tokio::test]
async fn only_root_has_workspaces() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "team").await?;
    for workspace in ["default", "team"] {
        let path = inside(workspace, "/apis/hanse.io/v1alpha1/workspaces");
        assert_eq!(code_of(&client, &path).await?, 404);
        let refused = client.post(&path, &json!({"metadata": {"name": "inner"}})).await?;
        assert_eq!(refused.code, StatusCode::NOT_FOUND);
        let group = client.get(&inside(workspace, "/apis/hanse.io/v1alpha1")).await?.text();
        assert!(group.contains("clusters") && !group.contains("workspaces"), "{group}");
    }
    let group = client.get(&inside("root", "/apis/hanse.io/v1alpha1")).await?.text();
    assert!(group.contains("workspaces"), "{group}");
    // A workspace is not below another.
    assert_eq!(code_of(&client, "/clusters/team/clusters/default/version").await?, 404);
    Ok(())
}

#[tokio::test]
async fn the_same_names_are_different_objects() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "one").await?;
    mk_workspace(&client, "two").await?;
    let path = |workspace: &str| inside(workspace, &format!("{CONFIG_MAPS}/same"));
    let first = mk_config_map(&client, "one", "same", "1").await?;
    let second = mk_config_map(&client, "two", "same", "2").await?;
    mk_config_map(&client, "one", "only-here", "1").await?;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);

    // Writes, revisions and lists of one leave the other as it is.
    let before = client.get(&inside("two", CONFIG_MAPS)).await?.json();
    for count in 0..10 {
        client.merge_patch(&path("one"), &json!({"data": {"value": count.to_string()}})).await?;
    }
    assert_eq!(client.get(&inside("two", CONFIG_MAPS)).await?.json(), before);
    assert_eq!(names(&before), ["same"]);
    let next = mk_config_map(&client, "two", "next", "2").await?;
    assert_eq!(revision_of(&next), revision_of(&second) + 1, "each has a history of its own");
    for everywhere in ["/api/v1/configmaps", "/api/v1/namespaces"] {
        let list = client.get(&inside("two", everywhere)).await?.text();
        assert!(!list.contains("only-here"), "{list}");
    }

    // A UID of one means nothing in the other.
    let uid = json!({"preconditions": {"uid": first["metadata"]["uid"]}}).to_string();
    let content_type = [("content-type", "application/json")];
    let refused = client.call(http::Method::DELETE, &path("two"), &content_type, uid).await?;
    assert_eq!(refused.code, StatusCode::CONFLICT);
    client.delete(&path("one")).await?;
    assert_eq!(client.get(&path("two")).await?.json(), second);

    // Nor do objects of the base share theirs.
    let uid_of = async |workspace| -> Result<Value> {
        Ok(client.get(&inside(workspace, "/api/v1/namespaces/default")).await?.json()["metadata"]["uid"]
            .clone())
    };
    assert_ne!(uid_of("one").await?, uid_of("two").await?);
    assert_ne!(uid_of("one").await?, uid_of("default").await?);
    Ok(())
}

#[tokio::test]
async fn an_owner_in_another_workspace_is_no_owner() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "one").await?;
    mk_workspace(&client, "two").await?;
    let owner = mk_config_map(&client, "one", "owner", "1").await?;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    });
    let child = json!({"metadata": {"name": "child", "ownerReferences": [reference]}});
    create(&client, &inside("one", CONFIG_MAPS), child.clone()).await?;
    create(&client, &inside("two", CONFIG_MAPS), child).await?;

    is_gone(&client, &inside("two", &format!("{CONFIG_MAPS}/child"))).await?;
    assert_eq!(code_of(&client, &inside("one", &format!("{CONFIG_MAPS}/child"))).await?, 200);
    Ok(())
}

#[tokio::test]
async fn watches_see_their_own_workspace_only() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "one").await?;
    mk_workspace(&client, "two").await?;
    let watch_from_now = async |workspace: &str| {
        let all = inside(workspace, "/api/v1/configmaps");
        let now = revision_of(&client.get(&all).await?.json());
        client.watch(&format!("{all}?watch=true&resourceVersion={now}")).await
    };
    let mut watch = watch_from_now("two").await?;
    let mut default_watch = watch_from_now("default").await?;

    mk_config_map(&client, "one", "elsewhere", "1").await?;
    mk_config_map(&client, "root", "elsewhere", "1").await?;
    let here = mk_config_map(&client, "two", "here", "2").await?;
    let in_default = mk_config_map(&client, "default", "here", "0").await?;

    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": here}));
    assert_eq!(default_watch.expect().await?, json!({"type": "ADDED", "object": in_default}));
    Ok(())
}

async fn bind_admin(client: &Client, workspace: &str, user: &str) -> Result<()> {
    let binding = json!({
        "metadata": {"name": format!("{user}-is-admin")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    create(client, &inside(workspace, &format!("{RBAC}/clusterrolebindings")), binding).await?;
    Ok(())
}

#[tokio::test]
async fn rights_end_at_the_workspace() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    mk_workspace(&admin, "hers").await?;
    mk_workspace(&admin, "his").await?;
    bind_admin(&admin, "hers", "jane").await?;
    let jane = hub.user("jane", &["team"]).await?;

    // Jane may do everything in her workspace, and nothing in any other.
    mk_config_map(&jane, "hers", "mine", "1").await?;
    bind_admin(&jane, "hers", "june").await?;
    for workspace in ["his", "default", "root"] {
        for path in [CONFIG_MAPS, "/api/v1/secrets", "/api/v1/namespaces", "/metrics"] {
            let refused = jane.get(&inside(workspace, path)).await?;
            assert_eq!(refused.code, StatusCode::FORBIDDEN, "{workspace} {path}");
            assert_eq!(refused.json()["reason"], "Forbidden");
        }
        let write = jane.post(&inside(workspace, CONFIG_MAPS), &json!({"metadata": {"name": "x"}})).await?;
        assert_eq!(write.code, StatusCode::FORBIDDEN);
        let watch = inside(workspace, "/api/v1/configmaps?watch=true");
        assert_eq!(code_of(&jane, &watch).await?, 403);
    }
    assert_eq!(code_of(&jane, CONFIG_MAPS).await?, 403, "the default workspace is not hers either");
    assert_eq!(
        jane.post(WORKSPACES, &json!({"metadata": {"name": "more"}})).await?.code,
        StatusCode::FORBIDDEN
    );
    assert_eq!(code_of(&jane, WORKSPACES).await?, 403);

    // Reviews answer for the workspace they are asked in.
    let question = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "secrets"}}});
    for (workspace, allowed) in [("hers", true), ("his", false), ("default", false)] {
        let path = inside(workspace, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        assert_eq!(jane.post(&path, &question).await?.json()["status"]["allowed"], allowed, "{workspace}");
    }
    // Acting as somebody is a right of a workspace, too.
    let as_admin = [("impersonate-user", "admin"), ("impersonate-group", "system:masters")];
    let answer = jane.call(http::Method::GET, &inside("his", CONFIG_MAPS), &as_admin, "").await?;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    Ok(())
}

#[tokio::test]
async fn changes_of_the_base_stay_in_the_workspace() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "one").await?;
    mk_workspace(&client, "two").await?;
    let view = |workspace: &str| inside(workspace, &format!("{RBAC}/clusterroles/view"));
    let before = client.get(&view("two")).await?.json();

    client.delete(&view("one")).await?;
    client.merge_patch(&view("default"), &json!({"metadata": {"labels": {"mine": "yes"}}})).await?;

    assert_eq!(code_of(&client, &view("one")).await?, 404);
    assert_eq!(client.get(&view("default")).await?.json()["metadata"]["labels"]["mine"], "yes");
    assert_eq!(client.get(&view("two")).await?.json(), before);
    Ok(())
}

#[tokio::test]
async fn a_workspace_goes_with_everything_in_it() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let first = mk_workspace(&client, "team").await?;
    let jane = hub.user("jane", &[]).await?;
    bind_admin(&client, "team", "jane").await?;
    for count in 0..20 {
        mk_config_map(&jane, "team", &format!("c{count}"), "1").await?;
    }
    create(&client, &inside("team", "/api/v1/namespaces"), json!({"metadata": {"name": "inner"}})).await?;
    // Not even an object that somebody holds keeps a workspace.
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&client, &inside("team", CONFIG_MAPS), held).await?;
    let base = client.get(&inside("team", "/api/v1/namespaces/default")).await?.json();
    let mut watch =
        client.watch(&inside("team", &format!("{CONFIG_MAPS}?watch=true&resourceVersion=0"))).await?;

    let answer = client.delete(&format!("{WORKSPACES}/team")).await?;

    // Then nobody is let in any more, watches end, and the object goes.
    assert_eq!(answer.json()["status"]["phase"], "Terminating", "{}", answer.text());
    assert_eq!(code_of(&client, &inside("team", CONFIG_MAPS)).await?, 404);
    let last = loop {
        let event = watch.expect().await?;
        if event["type"] != "ADDED" {
            break event;
        }
    };
    assert_eq!((text(&last, "/type"), &last["object"]["code"]), ("ERROR", &json!(410)), "{last}");
    assert_eq!(watch.next().await?, None);
    is_gone(&client, &format!("{WORKSPACES}/team")).await?;

    // And the next of that name begins with nothing, also of the rights that were.
    let again = mk_workspace(&client, "team").await?;
    assert_ne!(again["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(names(&client.get(&inside("team", CONFIG_MAPS)).await?.json()), [] as [&str; 0]);
    assert_eq!(code_of(&client, &inside("team", "/api/v1/namespaces/inner")).await?, 404);
    let new_base = client.get(&inside("team", "/api/v1/namespaces/default")).await?.json();
    assert_ne!(new_base["metadata"]["uid"], base["metadata"]["uid"]);
    assert_eq!(code_of(&jane, &inside("team", CONFIG_MAPS)).await?, 403);
    mk_config_map(&client, "team", "c0", "2").await?;
    Ok(())
}

#[tokio::test]
async fn a_workspace_waits_for_finalizers_that_others_put_on_it() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let object = json!({"metadata": {"name": "team", "finalizers": ["example.com/hold"]}});
    create(&client, WORKSPACES, object).await?;
    let path = format!("{WORKSPACES}/team");

    client.delete(&path).await?;

    assert_eq!(code_of(&client, &inside("team", CONFIG_MAPS)).await?, 404, "it is not served any more");
    let status = client.get(&path).await?.json();
    assert_eq!(text(&status, "/status/phase"), "Terminating");
    let rest = json!({"metadata": {"finalizers": ["hanse.io/workspace"]}});
    assert_eq!(client.merge_patch(&path, &rest).await?.code, StatusCode::OK);
    is_gone(&client, &path).await
}

#[tokio::test]
async fn the_metrics_of_the_server_are_roots() -> Result<()> {
    let hub = TestHub::start().await?;
    let (admin, nobody) = (hub.admin().await?, hub.nobody().await?);
    for path in ["/metrics", "/metrics/", "/clusters/root/metrics"] {
        let answer = admin.get(path).await?;
        assert_eq!(answer.code, StatusCode::OK, "{path}");
        assert!(answer.text().contains("hanse_connections"), "{path}");
    }
    // Whoever may do everything elsewhere sees nothing of it, in whosever name
    mk_workspace(&admin, "hers").await?;
    bind_admin(&admin, "hers", "jane").await?;
    let jane = hub.user("jane", &["team"]).await?;
    assert_eq!(code_of(&jane, "/metrics").await?, 403);
    let path = inside("hers", "/metrics");
    let refused = jane.get(&path).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
    assert!(refused.text().contains("shown in the workspace root only"), "{}", refused.text());
    for path in [path.as_str(), "/metrics"] {
        let master = [("impersonate-user", "x"), ("impersonate-group", "system:masters")];
        let refused = jane.call(http::Method::GET, path, &master, "").await?;
        assert_eq!(refused.code, StatusCode::FORBIDDEN, "{path}");
    }
    // A token of root scrapes, if root allows its account to; one of the same name elsewhere does not
    for workspace in ["root", "hers"] {
        let binding = json!({
            "metadata": {"name": "scraper"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
        });
        create(&admin, &inside(workspace, &format!("{RBAC}/clusterrolebindings")), binding).await?;
        let path = inside(workspace, "/api/v1/namespaces/default/serviceaccounts/default/token");
        let token = create(&admin, &path, json!({})).await?;
        let bearer = format!("Bearer {}", text(&token, "/status/token"));
        let answer = nobody.call(http::Method::GET, "/metrics", &[("authorization", &bearer)], "").await?;
        let expected = if workspace == "root" { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(answer.code, expected, "{workspace}: {}", answer.text());
    }
    Ok(())
}

#[tokio::test]
async fn strangers_do_not_learn_which_workspaces_exist() -> Result<()> {
    let hub = TestHub::start().await?;
    mk_workspace(&hub.admin().await?, "team").await?;
    let nobody = hub.nobody().await?;
    for path in ["/version", "/api", "/metrics", "/apis/no.such/v1/things", CONFIG_MAPS] {
        let (there, missing) = (inside("team", path), inside("nobodys", path));
        assert_eq!(code_of(&nobody, &there).await?, code_of(&nobody, &missing).await?, "{path}");
    }
    assert_eq!(code_of(&nobody, &inside("team", CONFIG_MAPS)).await?, 403);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workspaces_are_made_used_and_removed_at_once() -> Result<()> {
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    let lives: Vec<_> = (0..40)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let name = format!("team-{number}");
                for round in 0..3 {
                    mk_workspace(&client, &name).await?;
                    assert_eq!(
                        names(&client.get(&inside(&name, CONFIG_MAPS)).await?.json()),
                        [] as [&str; 0]
                    );
                    for count in 0..5 {
                        mk_config_map(&client, &name, &format!("c{count}"), &round.to_string()).await?;
                    }
                    let list = client.get(&inside(&name, CONFIG_MAPS)).await?.json();
                    assert_eq!(names(&list), ["c0", "c1", "c2", "c3", "c4"]);
                    client.delete(&format!("{WORKSPACES}/{name}")).await?;
                    is_gone(&client, &format!("{WORKSPACES}/{name}")).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for life in lives {
        life.await??;
    }
    assert_eq!(client.get(WORKSPACES).await?.json()["items"], json!([]));
    let left = hub.peer.hub.store.workspaces();
    assert!(left.iter().all(|id| matches!(&*id.0, "root" | "default")), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn every_workspace_says_where_its_api_is_reached() -> Result<()> {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
    let hub = TestHub::start().await?;
    let client = hub.admin().await?;
    mk_workspace(&client, "shop").await?;
    let address = hub.peer.address;

    let of = async |path: &str| -> Result<Value> { Ok(client.get(&inside("shop", path)).await?.json()) };
    let service = of(&format!("{SERVICES}/kubernetes")).await?;
    let cluster_ip = text(&service, "/spec/clusterIP").to_owned();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], address.port());
    let slice = of("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await?;
    assert_eq!(slice["endpoints"][0]["addresses"], json!([address.ip()]));
    assert_eq!(slice["ports"][0]["port"], address.port());
    let endpoints = of("/api/v1/namespaces/default/endpoints/kubernetes").await?;
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], json!(address.ip()));
    assert_eq!(
        of("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await?["spec"]["cidrs"][0],
        "10.96.0.0/12"
    );

    // Its address is taken like any other's, also if the service is made anew by somebody else.
    let wants = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": cluster_ip, "ports": [{"port": 443}]}});
    let refused = client.post(&inside("shop", SERVICES), &wants("other")).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    for _ in 0..2 {
        let service = inside("shop", &format!("{SERVICES}/kubernetes"));
        assert_eq!(client.delete(&service).await?.code, StatusCode::OK);
        is_gone(&client, &inside("shop", &format!("{ADDRESSES}/{cluster_ip}"))).await?;
        create(&client, &inside("shop", SERVICES), wants("kubernetes")).await?;
        assert_eq!(
            of(&format!("{ADDRESSES}/{cluster_ip}")).await?["spec"]["parentRef"]["name"],
            "kubernetes"
        );
    }
    Ok(())
}
