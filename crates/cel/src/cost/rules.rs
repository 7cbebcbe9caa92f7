//! What a call costs, by what it was called with.

use super::{REGEX_FACTOR, STRING_FACTOR};
use crate::{
    ast::operator,
    budget::Budget,
    error::Eval,
    value::{Opaque, Value},
};

/// How the cost of a call is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    Fixed(u64),
    /// By all that the first argument holds.
    Traversal,
    /// By the length of the first argument, looked at so many times.
    Scan(f64),
    /// By the length of the result.
    ScanResult,
    Search,
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
    Selector,
    /// By the shorter of two.
    Shorter {
        equality: bool,
    },
    /// By both together.
    Both,
    Product,
    InList,
    ListOutput,
    Flatten,
    /// By the square of a list's length: which argument it is.
    SelfCompare(usize),
    Sets(f64),
}

/// The rule of a function; the overload is known where the checker found only one.
pub fn rule(function: &str, overload: Option<&str>) -> Rule {
    library_rule(overload)
        .or_else(|| kubernetes_rule(function, overload))
        .unwrap_or_else(|| standard_rule(overload))
}

/// Of cel-go's extension libraries.
fn library_rule(overload: Option<&str>) -> Option<Rule> {
    Some(match overload? {
        "list_slice" | "lists_range" | "list_reverse" => Rule::ListOutput,
        "list_flatten" | "list_flatten_int" => Rule::Flatten,
        "list_distinct" => Rule::SelfCompare(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => Rule::Sets(1.0),
        "list_sets_equivalent_list" => Rule::Sets(2.0),
        id if id.starts_with("list_") && id.ends_with("_sort") => Rule::SelfCompare(0),
        id if id.ends_with("_sortByAssociatedKeys") => Rule::SelfCompare(1),
        _ => return None,
    })
}

/// Of Kubernetes' own libraries, by the name of the function.
fn kubernetes_rule(function: &str, overload: Option<&str>) -> Option<Rule> {
    Some(match function {
        "check" => Rule::Fixed(350_000),
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
        | "allowed" | "reason" | "error" | "errored" => Rule::Fixed(1),
        "fieldSelector" | "labelSelector" => Rule::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Rule::Traversal,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => Rule::Scan(1.0),
        "replace" | "split" | "ip.isCanonical" => Rule::Scan(2.0),
        "join" => Rule::ScanResult,
        "find" | "findAll" => Rule::Search,
        "ip" if overload == Some("cidr_ip") => Rule::Fixed(1),
        "ip" => Rule::Scan(1.0),
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => Rule::Fixed(1),
        "containsIP" => Rule::ContainsIp { text: overload == Some("cidr_contains_ip_string") },
        "containsCIDR" => Rule::ContainsCidr { text: overload == Some("cidr_contains_cidr_string") },
        "validate" => Rule::Validate,
        "format.named" => Rule::Fixed(1),
        "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan" | "isLessThan"
        | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" => Rule::Fixed(1),
        "getScheme" | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery" => Rule::Fixed(1),
        operator::EQUALS => Rule::Shorter { equality: true },
        _ => return None,
    })
}

/// Of the language itself.
fn standard_rule(overload: Option<&str>) -> Rule {
    match overload {
        Some(
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format",
        ) => Rule::Scan(1.0),
        Some("in_list") => Rule::InList,
        Some(
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
        ) => Rule::Shorter { equality: false },
        Some("add_string" | "add_bytes") => Rule::Both,
        Some("matches_string") => Rule::Search,
        Some("contains_string") => Rule::Product,
        _ => Rule::Fixed(1),
    }
}

fn ceil(value: f64) -> u64 {
    value.ceil() as u64
}

fn size(value: Option<&Value<'_>>) -> u64 {
    value.map_or(1, |value| match value {
        Value::Optional(Some(inner)) => size(Some(inner)),
        other => other.size().unwrap_or(1),
    })
}

/// As Kubernetes' library measures: it does not look into optional values.
fn plain_size(value: Option<&Value<'_>>) -> u64 {
    value.and_then(Value::size).unwrap_or(1)
}

impl Rule {
    /// The cost of a call that was made. Arguments that failed are null.
    pub fn cost<'a>(&self, args: &[Value<'a>], result: &Eval<Value<'a>>, budget: &mut Budget) -> Eval<u64> {
        let (first, second) = (args.first(), args.get(1));
        let result = result.as_ref().ok();
        let scanned = |length: u64| ceil(length as f64 * STRING_FACTOR);
        Ok(match self {
            Rule::Fixed(cost) => *cost,
            Rule::Traversal => traversal(first, budget)?,
            Rule::Scan(times) => ceil(size(first) as f64 * times * STRING_FACTOR),
            Rule::ScanResult => ceil(plain_size(result) as f64 * 2.0 * STRING_FACTOR),
            Rule::Search => {
                let text = ceil((1.0 + plain_size(first) as f64) * STRING_FACTOR);
                let regex = ceil(plain_size(second) as f64 * REGEX_FACTOR);
                text.saturating_mul(regex)
            }
            Rule::ContainsIp { text } => {
                let other = if *text { scanned(plain_size(second)) } else { 0 };
                scanned(plain_size(first) * 2) + other
            }
            Rule::ContainsCidr { text } => {
                let other = if *text { scanned(plain_size(second)) } else { 0 };
                scanned(plain_size(first) * 2) + scanned(plain_size(first)) + 1 + other
            }
            Rule::Validate => match first {
                Some(Value::Opaque(Opaque::Format(format))) => {
                    let text = ceil((1.0 + plain_size(second) as f64) * STRING_FACTOR);
                    text.saturating_mul(ceil(format.regex_size as f64 * REGEX_FACTOR))
                }
                _ => 1,
            },
            Rule::Selector => {
                let length = plain_size(second);
                let requirements = ceil(length as f64 * 0.5);
                10 + scanned(length) + ceil(requirements as f64 * 50.0)
            }
            Rule::Shorter { equality: true } if matches!(first, Some(Value::Opaque(_))) => 1,
            Rule::Shorter { .. } => scanned(size(first).min(size(second))),
            Rule::Both => scanned(size(first) + size(second)),
            Rule::Product => scanned(size(first)).saturating_mul(scanned(size(second))),
            Rule::InList => size(second),
            Rule::ListOutput => allocating(1.0, plain_size(result)),
            Rule::Flatten => {
                let depth = match second {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                allocating(depth, plain_size(first))
            }
            Rule::SelfCompare(index) => self_compare(args.get(*index)),
            Rule::Sets(factor) => {
                let product = plain_size(first).saturating_mul(plain_size(second));
                1 + (product as f64 * factor) as u64
            }
        })
    }
}

fn allocating(factor: f64, size: u64) -> u64 {
    let cost = size as f64 * factor;
    // A negative depth of flattening wraps around.
    if cost < 0.0 { (cost as i64 as u64).wrapping_add(11) } else { (cost as u64).saturating_add(11) }
}

fn self_compare(list: Option<&Value<'_>>) -> u64 {
    let size = plain_size(list);
    let of_text = match list {
        Some(Value::List(list)) => matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_)))),
        _ => false,
    };
    allocating(if of_text { 2.0 + STRING_FACTOR } else { 2.0 }, size.saturating_mul(size))
}

/// The cost of looking at all of a value.
fn traversal(value: Option<&Value<'_>>, budget: &mut Budget) -> Eval<u64> {
    budget.step()?;
    Ok(match value {
        Some(Value::String(text)) => (text.len() as f64 * STRING_FACTOR) as u64,
        Some(Value::Bytes(bytes)) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Some(Value::List(list)) => {
            let mut cost: u64 = 0;
            for element in list.iter() {
                cost = cost.saturating_add(traversal(element.ok().as_ref(), budget)?);
            }
            cost
        }
        Some(Value::Map(map)) => {
            let mut cost: u64 = 0;
            for (key, value) in map.entries().unwrap_or_default() {
                cost = cost.saturating_add(traversal(Some(&key), budget)?);
                cost = cost.saturating_add(traversal(Some(&value), budget)?);
            }
            cost
        }
        _ => 1,
    })
}
