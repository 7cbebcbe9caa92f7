//! `hanse migrate` from etcd back to a directory, when it goes wrong: it is killed half way, the directory cannot be
//! written, a server was only paused. And what must come along: every workspace, and what expires.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testing::{
    etcd::EtcdCluster,
    hub::eventually,
    patience::Patience,
    process::{HubProcess, binary, free_port},
    world::Clock,
};

use crate::moving::{MAPS, hanse, maps, migrate, secured, text};

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A peer whose objects are in etcd, and no server.
struct OnEtcd {
    _cluster: EtcdCluster,
    access: Vec<String>,
    directory: tempfile::TempDir,
    url: String,
    /// Where they were before.
    data: PathBuf,
    /// The config maps of the default workspace, as they are listed.
    maps: Value,
}

impl OnEtcd {
    /// With so many config maps of 900 kB.
    async fn with_large_maps(count: usize) -> Result<OnEtcd> {
        let (cluster, access, directory) = secured()?;
        let url = format!("etcd://{}/eu", cluster.endpoints().join(","));
        let data = directory.path().join("first");
        let hub = HubProcess::start(&data)?;
        let client = hub.client().await?;
        let large = "x".repeat(900_000);
        for number in 0..count {
            let map = json!({"metadata": {"name": format!("large-{number}")}, "data": {"v": large}});
            let made = client.post(MAPS, &map).await?;
            ensure!(made.code == 201, "{}", made.text());
        }
        let maps = client.get(MAPS).await?.json();
        hub.stop()?;
        let (done, said) = migrate(&text(&data), &url, &access)?;
        ensure!(done, "{said}");
        Ok(OnEtcd { _cluster: cluster, access, directory, url, data, maps })
    }

    fn serve_flags(&self) -> Vec<String> {
        [vec!["--store".to_owned(), self.url.clone()], self.access.clone()].concat()
    }

    fn start(&self) -> Result<HubProcess> {
        HubProcess::start_with(&self.data, free_port()?, &self.serve_flags())
    }

    /// Begins to move it to `target`.
    fn begin_to_move(&self, target: &Path) -> Result<Child> {
        let child = Command::new(binary()?)
            .args(["migrate", "--from", &self.url, "--to", &text(target)])
            .args(&self.access)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(child)
    }

    fn move_to(&self, target: &Path) -> Result<(bool, String)> {
        migrate(&self.url, &text(target), &self.access)
    }
}

/// Returns as soon as `path` is there; the process must not have ended by then.
fn until_there(path: &Path, process: &mut Child) -> Result<()> {
    let mut patience = Patience::default();
    while !path.exists() {
        let ended = process.try_wait()?;
        ensure!(ended.is_none(), "it ended before {} was there: {ended:?}", path.display());
        ensure!(patience.lasts(()), "{} is not made", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_back_that_was_killed_is_begun_again() -> Result<()> {
    // Given objects that take a while to move
    let peer = OnEtcd::with_large_maps(40).await?;
    let back = peer.directory.path().join("back");
    // When the move is killed half way
    let mut moving = peer.begin_to_move(&back)?;
    until_there(&back.join("store.unfinished"), &mut moving)?;
    moving.kill()?;
    moving.wait()?;
    // Then nobody takes what is there for all, and both ends say where to look
    ensure!(!back.join("store").exists(), "the move was over before it was killed");
    let on_etcd = [vec!["serve".into(), "--data".into(), text(&peer.data)], peer.serve_flags()].concat();
    let (started, said) = hanse(&on_etcd)?;
    let what_to_do = format!("a move out of it was not finished: begin it again, to {}", text(&back));
    ensure!(!started && said.contains(&what_to_do), "{said}");
    let (started, said) = hanse(&["serve".into(), "--data".into(), text(&back)])?;
    ensure!(!started && said.contains(&peer.url), "nobody begins with nothing: {said}");
    // And the same command again moves everything, as it was
    let (done, said) = peer.move_to(&back)?;
    ensure!(done, "{said}");
    ensure!(!back.join("store.unfinished").exists(), "what was left of the first attempt is gone");
    let hub = HubProcess::start(&back)?;
    let after = hub.client().await?.get(MAPS).await?.json();
    ensure!(after["items"] == peer.maps["items"], "objects, their revisions and their UIDs are the same");
    ensure!(after["metadata"] == peer.maps["metadata"], "a client goes on where it was");
    hub.stop()?;
    // and what is in etcd is closed for good.
    let (started, said) = hanse(&on_etcd)?;
    ensure!(!started && said.contains(&format!("it was moved to {}", text(&back))), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_cannot_be_written_leaves_etcd_open() -> Result<()> {
    // Given a directory in which something is in the way
    let peer = OnEtcd::with_large_maps(1).await?;
    let back = peer.directory.path().join("back");
    std::fs::create_dir(&back)?;
    std::fs::write(back.join("store.unfinished"), "in the way")?;
    // When it is to be moved there, then the error says what is in the way
    let (done, said) = peer.move_to(&back)?;
    ensure!(!done && said.contains(&text(&back.join("store.unfinished"))), "{said}");
    // And a server goes on in etcd
    let hub = peer.start()?;
    let client = hub.client().await?;
    ensure!(client.get(MAPS).await?.json()["items"] == peer.maps["items"], "all is there");
    let more = client.post(MAPS, &json!({"metadata": {"name": "more"}})).await?;
    ensure!(more.code == 201, "{}", more.text());
    hub.stop()?;
    // and nothing is to be moved from where nothing is, which stays so.
    let elsewhere = peer.url.replace("/eu", "/eu/nobody");
    for _ in 0..2 {
        let (done, said) = migrate(&elsewhere, &text(&back), &peer.access)?;
        ensure!(!done && said.contains("etcd holds nothing below /eu/nobody"), "{said}");
    }
    Ok(())
}

fn signal(server: &HubProcess, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(server.pid().cast_signed()).context("no process id")?;
    Ok(kill_process(pid, signal)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_slept_through_a_move_writes_nothing_any_more() -> Result<()> {
    // Given a server that hangs
    let peer = OnEtcd::with_large_maps(1).await?;
    let sleeper = peer.start()?;
    let client = sleeper.client().await?;
    ensure!(client.post(MAPS, &json!({"metadata": {"name": "before"}})).await?.code == 201);
    let before = client.get(MAPS).await?.json();
    signal(&sleeper, Signal::STOP)?;
    // When everything is moved, as soon as nobody is alive as far as etcd knows
    let back = peer.directory.path().join("back");
    eventually("its lease has run out", || async {
        let (done, said) = tokio::task::block_in_place(|| peer.move_to(&back))?;
        ensure!(done || said.contains("servers run on"), "{said}");
        Ok(done.then_some(()))
    })
    .await?;
    // Then it takes no write when it wakes up
    signal(&sleeper, Signal::CONT)?;
    for number in 0..3 {
        let late = client.post(MAPS, &json!({"metadata": {"name": format!("late-{number}")}})).await?;
        ensure!(late.code.is_server_error(), "{}: {}", late.code, late.text());
    }
    // and what was moved is what there was before.
    let hub = HubProcess::start(&back)?;
    let after = hub.client().await?.get(MAPS).await?.json();
    ensure!(after["items"] == before["items"], "neither more nor less");
    hub.stop()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workspace_moves_back_and_what_expires_still_does() -> Result<()> {
    const WORKSPACES: [&str; 3] = ["root", "default", "team"];
    // Given workspaces in etcd, with an event in one
    let peer = OnEtcd::with_large_maps(1).await?;
    let hub = peer.start()?;
    let client = hub.client().await?;
    let team = json!({"metadata": {"name": "team"}});
    ensure!(client.post("/clusters/root/apis/hanse.io/v1alpha1/workspaces", &team).await?.code == 201);
    for workspace in WORKSPACES {
        let map = json!({"metadata": {"name": "here"}, "data": {"v": workspace}});
        ensure!(client.post(&format!("/clusters/{workspace}{MAPS}"), &map).await?.code == 201);
    }
    let event = json!({
        "metadata": {"name": "passing"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "here"},
        "reason": "Seen", "type": "Normal",
    });
    let events = format!("/clusters/team{EVENTS}");
    let made = client.post(&events, &event).await?;
    ensure!(made.code == 201, "{}", made.text());
    let before = maps(&client, &WORKSPACES).await?;
    hub.stop()?;
    // When all is moved to a directory
    let back = peer.directory.path().join("back");
    let (done, said) = peer.move_to(&back)?;
    ensure!(done, "{said}");
    // Then a server there has each of them as it was
    let clock = Clock::new(peer.directory.path())?;
    let enter = clock.enter();
    let mut command = Command::new(&enter[0]);
    command.args(&enter[1..]).arg(binary()?);
    let hub = HubProcess::start_as(command, &back)?;
    let client = hub.client().await?;
    let after = maps(&client, &WORKSPACES).await?;
    for ((workspace, before), after) in WORKSPACES.iter().zip(&before).zip(&after) {
        ensure!(after["items"] == before["items"], "{workspace} is not what it was");
    }
    let passing = format!("{events}/passing");
    ensure!(client.get(&passing).await?.json() == made.json(), "the event is there");
    // And the event goes when its time has come.
    clock.set(2 * 60 * 60)?;
    eventually("the event has expired", || async {
        Ok((client.get(&passing).await?.code == 404).then_some(()))
    })
    .await
}

/// What was set aside in `data`.
fn set_aside(data: &Path) -> Result<PathBuf> {
    let mut names = std::fs::read_dir(data)?.filter_map(Result::ok).map(|it| it.path());
    let found = names.find(|path| text(path).contains("store.moved-"));
    found.with_context(|| format!("nothing is set aside in {}", data.display()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_there_that_was_cut_off_at_its_end_is_ended_by_the_same_command() -> Result<()> {
    // Given a move that was cut off when etcd was open and the directory was not set aside yet,
    let peer = OnEtcd::with_large_maps(1).await?;
    let store = peer.data.join("store");
    std::fs::rename(set_aside(&peer.data)?, &store)?;
    // and a server elsewhere that goes on in etcd.
    let elsewhere = peer.directory.path().join("elsewhere");
    let hub = HubProcess::start_with(&elsewhere, free_port()?, &peer.serve_flags())?;
    let client = hub.client().await?;
    ensure!(client.post(MAPS, &json!({"metadata": {"name": "since"}})).await?.code == 201);
    let since = client.get(MAPS).await?.json();
    hub.stop()?;
    // When the same command is given again
    let (done, said) = migrate(&text(&peer.data), &peer.url, &peer.access)?;
    // Then it does what was left to do, and nothing to what is in etcd,
    ensure!(done && said.contains("all of it was moved before"), "{said}");
    ensure!(!store.exists(), "it is set aside");
    let hub = peer.start()?;
    ensure!(hub.client().await?.get(MAPS).await?.json()["items"] == since["items"], "neither more nor less");
    hub.stop()?;
    // and a store on which somebody has gone on is left where it is.
    let marker = peer.data.join("moved-to");
    let moved = std::fs::read(&marker)?;
    std::fs::remove_file(&marker)?;
    std::fs::rename(set_aside(&peer.data)?, &store)?;
    let hub = HubProcess::start(&peer.data)?;
    for number in 0..50 {
        let map = json!({"metadata": {"name": format!("here-{number}")}});
        ensure!(hub.client().await?.post(MAPS, &map).await?.code == 201);
    }
    hub.stop()?;
    env::Env::real().files.write_atomic(&marker, &moved, false)?;
    let (done, said) = migrate(&text(&peer.data), &peer.url, &peer.access)?;
    ensure!(!done && said.contains("is not what was moved"), "{said}");
    ensure!(store.exists(), "it is where it was");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_to_one_directory_is_not_moved_to_another() -> Result<()> {
    // Given a move to one directory that was killed,
    let peer = OnEtcd::with_large_maps(40).await?;
    let [one, other] = ["one", "other"].map(|name| peer.directory.path().join(name));
    let mut moving = peer.begin_to_move(&one)?;
    until_there(&one.join("store.unfinished"), &mut moving)?;
    moving.kill()?;
    moving.wait()?;
    // and one to another that was not
    let (done, said) = peer.move_to(&other)?;
    ensure!(done, "{said}");
    // When the first is begun again, then it is told where all of it is, and nobody begins on what it left
    let (done, said) = peer.move_to(&one)?;
    ensure!(!done && said.contains(&format!("it was moved to {}", text(&other))), "{said}");
    let (started, said) = hanse(&["serve".into(), "--data".into(), text(&one)])?;
    ensure!(!started && said.contains(&peer.url), "{said}");
    // and the same command for the other finds that all is done.
    let (done, said) = peer.move_to(&other)?;
    ensure!(done, "{said}");
    let hub = HubProcess::start(&other)?;
    ensure!(hub.client().await?.get(MAPS).await?.json()["items"] == peer.maps["items"], "all is there");
    hub.stop()
}
