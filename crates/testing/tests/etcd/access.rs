//! Certificates, users and tokens.

use etcd::{Error, Etcd, Identity, Options, Tls, User};
use testing::etcd::{EtcdCluster, EtcdOptions, EtcdUser};

use super::*;

fn with_a_user(args: &[&str]) -> EtcdCluster {
    let user = EtcdUser { name: "hanse".into(), password: "secret".into(), prefix: "/h/".into() };
    let args = args.iter().map(ToString::to_string).collect();
    EtcdCluster::start(EtcdOptions { users: vec![user], args, ..EtcdOptions::default() }).expect("starts")
}

fn as_user(cluster: &EtcdCluster, password: &str) -> Arc<dyn Etcd> {
    let user = User { name: "hanse".into(), password: password.into() };
    client(Options { user: Some(user), ..options(cluster) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_trusted_is_denied_and_says_so() {
    let cluster = EtcdCluster::start(EtcdOptions { tls: true, ..EtcdOptions::default() }).expect("starts");
    let other = EtcdCluster::start(EtcdOptions { tls: true, ..EtcdOptions::default() }).expect("starts");
    let trusted = |tls| client(Options { tls: Some(tls), ..options(&cluster) });
    let identity = |of: &EtcdCluster| Identity { cert_file: of.cert_file(), key_file: of.key_file() };

    client(with_certificates(&cluster)).txn(put("k", "v")).await.expect("taken");
    let none = trusted(Tls { ca_file: Some(cluster.ca_file()), identity: None });
    let foreign = trusted(Tls { ca_file: Some(cluster.ca_file()), identity: Some(identity(&other)) });
    let distrusts = trusted(Tls { ca_file: Some(other.ca_file()), identity: Some(identity(&cluster)) });
    for (who, client) in [("no certificate", none), ("a foreign one", foreign), ("distrusts", distrusts)] {
        let denied = client.txn(put("k", "w")).await;
        assert!(matches!(denied, Err(Error::Denied(_))), "{who}: {denied:?}");
        let denied = client.watch(watch_of("k", 1)).await.map(drop);
        assert!(matches!(denied, Err(Error::Denied(_))), "{who}: {denied:?}");
    }
    // In the clear nobody says what HTTP/2 begins with.
    let plain = client(options(&cluster)).txn(put("k", "w")).await;
    assert!(matches!(plain, Err(Error::Unreachable(_))), "{plain:?}");
    let found = value(&client(with_certificates(&cluster)), "k").await.expect("read");
    assert_eq!(found.as_deref(), Some(&b"v"[..]));
}

#[test]
fn files_that_cannot_be_used_are_named_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let (missing, empty) = (directory.path().join("missing"), directory.path().join("empty"));
    std::fs::write(&empty, "").expect("written");
    let endpoints = vec!["127.0.0.1:1".parse().expect("an endpoint")];
    for file in [missing, empty] {
        let tls = Some(Tls { ca_file: Some(file.clone()), identity: None });
        let error = etcd::Client::new(Env::real(), Options { tls, ..Options::new(endpoints.clone()) });
        let error = error.err().expect("refused").to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
    assert!(etcd::Client::new(Env::real(), Options::new(vec![])).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_may_what_its_role_says() {
    let cluster = with_a_user(&[]);
    let mine = as_user(&cluster, "secret");
    let revision = mine.txn(put("/h/a", "1")).await.expect("taken").revision;
    let lease = mine.grant(Duration::from_secs(60)).await.expect("granted");
    mine.keep_alive(lease).await.expect("kept alive");
    mine.revoke(lease).await.expect("revoked");
    let mut watch = mine.watch(watch_of("/h/a", revision)).await.expect("accepted");
    assert_eq!(watch.next().await.expect("told").events.len(), 1);

    let denied =
        |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::Denied(_))), "{outcome:?}");
    denied(mine.txn(put("/other/a", "1")).await.map(drop));
    denied(value(&mine, "/other/a").await.map(drop));
    denied(mine.watch(watch_of("/other/a", 1)).await.map(drop));
    for nobody in [as_user(&cluster, "wrong"), client(options(&cluster))] {
        denied(nobody.txn(put("/h/a", "2")).await.map(drop));
        denied(value(&nobody, "/h/a").await.map(drop));
        denied(nobody.watch(watch_of("/h/a", 1)).await.map(drop));
        denied(nobody.grant(Duration::from_secs(60)).await.map(drop));
    }
    assert_eq!(value(&mine, "/h/a").await.expect("read").as_deref(), Some(&b"1"[..]));
}

/// Newer etcd lets only root compact, where there are users. It may also be set to compact by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacting_takes_more_than_a_role() {
    let cluster = with_a_user(&[]);
    let mine = as_user(&cluster, "secret");
    let revision = mine.txn(put("/h/a", "1")).await.expect("taken").revision;
    let denied = mine.compact(revision).await;
    assert!(matches!(denied, Err(Error::Denied(_))), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_has_run_out_is_renewed() {
    let cluster = with_a_user(&["--auth-token-ttl=2"]);
    let mine = as_user(&cluster, "secret");
    let revision = mine.txn(put("/h/a", "0")).await.expect("taken").revision;
    let lease = mine.grant(Duration::from_secs(60)).await.expect("granted");
    for round in 0..2 {
        let run_out = || tokio::time::sleep(Duration::from_secs(4));
        run_out().await;
        mine.txn(put("/h/a", round.to_string())).await.expect("taken");
        run_out().await;
        mine.keep_alive(lease).await.expect("kept alive");
        run_out().await;
        let mut watch = mine.watch(watch_of("/h/a", revision)).await.expect("accepted");
        watch.next().await.expect("told");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_etcd_does_not_ask_for_do_no_harm() {
    let cluster = EtcdCluster::start(EtcdOptions::default()).expect("starts");
    let mine = as_user(&cluster, "secret");
    mine.txn(put("/h/a", "1")).await.expect("taken");
}

/// Whoever changes users or roles makes all tokens old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_outlives_changes_of_roles() {
    let cluster = with_a_user(&[]);
    let mine = as_user(&cluster, "secret");
    mine.txn(put("/h/a", "1")).await.expect("taken");
    let role = serde_json::json!({"name": "another"});
    cluster.gateway(0, "/v3/auth/role/add", &role).expect("added");
    mine.txn(put("/h/a", "2")).await.expect("taken");
}
