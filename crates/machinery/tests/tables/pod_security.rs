//! Upstream's fixtures of pods, judged at every level and version.

use machinery::admission::pod_security::{Policy, details, evaluate};

use crate::{
    Call,
    merge::{Outcome, expect},
};

pub fn check(call: &Call<'_>) -> Outcome {
    let pod = call.fields["pod"].as_object().ok_or("no pod")?;
    for (demand, wanted) in call.fields["results"].as_object().ok_or("no results")? {
        let (level, version) = demand.split_once(':').ok_or("no version")?;
        let (policy, causes) = Policy::of_labels(|label| match label {
            "pod-security.kubernetes.io/enforce" => Some(level),
            "pod-security.kubernetes.io/enforce-version" => Some(version),
            _ => None,
        });
        expect("causes", causes.len(), 0)?;
        let found = details(&evaluate(policy.enforce, pod));
        expect(demand, Some(found.as_str()), wanted.as_str())?;
    }
    Ok(())
}
