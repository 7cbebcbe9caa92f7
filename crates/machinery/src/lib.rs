//! The Kubernetes API's own rules, without I/O: objects and their heads, revisions, names, selectors, quantities,
//! schemas, patches, tables, discovery and `Status` errors.

pub mod field_error;
pub mod gotext;
pub mod metadata;
pub mod names;
pub mod patch;
pub mod gojson;
pub mod object;
pub mod openapi;
pub mod protobuf;
pub mod quantity;
pub mod revision;
pub mod validation;
pub mod table;
pub mod status;
pub mod strategic;
pub mod resource;
pub mod builtin;
pub mod schema;
pub mod selector;

pub use object::{Draft, EventType, Head, Object, Owner};
pub use revision::Revision;
