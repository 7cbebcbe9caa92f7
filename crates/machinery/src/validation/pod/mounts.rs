//! Where a container finds the pod's volumes: as directories or as devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    super::parts::{Path, flag, items, object, text},
    volumes::{Volumes, descending_path, no_backsteps},
};
use crate::{field_error::Cause, resource::Tree};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

/// The devices or the mounts of a container by name, and all their paths; of one name the last counts.
fn places<'a>(
    container: &'a Tree,
    list: &str,
    path: &str,
) -> (BTreeMap<&'a str, &'a str>, BTreeSet<&'a str>) {
    let by_name: BTreeMap<&str, &str> =
        items(container, list).map(|(_, item)| (text(item, "name"), text(item, path))).collect();
    let paths = by_name.values().copied().collect();
    (by_name, paths)
}

pub fn mounts(container: &Tree, volumes: &Volumes<'_>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (devices, device_paths) = places(container, "volumeDevices", "devicePath");
    let mut taken = BTreeSet::new();
    for (at, mount) in items(container, "volumeMounts") {
        let mount_path = path.index(at);
        let (name, name_path) = (text(mount, "name"), mount_path.child("name"));
        let (target, target_path) = (text(mount, "mountPath"), mount_path.child("mountPath"));
        if name.is_empty() {
            causes.push(Cause::required(&name_path, ""));
        }
        if !volumes.contains_key(name) {
            causes.push(Cause::not_found(&name_path, &json!(name)));
        }
        if target.is_empty() {
            causes.push(Cause::required(&target_path, ""));
        }
        if !taken.insert(target) {
            causes.push(Cause::invalid(&target_path, &json!(target), "must be unique"));
        }
        if devices.contains_key(name) {
            causes.push(Cause::invalid(&name_path, &json!(name), "must not already exist in volumeDevices"));
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            causes.push(Cause::invalid(&target_path, &json!(target), detail));
        }
        causes.extend(parts_of_volume(mount, path, &mount_path));
        causes.extend(propagation(mount, container, &path.child("mountPropagation")));
        causes.extend(recursive_read_only(mount, &path.child("recursiveReadOnly")));
    }
    causes
}

/// Upstream names the list for what is inside a path.
fn parts_of_volume(mount: &Tree, list: &Path<'_>, path: &Path<'_>) -> Vec<Cause> {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    let mut causes = Vec::new();
    if !plain.is_empty() {
        causes.extend(descending_path(plain, &list.child("subPath")));
    }
    if !expression.is_empty() {
        if !plain.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            causes.push(Cause::invalid(&path.child("subPathExpr"), &json!(expression), detail));
        }
        causes.extend(descending_path(expression, &list.child("subPathExpr")));
    }
    causes
}

fn propagation(mount: &Tree, container: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(mode) = mount.get("mountPropagation").and_then(Value::as_str) else { return Vec::new() };
    let mut causes = Vec::new();
    if !PROPAGATIONS.contains(&mode) {
        causes.push(Cause::not_supported(path, &json!(mode), &PROPAGATIONS));
    }
    let is_privileged = object(container, "securityContext").is_some_and(|it| flag(it, "privileged"));
    if mode == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        causes.push(Cause::forbidden(path, detail));
    }
    causes
}

fn recursive_read_only(mount: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                causes.push(Cause::forbidden(path, "may only be specified when readOnly is true"));
            }
            let propagation = mount.get("mountPropagation").and_then(Value::as_str);
            if propagation.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                causes.push(Cause::forbidden(path, detail));
            }
        }
        Some(other) => causes.push(Cause::not_supported(path, &json!(other), &RECURSIVE)),
    }
    causes
}

pub fn devices(container: &Tree, volumes: &Volumes<'_>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (mounts, mount_paths) = places(container, "volumeMounts", "mountPath");
    let mut names = BTreeSet::new();
    let mut targets = BTreeSet::new();
    for (at, device) in items(container, "volumeDevices") {
        let device_path = path.index(at);
        let (name, name_path) = (text(device, "name"), device_path.child("name"));
        let (target, target_path) = (text(device, "devicePath"), device_path.child("devicePath"));
        let invalid_name = |detail: &str| Cause::invalid(&name_path, &json!(name), detail);
        let invalid_target = |detail: &str| Cause::invalid(&target_path, &json!(target), detail);
        if name.is_empty() {
            causes.push(Cause::required(&name_path, ""));
        }
        if names.contains(name) {
            causes.push(invalid_name("must be unique"));
        }
        match volumes.get(name) {
            None => causes.push(Cause::not_found(&name_path, &json!(name))),
            Some(it) if it.contains_key("persistentVolumeClaim") || it.contains_key("ephemeral") => {}
            Some(_) => causes.push(invalid_name(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            )),
        }
        if target.is_empty() {
            causes.push(Cause::required(&target_path, ""));
        }
        if targets.contains(target) {
            causes.push(invalid_target("must be unique"));
        }
        if no_backsteps(target, &target_path).is_some() {
            causes.push(invalid_target("can not contain backsteps ('..')"));
        } else {
            targets.insert(target);
        }
        if mounts.contains_key(name) {
            causes.push(invalid_name("must not already exist in volumeMounts"));
        }
        if mount_paths.contains(target) {
            causes.push(invalid_target("must not already exist as a path in volumeMounts"));
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
    causes
}
