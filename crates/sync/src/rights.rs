//! What a session may do with kinds that others defined in a member: as much as is assigned to it, and no more.
//!
//! ```text
//!   join, as an admin:  ClusterRole hanse:session:placed, empty, and bound to the session's account
//!                       policy hanse-rights: that role is never about anything but kinds that others defined
//!   session:            an object of such a kind is assigned ──> the kind is in the role ──> the copy is made
//! ```
//!
//! The session may change the rules of that one role; what they can be is for the policy to say, which the session cannot
//! change.

use std::{
    collections::{BTreeSet, HashSet},
    convert::Infallible,
    sync::LazyLock,
    time::Duration,
};

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    MANAGER,
    client::{Client, Error, JSON, MERGE},
    copies::{Errand, Type},
    join,
    session::Session,
    tokens::policy,
};

/// The role that follows what is assigned, and its binding.
pub const ROLE: &str = "hanse:session:placed";
/// The policy, and its binding.
pub const POLICY: &str = "hanse-rights";
pub const RBAC: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// API servers have read a role after a moment; who still has not is asked all the same.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Groups of Kubernetes itself. Those without a dot are, too, and any that is to come will be about the cluster rather than about
/// what is placed.
const BUILT_IN: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// A kind by group and plural.
type Kind = (String, String);

/// What every session may write.
static COVERED: LazyLock<HashSet<Kind>> = LazyLock::new(|| {
    let rules = join::rules(false);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |rule: &Value, key: &str| rule[key].as_array().cloned().unwrap_or_default();
    let writes = |rule: &&Value| list(rule, "verbs").contains(&json!("create"));
    let rules = rules.as_array().cloned().unwrap_or_default();
    let of = |rule: &Value| -> Vec<Kind> {
        let resources = list(rule, "resources");
        let groups = list(rule, "apiGroups");
        groups.iter().flat_map(|group| resources.iter().map(|it| (text(group), text(it)))).collect()
    };
    rules.iter().filter(writes).flat_map(of).collect()
});

/// Whether others defined the kinds of a group.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !BUILT_IN.contains(&group)
}

/// What may be written in the member without asking for more.
fn kind_to_ask_for(ty: &Type) -> Option<Kind> {
    let kind = (ty.group().to_owned(), ty.plural.to_string());
    (is_custom(&kind.0) && !COVERED.contains(&kind)).then_some(kind)
}

/// The rules of the role.
fn rules(kinds: &BTreeSet<Kind>) -> Value {
    let rule = |(group, plural): &Kind| json!({"apiGroups": [group], "resources": [plural], "verbs": VERBS});
    kinds.iter().map(rule).collect()
}

/// A session's rights beyond what every session has.
#[derive(Default)]
pub struct Rights {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    wanted: BTreeSet<Kind>,
    /// `None`: not asked yet, or in vain.
    granted: Option<BTreeSet<Kind>>,
    /// Why the role cannot be changed.
    unable: Option<String>,
    /// What is to be done once it is known.
    waiting: BTreeSet<Errand>,
}

impl Rights {
    /// Whether it is known what may be done with objects of that kind. If not, it is asked for, and the errand is renewed then.
    pub fn are_known(&self, ty: &Type, errand: &Errand) -> bool {
        let Some(kind) = kind_to_ask_for(ty) else { return true };
        let mut state = self.state.lock();
        let is_granted = state.granted.as_ref().is_some_and(|granted| granted.contains(&kind));
        if is_granted || state.unable.is_some() {
            return true;
        }
        state.wanted.insert(kind);
        state.waiting.insert(errand.clone());
        drop(state);
        self.wake.notify_one();
        false
    }

    /// Why there are no rights to that kind, and what to do; `None`: there are, or nobody knows of it.
    pub fn advice(&self, ty: &Type) -> Option<String> {
        kind_to_ask_for(ty)?;
        let unable = self.state.lock().unable.clone()?;
        Some(format!(
            "rights to kinds that others defined cannot be had in the cluster ({unable}): join it again, or bind a role for \
             it to the service account {}/{} there",
            crate::NAMESPACE,
            join::ACCOUNT,
        ))
    }

    fn begin(&self, assigned: BTreeSet<Kind>) {
        let mut state = self.state.lock();
        let waiting = std::mem::take(&mut state.waiting);
        *state = State { wanted: assigned, waiting, ..State::default() };
    }

    /// What is to be in the role, unless it is.
    fn due(&self) -> Option<BTreeSet<Kind>> {
        let state = self.state.lock();
        (state.granted.as_ref() != Some(&state.wanted)).then(|| state.wanted.clone())
    }

    /// Answers what waited for it.
    fn settle(&self, outcome: Result<BTreeSet<Kind>, String>) -> Vec<Errand> {
        let mut state = self.state.lock();
        match outcome {
            Ok(granted) => (state.granted, state.unable) = (Some(granted), None),
            Err(why) => state.unable = Some(why),
        }
        std::mem::take(&mut state.waiting).into_iter().collect()
    }
}

impl Session {
    /// Has the role follow what is assigned.
    pub async fn keep_rights(&self, client: &Client) -> Infallible {
        let mut begun = self.shared.begun.subscribe();
        // What is not known to be assigned would be taken out.
        if begun.wait_for(|begun| *begun).await.is_err() {
            return std::future::pending().await;
        }
        let assigned = self.copies.types_assigned(&self.shared.hub);
        self.rights.begin(assigned.iter().filter_map(kind_to_ask_for).collect());
        loop {
            let Some(wanted) = self.rights.due() else {
                self.rights.wake.notified().await;
                continue;
            };
            let outcome = match grant(client, &wanted).await {
                Ok(()) => Ok(wanted),
                Err(error) if matches!(error.code(), Some(403 | 404 | 422)) => Err(error.to_string()),
                Err(error) => {
                    self.recover(client, &error).await;
                    continue;
                }
            };
            let is_unable = outcome.is_err();
            self.copies.renew_all(&self.rights.settle(outcome));
            if is_unable {
                client.env().clock.sleep(self.shared.options.learn_every).await;
            }
        }
    }
}

async fn grant(client: &Client, kinds: &BTreeSet<Kind>) -> Result<(), Error> {
    let path = format!("/apis/{RBAC}/v1/clusterroles/{ROLE}");
    let rules = rules(kinds);
    let role = match client.get(&path).await {
        Ok(role) => role,
        // Joined before there was any, and nothing is wanted of it.
        Err(error) if kinds.is_empty() && matches!(error.code(), Some(403 | 404)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_so = role["rules"] == rules || (kinds.is_empty() && role["rules"].is_null());
    if !is_so {
        client.call(Method::PATCH, &path, MERGE, Some(&json!({"rules": rules}))).await?;
    }
    for kind in kinds {
        in_force(client, kind).await?;
    }
    Ok(())
}

/// Waits until the member acts by it, though not for ever.
async fn in_force(client: &Client, (group, plural): &Kind) -> Result<(), Error> {
    let attributes = json!({"group": group, "resource": plural, "verb": "patch"});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let clock = client.env().clock.clone();
    let began = clock.elapsed();
    while clock.elapsed().saturating_sub(began) < PATIENCE {
        let answer = client.call(Method::POST, REVIEWS, JSON, Some(&review)).await?;
        if answer["status"]["allowed"] == true {
            return Ok(());
        }
        clock.sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// The policy that says what the role may be about, and its binding, as an admin makes them.
pub fn guard(owner: &Value) -> [(String, Value); 2] {
    let root = format!("/apis/{}/v1", policy::GROUP);
    let groups = serde_json::to_string(&BUILT_IN).unwrap_or_default();
    let verbs = serde_json::to_string(&VERBS).unwrap_or_default();
    // A role without rules has null for them.
    let each =
        |what: &str| format!("!has(object.rules) || object.rules == null || object.rules.all(rule, {what})");
    let validation =
        |expression: String, message: &str| json!({"expression": expression, "message": message});
    let metadata = json!({
        "name": POLICY, "labels": {"app.kubernetes.io/managed-by": MANAGER}, "ownerReferences": owner,
    });
    let api_version = format!("{}/v1", policy::GROUP);
    let policy = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [RBAC], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["clusterroles"],
                "resourceNames": [ROLE],
            }]},
            "validations": [
                validation("!has(object.aggregationRule)".to_owned(), "it gathers no rules of others"),
                validation(
                    each(&format!(
                        "has(rule.apiGroups) && rule.apiGroups.all(group, group.contains('.') && !(group in {groups}))"
                    )),
                    "it is only about kinds that others defined",
                ),
                validation(
                    each("!has(rule.nonResourceURLs) && has(rule.resources) && rule.resources.all(it, !it.contains('*'))"),
                    "it names the kinds that it is about",
                ),
                validation(
                    each(&format!("rule.verbs.all(verb, verb in {verbs})")),
                    "it is about reading and writing objects",
                ),
            ],
        },
    });
    let binding = json!({
        "apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    });
    [
        (format!("{root}/validatingadmissionpolicies/{POLICY}"), policy),
        (format!("{root}/validatingadmissionpolicybindings/{POLICY}"), binding),
    ]
}

#[cfg(test)]
mod tests {
    use store::WorkspaceId;

    use super::*;

    fn ty(api_version: &str, plural: &str) -> Type {
        Type { api_version: api_version.into(), plural: plural.into() }
    }

    #[test]
    fn only_kinds_that_others_defined_are_asked_for() {
        for (api_version, plural) in [
            ("v1", "configmaps"),
            ("apps/v1", "deployments"),
            ("rbac.authorization.k8s.io/v1", "clusterroles"),
            ("networking.k8s.io/v1", "ingresses"),
        ] {
            assert_eq!(kind_to_ask_for(&ty(api_version, plural)), None, "{api_version} {plural}");
        }
        let crews = kind_to_ask_for(&ty("example.com/v1", "crews"));
        assert_eq!(crews, Some(("example.com".into(), "crews".into())));
        assert!(kind_to_ask_for(&ty("gateway.networking.k8s.io/v1", "httproutes")).is_some());
    }

    #[test]
    fn an_errand_waits_until_it_is_known_whether_there_are_rights() {
        let (rights, crews) = (Rights::default(), ty("example.com/v1", "crews"));
        let errand = Errand::new(&WorkspaceId("w".into()), "n", "crews.example.com.hulk");
        rights.begin(BTreeSet::new());
        assert!(rights.are_known(&ty("v1", "secrets"), &errand));
        assert!(!rights.are_known(&crews, &errand));
        let due = rights.due().unwrap();
        assert_eq!(rules(&due)[0]["resources"], json!(["crews"]));
        assert_eq!(rights.settle(Ok(due)), std::slice::from_ref(&errand));
        assert!(rights.are_known(&crews, &errand) && rights.due().is_none());
        // Where it is not to be had, the member's own answer is told.
        rights.begin(BTreeSet::new());
        assert!(!rights.are_known(&crews, &errand));
        assert_eq!(rights.settle(Err("no such role".into())), std::slice::from_ref(&errand));
        assert!(rights.are_known(&crews, &errand));
        assert!(rights.advice(&crews).unwrap().contains("no such role"));
        assert_eq!(rights.advice(&ty("v1", "secrets")), None);
    }
}
