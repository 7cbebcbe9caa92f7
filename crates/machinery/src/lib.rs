//! The Kubernetes API's own rules, without I/O: objects and their heads, revisions, names, selectors, quantities,
//! schemas, patches, server-side apply, tables, discovery and `Status` errors.

pub mod admission;
pub mod apply;
pub mod audit;
pub mod authentication;
pub mod builtin;
pub mod certificates;
pub mod definition;
pub mod expressions;
pub mod field_error;
pub mod fnv;
pub mod gojson;
pub mod gotext;
pub mod gourl;
pub mod jsonpath;
pub mod metadata;
pub mod names;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod resource;
pub mod revision;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod status;
pub mod strategic;
pub mod structural;
pub mod table;
pub mod validation;

pub use object::{Draft, EventType, Head, Object, ObjectError, Owner};
pub use revision::Revision;
