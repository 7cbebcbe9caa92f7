//! Kinds about reaching workloads.

use crate::resource::Row;

pub const ROWS: &[Row] = &[];
