//! Estimates of calls: of cel-go's extension libraries, of Kubernetes' libraries, and of the language.

use super::{Cost, Estimator, Node, Operand, Size};
use crate::{
    ast::{Expr, ExprKind, Literal, operator},
    cost::{REGEX_FACTOR, STRING_FACTOR},
    types::{self, Type},
};

/// What a call costs, and how large its result is where the call says.
pub struct CallEstimate {
    pub cost: Cost,
    pub result: Option<Size>,
}

fn only(cost: Cost) -> Option<CallEstimate> {
    Some(CallEstimate { cost, result: None })
}

fn sized(cost: Cost, result: Size) -> Option<CallEstimate> {
    Some(CallEstimate { cost, result: Some(result) })
}

fn scan(size: Size, times: f64) -> Cost {
    size.by_factor(times * STRING_FACTOR)
}

impl Estimator<'_> {
    pub(super) fn call_cost(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Operand<'_>>,
        args: &[Operand<'_>],
        arg_costs: &[Cost],
    ) -> CallEstimate {
        let sum = arg_costs.iter().fold(Cost::fixed(0), |sum, cost| sum.add(*cost));
        let library = self
            .extension_call(overload, target, args)
            .or_else(|| self.kubernetes_call(function, overload, target, args));
        if let Some(estimate) = library {
            return CallEstimate { cost: estimate.cost.add(sum), result: estimate.result };
        }
        self.standard_call(expr, overload, target, args, arg_costs, sum)
    }

    /// The size of an operand, or the bound of its schema.
    fn measured(&self, operand: &Operand<'_>) -> Size {
        operand
            .size
            .or_else(|| self.sizes.size(&Node { path: &operand.path, of: &operand.of }))
            .unwrap_or(Size::UNKNOWN)
    }

    /// Of cel-go's lists and sets.
    fn extension_call(
        &self,
        overload: &str,
        target: Option<&Operand<'_>>,
        args: &[Operand<'_>],
    ) -> Option<CallEstimate> {
        let allocating = |factor: f64, size: Size| sized(size.by_factor(factor).add(Cost::fixed(11)), size);
        let sorted = |list: &Operand<'_>, overload: &str| {
            let of_text = overload.starts_with("list_string") || overload.starts_with("list_bytes");
            let size = self.measured(list);
            allocating(if of_text { 2.0 + STRING_FACTOR } else { 2.0 }, size.multiply(size))
        };
        match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let end = literal_int(end).unwrap_or(self.measured(target).max);
                allocating(1.0, Size::fixed(end.wrapping_sub(literal_int(start).unwrap_or(0))))
            }
            ("lists_range", None, [count]) => {
                allocating(1.0, Size::fixed(literal_int(count).unwrap_or(u64::MAX)))
            }
            ("list_reverse", Some(target), []) => allocating(1.0, self.measured(target)),
            ("list_flatten", Some(target), []) => allocating(1.0, self.measured(target)),
            ("list_flatten_int", Some(target), [depth]) => {
                let depth = literal_int(depth).unwrap_or(u64::MAX);
                allocating(depth as f64, self.measured(target))
            }
            ("list_distinct", Some(target), []) => {
                let size = self.measured(target);
                allocating(2.0, size.multiply(size))
            }
            (id, Some(target), []) if id.starts_with("list_") && id.ends_with("_sort") => sorted(target, id),
            (id, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => sorted(keys, id),
            (
                "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list",
                _,
                [a, b],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
                let product = self.measured(a).multiply(self.measured(b));
                only(product.by_factor(factor).add(Cost::fixed(1)))
            }
            _ => None,
        }
    }

    /// Of Kubernetes' own libraries.
    fn kubernetes_call(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Operand<'_>>,
        args: &[Operand<'_>],
    ) -> Option<CallEstimate> {
        match (function, target, args) {
            ("check", _, _) => only(Cost::fixed(350_000)),
            (
                "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
                | "allowed" | "reason" | "error" | "errored",
                _,
                _,
            ) => only(Cost::fixed(1)),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let length = self.measured(selector);
                let requirements = length.by_factor(0.5).by_factor(50.0);
                only(Cost::fixed(10).add(scan(length, 1.0)).add(requirements))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                only(self.elements_cost(target))
            }
            ("url" | "jsonpatch.escapeKey", _, [text]) => {
                let size = self.measured(text);
                sized(scan(size, 1.0), size)
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.measured(target);
                sized(scan(size, 1.0), size)
            }
            ("replace", Some(target), [old, new, ..]) => {
                let size = self.measured(target);
                let result = replaced(size, self.measured(old), self.measured(new));
                sized(scan(size, 2.0), result)
            }
            ("split", Some(target), _) => {
                let size = self.measured(target);
                let most = args.get(1).and_then(literal_int_wrapping).unwrap_or(size.max);
                sized(scan(size, 2.0), Size { min: 0, max: most })
            }
            ("join", Some(target), _) => {
                let size = self.joined(target, args.first());
                sized(scan(size, 1.0), size)
            }
            ("find" | "findAll", Some(target), [regex, ..]) => {
                let size = self.measured(target);
                let text = scan(size.add(Size::fixed(1)), 1.0);
                let regex = self.measured(regex).by_factor(REGEX_FACTOR);
                sized(text.multiply(regex), Size { min: 0, max: size.max })
            }
            ("ip", _, _) if overload == "cidr_ip" => only(Cost::fixed(1)),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [text, ..],
            ) => only(scan(self.measured(text), 1.0)),
            ("ip.isCanonical", _, [text, ..]) => only(scan(self.measured(text), 2.0)),
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast",
                _,
                _,
            ) => only(Cost::fixed(1)),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                only(self.contains_network(function, overload, other))
            }
            ("validate", _, [text, ..]) => {
                only(scan(self.measured(text), 1.0).by_factor(128.0 * REGEX_FACTOR))
            }
            (
                "format.named" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan"
                | "isLessThan" | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" | "getScheme"
                | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery",
                _,
                _,
            ) => only(Cost::fixed(1)),
            (operator::EQUALS, _, [left, right]) if left.of == right.of => {
                only(library_equality(&left.of, right)?)
            }
            _ => None,
        }
    }

    /// One for each element, and its text if it is one.
    fn elements_cost(&self, target: &Operand<'_>) -> Cost {
        let size = self.measured(target);
        let Some(element) = element_type(&target.of) else { return scan(size, 1.0) };
        let mut each = Cost::fixed(1);
        if matches!(element, Type::String | Type::Bytes) {
            each = each.add(scan(self.element_size(target, element), 1.0));
        }
        size.by_cost(each)
    }

    fn element_size(&self, target: &Operand<'_>, element: &Type) -> Size {
        let mut path = target.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        self.sizes.size(&Node { path: &path, of: element }).unwrap_or(Size::UNKNOWN)
    }

    fn joined(&self, target: &Operand<'_>, separator: Option<&Operand<'_>>) -> Size {
        let list = self.measured(target);
        let mut size = match element_type(&target.of) {
            Some(element) => list.multiply(self.element_size(target, element)),
            None => Size::fixed(0),
        };
        if let Some(separator) = separator {
            let separators = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
            size = size.add(self.measured(separator).multiply(separators));
        }
        size
    }

    fn contains_network(&self, function: &str, overload: &str, other: &Operand<'_>) -> Cost {
        let address = Size { min: 4, max: 16 };
        let mut cost = scan(address.add(address), 1.0);
        if function == "containsCIDR" {
            cost = cost.add(scan(address, 1.0)).add(Cost::fixed(1));
        }
        if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
            cost = cost.add(scan(self.measured(other), 1.0));
        }
        cost
    }

    /// Of the language itself.
    fn standard_call(
        &mut self,
        expr: &Expr,
        overload: &str,
        target: Option<&Operand<'_>>,
        args: &[Operand<'_>],
        arg_costs: &[Cost],
        sum: Cost,
    ) -> CallEstimate {
        let size_of = |operand: &Operand<'_>| operand.size.unwrap_or(Size::UNKNOWN);
        let (cost, result) = match (overload, target, args) {
            ("string_format", Some(target), _) => (scan(size_of(target), 1.0).add(sum), None),
            ("string_to_bytes", _, [text]) => {
                let size = size_of(text);
                let result = Size { min: size.min, max: size.max.wrapping_mul(4) };
                (scan(size, 1.0).add(sum), Some(result))
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = size_of(bytes);
                (scan(size, 1.0).add(sum), Some(Size { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", _, [text]) => {
                let size = size_of(text);
                let result =
                    Size { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                (scan(size, 1.0).add(sum), Some(result))
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                (scan(size_of(part), 1.0).add(sum), None)
            }
            ("in_list", _, [_, list]) => (size_of(list).by_factor(1.0).add(sum), None),
            ("matches_string", Some(target), [regex]) => {
                let text = scan(size_of(target).add(Size::fixed(1)), 1.0);
                (text.multiply(size_of(regex).by_factor(REGEX_FACTOR)).add(sum), None)
            }
            ("contains_string", Some(target), [part]) => {
                (scan(size_of(target), 1.0).multiply(scan(size_of(part), 1.0)).add(sum), None)
            }
            ("logical_or" | "logical_and", _, [_, _]) => {
                let (left, right) = (arg_costs[0], arg_costs[1]);
                (Cost { min: left.min, max: left.add(right).max }, None)
            }
            ("conditional", _, [_, truthy, falsy]) => {
                let entries = self.entries(truthy.expr).zip(self.entries(falsy.expr));
                if let Some((a, b)) = entries {
                    self.computed_entries.insert(expr.id, a.union(b));
                }
                let size = size_of(truthy).union(size_of(falsy));
                (arg_costs[0].add(arg_costs[1].union(arg_costs[2])), Some(size))
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let entries = self.entries(left.expr).zip(self.entries(right.expr));
                if let Some((a, b)) = entries {
                    self.computed_entries.insert(expr.id, a.union(b));
                }
                let size = size_of(left).add(size_of(right));
                let own = if overload == "add_list" { Cost::fixed(1) } else { scan(size, 1.0) };
                (own.add(sum), Some(size))
            }
            (
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
                _,
                [left, right],
            ) => {
                let max = size_of(left).max.min(size_of(right).max);
                let shorter = Size { min: u64::from(max > 0), max };
                (scan(shorter, 1.0).add(sum), None)
            }
            _ => (Cost::fixed(1).add(sum), None),
        };
        CallEstimate { cost, result }
    }
}

fn element_type(of: &Type) -> Option<&Type> {
    match of {
        Type::List(element) => Some(element),
        Type::Map(key, _) => Some(key),
        Type::Opaque(_, parameters) => parameters.first(),
        _ => None,
    }
}

/// Equality of the libraries' types.
fn library_equality(of: &Type, right: &Operand<'_>) -> Option<Cost> {
    match of {
        Type::Opaque(name, _) if matches!(&**name, types::IP | types::CIDR) => Some(Cost::fixed(1)),
        Type::Object(name) => match &**name {
            types::QUANTITY
            | types::SEMVER
            | types::AUTHORIZER
            | types::PATH_CHECK
            | types::GROUP_CHECK
            | types::RESOURCE_CHECK
            | types::DECISION => Some(Cost::fixed(1)),
            types::FORMAT => Some(Cost { min: 1, max: 64 }.by_factor(STRING_FACTOR)),
            types::URL => {
                let most = right.size.map_or(1, |size| size.max);
                Some(Cost { min: 1, max: most }.by_factor(STRING_FACTOR))
            }
            _ => None,
        },
        _ => None,
    }
}

/// How long a string can be in which all of one string are replaced by another.
fn replaced(size: Size, old: Size, new: Size) -> Size {
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    let pieces = |length: u64, by: u64| (length as f64 / by as f64).ceil() as u64;
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = pieces(size.max, old.min);
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = pieces(size.min, old.max);
    }
    count.multiply(new).add(kept)
}

/// An int literal; one below zero counts as none.
fn literal_int(operand: &Operand<'_>) -> Option<u64> {
    match operand.expr.kind {
        ExprKind::Literal(Literal::Int(value)) => Some(u64::try_from(value).unwrap_or(0)),
        _ => None,
    }
}

/// An int literal as cel-go casts it.
fn literal_int_wrapping(operand: &Operand<'_>) -> Option<u64> {
    match operand.expr.kind {
        ExprKind::Literal(Literal::Int(value)) => Some(value as u64),
        _ => None,
    }
}
