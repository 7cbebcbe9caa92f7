//! Claims and classes, and what names them.

use std::collections::{BTreeMap, BTreeSet};

use kinds::ClassKind;
use placement::{Input, decide};
use serde_json::json;

use super::{current, directory, shown, three, workload};

#[test]
fn what_mounts_a_claim_runs_where_that_is() {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "import"},
        "spec": {"template": {"spec": {
            "containers": [{"name": "a", "image": "b"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "work"}}]}}},
    });
    let subject = kinds::subject(&job).unwrap();
    let directory = directory(&three());
    let in_clusters = |names: &[&str]| -> BTreeMap<String, BTreeSet<String>> {
        [("work".to_owned(), names.iter().map(|it| (*it).to_owned()).collect())].into()
    };
    let claims = in_clusters(&["us-1"]);
    let input = Input { home: Some("eu-1"), claims: &claims, ..Input::new(&subject, &directory) };
    let decision = decide(&input);
    assert_eq!(shown(&decision), "us-1=1", "the home is another one by now");
    let running = current(&[("eu-1", 1)]);
    let decision = decide(&Input { current: &running, ..input });
    assert_eq!(shown(&decision), "eu-1=1", "what runs is not moved because of it");

    let mut named = subject.clone();
    named.annotations.insert("hanse.io/clusters".into(), "ap-1".into());
    let input = Input { subject: &named, ..input };
    let decision = decide(&input);
    assert!(decision.is_unplaced);
    let told = decision.explain(&input).render();
    assert!(told.contains("the claim work that it mounts is in us-1"), "{told}");
}

#[test]
fn a_claim_waits_for_the_first_that_mounts_it() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "work"},
    });
    let (subject, directory) = (kinds::subject(&claim).unwrap(), directory(&three()));
    let input = Input { home: Some("eu-1"), ..Input::new(&subject, &directory) };
    assert_eq!(shown(&decide(&input)), "eu-1=0", "nobody mounts it");
    let awaited = decide(&Input { awaited: true, ..input });
    assert!(awaited.shares.is_empty() && !awaited.is_unplaced);
    let referrers = BTreeMap::from([("us-1".to_owned(), 1)]);
    assert_eq!(shown(&decide(&Input { referrers: &referrers, ..input })), "us-1=0");
}

#[test]
fn a_class_that_the_workspace_brings_need_not_be_there() {
    let subject = workload("Deployment", 2, |it| {
        it["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
        it["metadata"]["annotations"] = json!({"hanse.io/clusters": "eu-1,us-1"});
    });
    let mut clusters = three();
    clusters.iter_mut().for_each(|it| it["status"]["classes"] = json!({"PriorityClass": ["low"]}));
    let directory = directory(&clusters);
    let input = Input::new(&subject, &directory);
    assert!(decide(&input).is_unplaced, "nobody has it");
    let takers = |names: &[&str]| -> BTreeMap<(ClassKind, String), BTreeSet<String>> {
        let names = names.iter().map(|it| (*it).to_owned()).collect();
        [((ClassKind::PriorityClass, "high".to_owned()), names)].into()
    };
    let both = takers(&["eu-1", "us-1"]);
    assert_eq!(shown(&decide(&Input { brought: &both, ..input })), "eu-1=1 us-1=1");
    let one = takers(&["eu-1"]);
    let input = Input { brought: &one, ..input };
    let decision = decide(&input);
    assert_eq!(shown(&decision), "eu-1=2");
    let told = decision.explain(&input).render();
    assert!(
        told.contains("us-1: it has no PriorityClass high, and takes none from this workspace"),
        "{told}"
    );
}

#[test]
fn a_class_is_where_it_is_named_and_a_volume_stays() {
    let directory = directory(&three());
    let named = |group: &str, kind: &str| {
        let object = json!({"apiVersion": format!("{group}v1"), "kind": kind, "metadata": {"name": "a"}});
        kinds::subject(&object).unwrap()
    };
    let (class, volume) = (named("storage.k8s.io/", "StorageClass"), named("", "PersistentVolume"));
    let running = current(&[("us-1", 0)]);
    let users = BTreeMap::from([("us-1".to_owned(), 0)]);
    for (subject, kept) in [(&class, ""), (&volume, "us-1=0")] {
        let input = Input { home: Some("eu-1"), ..Input::new(subject, &directory) };
        assert_eq!(shown(&decide(&input)), "", "nothing names it");
        assert_eq!(shown(&decide(&Input { referrers: &users, ..input })), "us-1=0");
        let left = decide(&Input { current: &running, ..input });
        assert_eq!((shown(&left).as_str(), left.is_unplaced), (kept, false));
    }
}
