//! Role-based access: what a workspace's roles and bindings add up to, and whether they allow a request.

mod aggregation;
mod escalation;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use machinery::{Object, Revision};
use serde_json::{Map, Value, json};
use store::{Collection, Key, WorkspaceId};

use crate::{
    recent::Recent,
    request::{RequestInfo, Target},
    space::Space,
    user::{MASTERS, User},
};

pub use aggregation::ClusterRoles;
pub use escalation::missing;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub enum Attributes<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    NonResource {
        verb: &'a str,
        path: &'a str,
    },
}

impl<'a> Attributes<'a> {
    /// `name` is the path's, or the only one that a selector leaves.
    pub fn of(request: &'a RequestInfo, method: &'a str, name: &'a str) -> Attributes<'a> {
        match &request.target {
            Target::NonResource => Attributes::NonResource { verb: method, path: &request.path },
            Target::Resource(target) => Attributes::Resource {
                verb: target.verb.as_str(),
                group: &target.group,
                resource: &target.resource,
                subresource: &target.subresource,
                // A namespace lives in itself, so that its own role bindings count.
                namespace: match (target.group.as_str(), target.resource.as_str()) {
                    ("", "namespaces") => &target.name,
                    _ => &target.namespace,
                },
                name,
            },
        }
    }

    fn namespace(&self) -> &'a str {
        match self {
            Attributes::Resource { namespace, .. } => namespace,
            Attributes::NonResource { .. } => "",
        }
    }

    /// Why it is refused, as kubectl shows it.
    pub fn refusal(&self, user: &User) -> String {
        match self {
            Attributes::NonResource { verb, path } => {
                format!("User {:?} cannot {verb} path {path:?}", user.name)
            }
            Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
                let resource = match *subresource {
                    "" => (*resource).to_owned(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let place = match (*namespace, *resource == *"namespaces") {
                    ("", _) => "at the cluster scope".to_owned(),
                    (namespace, _) => format!("in the namespace {namespace:?}"),
                };
                format!(
                    "User {:?} cannot {verb} resource {resource:?} in API group {group:?} {place}",
                    user.name
                )
            }
        }
    }
}

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn holds(list: &[String], value: &str) -> bool {
    list.iter().any(|item| item == "*" || item == value)
}

impl Rule {
    pub fn read(rule: &Map<String, Value>) -> Rule {
        Rule {
            verbs: strings(rule.get("verbs")),
            api_groups: strings(rule.get("apiGroups")),
            resources: strings(rule.get("resources")),
            resource_names: strings(rule.get("resourceNames")),
            non_resource_urls: strings(rule.get("nonResourceURLs")),
        }
    }

    /// The two rules of an administrator.
    pub fn everything() -> [Rule; 2] {
        let all = || vec!["*".to_owned()];
        [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ]
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match *attributes {
            Attributes::NonResource { verb, path } => {
                holds(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|pattern| path_matches(pattern, path))
            }
            Attributes::Resource { verb, group, resource, subresource, name, .. } => {
                holds(&self.verbs, verb)
                    && holds(&self.api_groups, group)
                    && self.resources.iter().any(|pattern| resource_matches(pattern, resource, subresource))
                    && (self.resource_names.is_empty()
                        || self.resource_names.iter().any(|allowed| allowed == name))
            }
        }
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ]
    }

    /// What its texts take in an object, at least.
    pub fn text_bytes(&self) -> usize {
        self.lists().iter().flat_map(|(_, list)| list.iter()).map(|text| text.len() + "\"\",".len()).sum()
    }

    pub fn to_json(&self) -> Value {
        let mut rule = Map::new();
        for (key, list) in self.lists().into_iter().filter(|(_, list)| !list.is_empty()) {
            rule.insert(key.into(), json!(list));
        }
        Value::Object(rule)
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

/// `*`, `pods`, `pods/log` or `*/scale`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((main, sub)) => sub == subresource && (main == "*" || main == resource),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name.
    ServiceAccount(String, String),
}

impl Subject {
    fn read(subject: &Value, binding_namespace: &str) -> Option<Subject> {
        let name = subject.get("name")?.as_str()?.to_owned();
        match subject.get("kind")?.as_str()? {
            "User" => Some(Subject::User(name)),
            "Group" => Some(Subject::Group(name)),
            "ServiceAccount" => {
                let namespace =
                    subject.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
                Some(Subject::ServiceAccount(namespace.unwrap_or(binding_namespace).to_owned(), name))
            }
            _ => None,
        }
    }

    /// As a reason spells it.
    fn words(&self) -> String {
        match self {
            Subject::User(name) => format!("User {name:?}"),
            Subject::Group(name) => format!("Group {name:?}"),
            Subject::ServiceAccount(namespace, name) => {
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.in_group(name),
            Subject::ServiceAccount(namespace, name) => {
                User::service_account(&user.name) == Some((namespace.as_str(), name.as_str()))
            }
        }
    }
}

/// The rules of a role: of itself, or of each that it collects. Shared, because many may collect the same ones.
type Rules = Arc<[Arc<Vec<Rule>>]>;

/// A binding with the rules of its role.
#[derive(Debug)]
struct Grant {
    /// `RoleBinding "readers/ns" of Role "reader"`
    words: String,
    subjects: Vec<Subject>,
    rules: Rules,
}

impl Grant {
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().flat_map(|some| some.iter())
    }
}

/// What a workspace's RBAC objects add up to.
#[derive(Debug, Default)]
pub struct Policy {
    everywhere: Vec<Grant>,
    by_namespace: HashMap<String, Vec<Grant>>,
}

/// The four collections a policy is computed from.
fn collections() -> [Collection; 4] {
    ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(|name| Collection::new(GROUP, name))
}

impl Policy {
    fn compute(space: &Space) -> Policy {
        let [_, cluster_bindings, roles, bindings] = collections();
        let roles: HashMap<(String, String), Rules> = trees(space, &roles)
            .map(|(object, tree)| {
                let rules = Arc::from([Arc::new(rules_of(&tree))]);
                ((object.head.namespace.to_string(), object.head.name.to_string()), rules)
            })
            .collect();
        let mut roles = Roles { cluster: ClusterRoles::read(space), collected: HashMap::new(), roles };
        let mut policy = Policy::default();
        for (_, tree) in trees(space, &cluster_bindings) {
            if let Some(grant) = grant(&tree, "", &mut roles) {
                policy.everywhere.push(grant);
            }
        }
        for (object, tree) in trees(space, &bindings) {
            let namespace = object.head.namespace.to_string();
            if let Some(grant) = grant(&tree, &namespace, &mut roles) {
                policy.by_namespace.entry(namespace).or_default().push(grant);
            }
        }
        policy
    }

    pub fn allows(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        self.granted(user, attributes).is_some()
    }

    fn granted<'a>(&'a self, user: &'a User, attributes: &Attributes<'_>) -> Option<&'a Grant> {
        let mut grants = self.grants(user, attributes.namespace());
        grants.find(|grant| grant.rules().any(|rule| rule.allows(attributes)))
    }

    /// Why it is allowed, for people; `None` if it is not.
    pub fn reason(&self, user: &User, attributes: &Attributes<'_>) -> Option<String> {
        let grant = self.granted(user, attributes)?;
        let subject = grant.subjects.iter().find(|subject| subject.is(user))?;
        Some(format!("RBAC: allowed by {} to {}", grant.words, subject.words()))
    }

    /// Every rule that holds for `user` in `namespace`, without doubles, in order.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let rules: BTreeSet<Rule> =
            self.grants(user, namespace).flat_map(|grant| grant.rules().cloned()).collect();
        rules.into_iter().collect()
    }

    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = self.by_namespace.get(namespace).into_iter().flatten();
        let all = self.everywhere.iter().chain(local);
        all.filter(|grant| grant.subjects.iter().any(|subject| subject.is(user)))
    }
}

fn trees(space: &Space, collection: &Collection) -> impl Iterator<Item = (Arc<Object>, Map<String, Value>)> {
    let listing = space.latest(collection);
    let objects: Vec<Arc<Object>> = listing.iter(None, None).map(|(_, object)| object.clone()).collect();
    objects.into_iter().filter_map(|object| {
        let tree = object.tree().ok()?;
        Some((object, tree))
    })
}

pub fn rules_of(tree: &Map<String, Value>) -> Vec<Rule> {
    let list = tree.get("rules").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_object).map(Rule::read).collect()
}

/// The rules of one role; `None` if there is no such role. `resource` is `roles` or `clusterroles`.
pub fn rules_of_role(space: &Space, resource: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
    if resource == "clusterroles" {
        let roles = ClusterRoles::read(space);
        let rules: BTreeSet<&Rule> = roles.sources(name)?.into_iter().flat_map(|some| some.iter()).collect();
        return Some(rules.into_iter().cloned().collect());
    }
    let role = space.get(&Key::new(GROUP, resource, namespace, name))?;
    Some(rules_of(&role.tree().ok()?))
}

/// The roles that bindings may name.
struct Roles {
    cluster: ClusterRoles,
    /// Those of `cluster` that were asked for, with what they collect.
    collected: HashMap<String, Rules>,
    /// By namespace and name.
    roles: HashMap<(String, String), Rules>,
}

impl Roles {
    fn cluster_role(&mut self, name: &str) -> Option<Rules> {
        if let Some(rules) = self.collected.get(name) {
            return Some(rules.clone());
        }
        let rules: Rules = self.cluster.sources(name)?.into_iter().cloned().collect();
        self.collected.insert(name.to_owned(), rules.clone());
        Some(rules)
    }
}

fn grant(binding: &Map<String, Value>, namespace: &str, roles: &mut Roles) -> Option<Grant> {
    let role = binding.get("roleRef")?;
    let name = role.get("name")?.as_str()?;
    let rules = match role.get("kind")?.as_str()? {
        "ClusterRole" => roles.cluster_role(name)?,
        "Role" => roles.roles.get(&(namespace.to_owned(), name.to_owned()))?.clone(),
        _ => return None,
    };
    let list = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
    let subjects = list.filter_map(|subject| Subject::read(subject, namespace)).collect();
    let own_name =
        binding.get("metadata").and_then(|it| it.get("name")).and_then(Value::as_str).unwrap_or_default();
    let binding_words = match namespace {
        "" => format!("ClusterRoleBinding {own_name:?}"),
        namespace => format!("RoleBinding {:?}", format!("{own_name}/{namespace}")),
    };
    let words = format!("{binding_words} of {} {name:?}", role.get("kind")?.as_str()?);
    Some(Grant { words, subjects, rules })
}

/// Answers for every workspace, computing its policy when RBAC objects have changed since the last time.
pub struct Authorizer {
    /// Made once, for every request asks about them.
    collections: [Collection; 4],
    policies: Recent<Cached>,
    /// Of the workspaces that have changed nothing.
    base: OnceLock<Arc<Policy>>,
}

#[derive(Clone)]
struct Cached {
    at: [Revision; 4],
    policy: Arc<Policy>,
}

impl Default for Authorizer {
    fn default() -> Self {
        Self { collections: collections(), policies: Recent::default(), base: OnceLock::new() }
    }
}

impl Authorizer {
    pub fn policy(&self, space: &Space) -> Arc<Policy> {
        // Read before computing: a change in between makes the next request compute again, never serve a stale one.
        let at = self.collections.each_ref().map(|collection| space.last_change(collection));
        if at == [Revision::ZERO; 4] {
            return self.base.get_or_init(|| Arc::new(Policy::compute(&space.without_own()))).clone();
        }
        if let Some(cached) = self.policies.get(space.id()).filter(|cached| cached.at == at) {
            return cached.policy;
        }
        let policy = Arc::new(Policy::compute(space));
        self.policies.insert(space.id(), Cached { at, policy: policy.clone() });
        policy
    }

    pub fn allows(&self, space: &Space, user: &User, attributes: &Attributes<'_>) -> bool {
        user.in_group(MASTERS) || self.policy(space).allows(user, attributes)
    }

    /// Why `user` may do it, if that is wanted in words; `None` if it may not.
    pub fn decide(
        &self,
        space: &Space,
        user: &User,
        attributes: &Attributes<'_>,
        in_words: bool,
    ) -> Option<String> {
        match in_words && !user.in_group(MASTERS) {
            true => self.policy(space).reason(user, attributes),
            false => self.allows(space, user, attributes).then(String::new),
        }
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.policies.forget(workspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(resource_matches("*", "pods", "log"));
        assert!(resource_matches("pods", "pods", ""));
        assert!(!resource_matches("pods", "pods", "log"));
        assert!(resource_matches("pods/log", "pods", "log"));
        assert!(resource_matches("*/scale", "deployments", "scale"));
        assert!(!resource_matches("*/scale", "deployments", ""));
        assert!(path_matches("/healthz/*", "/healthz/ping"));
        assert!(!path_matches("/healthz", "/healthz/ping"));
    }

    #[test]
    fn names_limit_a_rule() {
        let rule = Rule {
            verbs: vec!["get".into()],
            api_groups: vec!["".into()],
            resources: vec!["configmaps".into()],
            resource_names: vec!["a".into()],
            ..Rule::default()
        };
        let ask = |name| Attributes::Resource {
            verb: "get",
            group: "",
            resource: "configmaps",
            subresource: "",
            namespace: "n",
            name,
        };
        assert!(rule.allows(&ask("a")));
        assert!(!rule.allows(&ask("b")));
        assert!(!rule.allows(&ask("")), "a list has no name");
    }
}
