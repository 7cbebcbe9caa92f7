//! `Assignment`: the decision where an object runs, and what came of it. Hanse alone writes it.

mod model;

use machinery::{
    fnv,
    resource::{Cell, Column, Row, Subresource},
};
use serde_json::{Value, json};

use crate::{
    AGE, GROUP, VERSION,
    schema::{self, anything, choice, count, flag, list_of, object_of, word},
};

pub use model::{
    Algorithm, Assignment, Decision, Part, Propagation, Reference, Report, Spec, State, Status, Strategy,
    Target, Verdict, reason,
};

pub const KIND: &str = "Assignment";
pub const PLURAL: &str = "assignments";
/// On an Assignment: there may be copies of its object in members.
pub const FINALIZER: &str = "hanse.io/copies";
/// The namespace of Assignments of objects that are in none.
pub const NAMESPACE_OF_SHARED: &str = "default";
/// Kinds in no namespace, namespaces beside, that are assigned: where objects are that name them.
pub const SHARED: [(&str, &str); 5] = [
    ("storage.k8s.io", "StorageClass"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("networking.k8s.io", "IngressClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("", "PersistentVolume"),
];
/// As many clusters as one object can be on.
const MOST_CLUSTERS: usize = 4096;
/// The longest name an object can have.
const LONGEST_NAME: usize = 253;

const fn column(name: &'static str, description: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "The name.", Cell::Name) },
    column("Kind", "The kind of the object.", Cell::Path(".spec.object.kind")),
    column("Object", "The name of the object.", Cell::Path(".spec.object.name")),
    column("Clusters", "Where it runs, and how much of it.", Cell::Compute(clusters_cell)),
    column("Policy", "What decided it.", Cell::Path(".spec.decision.layer")),
    AGE,
];

pub const ROW: Row = Row {
    group: GROUP,
    version: VERSION,
    kind: KIND,
    plural: PLURAL,
    singular: "assignment",
    short_names: &["asg"],
    categories: &["hanse"],
    subresources: &[Subresource::status(KIND, GROUP, VERSION)],
    columns: COLUMNS,
    schema: Some(shape),
    generation: true,
    system_written: true,
    ..Row::PLAIN
};

/// The name of the assignment of an object: a readable one where it is short enough.
pub fn name_of(group: &str, plural: &str, name: &str) -> String {
    let kind = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let readable = format!("{kind}.{name}");
    if readable.len() <= LONGEST_NAME {
        return readable;
    }
    // From two beginnings: names that differ only in what is cut away must not meet.
    let hashes = [fnv::hash(readable.as_bytes()), fnv::hash_from(0x9747_b28c_8422_2325, readable.as_bytes())];
    let tail = format!("-{:016x}{:016x}", hashes[0], hashes[1]);
    let mut cut = LONGEST_NAME - tail.len();
    while !readable.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{tail}", readable[..cut].trim_end_matches(['.', '-']))
}

fn shape() -> Value {
    let mut object = object_of(
        "The object that is assigned.",
        json!({
            "apiVersion": word("Its group and version."),
            "kind": word("Its kind."),
            "resource": word("Its kind as it stands in paths: deployments."),
            "name": word("Its name."),
            "uid": word("Its UID: another object of the same name is another object."),
        }),
    );
    object["required"] = json!(["apiVersion", "kind", "resource", "name", "uid"]);
    let decision = object_of(
        "Why it is so.",
        json!({
            "layer": word("What decided: Object, Namespace, Workspace, Root or Default."),
            "policy": word("The name of the Placement, if one did."),
            "strategy": choice(
                "Single: one cluster has it. Duplicate: each has all of it. Divide: each has a share.",
                &["Single", "Duplicate", "Divide"],
                None,
            ),
            "algorithm": choice(
                "Federation: the Placement divides as federation v1 did. Not said: it does not.",
                &["Fair", "Federation"],
                None,
            ),
            "message": {"type": "string", "maxLength": 4096, "description": "Why it is nowhere, or not whole."},
            "pending": count("Replicas that fit nowhere."),
            "verdicts": list_of("One for each cluster that was looked at.", MOST_CLUSTERS, verdict()),
        }),
    );
    let spec = object_of(
        "The decision.",
        json!({
            "object": object,
            "clusters": {
                "type": "array", "maxItems": MOST_CLUSTERS, "items": cluster(),
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "description": "Where it runs.",
            },
            "finished": list_of(
                "Of a Job: what was done by copies that are not there any more.",
                MOST_CLUSTERS,
                finished(),
            ),
            "decision": decision,
            "propagation": choice(
                "How copies are deleted when the object is: as the object itself was; Keep: they stay, and are nobody's.",
                &["Background", "Foreground", "Orphan", "Keep"],
                None,
            ),
        }),
    );
    let status = object_of(
        "What came of it.",
        json!({
            "clusters": {
                "type": "array", "maxItems": MOST_CLUSTERS, "items": reported(),
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "description": "What each of the clusters says.",
            },
        }),
    );
    let about = "An Assignment says where an object runs, with which share, and why. Hanse writes it.";
    schema::kind(about, json!({"spec": spec, "status": status}))
}

fn cluster() -> Value {
    let mut cluster = object_of(
        "One of the clusters.",
        json!({
            "name": word("Its name."),
            "uid": word("The UID of its Cluster: another of that name is another cluster."),
            "state": choice(
                "Assigned: it is to run there; that it does, its report says. Draining: it is to go once it is not needed.",
                &["Assigned", "Draining"],
                Some("Assigned"),
            ),
            "replicas": count("How many replicas."),
            "overflow": count("Asked for beyond these, though they have no room there now."),
            "completions": count("Of a Job: how many completions."),
            "run": count("Of a Job: how many copies were there before, each of which did its part."),
            "firstOrdinal": count("Of a StatefulSet: the number of its first pod there."),
            "min": count("Of an autoscaler: at least so many replicas."),
            "max": count("Of an autoscaler: at most so many."),
        }),
    );
    cluster["required"] = json!(["name", "uid"]);
    cluster
}

fn finished() -> Value {
    let mut finished = object_of(
        "A part that was done.",
        json!({
            "cluster": word("Where."), "completions": count("How many completions."),
            "run": count("By which copy: how many were there before it."),
        }),
    );
    finished["required"] = json!(["cluster", "completions"]);
    finished
}

fn verdict() -> Value {
    let mut verdict = object_of(
        "What was found about a cluster.",
        json!({
            "cluster": word("Its name."),
            "feasible": flag("Whether the object could run there."),
            "reason": word("Why not, in one word."),
            "message": {"type": "string", "maxLength": 4096, "description": "Why, and what would change it."},
            "score": {"type": "integer", "format": "int64", "description": "The highest is taken first."},
        }),
    );
    verdict["required"] = json!(["cluster", "feasible"]);
    verdict
}

fn reported() -> Value {
    let mut reported = object_of(
        "What one cluster says.",
        json!({
            "name": word("Its name."),
            "uid": word("The UID of its Cluster."),
            "generation": {
                "type": "integer", "format": "int64",
                "description": "The generation of the object that its copy there was made from.",
            },
            "copyGeneration": {
                "type": "integer", "format": "int64", "description": "The generation of the copy.",
            },
            "applied": flag("Whether the copy is there as it should be."),
            "ready": flag("Whether it does well, too: what is assigned is ready."),
            "revision": word("The resourceVersion of the object when the copy was last made of something else."),
            "rendered": word("The hash of what was sent to the cluster."),
            "edition": word("Of what is federated: which edition of the federated object the copy was made of."),
            "reason": word("Why it is not, in one word; Gone: there is none any more."),
            "message": {"type": "string", "maxLength": 32768, "description": "What the cluster answered."},
            "run": count("Which of the copies that follow each other it is about."),
            "fits": count("How many of its pods the cluster has nodes for, if it had none for others for long."),
            "replicas": count("How many replicas the copy has, if an override says so and not the share."),
            "status": anything("The status of the copy."),
        }),
    );
    reported["required"] = json!(["name", "uid"]);
    reported
}

/// `eu-1:3,us-1:2+1`, as many as there is room for.
fn clusters_cell(assignment: &Value, _: i64) -> Value {
    const SHOWN: usize = 4;
    let clusters = assignment.pointer("/spec/clusters").and_then(Value::as_array);
    let clusters = clusters.map(Vec::as_slice).unwrap_or_default();
    let one = |cluster: &Value| {
        let name = cluster["name"].as_str().unwrap_or_default();
        let more = cluster["overflow"].as_u64().map_or_else(String::new, |more| format!("+{more}"));
        cluster["replicas"]
            .as_u64()
            .map_or_else(|| name.to_owned(), |replicas| format!("{name}:{replicas}{more}"))
    };
    let mut parts: Vec<String> = clusters.iter().take(SHOWN).map(one).collect();
    if clusters.len() > SHOWN {
        parts.push(format!("{} more", clusters.len() - SHOWN));
    }
    json!(parts.join(","))
}
