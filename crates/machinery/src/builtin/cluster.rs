//! Kinds about the machines, their storage and their limits.

use crate::resource::Row;

pub const ROWS: &[Row] = &[];
