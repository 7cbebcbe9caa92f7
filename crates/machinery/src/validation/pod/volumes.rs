//! Volumes of a pod and what they come from.

mod projected;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{
    super::parts::{Path, dns_label, items, object, text},
    options::Options,
};
use crate::{field_error::Cause, resource::Tree};

pub use projected::has_non_local_token_path;

const ONLY_ONE: &str = "may not specify more than 1 volume type";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Volumes by name.
pub type Volumes<'a> = BTreeMap<&'a str, &'a Tree>;

/// What is wrong with the volumes, and which ones are right: only those can be mounted.
pub fn volumes<'a>(
    spec: &'a Tree,
    pod_name: &str,
    path: &Path<'_>,
    options: &Options,
) -> (Volumes<'a>, Vec<Cause>) {
    let mut causes = Vec::new();
    let mut right = Volumes::new();
    let created: BTreeSet<String> = items(spec, "volumes")
        .filter(|(_, volume)| !pod_name.is_empty() && volume.contains_key("ephemeral"))
        .map(|(_, volume)| format!("{pod_name}-{}", text(volume, "name")))
        .collect();
    for (at, volume) in items(spec, "volumes") {
        let volume_path = path.index(at);
        let (name, name_path) = (text(volume, "name"), volume_path.child("name"));
        let mut own = sources::source(volume, pod_name, &volume_path, options);
        match name {
            "" => own.push(Cause::required(&name_path, "")),
            _ => own.extend(dns_label(name, &name_path)),
        }
        if right.contains_key(name) {
            own.push(Cause::duplicate(&name_path, &json!(name)));
        }
        if own.is_empty() {
            right.insert(name, volume);
        }
        causes.extend(own);
        let claim = object(volume, "persistentVolumeClaim").map(|claim| text(claim, "claimName"));
        if let Some(claim) = claim.filter(|claim| created.contains(*claim)) {
            let claim_path = volume_path.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            causes.push(Cause::invalid(&claim_path.child("claimName"), &json!(claim), detail));
        }
    }
    (right, causes)
}

/// No part of a path leads upwards.
pub fn no_backsteps(value: &str, path: &Path<'_>) -> Option<Cause> {
    value
        .split('/')
        .any(|part| part == "..")
        .then(|| Cause::invalid(path, &json!(value), "must not contain '..'"))
}

/// A path that stays below where it starts.
pub fn descending_path(value: &str, path: &Path<'_>) -> Vec<Cause> {
    let absolute =
        value.starts_with('/').then(|| Cause::invalid(path, &json!(value), "must be a relative path"));
    absolute.into_iter().chain(no_backsteps(value, path)).collect()
}

/// As [`descending_path`], for files that stand among the kubelet's own.
pub fn local_path(value: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = descending_path(value, path);
    if value.starts_with("..") && !value.starts_with("../") {
        causes.push(Cause::invalid(path, &json!(value), "must not start with '..'"));
    }
    causes
}

/// The permissions of files, if they are given.
fn file_mode(holder: &Tree, key: &str, path: &Path<'_>) -> Option<Cause> {
    let mode = holder.get(key).filter(|mode| !mode.as_i64().is_some_and(|it| (0..=0o777).contains(&it)))?;
    Some(Cause::invalid(&path.child(key), mode, FILE_MODE))
}

/// The keys of a config map or a secret that become files.
fn keys_to_paths(source: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let list = path.child("items");
    for (at, item) in items(source, "items") {
        let item_path = list.index(at);
        if text(item, "key").is_empty() {
            causes.push(Cause::required(&item_path.child("key"), ""));
        }
        let target_path = item_path.child("path");
        if text(item, "path").is_empty() {
            causes.push(Cause::required(&target_path, ""));
        }
        causes.extend(local_path(text(item, "path"), &target_path));
        causes.extend(file_mode(item, "mode", &item_path));
    }
    causes
}

/// The texts that a source must have.
fn require(source: &Tree, keys: &[&str], path: &Path<'_>) -> Vec<Cause> {
    let missing = keys.iter().filter(|key| text(source, key).is_empty());
    missing.map(|key| Cause::required(&path.child(key), "")).collect()
}
