//! `Placement` objects: what they select, and where that is to run.

use std::collections::BTreeMap;

use compact_str::CompactString;
use kinds::{
    SpreadConstraint, Subject, Toleration,
    divide::{Algorithm, Preference, Preferences},
};
use machinery::selector::{LabelSelector, Operator, Requirement};
use serde::Deserialize;
use serde_json::Value;

use crate::{Problem, cluster::Labels};

/// Which clusters are meant. All that is given must hold; nothing given: every cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub names: Option<Vec<String>>,
    pub selector: Option<LabelSelector>,
}

impl Choice {
    pub fn every() -> Self {
        Self::default()
    }

    pub fn nowhere() -> Self {
        Self { names: Some(Vec::new()), selector: None }
    }

    pub fn names(names: Vec<String>) -> Self {
        Self { names: Some(names), selector: None }
    }

    pub fn holds(&self, name: &str, labels: &Labels) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|it| it == name))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }

    /// What both mean.
    pub fn within(self, other: Choice) -> Choice {
        let names = match (self.names, other.names) {
            (Some(own), Some(others)) => Some(own.into_iter().filter(|it| others.contains(it)).collect()),
            (own, others) => own.or(others),
        };
        let selector = match (self.selector, other.selector) {
            (Some(own), Some(others)) => Some(own.and(others)),
            (own, others) => own.or(others),
        };
        Choice { names, selector }
    }

    /// Whether a cluster of which only the name is known may be meant.
    pub fn may_hold(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|it| it == name))
    }
}

/// One of the groups that are filled in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub choice: Choice,
}

/// Over what, and how evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    pub key: String,
    pub max_skew: u64,
    pub min_domains: u64,
    pub max_domains: Option<u64>,
    /// Otherwise it is a wish.
    pub required: bool,
    /// Asked for by pods: a cluster without the label may have many such places inside, which are its own business.
    pub of_pods: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Strategy {
    /// One cluster has all of it.
    Single,
    /// Each cluster has all of it.
    Duplicate,
    /// Each cluster has a share.
    Divide,
}

/// What the shares are measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum By {
    #[default]
    Even,
    Weight,
    /// How many replicas there is room for.
    Capacity,
}

/// What is asked for some clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRule {
    /// A name, or `*`.
    pub cluster: Option<String>,
    pub selector: Option<LabelSelector>,
    pub preference: Preference,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares(Vec<ShareRule>);

impl Shares {
    /// The entry with the name, else the first whose selector matches, else `*`.
    pub fn of(&self, name: &str, labels: &Labels) -> Option<Preference> {
        let named = self.0.iter().find(|it| it.cluster.as_deref() == Some(name));
        let matching = || self.0.iter().find(|it| it.selector.as_ref().is_some_and(|it| it.matches(labels)));
        let any = || self.0.iter().find(|it| it.cluster.as_deref() == Some("*"));
        named.or_else(matching).or_else(any).map(|it| it.preference)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&Preferences> for Shares {
    fn from(preferences: &Preferences) -> Self {
        let rule = |(name, preference): (&String, &Preference)| ShareRule {
            cluster: Some(name.clone()),
            selector: None,
            preference: *preference,
        };
        Self(preferences.clusters.iter().map(rule).collect())
    }
}

/// Where a selected object runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub clusters: Choice,
    /// If no cluster there is is meant it is to be nowhere, and does not wait for one.
    pub exact: bool,
    /// Empty: there is one, of all clusters.
    pub groups: Vec<Group>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<Spread>,
    /// `None`: what suits the kind.
    pub strategy: Option<Strategy>,
    pub by: By,
    pub algorithm: Algorithm,
    pub rebalance: bool,
    pub shares: Shares,
}

impl Rule {
    /// What a cluster is to have. By capacity the weight is its room, which is not known here.
    pub fn asked_of(&self, cluster: &str, labels: &Labels) -> Preference {
        let asked = self.shares.of(cluster, labels);
        match (self.by, asked) {
            (By::Weight, Some(asked)) => asked,
            // Weights are given, and none to it.
            (By::Weight, None) if !self.shares.is_empty() => Preference { min: 0, max: Some(0), weight: 1 },
            (_, asked) => Preference { weight: 1, ..asked.unwrap_or_default() },
        }
    }
}

/// An entry of `select`: all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selection {
    groups: Vec<String>,
    kinds: Vec<String>,
    names: Vec<String>,
    namespaces: Vec<String>,
    labels: Option<LabelSelector>,
    namespace_labels: Option<LabelSelector>,
}

/// A `Placement`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    pub priority: i64,
    select: Vec<Selection>,
    pub rule: Rule,
}

/// How well a policy is aimed at an object; the greater, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Aim {
    named: bool,
    labelled: bool,
    in_namespace: bool,
    of_kind: bool,
    in_group: bool,
}

impl Aim {
    /// Whether it says which kind it means.
    pub fn names_kind(self) -> bool {
        self.of_kind
    }
}

impl Policy {
    /// Reads a `Placement` as it is stored.
    pub fn read(object: &Value) -> Result<Self, Problem> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let spec = Spec::deserialize(&object["spec"])
            .map_err(|error| Problem::Policy { name: name.clone(), reason: error.to_string() })?;
        spec.into_policy(&name).map_err(|reason| Problem::Policy { name, reason })
    }

    /// The best aim of its entries; `None`: the object is not selected.
    pub fn selects(&self, subject: &Subject, namespace_labels: &Labels) -> Option<Aim> {
        self.select.iter().filter_map(|entry| entry.aim(subject, namespace_labels)).max()
    }

    /// One of these holds for each object that is selected.
    pub(crate) fn criteria(&self) -> impl Iterator<Item = Criterion<'_>> {
        self.select.iter().flat_map(Selection::criteria)
    }
}

/// What an object must have so that an entry of `select` can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion<'a> {
    Name(&'a str),
    Label(&'a str, &'a str),
    /// Nothing by which it could be looked up.
    Any,
}

impl Selection {
    fn criteria(&self) -> Vec<Criterion<'_>> {
        if !self.names.is_empty() && !self.names.iter().any(|it| it == "*") {
            return self.names.iter().map(|name| Criterion::Name(name)).collect();
        }
        let requirements = self.labels.iter().flat_map(LabelSelector::requirements);
        let mut exact = requirements
            .filter(|it| matches!(it.operator(), Operator::Equals | Operator::DoubleEquals | Operator::In));
        match exact.next() {
            Some(first) => first.values().iter().map(|value| Criterion::Label(first.key(), value)).collect(),
            None => vec![Criterion::Any],
        }
    }

    fn aim(&self, subject: &Subject, namespace_labels: &Labels) -> Option<Aim> {
        let listed =
            |list: &[String], value: &str| list.is_empty() || list.iter().any(|it| it == value || it == "*");
        let holds = listed(&self.groups, &subject.group)
            && listed(&self.kinds, &subject.kind)
            && listed(&self.names, &subject.name)
            && listed(&self.namespaces, &subject.namespace)
            && self.labels.as_ref().is_none_or(|it| it.matches(&labels(&subject.labels)))
            && self.namespace_labels.as_ref().is_none_or(|it| it.matches(namespace_labels));
        holds.then_some(Aim {
            named: !self.names.is_empty(),
            labelled: self.labels.is_some(),
            in_namespace: !self.namespaces.is_empty() || self.namespace_labels.is_some(),
            of_kind: !self.kinds.is_empty(),
            in_group: !self.groups.is_empty(),
        })
    }
}

pub fn labels(map: &BTreeMap<String, String>) -> Labels {
    map.iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// As for nodes, `Gt` and `Lt` too.
pub fn cluster_selector(selector: &Value) -> Result<LabelSelector, String> {
    let Some(expressions) = selector.get("matchExpressions").and_then(Value::as_array) else {
        return LabelSelector::from_object(selector);
    };
    let (compare, plain): (Vec<&Value>, Vec<&Value>) =
        expressions.iter().partition(|it| matches!(it["operator"].as_str(), Some("Gt" | "Lt")));
    let mut selector = selector.clone();
    selector["matchExpressions"] = plain.into_iter().cloned().collect();
    let mut requirements = LabelSelector::from_object(&selector)?.requirements().to_vec();
    for expression in compare {
        let operator =
            if expression["operator"] == "Gt" { Operator::GreaterThan } else { Operator::LessThan };
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.map(|value| CompactString::from(value.as_str().unwrap_or_default())).collect();
        requirements.push(Requirement::new(
            expression["key"].as_str().unwrap_or_default(),
            operator,
            values,
        )?);
    }
    Ok(LabelSelector::of(requirements))
}

impl From<&SpreadConstraint> for Spread {
    fn from(constraint: &SpreadConstraint) -> Self {
        Self {
            key: constraint.topology_key.clone(),
            max_skew: constraint.max_skew.max(1),
            min_domains: constraint.min_domains.unwrap_or(1),
            max_domains: None,
            required: constraint.required,
            of_pods: true,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    priority: i64,
    select: Vec<SelectWire>,
    clusters: Option<ChoiceWire>,
    groups: Vec<GroupWire>,
    tolerations: Vec<TolerationWire>,
    spread: Vec<SpreadWire>,
    strategy: Option<Strategy>,
    divide: Option<DivideWire>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SelectWire {
    api_groups: Vec<String>,
    kinds: Vec<String>,
    names: Vec<String>,
    namespaces: Vec<String>,
    label_selector: Option<Value>,
    namespace_selector: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChoiceWire {
    names: Option<Vec<String>>,
    selector: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupWire {
    name: String,
    names: Option<Vec<String>>,
    selector: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TolerationWire {
    key: String,
    operator: String,
    value: String,
    effect: String,
    toleration_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpreadWire {
    topology_key: String,
    max_skew: Option<u64>,
    min_domains: Option<u64>,
    max_domains: Option<u64>,
    when_unsatisfiable: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DivideWire {
    by: By,
    algorithm: AlgorithmWire,
    rebalance: bool,
    shares: Vec<ShareWire>,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum AlgorithmWire {
    #[default]
    Fair,
    Federation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ShareWire {
    cluster: Option<String>,
    selector: Option<Value>,
    min: u64,
    max: Option<u64>,
    weight: Option<u64>,
}

impl Spec {
    fn into_policy(self, name: &str) -> Result<Policy, String> {
        let selector = |it: Option<Value>| it.as_ref().map(LabelSelector::from_object).transpose();
        let choice = |names, selector: Option<Value>| {
            let selector = selector.as_ref().map(cluster_selector).transpose()?;
            Ok::<Choice, String>(Choice { names, selector })
        };
        let select = self.select.into_iter().map(|it| {
            Ok(Selection {
                groups: it.api_groups,
                kinds: it.kinds,
                names: it.names,
                namespaces: it.namespaces,
                labels: selector(it.label_selector)?,
                namespace_labels: selector(it.namespace_selector)?,
            })
        });
        let groups = self
            .groups
            .into_iter()
            .map(|it| Ok(Group { name: it.name, choice: choice(it.names, it.selector)? }));
        // Who says how to divide means it to be divided.
        let strategy = self.strategy.or(self.divide.is_some().then_some(Strategy::Divide));
        let divide = self.divide.unwrap_or_default();
        let shares = divide.shares.into_iter().map(share_rule);
        let clusters = self.clusters.unwrap_or_default();
        let rule = Rule {
            exact: false,
            clusters: choice(clusters.names, clusters.selector)?,
            groups: groups.collect::<Result<_, String>>()?,
            tolerations: self.tolerations.into_iter().map(toleration).collect(),
            spread: self.spread.into_iter().map(spread).collect(),
            strategy,
            by: divide.by,
            algorithm: match divide.algorithm {
                AlgorithmWire::Fair => Algorithm::Fair,
                AlgorithmWire::Federation => Algorithm::Federation,
            },
            rebalance: divide.rebalance,
            shares: Shares(shares.collect::<Result<_, String>>()?),
        };
        let select = select.collect::<Result<_, String>>()?;
        Ok(Policy { name: name.to_owned(), priority: self.priority, select, rule })
    }
}

fn share_rule(wire: ShareWire) -> Result<ShareRule, String> {
    let selector = wire.selector.as_ref().map(cluster_selector).transpose()?;
    // Who only bounds a cluster means it to take part.
    let preference = Preference { min: wire.min, max: wire.max, weight: wire.weight.unwrap_or(1) };
    Ok(ShareRule { cluster: wire.cluster, selector, preference })
}

fn toleration(wire: TolerationWire) -> Toleration {
    let TolerationWire { key, operator, value, effect, toleration_seconds } = wire;
    Toleration { key, operator, value, effect, seconds: toleration_seconds }
}

fn spread(wire: SpreadWire) -> Spread {
    Spread {
        key: wire.topology_key,
        max_skew: wire.max_skew.unwrap_or(1).max(1),
        min_domains: wire.min_domains.unwrap_or(1),
        max_domains: wire.max_domains,
        required: wire.when_unsatisfiable != "ScheduleAnyway",
        of_pods: false,
    }
}
