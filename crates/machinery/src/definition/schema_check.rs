//! What a schema in a definition may be, beyond being structural.

use super::{internal, validate::Leniency};
use crate::{
    field_error::Cause,
    gotext,
    structural::{
        Additional, Path, Rule, Structural, fieldpath,
        rules::{self, Compiled, RULE_COST_LIMIT, SCHEMA_COST_LIMIT},
    },
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Whether a type is none or one that OpenAPI has.
pub fn is_valid_type(type_name: &str) -> bool {
    type_name.is_empty() || TYPES.contains(&type_name)
}

/// Whether the items of a set can change in part.
pub fn is_loose_set(schema: &Structural) -> bool {
    loose_set(schema).is_some()
}

/// Whether a list of type `map` or `set` has items or keys that may be missing.
pub fn is_unsound_map(schema: &Structural) -> bool {
    let mut causes = Vec::new();
    sound_map(schema, &Path::Root, &mut causes);
    !causes.is_empty()
}

fn loose_set(schema: &Structural) -> Option<&'static str> {
    let items = schema.items.as_ref().filter(|_| schema.list_type.as_deref() == Some("set"))?;
    match items.type_name.as_str() {
        "array" if items.list_type.as_deref().is_some_and(|it| it != "atomic") => Some("x-kubernetes-list-type"),
        "object" if items.map_type.as_deref() != Some("atomic") => Some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// The check of one schema.
pub struct SchemaCheck<'l> {
    leniency: &'l Leniency,
    /// The schema is what it was: costs of rules are not asked again.
    unchanged: bool,
}

/// What the place of a schema says about it.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// Why there may be no defaults.
    no_defaults: Option<&'p str>,
    /// Inside of metadata or type of a resource.
    in_meta: bool,
    /// The schema whose parts cannot be told apart from one update to the next.
    uncorrelatable: Option<&'p Path<'p>>,
}

impl<'l> SchemaCheck<'l> {
    pub fn new(leniency: &'l Leniency, unchanged: bool) -> Self {
        Self { leniency, unchanged }
    }

    /// What is wrong with the schema of a version; `path` is its own.
    pub fn run(&self, schema: &Structural, has_status: bool, path: &Path<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if has_status {
            causes.extend(root_mistake(schema, path));
        }
        if schema.nullable {
            let field = format!("{path}.nullable");
            causes.push(Cause::forbidden(field, "nullable cannot be true at the root"));
        }
        let mut unsupported = None;
        let mut is_sound = false;
        if self.leniency.require_structural {
            unsupported = schema.unsupported_member();
            if unsupported.is_none() {
                let found = schema.violations(path);
                let found = match found.is_empty() {
                    true => schema.default_mistakes(path, self.leniency.require_pruned_defaults),
                    false => found,
                };
                is_sound = found.is_empty();
                causes.extend(found);
            }
        }
        let place = Place { no_defaults: None, in_meta: false, uncorrelatable: None };
        let mut rule_causes = RuleCauses::default();
        // Rules are compiled only for a schema that can be relied upon.
        let scope = is_sound.then_some(RuleScope { is_resource: true, cardinality: Some(1) });
        self.node(schema, true, place, scope, path, &mut causes, &mut rule_causes);
        causes.extend(rule_causes.causes);
        if causes.is_empty()
            && let Some(why) = unsupported
        {
            causes.push(Cause::invalid(path.to_string(), &"".into(), &why));
        }
        if rule_causes.costs.total > SCHEMA_COST_LIMIT {
            causes.extend(rule_causes.costs.mistakes(path));
        }
        causes
    }

    #[allow(clippy::too_many_arguments)]
    fn node(
        &self,
        schema: &Structural,
        is_root: bool,
        place: Place<'_>,
        scope: Option<RuleScope>,
        path: &Path<'_>,
        causes: &mut Vec<Cause>,
        rule_causes: &mut RuleCauses,
    ) {
        let before = causes.len();
        let below_scope = scope.map(|scope| scope.below(schema));
        self.members(schema, place, path, causes);
        if schema.unique_items {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            causes.push(Cause::forbidden(path.child("uniqueItems").to_string(), why));
        }
        self.additional(schema, place, below_scope, path, causes, rule_causes);
        for (key, property) in &schema.properties {
            let forbidden = format!("in top-level {key}");
            let mut place = place;
            if !is_correlatable(schema) {
                place.uncorrelatable = place.uncorrelatable.or(Some(path));
            }
            if (is_root || schema.embedded_resource) && matches!(key.as_str(), "metadata" | "kind" | "apiVersion") {
                place.in_meta = true;
                if is_root {
                    place.no_defaults = Some(&forbidden);
                }
            }
            let scope = below_scope.map(|scope| scope.of(property));
            self.node(property, false, place, scope, &path.child("properties").key(key), causes, rule_causes);
        }
        self.junctors(schema, place, path, causes, rule_causes);
        let mut below = place;
        if schema.list_type.as_deref() != Some("map") {
            below.uncorrelatable = below.uncorrelatable.or(Some(path));
        }
        if let Some(items) = &schema.items {
            let scope = below_scope.map(|scope| scope.of(items));
            self.node(items, false, below, scope, &path.child("items"), causes, rule_causes);
        }
        if schema.preserve_unknown_fields == Some(false) {
            let field = path.child("x-kubernetes-preserve-unknown-fields").to_string();
            causes.push(Cause::invalid(field, &false.into(), "must be true or undefined"));
        }
        self.topology(schema, path, causes);
        if self.leniency.require_sound_maps {
            sound_map(schema, path, causes);
        }
        for (at, rule) in schema.rules.iter().enumerate() {
            rule_mistakes(rule, schema, &path.child("x-kubernetes-validations").index(at), causes);
        }
        if let Some(scope) = scope.filter(|_| !schema.rules.is_empty() && causes.len() == before) {
            self.rules(schema, place, scope, &path.child("x-kubernetes-validations"), rule_causes);
        }
    }

    /// Compiles the rules of a schema and estimates what they cost.
    fn rules(
        &self,
        schema: &Structural,
        place: Place<'_>,
        scope: RuleScope,
        path: &Path<'_>,
        found: &mut RuleCauses,
    ) {
        let Some(declaration) = schema.declaration(scope.is_resource) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            found.causes.push(Cause::internal(path.to_string(), why));
            return;
        };
        for (at, compiled) in rules::compile(schema, &declaration).iter().enumerate() {
            self.compiled(compiled, place, scope, &path.index(at), found);
        }
    }

    fn compiled(
        &self,
        compiled: &Compiled,
        place: Place<'_>,
        scope: RuleScope,
        path: &Path<'_>,
        found: &mut RuleCauses,
    ) {
        let rule = &compiled.rule;
        let times = scope.cardinality.unwrap_or(compiled.max_cardinality);
        let cost = compiled.max_cost.saturating_mul(times);
        let (rule_path, message_path) = (path.child("rule"), path.child("messageExpression"));
        let is_dear = |cost: u64| !self.unchanged && cost > RULE_COST_LIMIT;
        if is_dear(cost) {
            let why = cost_message("estimated rule cost", cost, RULE_COST_LIMIT);
            found.causes.push(Cause::forbidden(rule_path.to_string(), &why));
        }
        found.costs.observe(rule_path.to_string(), cost);
        if let Some(error) = &compiled.error {
            found.causes.push(Cause::invalid_text(rule_path.to_string(), &internal::rule(rule), error));
        }
        if let Some(error) = &compiled.message_error {
            found.causes.push(Cause::invalid_text(message_path.to_string(), &internal::rule(rule), error));
        } else if let Some(cost) = compiled.message_max_cost {
            if is_dear(cost) {
                let why = cost_message("estimated messageExpression cost", cost, RULE_COST_LIMIT);
                found.causes.push(Cause::forbidden(message_path.to_string(), &why));
            }
            found.costs.observe(message_path.to_string(), cost);
        }
        match (compiled.uses_old_self, place.uncorrelatable, rule.optional_old_self) {
            (true, Some(within), _) => {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                found.causes.push(Cause::invalid(rule_path.to_string(), &rule.rule.as_str().into(), &why));
            }
            (false, _, Some(optional)) => {
                let why = "may not be set if oldSelf is not used in rule";
                let field = path.child("optionalOldSelf").to_string();
                found.causes.push(Cause::invalid(field, &optional.into(), why));
            }
            _ => {}
        }
    }

    /// Members that are refused wherever they are.
    fn members(&self, schema: &Structural, place: Place<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let type_name = schema.type_name.as_str();
        if self.leniency.require_valid_types && !is_valid_type(type_name) {
            causes.push(Cause::not_supported(path.child("type").to_string(), &type_name.into(), &TYPES));
        }
        if schema.default.is_some()
            && let Some(reason) = place.no_defaults
        {
            let why = format!("must not be set {reason}");
            causes.push(Cause::forbidden(path.child("default").to_string(), &why));
        }
        let unsupported = schema.unsupported.as_deref();
        let has = |test: fn(&crate::structural::Unsupported) -> bool| unsupported.is_some_and(test);
        for (is_set, name, why) in [
            (has(|it| !it.id.is_empty()), "id", "id is not supported"),
            (has(|it| it.additional_items.is_some()), "additionalItems", "additionalItems is not supported"),
            (has(|it| !it.pattern_properties.is_empty()), "patternProperties", "patternProperties is not supported"),
            (has(|it| !it.definitions.is_empty()), "definitions", "definitions is not supported"),
            (has(|it| it.dependencies.is_some()), "dependencies", "dependencies is not supported"),
            (has(|it| it.reference.is_some()), "$ref", "$ref is not supported"),
            (type_name == "null", "type", "type cannot be set to null, use nullable as an alternative"),
            (has(|it| !it.item_schemas.is_empty()), "items", "items must be a schema object and not an array"),
            (
                place.in_meta && schema.embedded_resource,
                "x-kubernetes-embedded-resource",
                "must not be used inside of resource meta",
            ),
        ] {
            if is_set {
                causes.push(Cause::forbidden(path.child(name).to_string(), why));
            }
        }
    }

    fn additional(
        &self,
        schema: &Structural,
        place: Place<'_>,
        scope: Option<RuleScope>,
        path: &Path<'_>,
        causes: &mut Vec<Cause>,
        rule_causes: &mut RuleCauses,
    ) {
        let Some(additional) = schema.additional.as_deref() else { return };
        let path = path.child("additionalProperties");
        if !schema.properties.is_empty() && *additional != Additional::Allowed(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            causes.push(Cause::forbidden(path.to_string(), why));
        }
        let Additional::Schema(schema) = additional else { return };
        let mut place = place;
        if place.in_meta {
            place.no_defaults = Some("inside additionalProperties applying to object metadata");
        }
        let scope = scope.map(|scope| scope.of(schema));
        self.node(schema, false, place, scope, &path, causes, rule_causes);
    }

    /// Rules below junctors are refused elsewhere, and so never compiled.
    fn junctors(
        &self,
        schema: &Structural,
        place: Place<'_>,
        path: &Path<'_>,
        causes: &mut Vec<Cause>,
        found: &mut RuleCauses,
    ) {
        if let Some(not) = &schema.not {
            self.node(not, false, place, None, &path.child("not"), causes, found);
        }
        for (name, branches) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)] {
            for (at, branch) in branches.iter().enumerate() {
                self.node(branch, false, place, None, &path.child(name).index(at), causes, found);
            }
        }
        let Some(unsupported) = schema.unsupported.as_deref() else { return };
        for (key, definition) in &unsupported.definitions {
            self.node(definition, false, place, None, &path.child("definitions").key(key), causes, found);
        }
        for (at, item) in unsupported.item_schemas.iter().enumerate() {
            self.node(item, false, place, None, &path.child("items").index(at), causes, found);
        }
        for (key, dependency) in unsupported.dependencies.iter().flatten() {
            if let Some(dependency) = dependency.schema() {
                self.node(dependency, false, place, None, &path.child("dependencies").key(key), causes, found);
            }
        }
    }

    /// How lists and maps merge.
    fn topology(&self, schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let type_name = schema.type_name.as_str();
        let mut expect_type = |is_set: bool, expected: &str, member: &str| {
            if !is_set || type_name == expected {
                return false;
            }
            let field = path.child("type").to_string();
            let why = format!("must be {expected} if {member} is specified");
            causes.push(match type_name {
                "" => Cause::required(field, &why),
                _ => Cause::invalid(field, &type_name.into(), &why),
            });
            true
        };
        expect_type(schema.map_type.is_some(), "object", "x-kubernetes-map-type");
        if let Some(map_type) = schema.map_type.as_deref()
            && !matches!(map_type, "atomic" | "granular")
        {
            let field = path.child("x-kubernetes-map-type").to_string();
            causes.push(Cause::not_supported(field, &map_type.into(), &["atomic", "granular"]));
        }
        let mut wrong_type = false;
        if schema.list_type.is_some() && type_name != "array" {
            wrong_type = true;
            let field = path.child("type").to_string();
            let why = "must be array if x-kubernetes-list-type is specified";
            causes.push(match type_name {
                "" => Cause::required(field, why),
                _ => Cause::invalid(field, &type_name.into(), why),
            });
        }
        if !wrong_type
            && self.leniency.require_atomic_sets
            && let Some(member) = loose_set(schema)
        {
            // Upstream shows the list type of the items in either case.
            let shown = schema.items.as_ref().and_then(|items| items.list_type.as_ref());
            let field = path.child("items").child(member).to_string();
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            causes.push(Cause::invalid_text(field, &gotext::json(&shown), why));
        }
        if let Some(list_type) = schema.list_type.as_deref()
            && !matches!(list_type, "atomic" | "set" | "map")
        {
            let field = path.child("x-kubernetes-list-type").to_string();
            causes.push(Cause::not_supported(field, &list_type.into(), &["atomic", "set", "map"]));
        }
        map_keys(schema, path, causes);
    }
}

/// Where a rule stands.
#[derive(Clone, Copy)]
struct RuleScope {
    is_resource: bool,
    /// How often its value may be there; `None`: nothing bounds it.
    cardinality: Option<u64>,
}

impl RuleScope {
    /// For what is below `schema`, which may hold it several times.
    fn below(self, schema: &Structural) -> Self {
        let bound = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
        let times = match schema.type_name.as_str() {
            "object" if schema.additional.is_some() => bound(schema.max_properties),
            "array" => bound(schema.max_items),
            _ => Some(1),
        };
        let cardinality = self.cardinality.zip(times).map(|(above, times)| above.saturating_mul(times));
        Self { is_resource: false, cardinality }
    }

    fn of(self, schema: &Structural) -> Self {
        Self { is_resource: schema.embedded_resource, ..self }
    }
}

/// What is wrong with rules, told after what is wrong with the schema.
#[derive(Default)]
struct RuleCauses {
    causes: Vec<Cause>,
    costs: Costs,
}

/// What all rules of a schema are estimated to cost, and the dearest of them.
#[derive(Default)]
struct Costs {
    total: u64,
    dearest: Vec<(String, u64)>,
}

impl Costs {
    fn observe(&mut self, field: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        // A hundredth of the whole is worth telling.
        if cost < SCHEMA_COST_LIMIT / 100 {
            return;
        }
        self.dearest.push((field, cost));
        self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.dearest.truncate(4);
    }

    fn mistakes(&self, path: &Path<'_>) -> Vec<Cause> {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let mut causes: Vec<Cause> =
            self.dearest.iter().map(|(field, _)| Cause::forbidden(field.clone(), why)).collect();
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        causes.push(Cause::forbidden(path.to_string(), &cost_message(what, self.total, SCHEMA_COST_LIMIT)));
        causes
    }
}

fn cost_message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

fn map_keys(schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let list_type = schema.list_type.as_deref();
    if !schema.list_map_keys.is_empty() && list_type != Some("map") {
        let field = path.child("x-kubernetes-list-type").to_string();
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match list_type {
            None => Cause::required(field, why),
            Some(list_type) => Cause::invalid(field, &list_type.into(), why),
        });
    }
    if list_type != Some("map") {
        return;
    }
    let keys_field = || path.child("x-kubernetes-list-map-keys").to_string();
    if schema.list_map_keys.is_empty() {
        causes.push(Cause::required(keys_field(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_path = path.child("items");
    let Some(items) = &schema.items else {
        let why = "must have a schema if x-kubernetes-list-type is map";
        if schema.unsupported.as_ref().is_none_or(|it| it.item_schemas.is_empty()) {
            causes.push(Cause::required(items_path.to_string(), why));
        }
        return;
    };
    if items.type_name != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        let field = items_path.child("type").to_string();
        causes.push(Cause::invalid(field, &items.type_name.as_str().into(), why));
        return;
    }
    let shown = serde_json::json!(schema.list_map_keys);
    for (at, key) in schema.list_map_keys.iter().enumerate() {
        match items.properties.get(key) {
            Some(property) if matches!(property.type_name.as_str(), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = items_path.child("properties").key(key).child("type").to_string();
                causes.push(Cause::invalid(field, &items.type_name.as_str().into(), why));
            }
            Some(_) => {}
            None => {
                causes.push(Cause::invalid(keys_field(), &shown, "entries must all be names of item properties"));
            }
        }
        if schema.list_map_keys[..at].contains(key) {
            causes.push(Cause::invalid(keys_field(), &shown, "must not contain duplicate entries"));
        }
    }
}

fn sound_map(schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (Some(items), Some(list_type @ ("set" | "map"))) = (&schema.items, schema.list_type.as_deref()) else {
        return;
    };
    let path = path.child("items");
    if items.nullable {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(path.child("nullable").to_string(), &why));
    }
    if list_type != "map" {
        return;
    }
    for key in &schema.list_map_keys {
        let Some(property) = items.properties.get(key) else { continue };
        let path = path.child("properties");
        let path = path.key(key);
        if !items.required.contains(key) && property.default.is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(path.child("default").to_string(), why));
        }
        if property.nullable {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(path.child("nullable").to_string(), why));
        }
    }
}

/// Granular is what maps are where nothing is said.
fn is_correlatable(schema: &Structural) -> bool {
    matches!(schema.map_type.as_deref(), None | Some("granular" | "atomic"))
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Go's `strings.TrimSpace`.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{85}')
}

/// What is wrong with a rule, whatever it says.
fn rule_mistakes(rule: &Rule, schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let invalid = |name: &str, value: &str, why: &str| {
        Cause::invalid(path.child(name).to_string(), &value.into(), why)
    };
    let required = |name: &str, why: &str| Cause::required(path.child(name).to_string(), why);
    let (expression, message) = (trimmed(&rule.rule), trimmed(&rule.message));
    if expression.is_empty() {
        causes.push(required("rule", "rule is not specified"));
    } else if !rule.message.is_empty() && message.is_empty() {
        causes.push(invalid("message", &rule.message, "must be non-empty if specified"));
    } else if has_line_break(message) {
        causes.push(invalid("message", &rule.message, "must not contain line breaks"));
    } else if has_line_break(expression) && message.is_empty() {
        causes.push(required("message", "message must be specified if rule contains line breaks"));
    }
    if !rule.message_expression.is_empty() && trimmed(&rule.message_expression).is_empty() {
        causes.push(required("messageExpression", "messageExpression must be non-empty if specified"));
    }
    if let Some(reason) = rule.reason.as_deref()
        && !REASONS.contains(&reason)
    {
        causes.push(Cause::not_supported(path.child("reason").to_string(), &reason.into(), &REASONS));
    }
    if rule.field_path.is_empty() {
        return;
    }
    if trimmed(&rule.field_path).is_empty() {
        causes.push(invalid("fieldPath", &rule.field_path, "must be non-empty if specified"));
    }
    if has_line_break(&rule.field_path) {
        causes.push(invalid("fieldPath", &rule.field_path, "must not contain line breaks"));
    }
    let fits = schema.unsupported_member().is_some() || fieldpath::follow(&rule.field_path, schema, true).is_ok();
    if !fits {
        causes.push(invalid("fieldPath", &rule.field_path, "must be a valid path"));
    }
}

/// Where a status is checked alone, the root may only say what does not concern it.
fn root_mistake(schema: &Structural, path: &Path<'_>) -> Option<Cause> {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations";
    let unsupported = schema.unsupported.as_deref();
    let before_type = unsupported
        .is_some_and(|it| !it.id.is_empty() || !it.schema.is_empty() || it.reference.is_some());
    if !before_type && !schema.type_name.is_empty() && schema.type_name != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(Cause::invalid(format!("{path}.type"), &schema.type_name.as_str().into(), why));
    }
    let after_type = schema.nullable
        || schema.default.is_some()
        || !schema.enumeration.is_empty()
        || schema.max_properties.is_some()
        || schema.min_properties.is_some()
        || !schema.all_of.is_empty()
        || !schema.one_of.is_empty()
        || !schema.any_of.is_empty()
        || schema.not.is_some()
        || schema.additional.is_some()
        || unsupported.is_some_and(|it| {
            !it.pattern_properties.is_empty()
                || it.dependencies.is_some()
                || it.additional_items.is_some()
                || !it.definitions.is_empty()
        })
        || schema.embedded_resource
        || schema.int_or_string
        || !schema.list_map_keys.is_empty()
        || schema.list_type.is_some()
        || schema.map_type.is_some();
    if !before_type && !after_type {
        return None;
    }
    let why =
        format!("only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is enabled");
    Some(Cause::invalid_text(path.to_string(), &internal::schema(schema), &why))
}
