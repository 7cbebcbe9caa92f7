//! Scopes: which objects a quota is about.

use crate::{
    admission::classes::attribute_classes,
    resource::Tree,
    validation::{
        parts::{items, number, object, text, texts},
        pod::quality_of_service,
    },
};

/// One requirement of a quota; an object must meet them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub name: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl Scope {
    /// Those of `spec.scopes` and of `spec.scopeSelector`.
    pub fn all(spec: &Tree) -> Vec<Scope> {
        let named = texts(spec, "scopes").map(|name| Scope {
            name: name.into(),
            operator: "Exists".into(),
            values: vec![],
        });
        let selected = object(spec, "scopeSelector").into_iter().flat_map(|it| items(it, "matchExpressions"));
        let selected = selected.map(|(_, it)| Scope {
            name: text(it, "scopeName").into(),
            operator: text(it, "operator").into(),
            values: texts(it, "values").map(str::to_owned).collect(),
        });
        named.chain(selected).collect()
    }

    pub fn has_pod(&self, pod: &Tree) -> bool {
        let empty = Tree::new();
        let spec = object(pod, "spec").unwrap_or(&empty);
        match self.name.as_str() {
            "Terminating" => is_terminating(spec),
            "NotTerminating" => !is_terminating(spec),
            "BestEffort" => is_best_effort(pod, spec),
            "NotBestEffort" => !is_best_effort(pod, spec),
            "PriorityClass" => {
                self.has_class(Some(text(spec, "priorityClassName")).filter(|it| !it.is_empty()))
            }
            "CrossNamespacePodAffinity" => looks_across_namespaces(spec),
            _ => false,
        }
    }

    pub fn has_claim(&self, claim: &Tree) -> bool {
        if self.name != "VolumeAttributesClass" {
            return false;
        }
        let classes = attribute_classes(claim);
        match self.operator.as_str() {
            "Exists" => !classes.is_empty(),
            _ if classes.is_empty() => self.has_class(None),
            _ => classes.iter().any(|class| self.has_class(Some(class))),
        }
    }

    fn has_class(&self, class: Option<&str>) -> bool {
        let listed = || class.is_some_and(|class| self.values.iter().any(|value| value == class));
        match self.operator.as_str() {
            "Exists" => class.is_some(),
            "DoesNotExist" => class.is_none(),
            "In" => listed(),
            "NotIn" => !listed(),
            _ => false,
        }
    }
}

/// A pod that is to end by itself.
pub fn is_terminating(spec: &Tree) -> bool {
    number(spec, "activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Tree, spec: &Tree) -> bool {
    let class = object(pod, "status").map(|status| text(status, "qosClass")).unwrap_or_default();
    match class {
        "" => quality_of_service(spec) == "BestEffort",
        class => class == "BestEffort",
    }
}

fn looks_across_namespaces(spec: &Tree) -> bool {
    let Some(affinity) = object(spec, "affinity") else { return false };
    let across = |term: &Tree| {
        texts(term, "namespaces").next().is_some()
            || term.get("namespaceSelector").is_some_and(|it| !it.is_null())
    };
    ["podAffinity", "podAntiAffinity"].into_iter().filter_map(|key| object(affinity, key)).any(|affinity| {
        let required = items(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = items(affinity, "preferredDuringSchedulingIgnoredDuringExecution");
        required.into_iter().any(|(_, term)| across(term))
            || preferred.into_iter().any(|(_, it)| object(it, "podAffinityTerm").is_some_and(across))
    })
}
