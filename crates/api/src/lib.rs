//! Hanse's own kinds, as rows beside the built-in ones: `hanse.io/v1alpha1`.

pub mod assignment;
pub mod cluster;
pub mod overrides;
pub mod placement;
mod schema;
mod workspace;

use machinery::resource::{Cell, Column, Row};

pub use workspace::{DEFAULT, ROOT, WORKSPACE_FINALIZER};

pub const GROUP: &str = "hanse.io";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "hanse.io/v1alpha1";

/// On a namespace of a member: the workspace that its objects show in.
pub const WORKSPACE_LABEL: &str = "hanse.io/workspace";
/// On a virtual node: the cluster that it stands for.
pub const CLUSTER_LABEL: &str = "hanse.io/cluster";
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

pub const ROWS: &[Row] = &[workspace::ROW, cluster::ROW, placement::ROW, overrides::ROW, assignment::ROW];

const AGE: Column = Column {
    name: "Age",
    kind: "string",
    format: "",
    description: "How long ago it was created.",
    priority: 0,
    cell: Cell::Age,
};

#[cfg(test)]
mod tests;
