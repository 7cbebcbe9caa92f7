//! Sources that make files of what the API knows: of the pod itself, and several in one volume.

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    super::{
        super::parts::{Path, items, number, object, text},
        environment::{Asker, field_reference, resource_reference},
        options::Options,
    },
    file_mode, keys_to_paths, local_path,
};
use crate::{field_error::Cause, resource::Tree};

const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

/// Upstream names the source where an item of it is wrong.
pub fn downward(source: &Tree, path: &Path<'_>, _: &Options) -> Vec<Cause> {
    let mut causes: Vec<Cause> = file_mode(source, "defaultMode", path).into_iter().collect();
    causes.extend(items(source, "items").flat_map(|(_, file)| downward_file(file, path)));
    causes
}

fn downward_file(file: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let target_path = path.child("path");
    if text(file, "path").is_empty() {
        causes.push(Cause::required(&target_path, ""));
    }
    causes.extend(local_path(text(file, "path"), &target_path));
    match (object(file, "fieldRef"), object(file, "resourceFieldRef")) {
        (Some(field), resource) => {
            causes.extend(field_reference(field, Asker::Volume, &path.child("fieldRef")));
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                causes.push(Cause::invalid(path, &json!("resource"), detail));
            }
        }
        (None, Some(resource)) => {
            causes.extend(resource_reference(resource, Asker::Volume, &path.child("resourceFieldRef")));
        }
        (None, None) => {
            causes.push(Cause::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    causes.extend(file_mode(file, "mode", path));
    causes
}

pub fn projected(source: &Tree, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes: Vec<Cause> = file_mode(source, "defaultMode", path).into_iter().collect();
    let sources = path.child("sources");
    let mut taken = BTreeSet::new();
    for (at, source) in items(source, "sources") {
        causes.extend(projection(source, path, &sources.index(at), &mut taken, options));
    }
    causes
}

/// One of several sources; `taken` are the paths of those before it.
fn projection<'a>(
    source: &'a Tree,
    volume: &Path<'_>,
    path: &Path<'_>,
    taken: &mut BTreeSet<&'a str>,
    options: &Options,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut sources = 0;
    for key in ["secret", "configMap"] {
        let Some(files) = object(source, key) else { continue };
        sources += 1;
        let files_path = path.child(key);
        let name = text(files, "name");
        if name.is_empty() {
            causes.push(Cause::required(&files_path.child("name"), ""));
        }
        causes.extend(keys_to_paths(files, &files_path));
        causes.extend(twice(files, taken).map(|_| conflict(volume, name)));
    }
    if let Some(downward) = object(source, "downwardAPI") {
        sources += 1;
        let downward_path = path.child("downwardAPI");
        causes.extend(items(downward, "items").flat_map(|(_, file)| downward_file(file, &downward_path)));
        causes.extend(twice(downward, taken).map(|target| conflict(volume, target)));
    }
    if let Some(token) = object(source, "serviceAccountToken") {
        sources += 1;
        causes.extend(token_projection(token, volume, &path.child("serviceAccountToken"), options));
    }
    if sources > 1 {
        causes.push(Cause::forbidden(path, "may not specify more than 1 volume type per source"));
    }
    causes
}

/// The paths that are taken already.
fn twice<'a>(source: &'a Tree, taken: &mut BTreeSet<&'a str>) -> impl Iterator<Item = &'a str> {
    let targets = items(source, "items").map(|(_, item)| text(item, "path"));
    targets.filter(|target| !target.is_empty() && !taken.insert(target))
}

fn conflict(volume: &Path<'_>, shown: &str) -> Cause {
    Cause::invalid(volume, &json!(shown), "conflicting duplicate paths")
}

fn token_projection(token: &Tree, volume: &Path<'_>, path: &Path<'_>, options: &Options) -> Vec<Cause> {
    let mut causes = Vec::new();
    let seconds = number(token, "expirationSeconds").unwrap_or(0);
    let seconds_path = path.child("expirationSeconds");
    if seconds < LEAST_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        causes.push(Cause::invalid(&seconds_path, &json!(seconds), detail));
    }
    if seconds > MOST_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        causes.push(Cause::invalid(&seconds_path, &json!(seconds), detail));
    }
    // Upstream names the volume here, not the source.
    match text(token, "path") {
        "" => causes.push(Cause::required(&volume.child("path"), "")),
        _ if options.any_token_path => {}
        target => causes.extend(local_path(target, &volume.child("path"))),
    }
    causes
}

/// Whether a stored spec has paths of tokens that would be refused now.
pub fn has_non_local_token_path(spec: &Tree) -> bool {
    let volumes = items(spec, "volumes").filter_map(|(_, volume)| object(volume, "projected"));
    let sources = volumes.flat_map(|projected| items(projected, "sources"));
    let mut tokens = sources.filter_map(|(_, source)| object(source, "serviceAccountToken"));
    tokens.any(|token| !local_path(text(token, "path"), &Path::new("")).is_empty())
}
