//! Machines as network namespaces around a switch.
//!
//! What a node is sent passes its port of the switch, where there is a class of traffic whose queue holds a single
//! byte: what a filter puts there is lost without either end being told, as on a cut cable. Netem would do the same
//! and delay packets too, but is in few kernels; a slow link is a narrow one here, with a long queue before it.

use std::{fs::File, net::Ipv4Addr};

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Undo, run};

pub struct Net {
    prefix: String,
    nodes: Vec<String>,
    // Declared last, dropped last.
    _undo: Undo,
}

/// Every how many packets one is lost: powers of two, by the packet's identification.
const LOSS_MASK: &str = "0x0007";

impl Net {
    /// `nodes` are names; each node's number is its place here.
    ///
    /// # Errors
    /// What this machine does not let us do.
    pub fn new(nodes: &[&str]) -> Result<Net> {
        let mut undo = Undo::new()?;
        let prefix = format!("hanse-{}", free_prefix()?);
        let net = |name: &str| format!("{prefix}-{name}");
        let switch = net("switch");
        for name in nodes.iter().copied().chain(["switch"]) {
            let namespace = net(name);
            // Whatever still runs there was started there, but for us if we went there.
            let us = std::process::id();
            let kill = format!("ip netns pids {namespace} | grep -vx {us} | xargs -r kill -9");
            undo.later(&format!("{kill}; ip netns del {namespace}"))?;
            run(&["ip", "netns", "add", &namespace])?;
            run(&["ip", "-n", &namespace, "link", "set", "lo", "up"])?;
        }
        run(&["ip", "-n", &switch, "link", "add", "bridge0", "type", "bridge"])?;
        run(&["ip", "-n", &switch, "link", "set", "bridge0", "up"])?;
        for (number, name) in nodes.iter().enumerate() {
            plug_in(&switch, &net(name), number)?;
        }
        let nodes = nodes.iter().map(|name| net(name)).collect();
        Ok(Net { prefix, nodes, _undo: undo })
    }

    pub fn address(&self, node: usize) -> Ipv4Addr {
        address(node)
    }

    /// The command that runs the rest of its line on a node.
    pub fn enter(&self, node: usize) -> Vec<String> {
        ["ip", "netns", "exec", self.nodes[node].as_str()].map(str::to_owned).to_vec()
    }

    /// Moves the calling thread to a node, for good.
    pub fn move_here(&self, node: usize) -> Result<()> {
        let path = format!("/run/netns/{}", self.nodes[node]);
        let file = File::open(&path).with_context(|| path.clone())?;
        Ok(move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?)
    }

    /// Nothing that `from` sends arrives at `to` any more.
    pub fn cut(&self, from: usize, to: usize) -> Result<()> {
        self.lose(from, to, &[])
    }

    /// Of what `from` sends to `to`, every eighth packet is lost.
    pub fn make_lossy(&self, from: usize, to: usize) -> Result<()> {
        self.lose(from, to, &["match", "u16", "0", LOSS_MASK, "at", "4"])
    }

    fn lose(&self, from: usize, to: usize, further: &[&str]) -> Result<()> {
        let (switch, port) = (self.switch(), port(to));
        let (priority, source) = ((from + 1).to_string(), format!("{}/32", address(from)));
        let mut line = vec!["tc", "-n", &switch, "filter", "replace", "dev", &port, "parent", "1:"];
        line.extend(["protocol", "ip", "prio", &priority, "u32", "match", "ip", "src", &source]);
        line.extend(further);
        line.extend(["flowid", "1:2"]);
        run(&line).map(|_| ())
    }

    /// All arrives again.
    pub fn mend(&self, from: usize, to: usize) -> Result<()> {
        let (switch, port, priority) = (self.switch(), port(to), (from + 1).to_string());
        // There may be none.
        let _ = run(&[
            "tc", "-n", &switch, "filter", "del", "dev", &port, "parent", "1:", "protocol", "ip", "prio",
            &priority,
        ]);
        Ok(())
    }

    /// What `to` is sent comes through a line of so many kilobits per second, with a long queue before it.
    pub fn make_slow(&self, to: usize, kilobits: u32) -> Result<()> {
        self.set_rate(to, &format!("{kilobits}kbit"))
    }

    pub fn make_fast(&self, to: usize) -> Result<()> {
        self.set_rate(to, FULL_RATE)
    }

    fn set_rate(&self, to: usize, rate: &str) -> Result<()> {
        let (switch, port) = (self.switch(), port(to));
        let line = ["tc", "-n", &switch, "class", "change", "dev", &port, "parent", "1:", "classid", "1:1"];
        run(&[&line[..], &["htb", "rate", rate, "quantum", "60000"]].concat()).map(|_| ())
    }

    /// As on the first day.
    pub fn heal(&self) -> Result<()> {
        for to in 0..self.nodes.len() {
            for from in (0..self.nodes.len()).filter(|from| *from != to) {
                self.mend(from, to)?;
            }
            self.make_fast(to)?;
        }
        Ok(())
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.prefix)
    }
}

const FULL_RATE: &str = "10gbit";

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + node as u8)
}

fn port(node: usize) -> String {
    format!("port{node}")
}

/// Namespaces are named for all of this machine.
fn free_prefix() -> Result<String> {
    let taken = run(&["ip", "netns", "list"])?;
    let process = std::process::id();
    let mut names = (0..).map(|number| format!("{process}-{number}"));
    names.find(|name| !taken.contains(&format!("hanse-{name}-"))).context("no name is free")
}

fn plug_in(switch: &str, namespace: &str, node: usize) -> Result<()> {
    let (port, address) = (port(node), format!("{}/24", address(node)));
    let peer = ["peer", "name", "eth0", "netns", namespace];
    let link = ["ip", "link", "add", &port, "netns", switch, "type", "veth"];
    run(&[&link[..], &peer[..]].concat())?;
    run(&["ip", "-n", switch, "link", "set", &port, "master", "bridge0", "up"])?;
    run(&["ip", "-n", namespace, "addr", "add", &address, "dev", "eth0"])?;
    run(&["ip", "-n", namespace, "link", "set", "eth0", "up"])?;
    let tc = ["tc", "-n", switch];
    run(&[&tc[..], &["qdisc", "add", "dev", &port, "root", "handle", "1:", "htb", "default", "1"]].concat())?;
    for class in ["1:1", "1:2"] {
        let at = ["class", "add", "dev", &port, "parent", "1:", "classid", class];
        run(&[&tc[..], &at, &["htb", "rate", FULL_RATE, "quantum", "60000"]].concat())?;
    }
    let sink = ["qdisc", "add", "dev", &port, "parent", "1:2", "bfifo", "limit", "1"];
    run(&[&tc[..], &sink].concat()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        sync::Arc,
        time::Duration,
    };

    use super::*;

    fn on<T: Send + 'static>(net: &Arc<Net>, node: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        let net = net.clone();
        let thread = std::thread::spawn(move || {
            net.move_here(node).expect("a namespace");
            work()
        });
        thread.join().expect("it ends")
    }

    #[test]
    fn what_is_cut_does_not_arrive_and_what_is_mended_does() {
        let net = match Net::new(&["a", "b"]) {
            Ok(net) => Arc::new(net),
            Err(error) => {
                eprintln!("not tested: this machine has no network namespaces for us: {error:#}");
                return;
            }
        };
        let there = (net.address(1), 7000);
        let listener = on(&net, 1, move || TcpListener::bind(there)).expect("a port");
        let reaches = |net: &Arc<Net>| {
            on(net, 0, move || TcpStream::connect_timeout(&there.into(), Duration::from_secs(2)).is_ok())
        };
        assert!(reaches(&net));
        for (from, to) in [(0, 1), (1, 0)] {
            net.cut(from, to).expect("cut");
            assert!(!reaches(&net), "{from} to {to} is cut");
            net.mend(from, to).expect("mended");
            assert!(reaches(&net), "{from} to {to} is mended");
        }
        net.make_lossy(0, 1).expect("lossy");
        net.make_slow(1, 500).expect("slow");
        net.heal().expect("healed");
        assert!(reaches(&net));
        drop(listener);
    }
}
