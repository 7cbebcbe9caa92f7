//! Hanse's own kinds, as rows beside the built-in ones: `hanse.io/v1alpha1`.

pub mod assignment;
pub mod cluster;
pub mod overrides;
pub mod placement;
pub mod schema;
mod workspace;

use machinery::{
    resource::{Cell, Column, Resource, Row},
    structural::Malformed,
};
use serde_json::Value;

pub use workspace::{DEFAULT, ROOT, WORKSPACE_FINALIZER};

pub const GROUP: &str = "hanse.io";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "hanse.io/v1alpha1";

/// The namespace, in hubs and in members, that holds what Hanse itself needs there. Nothing in it is placed.
pub const SYSTEM_NAMESPACE: &str = "hanse-system";

/// On a namespace of a member: the workspace that its objects show in. On a copy: the workspace of its object.
pub const WORKSPACE_LABEL: &str = "hanse.io/workspace";
/// Beside [`WORKSPACE_LABEL`] on what Hanse makes in a member: the id of that workspace. One that is made later under the
/// same name has another.
pub const WORKSPACE_ID_LABEL: &str = "hanse.io/workspace-id";
/// On a namespace of a member that has another name in its workspace: that name.
pub const NAMESPACE_LABEL: &str = "hanse.io/namespace";
/// On a copy in a member, an annotation: the UID of the object it was made from. [`WORKSPACE_LABEL`] says whose it is.
pub const SOURCE_ANNOTATION: &str = "hanse.io/source-uid";
/// On a copy of a Job: how many were there before it.
pub const RUN_ANNOTATION: &str = "hanse.io/run";
/// On an object or its namespace, an annotation: with `true`, objects of the same name in members are taken over.
pub const ADOPT_ANNOTATION: &str = "hanse.io/adopt";
/// On an object, an annotation: what the federated object says that it was made from, such as in which clusters it is and
/// what differs there.
pub const FEDERATED_ANNOTATION: &str = "hanse.io/federated";
/// On an object, an annotation: with `Keep`, its copies stay in members when it is deleted, and are nobody's.
pub const ON_DELETE_ANNOTATION: &str = "hanse.io/on-delete";
/// On a virtual node: the cluster that it stands for.
pub const CLUSTER_LABEL: &str = "hanse.io/cluster";
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

pub const ROWS: &[Row] = &[workspace::ROW, cluster::ROW, placement::ROW, overrides::ROW, assignment::ROW];

pub const AGE: Column = Column {
    name: "Age",
    kind: "string",
    format: "",
    description: "How long ago it was created.",
    priority: 0,
    cell: Cell::Age,
};

/// A new object of one of [`ROWS`] as the server would store it, or what the server would say against it.
pub fn admit(row: &Row, object: Value) -> Result<Value, Vec<String>> {
    let resource = Resource::new(row.clone());
    let Value::Object(mut tree) = object else { return Err(vec!["it is not an object".to_owned()]) };
    if let Some(custom) = resource.structural() {
        let unknown = custom.version.accept(&mut tree, Malformed::Refuse).map_err(|error| vec![error])?;
        if !unknown.is_empty() {
            return Err(unknown.iter().map(|field| format!("unknown field {field:?}")).collect());
        }
    }
    resource.fill_defaults(&mut tree);
    let causes = resource.check(&mut tree, None, "").causes;
    match causes.is_empty() {
        true => Ok(Value::Object(tree)),
        false => Err(causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()),
    }
}

#[cfg(test)]
mod tests;
