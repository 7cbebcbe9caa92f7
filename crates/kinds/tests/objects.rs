//! Objects of every kind: what is read from them, what travels, what comes back.

use std::collections::BTreeMap;

use kinds::{
    ClassKind, Extent, Health, MemberStatus, Problem, Share, Split, Subject, Travel, aggregate, health,
    known, of, split, subject,
};
use serde_json::{Value, json};

fn mk(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "serviceAccountName": "runner", "priorityClassName": "high", "runtimeClassName": "gvisor",
            "nodeSelector": {"disk": "ssd"},
            "imagePullSecrets": [{"name": "pull"}],
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [
                {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]},
                    {},
                ]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}},
                ],
            }},
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "big", "resources": {"requests": {"memory": "2Gi"}}},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            ],
            "containers": [{
                "name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "envFrom": [{"configMapRef": {"name": "env"}}],
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
            }],
            "volumes": [
                {"name": "a", "configMap": {"name": "files"}},
                {"name": "b", "secret": {"secretName": "certificate"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "d", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
            ],
        },
    })
}

#[test]
fn a_workload_says_what_it_needs_and_names() {
    let Subject { replicas, needs, references, classes, .. } =
        subject(&mk("apps/v1", "Deployment", json!({"replicas": 3, "template": template()})))
            .expect("a subject");
    assert_eq!(replicas, Some(3));
    let needs: Vec<String> = needs.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    assert_eq!(
        needs,
        ["cpu=160m", "memory=2Gi", "pods=1"],
        "containers, sidecars, the largest start, overhead"
    );
    let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&references.config_maps), "env files");
    assert_eq!(names(&references.secrets), "certificate key projected pull");
    assert_eq!(names(&references.service_accounts), "runner");
    assert_eq!(names(&references.claims), "data");
    let expected = [
        (ClassKind::StorageClass, "fast"),
        (ClassKind::PriorityClass, "high"),
        (ClassKind::RuntimeClass, "gvisor"),
    ];
    assert_eq!(classes, expected.map(|(kind, name)| (kind, name.to_owned())).into());
}

/// The API takes what no label can be, and the scheduler passes over it: so does placement.
#[test]
fn a_term_that_no_label_can_match_matches_nothing() {
    let term = |operator: &str, value: &str| json!({"matchExpressions": [{"key": "cores", "operator": operator, "values": [value]}]});
    let odd = [term("Gt", "many"), term("In", "no label"), term("About", "8")];
    let preferred: Vec<Value> = odd.iter().map(|it| json!({"weight": 1, "preference": it})).collect();
    let mut template = template();
    template["spec"]["affinity"]["nodeAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": odd},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    });
    let subject = subject(&mk("apps/v1", "Deployment", json!({"template": template}))).expect("a subject");
    assert_eq!(
        subject.required_affinity.map(|terms| terms.len()),
        Some(0),
        "so it fits nowhere, which is told"
    );
    assert!(subject.preferred_affinity.is_empty());
}

#[test]
fn a_workload_says_which_nodes_it_wants() {
    let subject = subject(&mk("apps/v1", "Deployment", json!({"template": template()}))).expect("a subject");
    assert_eq!(subject.replicas, Some(1), "as the API has it");
    let terms = subject.required_affinity.expect("terms");
    assert_eq!(terms.len(), 1, "an empty term matches nothing");
    assert_eq!(terms[0].labels[0].to_string(), "region in (eu)");
    assert_eq!(subject.preferred_affinity[0].weight, 5);
    assert_eq!(subject.preferred_affinity[0].term.labels[0].to_string(), "cores>8");
    assert_eq!(subject.tolerations[0].key, "gpu");
    assert_eq!((subject.spread[0].max_skew, subject.spread[0].required), (2, false));
    assert_eq!(subject.node_selector["disk"], "ssd");
    assert_eq!(subject.pod_labels["app"], "web");
}

#[test]
fn kinds_differ_in_how_they_are_divided() {
    let rows: [(Value, Option<u64>, Split, Extent); 11] = [
        (mk("apps/v1", "ReplicaSet", json!({"replicas": 0})), Some(0), Split::Replicas, Extent::None),
        (mk("v1", "ReplicationController", json!({})), Some(1), Split::Replicas, Extent::None),
        (
            mk("apps/v1", "StatefulSet", json!({"replicas": 2, "ordinals": {"start": 5}})),
            Some(2),
            Split::Ordinals,
            Extent::Ordinals { start: 5 },
        ),
        (mk("apps/v1", "DaemonSet", json!({})), None, Split::Whole, Extent::None),
        (
            mk("batch/v1", "Job", json!({"parallelism": 2, "completions": 6})),
            Some(2),
            Split::JobCounts,
            Extent::Job { completions: Some(6), indexed: false },
        ),
        (
            mk("batch/v1", "Job", json!({"completions": 6, "completionMode": "Indexed"})),
            Some(1),
            Split::Whole,
            Extent::Job { completions: Some(6), indexed: true },
        ),
        (
            mk("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"parallelism": 3}}})),
            Some(3),
            Split::JobCounts,
            Extent::Job { completions: None, indexed: false },
        ),
        (
            mk("autoscaling/v2", "HorizontalPodAutoscaler", json!({"maxReplicas": 9})),
            None,
            Split::MinMax,
            Extent::Bounds { min: 1, max: 9 },
        ),
        (mk("policy/v1", "PodDisruptionBudget", json!({})), None, Split::Budget, Extent::None),
        (mk("v1", "Pod", json!({})), Some(1), Split::Whole, Extent::None),
        (mk("example.com/v1", "Widget", json!({"replicas": 4})), None, Split::Whole, Extent::None),
    ];
    for (object, replicas, splits, extent) in rows {
        let subject = subject(&object).expect("a subject");
        assert_eq!(
            (subject.replicas, subject.splits, subject.extent),
            (replicas, splits, extent),
            "{object}"
        );
    }
}

#[test]
fn others_say_whom_they_follow() {
    let read = |api_version, kind, spec| subject(&mk(api_version, kind, spec)).expect("a subject").references;
    let shown = |references: kinds::References| references.pods.map(|pods| pods.to_string());
    assert_eq!(shown(read("v1", "Service", json!({"selector": {"app": "web"}}))).as_deref(), Some("app=web"));
    assert_eq!(shown(read("v1", "Service", json!({}))), None, "endpoints made by hand");
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = read("policy/v1", "PodDisruptionBudget", json!({"selector": selector}));
    assert_eq!(shown(budget).as_deref(), Some("app=web"));
    let policy = read("networking.k8s.io/v1", "NetworkPolicy", json!({"podSelector": {}}));
    assert_eq!(shown(policy).as_deref(), Some(""), "all pods of its namespace");
    let target = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    let targets = read("autoscaling/v2", "HorizontalPodAutoscaler", target).targets;
    let target = targets.first().expect("a target");
    assert_eq!(
        (target.group.as_str(), target.kind.as_str(), target.name.as_str()),
        ("apps", "Deployment", "web")
    );
    let ingress = mk(
        "networking.k8s.io/v1",
        "Ingress",
        json!({
            "ingressClassName": "nginx", "tls": [{"secretName": "certificate"}],
            "rules": [{"http": {"paths": [{"backend": {"service": {"name": "front"}}}]}}],
            "defaultBackend": {"service": {"name": "back"}},
        }),
    );
    let ingress = subject(&ingress).expect("a subject");
    assert_eq!(ingress.references.services, ["back", "front"].map(str::to_owned).into());
    assert_eq!(ingress.references.secrets, ["certificate".to_owned()].into());
    assert_eq!(ingress.classes, [(ClassKind::IngressClass, "nginx".to_owned())].into());
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}},
    });
    let slice = subject(&slice).expect("a subject");
    assert_eq!((slice.travel, slice.references.services), (Travel::Follows, ["db".to_owned()].into()));
    let set = mk(
        "apps/v1",
        "StatefulSet",
        json!({"volumeClaimTemplates": [{"spec": {"storageClassName": "fast"}}]}),
    );
    let set = subject(&set).expect("a subject");
    assert!(set.stateful && set.mounts_volumes && set.references.claims.is_empty());
    assert_eq!(of("rbac.authorization.k8s.io", "Role").travel, Travel::Stays);
}

#[test]
fn what_kubernetes_makes_in_every_namespace_is_nobodys_to_follow() {
    let named =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let travel = |kind, name| subject(&named(kind, name)).expect("a subject").travel;
    assert_eq!(travel("ServiceAccount", "default"), Travel::Stays);
    assert_eq!(travel("ConfigMap", "kube-root-ca.crt"), Travel::Stays);
    assert_eq!(travel("ServiceAccount", "runner"), Travel::Follows);
    assert_eq!(travel("ConfigMap", "default"), Travel::Follows);
    let pod =
        json!({"serviceAccountName": "default", "volumes": [{"configMap": {"name": "kube-root-ca.crt"}}]});
    let references = subject(&mk("v1", "Pod", pod)).expect("a subject").references;
    assert!(references.service_accounts.is_empty() && references.config_maps.is_empty());
}

#[test]
fn what_cannot_be_read_is_said() {
    assert_eq!(subject(&json!({})), Err(Problem::Missing("kind")));
    assert_eq!(subject(&json!({"kind": "Pod"})), Err(Problem::Missing("name")));
    let selector = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}});
    let problem = subject(&mk("policy/v1", "PodDisruptionBudget", selector));
    assert_eq!(
        problem.map_err(|it| it.to_string()),
        Err("spec.selector: \"Is\" is not a valid label selector operator".to_owned())
    );
}

fn shares(list: &[(&str, Share)]) -> BTreeMap<String, Share> {
    list.iter().map(|(cluster, share)| ((*cluster).to_owned(), *share)).collect()
}

fn some(replicas: u64) -> Share {
    Share { replicas, ..Share::default() }
}

/// What each cluster gets at some paths.
fn split_to(object: &Value, list: &[(&str, Share)], paths: &[&str]) -> Vec<(String, Vec<Value>)> {
    let copies = split(object, &shares(list)).expect("copies");
    let at =
        |copy: &Value| paths.iter().map(|path| copy.pointer(path).cloned().unwrap_or_default()).collect();
    copies.into_iter().map(|(cluster, copy)| (cluster, at(&copy))).collect()
}

#[test]
fn each_cluster_gets_its_part() {
    let expect = |list: &[(&str, &[Value])]| -> Vec<(String, Vec<Value>)> {
        list.iter().map(|(cluster, values)| ((*cluster).to_owned(), values.to_vec())).collect()
    };
    let deployment = mk("apps/v1", "Deployment", json!({"replicas": 3}));
    assert_eq!(
        split_to(&deployment, &[("a", some(2)), ("b", some(1)), ("c", some(0))], &["/spec/replicas"]),
        expect(&[("a", &[json!(2)]), ("b", &[json!(1)]), ("c", &[json!(0)])])
    );
    let set = mk(
        "apps/v1",
        "StatefulSet",
        json!({
            "replicas": 5, "updateStrategy": {"rollingUpdate": {"partition": 3}},
        }),
    );
    let paths = ["/spec/replicas", "/spec/ordinals/start", "/spec/updateStrategy/rollingUpdate/partition"];
    assert_eq!(
        split_to(&set, &[("a", some(2)), ("b", some(3))], &paths),
        expect(&[("a", &[json!(2), json!(null), json!(2)]), ("b", &[json!(3), json!(2), json!(1)])]),
        "a partition is counted from the first ordinal"
    );
    let job = mk("batch/v1", "Job", json!({"parallelism": 3, "completions": 10}));
    assert_eq!(
        split_to(
            &job,
            &[("a", some(2)), ("b", some(1)), ("c", some(0))],
            &["/spec/parallelism", "/spec/completions"]
        ),
        expect(&[("a", &[json!(2), json!(7)]), ("b", &[json!(1), json!(3)])]),
        "nothing to run, no Job"
    );
    let begun = Share { replicas: 0, completions: Some(4), ..Share::default() };
    let rest = Share { replicas: 3, completions: Some(6), ..Share::default() };
    assert_eq!(
        split_to(&job, &[("a", begun), ("b", rest)], &["/spec/parallelism", "/spec/completions"]),
        expect(&[("a", &[json!(0), json!(4)]), ("b", &[json!(3), json!(6)])]),
        "completions cannot be changed, so one that has begun stays and pauses"
    );
    let queue = mk("batch/v1", "Job", json!({"parallelism": 0}));
    assert_eq!(
        split_to(&queue, &[("a", some(0)), ("b", some(0))], &["/spec/parallelism"]),
        expect(&[("a", &[json!(0)]), ("b", &[json!(0)])]),
        "paused, not gone"
    );
    let paused =
        mk("batch/v1", "Job", json!({"parallelism": 0, "completions": 7, "completionMode": "Indexed"}));
    assert_eq!(split_to(&paused, &[("a", some(0))], &["/spec/completions"]), expect(&[("a", &[json!(7)])]));
    let cron =
        mk("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"parallelism": 2, "completions": 2}}}));
    assert_eq!(
        split_to(&cron, &[("a", some(1)), ("b", some(1))], &["/spec/jobTemplate/spec/completions"]),
        expect(&[("a", &[json!(1)]), ("b", &[json!(1)])])
    );
    let bounds = |min, max| Share { min: Some(min), max: Some(max), ..Share::default() };
    let scaler = mk("autoscaling/v2", "HorizontalPodAutoscaler", json!({"minReplicas": 1, "maxReplicas": 9}));
    assert_eq!(
        split_to(
            &scaler,
            &[("a", bounds(1, 5)), ("b", bounds(2, 4)), ("c", bounds(0, 0))],
            &["/spec/minReplicas", "/spec/maxReplicas"]
        ),
        expect(&[("a", &[json!(1), json!(5)]), ("b", &[json!(2), json!(4)])])
    );
    let budget = mk("policy/v1", "PodDisruptionBudget", json!({"maxUnavailable": "10%"}));
    assert_eq!(
        split_to(&budget, &[("a", some(1)), ("b", some(1))], &["/spec/maxUnavailable"]),
        expect(&[("a", &[json!(1)]), ("b", &[json!(0)])]),
        "10% of two pods is one, not one in each cluster"
    );
}

#[test]
fn an_indexed_job_goes_as_a_whole() {
    let job = mk("batch/v1", "Job", json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"}));
    let divided = split(&job, &shares(&[("a", some(1)), ("b", some(1))]));
    assert!(matches!(divided, Err(Problem::Indivisible(_))), "{divided:?}");
    let whole = split(&job, &shares(&[("a", some(2)), ("b", some(0))])).expect("copies");
    assert_eq!(
        whole
            .into_iter()
            .map(|(cluster, copy)| (cluster, copy["spec"]["completions"].clone()))
            .collect::<Vec<_>>(),
        [("a".to_owned(), json!(4))]
    );
}

#[test]
fn what_the_hub_chose_does_not_travel() {
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "finalizers": ["x"],
        "ownerReferences": [{"name": "o"}], "labels": {"app": "web"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"},
    });
    let plain =
        json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"mine": "1"}});
    let rows: [(&str, &str, Value, Value); 6] = [
        ("v1", "ConfigMap", json!({"data": {"a": "b"}}), json!({"data": {"a": "b"}})),
        (
            "v1",
            "Service",
            json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "healthCheckNodePort": 3, "ports": [{"port": 80, "nodePort": 30000}]}}),
            json!({"spec": {"ports": [{"port": 80}]}}),
        ),
        ("v1", "Service", json!({"spec": {"clusterIP": "None"}}), json!({"spec": {"clusterIP": "None"}})),
        (
            "batch/v1",
            "Job",
            json!({"spec": {"selector": {"matchLabels": {"controller-uid": "u"}}, "template": {"metadata": {"labels": {"job-name": "web", "app": "a"}}}}}),
            json!({"spec": {"parallelism": 1, "template": {"metadata": {"labels": {"app": "a"}}}}}),
        ),
        (
            "v1",
            "Pod",
            json!({"spec": {"nodeName": "n", "priority": 0, "volumes": [{"name": "kube-api-access-x", "projected": {}}], "containers": [{"name": "c", "volumeMounts": [{"name": "kube-api-access-x"}]}]}}),
            json!({"spec": {"containers": [{"name": "c"}]}}),
        ),
        (
            "v1",
            "Secret",
            json!({"type": "kubernetes.io/service-account-token", "data": {"token": "t"}}),
            json!({"type": "kubernetes.io/service-account-token"}),
        ),
    ];
    for (api_version, kind, parts, expected) in rows {
        let with = |parts: Value, metadata: &Value| {
            let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            object.as_object_mut().expect("an object").extend(parts.as_object().cloned().unwrap_or_default());
            object
        };
        let mut object = with(parts, &metadata);
        object["status"] = json!({"any": 1});
        let copies = split(&object, &shares(&[("a", some(1))])).expect("copies");
        assert_eq!(copies["a"], with(expected, &plain), "{kind}");
    }
}

fn member(status: Value) -> MemberStatus {
    MemberStatus {
        generation: 1,
        source_generation: 1,
        status,
        reachable: true,
        assigned: some(1),
        ..MemberStatus::default()
    }
}

fn both(kind: &str, one: Value, other: Value) -> Value {
    let row = known().iter().find(|row| row.kind == kind);
    let group = row.map_or("example.com", |row| row.group);
    let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    let mut object = mk(&api_version, kind, json!({}));
    object["metadata"]["generation"] = json!(1);
    aggregate(&object, &BTreeMap::from([("a".to_owned(), member(one)), ("b".to_owned(), member(other))]))
}

#[test]
fn phases_addresses_and_times_of_all_copies() {
    let phase = |phase: &str| json!({"phase": phase});
    let rows: [(&str, Value, Value, &str, Value); 13] = [
        ("PersistentVolumeClaim", phase("Bound"), phase("Bound"), "/phase", json!("Bound")),
        ("PersistentVolumeClaim", phase("Bound"), phase("Pending"), "/phase", json!("Pending")),
        ("PersistentVolumeClaim", phase("Bound"), json!(null), "/phase", json!("Pending")),
        ("PersistentVolumeClaim", phase("Lost"), phase("Pending"), "/phase", json!("Lost")),
        ("PersistentVolume", phase("Bound"), phase("Available"), "/phase", json!("Available")),
        ("Pod", phase("Running"), phase("Failed"), "/phase", json!("Failed")),
        ("Pod", phase("Running"), phase("Succeeded"), "/phase", json!("Running")),
        (
            "Ingress",
            json!({"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}]}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]}}),
            "/loadBalancer/ingress",
            json!([{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]),
        ),
        ("Service", json!({}), json!(null), "/loadBalancer", json!({})),
        (
            "CronJob",
            json!({"lastScheduleTime": "2026-01-01T00:00:00Z", "active": [{"name": "a"}]}),
            json!({"lastScheduleTime": "2026-01-02T00:00:00Z"}),
            "/lastScheduleTime",
            json!("2026-01-02T00:00:00Z"),
        ),
        (
            "PodDisruptionBudget",
            json!({"disruptionsAllowed": 1, "observedGeneration": 1, "conditions": [{"type": "DisruptionAllowed", "status": "True"}]}),
            json!({"disruptionsAllowed": 0, "observedGeneration": 1, "conditions": [{"type": "DisruptionAllowed", "status": "False"}]}),
            "/conditions/0/status",
            json!("True"),
        ),
        ("ConfigMap", json!(null), json!(null), "", json!(null)),
        ("Namespace", phase("Active"), phase("Active"), "", json!(null)),
    ];
    for (kind, one, other, pointer, expected) in rows {
        let status = both(kind, one, other);
        assert_eq!(status.pointer(pointer), Some(&expected), "{kind}: {status:#}");
    }
}

#[test]
fn the_generation_that_a_copy_has_observed_is_not_that_of_the_whole() {
    let status = json!({
        "phase": "Running", "observedGeneration": 9,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 9}],
    });
    let mut pod = mk("v1", "Pod", json!({}));
    pod["metadata"]["generation"] = json!(2);
    let known = MemberStatus { generation: 9, source_generation: 2, ..member(status) };
    let of = |known: MemberStatus| aggregate(&pod, &BTreeMap::from([("a".to_owned(), known)]));
    let shown = of(known.clone());
    assert_eq!(shown["observedGeneration"], 2);
    assert_eq!(shown["conditions"], json!([{"type": "Ready", "status": "True"}]));
    assert_eq!(of(MemberStatus { generation: 10, ..known })["observedGeneration"], 1, "it lags behind");
}

#[test]
fn conditions_of_any_definition_are_merged() {
    let status = |ready: &str, stalled: Option<&str>| {
        let mut conditions = vec![json!({"type": "Ready", "status": ready, "reason": "R", "message": "m"})];
        conditions.extend(stalled.map(|it| json!({"type": "Stalled", "status": it, "reason": "S"})));
        json!({"observedGeneration": 1, "url": "http://x", "conditions": conditions})
    };
    let merged = both("Widget", status("True", None), status("True", Some("True")));
    let of = |status: &Value, kind: &str| {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
    };
    assert_eq!(of(&merged, "Ready")["status"], "True");
    assert_eq!(of(&merged, "Stalled")["status"], "True", "one that is stuck is enough");
    assert_eq!(merged["url"], "http://x", "on which all agree");
    assert_eq!(merged["observedGeneration"], 1);
    let waiting = both("Widget", status("True", None), status("False", None));
    assert_eq!(of(&waiting, "Ready")["status"], "False");
    assert_eq!(of(&waiting, "Ready")["message"], "b: m", "by the name of the cluster");
    let unseen = both("Widget", status("True", None), json!(null));
    assert_eq!(of(&unseen, "Ready")["status"], "Unknown");
    assert_eq!(unseen["observedGeneration"], 0);
}

#[test]
fn an_autoscaler_over_clusters_says_what_all_of_them_do() {
    let status = |current: u64, percent: u64, able: &str| {
        json!({
            "observedGeneration": 1, "currentReplicas": current, "desiredReplicas": current + 1,
            "lastScaleTime": format!("2026-01-0{current}T00:00:00Z"),
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent, "averageValue": "100m"}}}],
            "conditions": [{"type": "AbleToScale", "status": able, "reason": if able == "True" { "ReadyForNewScale" } else { "FailedGetScale" }}],
        })
    };
    let merged = both("HorizontalPodAutoscaler", status(1, 40, "True"), status(3, 80, "False"));
    assert_eq!((&merged["currentReplicas"], &merged["desiredReplicas"]), (&json!(4), &json!(6)));
    assert_eq!(merged["lastScaleTime"], "2026-01-03T00:00:00Z");
    let current = &merged["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current, &json!({"averageUtilization": 70, "averageValue": "100m"}), "weighed by replicas");
    assert_eq!(merged["conditions"][0]["reason"], "FailedGetScale");
}

#[test]
fn the_health_of_an_object_is_read_from_its_status() {
    let with = |api_version: &str, kind: &str, spec: Value, status: Value| {
        let mut object = mk(api_version, kind, spec);
        object["status"] = status;
        object
    };
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "message": "m"}]});
    let degraded = || Health::Degraded("m".to_owned());
    let rows = [
        (with("batch/v1", "Job", json!({}), condition("Complete")), Health::Healthy),
        (with("batch/v1", "Job", json!({}), condition("Failed")), degraded()),
        (with("batch/v1", "Job", json!({}), condition("Suspended")), Health::Suspended),
        (with("batch/v1", "CronJob", json!({"suspend": true}), json!({})), Health::Suspended),
        (with("apps/v1", "Deployment", json!({"paused": true}), json!({})), Health::Suspended),
        (with("apps/v1", "ReplicaSet", json!({"replicas": 0}), condition("ReplicaFailure")), degraded()),
        (with("v1", "Pod", json!({}), json!({"phase": "Succeeded"})), Health::Healthy),
        (
            with(
                "v1",
                "Pod",
                json!({}),
                json!({"phase": "Pending", "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}},
                ]}),
            ),
            degraded(),
        ),
        (with("v1", "Service", json!({"type": "ClusterIP"}), json!({})), Health::Healthy),
        (
            with("v1", "Service", json!({"type": "LoadBalancer"}), json!({})),
            Health::Progressing("it has no address yet".to_owned()),
        ),
        (with("v1", "ConfigMap", json!({}), json!({})), Health::Healthy),
        (
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            Health::Progressing("it is being deleted".to_owned()),
        ),
        (with("example.com/v1", "Widget", json!({}), condition("Ready")), Health::Healthy),
        (with("example.com/v1", "Widget", json!({}), condition("Stalled")), degraded()),
        (
            with("example.com/v1", "Widget", json!({}), json!({})),
            Health::Unknown("nothing in its status says how it does".to_owned()),
        ),
    ];
    for (object, expected) in rows {
        assert_eq!(health(&object), expected, "{object}");
    }
}
