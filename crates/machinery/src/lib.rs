//! The Kubernetes API's own rules, without I/O: objects and their heads, revisions, names, selectors, quantities,
//! schemas, patches, tables, discovery and `Status` errors.

pub mod field_error;
pub mod gotext;
pub mod metadata;
pub mod names;
pub mod object;
pub mod revision;
pub mod selector;

pub use object::{Draft, EventType, Head, Object, Owner};
pub use revision::Revision;
