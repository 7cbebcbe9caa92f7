//! What of a pod is more than an object: ports it listens on, and lines it writes.

mod answer;
pub mod exec;
pub mod logs;

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use env::Env;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use store::WorkspaceId;
use tokio::sync::{Notify, watch};

use crate::{addresses::Addresses, engine::Cluster, tree};

/// Lines that a pod's ports have made others write, of which so many are kept.
const MOST_LINES: usize = 256;
/// Ports that are listened on at once: each is an open file.
const MOST_PORTS: usize = 4096;

pub struct Runtime {
    env: Env,
    addresses: Arc<Addresses>,
    state: Mutex<State>,
    /// Somebody wrote a line, or something stopped.
    pub grown: Notify,
}

#[derive(Default)]
struct State {
    /// By the UID of the pod.
    open: HashMap<String, Open>,
    lines: HashMap<String, VecDeque<(Timestamp, String)>>,
    ports: usize,
}

/// What a pod listens on. Dropped, nobody does.
struct Open {
    cluster: WorkspaceId,
    ports: Vec<u16>,
    about: watch::Sender<Arc<answer::About>>,
}

impl Runtime {
    pub fn new(env: Env, addresses: Arc<Addresses>) -> Runtime {
        Runtime { env, addresses, state: Mutex::default(), grown: Notify::new() }
    }

    /// A pod is now like that.
    pub fn observe(self: &Arc<Runtime>, cluster: &Cluster, pod: &Value) {
        let uid = tree::uid(pod);
        let address = tree::text(pod, "/status/podIP").parse::<std::net::Ipv4Addr>();
        if let Ok(address) = address {
            self.addresses.keep(uid, address);
        }
        let ports = http_ports(pod);
        let runs = tree::text(pod, "/status/phase") == "Running" && !ports.is_empty();
        let Some(address) = address.ok().filter(|it| runs && it.is_loopback()) else {
            self.close(uid);
            return;
        };
        let about = Arc::new(answer::About::of(&cluster.name, pod));
        let mut state = self.state.lock();
        if let Some(open) = state.open.get(uid).filter(|open| open.ports == ports) {
            // Nobody listens any more: it is stopped, and will be told.
            let _ = open.about.send(about);
            return;
        }
        if state.ports + ports.len() > MOST_PORTS {
            tracing::warn!(pod = tree::name(pod), "simulated pods listen on as many ports as they may");
            return;
        }
        state.ports += ports.len();
        let (sender, receiver) = watch::channel(about);
        for port in &ports {
            let place = SocketAddr::new(IpAddr::V4(address), *port);
            let work = answer::serve(self.clone(), self.env.clone(), place, uid.to_owned(), receiver.clone());
            self.env.tasks.spawn(Box::pin(work));
        }
        state.open.insert(uid.to_owned(), Open { cluster: cluster.id.clone(), ports, about: sender });
    }

    /// A pod is gone.
    pub fn gone(&self, uid: &str) {
        self.close(uid);
        self.state.lock().lines.remove(uid);
        self.addresses.take_back(uid);
        self.grown.notify_waiters();
    }

    fn close(&self, uid: &str) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.remove(uid) {
            state.ports -= open.ports.len();
            drop(state);
            self.grown.notify_waiters();
        }
    }

    /// The machines of a cluster are off.
    pub fn stop_all(&self, cluster: &WorkspaceId) {
        let mut state = self.state.lock();
        let stopped: Vec<String> = state
            .open
            .iter()
            .filter(|(_, open)| open.cluster == *cluster)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in stopped {
            if let Some(open) = state.open.remove(&uid) {
                state.ports -= open.ports.len();
            }
        }
        drop(state);
        self.grown.notify_waiters();
    }

    fn write(&self, uid: &str, line: String) {
        let now = self.env.clock.now();
        let mut state = self.state.lock();
        let lines = state.lines.entry(uid.to_owned()).or_default();
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back((now, line));
        drop(state);
        self.grown.notify_waiters();
    }

    fn lines(&self, uid: &str) -> Vec<(Timestamp, String)> {
        self.state.lock().lines.get(uid).into_iter().flatten().cloned().collect()
    }
}

/// Ports that say they speak HTTP: by their name, or because everybody knows their number.
fn http_ports(pod: &Value) -> Vec<u16> {
    let ports = tree::items(pod, "/spec/containers").flat_map(|container| tree::items(container, "/ports"));
    let mut found: Vec<u16> = ports
        .filter(|port| {
            let name = tree::text(port, "/name");
            let by_name = name == "http" || name.starts_with("http-") || name == "web";
            let by_number =
                name.is_empty() && matches!(tree::number(port, "/containerPort"), Some(80 | 8000 | 8080));
            (by_name || by_number) && matches!(tree::text(port, "/protocol"), "" | "TCP")
        })
        .filter_map(|port| u16::try_from(tree::number(port, "/containerPort")?).ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_that_speak_http_are_known_by_name_or_number() {
        let pod = |ports: Value| json!({"spec": {"containers": [{"ports": ports}]}});
        let cases = [
            (json!([{"containerPort": 80}]), vec![80]),
            (
                json!([{"containerPort": 9090, "name": "http"}, {"containerPort": 9091, "name": "metrics"}]),
                vec![9090],
            ),
            (json!([{"containerPort": 8080, "name": "grpc"}]), vec![]),
            (json!([{"containerPort": 53, "protocol": "UDP", "name": "http-ish"}]), vec![]),
            (json!([{"containerPort": 8080}, {"containerPort": 80, "name": "http-web"}]), vec![80, 8080]),
        ];
        for (ports, expected) in cases {
            assert_eq!(http_ports(&pod(ports.clone())), expected, "{ports}");
        }
    }
}
