//! Whose policy counts for an object: the most specific that there is.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap};

use kinds::Travel;

use crate::{
    Problem, dialect, follow,
    input::Input,
    policy::{Choice, Rule, Strategy, labels},
};

/// Names clusters on an object or a namespace, past all policies.
pub const CLUSTERS: &str = "hanse.io/clusters";
/// Names a `Placement` on an object or a namespace.
pub const PLACEMENT: &str = "hanse.io/placement";

/// Where a policy was written; the first that has one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    Object,
    Namespace,
    Workspace,
    Root,
    Default,
}

impl Layer {
    pub fn in_words(self) -> &'static str {
        match self {
            Layer::Object => "an annotation of the object",
            Layer::Namespace => "an annotation of its namespace",
            Layer::Workspace => "a Placement of the workspace",
            Layer::Root => "a Placement of root",
            Layer::Default => "the default",
        }
    }
}

/// What counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means<'a> {
    Rule(Cow<'a, Rule>),
    /// One cluster for the workspace.
    Home,
    /// With those that need it.
    Follow,
    /// Not synced at all; why.
    Above(&'static str),
    /// What was written cannot be followed: all stays as it is.
    Broken(Problem),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    pub layer: Layer,
    /// The annotation, or the name of the `Placement`.
    pub source: Cow<'a, str>,
    pub means: Means<'a>,
}

impl<'a> Resolved<'a> {
    fn new(layer: Layer, source: impl Into<Cow<'a, str>>, means: Means<'a>) -> Self {
        Self { layer, source: source.into(), means }
    }
}

/// Finds the policy that counts.
pub fn resolve<'a>(input: &Input<'a>) -> Resolved<'a> {
    if let Some(why) = never_synced(input) {
        return Resolved::new(Layer::Default, "", Means::Above(why));
    }
    if follow::travel(input.subject) == Travel::Named {
        return Resolved::new(Layer::Default, "", Means::Follow);
    }
    if let Some(found) = annotated(input, Layer::Object, &input.subject.annotations) {
        return found;
    }
    let follows = follow::is_follower(input.subject);
    let must_be_selected = follow::travel(input.subject) == Travel::IfSelected;
    // What follows goes with what its namespace's annotations place, and those are about what is placed anyway.
    if !follows
        && !must_be_selected
        && let Some(found) = annotated(input, Layer::Namespace, &input.namespace.annotations)
    {
        return found;
    }
    let namespace_labels = labels(&input.namespace.labels);
    for (layer, policies) in [(Layer::Workspace, input.workspace), (Layer::Root, input.root)] {
        let aimed = policies.candidates(input.subject).filter_map(|policy| {
            let aim = policy.selects(input.subject, &namespace_labels)?;
            (!follows || aim.names_kind()).then_some((policy, aim))
        });
        let best = aimed.min_by_key(|(policy, aim)| (Reverse(policy.priority), Reverse(*aim), &policy.name));
        if let Some((policy, _)) = best {
            return Resolved::new(layer, policy.name.as_str(), Means::Rule(Cow::Borrowed(&policy.rule)));
        }
    }
    if must_be_selected {
        let why = "objects of its kind are synced only if a Placement selects them";
        return Resolved::new(Layer::Default, "", Means::Above(why));
    }
    if follows {
        return Resolved::new(Layer::Default, "", Means::Follow);
    }
    if input.subject.every_node {
        let rule = Rule { strategy: Some(Strategy::Duplicate), ..Rule::default() };
        return Resolved::new(Layer::Default, "", Means::Rule(Cow::Owned(rule)));
    }
    Resolved::new(Layer::Default, "", Means::Home)
}

/// What the hub keeps to itself whatever is written.
fn never_synced(input: &Input<'_>) -> Option<&'static str> {
    match follow::travel(input.subject) {
        Travel::Stays if kinds::of(&input.subject.group, &input.subject.kind).travel != Travel::Stays => {
            Some("every cluster makes one of its own")
        }
        Travel::Stays => Some("objects of its kind stay in the hub"),
        Travel::Named => None,
        _ if input.subject.namespace.is_empty() => Some("objects without a namespace are not synced"),
        _ => None,
    }
}

fn annotated<'a>(
    input: &Input<'a>,
    layer: Layer,
    annotations: &'a BTreeMap<String, String>,
) -> Option<Resolved<'a>> {
    // Most objects have no such annotation.
    if annotations.is_empty() {
        return None;
    }
    // It belongs to a federated object, which alone says where it is.
    if layer == Layer::Object
        && let Some(said) = annotations.get(dialect::FEDERATED)
    {
        let means = match dialect::federated(said) {
            Ok(rule) => Means::Rule(Cow::Owned(rule)),
            Err(problem) => Means::Broken(problem),
        };
        return Some(Resolved::new(layer, dialect::SOURCE, means));
    }
    let names = annotations.get(CLUSTERS).map(|text| list(text)).filter(|names| !names.is_empty());
    if let Some(names) = names {
        let rule = Rule {
            clusters: Choice::names(names),
            strategy: Some(Strategy::Divide),
            rebalance: true,
            ..Rule::default()
        };
        return Some(Resolved::new(layer, CLUSTERS, Means::Rule(Cow::Owned(rule))));
    }
    if let Some(name) = annotations.get(PLACEMENT).map(|it| it.trim()).filter(|it| !it.is_empty()) {
        let policy = input.workspace.get(name).or_else(|| input.root.get(name));
        let means = match policy {
            Some(policy) => Means::Rule(Cow::Borrowed(&policy.rule)),
            None => Means::Broken(Problem::NoPolicy(name.to_owned())),
        };
        return Some(Resolved::new(layer, name, means));
    }
    if layer != Layer::Object {
        return None;
    }
    let source = dialect::ANNOTATIONS;
    match dialect::rule(&input.subject.kind, annotations) {
        Ok(rule) => Some(Resolved::new(layer, source, Means::Rule(Cow::Owned(rule?)))),
        Err(problem) => Some(Resolved::new(layer, source, Means::Broken(problem))),
    }
}

fn list(text: &str) -> Vec<String> {
    let mut names: Vec<String> =
        text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}
