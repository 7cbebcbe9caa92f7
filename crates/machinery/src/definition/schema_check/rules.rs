//! Rules in a schema: what they may be, and what they may cost.

use crate::{
    definition::internal,
    field_error::Cause,
    structural::{
        Path, Rule, Structural, fieldpath,
        rules::{Compiled, RULE_COST_LIMIT, SCHEMA_COST_LIMIT, compile},
    },
};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Where a rule stands.
#[derive(Clone, Copy)]
pub struct RuleScope {
    is_resource: bool,
    /// How often its value may be there; `None`: nothing bounds it.
    cardinality: Option<u64>,
    /// There are rules here or above.
    is_ruled: bool,
    /// Rules above could not be told what they look at.
    is_lost: bool,
}

impl RuleScope {
    pub fn root() -> Self {
        Self { is_resource: true, cardinality: Some(1), is_ruled: false, is_lost: false }
    }

    /// For what is below `schema`, which may hold it several times.
    pub fn below(self, schema: &Structural) -> Self {
        let bound = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
        let times = match schema.type_name.as_str() {
            "object" if schema.additional.is_some() => bound(schema.max_properties),
            "array" => bound(schema.max_items),
            _ => Some(1),
        };
        let cardinality = self.cardinality.zip(times).map(|(above, times)| above.saturating_mul(times));
        let is_ruled = self.is_ruled || !schema.rules.is_empty();
        let is_lost = self.is_lost || is_ruled && !schema.is_declarable();
        Self { is_resource: false, cardinality, is_ruled, is_lost }
    }

    pub fn of(self, schema: &Structural) -> Self {
        Self { is_resource: schema.embedded_resource, ..self }
    }
}

/// What is wrong with rules, told after what is wrong with the schema.
#[derive(Default)]
pub struct RuleCauses {
    /// The schema is what it was: the costs of single rules are not asked again.
    unchanged: bool,
    pub causes: Vec<Cause>,
    pub costs: Costs,
}

impl RuleCauses {
    pub fn new(unchanged: bool) -> Self {
        Self { unchanged, ..Self::default() }
    }

    /// Compiles the rules of a schema and estimates what they cost.
    pub fn compile(
        &mut self,
        schema: &Structural,
        scope: RuleScope,
        uncorrelatable: Option<&Path<'_>>,
        path: &Path<'_>,
    ) {
        let Some(declaration) = schema.declaration(scope.is_resource).filter(|_| !scope.is_lost) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.causes.push(Cause::internal(path.to_string(), why));
            return;
        };
        for (at, compiled) in compile(schema, &declaration).iter().enumerate() {
            self.compiled(compiled, scope, uncorrelatable, &path.index(at));
        }
    }

    fn compiled(
        &mut self,
        compiled: &Compiled,
        scope: RuleScope,
        uncorrelatable: Option<&Path<'_>>,
        path: &Path<'_>,
    ) {
        let rule = &compiled.rule;
        let times = scope.cardinality.unwrap_or(compiled.max_cardinality);
        let cost = compiled.max_cost.saturating_mul(times);
        let (rule_path, message_path) = (path.child("rule"), path.child("messageExpression"));
        let unchanged = self.unchanged;
        let is_dear = |cost: u64| !unchanged && cost > RULE_COST_LIMIT;
        if is_dear(cost) {
            let why = cost_message("estimated rule cost", cost, RULE_COST_LIMIT);
            self.causes.push(Cause::forbidden(rule_path.to_string(), &why));
        }
        self.costs.observe(rule_path.to_string(), cost);
        if let Some(error) = &compiled.error {
            self.causes.push(Cause::invalid_text(rule_path.to_string(), &internal::rule(rule), error));
        }
        if let Some(error) = &compiled.message_error {
            self.causes.push(Cause::invalid_text(message_path.to_string(), &internal::rule(rule), error));
        } else if let Some(cost) = compiled.message_max_cost {
            if is_dear(cost) {
                let why = cost_message("estimated messageExpression cost", cost, RULE_COST_LIMIT);
                self.causes.push(Cause::forbidden(message_path.to_string(), &why));
            }
            self.costs.observe(message_path.to_string(), cost);
        }
        match (compiled.uses_old_self, uncorrelatable, rule.optional_old_self) {
            (true, Some(within), _) => {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                );
                self.causes.push(Cause::invalid(rule_path.to_string(), &rule.rule.as_str().into(), &why));
            }
            (false, _, Some(optional)) => {
                let why = "may not be set if oldSelf is not used in rule";
                let field = path.child("optionalOldSelf").to_string();
                self.causes.push(Cause::invalid(field, &optional.into(), why));
            }
            _ => {}
        }
    }
}

/// What all rules of a schema are estimated to cost, and the dearest of them.
#[derive(Default)]
pub struct Costs {
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

    /// What is wrong if they are too much together.
    pub fn mistakes(&self, path: &Path<'_>) -> Vec<Cause> {
        if self.total <= SCHEMA_COST_LIMIT {
            return Vec::new();
        }
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

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Go's `strings.TrimSpace`.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{85}')
}

/// What is wrong with a rule, whatever it says.
pub fn mistakes(rule: &Rule, schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let invalid =
        |name: &str, value: &str, why: &str| Cause::invalid(path.child(name).to_string(), &value.into(), why);
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
    let fits =
        schema.unsupported_member().is_some() || fieldpath::follow(&rule.field_path, schema, true).is_ok();
    if !fits {
        causes.push(invalid("fieldPath", &rule.field_path, "must be a valid path"));
    }
}
