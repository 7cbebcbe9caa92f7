//! One errand: what the Assignment asks of this cluster, what the member has, and what is done about it.

use std::sync::Arc;

use api::{
    assignment::{Assignment, Propagation, Report, State, Target, reason},
    cluster::condition,
};
use compact_str::CompactString;
use kinds::{Health, Kind, MemberStatus, Share, running::within_share};
use machinery::Object;
use serde_json::Value;
use server::{
    hub::{default_id, root_id},
    space::Space,
    views::Placed,
};
use store::{ItemKey, Key, WorkspaceId};

use super::{
    deed::Place,
    federated::Said,
    namespaces::{Asked, Home, NoHome},
    once,
    plan::{Action, There, Wish, plan},
    reporter::{self, News, bounded_status},
    seen::{Known, Seen, Type},
    tell,
    work::{Errand, Outcome, Taken},
};
use crate::{
    client::{Client, Error},
    session::Session,
};

/// Looks and writes of one run: what keeps changing under them is left for later.
const ROUNDS: usize = 5;
/// What is likely to pass is reported when it failed so often.
const PATIENCE: u32 = 2;

/// What the hub says of an errand.
pub struct Case {
    pub errand: Errand,
    pub space: Space,
    pub assignment: Arc<Assignment>,
    pub deleting: bool,
    /// The entry of this cluster.
    pub own: Target,
    pub ty: Type,
    /// It is about a namespace itself.
    pub is_namespace: bool,
    /// It is about what is in no namespace, and so is everybody's who uses the cluster.
    pub is_shared: bool,
    /// The one that is assigned, if it is still there.
    pub object: Option<Arc<Object>>,
}

impl Case {
    pub fn source_uid(&self) -> &str {
        &self.assignment.spec.object.uid
    }

    /// The object, taken apart.
    fn tree(&self) -> Option<Value> {
        self.object.as_ref()?.tree().ok().map(Value::Object)
    }

    /// What was said of another copy says nothing of this one.
    pub(super) fn known_report(&self) -> Option<&Report> {
        self.assignment.report(&self.own.uid).filter(|report| report.run == self.own.run)
    }

    /// Whether it says by annotations of federation v1 where it is to be, and cannot be understood.
    fn is_unreadable(&self) -> bool {
        let Some(object) = &self.object else { return false };
        // Hardly any has them, and none else need be taken apart.
        if memchr::memmem::find(object.metadata_member(), b"\"federation.").is_none() {
            return false;
        }
        let tree = object.tree().map(Value::Object).unwrap_or_default();
        let said = tree["metadata"]["annotations"].as_object().into_iter().flatten();
        let said = said.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        placement::dialect::rule(&self.assignment.spec.object.kind, &said.collect()).is_err()
    }

    fn is_about_it(&self, seen: &&Seen) -> bool {
        seen.run == self.own.run || !self.has_runs()
    }

    /// Whether a copy may be followed by another of the same object; of other kinds, what it says of that is somebody's
    /// whim.
    pub(super) fn has_runs(&self) -> bool {
        let reference = &self.assignment.spec.object;
        kinds::of(reference.group(), &reference.kind).is_job()
    }

    /// Objects have a generation only if their kind has one; 0 would say that there is no copy.
    fn generation(&self) -> i64 {
        self.object.as_ref().map_or(0, |object| object.head.generation.max(1))
    }

    pub(super) fn holds_data(&self) -> bool {
        let reference = &self.assignment.spec.object;
        let kinds = ["PersistentVolumeClaim", "PersistentVolume"];
        reference.group().is_empty() && kinds.contains(&reference.kind.as_str())
    }

    /// What clusters have of their own as well, under names that mean the same everywhere.
    pub(super) fn is_class(&self) -> bool {
        self.is_shared && !self.holds_data()
    }

    /// The namespace of the workspace that it is in; empty: none.
    pub fn namespace(&self) -> &str {
        if self.is_shared { "" } else { self.errand.item.namespace() }
    }

    pub fn propagation(&self) -> Propagation {
        // A cluster that is left, with the object still there.
        self.assignment.spec.propagation.unwrap_or(Propagation::Background)
    }

    /// Of an object that is being deleted and has some time for that.
    pub fn grace(&self) -> Option<i64> {
        let object = self.object.as_ref().filter(|object| object.head.deleting)?;
        object.tree().ok()?.get("metadata")?["deletionGracePeriodSeconds"].as_i64().filter(|it| *it > 0)
    }

    /// Whether somebody in the member asks that it be left alone, and not the object itself.
    fn is_hands_off(&self, seen: &Seen) -> bool {
        let labels = self.object.as_ref().map(|object| &object.head.labels[..]).unwrap_or_default();
        seen.hands_off
            && !labels.iter().any(|(key, value)| key == dialects::MANAGED_LABEL && value == "false")
    }

    fn left_alone(&self, seen: &Seen) -> Report {
        let message =
            format!("its label {} is false there, so that it is left alone", dialects::MANAGED_LABEL);
        self.failed(dialects::report::status::MANAGED_LABEL_FALSE, message, Some(seen))
    }

    pub fn is_duplicated(&self) -> bool {
        let spec = &self.assignment.spec;
        spec.decision.strategy == Some(api::assignment::Strategy::Duplicate) && spec.clusters.len() > 1
    }

    /// An empty one of this cluster.
    fn report(&self) -> Report {
        let Target { name, uid, run, .. } = self.own.clone();
        Report { name, uid, run, ..Report::default() }
    }

    pub(super) fn failed(&self, reason: &str, message: String, seen: Option<&Seen>) -> Report {
        // What was said last stays: that there was a copy, and what became of it, must not be forgotten.
        let known =
            self.known_report().filter(|known| !known.is_gone()).cloned().unwrap_or_else(|| self.report());
        let mut report = Report { applied: false, reason: reason.to_owned(), message, ..known };
        if let Some(seen) = seen.filter(|seen| self.is_about_it(seen)) {
            report.copy_generation = seen.generation;
            report.status = bounded_status(&seen.status).unwrap_or_default();
        }
        report
    }

    pub(super) fn applied(&self, seen: Option<&Seen>) -> Report {
        let seen = seen.filter(|seen| self.is_about_it(seen));
        let (status, message) = match seen.map(|seen| bounded_status(&seen.status)) {
            None => (Value::Null, String::new()),
            Some(Ok(status)) => (status, String::new()),
            Some(Err(message)) => (Value::Null, message),
        };
        Report {
            generation: self.generation(),
            copy_generation: seen.map_or(0, |seen| seen.generation),
            applied: true,
            message,
            status,
            ..self.report()
        }
    }

    fn gone(&self) -> Report {
        Report { reason: reason::GONE.to_owned(), ..self.report() }
    }

    /// What was said stays, with what is waited for.
    fn waiting(&self, message: String, seen: Option<&Seen>) -> Report {
        let mut report = self.known_report().cloned().unwrap_or_else(|| self.report());
        if let Some(seen) = seen.filter(|seen| self.is_about_it(seen)) {
            report.copy_generation = seen.generation;
            report.status = bounded_status(&seen.status).unwrap_or_default();
        }
        // While it is on its way out it is not what it should be.
        (report.applied, report.reason, report.message) = (false, String::new(), message);
        report
    }
}

/// How a cluster's copy does by what was reported of it.
fn health(kind: &Kind, object: &Value, target: &Target, report: &Report) -> Health {
    let wanted = kind.wanted(object).unwrap_or(0);
    let replicas = report.replicas.or(target.replicas).unwrap_or(wanted);
    let assigned = Share { replicas, overflow: target.overflow, ..Share::default() };
    let member = MemberStatus {
        assigned,
        generation: report.copy_generation,
        source_generation: report.generation,
        status: within_share(&report.status, &assigned),
        reachable: true,
        leaving: false,
    };
    kind.member_health(object, &member)
}

/// Whether it is as it should be and does what it is for.
fn does_well(kind: &Kind, object: &Value, target: &Target, report: &Report) -> bool {
    report.applied
        && match health(kind, object, target, report) {
            Health::Healthy => true,
            // A Deployment that is paused has pods, of which that says nothing.
            Health::Suspended => kind.kind != "Deployment",
            _ => false,
        }
}

/// What came of a run, and what is to be said of it.
pub(super) struct Upshot {
    pub outcome: Outcome,
    pub report: Option<Report>,
}

impl Upshot {
    fn done(report: Report) -> Upshot {
        Upshot { outcome: Outcome::Done, report: Some(report) }
    }

    /// The member tells of its end.
    fn awaits(report: Report) -> Upshot {
        Upshot { outcome: Outcome::Awaits, report: Some(report) }
    }

    pub fn retry(report: Option<Report>) -> Upshot {
        Upshot { outcome: Outcome::Retry, report }
    }

    fn nothing() -> Upshot {
        Upshot { outcome: Outcome::Done, report: None }
    }

    /// Somebody asks for it again.
    pub fn waits() -> Upshot {
        Upshot { outcome: Outcome::Waits, report: None }
    }
}

impl Session {
    pub(super) async fn run_errand(&self, client: &Client, taken: Taken) -> (Errand, Outcome) {
        let errand = taken.errand.clone();
        let Some(case) = self.case(&errand) else {
            if let Some(uid) = self.copies.release(&errand) {
                self.shared.hub.views.displaced(&errand.workspace, self.name(), &uid);
            }
            self.copies.told.forget(&errand);
            return (errand, Outcome::Done);
        };
        let result = Box::pin(self.carry_out(client, &case, &taken)).await;
        if let Some(mut report) = result.report {
            if report.applied {
                report.fits = self.fits(&case, &report);
                self.say_of_what(&case, &mut report);
            }
            let object = case.tree();
            report.ready = self.is_ready_by(&case, object.as_ref(), &report);
            if report.is_gone() {
                self.copies.note_gone(&errand);
                self.place(&case, None);
            }
            let news = self.news_of(&case, object.as_ref(), &report);
            self.say(&case, &report);
            self.shared.reporter.report(&errand, report.clone(), news);
            match &*report.reason {
                reason::REFUSED | reason::CONFLICT | reason::INVALID => {
                    self.tell_refusal(&case, &report).await
                }
                _ if report.applied => self.copies.told.forget(&errand),
                _ => {}
            }
        }
        (errand, result.outcome)
    }

    /// Says which revision and edition of the object the copy was made of.
    fn say_of_what(&self, case: &Case, report: &mut Report) {
        let (Some(object), Some(applied)) = (&case.object, self.copies.applied(&case.errand)) else { return };
        report.rendered = format!("{:016x}", applied.sent);
        report.revision = object.revision.to_string();
        report.replicas = applied.replicas;
        report.edition = Said::read(object, self.name()).map(|said| said.edition).unwrap_or_default();
    }

    /// `None`: nothing is asked of this cluster.
    fn case(&self, errand: &Errand) -> Option<Case> {
        let space = self.shared.hub.space_by_id(&errand.workspace)?;
        let stored = space.get(&reporter::key(errand))?;
        let assignment = self.shared.hub.assignments.read(&stored).ok()?;
        let uid = self.wanted.borrow().uid.clone();
        let own = assignment.spec.clusters.iter().find(|target| target.uid == uid)?.clone();
        let reference = &assignment.spec.object;
        let (is_namespace, is_shared) = (reference.is_namespace(), reference.is_shared());
        let namespace = if reference.is_in_namespace() { errand.item.namespace() } else { "" };
        let key = Key::new(reference.group(), &reference.resource, namespace, &reference.name);
        let object = space.get(&key).filter(|object| object.head.uid == reference.uid);
        let ty = Type {
            api_version: CompactString::from(&reference.api_version),
            plural: CompactString::from(&reference.resource),
        };
        let (errand, deleting) = (errand.clone(), stored.head.deleting);
        Some(Case { errand, space, deleting, own, ty, is_namespace, is_shared, object, assignment })
    }

    fn wish(&self, case: &Case) -> Wish {
        match case.own.state {
            // How, is said a moment later.
            _ if case.deleting && case.assignment.spec.propagation.is_none() => Wish::Stay,
            _ if case.deleting && case.propagation() == Propagation::Keep => Wish::Release,
            _ if case.deleting => Wish::Remove,
            // What is in a volume is in no other.
            State::Draining if case.holds_data() => Wish::Stay,
            State::Draining if self.is_replaced(case) => Wish::Remove,
            State::Draining => Wish::Stay,
            State::Assigned | State::Ready => Wish::Keep,
        }
    }

    /// Whether all clusters that stay have it, and it does well there.
    fn is_replaced(&self, case: &Case) -> bool {
        let mut staying =
            case.assignment.spec.clusters.iter().filter(|it| it.state != State::Draining).peekable();
        let decision = &case.assignment.spec.decision;
        if staying.peek().is_none() {
            // It is to be nowhere; other than what finds no place, and stays where it is until it has one.
            return decision.message.is_empty();
        }
        if decision.pending > 0 {
            return false;
        }
        let Some(object) = case.tree() else { return false };
        let kind = self.kind(case);
        let does_well = |target: &Target| {
            let report = case.assignment.report(&target.uid);
            // That there was no room for the status does not change what it said.
            let is_said =
                |report: &Report| reporter::is_without_status(report) && report.applied && report.ready;
            report.is_some_and(|report| is_said(report) || does_well(&kind, &object, target, report))
        };
        // What a cluster said last is worth nothing while it does not answer, or if it said that to somebody else.
        let is_known = |target: &Target| self.is_ready(case, target) && self.is_confirmed(case, target);
        staying.all(|target| is_known(target) && does_well(target))
    }

    /// Whether the copy here does well by what is to be said of it. It is said along with it, and is never news of its own.
    fn is_ready_by(&self, case: &Case, object: Option<&Value>, report: &Report) -> bool {
        match object {
            Some(object) => does_well(&self.kind(case), object, &case.own, report),
            // On its way out: what was said of it stays.
            None => report.applied && case.known_report().is_some_and(|known| known.ready),
        }
    }

    /// How soon a report is to be known.
    fn news_of(&self, case: &Case, object: Option<&Value>, report: &Report) -> News {
        let known = case.known_report();
        if !report.applied || known == Some(report) || known.is_some_and(|known| !known.applied) {
            return News::Turn;
        }
        let Some(object) = object else { return News::Turn };
        let kind = self.kind(case);
        let is_on_its_way =
            |report: &Report| matches!(health(&kind, object, &case.own, report), Health::Progressing(_));
        match is_on_its_way(report) && known.is_none_or(is_on_its_way) {
            true => News::Progress,
            false => News::Turn,
        }
    }

    /// Whether another cluster can be used.
    fn is_ready(&self, case: &Case, target: &Target) -> bool {
        let key = Key::new(api::GROUP, api::cluster::PLURAL, "", &target.name);
        let is_it = |place: &WorkspaceId| {
            let cluster = self.shared.hub.store.get(place, &key)?;
            let readiness = &self.shared.readiness;
            let ready = || readiness.of(place, &key.item, &cluster, reads_ready).is_some_and(|ready| *ready);
            (cluster.head.uid == target.uid).then(ready)
        };
        let places = [&self.place.0, &case.errand.workspace, &default_id(), &root_id()];
        places.into_iter().find_map(is_it).unwrap_or(false)
    }

    /// What is known of the kind of the object.
    pub(super) fn kind(&self, case: &Case) -> Kind {
        let reference = &case.assignment.spec.object;
        let kind = kinds::of(reference.group(), &reference.kind);
        if !kind.kind.is_empty() {
            return kind;
        }
        let served = self.shared.hub.served(&case.space);
        let version = reference.api_version.rsplit('/').next().unwrap_or_default();
        let found = served.registry.find(reference.group(), version, &reference.resource);
        kinds::generic(found.and_then(|resource| resource.scale.clone()))
    }

    /// The hub's namespace that the object is in, or is.
    pub(super) fn hub_namespace(&self, case: &Case) -> Option<Arc<Object>> {
        case.space.get(&Key::new("", "namespaces", "", case.namespace()))
    }

    fn adopts(&self, case: &Case) -> bool {
        // Whose the cluster is decides about its namespaces.
        if (case.is_namespace || case.is_shared) && self.place.0 != case.errand.workspace {
            return false;
        }
        // A class of the cluster's own is for all who use it.
        if case.is_class() {
            return false;
        }
        case.object.as_deref().is_some_and(adopts) || self.hub_namespace(case).as_deref().is_some_and(adopts)
    }

    /// Where the object goes; `None`: nothing is known of the member's namespaces yet.
    fn home(&self, case: &Case) -> Option<Result<Home, NoHome>> {
        let own = self.place.0 == case.errand.workspace;
        let asked = Asked {
            workspace: case.space.name(),
            id: &case.errand.workspace.0,
            namespace: case.errand.item.namespace(),
            own,
            prefixed: self.wanted.borrow().prefixed,
            adopt: self.adopts(case),
        };
        let state = self.copies.state.lock();
        state.namespaces.complete.then(|| state.namespaces.home(&asked))
    }

    async fn carry_out(&self, client: &Client, case: &Case, taken: &Taken) -> Upshot {
        let wish = self.wish(case);
        if matches!(wish, Wish::Remove | Wish::Release) && self.copies.is_gone(&case.errand) {
            // It is said again: what the member told late of the copy that was there may have been said since.
            return Upshot::done(case.gone());
        }
        if wish == Wish::Remove && !case.deleting && case.known_report().is_some_and(|it| it.applied) {
            // First it is said that it does not count any more: whoever waits for it elsewhere must not rely on it.
            return Upshot::done(case.waiting("it runs elsewhere now, and goes".to_owned(), None));
        }
        if wish == Wish::Keep && case.object.is_none() {
            // Whoever assigned it knows sooner or later.
            return Upshot::nothing();
        }
        if wish == Wish::Keep && case.is_unreadable() {
            // Copies stay as they are until it can be read where they are to be.
            return Upshot::nothing();
        }
        if case.is_shared {
            return self.carry_out_shared(client, case, taken, wish).await;
        }
        let home = match self.home(case) {
            None => {
                let message = "the namespaces of the cluster are not known yet".to_owned();
                let is_late = taken.failures >= PATIENCE;
                return Upshot::retry(is_late.then(|| case.failed("NamespacesUnknown", message, None)));
            }
            Some(Ok(home)) => home,
            Some(Err(_)) if wish != Wish::Keep => return Upshot::done(case.gone()),
            Some(Err(problem @ (NoHome::TooLong(_) | NoHome::Reserved(_)))) => {
                return Upshot::retry(Some(case.failed(reason::INVALID, problem.to_string(), None)));
            }
            Some(Err(problem)) => {
                return Upshot::retry(Some(case.failed(reason::CONFLICT, problem.to_string(), None)));
            }
        };
        if case.is_namespace && matches!(home, Home::AsItIs { .. }) {
            // It is not ours, and serves as it is.
            return Upshot::done(if wish == Wish::Keep { case.applied(None) } else { case.gone() });
        }
        if !case.is_namespace && !home.is_ready() {
            return self.without_namespace(case, wish, &home, taken);
        }
        let item = match case.is_namespace {
            true => ItemKey::new("", home.name()),
            false => ItemKey::new(home.name(), &case.assignment.spec.object.name),
        };
        let claimed = match case.is_namespace {
            true => self.copies.claims.take(home.name(), &case.errand),
            false => Some(None),
        };
        if !self.rights.are_known(&case.ty, &case.errand) {
            return Upshot::waits();
        }
        // Somebody else of that name is about to be made there; then another name is found.
        let Some(_claimed) = claimed else { return Upshot::retry(None) };
        let (known, seen) = self.copies.track(&case.errand, &case.ty, &item, wish == Wish::Keep);
        if known == Known::Not {
            // All of the kind are looked at once it was listed.
            return Upshot::waits();
        }
        // What is not kept up with must be asked for.
        let is_trusted = |seen: &Seen| {
            known == Known::Listed && !self.copies.is_doubtful(seen, case.is_namespace, &item, taken.overdue)
        };
        let seen = seen.filter(is_trusted);
        let made_for_it = matches!(home, Home::Made { .. });
        // In a namespace it is tried what the cluster does with pods.
        if made_for_it
            && !case.is_namespace
            && !matches!(wish, Wish::Remove | Wish::Release)
            && let Some(why) = self.tokens.undecided()
        {
            // Pods that came first would have tokens of the cluster's.
            let is_late = wish == Wish::Keep && taken.failures >= PATIENCE;
            return Upshot::retry(is_late.then(|| case.failed("TokensUnknown", why, seen.as_ref())));
        }
        let place = Place { ty: &case.ty, item: &item, made_for_it };
        let mut result = self.bring_about(client, case, taken, &place, wish, seen).await;
        let mut staying = case.assignment.spec.clusters.iter().filter(|it| it.state != State::Draining);
        let is_known = |target: &Target| self.is_ready(case, target) && self.is_confirmed(case, target);
        let awaits_others = wish == Wish::Stay && staying.any(|target| !is_known(target));
        if known == Known::Failed || awaits_others {
            // Nobody tells what becomes of it, so that it must be looked at again.
            result.outcome = Outcome::Retry;
        }
        result
    }

    fn without_namespace(&self, case: &Case, wish: Wish, home: &Home, taken: &Taken) -> Upshot {
        if wish != Wish::Keep && self.copies.state.lock().namespaces.is_there(home.name()) {
            // What is in it goes with it.
            let message = format!("the namespace {} is being deleted in the cluster", home.name());
            return Upshot::retry(Some(case.waiting(message, None)));
        }
        if wish != Wish::Keep {
            return Upshot::done(case.gone());
        }
        let message = format!("the namespace {} is not there yet", home.name());
        let is_late = taken.failures >= PATIENCE;
        Upshot::retry(is_late.then(|| case.failed("NamespaceMissing", message, None)))
    }

    pub(super) async fn bring_about(
        &self,
        client: &Client,
        case: &Case,
        taken: &Taken,
        place: &Place<'_>,
        wish: Wish,
        mut seen: Option<Seen>,
    ) -> Upshot {
        let inputs = self.inputs(case, place);
        if !matches!(wish, Wish::Remove | Wish::Release)
            && let Some(seen) = seen.as_ref().filter(|seen| self.is_as_left(case, seen, inputs))
        {
            self.place(case, Some(&seen.uid));
            return Upshot::done(case.applied(Some(seen)));
        }
        let sent = match wish {
            Wish::Remove | Wish::Release => None,
            _ => match self.sent(case, place, inputs) {
                Ok(sent) => sent,
                // What is on its way out stays as it is.
                Err(_) if wish == Wish::Stay => None,
                Err(problem) => {
                    let message = problem.to_string();
                    return Upshot::retry(Some(case.failed(reason::INVALID, message, seen.as_ref())));
                }
            },
        };
        if wish == Wish::Keep && sent.is_none() && seen.is_none() {
            // This cluster has no share in it.
            return Upshot::done(case.applied(None));
        }
        let adopt = self.adopts(case);
        let mut looked = false;
        for _ in 0..ROUNDS {
            let there = match self.there(client, case, place, seen.as_mut(), sent.as_ref(), looked).await {
                Ok(there) => there,
                Err(error) => return self.failure(case, taken, &error, seen.as_ref()),
            };
            let action = plan(wish, &there, adopt);
            if let Some(seen) = seen.as_ref().filter(|seen| case.is_hands_off(seen)) {
                match action {
                    Action::Apply(_) => return Upshot::done(case.left_alone(seen)),
                    Action::Delete(_) => return Upshot::done(case.gone()),
                    _ => {}
                }
            }
            self.place(case, ours(&there));
            if action == Action::Create
                && let Some(report) = once::over(&self.kind(case), case.known_report())
            {
                return Upshot::done(report);
            }
            let releases = matches!(action, Action::Release(_));
            let step = match action {
                Action::Look => match self.look(client, place).await {
                    Ok(found) => {
                        (seen, looked) = (found, true);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Action::Leave => return Upshot::done(case.applied(seen.as_ref())),
                Action::Gone => return Upshot::done(case.gone()),
                Action::Conflict => return self.conflict(case, place, seen.as_ref()),
                Action::Await => return Upshot::awaits(case.waiting(awaits(seen.as_ref()), seen.as_ref())),
                Action::Create | Action::Apply(_) => {
                    let Some(sent) = &sent else { return Upshot::done(case.applied(seen.as_ref())) };
                    let uid = if let Action::Apply(uid) = &action { Some(uid) } else { None };
                    match self.apply(client, case, place, sent, uid).await {
                        Ok(applied) => return self.arrived(case, taken, applied, uid.is_some()),
                        Err(error) => Err(error),
                    }
                }
                Action::Delete(uid) | Action::Release(uid) => {
                    // Where they are is known by it.
                    let others =
                        if case.is_namespace { self.copies.others_in_namespace(&case.errand) } else { 0 };
                    if others > 0 {
                        let message = format!("it waits until {others} other copies in it are gone");
                        return Upshot::done(case.waiting(message, seen.as_ref()));
                    }
                    match releases {
                        true => self.let_go(client, place, &uid).await,
                        false => self.delete(client, case, place, &uid).await,
                    }
                }
            };
            match step {
                Ok(found) => (seen, looked) = (found, true),
                // It is not what it was a moment ago.
                Err(error) if error.code() == Some(409) => (seen, looked) = (None, false),
                Err(error) => return self.failure(case, taken, &error, seen.as_ref()),
            }
        }
        let message = "it keeps changing in the cluster, and is looked at again".to_owned();
        Upshot::retry((taken.failures >= PATIENCE).then(|| case.failed("Changing", message, seen.as_ref())))
    }

    /// `changed`: there was a copy before.
    fn arrived(&self, case: &Case, taken: &Taken, seen: Seen, changed: bool) -> Upshot {
        self.place(case, Some(&seen.uid));
        let report = case.applied(Some(&seen));
        let Some(since) = taken.since else {
            // Somebody there wants it otherwise: the longer that goes on, the longer is the pause before it is put right.
            return if changed { Upshot::retry(Some(report)) } else { Upshot::done(report) };
        };
        let now = self.shared.hub.env.clock.elapsed();
        self.shared.hub.metrics.copies.arrived(now.saturating_sub(since));
        Upshot::done(report)
    }

    /// A refusal is said at once; what may pass by itself, when it does not.
    fn failure(&self, case: &Case, taken: &Taken, error: &Error, seen: Option<&Seen>) -> Upshot {
        let is_late = taken.failures >= PATIENCE;
        let is_refusal = error.code().is_some_and(|code| !matches!(code, 401 | 409 | 429 | 503 | 504))
            && (is_late || !is_early(error));
        self.shared.hub.metrics.copies.wrote(if is_refusal { "refused" } else { "failed" });
        if is_refusal {
            let said = error.to_string();
            let rights = self.rights.advice(&case.ty).filter(|_| error.code() == Some(403));
            let advice = tell::advice(&said).map(str::to_owned).or(rights);
            let message = advice.map_or_else(|| said.clone(), |advice| format!("{said}; {advice}"));
            return Upshot::retry(Some(case.failed(reason::REFUSED, message, seen)));
        }
        if !error.is_answer() {
            self.doubt();
        }
        Upshot::retry(is_late.then(|| case.failed(error.reason(), error.to_string(), seen)))
    }

    /// Tells views which copy the object has here.
    fn place(&self, case: &Case, uid: Option<&CompactString>) {
        let views = &self.shared.hub.views;
        let is = uid.map(|uid| (uid.clone(), case.is_duplicated()));
        let was = {
            let mut state = self.copies.state.lock();
            let Some(record) = state.records.get_mut(&case.errand) else { return };
            if record.placed == is {
                return;
            }
            // Where nothing shows yet it must be said again.
            let is = is.clone().filter(|_| views.of(&case.errand.workspace).is_some());
            std::mem::replace(&mut record.placed, is)
        };
        if let Some((old, _)) = was.filter(|(old, _)| Some(old) != uid) {
            views.displaced(&case.errand.workspace, self.name(), &old);
        }
        if let Some((uid, duplicated)) = is {
            let placed = Placed { uid: case.source_uid().to_owned(), duplicated };
            views.placed(&case.errand.workspace, self.name(), &uid, placed);
        }
    }
}

/// Whether the user says that objects in members may be taken over.
pub fn adopts(object: &Object) -> bool {
    // Hardly any does, and none else need be taken apart.
    if !std::str::from_utf8(object.body_slice()).is_ok_and(|text| text.contains(api::ADOPT_ANNOTATION)) {
        return false;
    }
    let tree = object.tree().unwrap_or_default();
    tree.get("metadata").is_some_and(|it| it["annotations"][api::ADOPT_ANNOTATION] == "true")
}

/// Whether a `Cluster` says that it can be used.
fn reads_ready(cluster: &Object) -> Option<bool> {
    let cluster = Value::Object(cluster.tree().ok()?);
    Some(api::cluster::condition(&cluster, condition::READY).is_some_and(|it| it["status"] == "True"))
}

/// A new namespace has what pods need a moment later.
fn is_early(error: &Error) -> bool {
    error.code() == Some(403) && error.to_string().contains("error looking up service account")
}

fn ours(there: &There) -> Option<&CompactString> {
    match there {
        There::Ours { uid, .. } => Some(uid),
        _ => None,
    }
}

fn awaits(seen: Option<&Seen>) -> String {
    let finalizers = seen.map(|seen| seen.finalizers.join(", ")).unwrap_or_default();
    match finalizers.is_empty() {
        true => "it is being deleted in the cluster".to_owned(),
        false => format!("it is being deleted in the cluster, which waits for its finalizers: {finalizers}"),
    }
}
