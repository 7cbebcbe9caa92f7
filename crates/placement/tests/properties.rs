//! What holds of every decision, whatever it is made from.

use std::collections::BTreeMap;

use kinds::{Extent, Share, Split, Subject, Toleration};
use machinery::quantity::{Format, Quantity};
use placement::{
    Cluster, ClusterVerdict, Decision, Directory, Input, Outcome, Policies, Policy, Strategy as Way,
    cluster::{Amount, Condition, Effect, Network, Taint},
    decide,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const REGION: &str = "topology.kubernetes.io/region";

/// All that a decision is made from.
#[derive(Clone, Debug)]
struct World {
    clusters: Vec<Cluster>,
    subject: Subject,
    policy: Option<Value>,
    current: BTreeMap<String, Share>,
    home: Option<String>,
    account: Option<String>,
    /// Of an autoscaler or a budget.
    referrers: BTreeMap<String, u64>,
}

impl World {
    fn policies(&self) -> Policies {
        let read = |spec: &Value| Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        self.policy.iter().map(read).collect()
    }

    fn with<T>(&self, look: impl FnOnce(&Input<'_>, Decision) -> T) -> T {
        let directory = Directory::new(self.clusters.iter().cloned());
        let policies = self.policies();
        let input = Input {
            workspace: &policies,
            current: &self.current,
            home: self.home.as_deref(),
            account: self.account.as_deref(),
            referrers: &self.referrers,
            ..Input::new(&self.subject, &directory)
        };
        look(&input, decide(&input))
    }

    fn decide(&self) -> Decision {
        self.with(|_, decision| decision)
    }

    /// As if the decision had been carried out and reported.
    fn after(&self, decision: &Decision) -> World {
        let mut after = self.clone();
        after.current = decision.shares.clone();
        if self.subject.replicas.is_none() {
            return after;
        }
        for cluster in &mut after.clusters {
            let replicas = |shares: &BTreeMap<String, Share>| {
                shares.get(cluster.name.as_str()).map_or(0, |it| it.replicas) as i64
            };
            let grown = replicas(&after.current) - replicas(&self.current);
            for amount in cluster.amounts.iter_mut().flatten() {
                amount.requested += grown;
            }
        }
        after
    }
}

prop_compose! {
    fn any_cluster(name: String)(
        region in prop::sample::select(vec!["", "eu", "us", "ap"]),
        taint in prop_oneof![
            5 => Just(None),
            1 => prop::sample::select(vec![Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]).prop_map(Some),
        ],
        unschedulable in prop::bool::weighted(0.1),
        is_ready in prop::bool::weighted(0.8),
        limit in prop_oneof![1 => Just(None), 2 => (0..12_i64).prop_map(Some)],
        network in prop::sample::select(vec![Network::None, Network::Flat, Network::Gateway]),
        is_private in prop::bool::weighted(0.1),
    ) -> Cluster {
        let mut cluster = Cluster::open(&name);
        if !region.is_empty() {
            cluster = cluster.with_label(REGION, region);
        }
        cluster.taints = taint.into_iter().map(|effect| Taint { key: "k".into(), value: String::new(), effect, since: None }).collect();
        cluster.unschedulable = unschedulable;
        if !is_ready {
            cluster.condition = Condition::NotReady("Unreachable".into());
        }
        cluster.amounts = limit.map(|limit| vec![Amount { resource: "pods".into(), limit, requested: 0 }]);
        cluster.network = network;
        if is_private {
            cluster.accounts = ["team-a".to_owned()].into();
        }
        cluster
    }
}

fn any_clusters() -> impl Strategy<Value = Vec<Cluster>> {
    let names = prop::sample::subsequence(vec!["a", "b", "c", "d", "e"], 0..=5);
    names
        .prop_flat_map(|names| names.into_iter().map(|name| any_cluster(name.to_owned())).collect::<Vec<_>>())
}

fn any_policy() -> impl Strategy<Value = Value> {
    let strategy = prop::sample::select(vec!["Single", "Duplicate", "Divide", "Divide", "Divide"]);
    let by = prop::sample::select(vec!["Even", "Weight", "Capacity"]);
    let spread = prop::sample::select(vec![
        json!([]),
        json!([{"topologyKey": REGION, "maxSkew": 1}]),
        json!([{"topologyKey": REGION, "maxSkew": 2, "maxDomains": 2}]),
        json!([{"topologyKey": REGION, "whenUnsatisfiable": "ScheduleAnyway"}]),
    ]);
    let groups = prop::sample::select(vec![
        json!([]),
        json!([{"names": ["a", "b"]}, {"names": ["c", "d", "e", "x"]}]),
        json!([{"selector": {"matchLabels": {REGION: "eu"}}}, {}]),
    ]);
    let clusters = prop::sample::select(vec![
        json!({}),
        json!({"names": ["a", "b", "c", "x"]}),
        json!({"selector": {"matchExpressions": [{"key": REGION, "operator": "Exists"}]}}),
    ]);
    let shares = prop::collection::vec(
        (
            prop::sample::select(vec!["a", "b", "*"]),
            0..4_u64,
            prop::option::of(0..8_u64),
            0..4_u64,
        )
            .prop_map(|(cluster, min, max, weight)| {
                json!({"cluster": cluster, "min": min.min(max.unwrap_or(min)), "max": max, "weight": weight})
            }),
        0..3,
    );
    let tolerations = prop::sample::select(vec![
        json!([]),
        json!([{"operator": "Exists"}]),
        json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]),
    ]);
    let federation = prop::bool::weighted(0.2);
    (strategy, by, federation, any::<bool>(), spread, groups, clusters, shares, tolerations).prop_map(
        |(strategy, by, federation, rebalance, spread, groups, clusters, shares, tolerations)| {
            let algorithm = if federation && by != "Capacity" { "Federation" } else { "Fair" };
            json!({
                "select": [{"kinds": ["*"]}], "strategy": strategy, "spread": spread, "groups": groups, "clusters": clusters,
                "tolerations": tolerations, 
                "divide": {"by": by, "algorithm": algorithm, "rebalance": rebalance, "shares": shares},
            })
        },
    )
}

/// A subject that is divided so; `numbers` are its replicas, and what else there is to divide.
fn subject(splits: Split, numbers: (u64, u64), is_tolerant: bool) -> Subject {
    let (group, kind) = match splits {
        Split::Ordinals => ("apps", "StatefulSet"),
        Split::JobCounts => ("batch", "Job"),
        Split::MinMax => ("autoscaling", "HorizontalPodAutoscaler"),
        Split::Budget => ("policy", "PodDisruptionBudget"),
        _ => ("apps", "Deployment"),
    };
    let (replicas, more) = numbers;
    let has_pods = !matches!(splits, Split::MinMax | Split::Budget);
    let exists = Toleration { operator: "Exists".into(), ..Toleration::default() };
    Subject {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: "web".into(),
        replicas: has_pods.then_some(replicas),
        splits,
        extent: match splits {
            Split::JobCounts => Extent::Job { completions: (more > 0).then_some(more), indexed: false },
            Split::MinMax => Extent::Bounds { min: replicas, max: replicas.saturating_add(more).max(1) },
            _ => Extent::None,
        },
        stateful: splits == Split::Ordinals,
        needs: has_pods
            .then(|| ("pods".to_owned(), Quantity::new(1, Format::DecimalSi)))
            .into_iter()
            .collect(),
        tolerations: is_tolerant.then_some(exists).into_iter().collect(),
        ..Subject::default()
    }
}

/// What a cluster may have of a subject.
fn share(subject: &Subject, replicas: u64) -> Share {
    match (subject.splits, subject.extent) {
        (Split::MinMax, _) => Share { min: Some(1), max: Some(replicas.max(1)), ..Share::default() },
        (Split::JobCounts, Extent::Job { completions: Some(_), .. }) => {
            Share { replicas, completions: Some(replicas.saturating_mul(2)), ..Share::default() }
        }
        _ => Share { replicas, ..Share::default() },
    }
}

prop_compose! {
    fn any_world()(
        clusters in any_clusters(),
        policy in prop::option::weighted(0.8, any_policy()),
        numbers in (0..15_u64, 0..15_u64),
        splits in prop_oneof![
            4 => Just(Split::Replicas), 2 => Just(Split::Ordinals), 2 => Just(Split::JobCounts),
            1 => Just(Split::MinMax), 1 => Just(Split::Budget),
        ],
        current in prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c", "x"]), 0..6_u64, 0..4),
        referrers in prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c", "x"]), 0..6_u64, 0..4),
        home in prop::option::of(prop::sample::select(vec!["a", "b", "x"])),
        account in prop::option::of(prop::sample::select(vec!["team-a", "team-b"])),
        is_tolerant in prop::bool::weighted(0.2),
    ) -> World {
        let subject = subject(splits, numbers, is_tolerant);
        let current: BTreeMap<String, Share> =
            current.into_iter().map(|(name, replicas)| (name.to_owned(), share(&subject, replicas))).collect();
        let mut clusters = clusters;
        for cluster in &mut clusters {
            let runs = current.get(cluster.name.as_str()).map_or(0, |it| it.replicas) as i64;
            for amount in cluster.amounts.iter_mut().flatten() {
                // What runs fits.
                amount.limit = amount.limit.max(runs);
                amount.requested = runs;
            }
        }
        World {
            clusters,
            subject,
            policy,
            current,
            home: home.map(str::to_owned),
            account: account.map(str::to_owned),
            referrers: referrers.into_iter().map(|(name, replicas)| (name.to_owned(), replicas)).collect(),
        }
    }
}

fn sum(decision: &Decision) -> u64 {
    decision.shares.values().map(|it| it.replicas).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_exact(world in any_world()) {
        let decision = world.decide();
        let Some(total) = world.subject.replicas else {
            prop_assert_eq!(decision.pending, 0);
            return Ok(());
        };
        if decision.strategy == Some(Way::Duplicate) {
            let known = decision.shares.iter().filter(|(name, _)| !decision.unknown.contains(name));
            let short: u64 = known.map(|(_, share)| total - share.replicas).sum();
            prop_assert_eq!(short, decision.pending);
        } else if decision.unknown.is_empty() {
            prop_assert_eq!(sum(&decision) + decision.pending, total);
        } else {
            // What is where nothing is known counts, and may be more.
            prop_assert!(sum(&decision) + decision.pending >= total);
        }
    }

    #[test]
    fn bounds_of_autoscalers_are_valid_and_those_of_the_whole(world in any_world()) {
        let Extent::Bounds { min, max } = world.subject.extent else { return Ok(()) };
        let decision = world.decide();
        let bounds = |it: &Share| (it.min.unwrap(), it.max.unwrap());
        let parts: Vec<(u64, u64)> = decision.shares.values().map(bounds).collect();
        let sum = parts.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        if !decision.unknown.is_empty() {
            prop_assert!(parts.iter().all(|(min, max)| min <= max), "{:?}", parts);
        } else if decision.strategy == Some(Way::Divide) && !parts.is_empty() {
            prop_assert!(parts.iter().all(|(min, max)| 1 <= *min && min <= max), "{:?}", parts);
            prop_assert!(sum.1 <= max, "{:?}", parts);
            prop_assert_eq!(sum.0, min.max(parts.len() as u64).min(sum.1), "{:?}", parts);
        } else {
            prop_assert!(parts.iter().all(|it| *it == (min, max)), "{:?}", parts);
        }
    }

    #[test]
    fn completions_that_were_given_stay(world in any_world()) {
        let decision = world.decide();
        for (name, share) in &decision.shares {
            let had = world.current.get(name).and_then(|it| it.completions).filter(|it| *it > 0);
            if let Some(had) = had.filter(|_| decision.strategy == Some(Way::Divide)) {
                prop_assert_eq!(share.completions, Some(had), "{}", name);
            }
        }
    }

    #[test]
    fn bounds_and_room_are_kept(world in any_world()) {
        prop_assume!(world.subject.replicas.is_some());
        let decision = world.decide();
        for cluster in &world.clusters {
            let share = decision.shares.get(cluster.name.as_str()).map_or(0, |it| it.replicas);
            for amount in cluster.amounts.iter().flatten() {
                prop_assert!(share as i64 <= amount.limit, "{} in {cluster:?}", share);
            }
        }
        for verdict in &decision.verdicts.all {
            let name = world.clusters.iter().map(|it| it.name.as_str()).collect::<std::collections::BTreeSet<_>>();
            let name = name.into_iter().nth(verdict.cluster).unwrap();
            let share = decision.shares.get(name).map_or(0, |it| it.replicas);
            if decision.strategy == Some(Way::Divide) && world.policy.is_some() {
                prop_assert!(verdict.max.is_none_or(|max| share <= max || share <= verdict.current), "{name}");
            }
            // Unhealthy clusters, and all others that may not, gain nothing.
            if verdict.objection.is_some() {
                prop_assert!(share <= verdict.current, "{name} gained");
            }
        }
    }

    #[test]
    fn what_was_decided_is_decided_again(world in any_world()) {
        let decision = world.decide();
        let again = world.after(&decision).decide();
        prop_assert_eq!(&again.shares, &decision.shares);
        prop_assert!(again.reservations.is_empty());
        prop_assert_eq!(again.pending, decision.pending);
    }

    #[test]
    fn the_order_of_clusters_does_not_matter(world in any_world()) {
        let mut turned = world.clone();
        turned.clusters.reverse();
        prop_assert_eq!(world.decide(), turned.decide());
    }

    #[test]
    fn a_cluster_that_cannot_have_it_changes_nothing(world in any_world(), at in 0..3_usize) {
        let before = world.decide();
        let mut more = world.clone();
        let mut stranger = Cluster::open("bb").with_label(REGION, "eu");
        match at {
            0 => stranger.unschedulable = true,
            1 => stranger.condition = Condition::NotReady("Unreachable".into()),
            _ => stranger.taints = vec![Taint { key: "other".into(), value: String::new(), effect: Effect::NoSchedule, since: None }],
        }
        if at == 2 && (!world.subject.tolerations.is_empty() || world.policy.is_some()) {
            stranger.unschedulable = true;
        }
        more.clusters.push(stranger);
        let after = more.decide();
        prop_assert_eq!(before.shares, after.shares);
        prop_assert_eq!(before.pending, after.pending);
    }

    #[test]
    fn the_explanation_agrees(world in any_world()) {
        world.with(|input, decision| {
            let explanation = decision.explain(input);
            for it in &explanation.clusters {
                let share = decision.shares.get(&it.cluster);
                prop_assert_eq!(it.assigned, share.is_some());
                prop_assert_eq!(it.replicas, share.map_or(0, |share| share.replicas));
                prop_assert!(it.verdict != ClusterVerdict::Infeasible || !it.assigned, "{:?}", it);
                prop_assert!(it.verdict == ClusterVerdict::Feasible || !it.reason.is_empty(), "{:?}", it);
                // What waits has a reason in every cluster.
                let waits = decision.pending > 0 && decision.strategy != Some(Way::Duplicate);
                prop_assert!(!waits || !it.reason.is_empty(), "{:?}\n{}", it, explanation.render());
            }
            let told: u64 = explanation.clusters.iter().map(|it| it.replicas).sum();
            prop_assert_eq!(told, sum(&decision));
            prop_assert_eq!(explanation.clusters.iter().filter(|it| it.assigned).count(), decision.shares.len());
            let text = explanation.render();
            for name in decision.shares.keys() {
                prop_assert!(text.contains(name.as_str()));
            }
            prop_assert!(matches!(decision.outcome, Outcome::Placed));
            Ok(())
        })?;
    }

    #[test]
    fn no_numbers_make_it_fail(
        world in any_world(),
        replicas: u64,
        numbers in prop::collection::vec((any::<i64>(), any::<i64>()), 5),
        needs in any::<i64>(),
        current: u64,
        share in (any::<u64>(), any::<u64>(), any::<u64>()),
        federation: bool,
    ) {
        let mut world = world;
        world.subject = subject(world.subject.splits, (replicas, current), false);
        world.subject.needs = [("pods".to_owned(), Quantity::new(needs, Format::DecimalSi))].into();
        let now = self::share(&world.subject, current);
        world.current.values_mut().for_each(|it| *it = now);
        world.referrers.values_mut().for_each(|it| *it = current);
        for (cluster, (limit, requested)) in world.clusters.iter_mut().zip(numbers) {
            cluster.amounts = Some(vec![Amount { resource: "pods".into(), limit, requested }]);
        }
        if let Some(policy) = &mut world.policy {
            let (min, max, weight) = share;
            policy["divide"]["shares"] = json!([{"cluster": "*", "min": min, "max": max, "weight": weight}]);
            if federation {
                policy["divide"]["algorithm"] = json!("Federation");
            }
        }
        world.with(|input, decision| decision.explain(input).render());
    }

    #[test]
    fn what_is_written_is_read_or_refused(spec in any_policy(), text in "\\PC{0,20}", at in 0..6_usize) {
        let mut spec = spec;
        let field = ["strategy", "divide", "spread", "clusters", "groups", "select"][at];
        spec[field] = json!(text);
        let _ = Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec}));
    }
}
