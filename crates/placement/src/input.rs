//! Everything that a decision is made from.

use std::collections::{BTreeMap, BTreeSet};

use kinds::{
    ClassKind, Resources, Share, Subject,
    split::bounds::{Local, WINDOW},
};

use crate::{directory::Directory, fields::Fields, policies::Policies};

/// What placement needs to know of the namespace of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// What is decided on, and what is known. [`Input::new`] has nothing but the first two; set what there is.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub subject: &'a Subject,
    pub directory: &'a Directory,
    /// As in `deployments`; `None`: that of the built-in kind, or only the group version is looked at.
    pub resource: Option<&'a str>,
    /// The fields that the object uses.
    pub fields: &'a Fields,
    pub namespace: &'a Namespace,
    /// Whose workspace it is; `None`: the administrators'.
    pub account: Option<&'a str>,
    /// The `Placement`s of the workspace.
    pub workspace: &'a Policies,
    /// Those of root.
    pub root: &'a Policies,
    /// What is assigned now.
    pub current: &'a BTreeMap<String, Share>,
    /// How many of its pods each has nodes for, of those that had none for others for long.
    pub fits: &'a BTreeMap<String, u64>,
    /// What is reserved for it in each, if it is asked for more anywhere than there are nodes for.
    pub held: &'a BTreeMap<String, Resources>,
    /// Of a Job: completions of copies that are not there any more.
    pub finished: u64,
    /// Of a Job: which copy is the next of clusters that have none any more, or had none when they were asked last.
    pub runs: &'a BTreeMap<String, u64>,
    /// Of a Job: clusters that have done their part.
    pub idle: &'a BTreeSet<String>,
    /// The cluster that the namespaces of the workspace prefer, once there is one.
    pub home: Option<&'a str>,
    /// Where those are assigned that refer to it, with how many replicas: see [`crate::follow::referrers`].
    pub referrers: &'a BTreeMap<String, u64>,
    /// Pods name it that have no place yet: a volume goes where the first of them goes.
    pub awaited: bool,
    /// The claims it names that are in clusters already, and in which. What is in a volume is nowhere else.
    pub claims: &'a BTreeMap<String, BTreeSet<String>>,
    /// The classes it names that the workspace has itself, and the clusters that would take them along with it.
    pub brought: &'a BTreeMap<(ClassKind, String), BTreeSet<String>>,
    /// Where the workloads of its namespace are: see [`crate::follow::neighbours`].
    pub neighbours: &'a BTreeSet<String>,
    /// Of an autoscaler: what those of the clusters do that have a part of it and can be asked.
    pub autoscalers: &'a BTreeMap<String, Local>,
    /// How long one that has scaled neither gives of its bounds nor takes, in seconds.
    pub window: u64,
    /// Clusters whose virtual node is cordoned in this workspace.
    pub cordoned: &'a BTreeSet<String>,
    /// The time, in seconds, in which it is said since when clusters are tainted.
    pub now: i64,
    /// The volumes it mounts, or is, can be reached from every cluster.
    pub shared_volumes: bool,
}

static NO_FIELDS: Fields = Fields::none();
static NO_NAMESPACE: Namespace = Namespace { labels: BTreeMap::new(), annotations: BTreeMap::new() };
static NO_POLICIES: Policies = Policies::new();
static NO_SHARES: BTreeMap<String, Share> = BTreeMap::new();
static NO_COUNTS: BTreeMap<String, u64> = BTreeMap::new();
static NOTHING_HELD: BTreeMap<String, Resources> = BTreeMap::new();
static NO_NAMES: BTreeSet<String> = BTreeSet::new();
static NO_CLASSES: BTreeMap<(ClassKind, String), BTreeSet<String>> = BTreeMap::new();
static NO_AUTOSCALERS: BTreeMap<String, Local> = BTreeMap::new();
static NO_CLAIMS: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();

impl<'a> Input<'a> {
    pub fn new(subject: &'a Subject, directory: &'a Directory) -> Self {
        Self {
            subject,
            directory,
            resource: None,
            fields: &NO_FIELDS,
            namespace: &NO_NAMESPACE,
            account: None,
            workspace: &NO_POLICIES,
            root: &NO_POLICIES,
            current: &NO_SHARES,
            fits: &NO_COUNTS,
            held: &NOTHING_HELD,
            finished: 0,
            runs: &NO_COUNTS,
            idle: &NO_NAMES,
            home: None,
            referrers: &NO_COUNTS,
            awaited: false,
            claims: &NO_CLAIMS,
            brought: &NO_CLASSES,
            neighbours: &NO_NAMES,
            autoscalers: &NO_AUTOSCALERS,
            window: WINDOW,
            cordoned: &NO_NAMES,
            now: 0,
            shared_volumes: false,
        }
    }

    /// By which equals are told apart.
    pub fn key(&self) -> String {
        format!("{}/{}", self.subject.namespace, self.subject.name)
    }
}
