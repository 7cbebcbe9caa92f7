//! What is in no namespace, classes and volumes: everybody's who uses the cluster, so that more is asked before it is written,
//! and what the cluster has of its own is used as it is.

use api::assignment::{Report, reason};
use server::hub::{default_id, root_id};
use store::{ItemKey, WorkspaceId};

use super::{
    deed::Place,
    errand::{Case, Upshot},
    plan::Wish,
    seen::{Known, Seen},
    work::{Outcome, Taken},
};
use crate::{client::Client, session::Session};

impl Session {
    /// Of what is in no namespace.
    pub(super) async fn carry_out_shared(
        &self,
        client: &Client,
        case: &Case,
        taken: &Taken,
        wish: Wish,
    ) -> Upshot {
        let kind = &case.assignment.spec.object.kind;
        if wish == Wish::Keep && !self.takes_shared(case) {
            let message = format!(
                "the cluster takes no {kind} from this workspace: whoever has it can say so, by {kind} in its spec.admits"
            );
            return Upshot::retry(Some(case.failed(reason::REFUSED, message, None)));
        }
        if !self.rights.are_known(&case.ty, &case.errand) {
            return Upshot::waits();
        }
        let item = ItemKey::new("", &case.assignment.spec.object.name);
        let (known, seen) = self.copies.track(&case.errand, &case.ty, &item, wish == Wish::Keep);
        if known == Known::Not {
            return Upshot::waits();
        }
        let is_trusted = |seen: &Seen| {
            known == Known::Listed && !self.copies.is_doubtful(seen, false, &item, taken.overdue)
        };
        let seen = seen.filter(is_trusted);
        let place = Place { ty: &case.ty, item: &item, made_for_it: false };
        let mut result = self.bring_about(client, case, taken, &place, wish, seen).await;
        if known == Known::Failed {
            result.outcome = Outcome::Retry;
        }
        result
    }

    /// Whether the workspace has the cluster itself, or whoever has it admits such objects.
    fn takes_shared(&self, case: &Case) -> bool {
        let is_platform = |id: &WorkspaceId| *id == root_id() || *id == default_id();
        let (home, workspace) = (&self.place.0, &case.errand.workspace);
        home == workspace
            || (is_platform(home) && is_platform(workspace))
            || self.wanted.borrow().admits.contains(&case.assignment.spec.object.kind)
    }

    /// What is there is not ours. Nobody tells when it goes, so that it is looked at again.
    pub(super) fn conflict(&self, case: &Case, place: &Place<'_>, seen: Option<&Seen>) -> Upshot {
        let (kind, name) = (&case.assignment.spec.object.kind, place.item.name());
        let is_of_cluster = seen.is_some_and(|seen| seen.workspace.is_empty());
        if case.is_class() && is_of_cluster {
            let message =
                format!("the cluster has a {kind} {name} of its own, which is used, and left as it is");
            return Upshot::retry(Some(Report { message, ..case.applied(None) }));
        }
        self.shared.hub.metrics.copies.wrote("conflict");
        if let Some(seen) =
            seen.filter(|seen| case.has_runs() && seen.run > case.own.run && seen.source == case.source_uid())
        {
            let message = format!(
                "the cluster has a later copy of it ({}: {}) than is known here, as after an older backup was restored; it is left alone: \
                 delete it there to have the part done again, or delete the {kind} and create it anew",
                api::RUN_ANNOTATION,
                seen.run
            );
            return Upshot::retry(Some(case.failed(reason::CONFLICT, message, None)));
        }
        if seen.is_some_and(|seen| self.is_left_over(case, seen)) {
            let message = format!(
                "the cluster has a {kind} {name} of an object that is no more, which has ended: it is left alone, and this one \
                 does not run; delete that one there to have it run, or set the annotation {}: \"true\" on the object to \
                 take that one for it",
                api::ADOPT_ANNOTATION
            );
            return Upshot::retry(Some(case.failed(reason::CONFLICT, message, None)));
        }
        if case.is_shared && !is_of_cluster {
            let message =
                format!("the cluster has the {kind} {name} of another workspace, which is left alone");
            return Upshot::retry(Some(case.failed(reason::CONFLICT, message, None)));
        }
        let message = format!(
            "the cluster has a {} {name} already that is not a copy of this one, and it is left alone: delete or rename \
             it there, or set the annotation {}: \"true\" on the object or its namespace to take it over",
            case.assignment.spec.object.kind,
            api::ADOPT_ANNOTATION
        );
        Upshot::retry(Some(case.failed(reason::CONFLICT, message, None)))
    }
}
