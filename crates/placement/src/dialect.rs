//! How federation v1 and KubeFed say where things run, read into our own words.

use std::collections::BTreeMap;

use compact_str::CompactString;
use kinds::divide::{Algorithm, Preferences};
use machinery::selector::{LabelSelector, Operator, Requirement};
use serde_json::Value;

use crate::{
    Problem,
    policy::{By, Choice, Rule, Shares, Strategy},
};

pub const CLUSTER_SELECTOR: &str = "federation.alpha.kubernetes.io/cluster-selector";
/// What the plain object says that was made from a federated one.
pub const FEDERATED: &str = "hanse.io/federated";
/// What a decision by it says that it was made by.
pub const SOURCE: &str = "its federated object";
/// The same, of an object with annotations of federation v1.
pub const ANNOTATIONS: &str = "annotations of federation";
/// By the kind whose replicas they are about.
pub const PREFERENCES: [(&str, &str); 3] = [
    ("ReplicaSet", "federation.kubernetes.io/replica-set-preferences"),
    ("Deployment", "federation.kubernetes.io/deployment-preferences"),
    ("Job", "federation.kubernetes.io/job-preferences"),
];

/// A kind that federation divided and that has no preferences of its own: by its bounds.
const AUTOSCALER: &str = "HorizontalPodAutoscaler";

/// Whether an annotation is one that says where an object is to be.
pub fn is_read(annotation: &str) -> bool {
    annotation == CLUSTER_SELECTOR || PREFERENCES.iter().any(|(_, name)| *name == annotation)
}

/// Whether federation's annotations decide where an object of the kind is: no other says so, and one is about its kind.
/// Namespaces go wherever something of them is.
pub fn decides<'a>(kind: &str, annotation: impl Fn(&str) -> Option<&'a str>) -> bool {
    let is_said = |name: &str| annotation(name).is_some_and(|it| !it.trim_matches([',', ' ']).is_empty());
    let by_others = is_said(crate::CLUSTERS) || is_said(crate::PLACEMENT) || annotation(FEDERATED).is_some();
    let about_it = PREFERENCES.iter().any(|(of, name)| *of == kind && annotation(name).is_some());
    kind != "Namespace" && !by_others && (about_it || annotation(CLUSTER_SELECTOR).is_some())
}

/// Whether what decided is federation v1's: its annotations, or a `Placement` that divides as it did. What federated objects
/// of KubeFed say is neither, however they are divided.
pub fn is_of_the_first(source: &str, divides_so: bool) -> bool {
    source == ANNOTATIONS || (divides_so && source != SOURCE)
}

/// Reads the value of the annotation `cluster-selector`: a list of requirements, all of which must hold.
pub fn selector(text: &str) -> Result<LabelSelector, Problem> {
    let wrong = |reason: String| Problem::Annotation { name: CLUSTER_SELECTOR.to_owned(), reason };
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let requirements = match &value {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().map(requirement).collect::<Result<_, _>>().map_err(wrong)?,
        _ => return Err(wrong("must be a list".to_owned())),
    };
    Ok(LabelSelector::of(requirements))
}

fn requirement(value: &Value) -> Result<Requirement, String> {
    let Some(fields) = value.as_object() else { return Err("must be a list of objects".to_owned()) };
    // As Go reads them: by its name, else by its name in any case.
    let get = |field: &str| {
        let mut alike = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(field));
        fields.get(field).or_else(|| alike.next().map(|(_, value)| value))
    };
    let text = |field: &str| match get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| format!("{field} must be a string")),
    };
    let operator = match text("operator")? {
        "in" | "In" => Operator::In,
        "=" => Operator::Equals,
        "==" => Operator::DoubleEquals,
        "notin" | "NotIn" => Operator::NotIn,
        "!=" => Operator::NotEquals,
        "exists" | "Exists" => Operator::Exists,
        "!" | "DoesNotExist" => Operator::DoesNotExist,
        "gt" | "Gt" | ">" => Operator::GreaterThan,
        "lt" | "Lt" | "<" => Operator::LessThan,
        other => return Err(format!("{other:?} is not a valid operator")),
    };
    let values = match get("values") {
        None | Some(Value::Null) => &[][..],
        Some(value) => value.as_array().ok_or_else(|| "values must be a list".to_owned())?,
    };
    let text_of = |value: &Value| {
        value.as_str().map(CompactString::from).ok_or_else(|| "values must be strings".to_owned())
    };
    let values = values.iter().map(text_of).collect::<Result<_, _>>()?;
    Requirement::new(text("key")?, operator, values)
}

/// What an object of the kind says by federation's annotations; `None`: nothing.
pub fn rule(kind: &str, annotations: &BTreeMap<String, String>) -> Result<Option<Rule>, Problem> {
    let selects = annotations.get(CLUSTER_SELECTOR).map(|text| selector(text)).transpose()?;
    let name = PREFERENCES.iter().find(|(of, _)| *of == kind).map(|(_, name)| *name);
    let preferences = name.and_then(|name| annotations.get(name).map(|text| (name, text)));
    if selects.is_none() && preferences.is_none() {
        return Ok(None);
    }
    // As upstream has it, preferences that cannot be read would mean the default, which moves replicas: here nothing does.
    let preferences = match preferences {
        None => Preferences::even(),
        Some((name, text)) => Preferences::parse(text)
            .map_err(|error| Problem::Annotation { name: name.to_owned(), reason: error.to_string() })?,
    };
    let divides = kind == AUTOSCALER || PREFERENCES.iter().any(|(of, _)| *of == kind);
    let rule = Rule {
        exact: true,
        clusters: Choice { names: None, selector: selects },
        strategy: Some(if divides { Strategy::Divide } else { Strategy::Duplicate }),
        ..Rule::default()
    };
    Ok(Some(rule.divided(&preferences)))
}

impl Rule {
    /// As federation divides.
    fn divided(self, preferences: &Preferences) -> Rule {
        Rule {
            by: By::Weight,
            algorithm: Algorithm::Federation,
            rebalance: preferences.rebalance,
            shares: Shares::from(preferences),
            ..self
        }
    }
}

/// `spec.placement` of KubeFed: names if there are any given, else the selector, else nowhere.
pub fn kubefed_choice(placement: &Value) -> Result<Choice, Problem> {
    let name = |it: &Value| it["name"].as_str().map(str::to_owned);
    match (&placement["clusters"], &placement["clusterSelector"]) {
        (Value::Array(clusters), _) => Ok(Choice::names(clusters.iter().filter_map(name).collect())),
        (_, Value::Null) => Ok(Choice::nowhere()),
        (_, selector) => {
            let field = "spec.placement.clusterSelector".to_owned();
            let selector = LabelSelector::from_object(selector)
                .map_err(|reason| Problem::Annotation { name: field, reason })?;
            Ok(Choice { names: None, selector: Some(selector) })
        }
    }
}

/// What an object was made from that KubeFed federates, as the annotation `hanse.io/federated` has it: where it is
/// (`placement`), what its namespace allows (`namespace`), and how its replicas are divided (`preferences`); without the
/// last each cluster has all of it.
pub fn federated(text: &str) -> Result<Rule, Problem> {
    let wrong = |reason: String| Problem::Annotation { name: FEDERATED.to_owned(), reason };
    let said: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let own = kubefed_choice(&said["placement"])?;
    let clusters = match &said["namespace"] {
        Value::Null => own,
        namespace => own.within(kubefed_choice(namespace)?),
    };
    let rule = Rule { clusters, exact: true, strategy: Some(Strategy::Duplicate), ..Rule::default() };
    let Some(preferences) = said.get("preferences") else { return Ok(rule) };
    let preferences =
        Preferences::parse(&preferences.to_string()).map_err(|error| wrong(error.to_string()))?;
    Ok(Rule { strategy: Some(Strategy::Divide), ..rule.divided(&preferences) })
}
