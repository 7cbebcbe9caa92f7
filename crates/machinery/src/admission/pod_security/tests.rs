use serde_json::{Value, json};

use super::*;

fn mk(value: Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

fn policy(labels: &[(&str, &str)]) -> (String, Vec<String>) {
    let (policy, causes) = Policy::of_labels(|key| {
        let mode = key.strip_prefix(PREFIX)?;
        labels.iter().find(|(name, _)| *name == mode).map(|(_, value)| *value)
    });
    let told = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), told)
}

#[test]
fn labels_say_what_is_demanded() {
    let open = "privileged:latest privileged:latest privileged:latest";
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[], open),
        (&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest"),
        (
            &[("enforce", "baseline"), ("enforce-version", "v1.20"), ("warn-version", "v1.30")],
            "baseline:v1.20 privileged:latest baseline:v1.30",
        ),
        (
            &[("audit", "restricted"), ("audit-version", "v1.0"), ("warn", "baseline")],
            "privileged:latest restricted:v1.0 baseline:latest",
        ),
        (
            &[("enforce", "restricted"), ("warn", "privileged")],
            "restricted:latest privileged:latest privileged:latest",
        ),
    ];
    for (labels, wanted) in rows {
        assert_eq!(policy(labels), (wanted.to_owned(), vec![]), "{labels:?}");
    }
    let (read, causes) = policy(&[("enforce", "bad"), ("warn-version", "v1.01"), ("audit", "")]);
    assert_eq!(read, "restricted:latest privileged:latest privileged:latest");
    assert_eq!(
        causes,
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"bad\": must be one of privileged, baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"\": must be one of privileged, baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.01\": must be \"latest\" or \"v1.x\"",
        ]
    );
}

#[test]
fn a_plain_pod_violates_what_is_restricted() {
    let pod = mk(json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}));
    let at = |level, version| details(&evaluate(Demand { level, version }, &pod));
    assert_eq!(at(Level::Baseline, Version::Latest), "");
    assert_eq!(
        at(Level::Restricted, Version::Latest),
        "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"a\", \"b\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or containers \"a\", \"b\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or containers \"a\", \"b\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    assert_eq!(
        at(Level::Restricted, Version::Minor(0)),
        "runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true)"
    );
}

#[test]
fn a_survey_names_the_first_pod_of_each_kind_of_violation() {
    let violation = |reason| vec![Violation { reason, detail: "x".into() }];
    let mut survey = Survey::default();
    survey.add("b", &violation("privileged"));
    survey.add("a", &violation("privileged"));
    survey.add("c", &violation("hostPort"));
    survey.add("d", &[]);
    let demand = Demand { level: Level::Baseline, version: Version::Latest };
    assert_eq!(
        survey.warnings("shop", demand, 4, 9),
        [
            "new PodSecurity enforce level only checked against the first 4 of 9 existing pods",
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): privileged",
            "c: hostPort",
        ]
    );
}
