//! What is the members' own in copies stays as it is.

use anyhow::{Result, ensure};
use machinery::patch::merge_tree;
use serde_json::{Value, json};

use crate::{
    app::NS,
    federated::web,
    words::{A, B, begin, federated, named, plain, restart, start, until_replicas, until_told},
    world::{Member, collection, path, text},
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

/// KubeFed's own cases.
const CASES: &str = include_str!("../../../kinds/tests/data/kubefed.json");

/// Those about objects that no API server holds, so that no member has them, with what it says to whoever tries.
const HELD_NOWHERE: [(&str, &str); 4] = [
    ("service healthCheckNodePort not an integer", "cannot unmarshal string"),
    ("service clusterIP not a string", "cannot unmarshal number"),
    ("service clusterIPs only", "must be empty when `clusterIP` is not specified"),
    ("service both", "first value must match `clusterIP`"),
];

type About = fn(&Value) -> Value;

/// A case of KubeFed's, as it is tried here.
struct Trial {
    case: String,
    /// Of the object.
    name: String,
    kind: &'static str,
    template: Value,
    retains_replicas: Option<bool>,
    /// What the member's object says otherwise than the template, or beside it.
    there: Value,
    /// What of an object the case is about.
    about: About,
    expected: Value,
}

impl Trial {
    fn whole(&self, cluster: &str, label: &str) -> Value {
        let mut spec = json!({"template": self.template, "placement": named(&[cluster])});
        spec["template"]["metadata"]["labels"]["tier"] = json!(label);
        if let Some(retains) = self.retains_replicas {
            spec["retainReplicas"] = json!(retains);
        }
        federated(self.kind, &self.name, spec)
    }

    /// The kind and the name of the copy.
    fn copy(&self) -> Value {
        plain(&self.whole("", ""))
    }

    fn member_object(&self) -> Value {
        let mut object = self.copy();
        merge_tree(&mut object, self.template.clone());
        merge_tree(&mut object, self.there.clone());
        object
    }

    /// Waits until the copy is of the template with that label, and looks what it has kept.
    async fn check(&self, member: &Member, label: &str) -> Result<()> {
        let is_new = |it: &Value| it["metadata"]["labels"]["tier"] == label;
        let copy = member.until(&path(&self.copy()), &format!("it has the label {label:?}"), is_new).await?;
        assert_eq!((self.about)(&copy), self.expected, "{} ({label})", self.case);
        Ok(())
    }
}

fn replicas(it: &Value) -> Value {
    it["spec"]["replicas"].clone()
}

fn health_port(it: &Value) -> Value {
    it["spec"]["healthCheckNodePort"].clone()
}

fn addresses(it: &Value) -> Value {
    json!({"clusterIP": it["spec"]["clusterIP"], "clusterIPs": it["spec"]["clusterIPs"]})
}

fn ports(it: &Value) -> Value {
    let ports = it["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(|port| json!([port["name"], port["port"], port["nodePort"]])).collect()
}

fn secrets(it: &Value) -> Value {
    let secrets = it["secrets"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = secrets.map(|secret| text(secret, "/name")).collect();
    names.sort_unstable();
    json!(names)
}

/// The same, with an address and a port that a server has to give.
fn given(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), given(value))).collect(),
        Value::String(address) if address == "1.2.3.4" => json!("10.98.3.4"),
        Value::Number(port) if port.as_u64() == Some(1000) => json!(31_000),
        other => other.clone(),
    }
}

/// How a case is tried; nothing: it is not.
fn trials(number: usize, case: &Value) -> Vec<Trial> {
    let (title, expected) = (text(case, "/name"), given(&case["expect"]));
    let trial = |kind: &'static str, template: Value, there: Value, about: About, expected: Value| {
        let (case, name) = (title.to_owned(), format!("case-{number}"));
        Trial { case, name, kind, template, retains_replicas: None, there, about, expected }
    };
    let service = |of_its_type: Value| {
        let mut spec = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]});
        merge_tree(&mut spec, of_its_type);
        json!({"spec": spec})
    };
    let cluster = given(&case["cluster"]);
    match title {
        _ if title.starts_with("replicas ") => {
            let said =
                if case["retainReplicas"] == true { vec![Some(true)] } else { vec![Some(false), None] };
            let deployment = |(way, retains_replicas): (usize, Option<bool>)| {
                let name = format!("case-{number}-{way}");
                let mut template = json!({"spec": crate::app::deployment(&name, 1)["spec"]});
                template["spec"]["replicas"] = case["desired"].clone();
                let there = json!({"spec": {"replicas": case["cluster"]}});
                let expected = case["expect"].clone();
                Trial { name, retains_replicas, ..trial("Deployment", template, there, replicas, expected) }
            };
            said.into_iter().enumerate().map(deployment).collect()
        }
        "service healthCheckNodePort absent" | "service healthCheckNodePort 0" => {
            vec![trial("Service", service(json!({})), cluster, health_port, expected)]
        }
        "service healthCheckNodePort 1000" => {
            let local = json!({
                "type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
            });
            vec![trial("Service", service(local), cluster, health_port, expected)]
        }
        "service no clusterIP or clusterIPs" => {
            // Every other one has some.
            let template = json!({"spec": {"type": "ExternalName", "externalName": "web.example.com"}});
            vec![trial("Service", template, cluster, addresses, expected)]
        }
        "service clusterIP only" => {
            // A server writes the list beside it.
            let expected = json!({"clusterIP": expected["clusterIP"], "clusterIPs": [expected["clusterIP"]]});
            vec![trial("Service", service(json!({})), cluster, addresses, expected)]
        }
        _ if title.starts_with("nodePort ") => {
            let template = service(json!({"type": "NodePort", "ports": case["desiredPorts"]}));
            let there = json!({"spec": {"ports": case["clusterPorts"]}});
            let kept = case.get("recommended").unwrap_or(&case["expectPorts"]);
            let expected = ports(&json!({"spec": {"ports": kept}}));
            vec![trial("Service", template, there, ports, expected)]
        }
        "serviceaccount secrets kept when template has none" => {
            let expected = secrets(&case["expect"]);
            vec![trial("ServiceAccount", case["desired"].clone(), cluster, secrets, expected)]
        }
        "serviceaccount secrets from template win" => {
            // KubeFed puts the template's in the place of all others. What is applied is merged by name: the
            // template's are there, and those that somebody in the member added stay.
            let expected = json!(["a", "b"]);
            vec![trial("ServiceAccount", case["desired"].clone(), cluster, secrets, expected)]
        }
        _ => Vec::new(),
    }
}

/// An object is in the member as the case has it, and is taken over; it is made so again, and its template changes.
/// Each time the copy keeps what it keeps in KubeFed.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_15_copies_keep_in_members_what_they_keep_in_kubefed() -> Result<()> {
    let all: Value = serde_json::from_str(CASES)?;
    let cases = all["retention"]["cases"].as_array().cloned().unwrap_or_default();
    let tried: Vec<Trial> =
        cases.iter().enumerate().flat_map(|(number, case)| trials(number, case)).collect();
    let titles = cases.iter().map(|case| text(case, "/name"));
    let untried: Vec<&str> = titles.filter(|title| tried.iter().all(|trial| trial.case != **title)).collect();
    assert_eq!(untried, HELD_NOWHERE.map(|(title, _)| title), "each is tried, or cannot be");

    let mut world = start(&[A, B]).await?;
    world.barrier(NS, 0, &[A, B]).await?;
    let members = [(A, world.member(A).await?), (B, world.member(B).await?)];
    for (title, why) in HELD_NOWHERE {
        let case = cases.iter().find(|case| case["name"] == title).cloned().unwrap_or_default();
        let mut object = crate::app::service("nowhere");
        merge_tree(&mut object, case["cluster"].clone());
        let refused = members[0].1.client.post(&collection(&object), &object).await?;
        assert!(refused.code.is_client_error(), "{title}: {}", refused.text());
        assert!(refused.text().contains(why), "{title}: {}", refused.text());
    }

    // In turn, as two that follow each other want the same port on nodes.
    let each = || tried.iter().zip(members.iter().cycle());
    for (trial, (cluster, member)) in each() {
        member.create(&trial.member_object()).await?;
        world.apply(&trial.whole(cluster, "one")).await?;
    }
    for (trial, (_, member)) in each() {
        trial.check(member, "one").await?;
        let written = member.client.merge_patch(&path(&trial.copy()), &trial.there).await?;
        ensure!(written.code == 200, "{}: {}", trial.case, written.text());
    }
    restart(&mut world, &[A, B]).await?;
    for (trial, (cluster, _)) in each() {
        world.apply(&trial.whole(cluster, "two")).await?;
    }
    for (trial, (_, member)) in each() {
        trial.check(member, "two").await?;
    }
    Ok(())
}
