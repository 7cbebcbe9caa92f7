//! What decides about requests before they are stored: which requests a webhook or a policy is about, what a policy in
//! CEL says about them, and the rules of the built-in plugins for quotas, limits, classes and pod security. Nothing here
//! asks anybody: who asks finds the objects they look at and hands them in.

pub mod allowance;
pub mod amounts;
pub mod authorize;
pub mod classes;
pub mod compile;
pub mod conditions;
pub mod evaluate;
pub mod limits;
pub mod mutating;
pub mod pod_security;
pub mod pods;
pub mod policy;
pub mod quota;
pub mod review;
pub mod rules;
pub mod types;
pub mod validating;

/// The kinds that direct admission are themselves never subject to it, so that a mistake in them can be mended.
pub fn is_exempt(group: &str, kind: &str) -> bool {
    const EXEMPT: [&str; 6] = [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ];
    group == "admissionregistration.k8s.io" && EXEMPT.contains(&kind)
}

/// How metrics name what is wrong with the evaluation of a policy.
pub fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with(evaluate::OUT_OF_BUDGET) {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

#[cfg(test)]
mod tests;
