//! The real cluster that differential tests compare with must itself be right: of the pinned release, with users
//! that RBAC tells apart, and gone when it is dropped.

#![allow(clippy::disallowed_methods)]

use std::{path::Path, process::Command};

use testing::real::{Options, RealCluster};

const PINNED: &str = include_str!("../../../tests/real/kube-apiserver/go.mod");

fn pinned_version() -> &'static str {
    let line = PINNED.lines().find(|line| line.trim_start().starts_with("k8s.io/kubernetes v"));
    line.and_then(|line| line.split_whitespace().nth(1)).expect("go.mod names the release")
}

fn kubectl(cluster: &RealCluster, kubeconfig: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new(cluster.kubectl())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args)
        .output()
        .expect("kubectl starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn serves_the_pinned_release_tells_users_apart_and_leaves_nothing_behind() {
    let cluster = RealCluster::start(Options { fsync: false, ..Options::default() }).expect("it starts");

    let (served, version) = kubectl(&cluster, &cluster.kubeconfig, &["get", "--raw", "/version"]);
    assert!(served, "{version}");
    assert!(version.contains(&format!("\"gitVersion\": \"{}\"", pinned_version())), "{version}");

    let (_, whoami) = kubectl(&cluster, &cluster.kubeconfig, &["auth", "whoami"]);
    assert!(whoami.contains("admin") && whoami.contains("system:masters"), "{whoami}");

    let stranger = cluster.kubeconfig_for("jane", &["readers", "writers"]).expect("a kubeconfig");
    let (_, whoami) = kubectl(&cluster, &stranger, &["auth", "whoami"]);
    assert!(whoami.contains("jane") && whoami.contains("readers") && whoami.contains("writers"), "{whoami}");
    let (allowed, answer) = kubectl(&cluster, &stranger, &["get", "configmaps"]);
    assert!(!allowed && answer.contains("Forbidden"), "{answer}");

    let pids = cluster.pids();
    assert_eq!(pids.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["etcd", "kube-apiserver"]);
    let directory = cluster.kubeconfig.parent().expect("a directory").to_owned();
    drop(cluster);
    for (name, pid) in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{name} is still there");
    }
    assert!(!directory.exists());
}

#[test]
fn a_part_that_does_not_start_shows_its_log() {
    let options =
        Options { fsync: false, apiserver_args: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = RealCluster::start(options).err().expect("it cannot start").to_string();
    assert!(error.contains("kube-apiserver ended") && error.contains("no-such-flag"), "{error}");
}
