//! What the member has at the place of a copy, compared with what it should be.

use serde_json::Value;

use super::{
    deed::{Place, Sent},
    errand::Case,
    once,
    plan::There,
    seen::Seen,
};
use crate::{
    client::{Client, Error},
    session::Session,
};

impl Session {
    /// What the member has, compared with what it should be.
    pub(super) async fn there(
        &self,
        client: &Client,
        case: &Case,
        place: &Place<'_>,
        seen: Option<&mut Seen>,
        sent: Option<&Sent>,
        looked: bool,
    ) -> Result<There, Error> {
        let Some(seen) = seen else { return Ok(if looked { There::Absent } else { There::Unseen }) };
        if !self.is_of_workspace(case, seen) || seen.source.is_empty() {
            return Ok(There::Foreign { uid: seen.uid.clone() });
        }
        if seen.source != case.source_uid() {
            return Ok(match self.has_object(case, &seen.source) {
                true => There::Foreign { uid: seen.uid.clone() },
                false => There::Leftover {
                    uid: seen.uid.clone(),
                    deleting: seen.deleting,
                    ended: once::has_ended(&self.kind(case), &seen.status),
                },
            });
        }
        if case.has_runs() && seen.run != case.own.run {
            let (uid, deleting) = (seen.uid.clone(), seen.deleting);
            return Ok(match seen.run < case.own.run {
                true => There::Former { uid, deleting },
                false => There::Later { uid, deleting },
            });
        }
        let matches = match sent {
            None => true,
            Some(_) if seen.deleting => true,
            Some(sent) => self.matches(client, case, place, seen, sent).await?,
        };
        Ok(There::Ours { uid: seen.uid.clone(), deleting: seen.deleting, matches })
    }

    /// Whether it is a copy of an object of this workspace that is no more.
    pub(super) fn is_left_over(&self, case: &Case, seen: &Seen) -> bool {
        self.is_of_workspace(case, seen)
            && !seen.source.is_empty()
            && seen.source != case.source_uid()
            && !self.has_object(case, &seen.source)
    }

    /// What a workspace of that name left behind is not of the one there is now.
    fn is_of_workspace(&self, case: &Case, seen: &Seen) -> bool {
        seen.workspace == case.space.name()
            && (seen.workspace_id.is_empty() || seen.workspace_id == case.errand.workspace.0)
    }

    /// Whether the workspace has an object of that kind with this UID.
    fn has_object(&self, case: &Case, uid: &str) -> bool {
        let reference = &case.assignment.spec.object;
        let collection = store::Collection::new(reference.group(), &reference.resource);
        case.space.latest(&collection).iter(None, None).any(|(_, object)| object.head.uid == uid)
    }

    /// Whether a copy is as it was left, made from the very same.
    pub(super) fn is_as_left(&self, case: &Case, seen: &Seen, inputs: u64) -> bool {
        let applied = self.copies.applied(&case.errand);
        !seen.deleting
            && applied.is_some_and(|applied| {
                applied.uid == seen.uid && applied.inputs == inputs && applied.left == seen.fingerprint
            })
    }

    /// Whether a copy is what would be sent. What is not known of it is asked for.
    async fn matches(
        &self,
        client: &Client,
        case: &Case,
        place: &Place<'_>,
        seen: &mut Seen,
        sent: &Sent,
    ) -> Result<bool, Error> {
        let applied = self.copies.applied(&case.errand).filter(|applied| applied.uid == seen.uid);
        match applied {
            Some(applied) if applied.sent == sent.hash && applied.left == seen.fingerprint => {
                // Its share may be another one though the same is sent: what an override says is told of it then.
                self.copies.settle(&case.errand, sent.left_as(seen));
                return Ok(true);
            }
            // It is as it was left, and something else is to be sent.
            Some(applied) if applied.left == seen.fingerprint => return Ok(false),
            _ => {}
        }
        if seen.body.is_none() {
            match self.look(client, place).await? {
                Some(found) if found.uid == seen.uid => *seen = found,
                // It is another one by now: whoever writes it is told.
                _ => return Ok(false),
            }
        }
        let body = seen.body.take().and_then(|body| serde_json::from_slice::<Value>(&body).ok());
        let same = body.is_some_and(|body| sent.is_in(&body));
        if same {
            self.copies.settle(&case.errand, sent.left_as(seen));
        }
        Ok(same)
    }
}
