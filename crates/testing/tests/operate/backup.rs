//! A peer's store: backed up while it runs or when it is stopped, restored, checked, compacted.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};
use testing::{
    etcd::{EtcdCluster, EtcdOptions},
    process::{HubProcess, free_port},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("reads").flatten();
    let mut names: Vec<_> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_busy_peer_has_what_was_acknowledged_before() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    create(
        &client,
        "/clusters/root/apis/hanse.io/v1alpha1/workspaces",
        json!({"metadata": {"name": "team"}}),
    )
    .await?;
    let team = format!("/clusters/team{CONFIG_MAPS}");
    let mut before = Vec::new();
    for count in 0..100 {
        before.push(mk_config_map(&client, &format!("before-{count:03}")).await?);
        create(&client, &team, json!({"metadata": {"name": format!("before-{count}")}})).await?;
    }
    let writer = tokio::spawn({
        let client = hub.client().await?;
        async move {
            let mut count = 0;
            while mk_config_map(&client, &format!("during-{count:05}")).await.is_ok() {
                count += 1;
            }
        }
    });
    let file = directory.path().join("backup");
    let kubeconfig = hub.kubeconfig();
    let args = ["backup", "--kubeconfig", text(&kubeconfig), "--context", "root", text(&file)];
    let told = done(&args)?;
    assert!(told.contains("objects of 3 workspaces"), "{told}");
    writer.abort();
    hub.stop()?;
    let told = done(&["check", text(&file)])?;
    assert!(told.contains("is whole") && told.contains("of 3 workspaces, of 20"), "{told}");
    let restored = directory.path().join("restored");
    done(&["restore", "--data", text(&restored), text(&file)])?;

    let hub = HubProcess::start(&restored)?;
    let client = hub.client().await?;

    let list = client.get(CONFIG_MAPS).await?.json();
    let items = list["items"].as_array().context("a list")?;
    let named = |prefix: &str| -> Vec<Value> {
        let is =
            |item: &&Value| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        items.iter().filter(is).cloned().collect()
    };
    let without_kind = |mut object: Value| {
        object.as_object_mut().map(|it| (it.remove("kind"), it.remove("apiVersion")));
        object
    };
    assert_eq!(named("before-"), before.into_iter().map(without_kind).collect::<Vec<_>>());
    // Of those made meanwhile, a beginning: what is there was there at one moment.
    let during = named("during-");
    for (count, item) in during.iter().enumerate() {
        assert_eq!(item["metadata"]["name"], format!("during-{count:05}"));
    }
    assert_eq!(client.get(&team).await?.json()["items"].as_array().map(Vec::len), Some(101));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_a_role_is_enough_and_nothing_less() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let admin = hub.client().await?;
    let root = "/clusters/root";
    create(
        &admin,
        &format!("{root}/api/v1/namespaces/default/serviceaccounts"),
        json!({"metadata": {"name": "cron"}}),
    )
    .await?;
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let path = format!("{root}/api/v1/namespaces/default/serviceaccounts/cron/token");
    let token = create(&admin, &path, request).await?;
    let token = token["status"]["token"].as_str().context("a token")?;
    let kubeconfig = kubeconfig_at(&hub, directory.path(), &hub.url, Some(token))?;
    let file = directory.path().join("backup");
    let args = ["backup", "--kubeconfig", text(&kubeconfig), text(&file)];

    let told = refused(&args)?;
    let expected = "User \"system:serviceaccount:default:cron\" cannot get path \"/operate/v1/backup\"";
    assert!(told.contains(expected), "{told}");
    assert!(
        !names_in(directory.path()).iter().any(|name| name.starts_with("backup")),
        "nothing is left behind"
    );

    let rbac = format!("{root}/apis/rbac.authorization.k8s.io/v1");
    let rule = json!({"nonResourceURLs": ["/operate/v1/backup"], "verbs": ["get"]});
    create(&admin, &format!("{rbac}/clusterroles"), json!({"metadata": {"name": "b"}, "rules": [rule]}))
        .await?;
    let binding = json!({
        "metadata": {"name": "b"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "cron"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "b"},
    });
    create(&admin, &format!("{rbac}/clusterrolebindings"), binding).await?;
    done(&args)?;
    assert!(refused(&args)?.contains("exists already"));
    Ok(())
}

/// Passes bytes on in both directions, and cuts the connection when `most` have come back.
async fn mk_cutting_proxy(to: SocketAddr, most: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(to).await else { return };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let mut passed = 0;
                while passed < most {
                    let count = from_server.read(&mut buffer).await.unwrap_or(0);
                    if count == 0 || to_client.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                    passed += count;
                }
            });
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_cut_off_leaves_nothing_behind() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    for count in 0..20 {
        let object =
            json!({"metadata": {"name": format!("large-{count}")}, "data": {"a": "x".repeat(100_000)}});
        create(&client, CONFIG_MAPS, object).await?;
    }
    let server: SocketAddr = hub.url.trim_start_matches("https://").parse()?;
    let proxy = mk_cutting_proxy(server, 1_000_000).await?;
    let kubeconfig = kubeconfig_at(&hub, directory.path(), &format!("https://{proxy}"), None)?;
    let place = directory.path().join("backups");
    std::fs::create_dir(&place)?;
    let file = place.join("one");
    let told = refused(&["backup", "--kubeconfig", text(&kubeconfig), text(&file)])?;
    assert!(told.contains("nothing was kept of it"), "{told}");
    assert_eq!(names_in(&place), [] as [&str; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_named_with_its_place() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    mk_config_map(&hub.client().await?, "precious").await?;
    let file = directory.path().join("backup");
    done(&["backup", "--kubeconfig", text(&hub.kubeconfig()), text(&file)])?;
    hub.stop()?;
    let whole = std::fs::read(&file)?;
    let at = whole.windows(8).position(|window| window == b"precious").context("it is in there")?;
    let restored = directory.path().join("restored");
    let mut turned = whole.clone();
    turned[at] ^= 1;
    let cases: [(&str, Vec<u8>); 4] = [
        ("a bit turned over", turned),
        ("cut off", whole[..whole.len() - 1].to_vec()),
        ("something behind it", [whole.clone(), vec![0]].concat()),
        ("not a backup", b"hello".to_vec()),
    ];
    for (case, bytes) in cases {
        std::fs::write(&file, bytes)?;
        for args in [vec!["check", text(&file)], vec!["restore", "--data", text(&restored), text(&file)]] {
            let told = refused(&args)?;
            assert!(told.contains(&format!("{} is damaged at byte ", file.display())), "{case}: {told}");
        }
        assert!(!restored.exists(), "{case}: nothing was made");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_forgets_history_when_told_and_serves_on() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    let first = revision_of(&mk_config_map(&client, "first").await?);
    let last = revision_of(&mk_config_map(&client, "last").await?);
    let mut level = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={last}")).await?;
    let kubeconfig = hub.kubeconfig();
    let compact = |more: &[&str]| done(&[&["compact", "--kubeconfig", text(&kubeconfig)], more].concat());

    assert!(compact(&["--workspace", "default"])?.contains("forgot the history of 1 workspaces"));

    // Who is behind must list again; who is level notices nothing.
    let behind = client.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={first}")).await?.json();
    assert_eq!((&behind["type"], &behind["object"]["code"]), (&json!("ERROR"), &json!(410)), "{behind}");
    let made = mk_config_map(&client, "next").await?;
    assert_eq!(level.expect().await?, json!({"type": "ADDED", "object": made}));
    compact(&[])?;
    assert!(
        refused(&["compact", "--kubeconfig", text(&kubeconfig), "--workspace", "nobodys"])?
            .contains("not found")
    );
    assert!(refused(&["compact", "--data", text(&data)])?.contains("is in use by another process"));
    let before = client.get(CONFIG_MAPS).await?.json();
    let next = revision_of(&made);
    hub.stop()?;

    let told = done(&["compact", "--data", text(&data)])?;
    assert!(told.contains("before") && told.contains("now"), "{told}");
    assert!(done(&["check", "--data", text(&data)])?.contains("1 checkpoints"));
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    assert_eq!(client.get(CONFIG_MAPS).await?.json(), before);
    let gone = client.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={first}")).await?.json();
    assert_eq!(gone["object"]["code"], 410);
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={next}")).await?;
    let made = mk_config_map(&client, "after").await?;
    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": made}));
    Ok(())
}

/// Whatever a peer keeps its objects in, and whichever of several servers is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_peer_on_etcd_is_restored_into_a_directory() -> Result<()> {
    let (directory, data) = mk_place()?;
    let etcd = EtcdCluster::start(EtcdOptions { members: 1, ..EtcdOptions::default() })?;
    let flags = ["--store".to_owned(), format!("etcd://{}/hanse", etcd.address(0))];
    let other_data = directory.path().join("other");
    std::fs::create_dir(&other_data)?;
    let hub = HubProcess::start_with(&data, free_port()?, &flags)?;
    let other = HubProcess::start_with(&other_data, free_port()?, &flags)?;
    let client = hub.client().await?;
    for round in 0..5 {
        let made = mk_config_map(&client, &format!("c{round}")).await?;
        let file = directory.path().join(format!("backup-{round}"));
        // The other server may not have heard of it yet; its backup has it nevertheless.
        done(&["backup", "--kubeconfig", text(&other.kubeconfig()), text(&file)])?;
        let restored = directory.path().join(format!("restored-{round}"));
        done(&["restore", "--data", text(&restored), text(&file)])?;
        let hub = HubProcess::start(&restored)?;
        let found = hub.client().await?.get(&format!("{CONFIG_MAPS}/c{round}")).await?;
        assert_eq!(found.json(), made, "round {round}");
    }
    let first = revision_of(&client.get(&format!("{CONFIG_MAPS}/c0")).await?.json());
    done(&["compact", "--kubeconfig", text(&other.kubeconfig())])?;
    let behind = client.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={first}")).await?.json();
    assert_eq!(behind["object"]["code"], 410, "{behind}");
    mk_config_map(&client, "next").await?;
    Ok(())
}

#[test]
fn a_mistyped_name_makes_nothing() -> Result<()> {
    let (directory, data) = mk_place()?;
    let file = directory.path().join("backup");
    for args in [
        vec!["backup", "--data", text(&data), text(&file)],
        vec!["compact", "--data", text(&data)],
        vec!["check", "--data", text(&data)],
        vec!["check"],
        vec!["restore", "--data", text(&data), text(&file)],
    ] {
        refused(&args)?;
    }
    assert_eq!(names_in(&data), [] as [&str; 0]);
    assert_eq!(names_in(directory.path()), ["data"]);
    Ok(())
}

/// A server that is slow to answer is not a server that has no backup: the whole of it is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_gets_all_of_it() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    for count in 0..30 {
        let object =
            json!({"metadata": {"name": format!("large-{count}")}, "data": {"a": "x".repeat(100_000)}});
        create(&client, CONFIG_MAPS, object).await?;
    }
    let admin = hub.admin()?;
    let identity = (admin.certificate_pem.as_str(), admin.key_pem.as_str());
    let slow = Client::connect_with_window(&hub.url, &admin.ca_pem, Some(identity), 65_535).await?;
    let response = slow.send(http::Method::GET, "/operate/v1/backup", &[], "").await?;
    assert_eq!(response.status(), StatusCode::OK);
    // Meanwhile all of it is replaced.
    for count in 0..30 {
        client.delete(&format!("{CONFIG_MAPS}/large-{count}")).await?;
    }
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        bytes.extend_from_slice(&frame?.into_data().unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let file = directory.path().join("backup");
    std::fs::write(&file, bytes)?;
    // With what every namespace has, and the installation's own identity.
    let told = done(&["check", text(&file)])?;
    assert!(told.contains("is whole"), "{told}");
    let restored = directory.path().join("restored");
    done(&["restore", "--data", text(&restored), text(&file)])?;
    let hub = HubProcess::start(&restored)?;
    let list = hub.client().await?.get(CONFIG_MAPS).await?.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(31), "as it was when it was asked for");
    Ok(())
}
