//! Why a decision is as it is, for people: per cluster what was found, and what would change it.

use std::fmt::Write;

use kinds::Split;
use serde::Serialize;

use crate::{
    cluster::{Cluster, Condition},
    decide::{Confined, Decision, Outcome},
    input::Input,
    policy::Strategy,
    resolve::Layer,
    select::{Objection, Stance, Verdict},
};

/// A decision in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `Deployment shop/web`
    pub object: String,
    /// Where the policy that counts was written.
    pub layer: String,
    /// Its name; empty for the default.
    pub policy: String,
    /// What came of it, in one sentence.
    pub summary: String,
    /// What is wrong, or what to know beside the clusters.
    pub remarks: Vec<String>,
    pub clusters: Vec<ClusterExplanation>,
}

/// What was found of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterExplanation {
    pub cluster: String,
    pub verdict: ClusterVerdict,
    /// Replicas it gets; of what has none, 0.
    pub replicas: u64,
    /// Replicas it has.
    pub current: u64,
    /// Whether it gets the object.
    pub assigned: bool,
    /// Why not, in one word; empty if it may have it.
    pub word: String,
    /// Why not, or why no more; empty if there is nothing to say.
    pub reason: String,
    /// What would change that; empty if there is nothing to say.
    pub change: String,
    /// `None`: it was not measured, because it cannot have it.
    pub score: Option<ScoreExplanation>,
    /// How many replicas it can hold; `None`: not known.
    pub room: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ClusterVerdict {
    Feasible,
    /// It keeps what it has.
    Keeps,
    /// It gives up what it has as soon as others can have it.
    Leaves,
    Infeasible,
    /// Nothing is known of it.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ScoreExplanation {
    pub total: i64,
    pub here: i64,
    pub affinity: i64,
    pub taints: i64,
    pub free: i64,
}

impl Decision {
    /// In words. `input` is what was decided on.
    pub fn explain(&self, input: &Input<'_>) -> Explanation {
        let subject = input.subject;
        let mut clusters: Vec<ClusterExplanation> = self
            .verdicts
            .all
            .iter()
            .filter_map(|it| {
                Some(self.of_cluster(input, it, &input.directory.entries().get(it.cluster)?.cluster))
            })
            .collect();
        clusters.extend(self.unknown.iter().map(|name| self.of_unknown(name)));
        clusters.extend(self.missing.iter().map(|name| of_missing(name)));
        Explanation {
            object: format!("{} {}", subject.kind, input.key().trim_start_matches('/')),
            layer: self.layer.in_words().to_owned(),
            policy: self.source.clone(),
            summary: self.summary(input),
            remarks: self.remarks(),
            clusters,
        }
    }

    fn summary(&self, input: &Input<'_>) -> String {
        match &self.outcome {
            Outcome::Above(why) => return format!("stays in the hub: {why}"),
            Outcome::Broken(problem) => return format!("all stays as it is: {problem}"),
            Outcome::Placed => {}
        }
        if self.shares.is_empty() {
            return match self.is_unplaced {
                true => "pending: no cluster can have it".to_owned(),
                false => "nowhere: nothing needs it yet".to_owned(),
            };
        }
        let clusters = counted(self.shares.len() as u64, "cluster");
        let Some(replicas) = input.subject.replicas else { return format!("in {clusters}") };
        let shared = match self.strategy {
            Some(Strategy::Duplicate) => format!("{} in each of {clusters}", counted(replicas, "replica")),
            _ => format!("{} in {clusters}", counted(replicas.saturating_sub(self.pending), "replica")),
        };
        match self.pending {
            0 => shared,
            pending => format!("{shared}, {pending} pending"),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match &self.confined {
            None => {}
            Some(Confined::Network(name)) => remarks.push(format!(
                "other clusters are not used, because the network of {name} is None: join them by a Flat or Gateway \
                 network, or write a Placement"
            )),
            Some(Confined::Stateful) => remarks.push(
                "other clusters are not used, because its pods have names of their own: write a Placement".to_owned(),
            ),
            Some(Confined::Volumes) => remarks.push(
                "other clusters are not used, because it mounts volumes that are not shared: write a Placement"
                    .to_owned(),
            ),
        }
        // Not for how long: what is left of it is another time with each look, and is no news.
        remarks.extend(self.leaving.keys().map(|name| format!("a taint of {name} is borne for a time only")));
        remarks
    }

    fn of_cluster(&self, input: &Input<'_>, verdict: &Verdict, cluster: &Cluster) -> ClusterExplanation {
        let share = self.shares.get(cluster.name.as_str());
        let replicas = share.map_or(0, |it| it.replicas);
        let score = verdict.is_feasible().then(|| ScoreExplanation {
            total: verdict.score.total(),
            here: verdict.score.here,
            affinity: verdict.score.affinity,
            taints: verdict.score.taints,
            free: verdict.score.free,
        });
        let (reason, change) = match verdict.objection {
            Some(objection) => self.objection(input, objection, cluster),
            None => self.shortage(input, verdict, cluster, replicas),
        };
        let seen = match verdict.stance() {
            Stance::Open => ClusterVerdict::Feasible,
            Stance::Keeps if verdict.present => ClusterVerdict::Keeps,
            Stance::Leaves if verdict.present => ClusterVerdict::Leaves,
            // A Job that has begun, and may not go on.
            _ if share.is_some() => ClusterVerdict::Keeps,
            _ => ClusterVerdict::Infeasible,
        };
        ClusterExplanation {
            cluster: cluster.name.to_string(),
            verdict: seen,
            replicas,
            current: verdict.current,
            assigned: share.is_some(),
            word: verdict.objection.map(Objection::word).unwrap_or_default(),
            reason,
            change,
            score,
            room: verdict.room.filter(|room| *room < u64::MAX && verdict.is_feasible()),
        }
    }

    fn of_unknown(&self, name: &str) -> ClusterExplanation {
        let replicas = self.shares.get(name).map_or(0, |it| it.replicas);
        ClusterExplanation {
            verdict: ClusterVerdict::Unknown,
            replicas,
            current: replicas,
            assigned: true,
            word: "Unknown".to_owned(),
            reason: "nothing is known of it, so it keeps what it has".to_owned(),
            change: "its session, or naming other clusters".to_owned(),
            ..ClusterExplanation::of(name)
        }
    }

    /// Of a cluster that may have it: why it has no more, if there is more.
    fn shortage(
        &self,
        input: &Input<'_>,
        verdict: &Verdict,
        cluster: &Cluster,
        replicas: u64,
    ) -> (String, String) {
        if self.pending == 0 && !self.is_unplaced {
            let avoided = if verdict.avoided { "a taint asks to prefer others" } else { "" };
            return (avoided.to_owned(), String::new());
        }
        if let Some(max) = verdict.max.filter(|max| *max <= replicas) {
            let reason = format!("its share is at most {}", counted(max, "replica"));
            return (reason, "the policy's shares".to_owned());
        }
        if let Some(room) = verdict.room.filter(|room| *room <= replicas.max(1)) {
            let resource = self.verdicts.needs.get(verdict.scarce).map_or("", |(name, _)| name.as_str());
            let reason = format!("insufficient {resource}: room for {}", counted(room, "replica"));
            return (reason, format!("more {resource}, or smaller requests"));
        }
        if self.confined.is_some() {
            return ("the default uses one cluster for it".to_owned(), "a Placement".to_owned());
        }
        if let Some(name) = self.unknown.first() {
            let reason = format!("nothing is known of {name}, which has some of it");
            return (reason, format!("the session of {name}"));
        }
        let by_default = self.layer == Layer::Default && self.strategy == Some(Strategy::Divide);
        if by_default && !cluster.network.reaches_others() {
            let reason =
                "its network is None, so that what has no room elsewhere does not go there".to_owned();
            return (reason, "a Flat or Gateway network, or a Placement".to_owned());
        }
        match (self.strategy, self.verdicts.spread.first()) {
            (Some(Strategy::Single), _) => {
                ("one cluster has all of it".to_owned(), "another strategy".to_owned())
            }
            (_, Some(spread)) => {
                let reason = format!("spreading over {} allows no more", spread.key);
                (reason, "room where least of it is, or a larger maxSkew".to_owned())
            }
            _ if input.subject.splits == Split::Ordinals => (
                "pods with names of their own stay in their clusters".to_owned(),
                "rebalance: true".to_owned(),
            ),
            _ => (String::new(), String::new()),
        }
    }

    fn objection(&self, input: &Input<'_>, objection: Objection, cluster: &Cluster) -> (String, String) {
        let subject = input.subject;
        let taint = |at: usize| cluster.taints.get(at).map(ToString::to_string).unwrap_or_default();
        let kind = format!("{}.{}", subject.kind, subject.group);
        let kind = kind.trim_end_matches('.');
        let account = input.account.unwrap_or_default();
        match objection {
            Objection::NotChosen => {
                ("the policy does not select it".into(), "its labels, or the policy's clusters".into())
            }
            Objection::InNoGroup => {
                ("it is in no group of the policy".into(), "its labels, or the policy's groups".into())
            }
            Objection::NotAllowed => {
                (format!("account {account} may not use it"), format!("{account} in its spec.accounts"))
            }
            Objection::NodeSelector(at) => {
                let (key, value) = subject.node_selector.iter().nth(at).unzip();
                let label = format!("{}={}", key.map_or("", |it| it), value.map_or("", |it| it));
                (
                    format!("didn't match the pods' node selector {label}"),
                    format!("a label {label} on the Cluster"),
                )
            }
            Objection::Affinity => {
                ("didn't match the pods' node affinity".into(), "labels of the Cluster that do".into())
            }
            Objection::NoPlace(at) => {
                let key = self.verdicts.spread.get(at).map_or("", |it| it.key.as_str());
                (format!("it has no label {key} to spread over"), format!("a label {key} on the Cluster"))
            }
            Objection::Tainted(at) => {
                (format!("untolerated taint {}", taint(at)), "a toleration of it".into())
            }
            Objection::DrivenOut(at) => {
                let taint = taint(at);
                (
                    format!("taint {taint} drives out what it has"),
                    "a toleration of it, without seconds".into(),
                )
            }
            Objection::Cordoned => ("it is cordoned".into(), format!("kubectl uncordon {}", cluster.name)),
            Objection::NotReady => {
                let why = match &cluster.condition {
                    Condition::NotReady(why) => why.as_str(),
                    Condition::Ready => "",
                };
                (format!("it is not ready: {why}"), "it gets ready".into())
            }
            Objection::NoGroupVersion | Objection::NoResource => {
                let version = &subject.version;
                (
                    format!("it does not serve {kind} {version}"),
                    format!("a release or definition that has {kind}"),
                )
            }
            Objection::LacksField => {
                let lacks = input.fields.first_in(&cluster.offer.lacks);
                let (ty, field) = lacks.unwrap_or_default();
                (
                    format!("its release does not know field {field} of {ty}"),
                    format!("an object without {field}"),
                )
            }
            Objection::NoClass(at) => {
                let class = subject.classes.iter().nth(at);
                let is_brought = class.is_some_and(|class| input.brought.contains_key(class));
                let kind = class.map_or("", |(kind, _)| kind.kind());
                let class = class.map(|(kind, name)| format!("{kind:?} {name}")).unwrap_or_default();
                match is_brought {
                    true => (
                        format!("it has no {class}, and takes none from this workspace"),
                        format!("{kind} in its spec.admits"),
                    ),
                    false => {
                        (format!("it has no {class}"), format!("{class} in the cluster, or in the workspace"))
                    }
                }
            }
            Objection::ClaimElsewhere(at) => {
                let claim = input.claims.iter().nth(at);
                let (name, clusters) = claim.map(|(name, it)| (name.as_str(), it)).unzip();
                let clusters: Vec<&str> = clusters.into_iter().flatten().map(String::as_str).collect();
                (
                    format!(
                        "the claim {} that it mounts is in {}",
                        name.unwrap_or_default(),
                        clusters.join(", ")
                    ),
                    format!("a claim that is in {}", cluster.name),
                )
            }
            Objection::NotNeeded => ("nothing there needs it".into(), String::new()),
        }
    }
}

impl ClusterExplanation {
    fn of(name: &str) -> Self {
        Self {
            cluster: name.to_owned(),
            verdict: ClusterVerdict::Infeasible,
            replicas: 0,
            current: 0,
            assigned: false,
            word: String::new(),
            reason: String::new(),
            change: String::new(),
            score: None,
            room: None,
        }
    }
}

fn of_missing(name: &str) -> ClusterExplanation {
    ClusterExplanation {
        word: "NoSuchCluster".to_owned(),
        reason: "there is no such cluster".to_owned(),
        change: "joining it".to_owned(),
        ..ClusterExplanation::of(name)
    }
}

fn counted(count: u64, of: &str) -> String {
    if count == 1 { format!("1 {of}") } else { format!("{count} {of}s") }
}

/// Clusters that are told alike are told once.
const SHOWN_ALIKE: usize = 3;

impl Explanation {
    /// As text, for a terminal.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let policy = match self.policy.as_str() {
            "" => self.layer.clone(),
            policy => format!("{}, {policy}", self.layer),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}: {}\nDecided by {policy}.", self.object, self.summary);
        self.remarks.iter().for_each(|it| {
            let _ = writeln!(text, "Note: {it}.");
        });
        let assigned = self.clusters.iter().filter(|it| it.assigned);
        let rows: Vec<[String; 6]> = assigned.map(ClusterExplanation::row).collect();
        let heads = ["CLUSTER", "REPLICAS", "HAS", "ROOM", "SCORE", "WHY"].map(str::to_owned);
        if !rows.is_empty() {
            text.push('\n');
            table(&mut text, heads, &rows);
        }
        self.render_others(&mut text);
        text
    }

    /// Not assigned, by reason.
    fn render_others(&self, text: &mut String) {
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for it in self.clusters.iter().filter(|it| !it.assigned) {
            let told = it.told();
            match reasons.iter_mut().find(|(known, _)| *known == told) {
                Some((_, names)) => names.push(&it.cluster),
                None => reasons.push((told, vec![&it.cluster])),
            }
        }
        if !reasons.is_empty() {
            text.push_str("\nNot in:\n");
        }
        for (reason, names) in reasons {
            let shown = names.iter().take(SHOWN_ALIKE).copied().collect::<Vec<_>>().join(", ");
            let more = match names.len().saturating_sub(SHOWN_ALIKE) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(text, "  {shown}{more}: {reason}");
        }
    }
}

impl ClusterExplanation {
    fn row(&self) -> [String; 6] {
        let known = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let score = self.score.map_or_else(|| "-".to_owned(), |it| it.total.to_string());
        let why = match self.verdict {
            ClusterVerdict::Keeps => format!("keeps what it has: {}", self.reason),
            _ => self.reason.clone(),
        };
        [
            self.cluster.clone(),
            self.replicas.to_string(),
            self.current.to_string(),
            known(self.room),
            score,
            why,
        ]
    }

    fn told(&self) -> String {
        let reason =
            if self.reason.is_empty() { "others suit better, or have all of it" } else { &self.reason };
        match self.change.as_str() {
            "" => reason.to_owned(),
            change => format!("{reason} (would change it: {change})"),
        }
    }
}

fn table(text: &mut String, heads: [String; 6], rows: &[[String; 6]]) {
    let all = || std::iter::once(&heads).chain(rows);
    let widths: Vec<usize> =
        (0..heads.len()).map(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in all() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
