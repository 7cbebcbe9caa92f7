//! What a stored pod may keep though a new one could not have it.
//!
//! Rules that came after the objects they refuse hold only for specs that do not break them already.

use serde_json::Value;

use super::{
    super::parts::{divides_into_huge_pages, entries, flag, is_huge_pages, items, list, object, text, texts},
    affinity, amounts, annotations, each_container, security, volumes,
};
use crate::{names, quantity::Quantity, resource::Tree, selector};

/// The leniency that a spec gets from the one it replaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The spec is a pod's own, not a template's.
    pub is_pod: bool,
    pub any_deletion_cost: bool,
    pub indivisible_huge_pages: bool,
    pub any_affinity_value: bool,
    pub any_node_affinity_value: bool,
    pub any_spread_selector: bool,
    pub old_spread_keys: bool,
    pub any_token_path: bool,
    pub host_sysctls: bool,
    pub host_network_with_user_namespace: bool,
    pub devices_with_user_namespace: bool,
    pub restart_for_resize_of_init_containers: bool,
    pub any_se_linux_change_policy: bool,
}

impl Options {
    pub fn of_new(is_pod: bool) -> Self {
        Options { is_pod, ..Options::default() }
    }

    /// Given the old spec and the old annotations.
    pub fn of_update(is_pod: bool, old: &Tree, metadata: Option<&Tree>) -> Self {
        let user_namespace = old.get("hostUsers") == Some(&Value::Bool(false));
        Options {
            is_pod,
            any_deletion_cost: metadata.is_some_and(|it| !annotations::is_deletion_cost_valid(it)),
            indivisible_huge_pages: has_indivisible_huge_pages(old),
            any_affinity_value: affinity::has_invalid_selector(old),
            any_node_affinity_value: has_invalid_node_value(old),
            any_spread_selector: has_invalid_spread_selector(old),
            old_spread_keys: affinity::has_invalid_spread_keys(old),
            any_token_path: volumes::has_non_local_token_path(old),
            host_sysctls: security::has_host_sysctl(old),
            host_network_with_user_namespace: user_namespace && flag(old, "hostNetwork"),
            devices_with_user_namespace: user_namespace
                && each_container(old).any(|(container, ..)| !list(container, "volumeDevices").is_empty()),
            any_se_linux_change_policy: object(old, "securityContext")
                .is_some_and(|context| context.contains_key("seLinuxChangePolicy")),
            restart_for_resize_of_init_containers: restarts_init_container_for_resize(old),
        }
    }
}

fn has_indivisible_huge_pages(spec: &Tree) -> bool {
    let is_indivisible = |(name, value): (&str, &Value)| {
        let amount = value.as_str().and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO);
        is_huge_pages(name) && !divides_into_huge_pages(name, &amount)
    };
    let in_container = |container: &Tree| {
        let resources = object(container, "resources");
        ["limits", "requests"]
            .into_iter()
            .any(|list| resources.is_some_and(|it| entries(it, list).any(is_indivisible)))
    };
    each_container(spec).any(|(container, ..)| in_container(container))
        || entries(spec, "overhead").any(is_indivisible)
}

fn has_invalid_node_value(spec: &Tree) -> bool {
    let required = object(spec, "affinity")
        .and_then(|affinity| object(affinity, "nodeAffinity"))
        .and_then(|affinity| object(affinity, "requiredDuringSchedulingIgnoredDuringExecution"));
    let terms = required.into_iter().flat_map(|selector| items(selector, "nodeSelectorTerms"));
    let expressions = terms.flat_map(|(_, term)| items(term, "matchExpressions"));
    let mut values = expressions.flat_map(|(_, expression)| texts(expression, "values"));
    values.any(|value| !names::is_label_value(value).is_empty())
}

fn has_invalid_spread_selector(spec: &Tree) -> bool {
    let mut selectors =
        items(spec, "topologySpreadConstraints").filter_map(|(_, it)| it.get("labelSelector"));
    selectors.any(|selector| !selector::validate_object(selector, "").is_empty())
}

fn restarts_init_container_for_resize(spec: &Tree) -> bool {
    items(spec, "initContainers").filter(|(_, container)| !amounts::is_sidecar(container)).any(
        |(_, container)| {
            items(container, "resizePolicy")
                .any(|(_, policy)| text(policy, "restartPolicy") == "RestartContainer")
        },
    )
}
