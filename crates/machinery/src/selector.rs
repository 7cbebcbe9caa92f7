//! Selectors: which objects a list, a watch or a policy means.
//!
//! Both kinds parse what clients write in a query and print it back in one canonical form. Parse errors are the
//! texts that upstream answers with.

mod field;
mod label;

pub use field::{FieldOperator, FieldSelector, FieldTerm};
pub use label::{LabelSelector, Operator, Requirement, validate_object, validate_object_with};
