//! A federated object, in whichever form it was written, read into one.

use std::fmt;

use serde_json::{Value, json};

use crate::types::{FederatedType, Form};

/// What a federated object says, in the words of the later, unified form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Federated {
    pub template: Value,
    /// `{clusters: [{name}], clusterSelector}`
    pub placement: Value,
    /// `[{clusterName, clusterOverrides: [{op, path, value}]}]`
    pub overrides: Value,
    pub retains_replicas: bool,
}

/// Objects of the same name that say a part of it, in the forms that have them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    pub placement: Option<&'a Value>,
    pub overrides: Option<&'a Value>,
}

/// Why nothing can be made of it. Copies that are there stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    Placement(String),
    Overrides(String),
    Template(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Problem::Placement(why) | Problem::Overrides(why) | Problem::Template(why)) = self;
        formatter.write_str(why)
    }
}

/// Where an object says that it is to be, in the words of the unified form, in whichever form it says so.
pub fn placement_of(ty: &FederatedType, object: &Value, beside: Beside<'_>) -> Value {
    match ty.form {
        Form::Unified => object["spec"]["placement"].clone(),
        Form::Typed(_) | Form::Dotted => separate_placement(beside.placement),
    }
}

pub fn read(ty: &FederatedType, object: &Value, beside: Beside<'_>) -> Result<Federated, Problem> {
    let spec = &object["spec"];
    let template = spec["template"].clone();
    let placement = placement_of(ty, object, beside);
    let federated = match ty.form {
        Form::Unified => Federated {
            placement,
            overrides: spec["overrides"].clone(),
            retains_replicas: spec["retainReplicas"] == true,
            template,
        },
        Form::Typed(path) => Federated {
            placement,
            overrides: typed(&template, beside.overrides, path)?,
            retains_replicas: false,
            template,
        },
        Form::Dotted => Federated {
            placement,
            overrides: dotted(&template, beside.overrides)?,
            retains_replicas: false,
            template,
        },
    };
    let secret = federated.template["type"].as_str().filter(|_| ty.is_for("", "secrets"));
    if let Some(secret) = secret.filter(|it| kinds::HUB_CREDENTIALS.contains(it)) {
        let why = format!("a Secret of the type {secret} is good where it was made alone, and goes nowhere");
        return Err(Problem::Template(why));
    }
    placement::dialect::kubefed_choice(&federated.placement)
        .map_err(|problem| Problem::Placement(problem.to_string()))?;
    check_entries(&federated.overrides)?;
    kinds::overrides::read(&federated.overrides)
        .map_err(|problem| Problem::Overrides(problem.to_string()))?;
    Ok(federated)
}

/// Kinds of one's own have the schema that somebody gave them, which may allow anything.
fn check_entries(overrides: &Value) -> Result<(), Problem> {
    let wrong = |index: usize| Problem::Overrides(format!("overrides[{index}] is no object"));
    let mut entries = overrides.as_array().into_iter().flatten();
    entries.position(|entry| !entry.is_object()).map_or(Ok(()), |index| Err(wrong(index)))
}

/// Without one it is nowhere.
fn separate_placement(placement: Option<&Value>) -> Value {
    let Some(spec) = placement.map(|it| &it["spec"]) else { return json!({}) };
    let mut placement = json!({});
    if let Some(names) = spec["clusterNames"].as_array() {
        placement["clusters"] = names.iter().map(|name| json!({"name": name})).collect();
    }
    if let Some(selector) = spec.get("clusterSelector").filter(|it| !it.is_null()) {
        placement["clusterSelector"] = selector.clone();
    }
    placement
}

fn entries(overrides: Option<&Value>) -> &[Value] {
    overrides.and_then(|it| it["spec"]["overrides"].as_array()).map(Vec::as_slice).unwrap_or_default()
}

/// One field for each cluster, by the last part of where it belongs.
fn typed(template: &Value, overrides: Option<&Value>, path: &str) -> Result<Value, Problem> {
    let entries = entries(overrides);
    if path.is_empty() && !entries.is_empty() {
        return Err(Problem::Overrides("nothing of this kind can differ between clusters".to_owned()));
    }
    let field = path.rsplit('.').next().unwrap_or_default();
    let read = |entry: &Value| {
        let value = entry.get(field).ok_or_else(|| {
            let cluster = entry["clusterName"].as_str().unwrap_or_default();
            Problem::Overrides(format!("the override for the cluster {cluster:?} has no {field}"))
        })?;
        let changes = put(template, &[(path, value)])?;
        Ok(json!({"clusterName": entry["clusterName"], "clusterOverrides": changes}))
    };
    entries.iter().map(read).collect()
}

fn dotted(template: &Value, overrides: Option<&Value>) -> Result<Value, Problem> {
    let read = |entry: &Value| {
        let changes = entry["clusterOverrides"].as_array().map(Vec::as_slice).unwrap_or_default();
        let changes: Vec<(&str, &Value)> =
            changes.iter().map(|it| (it["path"].as_str().unwrap_or_default(), &it["value"])).collect();
        Ok(json!({"clusterName": entry["clusterName"], "clusterOverrides": put(template, &changes)?}))
    };
    entries(overrides).iter().map(read).collect()
}

/// As changes of the template, which makes whatever is missing above a place.
fn put(template: &Value, values: &[(&str, &Value)]) -> Result<Vec<Value>, Problem> {
    let mut done = template.clone();
    let mut changes = Vec::new();
    for (path, value) in values {
        let keys: Vec<&str> = path.split('.').filter(|key| !key.is_empty()).collect();
        if keys.is_empty() {
            return Err(Problem::Overrides("an override has no path".to_owned()));
        }
        let pointer = |keys: &[&str]| {
            keys.iter()
                .map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1")))
                .collect::<String>()
        };
        // The first that is missing is made with all that is below it.
        let missing = (1..keys.len()).find(|end| done.pointer(&pointer(&keys[..*end])).is_none());
        let end = missing.unwrap_or(keys.len());
        let below = keys[end..].iter().rev().fold((*value).clone(), |below, key| json!({*key: below}));
        let change = json!({"op": "add", "path": pointer(&keys[..end]), "value": below});
        let wrong = |why: String| Problem::Overrides(format!("{path}: {why}"));
        machinery::patch::json_patch(&mut done, json!([change]).to_string().as_bytes())
            .map_err(|error| wrong(error.to_string()))?;
        changes.push(change);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DOTTED_GROUP, TYPED_GROUP, types};

    fn ty(group: &str, plural: &str) -> FederatedType {
        types::builtin().into_iter().find(|it| it.is_at(group, plural)).unwrap()
    }

    #[test]
    fn the_form_of_three_objects_says_the_same_as_one() {
        let object = json!({"spec": {"template": {"spec": {"replicas": 5}}}});
        let placement = json!({"spec": {"clusterNames": ["a", "b"]}});
        let overrides = json!({"spec": {"overrides": [{"clusterName": "b", "replicas": 10}]}});
        let beside = Beside { placement: Some(&placement), overrides: Some(&overrides) };
        let read = read(&ty(TYPED_GROUP, "federatedreplicasets"), &object, beside).unwrap();
        assert_eq!(read.placement, json!({"clusters": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(
            read.overrides,
            json!([{"clusterName": "b", "clusterOverrides": [{"op": "add", "path": "/spec/replicas", "value": 10}]}])
        );
    }

    #[test]
    fn without_a_placement_it_is_nowhere_and_without_an_override_as_it_is() {
        let object = json!({"spec": {"template": {"data": {}}}});
        let read = read(&ty(TYPED_GROUP, "federatedconfigmaps"), &object, Beside::default()).unwrap();
        assert_eq!((read.placement, read.overrides), (json!({}), json!([])));
    }

    #[test]
    fn paths_in_dots_make_what_is_missing_above_them() {
        let object = json!({"spec": {"template": {"spec": {"replicas": 1}}}});
        let changes = json!([
            {"path": "spec.replicas", "value": 2},
            {"path": "metadata.annotations.a", "value": "x"},
            {"path": "metadata.annotations.b", "value": "y"},
        ]);
        let overrides = json!({"spec": {"overrides": [{"clusterName": "a", "clusterOverrides": changes}]}});
        let beside = Beside { placement: None, overrides: Some(&overrides) };
        let read = read(&ty(DOTTED_GROUP, "federateddeployments"), &object, beside).unwrap();
        let changes = &kinds::overrides::read(&read.overrides).unwrap()["a"];
        let mut copy = read.template.clone();
        kinds::overrides::apply(&mut copy, changes).unwrap();
        assert_eq!(copy, json!({"spec": {"replicas": 2}, "metadata": {"annotations": {"a": "x", "b": "y"}}}));
    }

    #[test]
    fn what_an_override_lacks_is_said() {
        let object = json!({"spec": {"template": {"spec": {"replicas": 1}}}});
        let overrides = json!({"spec": {"overrides": [{"clusterName": "a"}]}});
        let beside = Beside { placement: None, overrides: Some(&overrides) };
        let problem = read(&ty(TYPED_GROUP, "federateddeployments"), &object, beside).unwrap_err();
        assert!(problem.to_string().contains("no replicas"), "{problem}");
    }

    #[test]
    fn an_override_that_is_no_object_is_said() {
        for entry in [json!("a"), json!(7), json!(["a"]), Value::Null] {
            let object = json!({"spec": {"template": {}, "overrides": [{"clusterName": "a"}, entry]}});
            let problem = read(&ty(crate::TYPES_GROUP, "federateddeployments"), &object, Beside::default());
            let says_where = |why: &str| why.contains("overrides[1]");
            assert!(matches!(&problem, Err(Problem::Overrides(why)) if says_where(why)), "{problem:?}");
        }
    }

    #[test]
    fn tokens_of_the_hub_are_not_federated() {
        let object = json!({"spec": {"template": {"type": "kubernetes.io/service-account-token"}}});
        let problem = read(&ty(TYPED_GROUP, "federatedsecrets"), &object, Beside::default()).unwrap_err();
        assert!(matches!(&problem, Problem::Template(why) if why.contains("goes nowhere")), "{problem}");
        let object = json!({"spec": {"template": {"type": "Opaque"}}});
        assert!(read(&ty(TYPED_GROUP, "federatedsecrets"), &object, Beside::default()).is_ok());
    }
}
