//! Limit ranges.

use serde_json::json;

use super::{super::members::made, quantity};
use crate::{
    field_error::Cause,
    names,
    quantity::{Format, Quantity},
    resource::Tree,
    validation::{
        parts::{
            self, Path, container_resource_name, entries, invalid_each, items, items_mut, object, object_mut,
            resource_name, text,
        },
        pod::round_up,
    },
};

const LIMITS: Path<'_> = Path::new("spec.limits");
const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// One without a name gets one.
pub fn prepare_create(tree: &mut Tree) {
    let metadata = made(tree, "metadata");
    let uid = text(metadata, "uid").to_owned();
    if text(metadata, "name").is_empty() && !uid.is_empty() {
        metadata.insert("name".into(), json!(uid));
    }
}

pub fn default(tree: &mut Tree) {
    let Some(spec) = object_mut(tree, "spec") else { return };
    for limit in items_mut(spec, "limits") {
        if text(limit, "type") == "Container" {
            fill(limit, "default", "max");
            fill(limit, "defaultRequest", "default");
            fill(limit, "defaultRequest", "min");
        }
        LISTS.iter().for_each(|key| round_up(limit, key));
    }
}

/// What one list does not say, another does.
fn fill(limit: &mut Tree, into: &str, from: &str) {
    let Some(values) = object(limit, from).filter(|values| !values.is_empty()).cloned() else { return };
    let target = made(limit, into);
    for (name, value) in values {
        target.entry(name).or_insert(value);
    }
}

pub fn validate(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (at, limit) in items(spec, "limits") {
        let path = LIMITS.index(at);
        let kind = text(limit, "type");
        causes.extend(kind_name(kind, &path.child("type")));
        if seen.contains(&kind) {
            causes.push(Cause::duplicate(&path.child("type"), &json!(kind)));
        }
        seen.push(kind);
        causes.extend(one_limit(limit, kind, &path));
    }
    causes
}

fn kind_name(kind: &str, path: &Path<'_>) -> Vec<Cause> {
    let reasons = names::is_qualified_name(kind);
    if !reasons.is_empty() {
        return invalid_each(path, kind, reasons).collect();
    }
    if kind.contains('/') || matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
        return Vec::new();
    }
    vec![Cause::invalid(path, &json!(kind), "must be a standard limit type or fully qualified")]
}

fn resource_names(limit: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let of_container = matches!(text(limit, "type"), "Pod" | "Container");
    let rule = if of_container { container_resource_name } else { resource_name };
    let path = path.child(key);
    entries(limit, key).flat_map(|(name, _)| rule(name, &path.key(name))).collect()
}

fn one_limit(limit: &Tree, kind: &str, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = resource_names(limit, "max", path);
    causes.extend(resource_names(limit, "min", path));
    for key in ["default", "defaultRequest"] {
        match kind {
            "Pod" if object(limit, key).is_some_and(|it| !it.is_empty()) => {
                let detail = "may not be specified when `type` is 'Pod'";
                causes.push(Cause::forbidden(&path.child(key), detail));
            }
            "Pod" => {}
            _ => causes.extend(resource_names(limit, key, path)),
        }
    }
    let has_storage = |key: &str| object(limit, key).is_some_and(|it| it.contains_key("storage"));
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        causes.push(Cause::required(&path.child("limits"), detail));
    }
    causes.extend(resource_names(limit, "maxLimitRequestRatio", path));
    let mut resources: Vec<&str> = LISTS
        .iter()
        .filter(|key| kind != "Pod" || !key.starts_with("default"))
        .flat_map(|key| entries(limit, key).map(|(name, _)| name))
        .collect();
    resources.sort_unstable();
    resources.dedup();
    causes.extend(resources.into_iter().flat_map(|name| Bounds::of(limit, kind, name).check(path)));
    causes
}

/// All that is said of one resource.
struct Bounds<'a> {
    name: &'a str,
    min: Option<Quantity>,
    max: Option<Quantity>,
    limit: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl<'a> Bounds<'a> {
    fn of(limit: &Tree, kind: &str, name: &'a str) -> Self {
        let amount = |key: &str| object(limit, key).and_then(|list| list.get(name)).map(quantity);
        let unless_pod = |key: &str| amount(key).filter(|_| kind != "Pod");
        Bounds {
            name,
            min: amount("min"),
            max: amount("max"),
            limit: unless_pod("default"),
            request: unless_pod("defaultRequest"),
            ratio: amount("maxLimitRequestRatio"),
        }
    }

    fn check(&self, path: &Path<'_>) -> Vec<Cause> {
        let Bounds { name, min, max, limit, request, ratio } = self;
        let above = |low: &Option<Quantity>, high: &Option<Quantity>| match (low, high) {
            (Some(low), Some(high)) if low > high => Some((low.to_string(), high.to_string())),
            _ => None,
        };
        let mut causes = Vec::new();
        // Where it is said, both amounts, which of them upstream shows, and what they are called.
        for (key, pair, first, low, high) in [
            ("min", above(min, max), true, "min value", "max value"),
            ("defaultRequest", above(min, request), false, "min value", "default request value"),
            ("defaultRequest", above(request, max), true, "default request value", "max value"),
            ("defaultRequest", above(request, limit), true, "default request value", "default limit value"),
            ("default", above(min, limit), true, "min value", "default value"),
            ("default", above(limit, max), false, "default value", "max value"),
        ] {
            let Some((a, b)) = pair else { continue };
            let detail = format!("{low} {a} is greater than {high} {b}");
            let shown = json!(if first { &a } else { &b });
            causes.push(Cause::invalid(&path.child(key).key(name), &shown, &detail));
        }
        let ratio_path = path.child("maxLimitRequestRatio");
        if let Some(ratio) = ratio {
            let reasons = [below_one(ratio), self.too_high(ratio)];
            let reasons = reasons.iter().flatten();
            causes.extend(
                reasons.map(|why| Cause::invalid(&ratio_path.key(name), &json!(ratio.to_string()), why)),
            );
        }
        if let (Some(limit), Some(request)) = (limit, request)
            && limit != request
            && !parts::is_overcommit_allowed(name)
        {
            let detail =
                format!("default value {limit} must equal to defaultRequest value {request} in {name}");
            let shown = json!(request.to_string());
            causes.push(Cause::invalid(&path.child("defaultRequest").key(name), &shown, &detail));
        }
        causes
    }

    /// Why the ratio is more than minimum and maximum allow.
    fn too_high(&self, ratio: &Quantity) -> Option<String> {
        const MAX_MILLI: i64 = i64::MAX / 1000;
        let (min, max) = (self.min.as_ref()?, self.max.as_ref()?);
        let fits = [ratio, min, max].iter().all(|it| it.value() < MAX_MILLI);
        let (wanted, min, max) = match fits {
            true => (ratio.milli_value() as f64 / 1000.0, min.milli_value(), max.milli_value()),
            false => (ratio.value() as f64, min.value(), max.value()),
        };
        let most = max as f64 / min as f64;
        let shown = match most {
            most if most.is_nan() => "NaN".to_owned(),
            most if most.is_infinite() => if most > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
            most => format!("{most:.6}"),
        };
        (wanted > most).then(|| format!("ratio {ratio} is greater than max/min = {shown}"))
    }
}

fn below_one(ratio: &Quantity) -> Option<String> {
    (*ratio < Quantity::new(1, Format::DecimalSi)).then(|| format!("ratio {ratio} is less than 1"))
}
