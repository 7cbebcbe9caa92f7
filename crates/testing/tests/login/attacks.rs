//! Attempts to get more than was given: each is refused, and says so as Kubernetes does.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use server::login::LoginOptions;
use testing::{
    client::{Answer, Client},
    hub::TestHub,
};

use crate::{
    RBAC, REQUESTS, WHO,
    authority::{Authority, request},
    create, grant, grant_at, hub_with,
    requests::{CLIENT, approve, mk_request, signed},
    rule, who,
};

/// May write roles and bindings, and read config maps: everything else has to be taken.
async fn hub_with_mallory() -> Result<(TestHub, Client, Client)> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let write = ["create", "update", "patch", "get", "delete"];
    let all = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let rules =
        [rule("rbac.authorization.k8s.io", &all, &write), rule("", &["configmaps"], &["get", "list"])];
    grant(&admin, "mallory", &rules).await?;
    let mallory = hub.user("mallory", &["team"]).await?;
    Ok((hub, admin, mallory))
}

fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.code, StatusCode::FORBIDDEN, "{}", answer.text());
    assert!(answer.text().contains(words), "{words:?} is not in {}", answer.text());
}

fn mk_binding(name: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}],
    })
}

const NOT_HELD: &str = "is attempting to grant RBAC permissions not currently held";

#[tokio::test]
async fn roles_give_no_more_than_their_writers_have() -> Result<()> {
    let (_hub, admin, mallory) = hub_with_mallory().await?;
    let (cluster_roles, roles) = (format!("{RBAC}/clusterroles"), format!("{RBAC}/namespaces/default/roles"));
    let everything = [
        rule("*", &["*"], &["*"]),
        rule("", &["secrets"], &["get"]),
        rule("", &["*"], &["get"]),
        rule("", &["configmaps"], &["*"]),
        rule("*", &["configmaps"], &["get"]),
        rule("", &["configmaps/status"], &["get"]),
        rule("", &["*/status"], &["get"]),
        rule("", &["users"], &["impersonate"]),
        rule("certificates.k8s.io", &["signers"], &["approve"]),
        rule("rbac.authorization.k8s.io", &["clusterroles"], &["escalate"]),
        rule("rbac.authorization.k8s.io", &["clusterroles"], &["bind"]),
        json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
    ];
    for wanted in &everything {
        let role = json!({"metadata": {"name": "more"}, "rules": [wanted]});
        refused(&mallory.post(&cluster_roles, &role).await?, NOT_HELD);
        if wanted.get("nonResourceURLs").is_none() {
            refused(&mallory.post(&roles, &role).await?, NOT_HELD);
        }
    }
    // What they have they may give, also the smaller part of it.
    let mut less = rule("", &["configmaps"], &["get"]);
    less["resourceNames"] = json!(["a"]);
    let own = json!({"metadata": {"name": "own"}, "rules": [rule("", &["configmaps"], &["get"]), less]});
    create(&mallory, &cluster_roles, own).await?;

    // By an edit, a patch, an apply, and of a role that they are bound to.
    let more = json!([rule("", &["secrets"], &["get"])]);
    for name in ["own", "mallory"] {
        let path = format!("{cluster_roles}/{name}");
        let mut object = mallory.get(&path).await?.json();
        object["rules"] = more.clone();
        refused(&mallory.put(&path, &object).await?, NOT_HELD);
        refused(&mallory.merge_patch(&path, &json!({"rules": more})).await?, NOT_HELD);
        let patch = json!([{"op": "add", "path": "/rules/0/verbs/0", "value": "*"}]).to_string();
        let json_patch = [("content-type", "application/json-patch+json")];
        refused(&mallory.call(Method::PATCH, &path, &json_patch, patch).await?, NOT_HELD);
        let apply = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": more,
        });
        let headers = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{path}?fieldManager=m&force=true");
        refused(&mallory.call(Method::PATCH, &path, &headers, apply.to_string()).await?, NOT_HELD);
    }
    // `escalate` is the way that is meant for it.
    grant(&admin, "eve", &[rule("rbac.authorization.k8s.io", &["clusterroles"], &["create", "escalate"])])
        .await?;
    let eve = _hub.user("eve", &[]).await?;
    create(&eve, &cluster_roles, json!({"metadata": {"name": "more"}, "rules": more})).await?;
    Ok(())
}

#[tokio::test]
async fn labels_and_aggregation_rules_are_grants_too() -> Result<()> {
    let (_hub, admin, mallory) = hub_with_mallory().await?;
    let path = format!("{RBAC}/clusterroles");
    // A rule that collects may collect anything.
    let collects = json!({
        "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [
            {"key": "nobody-has-this", "operator": "DoesNotExist"},
        ]}]},
        "rules": [],
    });
    refused(&mallory.post(&path, &collects).await?, NOT_HELD);
    create(
        &mallory,
        &path,
        json!({"metadata": {"name": "own"}, "rules": [rule("", &["configmaps"], &["get"])]}),
    )
    .await?;
    let rule_only = json!({"aggregationRule": collects["aggregationRule"]});
    refused(&mallory.merge_patch(&format!("{path}/own"), &rule_only).await?, NOT_HELD);

    // To label a role of others is to give its rules to whoever collects it.
    let secret = json!({"metadata": {"name": "secrets"}, "rules": [rule("", &["secrets"], &["get"])]});
    create(&admin, &path, secret).await?;
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    refused(&mallory.merge_patch(&format!("{path}/secrets"), &label).await?, NOT_HELD);
    // Of their own rules they may.
    assert_eq!(mallory.merge_patch(&format!("{path}/own"), &label).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn bindings_give_no_more_than_their_writers_have() -> Result<()> {
    let (hub, admin, mallory) = hub_with_mallory().await?;
    let everywhere = format!("{RBAC}/clusterrolebindings");
    let here = format!("{RBAC}/namespaces/default/rolebindings");
    let binding = mk_binding("more", "ClusterRole", "cluster-admin");
    for path in [&everywhere, &here] {
        refused(&mallory.post(path, &binding).await?, NOT_HELD);
    }
    refused(&mallory.post(&here, &mk_binding("more", "ClusterRole", "view")).await?, NOT_HELD);
    let missing = mallory.post(&here, &mk_binding("more", "Role", "none")).await?;
    assert_eq!(missing.code, StatusCode::NOT_FOUND, "a role may be made later with more: {}", missing.text());

    // The role of a binding is fixed, so that a harmless one cannot become another.
    create(&mallory, &everywhere, mk_binding("mine", "ClusterRole", "mallory")).await?;
    let other = json!({"roleRef": {"name": "cluster-admin"}});
    let changed = mallory.merge_patch(&format!("{everywhere}/mine"), &other).await?;
    assert!(matches!(changed.code.as_u16(), 403 | 422), "{}", changed.text());
    // A new subject of an old binding gets its rights.
    let mut admins = mk_binding("admins", "ClusterRole", "admin");
    admins["subjects"][0]["name"] = json!("ann");
    create(&admin, &here, admins).await?;
    let subjects =
        json!({"subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team"}]});
    refused(&mallory.merge_patch(&format!("{here}/admins"), &subjects).await?, NOT_HELD);

    // `bind` on one role is not `bind` on another, nor in another namespace.
    let mut bind_view = rule("rbac.authorization.k8s.io", &["clusterroles"], &["bind"]);
    bind_view["resourceNames"] = json!(["view"]);
    let make = rule("rbac.authorization.k8s.io", &["rolebindings", "clusterrolebindings"], &["create"]);
    grant(&admin, "binder", &[bind_view, make]).await?;
    let binder = hub.user("binder", &[]).await?;
    refused(&binder.post(&everywhere, &mk_binding("b", "ClusterRole", "edit")).await?, NOT_HELD);
    refused(&binder.post(&everywhere, &mk_binding("b", "ClusterRole", "cluster-admin")).await?, NOT_HELD);
    create(&binder, &everywhere, mk_binding("b", "ClusterRole", "view")).await?;
    // A role (not a cluster role) of that name is something else.
    let role = json!({"metadata": {"name": "view"}, "rules": [rule("", &["secrets"], &["*"])]});
    create(&admin, &format!("{RBAC}/namespaces/default/roles"), role).await?;
    refused(&binder.post(&here, &mk_binding("b", "Role", "view")).await?, NOT_HELD);
    Ok(())
}

#[tokio::test]
async fn acting_as_another_needs_every_part_of_them() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let mut users = rule("", &["users"], &["impersonate"]);
    users["resourceNames"] = json!(["ann"]);
    let mut groups = rule("", &["groups"], &["impersonate"]);
    groups["resourceNames"] = json!(["team"]);
    let mut scopes = rule("authentication.k8s.io", &["userextras/scopes"], &["impersonate"]);
    scopes["resourceNames"] = json!(["read"]);
    grant(&admin, "mallory", &[users, groups, scopes]).await?;
    let mallory = hub.user("mallory", &[]).await?;
    let user = |name| ("impersonate-user", name);
    let rows: [(&[(&str, &str)], u16); 18] = [
        (&[user("ann")], 201),
        (&[user("ann"), ("impersonate-group", "team")], 201),
        (&[user("ann"), ("impersonate-extra-scopes", "read")], 201),
        (&[user("admin")], 403),
        (&[user("system:kube-controller-manager")], 403),
        (&[user("system:hanse")], 403),
        (&[user("system:anonymous")], 403),
        (&[user("system:serviceaccount:default:default")], 403),
        (&[user("system:serviceaccount:kube-system:generic-garbage-collector")], 403),
        (&[user("ann"), ("impersonate-group", "system:masters")], 403),
        (&[user("ann"), ("impersonate-group", "team"), ("impersonate-group", "system:masters")], 403),
        (&[user("ann"), ("impersonate-group", "system:nodes")], 403),
        (&[user("ann"), ("impersonate-uid", "1")], 403),
        (&[user("ann"), ("impersonate-extra-scopes", "write")], 403),
        (&[user("ann"), ("impersonate-extra-other", "read")], 403),
        (&[user("ann"), ("impersonate-extra-authentication.kubernetes.io%2fpod-name", "p")], 403),
        (&[("impersonate-group", "system:masters")], 400),
        (&[("impersonate-uid", "1")], 400),
    ];
    for (headers, code) in rows {
        let answer = who(&mallory, "", headers).await?;
        assert_eq!(answer.code.as_u16(), code, "{headers:?}: {}", answer.text());
    }
    // A right to act in one workspace is none in another.
    create(
        &admin,
        "/clusters/root/apis/hanse.io/v1alpha1/workspaces",
        json!({"metadata": {"name": "other"}}),
    )
    .await?;
    let elsewhere = who(&mallory, "/clusters/other", &[user("ann")]).await?;
    assert_eq!(elsewhere.code, StatusCode::FORBIDDEN, "{}", elsewhere.text());
    Ok(())
}

#[tokio::test]
async fn certificates_of_others_are_no_logins() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (known, strange) = (Authority::mk("known")?, Authority::mk("strange")?);
    let file = directory.path().join("ca.crt");
    std::fs::write(&file, &known.pem)?;
    let hub = hub_with(LoginOptions { client_ca: Some(file), ..Default::default() }).await?;
    let (url, ca) = (hub.peer.url(), hub.peer.authority.certificate_pem());
    // One that calls itself like the real authority, and signs for an admin.
    let impostor = Authority::mk("hanse-ca")?;
    let rows = [
        ("of a known authority", known.client("ann", None)?, 201),
        ("of another", strange.client("admin", Some("system:masters"))?, 401),
        ("of one by the same name", impostor.client("admin", Some("system:masters"))?, 401),
        ("that has expired", known.expired_client("ann")?, 401),
        ("that is for servers", known.server("ann", "ann.example.com")?, 401),
    ];
    for (what, certificate, code) in &rows {
        let client = Client::connect(&url, ca, Some(certificate.identity())).await?;
        let answer = who(&client, "", &[]).await?;
        assert_eq!(answer.code.as_u16(), *code, "a certificate {what}: {}", answer.text());
        if *code == 401 {
            assert_eq!(
                client.get("/version").await?.code,
                StatusCode::UNAUTHORIZED,
                "not even as anybody: {what}"
            );
        }
    }
    // Without the key, not even the handshake succeeds.
    let (ann, bob) = (known.client("ann", None)?, known.client("bob", None)?);
    let stolen = Client::connect(&url, ca, Some((&ann.certificate, &bob.key))).await;
    assert!(stolen.is_err());
    // Whoever names nobody is nobody.
    let nobody = known.client("", Some("system:masters"))?;
    let nobody = Client::connect(&url, ca, Some(nobody.identity())).await?;
    assert_eq!(nobody.get("/api/v1/namespaces/default/secrets").await?.code, StatusCode::FORBIDDEN);
    Ok(())
}

#[tokio::test]
async fn requests_for_certificates_lead_to_no_more_rights() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    create(&admin, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", json!({"metadata": {"name": "shop"}}))
        .await?;
    create(&admin, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", json!({"metadata": {"name": "bank"}}))
        .await?;
    // A tenant: all rights in their workspace.
    grant_at(&admin, "/clusters/shop", "tenant", &[rule("*", &["*"], &["*"])]).await?;
    grant_at(&admin, "/clusters/bank", "banker", &[rule("*", &["*"], &["*"])]).await?;
    let tenant = hub.user("tenant", &[]).await?;
    let shop = format!("/clusters/shop{REQUESTS}");

    // No certificate of a platform admin, however the group is put.
    for groups in [&["system:masters"][..], &["team", "system:masters"], &["system:masters", "team"]] {
        let (pem, _) = request("tenant", groups, &[])?;
        let answer = tenant.post(&shop, &mk_request("m", CLIENT, &pem, &["client auth"])).await?;
        refused(
            &answer,
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        );
    }
    let (pem, _) = request("x", &["system:masters"], &[])?;
    let legacy =
        tenant.post(&shop, &mk_request("m", "kubernetes.io/legacy-unknown", &pem, &["client auth"])).await?;
    assert_eq!(legacy.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", legacy.text());

    // The name of somebody with rights elsewhere is only a name here.
    let (pem, key) = request("banker", &[], &[])?;
    create(&tenant, &shop, mk_request("banker", CLIENT, &pem, &["client auth"])).await?;
    assert_eq!(approve(&tenant, "/clusters/shop", "banker").await?.code, StatusCode::OK);
    let certificate = signed(&tenant, "/clusters/shop", "banker").await?;
    let ca = hub.peer.authority.certificate_pem();
    let fake = Client::connect(&hub.peer.url(), ca, Some((&certificate, &key))).await?;
    assert_eq!(who(&fake, "/clusters/shop", &[]).await?.code, StatusCode::CREATED);
    for place in ["/clusters/bank", "/clusters/root", "/clusters/default"] {
        assert_eq!(who(&fake, place, &[]).await?.code, StatusCode::UNAUTHORIZED, "{place}");
    }

    // What a kubelet would serve with is not of the authority that clients know the server by.
    let (pem, key) = request("system:node:a", &["system:nodes"], &["127.0.0.1", "localhost"])?;
    let usages = ["digital signature", "server auth"];
    create(&tenant, &shop, mk_request("serve", "kubernetes.io/kubelet-serving", &pem, &usages)).await?;
    approve(&tenant, "/clusters/shop", "serve").await?;
    let certificate = signed(&tenant, "/clusters/shop", "serve").await?;
    let client = Client::connect(&hub.peer.url(), ca, Some((&certificate, &key))).await?;
    assert_eq!(who(&client, "/clusters/shop", &[]).await?.code, StatusCode::UNAUTHORIZED);

    // A request whose signature is not of its key, and what is no request.
    let (one, _) = request("ann", &[], &[])?;
    let mut der = pem_bytes(&one)?;
    let last = der.len() - 1;
    der[last] ^= 1;
    let forged = machinery::certificates::pem("CERTIFICATE REQUEST", &der);
    for bad in [forged.as_str(), "", "nonsense", &one.replace("CERTIFICATE REQUEST", "CERTIFICATE")] {
        let answer = tenant.post(&shop, &mk_request("bad", CLIENT, bad, &["client auth"])).await?;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
    }
    Ok(())
}

fn pem_bytes(pem: &str) -> Result<Vec<u8>> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes())?;
    Ok(block.contents)
}

#[tokio::test]
async fn approving_and_signing_are_rights_of_their_own() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let group = "certificates.k8s.io";
    let all = [
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status",
    ];
    let write = rule(group, &all, &["create", "get", "update", "patch"]);
    let signers = |verb: &str, name: &str| {
        let mut rule = rule(group, &["signers"], &[verb]);
        rule["resourceNames"] = json!([name]);
        rule
    };
    grant(&admin, "writer", std::slice::from_ref(&write)).await?;
    grant(&admin, "approver", &[write.clone(), signers("approve", CLIENT)]).await?;
    grant(
        &admin,
        "domain",
        &[write.clone(), signers("approve", "kubernetes.io/*"), signers("sign", "kubernetes.io/*")],
    )
    .await?;
    grant(&admin, "other", &[write.clone(), signers("approve", "example.com/*"), signers("sign", CLIENT)])
        .await?;
    let (pem, _) = request("ann", &[], &[])?;
    let mut number = 0;
    for (user, approves, signs) in
        [("writer", false, false), ("approver", true, false), ("domain", true, true), ("other", false, true)]
    {
        let client = hub.user(user, &[]).await?;
        number += 1;
        let name = format!("r-{number}");
        create(&client, REQUESTS, mk_request(&name, CLIENT, &pem, &["client auth"])).await?;
        // To sign is to write the status; a condition of one's own is enough to see.
        let status =
            json!({"status": {"conditions": [{"type": "Seen", "status": "True", "reason": "Tested"}]}});
        let answer = client.merge_patch(&format!("{REQUESTS}/{name}/status"), &status).await?;
        match signs {
            true => assert_eq!(answer.code, StatusCode::OK, "{user}: {}", answer.text()),
            false => refused(&answer, "user not permitted to sign requests with signerName"),
        }
        let answer = approve(&client, "", &name).await?;
        match approves {
            true => assert_eq!(answer.code, StatusCode::OK, "{user}: {}", answer.text()),
            false => refused(&answer, "user not permitted to approve requests with signerName"),
        }
        // The main resource changes neither.
        let mut object = client.get(&format!("{REQUESTS}/{name}")).await?.json();
        object["spec"]["signerName"] = json!("example.com/mine");
        object["status"]["conditions"] = json!([]);
        client.put(&format!("{REQUESTS}/{name}"), &object).await?;
        let after = client.get(&format!("{REQUESTS}/{name}")).await?.json();
        assert_eq!(after["spec"]["signerName"], CLIENT);
    }
    Ok(())
}

#[tokio::test]
async fn subresources_are_not_their_resource() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    create(&admin, "/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await?;
    let group = "certificates.k8s.io";
    let only_main = rule(group, &["certificatesigningrequests"], &["*"]);
    grant(&admin, "mallory", &[only_main, rule(group, &["signers"], &["*"]), rule("", &["pods"], &["*"])])
        .await?;
    let mallory = hub.user("mallory", &[]).await?;
    let (pem, _) = request("ann", &[], &[])?;
    create(&mallory, REQUESTS, mk_request("a", CLIENT, &pem, &["client auth"])).await?;
    for (method, path) in [
        (Method::PUT, format!("{REQUESTS}/a/approval")),
        (Method::PATCH, format!("{REQUESTS}/a/approval")),
        (Method::PUT, format!("{REQUESTS}/a/status")),
        (Method::POST, "/api/v1/namespaces/default/pods/a/exec".to_owned()),
        (Method::GET, "/api/v1/namespaces/default/pods/a/log".to_owned()),
        (Method::POST, "/api/v1/namespaces/default/pods/a/eviction".to_owned()),
        (Method::POST, "/api/v1/namespaces/default/pods/a/binding".to_owned()),
        (Method::POST, "/api/v1/namespaces/default/serviceaccounts/default/token".to_owned()),
        // The path that is authorized must be the path that is served.
        (Method::GET, "/api/v1/namespaces/default/pods/../configmaps/a".to_owned()),
        (Method::GET, "/api/v1/namespaces/default/pods/%2e%2e/configmaps".to_owned()),
        (Method::GET, "/api/v1/namespaces/default//configmaps/a".to_owned()),
        (Method::GET, "//api/v1/namespaces/default/configmaps/a".to_owned()),
        (Method::GET, "/clusters/default/clusters/root/api/v1/secrets".to_owned()),
    ] {
        let headers = [("content-type", "application/json")];
        let answer = mallory.call(method.clone(), &path, &headers, "{}").await?;
        assert!(
            matches!(answer.code.as_u16(), 403 | 404 | 301),
            "{method} {path}: {} {}",
            answer.code,
            answer.text()
        );
    }
    let own = mallory.post(WHO, &json!({})).await?;
    assert_eq!(own.code, StatusCode::CREATED);
    Ok(())
}
