//! When two specs say the same: amounts can be written in several ways.

use serde_json::Value;

use crate::{quantity::Quantity, resource::Tree};

/// Lists of amounts by name, and single amounts.
const AMOUNTS: [&str; 7] =
    ["limits", "requests", "overhead", "allocatedResources", "capacity", "divisor", "sizeLimit"];

/// Whether two objects mean the same.
pub fn same(a: &Tree, b: &Tree) -> bool {
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            b.get(key).is_some_and(|other| same_value(value, other, AMOUNTS.contains(&key.as_str())))
        })
}

fn same_value(a: &Value, b: &Value, are_amounts: bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if are_amounts => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same_value(value, other, true)))
        }
        (Value::Object(a), Value::Object(b)) => same(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b, false))
        }
        (Value::String(a), Value::String(b)) if are_amounts && a != b => {
            Quantity::parse(a).is_ok_and(|a| Quantity::parse(b).is_ok_and(|b| a == b))
        }
        _ => a == b,
    }
}
