//! What decides about requests before they are stored: which requests a webhook or a policy is about.

pub mod rules;

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
