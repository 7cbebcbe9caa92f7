//! A restart is nothing to notice: watches go on, work under way is finished. And what a server does about disks that
//! are full or lie.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

// On several threads: while a test waits for a process to stop, its client must say goodbye to it.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{
    client::Client,
    hub::eventually,
    process::{HubProcess, binary, free_port},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";
const MIB: usize = 1 << 20;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion is a number")
}

/// A directory for a hub, and a place beside it.
fn mk_place() -> Result<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    Ok((directory, data))
}

/// Without what every namespace has.
fn names(list: &Value) -> Vec<&str> {
    let names = list["items"].as_array().into_iter().flatten().map(|it| text(it, "/metadata/name"));
    names.filter(|name| *name != "kube-root-ca.crt").collect()
}

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text());
    Ok(made.json())
}

async fn mk_config_map(client: &Client, name: &str) -> Result<Value> {
    create(client, CONFIG_MAPS, json!({"metadata": {"name": name}, "data": {"of": name}})).await
}

async fn is_gone(client: &Client, path: &str) -> Result<()> {
    eventually(&format!("{path} is gone"), || async {
        Ok((client.get(path).await?.code == StatusCode::NOT_FOUND).then_some(()))
    })
    .await
}

/// Stops a hub in one of the two ways there are, and starts it again where clients know it.
fn again(hub: HubProcess, data: &Path, port: u16, politely: bool) -> Result<HubProcess> {
    if politely {
        hub.stop()?
    } else {
        hub.kill()?
    }
    HubProcess::start_on(data, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_crosses_restarts_without_gap_or_double() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let port = free_port()?;
    let mut hub = HubProcess::start_on(&data, port)?;
    let mut client = hub.client().await?;
    let start = revision_of(&client.get(CONFIG_MAPS).await?.json());
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    let mut position = start;
    for round in 0..6 {
        // Given a watch that has seen some of what happened, but not all.
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={position}");
        let mut watch = client.watch(&path).await?;
        for count in 0..10 {
            let made = mk_config_map(&client, &format!("r{round}-{count}")).await?;
            expected.push(json!({"type": "ADDED", "object": made}));
        }
        let changed = json!({"data": {"of": "somebody else"}});
        let changed = client.merge_patch(&format!("{CONFIG_MAPS}/r{round}-1"), &changed).await?.json();
        expected.push(json!({"type": "MODIFIED", "object": changed}));
        client.delete(&format!("{CONFIG_MAPS}/r{round}-1")).await?;
        let mut deleted = changed;
        deleted["metadata"]["resourceVersion"] = json!((revision_of(&deleted) + 1).to_string());
        expected.push(json!({"type": "DELETED", "object": deleted}));
        for _ in 0..7 {
            seen.push(watch.expect().await?);
        }
        position = revision_of(&seen.last().context("something was seen")?["object"]);

        // When the server restarts.
        hub = again(hub, &data, port, round % 2 == 0)?;
        client = hub.client().await?;
    }

    // Then going on from the last event, the sequence is as if nothing had been.
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={position}")).await?;
    while seen.len() < expected.len() {
        seen.push(watch.expect().await?);
    }
    assert_eq!(seen, expected);
    let next = mk_config_map(&client, "next").await?;
    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": next}));
    // And the whole of it can still be read from before the first restart, also as lists of the past.
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}")).await?;
    for event in &expected {
        assert_eq!(watch.expect().await?, *event);
    }
    let then = revision_of(&expected[5]["object"]);
    let past = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let past = client.get(&past).await?.json();
    assert_eq!(names(&past).len(), 6, "{past}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_the_same_server_again() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let port = free_port()?;
    let hub = HubProcess::start_on(&data, port)?;
    let admin = hub.admin()?;
    let client = hub.client().await?;
    let namespace = client.get("/api/v1/namespaces/default").await?.json();
    let page = {
        for name in ["a", "b", "c"] {
            mk_config_map(&client, name).await?;
        }
        client.get(&format!("{CONFIG_MAPS}?limit=1")).await?.json()
    };
    mk_config_map(&client, "later").await?;

    let _hub = again(hub, &data, port, false)?;

    // With the credentials of before, the UIDs of before, and a page of before.
    let identity = (admin.certificate_pem.as_str(), admin.key_pem.as_str());
    let client = Client::connect(&admin.url, &admin.ca_pem, Some(identity)).await?;
    assert_eq!(client.get("/api/v1/namespaces/default").await?.json(), namespace);
    let rest = format!("{CONFIG_MAPS}?continue={}", text(&page, "/metadata/continue"));
    let rest = client.get(&rest).await?.json();
    assert_eq!(names(&rest), ["b", "c"], "the snapshot is that of the first page");
    assert_eq!(revision_of(&rest), revision_of(&page));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn work_under_way_is_finished_by_the_next_process() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let mut hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    let mk_owned = |name: &str, owner: &Value, finalizers: &[&str]| {
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
        });
        json!({"metadata": {"name": name, "ownerReferences": [owner], "finalizers": finalizers}})
    };
    // Given a namespace, a workspace and an owner that are all being deleted, each held by something.
    create(&client, NAMESPACES, json!({"metadata": {"name": "team"}})).await?;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&client, &format!("{NAMESPACES}/team/configmaps"), held.clone()).await?;
    client.delete(&format!("{NAMESPACES}/team")).await?;
    let workspaces = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";
    create(&client, workspaces, held.clone()).await?;
    client.delete(&format!("{workspaces}/held")).await?;
    let owner = mk_config_map(&client, "owner").await?;
    create(&client, CONFIG_MAPS, mk_owned("child", &owner, &["example.com/hold"])).await?;
    let options = json!({"propagationPolicy": "Foreground"}).to_string();
    let headers = [("content-type", "application/json")];
    client.call(Method::DELETE, &format!("{CONFIG_MAPS}/owner"), &headers, options).await?;
    // And garbage that nobody may have looked at yet.
    let gone = mk_config_map(&client, "gone").await?;
    for count in 0..50 {
        create(&client, CONFIG_MAPS, mk_owned(&format!("garbage-{count}"), &gone, &[])).await?;
    }
    client.delete(&format!("{CONFIG_MAPS}/gone")).await?;

    hub.kill()?;
    hub = HubProcess::start(&data)?;
    let client = hub.client().await?;

    for count in 0..50 {
        is_gone(&client, &format!("{CONFIG_MAPS}/garbage-{count}")).await?;
    }
    let release = json!({"metadata": {"finalizers": null}});
    client.merge_patch(&format!("{NAMESPACES}/team/configmaps/held"), &release).await?;
    is_gone(&client, &format!("{NAMESPACES}/team")).await?;
    let release_other = json!({"metadata": {"finalizers": ["hanse.io/workspace"]}});
    client.merge_patch(&format!("{workspaces}/held"), &release_other).await?;
    is_gone(&client, &format!("{workspaces}/held")).await?;
    assert_eq!(
        client.get(&format!("{CONFIG_MAPS}/owner")).await?.code,
        StatusCode::OK,
        "it waits for its child"
    );
    client.merge_patch(&format!("{CONFIG_MAPS}/child"), &release).await?;
    is_gone(&client, &format!("{CONFIG_MAPS}/owner")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_do_not_share_a_directory() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let second = serve(&data)?;
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is in use by another process"), "{said}");
    mk_config_map(&hub.client().await?, "still-there").await?;
    Ok(())
}

/// Runs `hanse serve` that is expected not to start.
fn serve(data: &Path) -> Result<Output> {
    let output =
        Command::new(binary()?).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).output()?;
    Ok(output)
}

/// Where `needle` is in a file of the log.
fn find(data: &Path, needle: &str) -> Result<(PathBuf, usize)> {
    for entry in std::fs::read_dir(data.join("store"))? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let found = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
        if let Some(at) = found {
            return Ok((path, at));
        }
    }
    anyhow::bail!("{needle} is nowhere in the log")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_log_is_refused_by_name_and_place() -> Result<()> {
    let (_directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    for count in 0..100 {
        mk_config_map(&client, &format!("object-{count}x")).await?;
    }
    let before = client.get(CONFIG_MAPS).await?.json();
    hub.stop()?;
    let (path, at) = find(&data, "object-50x")?;
    let original = std::fs::read(&path)?;
    let mut damaged = original.clone();
    damaged[at] ^= 0x10;
    std::fs::write(&path, &damaged)?;

    let refused = serve(&data)?;

    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains(&path.display().to_string()), "it names the file: {said}");
    let place =
        said.split("at byte ").nth(1).and_then(|rest| rest.split(':').next()).context(said.clone())?;
    let place: usize = place.parse()?;
    assert!(place <= at && at - place < MIB, "byte {at} was damaged: {said}");
    let checked = Command::new(binary()?).args(["check", "--data"]).arg(&data).output()?;
    assert!(!checked.status.success());
    let report = String::from_utf8_lossy(&checked.stdout);
    assert!(report.contains(&format!("{} is damaged at byte {place}", path.display())), "{report}");
    assert_eq!(std::fs::read(&path)?, damaged, "nothing was repaired behind anybody's back");

    // Mended, it is as it was.
    std::fs::write(&path, &original)?;
    let hub = HubProcess::start(&data)?;
    assert_eq!(hub.client().await?.get(CONFIG_MAPS).await?.json(), before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_begins_a_new_epoch() -> Result<()> {
    let (directory, data) = mk_place()?;
    let hub = HubProcess::start(&data)?;
    let client = hub.client().await?;
    let kept = mk_config_map(&client, "kept").await?;
    hub.stop()?;
    let file = directory.path().join("backup");
    let backup = Command::new(binary()?).args(["backup", "--data"]).arg(&data).arg(&file).output()?;
    ensure!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    let hub = HubProcess::start(&data)?;
    let lost = mk_config_map(&hub.client().await?, "lost").await?;
    hub.stop()?;
    let restored = directory.path().join("restored");
    let restore = Command::new(binary()?).args(["restore", "--data"]).arg(&restored).arg(&file).output()?;
    ensure!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stderr));

    let hub = HubProcess::start(&restored)?;
    let client = hub.client().await?;

    assert_eq!(client.get(&format!("{CONFIG_MAPS}/kept")).await?.json(), kept);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/lost")).await?.code, StatusCode::NOT_FOUND);
    let again = mk_config_map(&client, "lost").await?;
    assert!(revision_of(&again) > revision_of(&lost), "revisions go on, also beyond what was lost");
    // Whoever saw what is not there any more must list again.
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", revision_of(&lost));
    let told = client.get(&path).await?.json();
    let status = if told["type"] == "ERROR" { &told["object"] } else { &told };
    assert_eq!((&status["code"], text(status, "/reason")), (&json!(410), "Expired"), "{told}");
    Ok(())
}

/// A small disk of its own. Unmounted when dropped.
struct SmallDisk {
    place: PathBuf,
    _directory: TempDir,
}

impl SmallDisk {
    /// In memory, or in a file if that cannot be.
    fn mount(mebibytes: usize) -> Result<SmallDisk> {
        let directory = tempfile::tempdir()?;
        let place = directory.path().join("disk");
        std::fs::create_dir(&place)?;
        let run = |program: &str, args: &[&str]| -> Result<()> {
            let output = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
            ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(())
        };
        let shown = place.display().to_string();
        let in_memory = run("mount", &["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs", &shown]);
        if let Err(why) = in_memory {
            let image = directory.path().join("image").display().to_string();
            std::fs::File::create(&image)?.set_len((mebibytes * MIB) as u64)?;
            run("mkfs.ext4", &["-q", &image]).context(why)?;
            run("mount", &["-o", "loop", &image, &shown])?;
        }
        Ok(SmallDisk { place, _directory: directory })
    }

    /// Fills the disk up to the last block; dropped from the disk by removing the file.
    fn fill(&self) -> Result<PathBuf> {
        let ballast = self.place.join("ballast");
        let mut file = std::fs::File::create(&ballast)?;
        for size in [MIB, 4096, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
        Ok(ballast)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.place).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_nothing_else() -> Result<()> {
    let disk = match SmallDisk::mount(160) {
        Ok(disk) => disk,
        Err(why) if std::env::var_os("HANSE_NO_SKIPS").is_none() => {
            // Past the capture of output: a test that did not run must say so.
            let _ = std::fs::write(
                "/dev/stderr",
                format!("SKIPPED a_full_disk…: no disk can be mounted: {why:#}\n"),
            );
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let hub = HubProcess::start(&disk.place)?;
    let client = hub.client().await?;
    let start = revision_of(&client.get(CONFIG_MAPS).await?.json());
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}")).await?;
    let ballast = disk.fill()?;

    // When the log's room is used up, to the last small write.
    let mut acknowledged: Vec<Value> = Vec::new();
    let object = |count: usize, size: usize| json!({"metadata": {"name": format!("c{count:04}")}, "data": {"padding": "x".repeat(size)}});
    let mut refused = None;
    for size in [100_000, 1] {
        refused = loop {
            ensure!(acknowledged.len() < 2000, "the disk does not fill");
            let answer = client.post(CONFIG_MAPS, &object(acknowledged.len(), size)).await?;
            match answer.code {
                StatusCode::CREATED => acknowledged.push(answer.json()),
                _ => break Some(answer),
            }
        };
    }
    let refused = refused.context("the last was refused")?;

    // Then writes are refused and say why.
    let status = refused.json();
    assert_eq!(
        (refused.code, text(&status, "/reason")),
        (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
    );
    assert!(text(&status, "/message").contains("no space left"), "{status}");
    assert!(refused.headers.contains_key("retry-after"));
    let deletion = client.delete(&format!("{CONFIG_MAPS}/c0000")).await?;
    assert_eq!(deletion.code, StatusCode::SERVICE_UNAVAILABLE, "{}", deletion.text());
    // Reads and watches go on.
    assert_eq!(names(&client.get(CONFIG_MAPS).await?.json()).len(), acknowledged.len());
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/c0000")).await?.json(), acknowledged[0]);
    assert_eq!(client.get("/livez").await?.code, StatusCode::OK);
    for made in &acknowledged {
        assert_eq!(watch.expect().await?["object"], *made);
    }

    // When room is made, it goes on as if nothing had been.
    std::fs::remove_file(&ballast)?;
    let made = eventually("a write is taken", || async {
        let answer = client.post(CONFIG_MAPS, &object(9999, 1)).await?;
        Ok((answer.code == StatusCode::CREATED).then(|| answer.json()))
    })
    .await?;
    assert_eq!(watch.expect().await?, json!({"type": "ADDED", "object": made}), "no refused write is seen");
    let last = acknowledged.last().context("something was written")?;
    assert_eq!(revision_of(&made), revision_of(last) + 1, "a refused write takes no revision");
    let before = client.get(CONFIG_MAPS).await?.json();
    hub.kill()?;
    let hub = HubProcess::start(&disk.place)?;
    assert_eq!(hub.client().await?.get(CONFIG_MAPS).await?.json(), before);
    Ok(())
}
