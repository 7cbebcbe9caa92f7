//! Who may do what: roles and bindings, aggregation, names and paths, acting as another, and asking about it. What a
//! write changes holds for the request after it.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod grants;
mod identity;

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::{client::Client, hub::TestHub};

const CORE: &str = "/api/v1/namespaces/default";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(mut rule: Value, names: &[&str]) -> Value {
    rule["resourceNames"] = json!(names);
    rule
}

async fn mk_role(client: &Client, name: &str, rules: &[Value]) -> Result<()> {
    let path = format!("{RBAC}/namespaces/default/roles");
    create(client, &path, json!({"metadata": {"name": name}, "rules": rules})).await?;
    Ok(())
}

async fn mk_cluster_role(client: &Client, name: &str, rules: &[Value]) -> Result<()> {
    let object = json!({"metadata": {"name": name}, "rules": rules});
    create(client, &format!("{RBAC}/clusterroles"), object).await?;
    Ok(())
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": GROUP, "name": name})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": GROUP, "name": name})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

fn mk_binding(name: &str, kind: &str, role: &str, subject: &Value) -> Value {
    let role = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
}

/// Binds in the namespace `default`; the binding is called like the role.
async fn bind(client: &Client, kind: &str, role: &str, subject: &Value) -> Result<()> {
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    create(client, &path, mk_binding(role, kind, role, subject)).await?;
    Ok(())
}

async fn bind_everywhere(client: &Client, role: &str, subject: &Value) -> Result<()> {
    let path = format!("{RBAC}/clusterrolebindings");
    create(client, &path, mk_binding(role, "ClusterRole", role, subject)).await?;
    Ok(())
}

async fn code(client: &Client, path: &str) -> Result<u16> {
    Ok(client.get(path).await?.code.as_u16())
}

async fn hub_with_jane() -> Result<(TestHub, Client, Client)> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    create(&admin, CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await?;
    create(&admin, CONFIG_MAPS, json!({"metadata": {"name": "b"}})).await?;
    let jane = hub.user("jane", &["team"]).await?;
    Ok((hub, admin, jane))
}

#[tokio::test]
async fn nothing_is_allowed_that_nobody_granted() -> Result<()> {
    let (hub, _, jane) = hub_with_jane().await?;
    let refused = jane.get(CONFIG_MAPS).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
    let status = refused.json();
    assert_eq!(status["reason"], "Forbidden");
    assert_eq!(
        status["message"],
        "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" \
         in the namespace \"default\""
    );
    assert_eq!(status["details"]["kind"], "configmaps");
    // A path that is not served is refused before it is missed, so that refusals tell nothing.
    assert_eq!(code(&jane, "/apis/no.such/v1/things").await?, 403);
    assert_eq!(code(&jane, "/metrics").await?, 403);
    for public in ["/version", "/livez", "/readyz", "/healthz", "/api", "/apis", "/openapi/v3"] {
        assert_eq!(code(&jane, public).await?, 200, "{public}");
    }

    let nobody = hub.nobody().await?;
    let refused = nobody.get(CONFIG_MAPS).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN);
    assert!(refused.text().contains("system:anonymous"), "{}", refused.text());
    for public in ["/version", "/livez", "/readyz", "/healthz"] {
        assert_eq!(code(&nobody, public).await?, 200, "{public}");
    }
    for private in ["/api", "/apis", "/api/v1", "/openapi/v3", "/metrics", "/"] {
        assert_eq!(code(&nobody, private).await?, 403, "{private}");
    }
    let who = nobody.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await?;
    assert_eq!(who.code, StatusCode::FORBIDDEN);
    Ok(())
}

#[tokio::test]
async fn roles_count_where_they_are_bound() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let read = [rule("", &["configmaps"], &["get", "list"])];
    mk_role(&admin, "reader", &read).await?;
    bind(&admin, "Role", "reader", &user("jane")).await?;

    assert_eq!(code(&jane, CONFIG_MAPS).await?, 200);
    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}/a")).await?, 200);
    for refused in [
        "/api/v1/configmaps",
        "/api/v1/namespaces/kube-system/configmaps",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/configmaps?watch=true",
        "/apis/apps/v1/namespaces/default/configmaps",
    ] {
        assert_eq!(code(&jane, refused).await?, 403, "{refused}");
    }
    assert_eq!(jane.post(CONFIG_MAPS, &json!({})).await?.code, 403);
    assert_eq!(jane.delete(&format!("{CONFIG_MAPS}/a")).await?.code, 403);
    assert_eq!(jane.delete(CONFIG_MAPS).await?.code, 403);

    // The same role for the whole cluster: everywhere if bound so, else in the namespace of the binding.
    mk_cluster_role(&admin, "secret-reader", &[rule("", &["secrets"], &["list"])]).await?;
    bind(&admin, "ClusterRole", "secret-reader", &group("team")).await?;
    assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 200);
    assert_eq!(code(&jane, "/api/v1/secrets").await?, 403);
    bind_everywhere(&admin, "secret-reader", &group("team")).await?;
    assert_eq!(code(&jane, "/api/v1/secrets").await?, 200);
    assert_eq!(code(&jane, "/api/v1/namespaces/kube-system/secrets").await?, 200);

    // A role's name says nothing in another namespace, and a missing role grants nothing.
    let path = format!("{RBAC}/namespaces/kube-public/rolebindings");
    create(&admin, &path, mk_binding("reader", "Role", "reader", &user("jane"))).await?;
    assert_eq!(code(&jane, "/api/v1/namespaces/kube-public/configmaps").await?, 403);
    Ok(())
}

#[tokio::test]
async fn every_change_counts_for_the_next_request() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let role = format!("{RBAC}/namespaces/default/roles/r");
    let binding = format!("{RBAC}/namespaces/default/rolebindings/r");
    for _ in 0..20 {
        mk_role(&admin, "r", &[rule("", &["configmaps"], &["list"])]).await?;
        assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);
        bind(&admin, "Role", "r", &user("jane")).await?;
        assert_eq!(code(&jane, CONFIG_MAPS).await?, 200);
        admin.merge_patch(&role, &json!({"rules": [rule("", &["secrets"], &["list"])]})).await?;
        assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);
        assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 200);
        admin.merge_patch(&binding, &json!({"subjects": [user("june")]})).await?;
        assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 403);
        admin.merge_patch(&binding, &json!({"subjects": [user("june"), group("team")]})).await?;
        assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 200);
        admin.delete(&role).await?;
        assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 403);
        admin.delete(&binding).await?;
    }
    Ok(())
}

#[tokio::test]
async fn to_put_what_is_not_there_is_to_create_it() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "jane"}});
    mk_role(&admin, "updater", &[rule("coordination.k8s.io", &["leases"], &["update"])]).await?;
    bind(&admin, "Role", "updater", &user("jane")).await?;
    let made = create(&admin, leases, lease("there")).await?;

    assert_eq!(jane.put(&format!("{leases}/there"), &made).await?.code, 200);
    assert_eq!(jane.put(&format!("{leases}/missing"), &lease("missing")).await?.code, 403);

    mk_role(&admin, "creator", &[rule("coordination.k8s.io", &["leases"], &["create"])]).await?;
    bind(&admin, "Role", "creator", &user("jane")).await?;
    assert_eq!(jane.put(&format!("{leases}/missing"), &lease("missing")).await?.code, 201);
    Ok(())
}

#[tokio::test]
async fn names_limit_a_rule() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let verbs = ["get", "update", "delete", "list", "watch", "deletecollection", "create"];
    mk_role(&admin, "only-a", &[named(rule("", &["configmaps"], &verbs), &["a"])]).await?;
    bind(&admin, "Role", "only-a", &user("jane")).await?;

    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}/a")).await?, 200);
    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}/b")).await?, 403);
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403, "a list has no name");
    assert_eq!(jane.delete(CONFIG_MAPS).await?.code, 403);
    let create = jane.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await?;
    assert_eq!(create.code, 403, "the name of a new object is not known when it is asked");
    // As upstream has it, a list of one name is about that name.
    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}?fieldSelector=metadata.name=a")).await?, 200);
    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}?fieldSelector=metadata.name=b")).await?, 403);
    assert_eq!(code(&jane, &format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=a")).await?, 403);
    let mut watch = jane.watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name=a")).await?;
    assert_eq!(watch.expect().await?["object"]["metadata"]["name"], "a");
    let both = format!("{CONFIG_MAPS}?fieldSelector=metadata.name=a,metadata.namespace=default");
    assert_eq!(jane.delete(&both).await?.code, 200);
    assert_eq!(code(&admin, &format!("{CONFIG_MAPS}/a")).await?, 404);
    assert_eq!(code(&admin, &format!("{CONFIG_MAPS}/b")).await?, 200);
    Ok(())
}

#[tokio::test]
async fn subresources_and_wildcards() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    mk_cluster_role(&admin, "status", &[rule("", &["namespaces/status"], &["get"])]).await?;
    bind_everywhere(&admin, "status", &user("jane")).await?;
    assert_eq!(code(&jane, "/api/v1/namespaces/default/status").await?, 200);
    assert_eq!(code(&jane, "/api/v1/namespaces/default").await?, 403);

    mk_cluster_role(&admin, "all-status", &[rule("*", &["*/status"], &["*"])]).await?;
    bind_everywhere(&admin, "all-status", &group("others")).await?;
    assert_eq!(code(&jane, "/api/v1/namespaces/default/status").await?, 200);

    mk_role(&admin, "all", &[rule("*", &["*"], &["*"])]).await?;
    bind(&admin, "Role", "all", &user("jane")).await?;
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 200);
    assert_eq!(jane.delete(&format!("{CONFIG_MAPS}/a")).await?.code, 200);
    assert_eq!(code(&jane, "/api/v1/namespaces/default").await?, 200, "a namespace lives in itself");
    assert_eq!(code(&jane, "/api/v1/namespaces/kube-system").await?, 403);
    assert_eq!(code(&jane, "/api/v1/namespaces").await?, 403);
    assert_eq!(code(&jane, "/metrics").await?, 403, "resources are not paths");
    Ok(())
}

#[tokio::test]
async fn paths_that_are_not_resources() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let urls = json!({"nonResourceURLs": ["/openid/v1/jwks", "/livez/*"], "verbs": ["get"]});
    mk_cluster_role(&admin, "urls", &[urls]).await?;
    bind_everywhere(&admin, "urls", &user("jane")).await?;
    assert_eq!(code(&jane, "/openid/v1/jwks").await?, 200);
    assert_eq!(code(&jane, "/livez/ping").await?, 200);
    assert_eq!(code(&jane, "/readyz/ping").await?, 403);
    assert_eq!(code(&jane, "/openid/v1/jwks/slis").await?, 403);
    assert_eq!(jane.post("/openid/v1/jwks", &json!({})).await?.code, 403);
    // Only a binding for the whole cluster reaches paths.
    let role = json!({
        "metadata": {"name": "urls"}, "rules": [{"nonResourceURLs": ["/openid/v1/jwks"], "verbs": ["get"]}],
    });
    let refused = admin.post(&format!("{RBAC}/namespaces/default/roles"), &role).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    Ok(())
}

#[tokio::test]
async fn aggregated_roles_collect_what_is_labelled_for_them() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]});
    let sum = json!({"metadata": {"name": "sum"}, "aggregationRule": selector});
    create(&admin, &format!("{RBAC}/clusterroles"), sum).await?;
    bind_everywhere(&admin, "sum", &user("jane")).await?;
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);

    mk_cluster_role(&admin, "part", &[rule("", &["configmaps"], &["list"])]).await?;
    let part = format!("{RBAC}/clusterroles/part");
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403, "it is not labelled");
    admin.merge_patch(&part, &json!({"metadata": {"labels": {"to": "sum"}}})).await?;
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 200);
    admin.merge_patch(&part, &json!({"metadata": {"labels": {"to": null}}})).await?;
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);

    // The roles that come with every workspace: a part for `view` is one for `edit` and `admin`, too.
    bind(&admin, "ClusterRole", "admin", &group("team")).await?;
    assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 200);
    let things = "/apis/no.such/v1/namespaces/default/things";
    assert_eq!(code(&jane, things).await?, 403);
    let labels = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let rules = [rule("no.such", &["things"], &["list"])];
    let object = json!({"metadata": {"name": "view-things", "labels": labels}, "rules": rules});
    create(&admin, &format!("{RBAC}/clusterroles"), object).await?;
    assert_eq!(code(&jane, things).await?, 404, "allowed, and not there");
    Ok(())
}

#[tokio::test]
async fn the_roles_that_come_with_a_workspace() -> Result<()> {
    let (hub, admin, _) = hub_with_jane().await?;
    for role in ["view", "edit", "admin"] {
        bind(&admin, "ClusterRole", role, &group(role)).await?;
    }
    let secrets = format!("{CORE}/secrets");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let rows = [("view", 200, 403, 403, 403), ("edit", 200, 200, 201, 403), ("admin", 200, 200, 201, 201)];
    for (role, list, list_secrets, write, grant) in rows {
        let user = hub.user("somebody", &[role]).await?;
        assert_eq!(code(&user, CONFIG_MAPS).await?, list, "{role}");
        assert_eq!(code(&user, &secrets).await?, list_secrets, "{role}");
        let object = json!({"metadata": {"name": format!("by-{role}")}});
        assert_eq!(user.post(CONFIG_MAPS, &object).await?.code, write, "{role}");
        assert_eq!(user.post(&roles, &object).await?.code, grant, "{role}");
        assert_eq!(code(&user, "/api/v1/nodes").await?, 403, "{role}");
    }
    Ok(())
}

#[tokio::test]
async fn base_roles_can_be_changed_deleted_and_made_again() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    let view = format!("{RBAC}/clusterroles/view");
    bind(&admin, "ClusterRole", "view", &user("jane")).await?;
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 200);
    let original = admin.get(&view).await?.json();
    let mut watch = admin
        .watch(&format!(
            "{RBAC}/clusterroles?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&\
             fieldSelector=metadata.name%3Dview"
        ))
        .await?;

    // An edit is kept, and is an ordinary change to watchers.
    let edited = admin.merge_patch(&view, &json!({"metadata": {"labels": {"mine": "yes"}}})).await?.json();
    assert_eq!(edited["metadata"]["uid"], original["metadata"]["uid"]);
    assert_eq!(edited["rules"], original["rules"]);
    assert_eq!(watch.expect().await?, json!({"type": "MODIFIED", "object": edited}));
    assert_eq!(admin.get(&view).await?.json(), edited);
    let stale = admin.put(&view, &original).await?;
    assert_eq!(stale.code, StatusCode::CONFLICT, "{}", stale.text());

    // Deleted, it is gone from lists, by name, and from what it allowed.
    assert_eq!(admin.delete(&view).await?.code, 200);
    assert_eq!(watch.expect().await?["type"], "DELETED");
    assert_eq!(code(&admin, &view).await?, 404);
    assert!(!admin.get(&format!("{RBAC}/clusterroles")).await?.text().contains("\"name\":\"view\""));
    assert_eq!(admin.delete(&view).await?.code, 404);
    assert_eq!(admin.merge_patch(&view, &json!({})).await?.code, 404);
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);

    // Made again, it is what its maker says, and a new object.
    let rules = json!([rule("", &["secrets"], &["list"])]);
    let object = json!({"metadata": {"name": "view"}, "rules": rules});
    let again = create(&admin, &format!("{RBAC}/clusterroles"), object).await?;
    assert_ne!(again["metadata"]["uid"], original["metadata"]["uid"]);
    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": again}));
    assert_eq!(code(&jane, CONFIG_MAPS).await?, 403);
    assert_eq!(code(&jane, &format!("{CORE}/secrets")).await?, 200);
    assert_eq!(admin.delete(&view).await?.code, 200);
    assert_eq!(code(&admin, &view).await?, 404, "the base does not shine through");

    // Even the binding that opens the door to discovery.
    assert_eq!(code(&jane, "/apis").await?, 200);
    admin.delete(&format!("{RBAC}/clusterrolebindings/system%3Adiscovery")).await?;
    assert_eq!(code(&jane, "/apis").await?, 403);
    Ok(())
}

#[tokio::test]
async fn reviews_answer_what_requests_would() -> Result<()> {
    let (_hub, admin, jane) = hub_with_jane().await?;
    mk_role(&admin, "reader", &[rule("", &["configmaps"], &["get", "list"])]).await?;
    bind(&admin, "Role", "reader", &user("jane")).await?;
    let question = |verb: &str, resource: &str, namespace: &str| json!({"verb": verb, "resource": resource, "namespace": namespace});
    let rows = [
        (question("list", "configmaps", "default"), true),
        (question("list", "configmaps", ""), false),
        (question("list", "configmaps", "kube-system"), false),
        (question("delete", "configmaps", "default"), false),
        (question("list", "secrets", "default"), false),
        (question("*", "*", ""), false),
    ];
    for (attributes, allowed) in rows {
        let own = json!({"spec": {"resourceAttributes": attributes}});
        let answer = jane.post(&format!("{REVIEWS}/selfsubjectaccessreviews"), &own).await?;
        assert_eq!(
            (answer.code.as_u16(), &answer.json()["status"]["allowed"]),
            (201, &json!(allowed)),
            "{own}"
        );
        let asked = &answer.json()["spec"]["resourceAttributes"];
        assert_eq!(asked["verb"], attributes["verb"], "the question comes back");
        let about = json!({"spec": {"user": "jane", "groups": ["team"], "resourceAttributes": attributes}});
        let answer = admin.post(&format!("{REVIEWS}/subjectaccessreviews"), &about).await?.json();
        assert_eq!(answer["status"]["allowed"], allowed, "{about}");
        if attributes["namespace"] == "default" {
            let path = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
            let object = json!({"metadata": {"namespace": "default"}, "spec": about["spec"]});
            assert_eq!(admin.post(&path, &object).await?.json()["status"]["allowed"], allowed, "{about}");
        }
    }
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    let answer = jane.post(&format!("{REVIEWS}/selfsubjectaccessreviews"), &path).await?.json();
    assert_eq!(answer["status"]["allowed"], false);
    let masters = json!({"spec": {"groups": ["system:masters"], "nonResourceAttributes": {"verb": "get", "path": "/x"}}});
    let answer = admin.post(&format!("{REVIEWS}/subjectaccessreviews"), &masters).await?.json();
    assert_eq!(answer["status"]["allowed"], true);

    // Asking about others is a right of its own.
    let about = json!({"spec": {"user": "admin", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    assert_eq!(jane.post(&format!("{REVIEWS}/subjectaccessreviews"), &about).await?.code, 403);
    for nonsense in [json!({"spec": {}}), json!({"spec": {"user": "u"}}), json!({})] {
        let refused = admin.post(&format!("{REVIEWS}/subjectaccessreviews"), &nonsense).await?;
        assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{nonsense}");
    }
    let other_namespace =
        json!({"spec": {"user": "u", "resourceAttributes": {"namespace": "x", "verb": "get"}}});
    let path = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(admin.post(&path, &other_namespace).await?.code, StatusCode::UNPROCESSABLE_ENTITY);

    // All rules at once, as `kubectl auth can-i --list` shows them.
    let here = json!({"spec": {"namespace": "default"}});
    let rules =
        jane.post(&format!("{REVIEWS}/selfsubjectrulesreviews"), &here).await?.json()["status"].clone();
    let list = rules["resourceRules"].as_array().cloned().unwrap_or_default();
    assert!(list.contains(&rule("", &["configmaps"], &["get", "list"])), "{rules}");
    assert!(!rules["nonResourceRules"].as_array().is_none_or(Vec::is_empty), "{rules}");
    let elsewhere = json!({"spec": {"namespace": "kube-system"}});
    let answer = jane.post(&format!("{REVIEWS}/selfsubjectrulesreviews"), &elsewhere).await?;
    assert!(!answer.text().contains("configmaps"), "{}", answer.text());
    Ok(())
}
