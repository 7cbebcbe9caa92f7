//! Calls of structured-merge-diff, repeated.

use std::collections::BTreeSet;

use machinery::{
    apply::{
        self, Duplicates, FieldSet, Filter, Managers, Matcher, MergeError, Object, Owned, PathElement,
        TypeRef, Updater, Versions,
    },
    resource::Tree,
};
use serde_json::{Value, json};

use crate::{Call, schemas::Schemas};

pub type Outcome = Result<(), String>;

pub fn check(schemas: &Schemas, call: &Call<'_>) -> Outcome {
    match call.text("call") {
        "union" | "intersection" | "difference" | "recursiveDifference" | "leaves" => sets(call),
        "toJSON" | "fromJSON" => encoding(call),
        "parseElement" => element(call),
        "filterInclude" => {
            let matcher = matcher(&call.fields["prefixes"])?;
            same_set(call, &Filter::Include(matcher).apply(set(&call.fields["left"])?))
        }
        "update" | "apply" => write(schemas, call),
        _ => typed(schemas, call),
    }
}

fn set(recorded: &Value) -> Result<FieldSet, String> {
    let text = recorded.as_str().ok_or("no set was recorded")?;
    FieldSet::from_json(text).map_err(|error| error.to_string())
}

pub fn expect<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Outcome {
    if ours == theirs { Ok(()) } else { Err(format!("{what}\n  ours:   {ours:?}\n  theirs: {theirs:?}")) }
}

fn same_set(call: &Call<'_>, ours: &FieldSet) -> Outcome {
    expect("set", ours.to_json().as_str(), call.text("result"))
}

pub fn same_value(what: &str, ours: &Value, theirs: &Value) -> Outcome {
    if apply::compare_values(ours, theirs).is_eq() {
        return Ok(());
    }
    Err(format!("{what}\n  ours:   {ours}\n  theirs: {theirs}"))
}

/// Errors are the same in the same words. Upstream looks at the members of a map in no particular order, and not at the
/// rest of them after one that is not declared: of those, only where they are is compared.
fn same_error(call: &Call<'_>, ours: Option<String>) -> Outcome {
    const UNDECLARED: &str = ": field not declared in schema";
    let lines = |text: &str| -> BTreeSet<String> {
        let undeclared = text.lines().filter_map(|line| line.strip_suffix(UNDECLARED));
        let parents: BTreeSet<String> = undeclared
            .map(|path| path.rsplit_once('.').map_or("", |(parent, _)| parent))
            .map(|parent| format!("{parent}.*{UNDECLARED}"))
            .collect();
        if parents.is_empty() { text.lines().map(str::to_owned).collect() } else { parents }
    };
    // Recorded values came from YAML.
    let theirs = call.fields["error"].as_str();
    let theirs = theirs.map(|text| text.replace("map[interface {}]interface {}", "map[string]interface {}"));
    expect("error", ours.map(|text| lines(&text)), theirs.map(|text| lines(&text)))
}

fn sets(call: &Call<'_>) -> Outcome {
    let left = set(&call.fields["left"])?;
    let right = || set(&call.fields["right"]);
    let result = match call.text("call") {
        "union" => left.union(right()?),
        "intersection" => left.intersection(&right()?),
        "difference" => left.difference(&right()?),
        "leaves" => left.leaves(),
        _ => left.recursive_difference(&right()?),
    };
    same_set(call, &result)
}

fn encoding(call: &Call<'_>) -> Outcome {
    let input = if call.text("call") == "fromJSON" { call.text("input") } else { call.text("result") };
    let read = FieldSet::from_json(input);
    if !call.fields["error"].is_null() {
        return expect("refused", read.is_err(), true);
    }
    let read = read.map_err(|error| error.to_string())?;
    same_set(call, &read)?;
    expect("as part of a tree", FieldSet::from_value(&read.to_value()), Ok(read.clone()))?;
    // Numbers print as integers where the test made them of integers.
    expect("paths", read.to_string(), call.text("paths").to_owned())
}

fn element(call: &Call<'_>) -> Outcome {
    let ours = PathElement::parse(call.text("input"));
    let is_error = !call.fields["error"].is_null();
    expect("refused", ours.is_err(), is_error)?;
    let Ok(element) = ours else { return Ok(()) };
    let mut text = String::new();
    element.write(&mut text);
    expect("text", text.as_str(), call.text("result"))?;
    expect("shown", without_order(call, &element.to_string()), without_order(call, call.text("show")))
}

/// Go shows the keys of a map that is a key's value in no order; everything else is shown in one.
fn without_order(call: &Call<'_>, shown: &str) -> Vec<char> {
    let mut characters: Vec<char> = shown.chars().collect();
    if call.text("input").matches('{').count() > 1 {
        characters.sort_unstable();
    }
    characters
}

fn typed(schemas: &Schemas, call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    let Some(ty) = schemas.get(fields) else { return Err("no type".to_owned()) };
    let value = &fields["value"];
    match call.text("call") {
        "validate" => {
            let duplicates = if call.is("duplicates") { Duplicates::Allowed } else { Duplicates::Refused };
            same_error(call, apply::validate(ty, value, duplicates).err().map(|error| error.to_string()))
        }
        "fieldSet" => match apply::field_set(ty, value) {
            Ok(set) => same_set(call, &set),
            Err(error) => same_error(call, Some(error.to_string())),
        },
        "merge" => match apply::merge_values(ty, value, &fields["over"]) {
            Ok(merged) => {
                same_error(call, None).and_then(|()| same_value("merged", &merged, &fields["result"]))
            }
            Err(error) => same_error(call, Some(error.to_string())),
        },
        "compare" => match apply::compare(ty, value, &fields["with"]) {
            Ok(comparison) => {
                same_error(call, None)?;
                expect("added", comparison.added.to_json().as_str(), call.text("added"))?;
                expect("modified", comparison.modified.to_json().as_str(), call.text("modified"))?;
                expect("removed", comparison.removed.to_json().as_str(), call.text("removed"))
            }
            Err(error) => same_error(call, Some(error.to_string())),
        },
        "remove" => {
            let left = apply::remove_from_value(ty, value.clone(), &set(&fields["set"])?);
            same_value("left", &left, &fields["result"])
        }
        "extract" => {
            let wanted = set(&fields["set"])?;
            let left = match (call.is("keys"), value) {
                (true, Value::Object(tree)) => {
                    Value::Object(apply::extract_fields(ty, tree.clone(), &wanted, true))
                }
                _ => apply::extract_from_value(ty, value.clone(), &wanted),
            };
            same_value("extracted", &left, &fields["result"])
        }
        "reconcile" => {
            let reconciled = apply::reconcile(ty, &set(&fields["set"])?);
            expect("set", reconciled.map(|set| set.to_json()).as_deref(), fields["result"].as_str())
        }
        "withNamedFields" => same_set(call, &apply::with_named_fields(Some(ty), &set(&fields["left"])?)),
        other => Err(format!("no such call: {other}")),
    }
}

pub fn matcher(prefixes: &Value) -> Result<Matcher, String> {
    let mut paths = Vec::new();
    for prefix in prefixes.as_array().into_iter().flatten() {
        let elements = prefix.as_array().into_iter().flatten().map(|element| match element.as_str() {
            Some(text) => PathElement::parse(text).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        });
        paths.push(elements.collect::<Result<Vec<_>, String>>()?);
    }
    Ok(Matcher::prefixes(paths.iter().map(Vec::as_slice)))
}

/// What upstream's converter made of which objects. It is asked in no particular order, so that not all that we ask
/// was recorded; the converters that tests use often are made again here.
struct Conversions<'c> {
    schemas: &'c Schemas,
    converter: &'c str,
    recorded: &'c [Value],
}

impl Conversions<'_> {
    fn made_again(&self, object: &Value, api_version: &str) -> Option<Value> {
        match self.converter {
            "dummyConverter" | "specificVersionConverter" | "sameInAll" => Some(object.clone()),
            "repeatingConverter" => {
                let times = api_version.trim_start_matches('v').parse().ok()?;
                let mut object = object.clone();
                object.as_object_mut()?.values_mut().for_each(|value| repeat_keys(value, times));
                Some(object)
            }
            "renamingConverter" => {
                let mut object = object.clone();
                rename_keys(&mut object, api_version);
                Some(object)
            }
            _ => None,
        }
    }
}

/// Keys are one letter, as often as the number of the version says.
fn repeat_keys(value: &mut Value, times: usize) {
    let Value::Object(members) = value else { return };
    for (key, mut member) in std::mem::take(members) {
        repeat_keys(&mut member, times);
        members.insert(key.chars().take(1).collect::<String>().repeat(times), member);
    }
}

/// Keys that end with a version end with another one.
fn rename_keys(value: &mut Value, version: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename_keys(item, version)),
        Value::Object(members) => {
            for (key, mut member) in std::mem::take(members) {
                rename_keys(&mut member, version);
                let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
                let key = match stem.strip_suffix("_v") {
                    Some(stem) => format!("{stem}_{version}"),
                    None => key,
                };
                members.insert(key, member);
            }
        }
        _ => {}
    }
}

impl Versions for Conversions<'_> {
    fn type_at(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let known = self
            .recorded
            .iter()
            .find(|conversion| conversion["version"] == api_version && conversion["error"].is_null())?;
        self.schemas.get(known)
    }

    fn convert(&self, object: &Tree, api_version: &str) -> Result<Tree, String> {
        let object = Value::Object(object.clone());
        if let Some(converted) = self.made_again(&object, api_version) {
            return Ok(tree(&converted));
        }
        let same = |conversion: &&Value| {
            conversion["version"] == api_version
                && apply::compare_values(&root(&conversion["object"]), &object).is_eq()
        };
        let Some(known) = self.recorded.iter().find(same) else {
            return Err(format!("upstream did not convert {object} to {api_version}"));
        };
        match known["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(tree(&known["result"])),
        }
    }
}

/// An object that is not there is empty.
fn tree(value: &Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

fn root(value: &Value) -> Value {
    Value::Object(tree(value))
}

fn managers(recorded: &Value) -> Result<Managers, String> {
    let mut managers = Managers::new();
    for (manager, owned) in recorded.as_object().into_iter().flatten() {
        let api_version = owned["version"].as_str().unwrap_or_default().to_owned();
        let applied = owned["applied"].as_bool().unwrap_or_default();
        managers.insert(manager.clone(), Owned { set: set(&owned["set"])?, api_version, applied });
    }
    Ok(managers)
}

fn show(managers: &Managers) -> Value {
    let show = |owned: &Owned| json!({"set": owned.set.to_json(), "version": owned.api_version, "applied": owned.applied});
    managers.iter().map(|(manager, owned)| (manager.clone(), show(owned))).collect()
}

pub fn filters(recorded: &Value) -> Result<Vec<(&str, Filter)>, String> {
    let filter = |filter: &Value| match filter.get("exclude") {
        Some(exclude) => set(exclude).map(Filter::Exclude),
        None => matcher(&filter["include"]).map(Filter::Include),
    };
    let versions = recorded.as_object().into_iter().flatten();
    versions.map(|(version, recorded)| Ok((version.as_str(), filter(recorded)?))).collect()
}

fn write(schemas: &Schemas, call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    let ty = schemas.get(fields).ok_or("no type")?;
    let recorded = fields["conversions"].as_array().map_or(&[][..], Vec::as_slice);
    let versions = Conversions { schemas, converter: call.text("converter"), recorded };
    let filters = filters(&fields["filters"])?;
    let updater = Updater { versions: &versions, filters: &filters };
    let (live, other) = (tree(&fields["live"]), tree(&fields["other"]));
    let version = call.text("version");
    let (live, other) = (Object::new(&live, ty, version), Object::new(&other, ty, version));
    let (managers, manager) = (managers(&fields["managers"])?, call.text("manager"));
    let result = if call.text("call") == "update" {
        updater.update(&live, &other, managers, manager).map(|managers| (None, managers))
    } else {
        updater.apply(&live, &other, managers, manager, call.is("force"))
    };
    match result {
        Err(MergeError::Conflicts(conflicts)) => {
            let ours: BTreeSet<(String, String)> = conflicts
                .into_iter()
                .map(|conflict| (conflict.manager, apply::show_path(&conflict.path)))
                .collect();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let theirs = fields["conflicts"].as_array().into_iter().flatten();
            let theirs = theirs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
            expect("conflicts", ours, theirs)
        }
        Err(MergeError::Failed(error)) => same_error(call, Some(error)),
        Ok((object, managers)) => {
            same_error(call, None)?;
            expect("managers", show(&managers), fields["result"].clone())?;
            if call.text("call") == "update" || call.is("always") {
                return Ok(());
            }
            expect("changed", object.is_some(), call.is("changed"))?;
            match object {
                Some(object) => same_value("object", &Value::Object(object), &root(&fields["object"])),
                None => Ok(()),
            }
        }
    }
}
