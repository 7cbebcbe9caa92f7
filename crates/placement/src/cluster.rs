//! What placement knows of a cluster, read from its `Cluster`.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use kinds::{ClassKind, Resources, Toleration};
use machinery::{gotext, quantity::Quantity};
use serde_json::{Map, Value};

/// Labels as selectors take them.
pub type Labels = Vec<(CompactString, CompactString)>;

/// On a virtual node: the cluster that it stands for.
pub const CLUSTER_LABEL: &str = "hanse.io/cluster";
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Whether pods of one cluster reach those of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    Flat,
    Gateway,
    #[default]
    None,
}

impl Network {
    pub fn reaches_others(self) -> bool {
        self != Network::None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub fn name(self) -> &'static str {
        match self {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]
            .into_iter()
            .find(|effect| effect.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
    /// In seconds; `None`: just now.
    pub since: Option<i64>,
}

impl Taint {
    /// Whether it is the same, whenever it was added.
    pub fn is_same(&self, other: &Taint) -> bool {
        (&self.key, &self.value, self.effect) == (&other.key, &other.value, other.effect)
    }

    /// How many seconds ago it was added.
    fn age(&self, now: i64) -> i64 {
        self.since.map_or(0, |since| now.saturating_sub(since).max(0))
    }

    /// How many seconds are left of a time that it is borne for.
    pub fn left(&self, seconds: i64, now: i64) -> i64 {
        seconds.saturating_sub(self.age(now))
    }

    /// Whether the toleration bears it, as for nodes.
    pub fn is_borne_by(&self, toleration: &Toleration) -> bool {
        let effect = toleration.effect.is_empty() || toleration.effect == self.effect.name();
        let key = toleration.key.is_empty() || toleration.key == self.key;
        let value = match toleration.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => !toleration.key.is_empty() && toleration.value == self.value,
            _ => false,
        };
        effect && key && value
    }
}

impl std::fmt::Display for Taint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.name())
    }
}

/// How the cluster does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Ready,
    /// Why not, or that it was never said.
    NotReady(String),
}

/// How much of a resource there is: thousandths of processors, whole numbers of everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    pub resource: CompactString,
    /// All that may be asked for.
    pub limit: i64,
    /// All that is asked for.
    pub requested: i64,
}

/// What objects a cluster takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    /// Resources by group version; `None`: not known, and not judged.
    pub apis: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Fields that the hub knows and the cluster does not, by type.
    pub lacks: BTreeMap<String, BTreeSet<String>>,
    /// `None`: not known, and not judged.
    pub classes: Option<BTreeSet<(ClassKind, String)>>,
}

/// A cluster as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: CompactString,
    /// Those of its virtual node.
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Cordoned, or about to go.
    pub unschedulable: bool,
    /// Who may use it; empty: everybody.
    pub accounts: BTreeSet<String>,
    /// Kinds in no namespace that it takes from workspaces which do not have it.
    pub admits: BTreeSet<String>,
    pub network: Network,
    pub condition: Condition,
    /// `None`: not known, and not judged.
    pub amounts: Option<Vec<Amount>>,
    /// Of what is not among the amounts there is nothing; false: only bounds are known, and others are not judged.
    pub lists_all: bool,
    pub offer: Offer,
    pub version: String,
}

impl Cluster {
    /// Whether an account may use it; `None`: the administrators.
    pub fn serves(&self, account: Option<&str>) -> bool {
        account.is_none_or(|account| self.accounts.is_empty() || self.accounts.contains(account))
    }

    /// One that is ready and takes everything.
    pub fn open(name: &str) -> Self {
        let own = [(CLUSTER_LABEL, name), (HOSTNAME_LABEL, name)];
        Self {
            name: name.into(),
            labels: own.map(|(key, value)| (key.into(), value.into())).into(),
            taints: Vec::new(),
            unschedulable: false,
            accounts: BTreeSet::new(),
            admits: BTreeSet::new(),
            network: Network::None,
            condition: Condition::Ready,
            amounts: None,
            lists_all: true,
            offer: Offer::default(),
            version: String::new(),
        }
    }

    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.retain(|(known, _)| known != key);
        self.labels.push((key.into(), value.into()));
        self
    }

    /// As if its session had said that it is ready: for what is decided over clusters that were only written down.
    pub fn assumed_ready(mut self) -> Self {
        self.condition = Condition::Ready;
        self
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Reads a `Cluster` as it is stored. What is not as it should be counts as not said; without a name there is none.
    pub fn read(object: &Value) -> Option<Self> {
        let name = object["metadata"]["name"].as_str()?;
        let mut cluster = Self::open(name);
        for (key, value) in members(&object["metadata"]["labels"]) {
            if let Some(value) = value.as_str().filter(|_| cluster.label(key).is_none()) {
                cluster.labels.push((key.into(), value.into()));
            }
        }
        let (spec, status) = (&object["spec"], &object["status"]);
        cluster.taints = items(&spec["taints"]).filter_map(taint).collect();
        cluster.unschedulable =
            spec["unschedulable"] == true || object["metadata"]["deletionTimestamp"].is_string();
        cluster.accounts = items(&spec["accounts"]).filter_map(Value::as_str).map(str::to_owned).collect();
        cluster.admits = items(&spec["admits"]).filter_map(Value::as_str).map(str::to_owned).collect();
        cluster.network = match spec["network"].as_str() {
            Some("Flat") => Network::Flat,
            Some("Gateway") => Network::Gateway,
            _ => Network::None,
        };
        cluster.condition = condition(status);
        cluster.amounts = amounts(&spec["capacity"], status);
        cluster.lists_all = members(&status["allocatable"]).next().is_some();
        cluster.offer = offer(status);
        cluster.version = status["version"].as_str().unwrap_or_default().to_owned();
        Some(cluster)
    }
}

/// In the unit of [`Amount`], rounded up.
pub fn units(resource: &str, amount: &Quantity) -> i64 {
    if resource == "cpu" { amount.milli_value() } else { amount.value() }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn taint(taint: &Value) -> Option<Taint> {
    let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
    let effect = Effect::read(taint["effect"].as_str()?)?;
    Some(Taint { key: text("key"), value: text("value"), effect, since: None })
}

fn condition(status: &Value) -> Condition {
    let Some(ready) = items(&status["conditions"]).find(|it| it["type"] == "Ready") else {
        return Condition::NotReady("nothing is known of it yet".to_owned());
    };
    match (ready["status"].as_str(), ready["reason"].as_str()) {
        (Some("True"), _) => Condition::Ready,
        (_, Some(reason)) => Condition::NotReady(reason.to_owned()),
        _ => Condition::NotReady("NotReady".to_owned()),
    }
}

fn quantities(value: &Value) -> Resources {
    let read = members(value)
        .filter_map(|(name, value)| Some((name.clone(), Quantity::parse(&gotext::plain(value)).ok()?)));
    read.collect()
}

/// A bound stands for what there is: it may be less, to keep some back, or more, where nodes are made on demand.
fn amounts(capacity: &Value, status: &Value) -> Option<Vec<Amount>> {
    let bounds = quantities(&capacity["bounds"]);
    let overcommit = quantities(&capacity["overcommit"]);
    let allocatable = quantities(&status["allocatable"]);
    let requested = quantities(&status["requested"]);
    if bounds.is_empty() && allocatable.is_empty() {
        return None;
    }
    let names: BTreeSet<&String> = bounds.keys().chain(allocatable.keys()).collect();
    let amount = |name: &String| {
        let limit = match (bounds.get(name), allocatable.get(name)) {
            (Some(bound), _) => units(name, bound),
            (None, Some(there)) => stretched(units(name, there), overcommit.get(name)),
            (None, None) => 0,
        };
        let requested = requested.get(name).map_or(0, |it| units(name, it));
        Amount { resource: name.into(), limit, requested }
    };
    Some(names.into_iter().map(amount).collect())
}

fn stretched(amount: i64, factor: Option<&Quantity>) -> i64 {
    let Some(factor) = factor else { return amount };
    let stretched = i128::from(amount) * i128::from(factor.milli_value()) / 1000;
    stretched.clamp(0, i64::MAX.into()) as i64
}

fn offer(status: &Value) -> Offer {
    let names = |value: &Value| items(value).filter_map(Value::as_str).map(str::to_owned).collect();
    let apis = status["apis"].as_array().filter(|apis| !apis.is_empty());
    let served = |api: &Value| Some((api["groupVersion"].as_str()?.to_owned(), names(&api["resources"])));
    let lacks = members(&status["skew"]["missingFields"]);
    Offer {
        apis: apis.map(|apis| apis.iter().filter_map(served).collect()),
        lacks: lacks.map(|(name, fields)| (name.clone(), names(fields))).collect(),
        classes: status["classes"].as_object().map(classes),
    }
}

/// `{StorageClass: [fast], …}`
fn classes(classes: &Map<String, Value>) -> BTreeSet<(ClassKind, String)> {
    let of = |kind: ClassKind| {
        let names = classes.get(kind.kind()).map(items).into_iter().flatten().filter_map(Value::as_str);
        names.map(move |name| (kind, name.to_owned())).collect::<Vec<_>>()
    };
    ClassKind::ALL.into_iter().flat_map(of).collect()
}
