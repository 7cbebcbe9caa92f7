//! Which flow a request belongs to: what a workspace's FlowSchemas and PriorityLevelConfigurations say, read once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use machinery::resource::Tree;
use serde_json::Value;

use super::scheduler::{LevelConfig, Queuing, Shares};
use crate::{rbac::Attributes, user::User};

/// Holds what must always be there, whoever deleted it.
const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";

/// More queues than this make no difference to so many requests as can wait.
const MAX_QUEUES: u32 = 1024;

/// All schemas whose level exists, in the order they are tried.
#[derive(Debug)]
pub struct Flows {
    schemas: Vec<Schema>,
    levels: Vec<LevelConfig>,
}

/// What is right for one kind of request.
#[derive(Debug)]
pub struct Schema {
    pub name: String,
    /// Its place among the levels.
    pub level: usize,
    precedence: i64,
    by: Option<Distinguisher>,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    /// Namespace and name.
    ServiceAccount(String, String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

impl Flows {
    /// Of a workspace's objects. Schemas that lead to no level are passed over, as upstream does.
    pub fn read<'a>(
        schemas: impl IntoIterator<Item = &'a Tree>,
        levels: impl IntoIterator<Item = &'a Tree>,
    ) -> Flows {
        let mut levels: Vec<LevelConfig> = levels.into_iter().filter_map(read_level).collect();
        for level in super::defaults::mandatory_levels().filter_map(|tree| read_level(&tree)) {
            // Nobody may change what these mean, or take them away.
            levels.retain(|it| it.name != level.name);
            levels.push(level);
        }
        let places: HashMap<&str, usize> =
            levels.iter().enumerate().rev().map(|(at, level)| (&*level.name, at)).collect();
        let find = |name: &str| places.get(name).copied();
        let mut read: Vec<Schema> = schemas.into_iter().filter_map(|tree| Schema::read(tree, find)).collect();
        for tree in super::defaults::mandatory_schemas() {
            if let Some(schema) = Schema::read(&tree, find) {
                read.retain(|it| it.name != schema.name);
                read.push(schema);
            }
        }
        read.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Flows { schemas: read, levels }
    }

    pub fn levels(&self) -> &[LevelConfig] {
        &self.levels
    }

    pub fn schemas(&self) -> &[Schema] {
        &self.schemas
    }

    pub fn level_name(&self, schema: &Schema) -> &str {
        self.levels.get(schema.level).map_or("", |level| &level.name)
    }

    /// The place of the schema that a request falls under; there is always one.
    pub fn classify(&self, user: &User, request: &Attributes<'_>) -> usize {
        let found = self.schemas.iter().position(|schema| schema.matches(user, request));
        found.unwrap_or_else(|| self.place_of(CATCH_ALL))
    }

    /// The place of the schema of platform admins.
    pub fn exempt(&self) -> usize {
        self.place_of(EXEMPT)
    }

    fn place_of(&self, name: &str) -> usize {
        self.schemas.iter().position(|schema| schema.name == name).unwrap_or(0)
    }
}

impl Schema {
    fn read(tree: &Tree, find: impl Fn(&str) -> Option<usize>) -> Option<Schema> {
        let spec = tree.get("spec")?;
        let level = find(spec.get("priorityLevelConfiguration")?.get("name")?.as_str()?)?;
        let by = match spec.get("distinguisherMethod").and_then(|it| it.get("type")).and_then(Value::as_str) {
            Some("ByUser") => Some(Distinguisher::User),
            Some("ByNamespace") => Some(Distinguisher::Namespace),
            _ => None,
        };
        Some(Schema {
            name: tree.get("metadata")?.get("name")?.as_str()?.to_owned(),
            level,
            precedence: spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(1000),
            by,
            rules: list(spec, "rules").map(Rule::read).collect(),
        })
    }

    fn matches(&self, user: &User, request: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, request))
    }

    /// Requests with the same number share alike.
    pub fn flow(&self, user: &User, request: &Attributes<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        match (self.by, request) {
            (Some(Distinguisher::User), _) => user.name.hash(&mut hasher),
            (Some(Distinguisher::Namespace), Attributes::Resource { namespace, .. }) => {
                namespace.hash(&mut hasher);
            }
            _ => {}
        }
        hasher.finish()
    }
}

impl Rule {
    fn read(tree: &Value) -> Rule {
        Rule {
            subjects: list(tree, "subjects").filter_map(Subject::read).collect(),
            resources: list(tree, "resourceRules").map(ResourceRule::read).collect(),
            paths: list(tree, "nonResourceRules").map(PathRule::read).collect(),
        }
    }

    fn matches(&self, user: &User, request: &Attributes<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(user)) {
            return false;
        }
        match request {
            Attributes::NonResource { verb, path } => self.paths.iter().any(|rule| rule.matches(verb, path)),
            Attributes::Resource { .. } => self.resources.iter().any(|rule| rule.matches(request)),
        }
    }
}

impl Subject {
    fn read(tree: &Value) -> Option<Subject> {
        let text = |part: &str, key: &str| Some(tree.get(part)?.get(key)?.as_str()?.to_owned());
        match tree.get("kind")?.as_str()? {
            "User" => Some(Subject::User(text("user", "name")?)),
            "Group" => Some(Subject::Group(text("group", "name")?)),
            "ServiceAccount" => Some(Subject::ServiceAccount(
                text("serviceAccount", "namespace")?,
                text("serviceAccount", "name")?,
            )),
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.in_group(name),
            Subject::ServiceAccount(namespace, name) => User::service_account(&user.name)
                .is_some_and(|(of, called)| of == namespace && (name == "*" || called == name)),
        }
    }
}

impl ResourceRule {
    fn read(tree: &Value) -> ResourceRule {
        ResourceRule {
            verbs: texts(tree, "verbs"),
            groups: texts(tree, "apiGroups"),
            resources: texts(tree, "resources"),
            cluster_scope: tree.get("clusterScope").and_then(Value::as_bool).unwrap_or(false),
            namespaces: texts(tree, "namespaces"),
        }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        let Attributes::Resource { verb, group, resource, subresource, namespace, .. } = *request else {
            return false;
        };
        if !holds(&self.verbs, verb) || !holds(&self.groups, group) {
            return false;
        }
        let named = |pattern: &String| match subresource {
            "" => pattern == resource,
            subresource => pattern.split_once('/') == Some((resource, subresource)),
        };
        if !(is_all(&self.resources) || self.resources.iter().any(named)) {
            return false;
        }
        match namespace {
            "" => self.cluster_scope,
            namespace => holds(&self.namespaces, namespace),
        }
    }
}

impl PathRule {
    fn read(tree: &Value) -> PathRule {
        PathRule { verbs: texts(tree, "verbs"), paths: texts(tree, "nonResourceURLs") }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        holds(&self.verbs, verb) && self.paths.iter().any(|pattern| path_matches(pattern, path))
    }
}

/// `*`, the path itself, or what is below it.
fn path_matches(pattern: &str, path: &str) -> bool {
    if pattern == "*" || pattern == path {
        return true;
    }
    let above = pattern.strip_suffix('*').unwrap_or(pattern);
    let below = path.strip_prefix(above.strip_suffix('/').unwrap_or(above));
    below.is_some_and(|rest| rest.starts_with('/'))
}

fn is_all(list: &[String]) -> bool {
    matches!(list, [one] if one == "*")
}

fn holds(list: &[String], value: &str) -> bool {
    is_all(list) || list.iter().any(|item| item == value)
}

fn list<'a>(tree: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    tree.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn texts(tree: &Value, key: &str) -> Vec<String> {
    list(tree, key).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_level(tree: &Tree) -> Option<LevelConfig> {
    let name = tree.get("metadata")?.get("name")?.as_str()?.into();
    let spec = tree.get("spec")?;
    if spec.get("type").and_then(Value::as_str) == Some("Exempt") {
        return Some(LevelConfig { name, limits: None });
    }
    let limited = spec.get("limited").unwrap_or(&Value::Null);
    let number = |tree: &Value, key: &str| {
        let number = tree.get(key).and_then(Value::as_i64)?;
        Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX))
    };
    let response = limited.get("limitResponse").unwrap_or(&Value::Null);
    let queuing = response.get("queuing").filter(|_| response.get("type") == Some(&Value::from("Queue")));
    let limits = Shares {
        shares: number(limited, "nominalConcurrencyShares").unwrap_or(30),
        lendable_percent: number(limited, "lendablePercent").unwrap_or(0).min(100),
        borrowing_percent: number(limited, "borrowingLimitPercent"),
        queuing: queuing.map(|it| Queuing {
            queues: number(it, "queues").unwrap_or(64).min(MAX_QUEUES),
            hand: number(it, "handSize").unwrap_or(8),
            length: number(it, "queueLengthLimit").unwrap_or(50),
        }),
    };
    Some(LevelConfig { name, limits: Some(limits) })
}

#[cfg(test)]
mod tests;
