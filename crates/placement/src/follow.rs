//! Objects that go where others are that need them.

use std::collections::{BTreeMap, BTreeSet};

use kinds::{Share, Subject, Travel};

use crate::policy::labels;

/// Whether, with no policy of its own, it goes where others are.
pub fn is_follower(subject: &Subject) -> bool {
    matches!(travel(subject), Travel::Follows | Travel::WithNamespace | Travel::Named)
}

pub fn travel(subject: &Subject) -> Travel {
    kinds::of(&subject.group, &subject.kind).travel(&subject.name)
}

/// Whether it says where data is, which is nowhere else.
fn is_volume(subject: &Subject) -> bool {
    subject.group.is_empty() && subject.kind == "PersistentVolume"
}

/// Whether it stays where it is when nothing needs it any more: others may soon, and taking it away gains nothing. A class is
/// every tenant's of a cluster, and is there only as long as it is named.
pub fn stays_unneeded(subject: &Subject) -> bool {
    travel(subject) != Travel::Named || is_volume(subject)
}

pub fn is_claim(subject: &Subject) -> bool {
    subject.group.is_empty() && subject.kind == "PersistentVolumeClaim"
}

/// Whether the follower goes where the leader is, because one of them refers to the other.
pub fn leads(leader: &Subject, follower: &Subject) -> bool {
    leader.namespace == follower.namespace && (names(leader, follower) || is_about(follower, leader))
}

/// By its pods, say: config maps, secrets, accounts, claims.
fn names(leader: &Subject, follower: &Subject) -> bool {
    if !follower.group.is_empty() {
        return false;
    }
    let references = &leader.references;
    let named = match follower.kind.as_str() {
        "ConfigMap" => &references.config_maps,
        "Secret" => &references.secrets,
        "ServiceAccount" => &references.service_accounts,
        "PersistentVolumeClaim" => &references.claims,
        _ => return false,
    };
    named.contains(&follower.name)
}

/// By selector, by target, by service.
fn is_about(follower: &Subject, leader: &Subject) -> bool {
    let references = &follower.references;
    let has_pods = leader.replicas.is_some() || leader.every_node;
    let selects = || references.pods.as_ref().is_some_and(|it| it.matches(&labels(&leader.pod_labels)));
    let targets = || {
        references
            .targets
            .iter()
            .any(|it| it.group == leader.group && it.kind == leader.kind && it.name == leader.name)
    };
    let serves =
        || leader.group.is_empty() && leader.kind == "Service" && references.services.contains(&leader.name);
    (has_pods && selects()) || targets() || serves()
}

/// Where those are that the follower follows, with the replicas they have there.
pub fn referrers<'a>(
    follower: &Subject,
    placed: impl IntoIterator<Item = (&'a Subject, &'a BTreeMap<String, Share>)>,
) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (leader, shares) in placed {
        if leads(leader, follower) {
            for (cluster, share) in shares {
                let replicas = found.entry(cluster.clone()).or_default();
                *replicas = replicas.saturating_add(share.replicas);
            }
        }
    }
    found
}

/// Where the workloads of a namespace are: what nothing names goes there. What runs on every node takes only what it
/// names, or all would be everywhere.
pub fn neighbours<'a>(
    namespace: &str,
    placed: impl IntoIterator<Item = (&'a Subject, &'a BTreeMap<String, Share>)>,
) -> BTreeSet<String> {
    let workloads = placed
        .into_iter()
        .filter(|(it, _)| it.namespace == namespace && it.replicas.is_some() && !it.every_node);
    workloads.flat_map(|(_, shares)| shares.keys().cloned()).collect()
}
