//! The rules of the built-in admission plugins, without the objects they look at: quotas, limits, classes, pod
//! security. Who asks finds those objects and hands them in.

pub mod amounts;
pub mod classes;
pub mod limits;
pub mod pods;
pub mod quota;
