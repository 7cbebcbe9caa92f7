//! The built-in kinds, a row each.

mod cluster;
mod definitions;
mod network;
mod pods;
mod policies;
mod workloads;

use serde_json::{Value, json};

use crate::{
    names,
    resource::{Cell, Column, Row, SelectableField, Subresource},
    validation as v,
};

const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources.",
    priority: 0,
    cell: Cell::Name,
};

const AGE: Column = Column {
    name: "Age",
    kind: "string",
    format: "",
    description: "How long ago the object was created.",
    priority: 0,
    cell: Cell::Age,
};

const CREATED_AT: Column = Column {
    name: "Created At",
    kind: "date",
    format: "",
    description: "When the object was created.",
    priority: 0,
    cell: Cell::Path(".metadata.creationTimestamp"),
};

const fn text(name: &'static str, priority: i32, description: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", description, priority, cell }
}

const fn path(name: &'static str, priority: i32, path: &'static str, description: &'static str) -> Column {
    text(name, priority, description, Cell::Path(path))
}

const fn compute(
    name: &'static str,
    priority: i32,
    cell: fn(&Value, i64) -> Value,
    description: &'static str,
) -> Column {
    text(name, priority, description, Cell::Compute(cell))
}

const fn field(name: &'static str, paths: &'static [&'static str]) -> SelectableField {
    SelectableField { name, paths, absent: "" }
}

const fn boolean(column: Column) -> Column {
    Column { kind: "boolean", ..column }
}

const fn integer(column: Column) -> Column {
    Column { kind: "integer", ..column }
}

/// Kinds that are answered and not kept.
const REVIEW: Row = Row { verbs: &["create"], namespaced: false, ..Row::PLAIN };

const RBAC: Row = Row {
    group: "rbac.authorization.k8s.io",
    name_rule: names::path_segment_name,
    create_on_update: true,
    ..Row::PLAIN
};

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    compute("Role", 0, role_of_binding, "The role that is bound."),
    AGE,
    compute("Users", 1, |object, _| subjects(object, "User"), "Users the role is bound to."),
    compute("Groups", 1, |object, _| subjects(object, "Group"), "Groups the role is bound to."),
    compute(
        "ServiceAccounts",
        1,
        |object, _| subjects(object, "ServiceAccount"),
        "Service accounts it is bound to.",
    ),
];

const EVENT_COLUMNS: &[Column] = &[
    compute("Last Seen", 0, last_seen, "Time of the most recent occurrence."),
    path("Type", 0, ".type", "Normal or Warning."),
    path("Reason", 0, ".reason", "Short machine-readable reason."),
    compute("Object", 0, event_object, "The object the event is about."),
    path("Subobject", 1, ".involvedObject.fieldPath", "The part of the object."),
    compute("Source", 1, event_source, "The component that reports."),
    compute("Message", 0, |object, _| json!(at(object, "/message").trim()), "What happened."),
    compute("First Seen", 1, first_seen, "Time of the first occurrence."),
    compute("Count", 1, event_count, "How often it occurred."),
    Column { priority: 1, ..NAME },
];

const EVENT_FIELDS: &[SelectableField] = &[
    field("involvedObject.kind", &["involvedObject.kind"]),
    field("involvedObject.namespace", &["involvedObject.namespace"]),
    field("involvedObject.name", &["involvedObject.name"]),
    field("involvedObject.uid", &["involvedObject.uid"]),
    field("involvedObject.apiVersion", &["involvedObject.apiVersion"]),
    field("involvedObject.resourceVersion", &["involvedObject.resourceVersion"]),
    field("involvedObject.fieldPath", &["involvedObject.fieldPath"]),
    field("reason", &["reason"]),
    field("reportingComponent", &["reportingComponent"]),
    field("source", &["source.component", "reportingComponent"]),
    field("type", &["type"]),
];

const EVENTS_V1_FIELDS: &[SelectableField] = &[
    field("regarding.kind", &["involvedObject.kind"]),
    field("regarding.namespace", &["involvedObject.namespace"]),
    field("regarding.name", &["involvedObject.name"]),
    field("regarding.uid", &["involvedObject.uid"]),
    field("regarding.apiVersion", &["involvedObject.apiVersion"]),
    field("regarding.resourceVersion", &["involvedObject.resourceVersion"]),
    field("regarding.fieldPath", &["involvedObject.fieldPath"]),
    field("reason", &["reason"]),
    field("reportingController", &["reportingComponent"]),
    field("type", &["type"]),
];

const EVENT_TTL_SECONDS: Option<u32> = Some(3600);

/// Every built-in kind and version that is served.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [ROWS, pods::ROWS, workloads::ROWS, policies::ROWS, network::ROWS, cluster::ROWS, definitions::ROWS]
        .into_iter()
        .flatten()
}

/// As `row`, where endpoints may be on loopback: those of simulated pods are.
pub fn with_loopback_endpoints(mut row: Row) -> Row {
    use crate::validation::network::{but_loopback, endpoints};
    match row.plural {
        "endpoints" => row.validate = |new, old| but_loopback(endpoints::validate(new, old)),
        "endpointslices" => row.validate = |new, old| but_loopback(endpoints::validate_slice(new, old)),
        _ => {}
    }
    row
}

/// Kinds that belong to no other file.
const ROWS: &[Row] = &[
    Row {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        type_name: "core/v1.ConfigMap",
        columns: &[
            NAME,
            compute(
                "Data",
                0,
                |o, _| json!(members(o, "data") + members(o, "binaryData")),
                "Number of keys.",
            ),
            AGE,
        ],
        validate: v::config_map,
        ..Row::PLAIN
    },
    Row {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "core/v1.Event",
        columns: EVENT_COLUMNS,
        fields: EVENT_FIELDS,
        name_rule: names::path_segment_name,
        qualified_finalizers: false,
        create_on_update: true,
        ttl_seconds: EVENT_TTL_SECONDS,
        validate: v::event,
        ..Row::PLAIN
    },
    Row {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        namespaced: false,
        short_names: &["ns"],
        // Upstream has no deletecollection for namespaces either.
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: &[
            Subresource {
                name: "finalize",
                verbs: &["update"],
                prepare: v::only_namespace_finalizers,
                validate: |new, old| v::namespace(new, Some(old)),
                resets: &["status"],
                ..Subresource::status("Namespace", "", "v1")
            },
            Subresource { validate: v::namespace_status, ..Subresource::status("Namespace", "", "v1") },
        ],
        type_name: "core/v1.Namespace",
        columns: &[NAME, path("Status", 0, ".status.phase", "The state of the namespace."), AGE],
        fields: &[field("status.phase", &["status.phase"]), field("name", &["metadata.name"])],
        name_rule: names::label_name,
        undeletable: |name| {
            let needed = matches!(name, "default" | "kube-system" | "kube-public");
            needed.then_some("this namespace may not be deleted")
        },
        prepare_create: v::prepare_namespace,
        prepare_update: v::keep_namespace_finalizers,
        default: v::default_namespace,
        validate: v::namespace,
        ..Row::PLAIN
    },
    Row {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        type_name: "core/v1.Secret",
        columns: &[
            NAME,
            path("Type", 0, ".type", "What the secret is for."),
            compute("Data", 0, |o, _| json!(members(o, "data")), "Number of keys."),
            AGE,
        ],
        fields: &[field("type", &["type"])],
        default: v::default_secret,
        validate: v::secret,
        expires: v::bootstrap_token_end,
        ..Row::PLAIN
    },
    Row {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        type_name: "core/v1.ServiceAccount",
        columns: &[NAME, AGE],
        subresources: &[Subresource {
            name: "token",
            verbs: &["create"],
            ..Subresource::status("TokenRequest", "authentication.k8s.io", "v1")
        }],
        returns_deleted: true,
        warn: v::account_warnings,
        prepare_create: v::clean_secret_references,
        prepare_update: |new, _| v::clean_secret_references(new),
        ..Row::PLAIN
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        type_name: "coordination/v1.Lease",
        columns: &[NAME, path("Holder", 0, ".spec.holderIdentity", "Who holds the lease."), AGE],
        create_on_update: true,
        unconditional_update: false,
        qualified_finalizers: false,
        prepare_create: v::prepare_lease,
        prepare_update: v::keep_lease_fields,
        validate: v::lease,
        ..Row::PLAIN
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        type_name: "events/v1.Event",
        columns: EVENT_COLUMNS,
        fields: EVENTS_V1_FIELDS,
        create_on_update: true,
        ttl_seconds: EVENT_TTL_SECONDS,
        validate: v::event_v1,
        stored_as: Some(("", "v1")),
        omit_empty: &["reportingController", "reportingInstance"],
        renames: &[
            ("involvedObject", "regarding"),
            ("message", "note"),
            ("reportingComponent", "reportingController"),
            ("source", "deprecatedSource"),
            ("firstTimestamp", "deprecatedFirstTimestamp"),
            ("lastTimestamp", "deprecatedLastTimestamp"),
            ("count", "deprecatedCount"),
        ],
        ..Row::PLAIN
    },
    Row {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        type_name: "rbac/v1.ClusterRoleBinding",
        columns: BINDING_COLUMNS,
        default: v::default_binding,
        validate: v::binding,
        ..RBAC
    },
    Row {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        type_name: "rbac/v1.ClusterRole",
        columns: &[NAME, CREATED_AT],
        validate: v::cluster_role,
        ..RBAC
    },
    Row {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        type_name: "rbac/v1.RoleBinding",
        columns: BINDING_COLUMNS,
        default: v::default_binding,
        validate: v::binding,
        ..RBAC
    },
    Row {
        kind: "Role",
        plural: "roles",
        singular: "role",
        type_name: "rbac/v1.Role",
        columns: &[NAME, CREATED_AT],
        validate: v::role,
        ..RBAC
    },
    Row {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        type_name: "authentication/v1.SelfSubjectReview",
        ..REVIEW
    },
    Row {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        type_name: "authentication/v1.TokenReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        namespaced: true,
        type_name: "authorization/v1.LocalSubjectAccessReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        type_name: "authorization/v1.SelfSubjectAccessReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        type_name: "authorization/v1.SelfSubjectRulesReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        type_name: "authorization/v1.SubjectAccessReview",
        ..REVIEW
    },
];

fn at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn members(object: &Value, name: &str) -> usize {
    object[name].as_object().map_or(0, serde_json::Map::len)
}

fn role_of_binding(object: &Value, _: i64) -> Value {
    json!(format!("{}/{}", at(object, "/roleRef/kind"), at(object, "/roleRef/name")))
}

fn subjects(object: &Value, kind: &str) -> Value {
    let names = object["subjects"].as_array().into_iter().flatten().filter(|subject| subject["kind"] == kind);
    let texts: Vec<String> = names
        .map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", at(subject, "/namespace"), at(subject, "/name")),
            _ => at(subject, "/name").to_owned(),
        })
        .collect();
    json!(texts.join(", "))
}

fn event_object(object: &Value, _: i64) -> Value {
    let kind = at(object, "/involvedObject/kind").to_lowercase();
    let name = at(object, "/involvedObject/name");
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

fn event_source(object: &Value, _: i64) -> Value {
    let component = match at(object, "/source/component") {
        "" => at(object, "/reportingComponent"),
        component => component,
    };
    let host = match at(object, "/source/host") {
        "" => at(object, "/reportingInstance"),
        host => host,
    };
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

fn event_count(object: &Value, _: i64) -> Value {
    let count = object.pointer("/series/count").or(object.get("count")).and_then(Value::as_i64).unwrap_or(0);
    json!(count.max(1))
}

fn since(pointers: &[&str], object: &Value, now: i64) -> Value {
    let stamp = pointers.iter().map(|pointer| at(object, pointer)).find(|text| !text.is_empty());
    json!(stamp.map_or("<unknown>".to_owned(), |text| crate::table::age_of(text, now)))
}

fn last_seen(object: &Value, now: i64) -> Value {
    since(&["/series/lastObservedTime", "/lastTimestamp", "/firstTimestamp", "/eventTime"], object, now)
}

fn first_seen(object: &Value, now: i64) -> Value {
    since(&["/firstTimestamp", "/eventTime"], object, now)
}
