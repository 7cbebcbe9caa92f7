//! Admission webhooks: those whom a workspace's configurations name are asked about its requests.
//!
//! ```text
//!   configurations ──> Hooks of the workspace     compiled when they have changed since the last request
//!                          │
//!   request ──> rules, selectors, conditions ──> the object in the hook's version ──> review ──> answer
//!                                                                       mutating: one after the other, patched
//!                                                                       validating: all at once
//! ```
//!
//! A workspace without configurations pays one look at when they last changed, which is never.

mod call;
mod conditions;
mod hooks;
mod measures;
mod mutating;
mod validating;

use machinery::{admission::is_exempt, resource::Tree, status::Status};

use super::{Admission, Notes, seen::Seen};

pub use hooks::Registered;
pub use measures::Measures;
pub use mutating::Rounds;

/// The kinds that direct admission are nobody's to change, so that a mistake in them can be mended.
fn is_subject(admission: &Admission<'_>) -> bool {
    let shown = &admission.context.shown;
    !is_exempt(&shown.group, &shown.kind)
}

/// Lets mutating webhooks change `object`, one after the other.
pub async fn mutate(
    admission: &Admission<'_>,
    object: Option<&mut Tree>,
    notes: &mut Notes,
    rounds: &mut Rounds,
) -> Result<(), Status> {
    let context = admission.context;
    let Some(hooks) = context.hub.admission.mutating.of(&context.space) else { return Ok(()) };
    if !is_subject(admission) {
        return Ok(());
    }
    let seen = Seen::mutating(admission);
    let outcome = mutating::dispatch(&seen, &hooks, object, notes, rounds).await;
    outcome.map_err(|status| with_warnings(status, notes))
}

/// Asks validating webhooks, all at once.
pub async fn validate(
    admission: &Admission<'_>,
    object: Option<&Tree>,
    notes: &mut Notes,
) -> Result<(), Status> {
    let context = admission.context;
    let Some(hooks) = context.hub.admission.validating.of(&context.space) else { return Ok(()) };
    if !is_subject(admission) {
        return Ok(());
    }
    let seen = Seen::new(admission);
    let outcome = validating::dispatch(&seen, &hooks, object, notes).await;
    outcome.map_err(|status| with_warnings(status, notes))
}

/// What webhooks warned of is told even if one of them refuses.
fn with_warnings(status: Status, notes: &mut Notes) -> Status {
    status.warning(std::mem::take(&mut notes.warnings))
}
