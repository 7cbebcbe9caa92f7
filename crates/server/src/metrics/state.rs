//! What is read when somebody asks: the process, and what is stored.

use std::collections::BTreeMap;

use machinery::builtin;
use store::Collection;

use super::{OTHER, text::metric};
use crate::{health, hub::Hub};

/// Metrics of this moment.
pub fn describe(hub: &Hub, out: &mut String) {
    process(hub, out);
    build(out);
    objects(hub, out);
    views(hub, out);
    let workspaces = hub.store.workspaces().len() as f64;
    metric(out, "hanse_workspaces", "gauge", "Workspaces that hold something", [(&[][..], workspaces)]);
}

fn process(hub: &Hub, out: &mut String) {
    let Some(usage) = hub.env.process.usage() else { return };
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        metric(out, &format!("process_{name}"), kind, help, [(&[][..], value)]);
    };
    one("cpu_seconds_total", "counter", "User and system CPU time in seconds", usage.cpu.as_secs_f64());
    one("open_fds", "gauge", "Open file descriptors", usage.open_files as f64);
    one("max_fds", "gauge", "File descriptors that may be open", usage.max_files as f64);
    one("virtual_memory_bytes", "gauge", "Virtual memory in bytes", usage.virtual_bytes as f64);
    one("resident_memory_bytes", "gauge", "Resident memory in bytes", usage.resident_bytes as f64);
    one("start_time_seconds", "gauge", "When the process started, in seconds since 1970", usage.started);
}

fn build(out: &mut String) {
    let (major, minor, _) = health::KUBERNETES_VERSION;
    let version = health::version();
    let text = |key: &str| version[key].as_str().unwrap_or_default().to_owned();
    let (git, platform) = (text("gitVersion"), text("platform"));
    let labels = [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", git.as_str()),
        ("go_version", ""),
        ("major", major),
        ("minor", minor),
        ("platform", platform.as_str()),
    ];
    metric(out, "kubernetes_build_info", "gauge", "The version of this server", [(&labels[..], 1.0)]);
}

/// By the kinds that every workspace has; what workspaces define counts together.
fn objects(hub: &Hub, out: &mut String) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in builtin::rows().chain(api::ROWS).filter(|row| row.verbs.contains(&"get")) {
        counts.entry((row.group, row.plural)).or_insert(0);
    }
    for (collection, count) in hub.store.totals() {
        *counts.entry(kind_of(&collection)).or_insert(0) += count;
    }
    let samples: Vec<([(&str, &str); 2], f64)> = counts
        .iter()
        .map(|((group, resource), count)| ([("group", *group), ("resource", *resource)], *count as f64))
        .collect();
    let help = "Objects stored in all workspaces, by kind";
    metric(
        out,
        "apiserver_resource_objects",
        "gauge",
        help,
        samples.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    let dotted: Vec<(String, f64)> = counts
        .iter()
        .map(|((group, resource), count)| {
            let name = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
            (name, *count as f64)
        })
        .collect();
    let labelled: Vec<([(&str, &str); 1], f64)> =
        dotted.iter().map(|(name, count)| ([("resource", name.as_str())], *count)).collect();
    metric(
        out,
        "apiserver_storage_objects",
        "gauge",
        help,
        labelled.iter().map(|(labels, count)| (&labels[..], *count)),
    );
}

/// Of all workspaces together.
fn views(hub: &Hub, out: &mut String) {
    let counts = hub.views.counts();
    let by_kind = |counts: &BTreeMap<&'static str, usize>| -> Vec<([(&str, &str); 1], f64)> {
        counts.iter().map(|(plural, count)| ([("resource", *plural)], *count as f64)).collect()
    };
    let (objects, stale) = (by_kind(&counts.objects), by_kind(&counts.stale));
    metric(
        out,
        "hanse_view_objects",
        "gauge",
        "Objects of members that views show, by kind",
        objects.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    metric(
        out,
        "hanse_view_stale_objects",
        "gauge",
        "Objects of members that were not seen since their session was lost, by kind",
        stale.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    let with = counts.clusters - counts.lost;
    let clusters = [([("session", "yes")], with as f64), ([("session", "no")], counts.lost as f64)];
    metric(
        out,
        "hanse_view_clusters",
        "gauge",
        "Clusters that views show, once per workspace, by whether there is a session with them",
        clusters.iter().map(|(labels, count)| (&labels[..], *count)),
    );
}

fn kind_of(collection: &Collection) -> (&'static str, &'static str) {
    let (group, resource) = collection.parts();
    let same = |row: &&machinery::resource::Row| row.group == group && row.plural == resource;
    let row = builtin::rows().chain(api::ROWS).chain(dialects::rows()).find(same);
    row.map_or((OTHER, OTHER), |row| (row.group, row.plural))
}
