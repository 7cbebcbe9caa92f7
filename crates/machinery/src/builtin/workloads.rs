//! Kinds that make pods.

use crate::resource::Row;

pub const ROWS: &[Row] = &[];
