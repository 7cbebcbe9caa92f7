//! What goes with the replicas, and what goes where others are.

use super::*;

#[test]
fn what_others_need_goes_with_them() {
    let directory = directory(&three());
    let web = workload("Deployment", 3, |it| {
        it["spec"]["template"]["spec"]["volumes"] = json!([{"name": "c", "configMap": {"name": "settings"}}]);
    });
    let agent = workload("DaemonSet", 0, |it| {
        it["metadata"]["name"] = json!("agent");
        it["spec"]["template"]["metadata"]["labels"] = json!({"app": "agent"});
    });
    let (web_is, agent_is) =
        (current(&[("eu-1", 2), ("us-1", 1)]), current(&[("ap-1", 0), ("eu-1", 0), ("us-1", 0)]));
    let placed = [(&web, &web_is), (&agent, &agent_is)];
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        kinds::subject(&json!({
            "apiVersion": version, "kind": kind, "metadata": {"namespace": "shop", "name": name}, "spec": spec,
        }))
        .unwrap()
    };
    let cases = [
        (object("v1", "ConfigMap", "settings", json!({})), "eu-1=0 us-1=0"),
        // Nothing names it: where the workloads are, and not where the agent is.
        (object("v1", "ConfigMap", "other", json!({})), "eu-1=0 us-1=0"),
        (object("v1", "Service", "web", json!({"selector": {"app": "web"}})), "eu-1=0 us-1=0"),
        (object("v1", "Service", "agent", json!({"selector": {"app": "agent"}})), "ap-1=0 eu-1=0 us-1=0"),
        (object("v1", "PersistentVolumeClaim", "data", json!({})), "eu-1=0"),
        (object("v1", "ResourceQuota", "q", json!({})), ""),
        // Every cluster makes its own.
        (object("v1", "ServiceAccount", "default", json!({})), ""),
        (object("v1", "ConfigMap", "kube-root-ca.crt", json!({})), ""),
    ];
    for (subject, wanted) in cases {
        let referrers = follow::referrers(&subject, placed);
        let neighbours = follow::neighbours("shop", placed);
        let input =
            Input { referrers: &referrers, neighbours: &neighbours, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!(shown(&decision), wanted, "{} {}", subject.kind, subject.name);
    }
}

#[test]
fn a_budget_is_divided_as_its_pods_are() {
    let directory = directory(&three());
    let (web, web_is) = (deployment(8), current(&[("eu-1", 6), ("us-1", 2)]));
    for (field, amount, wanted) in
        [("maxUnavailable", 1, ["eu-1=1", "us-1=0"]), ("minAvailable", 5, ["eu-1=4", "us-1=1"])]
    {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, field: amount},
        });
        let subject = kinds::subject(&object).unwrap();
        let referrers = follow::referrers(&subject, [(&web, &web_is)]);
        let input = Input { referrers: &referrers, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        let copies = kinds::split::split(&object, &decision.shares).unwrap();
        let parts = copies.iter().map(|(name, copy)| format!("{name}={}", copy["spec"][field]));
        assert_eq!(parts.collect::<Vec<_>>(), wanted, "{field}");
        assert_eq!(decide(&Input { current: &decision.shares, ..input }).shares, decision.shares);
    }
}

#[test]
fn an_autoscaler_is_divided_as_the_policy_says() {
    let directory = directory(&three());
    let subject = kinds::subject(&json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"minReplicas": 2, "maxReplicas": 12},
    }))
    .unwrap();
    let cases = [
        (json!([{"cluster": "eu-1", "weight": 3}, {"cluster": "us-1", "weight": 1}]), "eu-1=1..9 us-1=1..3"),
        (json!([{"cluster": "eu-1", "weight": 9, "max": 4}, {"cluster": "us-1"}]), "eu-1=1..4 us-1=1..8"),
        (json!([{"cluster": "eu-1", "max": 4}, {"cluster": "us-1", "max": 2}]), "eu-1=1..4 us-1=1..2"),
    ];
    for (shares, wanted) in cases {
        let policies =
            Policies::from([policy(json!({"select": [{"kinds": [subject.kind]}], "strategy": "Divide",
            "divide": {"by": "Weight", "shares": shares}}))]);
        let mut current = BTreeMap::new();
        for when in ["at first", "when that was done"] {
            let input = Input { workspace: &policies, current: &current, ..Input::new(&subject, &directory) };
            let decision = decide(&input);
            let bounds = |(name, it): (&String, &Share)| {
                format!("{name}={}..{}", it.min.unwrap_or(0), it.max.unwrap_or(0))
            };
            let bounds: Vec<String> = decision.shares.iter().map(bounds).collect();
            assert_eq!(bounds.join(" "), wanted, "{shares} {when}");
            current = decision.shares;
        }
    }
}

/// As the target is, so that a minimum of all that run has none of them move.
#[test]
fn an_autoscaler_is_divided_where_its_target_is_and_as_it_is() {
    let directory = directory(&three());
    let web = deployment(3);
    for (least, most, wanted) in
        [(2, 9, [(1, 6), (1, 3)]), (3, 9, [(2, 6), (1, 3)]), (6, 6, [(4, 4), (2, 2)])]
    {
        let subject = kinds::subject(&json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"minReplicas": least, "maxReplicas": most,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))
        .unwrap();
        let web_is = current(&[("eu-1", 2), ("us-1", 1)]);
        let referrers = follow::referrers(&subject, [(&web, &web_is)]);
        let input = Input { referrers: &referrers, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        let bounds: Vec<_> = decision.shares.values().filter_map(|it| it.min.zip(it.max)).collect();
        assert_eq!(bounds, wanted, "{least} to {most}");
        let again = decide(&Input { current: &decision.shares, ..input });
        assert_eq!(again.shares, decision.shares);
    }
}

/// `a=1/4`: a parallelism of 1, and 4 completions.
fn job_shares(shares: &BTreeMap<String, Share>) -> String {
    let share = |(name, it): (&String, &Share)| match it.completions {
        Some(completions) => format!("{name}={}/{completions}", it.replicas),
        None => format!("{name}={}/-", it.replicas),
    };
    shares.iter().map(share).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_job_keeps_its_completions() {
    type Current<'a> = &'a [(&'a str, u64, Option<u64>)];
    let begun: Current<'_> = &[("a", 1, Some(4)), ("b", 1, Some(3))];
    type Case<'a> = (&'a str, &'a str, &'a str, u64, Option<u64>, Current<'a>, &'a str);
    let cases: &[Case<'_>] = &[
        ("divided", "Job", "a,b", 2, Some(7), &[], "a=1/3 b=1/4"),
        ("less at once", "Job", "a,b", 1, Some(7), begun, "a=0/4 b=1/3"),
        ("a cluster may not go on", "Job", "a", 1, Some(7), begun, "a=1/4 b=0/3"),
        ("another does the rest", "Job", "a,c", 2, Some(7), begun, "a=1/4 c=1/3"),
        ("paused", "Job", "a,b", 0, Some(7), begun, "a=0/4 b=0/3"),
        ("goes on", "Job", "a,b", 2, Some(7), &[("a", 0, Some(4)), ("b", 0, Some(3))], "a=1/4 b=1/3"),
        ("paused before it began", "Job", "a", 0, Some(7), &[], "a=0/0"),
        ("begins after all", "Job", "a", 2, Some(7), &[("a", 0, Some(0))], "a=2/7"),
        (
            "paused, with no completions",
            "Job",
            "a,b",
            0,
            None,
            &[("a", 1, None), ("b", 1, None)],
            "a=0/- b=0/-",
        ),
        ("what makes Jobs is changed", "CronJob", "a,b", 2, Some(9), begun, "a=1/4 b=1/5"),
    ];
    let directory = directory(&["a", "b", "c"].map(|name| cluster(name, "eu", 100)));
    for (what, kind, clusters, parallelism, completions, had, wanted) in cases {
        let job = json!({"parallelism": parallelism, "completions": completions,
            "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}});
        let spec = if *kind == "Job" { job } else { json!({"jobTemplate": {"spec": job}}) };
        let object = json!({"apiVersion": "batch/v1", "kind": kind,
            "metadata": {"namespace": "shop", "name": "sum"}, "spec": spec});
        let subject = kinds::subject(&object).unwrap();
        let names: Vec<&str> = clusters.split(',').collect();
        let policies = Policies::from([policy(
            json!({"select": [{}], "strategy": "Divide", "clusters": {"names": names}}),
        )]);
        let share = |replicas, completions| Share { replicas, completions, ..Share::default() };
        let current = had.iter().map(|(name, replicas, it)| ((*name).to_owned(), share(*replicas, *it)));
        let current = current.collect();
        let input = Input { workspace: &policies, current: &current, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!(job_shares(&decision.shares), *wanted, "{what}");
        let told = decision.explain(&input).clusters.into_iter().filter(|it| it.assigned);
        assert!(told.clone().all(|it| it.verdict != ClusterVerdict::Infeasible), "{what}: {told:?}");
        let again = decide(&Input { current: &decision.shares, ..input });
        assert_eq!(job_shares(&again.shares), *wanted, "{what}, again");
        let copies = kinds::split::split(&object, &decision.shares).unwrap();
        let began = decision.shares.values().filter(|it| it.completions != Some(0)).count();
        assert_eq!(copies.len(), began, "{what}: what has begun is there");
    }
}

#[test]
fn pods_with_names_keep_their_cluster() {
    let directory = directory(&three());
    let policies = Policies::from([policy(json!({"strategy": "Divide"}))]);
    let ranges = |decision: &Decision| -> Vec<String> {
        let range = |(name, share): (&String, &Share)| {
            format!("{name} {}+{}", share.ordinals.unwrap_or(99), share.replicas)
        };
        decision.shares.iter().map(range).collect()
    };
    let mut current: BTreeMap<String, Share> = BTreeMap::new();
    for (replicas, wanted) in [
        (6, ["ap-1 0+2", "eu-1 2+2", "us-1 4+2"]),
        (8, ["ap-1 0+2", "eu-1 2+2", "us-1 4+4"]),
        (5, ["ap-1 0+2", "eu-1 2+2", "us-1 4+1"]),
    ] {
        let subject = workload("StatefulSet", replicas, |_| {});
        let input = Input { workspace: &policies, current: &current, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!(ranges(&decision), wanted);
        current = decision.shares;
    }
}

/// Where one cluster is left with what it had, and what others did is known.
#[test]
fn what_was_done_of_a_job_is_not_done_again() {
    type Case<'a> = (&'a str, &'a str, (u64, u64, u64), u64, &'a [&'a str], &'a str);
    let cases: &[Case<'_>] = &[
        ("it runs still", "a", (1, 4, 0), 2, &[], "a=2/4#0"),
        ("it has done its part", "a", (2, 4, 0), 2, &["a"], "a=2/1#1"),
        ("it does another one", "a", (2, 1, 1), 6, &[], "a=2/1#1"),
        ("all is done", "a", (2, 1, 1), 6, &["a"], "a=2/1#1"),
        ("nothing was left", "a", (2, 4, 0), 3, &["a"], "a=2/4#0"),
        ("somebody is new", "a,c", (1, 4, 0), 2, &["a"], "a=1/4#0 c=1/1#0"),
    ];
    let directory = directory(&["a", "c"].map(|name| cluster(name, "eu", 100)));
    let subject = kinds::subject(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "sum"},
        "spec": {
            "parallelism": 2, "completions": 7,
            "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}},
        },
    }))
    .unwrap();
    for (what, clusters, (replicas, completions, run), finished, idle, wanted) in cases {
        let names: Vec<&str> = clusters.split(',').collect();
        let policies = Policies::from([policy(
            json!({"select": [{}], "strategy": "Divide", "clusters": {"names": names}}),
        )]);
        let share =
            Share { replicas: *replicas, completions: Some(*completions), run: *run, ..Share::default() };
        let current = BTreeMap::from([("a".to_owned(), share)]);
        let idle = idle.iter().map(|name| (*name).to_owned()).collect();
        let input = Input {
            workspace: &policies,
            current: &current,
            finished: *finished,
            idle: &idle,
            ..Input::new(&subject, &directory)
        };
        let shares = decide(&input).shares;
        let shown = |(name, it): (&String, &Share)| {
            format!("{name}={}/{}#{}", it.replicas, it.completions.unwrap_or(99), it.run)
        };
        assert_eq!(shares.iter().map(shown).collect::<Vec<_>>().join(" "), *wanted, "{what}");
    }
}

/// A cluster that was given up may still have the copy that it had: what it is to do when it is joined again is another.
#[test]
fn a_cluster_that_comes_back_has_another_copy_of_a_job() {
    let directory = directory(&["a", "b"].map(|name| cluster(name, "eu", 100)));
    let subject = kinds::subject(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "shop", "name": "sum"},
        "spec": {
            "parallelism": 2, "completions": 8,
            "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}},
        },
    }))
    .unwrap();
    let share = Share { replicas: 1, completions: Some(4), ..Share::default() };
    let current = BTreeMap::from([("a".to_owned(), share)]);
    let runs = BTreeMap::from([("b".to_owned(), 1)]);
    for (strategy, wanted) in
        [("Divide", vec![("a", 4, 0), ("b", 3, 1)]), ("Duplicate", vec![("a", 8, 0), ("b", 8, 1)])]
    {
        let policies = Policies::from([policy(json!({"select": [{}], "strategy": strategy}))]);
        let input = Input {
            workspace: &policies,
            current: &current,
            finished: 1,
            runs: &runs,
            ..Input::new(&subject, &directory)
        };
        let shares = decide(&input).shares;
        let shown: Vec<(&str, u64, u64)> =
            shares.iter().map(|(name, it)| (name.as_str(), it.completions.unwrap_or(99), it.run)).collect();
        assert_eq!(shown, wanted, "{strategy}");
    }
}

/// As federation has it: what pods say of the room counts, and is asked for all the same.
#[test]
fn a_cluster_whose_nodes_are_full_is_asked_for_what_it_would_have() {
    let directory = directory(&["a", "b", "c"].map(|name| cluster(name, "eu", 100)));
    let subject = deployment(50);
    let fits = BTreeMap::from([("c".to_owned(), 10)]);
    // What the full one has, what it is asked for beyond that, and what all have.
    let shown = |decision: &Decision| {
        let full = decision.shares.get("c").copied().unwrap_or_default();
        (full.replicas, full.overflow, decision.shares.values().map(|it| it.replicas).sum::<u64>())
    };
    let even = current(&[("a", 17), ("b", 16), ("c", 17)]);
    for (algorithm, rebalance, wanted) in
        [("Federation", true, (10, 7, 50)), ("Federation", false, (10, 0, 50)), ("Fair", true, (17, 0, 50))]
    {
        let divide = json!({"algorithm": algorithm, "rebalance": rebalance});
        let policies = Policies::from([policy(json!({"strategy": "Divide", "divide": divide}))]);
        let input =
            Input { workspace: &policies, current: &even, fits: &fits, ..Input::new(&subject, &directory) };
        let decision = decide(&input);
        assert_eq!((shown(&decision), decision.pending), (wanted, 0), "{algorithm} {rebalance}");
        let again = decide(&Input { current: &decision.shares, ..input });
        assert_eq!(shown(&again), wanted, "{algorithm} {rebalance}, again");
        let room = decide(&Input { current: &decision.shares, fits: &BTreeMap::new(), ..input });
        let counts: Vec<u64> = room.shares.values().map(|it| it.replicas).collect();
        assert_eq!((shown(&room).1, shown(&room).2), (0, 50), "{algorithm} {rebalance}");
        if rebalance {
            assert!(counts.iter().all(|it| matches!(it, 16 | 17)), "{counts:?}");
        }
    }
}
