//! Kinds that direct the API server itself.

use crate::resource::Row;

pub const ROWS: &[Row] = &[];
