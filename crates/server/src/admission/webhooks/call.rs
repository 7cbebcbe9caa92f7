//! One webhook is asked about one request.

use std::time::Duration;

use machinery::{
    admission::{
        review::{self, Answer, Malformed, Request},
        rules::Target,
    },
    gotext, names,
    resource::Tree,
    status::Status,
};

use super::{
    hooks::Hook,
    measures::{Asked, Because},
};
use crate::{
    admission::seen::Seen,
    webhook::{self, Error, Question},
};

/// An answer of more bytes is refused: twice what a patch of the largest object takes.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Longer audit annotations are cut off, as those of policies are.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// Why a request does not go on, or would not.
pub enum Failure {
    /// The webhook could not be asked, or its answer does not count: its `failurePolicy` decides.
    Calling { why: String, code: u16 },
    /// The webhook says no.
    Denied(Status),
    /// What it wants cannot be done, whatever its policy.
    Internal(Status),
}

impl Failure {
    pub fn calling(why: impl Into<String>, code: u16) -> Self {
        Failure::Calling { why: why.into(), code }
    }
}

/// A webhook, and the objects of a request in its version.
pub struct Call<'a> {
    pub seen: &'a Seen<'a>,
    pub hook: &'a Hook,
    pub target: &'a Target,
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    pub mutating: bool,
}

impl Call<'_> {
    fn about(&self) -> Asked {
        Asked {
            step: if self.mutating { "admit" } else { "validating" },
            operation: self.seen.admission.operation.as_str(),
        }
    }

    /// Asks, and writes down what the webhook wants to be remembered. Warnings count even if it refuses.
    pub async fn ask(&self, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        if self.seen.admission.dry_run {
            match self.hook.has_side_effects {
                None => return Err(Failure::calling("Webhook SideEffects is nil", 400)),
                Some(true) => return Err(Failure::Internal(review::dry_run_unsupported(&self.hook.name))),
                Some(false) => {}
            }
        }
        let mut answer = self.answer().await?;
        warnings.append(&mut answer.warnings);
        for (key, mut value) in std::mem::take(&mut answer.audit_annotations) {
            let key = format!("{}/{key}", self.hook.name);
            if is_annotation_key(&key) {
                value.truncate(value.floor_char_boundary(MAX_ANNOTATION_BYTES));
                self.seen.admission.context.audit.annotate(key, value);
            }
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(Failure::Denied(review::denial(&self.hook.name, answer.status.take()))),
        }
    }

    async fn answer(&self) -> Result<Answer, Failure> {
        let (admission, context) = (self.seen.admission, self.seen.admission.context);
        let version = review::version(&self.hook.review_versions)
            .map_err(|why| Failure::calling(format!("could not create admission objects: {why}"), 400))?;
        let unreachable = |why: &String| Failure::calling(format!("could not get REST client: {why}"), 500);
        let target = self.hook.target.as_ref().map_err(unreachable)?;
        let uid = context.hub.new_uid();
        let options = self.seen.options();
        let request = Request {
            operation: admission.operation,
            seen: self.target,
            sent: &self.seen.target,
            subresource: &context.target.subresource,
            name: self.seen.name(),
            namespace: self.seen.namespace(),
            user: context.user.as_author(),
            object: self.object,
            old: self.old,
            dry_run: admission.dry_run,
            options: &options,
        };
        let all = context.hub.options.request_timeout;
        let question = Question {
            workspace: context.space.id(),
            target,
            document: &|| review::review(version, &uid, &request),
            bytes: webhook::weight(self.object.into_iter().chain(self.old)),
            limit: self.hook.timeout.unwrap_or(all).min(all),
            tells_limit: true,
            max_answer: MAX_ANSWER_BYTES,
        };
        let failed = |why: &dyn std::fmt::Display, code| {
            Failure::calling(format!("failed to call webhook: {why}"), code)
        };
        let body = context.hub.webhooks.call(&context.hub.env, question).await;
        let body = body.map_err(|error| match error {
            Error::Refused { code, .. } => failed(&error, code),
            _ => failed(&error, 503),
        })?;
        review::answer(version, &uid, self.mutating, &body).map_err(|malformed| match malformed {
            Malformed::Unreadable(why) => failed(&why, 503),
            Malformed::Invalid(why) => {
                Failure::calling(format!("received invalid webhook response: {why}"), 503)
            }
        })
    }

    /// Measures what came of it, and lets `failurePolicy` decide. `Ok(None)`: it failed, and that does not matter.
    pub fn judge<T>(
        &self,
        outcome: Result<T, Failure>,
        took: Duration,
        failed_open: impl FnOnce(),
    ) -> Result<Option<T>, Status> {
        let context = self.seen.admission.context;
        context.elsewhere.add(took, self.mutating);
        let measures = &context.hub.metrics.webhooks;
        let about = self.about();
        let failure = match outcome {
            Ok(value) => {
                measures.asked(about, took, false, 200);
                return Ok(Some(value));
            }
            Err(failure) => failure,
        };
        let (status, because, code) = match failure {
            Failure::Calling { why, code } if self.hook.fails_open => {
                tracing::warn!(webhook = self.hook.name, why, "failed calling a webhook, failing open");
                measures.asked(about, took, false, code);
                measures.failed_open(about);
                failed_open();
                return Ok(None);
            }
            Failure::Calling { why, code } => {
                let name = gotext::quote(&self.hook.name);
                let status = Status::internal(format!("failed calling webhook {name}: {why}"));
                (status, Because::Calling, code)
            }
            Failure::Denied(status) => {
                let code = status.code();
                (status, Because::Denied, code)
            }
            Failure::Internal(status) => (status, Because::Internal, 0),
        };
        measures.rejected(about, because, code);
        measures.asked(about, took, true, code);
        Err(status)
    }
}

/// Keys of audit annotations are qualified names with a domain.
fn is_annotation_key(key: &str) -> bool {
    key.split('/').count() == 2 && names::is_qualified_name(key).is_empty()
}
