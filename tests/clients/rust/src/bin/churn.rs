//! Follows the config maps of a namespace with a watcher and a reflector of kube-rs, and tells on stdout of all that
//! reaches it; the lines are those of the program `churn` in Go. What kube-rs does not tell is missing: versions of
//! lists, bookmarks, and where a watch goes on from.

use std::io::Write;

use anyhow::{Context as _, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, ResourceExt};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> Result<()> {
    let namespace = std::env::args().nth(1).context("name a namespace")?;
    let client = Client::try_default().await.context("KUBECONFIG names no server")?;
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let events = kube::runtime::watcher(Api::<ConfigMap>::namespaced(client, &namespace), config);
    let mut events = std::pin::pin!(reflector::reflector(writer, events.default_backoff()));
    let mut asked = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            event = events.next() => tell(event.context("a watcher does not end")?)?,
            line = asked.next_line() => match line? {
                Some(_) => tell_cache(&store)?,
                None => return Ok(()),
            },
        }
    }
}

fn tell(event: watcher::Result<Event<ConfigMap>>) -> Result<()> {
    let version = |object: &ConfigMap| object.resource_version().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    match event {
        Ok(Event::Init) => writeln!(out, "init")?,
        Ok(Event::InitApply(object)) => writeln!(out, "listed {} {}", object.name_any(), version(&object))?,
        Ok(Event::InitDone) => writeln!(out, "initialized -")?,
        Ok(Event::Apply(object)) => {
            writeln!(out, "changed APPLIED {} {}", object.name_any(), version(&object))?
        }
        Ok(Event::Delete(object)) => {
            writeln!(out, "changed DELETED {} {}", object.name_any(), version(&object))?
        }
        Err(watcher::Error::WatchError(status)) if status.code == 410 => writeln!(out, "expired")?,
        // The server is being restarted.
        Err(_) => {}
    }
    Ok(out.flush()?)
}

fn tell_cache(store: &reflector::Store<ConfigMap>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for object in store.state() {
        writeln!(out, "cache {} {}", object.name_any(), object.resource_version().unwrap_or_default())?;
    }
    writeln!(out, "end")?;
    Ok(out.flush()?)
}
