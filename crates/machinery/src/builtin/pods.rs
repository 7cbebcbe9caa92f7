//! Pods and what belongs to them.

use crate::resource::Row;

pub const ROWS: &[Row] = &[];
