//! Which requests a webhook or a policy is about: rules, selectors and `matchPolicy`, the same for both.

use compact_str::CompactString;
use serde_json::Value;

use crate::{
    resource::Tree,
    selector::LabelSelector,
    status::{Reason, Status},
    validation::parts::{items, texts},
};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// A resource in one group and version, and the kind of the objects it takes there; a subresource's kind can be of
/// another group, as `Scale` is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub kind_group: String,
    pub kind_version: String,
    pub kind: String,
}

impl Target {
    fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.version == "v1" && self.resource == "namespaces"
    }
}

pub type Labels = Vec<(CompactString, CompactString)>;

/// A request as rules and selectors see it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub operation: Operation,
    pub target: &'a Target,
    /// The same objects in other versions or groups; may name `target` too.
    pub equivalents: &'a [Target],
    pub subresource: &'a str,
    /// Of a Namespace: its own name. Empty for what is in none.
    pub namespace: &'a str,
    pub name: &'a str,
    /// What is written; none where something is deleted.
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    /// The labels of the stored namespace; asked only where a selector needs them.
    pub namespace_labels: &'a dyn Fn() -> Result<Labels, Status>,
}

/// One of `rules`, `resourceRules` or `excludeResourceRules`.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Empty: all names.
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Namespaced,
    Cluster,
    Unknown,
}

impl Rule {
    pub fn read(rule: &Tree) -> Self {
        let all = |key: &str| texts(rule, key).map(str::to_owned).collect();
        let resource = |text: &str| match text.split_once('/') {
            Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
            None => (text.to_owned(), String::new()),
        };
        Rule {
            operations: all("operations"),
            groups: all("apiGroups"),
            versions: all("apiVersions"),
            resources: texts(rule, "resources").map(resource).collect(),
            scope: match rule.get("scope").and_then(Value::as_str) {
                None | Some("*") => Scope::All,
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                Some(_) => Scope::Unknown,
            },
            names: all("resourceNames"),
        }
    }

    /// Whether the request, taken as one for `target`, is among those the rule names.
    pub fn matches(&self, request: &Subject<'_>, target: &Target) -> bool {
        self.fits_scope(request, target)
            && any(&self.operations, request.operation.as_str())
            && any(&self.groups, &target.group)
            && any(&self.versions, &target.version)
            && self.resources.iter().any(|(resource, sub)| {
                (resource == "*" || *resource == target.resource)
                    && (sub == "*" || sub == request.subresource)
            })
    }

    fn fits_scope(&self, request: &Subject<'_>, target: &Target) -> bool {
        let outside = target.is_namespaces() || request.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => !outside,
            Scope::Cluster => outside,
            Scope::Unknown => false,
        }
    }

    fn names(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }
}

fn any(known: &[String], wanted: &str) -> bool {
    known.iter().any(|item| item == "*" || item == wanted)
}

/// All that decides whether a request concerns a webhook, a policy or a binding.
#[derive(Clone, Debug)]
pub struct Criteria {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// `matchPolicy: Equivalent`.
    equivalent: bool,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    /// Whether no rules mean all requests: in policies' bindings, not in webhooks.
    open: bool,
}

impl Criteria {
    /// Of a webhook: its `rules`, selectors and `matchPolicy`.
    pub fn of_webhook(webhook: &Tree) -> Self {
        Criteria::read(webhook, "rules", false)
    }

    /// Of `matchConstraints` or `matchResources`.
    pub fn of_policy(matching: &Tree) -> Self {
        Criteria::read(matching, "resourceRules", true)
    }

    fn read(holder: &Tree, rules: &str, open: bool) -> Self {
        let rules_of = |key: &str| items(holder, key).map(|(_, rule)| Rule::read(rule)).collect();
        let selector = |key: &str| match holder.get(key) {
            None | Some(Value::Null) => Ok(LabelSelector::everything()),
            Some(selector) => LabelSelector::from_object(selector),
        };
        Criteria {
            rules: rules_of(rules),
            excluded: rules_of("excludeResourceRules"),
            equivalent: holder.get("matchPolicy").and_then(Value::as_str) == Some("Equivalent"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            open,
        }
    }

    /// Whether the request is meant, and as a request for what: the object is to be converted to that version.
    /// An error of a selector counts only if the rules fit.
    pub fn matches<'a>(&self, request: &Subject<'a>) -> Result<Option<&'a Target>, Status> {
        let selected = [self.selects_namespace(request), self.selects_object(request)];
        if selected.iter().any(|selected| matches!(selected, Ok(false))) {
            return Ok(None);
        }
        if first(&self.excluded, self.equivalent, request)?.is_some() {
            return Ok(None);
        }
        let found = match self.rules.is_empty() && self.open {
            true => Some(request.target),
            false => first(&self.rules, self.equivalent, request)?,
        };
        if found.is_some() {
            for selected in selected {
                selected?;
            }
        }
        Ok(found)
    }

    fn selects_namespace(&self, request: &Subject<'_>) -> Result<bool, Status> {
        let is_namespace = request.target.resource == "namespaces";
        if request.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(unreadable)?;
        if selector.is_empty() {
            return Ok(true);
        }
        // The labels that a namespace is about to have count, not those it had.
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let labels = match request.object {
            Some(object) if is_namespace && request.subresource.is_empty() && writes => labels_of(object),
            _ => (request.namespace_labels)()?,
        };
        Ok(selector.matches(&labels))
    }

    fn selects_object(&self, request: &Subject<'_>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(unreadable)?;
        let fits = |object: Option<&Tree>| object.is_some_and(|object| selector.matches(&labels_of(object)));
        Ok(selector.is_empty() || fits(request.object) || fits(request.old))
    }
}

fn unreadable(reason: &String) -> Status {
    Status::internal(reason)
}

/// The first target that a rule fits: the one of the request, or, where that is asked for, another of the same objects.
fn first<'a>(rules: &[Rule], equivalent: bool, request: &Subject<'a>) -> Result<Option<&'a Target>, Status> {
    if rules.iter().any(|rule| rule.matches(request, request.target) && rule.names(request.name)) {
        return Ok(Some(request.target));
    }
    if !equivalent {
        return Ok(None);
    }
    let own = request.target;
    let same =
        |it: &Target| (&it.group, &it.version, &it.resource) == (&own.group, &own.version, &own.resource);
    for rule in rules {
        for target in request.equivalents.iter().filter(|target| !same(target)) {
            if !rule.matches(request, target) {
                continue;
            }
            if target.kind.is_empty() {
                let Target { group, version, resource, .. } = target;
                let name = format!("{group}/{version}, Resource={resource}");
                let message = format!("unable to convert to {name}: unknown kind");
                return Err(Status::new(Reason::Unknown, message));
            }
            if rule.names(request.name) {
                return Ok(Some(target));
            }
        }
    }
    Ok(None)
}

/// The labels an object has.
pub fn labels_of(object: &Tree) -> Labels {
    let labels =
        object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.into(), value.as_str()?.into()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(group: &str, version: &str, resource: &str) -> Target {
        let text = str::to_owned;
        Target {
            group: text(group),
            version: text(version),
            resource: text(resource),
            kind_group: text(group),
            kind_version: text(version),
            kind: text("Kind"),
        }
    }

    fn found(
        matching: Value,
        operation: Operation,
        at: &Target,
        sub: &str,
        namespace: &str,
    ) -> Option<String> {
        let object = json!({"metadata": {"labels": {"tier": "front"}}});
        let equivalents = [target("extensions", "v1beta1", "ingresses"), target("apps", "v1", "deployments")];
        let labels = || Ok(vec![("env".into(), "prod".into())]);
        let request = Subject {
            operation,
            target: at,
            equivalents: &equivalents,
            subresource: sub,
            namespace,
            name: "one",
            object: object.as_object(),
            old: None,
            namespace_labels: &labels,
        };
        let criteria = Criteria::of_policy(matching.as_object().expect("an object"));
        let found = criteria.matches(&request).expect("selectors that can be read");
        found.map(|target| format!("{}/{}/{}", target.group, target.version, target.resource))
    }

    fn rule(groups: &str, versions: &str, resources: &str) -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [groups], "apiVersions": [versions], "resources": [resources]})
    }

    #[test]
    fn rules_name_operations_groups_versions_resources_and_scopes() {
        let at = target("apps", "v1", "deployments");
        let scoped = |scope: &str| {
            let mut rule = rule("*", "*", "*");
            rule["scope"] = json!(scope);
            rule
        };
        for (rule, sub, namespace, fits) in [
            (rule("apps", "v1", "deployments"), "", "n", true),
            (rule("*", "*", "*"), "", "n", true),
            (rule("apps", "v1", "deployments"), "scale", "n", false),
            (rule("apps", "v1", "*/scale"), "scale", "n", true),
            (rule("apps", "v1", "deployments/*"), "", "n", true),
            (rule("apps", "v1", "deployments/*"), "scale", "n", true),
            (rule("apps", "v2", "deployments"), "", "n", false),
            (rule("", "v1", "deployments"), "", "n", false),
            (scoped("Namespaced"), "", "n", true),
            (scoped("Cluster"), "", "n", false),
            (scoped("Cluster"), "", "", true),
            (scoped("Namespaced"), "", "", false),
        ] {
            let matching = json!({"resourceRules": [rule]});
            let answer = found(matching.clone(), Operation::Create, &at, sub, namespace);
            assert_eq!(answer.is_some(), fits, "{matching} {sub:?} {namespace:?}");
            assert_eq!(found(matching, Operation::Delete, &at, sub, namespace), None);
        }
    }

    #[test]
    fn namespaces_are_outside_of_namespaces() {
        let at = target("", "v1", "namespaces");
        let rule = |scope: &str| {
            json!({"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["*"], "scope": scope}]})
        };
        assert!(found(rule("Cluster"), Operation::Create, &at, "", "itself").is_some());
        assert!(found(rule("Namespaced"), Operation::Create, &at, "", "itself").is_none());
    }

    #[test]
    fn equivalent_resources_are_found_where_they_may_be() {
        let at = target("networking.k8s.io", "v1", "ingresses");
        let matching =
            |policy: &str| json!({"matchPolicy": policy, "resourceRules": [rule("extensions", "*", "*")]});
        assert_eq!(found(matching("Exact"), Operation::Create, &at, "", "n"), None);
        let answer = found(matching("Equivalent"), Operation::Create, &at, "", "n");
        assert_eq!(answer.as_deref(), Some("extensions/v1beta1/ingresses"));
    }

    #[test]
    fn selectors_names_and_exclusions_narrow_what_rules_say() {
        let at = target("apps", "v1", "deployments");
        for (narrow, fits) in [
            (json!({}), true),
            (json!({"objectSelector": {"matchLabels": {"tier": "front"}}}), true),
            (json!({"objectSelector": {"matchLabels": {"tier": "back"}}}), false),
            (json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}), true),
            (json!({"namespaceSelector": {"matchLabels": {"env": "test"}}}), false),
            (json!({"excludeResourceRules": [rule("apps", "*", "*")]}), false),
            (json!({"excludeResourceRules": [rule("batch", "*", "*")]}), true),
        ] {
            assert_eq!(found(narrow.clone(), Operation::Create, &at, "", "n").is_some(), fits, "{narrow}");
        }
        for (name, fits) in [("one", true), ("two", false)] {
            let mut rule = rule("*", "*", "*");
            rule["resourceNames"] = json!([name]);
            let answer = found(json!({"resourceRules": [rule]}), Operation::Create, &at, "", "n");
            assert_eq!(answer.is_some(), fits);
        }
    }
}
