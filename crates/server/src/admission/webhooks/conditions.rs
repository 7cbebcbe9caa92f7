//! Whether a webhook's `matchConditions` want it to be asked.

use machinery::{
    admission::{conditions::Matched, evaluate::Inputs, rules::Target},
    resource::Tree,
    status::Status,
};

use super::hooks::Hook;
use crate::admission::{policies::Surroundings, seen::Seen};

/// Objects are in the version of `target`. A condition that cannot be evaluated refuses the request, unless the webhook
/// may fail.
pub fn want(
    seen: &Seen<'_>,
    hook: &Hook,
    target: &Target,
    object: Option<&Tree>,
    old: Option<&Tree>,
) -> Result<bool, Status> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let surroundings = Surroundings::of(seen)?;
    let requests = surroundings.requests(target);
    let inputs = Inputs {
        object,
        old,
        request: requests.conditions(),
        params: None,
        namespace: None,
        authorizer: Some((&surroundings.authorizer, &surroundings.resource)),
    };
    match hook.conditions.matches(&inputs, &[]) {
        Matched::Yes => Ok(true),
        Matched::No(_) => Ok(false),
        Matched::Failed(why) => Err(Status::forbidden(seen.admission.context.about(seen.name()), &why)),
    }
}
