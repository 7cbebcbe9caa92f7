use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::{
    allowance::RequestBudget,
    authorize::{Authorizer, Check, Decision, ResourceCheck},
    conditions::{Conditions, Matched},
    evaluate::{Inputs, OUT_OF_BUDGET},
    mutating::Refusals,
    policy::{Binding, Policy, Wanted},
    validating::{Collected, Decisions, Verdict},
};
use crate::{apply, resource::Tree, status::About};

/// Lets everybody do what begins with `get`, and counts how often it is asked.
#[derive(Debug, Default)]
struct Getters(AtomicUsize);

impl Authorizer for Getters {
    fn check(&self, account: Option<(&str, &str)>, what: &Check<'_>) -> Decision {
        self.0.fetch_add(1, Ordering::Relaxed);
        let verb = match what {
            Check::Path { verb, .. } | Check::Resource { verb, .. } => verb,
        };
        let reason = account.map_or_else(String::new, |(namespace, name)| format!("{namespace}/{name}"));
        Decision { allowed: verb.starts_with("get"), reason, error: None }
    }
}

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

fn mk_policy(spec: Value) -> Policy {
    Policy::validating(&tree(json!({"metadata": {"name": "p"}, "spec": spec})))
}

fn mk_binding(actions: &[&str]) -> Binding {
    let spec = json!({"policyName": "p", "validationActions": actions});
    Binding::read(&tree(json!({"metadata": {"name": "b"}, "spec": spec})))
}

/// What a policy says about `object` in a binding with these actions.
fn said(policy: &Policy, actions: &[&str], object: Value) -> (Result<(), String>, Verdict) {
    let (object, request) = (tree(object), tree(json!({"name": "o", "operation": "CREATE"})));
    let authorizer: Arc<dyn Authorizer> = Arc::new(Getters::default());
    let resource = ResourceCheck::default();
    let inputs = Inputs {
        object: Some(&object),
        old: None,
        request: &request,
        params: None,
        namespace: None,
        authorizer: Some((&authorizer, &resource)),
    };
    let decisions = policy.validate(&inputs, &request, &RequestBudget::default());
    let (mut verdict, mut collected) = (Verdict::default(), Collected::default());
    verdict.add(policy, &mk_binding(actions), vec![decisions], &mut collected);
    verdict.collect(policy, collected);
    let about = About { group: "", resource: "things", name: "o" };
    let outcome = verdict.finish(about).map_err(|status| status.message().to_owned());
    (outcome, verdict)
}

fn denied(spec: Value, object: Value) -> Result<(), String> {
    let prefix = "things \"o\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    let outcome = said(&mk_policy(spec), &["Deny"], object).0;
    outcome.map_err(|message| message.strip_prefix(prefix).unwrap_or(&message).to_owned())
}

#[test]
fn variables_are_evaluated_once_and_only_if_somebody_looks() {
    let variables = json!([
        {"name": "fails", "expression": "object.nothing"},
        {"name": "checks", "expression": "authorizer.path('/x').check('get').allowed()"},
    ]);
    let unused = json!({"variables": variables, "validations": [{"expression": "true || variables.fails"}]});
    assert_eq!(denied(unused, json!({})), Ok(()));
    // One check costs 350 000 of the 1 000 000 that an expression may: four would be too many.
    let often = "variables.checks && variables.checks && variables.checks && variables.checks";
    let used = json!({"variables": variables, "validations": [{"expression": often}]});
    assert_eq!(denied(used, json!({})), Ok(()));
}

#[test]
fn a_variable_that_refers_to_itself_fails() {
    let spec = json!({
        "variables": [{"name": "a", "expression": "1"}, {"name": "a", "expression": "variables.a + 1"}],
        "validations": [{"expression": "variables.a == 2"}],
    });
    let why = denied(spec, json!({})).unwrap_err();
    assert!(why.ends_with("composited variable \"a\" fails to evaluate: it refers to itself"), "{why}");
}

#[test]
fn variables_may_stand_on_each_other_but_not_without_end() {
    let chain = |length: usize, deep: &str| {
        let mut variables = vec![json!({"name": "v0", "expression": "1"})];
        for at in 1..length {
            let before = format!("variables.v{}", at - 1);
            variables.push(json!({"name": format!("v{at}"), "expression": deep.replace('$', &before)}));
        }
        let last = format!("variables.v{} >= 1", length - 1);
        denied(json!({"variables": variables, "validations": [{"expression": last}]}), json!({}))
    };
    assert_eq!(chain(50, "$ + 0"), Ok(()));
    let nested = format!("{}${}", "(1 * ".repeat(60), ")".repeat(60));
    for (length, deep) in [(2000, "$ + 0"), (100, nested.as_str())] {
        let why = chain(length, deep).unwrap_err();
        assert!(why.contains("too many stand on each other"), "{why}");
    }
}

#[test]
fn costs_are_bounded_whatever_an_expression_does() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let bomb =
        |depth: usize| (0..depth).fold("true".to_owned(), |inner, at| format!("{ten}.all(x{at}, {inner})"));
    let why = denied(json!({"validations": [{"expression": bomb(9)}]}), json!({})).unwrap_err();
    assert!(why.ends_with("operation cancelled: actual cost limit exceeded"), "{why}");
    let ignored = json!({"failurePolicy": "Ignore", "validations": [{"expression": bomb(9)}]});
    assert_eq!(denied(ignored, json!({})), Ok(()));
    let many: Vec<Value> = (0..40).map(|_| json!({"expression": bomb(5)})).collect();
    let why = denied(json!({"validations": many}), json!({})).unwrap_err();
    assert_eq!(why, super::evaluate::OUT_OF_BUDGET);
}

#[test]
fn failures_warn_and_are_written_down_as_the_binding_says() {
    let policy = mk_policy(json!({
        "validations": [{"expression": "true"}, {"expression": "object.a == 1", "message": "a <is> wrong"}],
        "auditAnnotations": [
            {"key": "a", "valueExpression": "'is ' + string(object.a)"},
            {"key": "none", "valueExpression": "null"},
            {"key": "empty", "valueExpression": "'  '"},
        ],
    }));
    let (outcome, verdict) = said(&policy, &["Warn", "Audit"], json!({"a": 2}));
    assert_eq!(outcome, Ok(()));
    let warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': a <is> wrong";
    assert_eq!(verdict.warnings, [warning]);
    let failure = r#"[{"message":"a \u003cis\u003e wrong","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Warn","Audit"]}]"#;
    let key = "validation.policy.admission.k8s.io/validation_failure";
    let expected = [(key.to_owned(), failure.to_owned()), ("p/a".to_owned(), "is 2".to_owned())];
    assert_eq!(verdict.annotations, expected);
    assert_eq!(verdict.checked.len(), 2);
}

#[test]
fn an_annotation_that_fails_denies_unless_failures_are_ignored() {
    let spec = |failure: &str| {
        let annotation = json!({"key": "a", "valueExpression": "string(object.nothing)"});
        json!({"failurePolicy": failure, "validations": [{"expression": "true"}], "auditAnnotations": [annotation]})
    };
    let why = denied(spec("Fail"), json!({})).unwrap_err();
    assert_eq!(why, "expression 'string(object.nothing)' resulted in error: no such key: nothing");
    assert_eq!(denied(spec("Ignore"), json!({})), Ok(()));
    // Annotations cannot ask the authorizer, though they may name it.
    let asks = json!({"key": "a", "valueExpression": "authorizer.path('/').check('get').reason()"});
    let why = denied(json!({"auditAnnotations": [asks]}), json!({})).unwrap_err();
    assert!(why.ends_with("no such attribute(s): authorizer"), "{why}");
}

#[test]
fn webhooks_are_asked_by_their_conditions() {
    let object = tree(json!({"a": 1}));
    let request = Tree::new();
    let inputs = Inputs {
        object: Some(&object),
        old: None,
        request: &request,
        params: None,
        namespace: None,
        authorizer: None,
    };
    let matched = |conditions: &[(&str, &str)], failure: &str| {
        let conditions: Vec<Value> =
            conditions.iter().map(|(name, it)| json!({"name": name, "expression": it})).collect();
        let webhook = tree(json!({"failurePolicy": failure, "matchConditions": conditions}));
        Conditions::of_webhook(&webhook).matches(&inputs, &[])
    };
    let bad = ("bad", "object.b == 1");
    let why = "expression 'object.b == 1' resulted in error: no such key: b".to_owned();
    for (conditions, failure, expected) in [
        (vec![], "Fail", Matched::Yes),
        (vec![("yes", "object.a == 1")], "Fail", Matched::Yes),
        (vec![("no", "object.a == 2")], "Fail", Matched::No("no".to_owned())),
        (vec![bad, ("no", "object.a == 2")], "Fail", Matched::No("no".to_owned())),
        (vec![bad, ("yes", "true")], "Fail", Matched::Failed(why.clone())),
        (vec![bad, bad], "Fail", Matched::Failed(why)),
        (vec![bad], "Ignore", Matched::No(String::new())),
    ] {
        assert_eq!(matched(&conditions, failure), expected, "{conditions:?} {failure}");
    }
}

#[test]
fn parameters_are_where_the_binding_says() {
    let wanted = |reference: Value, namespaced: bool, namespace: &str| {
        let binding = Binding::read(&tree(json!({"spec": {"paramRef": reference}})));
        match binding.params(Some(namespaced), namespace) {
            Ok(Wanted::Nothing) => "nothing".to_owned(),
            Ok(Wanted::One { namespace, name }) => format!("{namespace}/{name}"),
            Ok(Wanted::Selected { namespace, .. }) => format!("{namespace}/*"),
            Err(why) => why,
        }
    };
    let outside = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    for (reference, namespaced, namespace, expected) in [
        (Value::Null, true, "n", "nothing"),
        (json!({"name": "a"}), true, "n", "n/a"),
        (json!({"name": "a", "namespace": "m"}), true, "n", "m/a"),
        (json!({"selector": {}}), true, "n", "n/*"),
        (json!({"name": "a"}), false, "n", "/a"),
        (json!({"name": "a"}), true, "", outside),
        (
            json!({"name": "a", "namespace": "m"}),
            false,
            "n",
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
        ),
    ] {
        assert_eq!(wanted(reference.clone(), namespaced, namespace), expected, "{reference}");
    }
}

fn mutated(mutation: Value, object: Value) -> Result<Value, String> {
    let spec = json!({"mutations": [mutation]});
    let policy = Policy::mutating(&tree(json!({"metadata": {"name": "p"}, "spec": spec})));
    let (object, request) = (tree(object), Tree::new());
    let inputs = Inputs {
        object: Some(&object),
        old: None,
        request: &request,
        params: None,
        namespace: None,
        authorizer: None,
    };
    let ty = apply::Schema::builtin().named("core/v1.Pod").ok_or("no pods")?;
    let [mutation] = policy.mutations() else { return Err("no mutation".to_owned()) };
    policy.mutate(mutation, &inputs, &object, ty, &RequestBudget::default()).map(Value::Object)
}

fn by_apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn by_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[test]
fn configurations_are_merged_by_the_schema() {
    let pod =
        json!({"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    let expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'b', image: 'i'}]}}";
    let merged = mutated(by_apply(expression), pod.clone());
    let containers = json!([{"name": "a"}, {"name": "b", "image": "i"}]);
    assert_eq!(merged.map(|it| it["spec"]["containers"].clone()), Ok(containers));
    let atomic = "Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}";
    let why = "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector";
    assert_eq!(mutated(by_apply(atomic), pod.clone()), Err(why.to_owned()));
    let misplaced = "Object{spec: Object.status{}}";
    let why = "type mismatch: unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type";
    assert_eq!(mutated(by_apply(misplaced), pod), Err(why.to_owned()));
}

#[test]
fn patches_are_made_of_operations() {
    let pod = json!({"kind": "Pod", "metadata": {"name": "p"}});
    let key = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a/b': 'x'}}, \
               JSONPatch{op: 'copy', from: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), path: '/metadata/labels/c'}]";
    let labels = mutated(by_patch(key), pod.clone()).map(|it| it["metadata"]["labels"].clone());
    assert_eq!(labels, Ok(json!({"a/b": "x", "c": "x"})));
    let failed_test =
        "[JSONPatch{op: 'test', path: '/kind', value: 'X'}, JSONPatch{op: 'remove', path: '/kind'}]";
    assert_eq!(mutated(by_patch(failed_test), pod.clone()), Ok(pod.clone()));
    let objects = "[JSONPatch{op: 'add', path: '/spec', value: Object.spec{tolerations: [Object.spec.tolerations{key: 'k'}]}}]";
    let spec = mutated(by_patch(objects), pod).map(|it| it["spec"].clone());
    assert_eq!(spec, Ok(json!({"tolerations": [{"key": "k"}]})));
}

#[test]
fn refusals_of_mutating_policies_are_all_listed() {
    let policy = |failure: &str| {
        let spec = json!({"failurePolicy": failure});
        Policy::mutating(&tree(json!({"metadata": {"name": "p"}, "spec": spec})))
    };
    let mut refusals = Refusals::default();
    refusals.failed(&policy("Ignore"), &mk_binding(&[]), "ignored");
    refusals.failed(&policy("Fail"), &mk_binding(&[]), "first");
    refusals.misconfigured(&policy("Fail"), None, "second");
    let status = refusals.finish(About { group: "", resource: "pods", name: "x" }).unwrap_err();
    let status = status.to_json();
    assert_eq!(status["message"], "policy 'p' with binding 'b' denied request: first");
    assert_eq!((&status["reason"], &status["code"]), (&json!("Invalid"), &json!(403)));
    let second = "policy \"p\" denied request: failed to configure policy: second";
    assert_eq!(status["details"]["causes"][1]["message"], second);
}

/// What a policy says with `budget`, and how often it asked whether somebody may do something.
fn spend(policy: &Policy, budget: &RequestBudget) -> (Decisions, usize) {
    let request = tree(json!({"name": "o", "operation": "CREATE"}));
    let getters = Arc::new(Getters::default());
    let authorizer: Arc<dyn Authorizer> = getters.clone();
    let resource = ResourceCheck::default();
    let inputs = Inputs {
        object: None,
        old: None,
        request: &request,
        params: None,
        namespace: None,
        authorizer: Some((&authorizer, &resource)),
    };
    (policy.validate(&inputs, &request, budget), getters.0.load(Ordering::Relaxed))
}

/// A policy with so many variables, each of which asks twice, for 700 000, and one expression that needs them all.
fn mk_costly(variables: usize) -> Policy {
    let ask = "authorizer.path('/x').check('get').allowed()";
    let names: Vec<String> = (0..variables).map(|at| format!("v{at}")).collect();
    let all: Vec<String> = names.iter().map(|name| format!("variables.{name}")).collect();
    let variables: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "expression": format!("{ask} && {ask}")})).collect();
    mk_policy(json!({"variables": variables, "validations": [{"expression": all.join(" && ")}]}))
}

#[test]
fn variables_end_with_the_budget_even_within_one_expression() {
    let (said, asked) = spend(&mk_costly(60), &RequestBudget::default());
    assert!(format!("{said:?}").contains(OUT_OF_BUDGET), "{said:?}");
    // Of 10 000 000 there are 28 checks, and one more in what goes too far.
    assert!((28..=30).contains(&asked), "{asked}");
}

#[test]
fn all_evaluations_of_a_request_share_a_bound() {
    let (policy, budget) = (mk_costly(13), RequestBudget::default());
    let fine: Vec<bool> =
        (0..14).map(|_| !format!("{:?}", spend(&policy, &budget).0).contains(OUT_OF_BUDGET)).collect();
    // Each costs a little more than 9 100 000 of 100 000 000.
    assert_eq!(fine.iter().filter(|fine| **fine).count(), 10, "{fine:?}");
    assert_eq!(spend(&policy, &budget).1, 0, "nothing is asked when nothing is left");
}
