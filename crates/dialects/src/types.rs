//! Which kinds can be federated, and by which kinds.

use serde_json::{Value, json};

use crate::{DOTTED_GROUP, SYSTEM_NAMESPACE, TYPED_GROUP, TYPES_GROUP};

/// On a `FederatedTypeConfig`: it is there for as long as anything is brought about by it.
pub const CONFIG_FINALIZER: &str = "core.kubefed.io/federated-type-config";

/// A kind that there is a federated one of without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    /// Where overrides of the first form put their value, in dots; `None`: there was no such form.
    pub typed: Option<&'static str>,
}

const fn target(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    typed: Option<&'static str>,
) -> Target {
    Target { group, version, kind, plural, typed }
}

/// Those that KubeFed had from the start, and what else can be placed.
pub const TARGETS: &[Target] = &[
    target("", "v1", "ConfigMap", "configmaps", Some("data")),
    target("", "v1", "Secret", "secrets", Some("data")),
    target("", "v1", "Service", "services", Some("")),
    target("", "v1", "ServiceAccount", "serviceaccounts", Some("")),
    target("apps", "v1", "Deployment", "deployments", Some("spec.replicas")),
    target("apps", "v1", "ReplicaSet", "replicasets", Some("spec.replicas")),
    target("batch", "v1", "Job", "jobs", Some("spec.parallelism")),
    target("networking.k8s.io", "v1", "Ingress", "ingresses", Some("")),
    target("apps", "v1", "DaemonSet", "daemonsets", None),
    target("apps", "v1", "StatefulSet", "statefulsets", None),
    target("batch", "v1", "CronJob", "cronjobs", None),
    target("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", None),
    target("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", None),
    NAMESPACE,
];

/// A namespace is federated by an object inside it, and is not made of its template.
pub const NAMESPACE: Target = target("", "v1", "Namespace", "namespaces", None);

/// How a federated object says what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One object says all.
    Unified,
    /// Three objects of one name; an override has one field, which belongs at this path.
    Typed(&'static str),
    /// Three objects of one name; an override has paths in dots.
    Dotted,
}

/// A federated kind: where its objects are, and what is made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederatedType {
    pub group: String,
    pub plural: String,
    pub form: Form,
    pub target_group: String,
    pub target_api_version: String,
    pub target_kind: String,
    pub target_plural: String,
    /// The status of each copy is shown.
    pub collects_status: bool,
    /// Nothing is brought about any more.
    pub disabled: bool,
}

impl FederatedType {
    fn of(target: &Target, group: &str, form: Form) -> FederatedType {
        FederatedType {
            group: group.to_owned(),
            plural: format!("federated{}", target.plural),
            form,
            target_group: target.group.to_owned(),
            target_api_version: machinery::resource::group_version(target.group, target.version),
            target_kind: target.kind.to_owned(),
            target_plural: target.plural.to_owned(),
            collects_status: false,
            disabled: false,
        }
    }

    pub fn is_namespace(&self) -> bool {
        self.target_group.is_empty() && self.target_plural == NAMESPACE.plural
    }

    /// Whether its objects are `FederatedX` with this kind and name of group.
    pub fn is_at(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.target_group == group && self.target_plural == plural
    }

    /// The plural of the objects beside it that say where, or what differs.
    pub fn beside(&self, what: &str) -> String {
        format!("{}{what}", self.plural.strip_suffix(plural_end(&self.plural)).unwrap_or(&self.plural))
    }
}

/// Of `federatedingresses` the placements are `federatedingressplacements`.
fn plural_end(plural: &str) -> &'static str {
    if plural.ends_with("sses") { "es" } else { "s" }
}

/// All that there are without being asked for.
pub fn builtin() -> Vec<FederatedType> {
    let mut all = Vec::new();
    for target in TARGETS {
        all.push(FederatedType::of(target, TYPES_GROUP, Form::Unified));
        if let Some(path) = target.typed {
            all.push(FederatedType::of(target, TYPED_GROUP, Form::Typed(path)));
            all.push(FederatedType::of(target, DOTTED_GROUP, Form::Dotted));
        }
    }
    all
}

/// Those, as the `FederatedTypeConfig`s of a workspace change them and add to them, with what is left of others.
pub fn configured<'a>(configs: impl Iterator<Item = &'a Value>) -> Vec<FederatedType> {
    let mut all = builtin();
    let mut not_counted = Vec::new();
    for config in configs {
        let Ok(read) = read(config) else {
            not_counted.push(config);
            continue;
        };
        match all.iter_mut().find(|it| it.is_at(&read.group, &read.plural)) {
            Some(known) if known.target_kind != read.target_kind => {}
            Some(known) => {
                (known.collects_status, known.disabled) = (read.collects_status, read.disabled);
            }
            None if stays_in_hub(&read) => {}
            None => all.push(read),
        }
    }
    // Of two that are about one kind that in KubeFed's own namespace is likelier to have been followed.
    not_counted.sort_by_key(|it| it["metadata"]["namespace"] != SYSTEM_NAMESPACE);
    for left in not_counted.into_iter().filter_map(left_over) {
        if !all.iter().any(|it| it.is_at(&left.group, &left.plural)) {
            all.push(left);
        }
    }
    all
}

/// The type of a config that is stored and does not count, as it did in earlier versions: objects of it may have a finalizer
/// from then, and are deleted with their copies all the same. Nothing else is done with any of them.
fn left_over(config: &Value) -> Option<FederatedType> {
    let ty = in_namespaces(config)?;
    let is_possible = can_be_defined(&ty.group, &ty.plural) && !stays_in_hub(&ty);
    is_possible.then_some(FederatedType { collects_status: false, disabled: true, ..ty })
}

/// Whether a kind can be one that somebody has defined: what is served here without that has another meaning.
fn can_be_defined(group: &str, plural: &str) -> bool {
    let is_served = crate::rows().iter().any(|row| (row.group, row.plural) == (group, plural));
    group.contains('.') && group != api::GROUP && !is_kubernetes(group) && !is_served
}

fn is_kubernetes(group: &str) -> bool {
    machinery::builtin::rows().any(|row| row.group == group)
}

/// What a `FederatedTypeConfig` says of itself: `kubefedctl` waits for it.
pub fn config_status(config: &Value) -> Value {
    let read = read(config).and_then(not_of_others);
    let runs = read.as_ref().is_ok_and(|it| !it.disabled);
    let collects = runs && read.as_ref().is_ok_and(|it| it.collects_status);
    let word = |runs: bool| if runs { "Running" } else { "NotRunning" };
    let mut status = json!({
        "observedGeneration": config["metadata"]["generation"].as_i64().unwrap_or(0),
        "propagationController": word(runs), "statusController": word(collects),
    });
    if let Err(why) = read {
        status["message"] = json!(why);
    }
    status
}

fn not_of_others(read: FederatedType) -> Result<FederatedType, String> {
    match builtin().into_iter().find(|it| it.is_at(&read.group, &read.plural)) {
        Some(known) if known.target_kind != read.target_kind => {
            Err("its federated kind is that of another".to_owned())
        }
        None if stays_in_hub(&read) => Err("its objects stay in the hub".to_owned()),
        _ => Ok(read),
    }
}

/// What stays in the hub whatever is said must not be made by somebody who may write only its federated kind.
fn stays_in_hub(read: &FederatedType) -> bool {
    let travel = kinds::of(&read.target_group, &read.target_kind).travel;
    let is_special = read.target_group == api::GROUP || crate::is_dialect(&read.target_group);
    matches!(travel, kinds::Travel::Stays | kinds::Travel::Named) || is_special || read.is_namespace()
}

/// Why something cannot be a federated kind; those that there are without being asked for can, whichever form they have.
pub fn refusal(group: &str, plural: &str) -> Option<String> {
    let is_builtin = builtin().iter().any(|it| it.is_at(group, plural));
    if is_builtin { None } else { refusal_of_group(group) }
}

/// Why nothing else of a group can be a federated kind. Whatever is in it would be read as federated objects, held by a finalizer and
/// given another status: that is only for kinds which somebody defines for it.
fn refusal_of_group(group: &str) -> Option<String> {
    let is_taken =
        group == api::GROUP || (crate::is_dialect(group) && group != TYPES_GROUP) || is_kubernetes(group);
    if !group.contains('.') {
        return Some(format!(
            "must be a group with a dot, such as {TYPES_GROUP}: those without one are Kubernetes' own"
        ));
    }
    is_taken
        .then(|| format!("{group} has kinds of another meaning; use {TYPES_GROUP}, or a group of your own"))
}

/// The type that a config is about, or why it says nothing that could be brought about.
fn read(config: &Value) -> Result<FederatedType, String> {
    // What is federated is so for the whole workspace: whoever may write in a namespace of their own has no say in that.
    if config["metadata"]["namespace"] != SYSTEM_NAMESPACE {
        return Err(format!("it does not count here: write it down in the namespace {SYSTEM_NAMESPACE}"));
    }
    let read = in_namespaces(config).ok_or("only kinds with objects in namespaces can be federated")?;
    if let Some(why) = refusal(&read.group, &read.plural) {
        return Err(format!("the group of its federatedType: {why}"));
    }
    if read.is_for(&read.group, &read.plural) {
        return Err("its federatedType is its targetType: nothing can be made of itself".to_owned());
    }
    Ok(read)
}

/// The group and the plural of the federated kind that a config is about.
pub fn federated_kind(config: &Value) -> (String, String) {
    let name = config["metadata"]["name"].as_str().unwrap_or_default();
    let plural_of_name = name.split_once('.').map_or(name, |(plural, _)| plural);
    let federated = &config["spec"]["federatedType"];
    let plural = text_or(&federated["pluralName"], &format!("federated{plural_of_name}"));
    (text_or(&federated["group"], TYPES_GROUP), plural)
}

fn text_or(at: &Value, other: &str) -> String {
    at.as_str().filter(|it| !it.is_empty()).unwrap_or(other).to_owned()
}

/// `None`: it is not a type of objects in namespaces.
fn in_namespaces(config: &Value) -> Option<FederatedType> {
    let spec = &config["spec"];
    let name = config["metadata"]["name"].as_str()?;
    let (plural_of_name, group_of_name) = name.split_once('.').unwrap_or((name, ""));
    let target = &spec["targetType"];
    if target["scope"] == "Cluster" && target["kind"] != NAMESPACE.kind {
        return None;
    }
    let (group, plural) = federated_kind(config);
    let target_group = text_or(&target["group"], group_of_name);
    let target_kind = text_or(&target["kind"], "");
    Some(FederatedType {
        group,
        plural,
        form: Form::Unified,
        target_api_version: machinery::resource::group_version(
            &target_group,
            &text_or(&target["version"], "v1"),
        ),
        target_plural: text_or(&target["pluralName"], plural_of_name),
        target_group,
        target_kind,
        collects_status: spec["statusCollection"] == "Enabled",
        disabled: spec["propagation"] == "Disabled" || config["metadata"]["deletionTimestamp"].is_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, target: Value, propagation: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
            "spec": {"targetType": target, "federatedType": {"group": TYPES_GROUP}, "propagation": propagation},
        })
    }

    /// Of widgets, made of a kind of this group.
    fn made_of(group: &str, plural: &str) -> Value {
        let mut config = config("widgets.example.com", json!({"kind": "Widget"}), "Enabled");
        config["spec"]["federatedType"] = json!({"group": group, "pluralName": plural});
        config
    }

    /// Names the federated kind of another.
    fn taken() -> Value {
        let mut taken = config("widgets.example.com", json!({"kind": "Widget"}), "Disabled");
        taken["spec"]["federatedType"]["pluralName"] = json!("federatedconfigmaps");
        taken
    }

    #[test]
    fn a_config_changes_what_is_there_and_adds_what_is_not() {
        let configs = [
            config("deployments.apps", json!({"kind": "Deployment", "version": "v1"}), "Disabled"),
            config("widgets.example.com", json!({"kind": "Widget", "version": "v1alpha1"}), "Enabled"),
            config(
                "clusterrolebindings.rbac.authorization.k8s.io",
                json!({"kind": "ClusterRoleBinding", "scope": "Cluster"}),
                "Enabled",
            ),
            config("rolebindings.rbac.authorization.k8s.io", json!({"kind": "RoleBinding"}), "Enabled"),
            config("assignments.hanse.io", json!({"kind": "Assignment"}), "Enabled"),
            taken(),
        ];
        let all = configured(configs.iter());
        assert_eq!(all.len(), builtin().len() + 1, "what the hub keeps to itself cannot be made so");
        let find = |plural: &str| all.iter().find(|it| it.is_at(TYPES_GROUP, plural)).unwrap();
        assert!(find("federateddeployments").disabled);
        assert!(!find("federatedconfigmaps").disabled, "it is no Widget's");
        let widget = find("federatedwidgets");
        assert_eq!(
            (widget.target_api_version.as_str(), widget.target_plural.as_str()),
            ("example.com/v1alpha1", "widgets")
        );
    }

    /// A namespace of one's own gives no say in what is federated in all the others.
    #[test]
    fn a_config_counts_in_the_namespace_of_kubefed_alone() {
        let mut off = config("deployments.apps", json!({"kind": "Deployment", "version": "v1"}), "Disabled");
        assert_ne!(configured([&off].into_iter()), builtin());
        for namespace in [json!("shop"), json!("kube-multicluster-public"), Value::Null] {
            off["metadata"]["namespace"] = namespace;
            assert_eq!(configured([&off].into_iter()), builtin());
            let status = config_status(&off);
            assert_eq!(status["propagationController"], "NotRunning");
            assert!(status["message"].to_string().contains(SYSTEM_NAMESPACE), "{status}");
        }
    }

    #[test]
    fn nothing_that_has_another_meaning_is_a_federated_kind() {
        let rows = [
            ("apps", "deployments", false),
            ("policy", "poddisruptionbudgets", false),
            ("nodots", "widgets", false),
            ("networking.k8s.io", "ingresses", false),
            ("discovery.k8s.io", "endpointslices", false),
            (api::GROUP, "assignments", false),
            (crate::CORE_GROUP, "kubefedclusters", false),
            (crate::REGISTRY_GROUP, "clusters", false),
            (TYPED_GROUP, "federatedwidgets", false),
            ("example.com", "widgets", false),
            ("example.com", "federatedwidgets", true),
            ("federation.example.com", "widgets", true),
            (TYPES_GROUP, "federatedwidgets", true),
            ("", "federatedwidgets", true),
        ];
        for (group, plural, counts) in rows {
            let config = made_of(group, plural);
            let all = configured([&config].into_iter());
            let added = all.iter().filter(|it| it.target_kind == "Widget" && !it.disabled).count();
            assert_eq!(added == 1, counts, "{group} {plural}");
            let status = config_status(&config);
            assert_eq!(status["propagationController"] == "Running", counts, "{status}");
            assert_eq!(status["message"].is_string(), !counts, "{status}");
        }
    }

    /// Those of the first forms are federated kinds like others.
    #[test]
    fn a_kind_of_the_first_forms_can_be_switched_off() {
        for group in [TYPED_GROUP, DOTTED_GROUP] {
            let mut off = config("configmaps", json!({"kind": "ConfigMap", "version": "v1"}), "Disabled");
            off["spec"]["federatedType"] = json!({"group": group, "pluralName": "federatedconfigmaps"});
            let all = configured([&off].into_iter());
            let switched_off: Vec<_> = all.iter().filter(|it| it.disabled).collect();
            assert_eq!(switched_off.len(), 1);
            assert!(switched_off[0].is_at(group, "federatedconfigmaps"));
            assert_eq!(config_status(&off)["message"], Value::Null);
            off["spec"]["propagation"] = json!("Enabled");
            assert_eq!(config_status(&off)["propagationController"], "Running");
        }
    }

    /// An earlier version may have put a finalizer on objects of them.
    #[test]
    fn a_kind_whose_config_does_not_count_any_more_is_switched_off_and_nothing_else_is_touched() {
        let left = |config: &Value| {
            let all = configured([config].into_iter());
            assert!(all[..builtin().len()] == builtin(), "those that are there anyway are as they are");
            all[builtin().len()..].to_vec()
        };
        let rows = [
            ("example.com", "widgets", true),
            (TYPED_GROUP, "federatedwidgets", true),
            ("apps", "deployments", false),
            ("apps", "federatedwidgets", false),
            ("networking.k8s.io", "ingresses", false),
            ("nodots", "widgets", false),
            (api::GROUP, "assignments", false),
            (crate::CORE_GROUP, "kubefedclusters", false),
            (crate::REGISTRY_GROUP, "clusters", false),
            (TYPED_GROUP, "federatedconfigmapplacements", false),
        ];
        for (group, plural, is_left) in rows {
            let mut refused = made_of(group, plural);
            for namespace in [SYSTEM_NAMESPACE, "shop"] {
                refused["metadata"]["namespace"] = json!(namespace);
                let left = left(&refused);
                assert_eq!(left.len() == 1, is_left, "{group} {plural}: {left:?}");
                assert!(left.iter().all(|it| it.disabled && !it.collects_status));
            }
        }

        let mut elsewhere = made_of(TYPES_GROUP, "federatedwidgets");
        elsewhere["spec"]["statusCollection"] = json!("Enabled");
        elsewhere["metadata"]["namespace"] = json!("a");
        assert!(left(&elsewhere)[0].disabled && !left(&elsewhere)[0].collects_status);
        let counting = made_of(TYPES_GROUP, "federatedwidgets");
        for configs in [[&elsewhere, &counting], [&counting, &elsewhere]] {
            assert_eq!(configured(configs.into_iter()), configured([&counting].into_iter()));
        }
        let mut role = config("roles.rbac.authorization.k8s.io", json!({"kind": "Role"}), "Enabled");
        role["metadata"]["namespace"] = json!("shop");
        assert_eq!(left(&role), [], "they were never federated");
    }

    #[test]
    fn a_config_says_whether_anything_is_brought_about_by_it() {
        let widget = || json!({"kind": "Widget", "version": "v1alpha1"});
        let mut collecting = config("widgets.example.com", widget(), "Enabled");
        collecting["spec"]["statusCollection"] = json!("Enabled");
        let mut disabled = collecting.clone();
        disabled["spec"]["propagation"] = json!("Disabled");
        let mut going = collecting.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let role = json!({"kind": "ClusterRole", "scope": "Cluster"});
        let rows = [
            (config("widgets.example.com", widget(), "Enabled"), ("Running", "NotRunning", false)),
            (collecting, ("Running", "Running", false)),
            (disabled, ("NotRunning", "NotRunning", false)),
            (going, ("NotRunning", "NotRunning", false)),
            (
                config("namespaces", json!({"kind": "Namespace", "scope": "Cluster"}), "Enabled"),
                ("Running", "NotRunning", false),
            ),
            (taken(), ("NotRunning", "NotRunning", true)),
            (
                config("clusterroles.rbac.authorization.k8s.io", role, "Enabled"),
                ("NotRunning", "NotRunning", true),
            ),
            (
                config("rolebindings.rbac.authorization.k8s.io", json!({"kind": "RoleBinding"}), "Enabled"),
                ("NotRunning", "NotRunning", true),
            ),
        ];
        for (config, (propagation, collection, says_why)) in rows {
            let status = config_status(&config);
            let words = (&status["propagationController"], &status["statusController"]);
            assert_eq!(words, (&json!(propagation), &json!(collection)), "{config}");
            assert_eq!(status["message"].is_string(), says_why, "{config}");
        }
    }

    #[test]
    fn the_objects_beside_it_are_found() {
        let all = builtin();
        let find = |plural: &str| all.iter().find(|it| it.is_at(TYPED_GROUP, plural)).unwrap();
        assert_eq!(find("federatedreplicasets").beside("placements"), "federatedreplicasetplacements");
        assert_eq!(find("federatedingresses").beside("overrides"), "federatedingressoverrides");
    }
}
