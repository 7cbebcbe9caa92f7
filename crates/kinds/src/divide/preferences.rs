//! What is asked for each cluster, as federation v1 writes it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Problem;

/// Stands for every cluster that is not named.
const ANY: &str = "*";

/// What is asked for one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    pub min: u64,
    pub max: Option<u64>,
    pub weight: u64,
}

/// What is asked for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// Replicas move to match the wanted division; otherwise what runs stays where it is.
    pub rebalance: bool,
    /// By name, or `*` for all others. Who is named inherits nothing from `*`; who is neither gets nothing.
    pub clusters: BTreeMap<String, Preference>,
}

impl Preferences {
    /// The same for every cluster, and what runs stays.
    pub fn even() -> Self {
        let one = Preference { weight: 1, ..Preference::default() };
        Self { rebalance: false, clusters: BTreeMap::from([(ANY.to_owned(), one)]) }
    }

    pub fn of(&self, cluster: &str) -> Option<&Preference> {
        self.clusters.get(cluster).or_else(|| self.clusters.get(ANY))
    }

    /// Reads the annotations `federation.kubernetes.io/{replica-set,deployment,job}-preferences`. Names of fields are
    /// those in Go, in any case; negative numbers are 0.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let value: Value = serde_json::from_str(text).map_err(|error| invalid("", &error.to_string()))?;
        if value.is_null() {
            return Ok(Self::default());
        }
        let Some(object) = value.as_object() else { return Err(invalid("", "must be an object")) };
        let mut preferences = Self::default();
        for (name, value) in object {
            if name.eq_ignore_ascii_case("rebalance") {
                preferences.rebalance = flag(value)?;
            } else if name.eq_ignore_ascii_case("clusters") {
                preferences.clusters = clusters(value)?;
            }
        }
        Ok(preferences)
    }
}

fn invalid(field: &str, reason: &str) -> Problem {
    Problem::Invalid { field: format!("preferences{field}"), reason: reason.to_owned() }
}

fn flag(value: &Value) -> Result<bool, Problem> {
    match value {
        Value::Null => Ok(false),
        value => value.as_bool().ok_or_else(|| invalid(".rebalance", "must be true or false")),
    }
}

fn clusters(value: &Value) -> Result<BTreeMap<String, Preference>, Problem> {
    if value.is_null() {
        return Ok(BTreeMap::new());
    }
    let Some(entries) = value.as_object() else { return Err(invalid(".clusters", "must be an object")) };
    entries.iter().map(|(name, value)| Ok((name.clone(), preference(name, value)?))).collect()
}

fn preference(cluster: &str, value: &Value) -> Result<Preference, Problem> {
    let mut preference = Preference::default();
    if value.is_null() {
        return Ok(preference);
    }
    let place = format!(".clusters[{cluster}]");
    let Some(fields) = value.as_object() else { return Err(invalid(&place, "must be an object")) };
    for (name, value) in fields {
        let number = || count(value).ok_or_else(|| invalid(&format!("{place}.{name}"), "must be a number"));
        if name.eq_ignore_ascii_case("minReplicas") {
            preference.min = number()?.unwrap_or(0);
        } else if name.eq_ignore_ascii_case("maxReplicas") {
            preference.max = number()?;
        } else if name.eq_ignore_ascii_case("weight") {
            preference.weight = number()?.unwrap_or(0);
        }
    }
    Ok(preference)
}

/// `Some(None)` if it is null, `None` if it is no whole number.
fn count(value: &Value) -> Option<Option<u64>> {
    match value {
        Value::Null => Some(None),
        value if value.as_i64().is_some_and(i64::is_negative) => Some(Some(0)),
        value => value.as_u64().map(Some),
    }
}
