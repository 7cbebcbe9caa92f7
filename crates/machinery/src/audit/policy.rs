//! Which requests are recorded, and how much of them: the first rule that matches decides.

use serde_json::Value;

use super::{Level, Stage, Stages, holds_credentials};
use crate::{field_error::Cause, names};

/// An audit policy. Rules are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    omit_stages: Stages,
    omit_managed_fields: bool,
    /// No file can say this: only requests that are refused are recorded.
    refusals_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What a policy looks at.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// `None` if nobody could be made out.
    pub user: Option<(&'a str, &'a [String])>,
    pub verb: &'a str,
    pub path: &'a str,
    /// `None`: not about objects.
    pub resource: Option<ResourceAttributes<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct ResourceAttributes<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// What a policy wants to know of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub level: Level,
    pub omit_stages: Stages,
    pub omit_managed_fields: bool,
    /// Record it only if it ends with a refusal.
    pub refusals_only: bool,
}

impl Policy {
    /// Holds when none is given: writes and refusals, without bodies. What clients renew and report all the time is
    /// left out.
    pub fn standard() -> Policy {
        let rule = |level| Rule {
            level,
            users: vec![],
            user_groups: vec![],
            verbs: vec![],
            resources: vec![],
            namespaces: vec![],
            non_resource_urls: vec![],
            omit_stages: Stages::default().with(Stage::RequestReceived),
            omit_managed_fields: false,
            refusals_only: false,
        };
        let chatter = [("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")];
        let chatter = chatter.map(|(group, resource)| GroupResources {
            group: group.into(),
            resources: vec![resource.into()],
            resource_names: vec![],
        });
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        Policy {
            rules: vec![
                Rule { resources: chatter.into(), refusals_only: true, ..rule(Level::Metadata) },
                Rule { verbs: writes.map(str::to_owned).into(), ..rule(Level::Metadata) },
                Rule { refusals_only: true, ..rule(Level::Metadata) },
            ],
            omit_stages: Stages::default(),
            omit_managed_fields: false,
        }
    }

    /// Reads a policy object. With it come remarks about fields that mean nothing.
    pub fn read(tree: &Value) -> Result<(Policy, Vec<String>), String> {
        let text = |key: &str| tree.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != "audit.k8s.io/v1" || kind != "Policy" {
            let wanted = "kind: Policy, apiVersion: audit.k8s.io/v1";
            return Err(format!("unknown kind {kind:?} of version {version:?} in policy, want {wanted}"));
        }
        let mut reader = Reader::default();
        let known = ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
        reader.check_names(tree, "", &known);
        let omit_stages = reader.stages(tree, "");
        let omit_managed_fields = reader.flag(tree, "", "omitManagedFields").unwrap_or(false);
        let rules: Vec<Rule> = reader
            .list(tree, "", "rules")
            .iter()
            .enumerate()
            .map(|(at, rule)| reader.rule(rule, &format!("rules[{at}]"), omit_stages, omit_managed_fields))
            .collect();
        match reader.causes.as_slice() {
            [] if rules.is_empty() => Err("loaded illegal policy with 0 rules".into()),
            [] => Ok((Policy { rules, omit_stages, omit_managed_fields }, reader.remarks)),
            [one] => Err(words(one)),
            many => Err(format!("[{}]", many.iter().map(words).collect::<Vec<_>>().join(", "))),
        }
    }

    pub fn demand(&self, attributes: &Attributes<'_>) -> Demand {
        let rule = self.rules.iter().find(|rule| rule.matches(attributes));
        let mut demand = match rule {
            Some(rule) => Demand {
                level: rule.level,
                omit_stages: rule.omit_stages,
                omit_managed_fields: rule.omit_managed_fields,
                refusals_only: rule.refusals_only,
            },
            None => Demand {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
                refusals_only: false,
            },
        };
        if let Some(it) = &attributes.resource
            && holds_credentials(it.group, it.resource, it.subresource)
        {
            demand.level = demand.level.min(Level::Metadata);
        }
        demand
    }
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let (user, groups) = attributes.user.unwrap_or_default();
        if !self.users.is_empty() && !holds(&self.users, user) {
            return false;
        }
        if !self.user_groups.is_empty() && !groups.iter().any(|group| holds(&self.user_groups, group)) {
            return false;
        }
        if !self.verbs.is_empty() && !holds(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.resource.is_some_and(|resource| self.matches_resource(&resource));
        }
        if !self.non_resource_urls.is_empty() {
            let any = self.non_resource_urls.iter().any(|pattern| path_matches(pattern, attributes.path));
            return attributes.resource.is_none() && any;
        }
        true
    }

    fn matches_resource(&self, wanted: &ResourceAttributes<'_>) -> bool {
        if !self.namespaces.is_empty() && !holds(&self.namespaces, wanted.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.match_one(wanted))
    }
}

impl GroupResources {
    fn match_one(&self, wanted: &ResourceAttributes<'_>) -> bool {
        if self.group != "*" && self.group != wanted.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !holds(&self.resource_names, wanted.name) {
            return false;
        }
        self.resources.iter().any(|pattern| resource_matches(pattern, wanted.resource, wanted.subresource))
    }
}

fn holds(list: &[String], value: &str) -> bool {
    list.iter().any(|item| item == value)
}

/// `*`, `pods`, `pods/log`, `pods/*` (the pods, too) or `*/scale`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((main, "*")) if main == resource => true,
        Some(("*", sub)) if !subresource.is_empty() && sub == subresource => true,
        Some((main, sub)) => !subresource.is_empty() && main == resource && sub == subresource,
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix.trim_end_matches('*')),
        None => pattern == path,
    }
}

/// Collects what is wrong with a policy while it is read.
#[derive(Default)]
struct Reader {
    causes: Vec<Cause>,
    remarks: Vec<String>,
}

fn words(cause: &Cause) -> String {
    format!("{}: {}", cause.field, cause.message)
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl Reader {
    fn rule(&mut self, rule: &Value, path: &str, omit_stages: Stages, omit_managed_fields: bool) -> Rule {
        let known = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        self.check_names(rule, path, &known);
        let level = self.level(rule, path);
        let non_resource_urls = self.texts(rule, path, "nonResourceURLs");
        self.check_urls(&non_resource_urls, &below(path, "nonResourceURLs"));
        let resources: Vec<GroupResources> = self
            .list(rule, path, "resources")
            .iter()
            .map(|resources| self.group_resources(resources, &below(path, "resources")))
            .collect();
        let namespaces = self.texts(rule, path, "namespaces");
        let own_stages = self.stages(rule, path);
        let about_objects = !resources.is_empty() || !namespaces.is_empty();
        if about_objects && !non_resource_urls.is_empty() {
            self.causes.push(Cause::invalid(
                below(path, "nonResourceURLs"),
                &Value::from(non_resource_urls.clone()),
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        Rule {
            level,
            users: self.texts(rule, path, "users"),
            user_groups: self.texts(rule, path, "userGroups"),
            verbs: self.texts(rule, path, "verbs"),
            resources,
            namespaces,
            non_resource_urls,
            omit_stages: own_stages.union(omit_stages),
            omit_managed_fields: self.flag(rule, path, "omitManagedFields").unwrap_or(omit_managed_fields),
            refusals_only: false,
        }
    }

    fn level(&mut self, rule: &Value, path: &str) -> Level {
        let field = below(path, "level");
        let text = rule.get("level").and_then(Value::as_str).unwrap_or_default();
        if let Some(level) = Level::read(text) {
            return level;
        }
        self.causes.push(match text {
            "" => Cause::required(field, ""),
            text => Cause::not_supported(field, &text.into(), &Level::ALL.map(Level::as_str)),
        });
        Level::None
    }

    fn group_resources(&mut self, tree: &Value, path: &str) -> GroupResources {
        self.check_names(tree, path, &["group", "resources", "resourceNames"]);
        let group = tree.get("group").and_then(Value::as_str).unwrap_or_default().to_owned();
        let resources = self.texts(tree, path, "resources");
        let resource_names = self.texts(tree, path, "resourceNames");
        if !matches!(group.as_str(), "" | "*") {
            let wrong = names::is_dns1123_subdomain(&group);
            if !wrong.is_empty() {
                let field = below(path, "group");
                self.causes.push(Cause::invalid(field, &group.as_str().into(), &wrong.join(",")));
            }
        }
        if !resource_names.is_empty() && resources.is_empty() {
            let field = below(path, "resourceNames");
            let detail = "using resourceNames requires at least one resource";
            self.causes.push(Cause::invalid(field, &Value::from(resource_names.clone()), detail));
        }
        GroupResources { group, resources, resource_names }
    }

    fn check_urls(&mut self, urls: &[String], path: &str) {
        for (at, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let mut wrong = |detail| {
                self.causes.push(Cause::invalid(format!("{path}[{at}]"), &url.as_str().into(), detail));
            };
            if !url.starts_with('/') {
                wrong("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                wrong("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
    }

    fn stages(&mut self, tree: &Value, path: &str) -> Stages {
        let mut stages = Stages::default();
        for (at, text) in self.texts(tree, path, "omitStages").iter().enumerate() {
            match Stage::read(text) {
                Some(stage) => stages = stages.with(stage),
                None => {
                    let field = format!("{}[{at}]", below(path, "omitStages"));
                    let all = Stage::ALL.map(Stage::as_str).join(",");
                    let detail = format!("allowed stages are {all}");
                    self.causes.push(Cause::invalid(field, &text.as_str().into(), &detail));
                }
            }
        }
        stages
    }

    fn list<'a>(&mut self, tree: &'a Value, path: &str, key: &str) -> &'a [Value] {
        match tree.get(key) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.causes.push(Cause::invalid(below(path, key), other, "must be a list"));
                &[]
            }
        }
    }

    fn texts(&mut self, tree: &Value, path: &str, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (at, item) in self.list(tree, path, key).iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => {
                    let field = format!("{}[{at}]", below(path, key));
                    self.causes.push(Cause::invalid(field, item, "must be a string"));
                }
            }
        }
        texts
    }

    fn flag(&mut self, tree: &Value, path: &str, key: &str) -> Option<bool> {
        match tree.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => {
                self.causes.push(Cause::invalid(below(path, key), other, "must be true or false"));
                None
            }
        }
    }

    /// A field nobody knows is a slip of the pen: told, and otherwise without meaning, as upstream has it.
    fn check_names(&mut self, tree: &Value, path: &str, known: &[&str]) {
        match tree {
            Value::Object(members) => {
                let unknown = members.keys().filter(|key| !known.contains(&key.as_str()));
                self.remarks.extend(unknown.map(|key| format!("unknown field {:?}", below(path, key))));
            }
            other => self.causes.push(Cause::invalid(path, other, "must be an object")),
        }
    }
}

#[cfg(test)]
mod tests;
