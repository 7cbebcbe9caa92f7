use serde_json::{Value, json};

use super::*;
use crate::{field_error::Cause, resource::Tree};

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        other => panic!("not an object: {other}"),
    }
}

fn told(causes: Vec<Cause>) -> Vec<String> {
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// A template of pods that nothing is wrong with.
fn template(restart: &str) -> Value {
    let mut template = tree(json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "i"}]},
    }));
    crate::validation::pod::default_template(&mut template);
    Value::Object(template)
}

/// `base` with the members of `change` in it, objects member by member; null removes.
fn with(mut base: Value, change: Value) -> Value {
    match (&mut base, change) {
        (Value::Object(base), Value::Object(change)) => {
            for (key, value) in change {
                match value {
                    Value::Null => drop(base.remove(&key)),
                    value => {
                        let old = base.remove(&key).unwrap_or(Value::Null);
                        base.insert(key, with(old, value));
                    }
                }
            }
            Value::Object(base.clone())
        }
        (_, change) => change,
    }
}

fn deployment_with(change: Value) -> Tree {
    let base = json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template("Always")},
    });
    let mut deployment = tree(with(base, change));
    default_deployment(&mut deployment);
    deployment
}

#[test]
fn what_a_deployment_leaves_open_is_filled_in() {
    let deployment = deployment_with(json!({}));
    let spec = &deployment["spec"];
    assert_eq!(
        [
            &spec["replicas"],
            &spec["revisionHistoryLimit"],
            &spec["progressDeadlineSeconds"],
            &spec["strategy"]
        ],
        [
            &json!(1),
            &json!(10),
            &json!(600),
            &json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ]
    );
    assert_eq!(told(super::deployment(&deployment, None)), [""; 0]);
}

#[test]
fn deployments() {
    let old = deployment_with(json!({}));
    for (change, problems) in [
        (
            json!({"spec": {"replicas": -1}}),
            vec!["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            json!({"spec": {"selector": null}}),
            vec![
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
                "spec.selector: Invalid value: null: field is immutable",
            ],
        ),
        (
            json!({"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
            vec![
                "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
                "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable",
            ],
        ),
        (
            json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}}),
            vec![
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        ),
        (
            json!({"spec": {"strategy": {"type": "X"}}}),
            vec![
                r#"spec.strategy: Unsupported value: {"Type":"X","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate""#,
            ],
        ),
        (
            json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "0%", "maxSurge": 0}}}}),
            vec![
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
            ],
        ),
        (
            json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}}),
            vec![
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ],
        ),
        (
            json!({"spec": {"minReadySeconds": 600}}),
            vec!["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
        ),
        (
            json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}),
            vec![
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ],
        ),
    ] {
        assert_eq!(told(deployment(&deployment_with(change.clone()), Some(&old))), problems, "{change}");
    }
}

#[test]
fn a_daemon_sets_template_is_counted() {
    let mut old = tree(json!({"metadata": {"name": "d"}, "spec": {"template": template("Always")}}));
    prepare_daemon_set(&mut old);
    default_daemon_set(&mut old);
    assert_eq!(template_generation(&old), 1);
    for (change, generation) in [
        (json!({"spec": {"minReadySeconds": 3}}), 1),
        (json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}), 2),
        (json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "9"}}}), 1),
    ] {
        let mut new = tree(with(Value::Object(old.clone()), change));
        count_daemon_set_template(&mut new, &old);
        assert_eq!(template_generation(&new), generation);
    }
    for (text, error) in [("1", None), ("x", Some("strconv.ParseInt: parsing \"x\": invalid syntax"))] {
        let set =
            tree(json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": text}}}));
        assert_eq!(has_template_generation(&set).err().as_deref(), error);
    }
}

#[test]
fn of_a_stateful_set_only_some_members_change() {
    let base = json!({
        "metadata": {"name": "s"},
        "spec": {"serviceName": "s", "selector": {"matchLabels": {"app": "a"}}, "template": template("Always")},
    });
    let mut old = tree(base);
    default_stateful_set(&mut old);
    assert_eq!(told(stateful_set(&old, None)), [""; 0]);
    for (change, refused) in
        [(json!({"spec": {"replicas": 5}}), false), (json!({"spec": {"serviceName": "t"}}), true)]
    {
        let new = tree(with(Value::Object(old.clone()), change));
        let problems = told(stateful_set(&new, Some(&old)));
        assert_eq!(
            problems.iter().any(|it| it.starts_with("spec: Forbidden: updates to statefulset")),
            refused
        );
    }
}

fn job_with(change: Value) -> Tree {
    let base = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template("Never")}});
    let mut job = tree(with(base, change));
    prepare_job(&mut job);
    default_job(&mut job);
    job
}

#[test]
fn a_job_selects_its_pods_by_its_uid() {
    let job = job_with(json!({}));
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    let labels = json!({
        "app": "a", "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j",
    });
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(told(super::job(&job, None)), [""; 0]);
    let manual =
        job_with(json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"app": "a"}}}}));
    assert_eq!(manual["spec"]["selector"], json!({"matchLabels": {"app": "a"}}));
}

#[test]
fn jobs() {
    let failure = |rule: Value| json!({"spec": {"podFailurePolicy": {"rules": [rule]}}});
    for (change, problems) in [
        (
            json!({"spec": {"parallelism": -1}}),
            vec!["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            json!({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}),
            vec![r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#],
        ),
        (
            json!({"spec": {"backoffLimitPerIndex": 1}}),
            vec!["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            json!({"spec": {"managedBy": "x"}}),
            vec![
                "spec.managedBy: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ],
        ),
        (
            failure(json!({"action": "X", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}})),
            vec![
                r#"spec.podFailurePolicy.rules[0].action: Unsupported value: "X": supported values: "Count", "FailIndex", "FailJob", "Ignore""#,
                "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                "spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        ),
        (
            failure(json!({"action": "Count"})),
            vec![
                "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ],
        ),
        (
            json!({"spec": {"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [{"succeededIndexes": "0-3", "succeededCount": 4}]}}}),
            vec![
                "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0-3\": error parsing succeededIndexes: too large index: \"3\"",
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)",
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 0 (the number of indexes in the specified succeededIndexes field)",
            ],
        ),
    ] {
        assert_eq!(told(job(&job_with(change.clone()), None)), problems, "{change}");
    }
}

#[test]
fn a_job_that_rests_may_be_scheduled_anew() {
    let old = |suspend: bool| job_with(json!({"spec": {"suspend": suspend}}));
    let change = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "z"}}}}});
    for (suspend, problems) in [(true, 0), (false, 1)] {
        let new = tree(with(Value::Object(old(suspend)), change.clone()));
        assert_eq!(told(job(&new, Some(&old(suspend)))).len(), problems);
    }
}

#[test]
fn statuses_of_jobs() {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let time = "2024-01-01T00:00:00Z";
    let job = |status: Value| {
        let mut job = job_with(json!({}));
        job.insert("status".into(), status);
        job
    };
    let done = json!({
        "startTime": time, "completionTime": time, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    });
    for (old, new, problems) in [
        (json!({}), done.clone(), vec![]),
        (
            json!({}),
            json!({"startTime": time, "conditions": [condition("Complete")]}),
            vec![
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ],
        ),
        (
            json!({}),
            json!({"conditions": [condition("Failed")], "active": 1}),
            vec![
                "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        ),
        (
            json!({"failed": 2, "succeeded": 1}),
            json!({"failed": 1}),
            vec![
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
                "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
            ],
        ),
        (
            json!({}),
            json!({"ready": 2, "active": 1, "completedIndexes": "0"}),
            vec![
                "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
            ],
        ),
    ] {
        assert_eq!(told(job_status(&job(new.clone()), &job(old))), problems, "{new}");
    }
}

#[test]
fn cron_jobs() {
    let cron = |change: Value| {
        let base = json!({
            "metadata": {"name": "c"},
            "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template("Never")}}},
        });
        let mut cron = tree(with(base, change));
        default_cron_job(&mut cron);
        told(cron_job(&cron, None))
    };
    for (change, problems) in [
        (json!({"spec": {"timeZone": "Europe/Berlin"}}), vec![]),
        (json!({"spec": {"schedule": ""}}), vec!["spec.schedule: Required value"]),
        (
            json!({"spec": {"schedule": "TZ=UTC @daily"}}),
            vec![
                "spec.schedule: Invalid value: \"TZ=UTC @daily\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ],
        ),
        (
            json!({"spec": {"timeZone": "Nowhere"}}),
            vec!["spec.timeZone: Invalid value: \"Nowhere\": unknown time zone Nowhere"],
        ),
        (
            json!({"spec": {"concurrencyPolicy": "X"}}),
            vec![
                r#"spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow", "Forbid", "Replace""#,
            ],
        ),
        (
            json!({"spec": {"jobTemplate": {"spec": {"manualSelector": true}}}}),
            vec![
                r#"spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false""#,
            ],
        ),
    ] {
        assert_eq!(cron(change.clone()), problems, "{change}");
    }
}

#[test]
fn autoscalers() {
    let scaler = |change: Value| {
        let base = json!({
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
        });
        let mut scaler = tree(with(base, change));
        default_autoscaler(&mut scaler);
        told(autoscaler(&scaler, None))
    };
    for (change, problems) in [
        (json!({}), vec![]),
        (
            json!({"spec": {"maxReplicas": 0, "minReplicas": 0}}),
            vec![
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ],
        ),
        (
            json!({"spec": {"scaleTargetRef": {"apiVersion": "v1"}}}),
            vec!["spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"],
        ),
        (
            json!({"spec": {"metrics": [{"type": "Pods"}]}}),
            vec![
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            ],
        ),
        (
            json!({"spec": {"behavior": {"scaleUp": {"policies": [{"type": "X", "value": 0, "periodSeconds": 1801}]}}}}),
            vec![
                r#"spec.behavior.scaleUp.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods""#,
                "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        ),
    ] {
        assert_eq!(scaler(change.clone()), problems, "{change}");
    }
}

#[test]
fn disruption_budgets() {
    for (spec, problems) in [
        (json!({"minAvailable": 1}), vec![]),
        (
            json!({"minAvailable": 1, "maxUnavailable": "x"}),
            vec![
                r#"spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"x","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#,
                r#"spec.maxUnavailable: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
            ],
        ),
    ] {
        assert_eq!(told(disruption_budget(&tree(json!({"spec": spec})), None)), problems);
    }
}
