//! A small world of machines that can be made to fail, on this one.
//!
//! ```text
//!   client ──┐                     each a network namespace with one link to a switch, which is one more;
//!   server 0 ├── switch ── etcd 0  each etcd member with a disk of its own
//!   server 1 ┘     └────── etcd 1, 2
//!        network: cut, one way or both; lossy; slow      disk: slow, hanging, full      processes: killed, stopped
//! ```
//!
//! Needs root, `ip`, `tc`, `losetup`, `mount` and `mkfs.ext4`. Everything is undone when it is dropped, and by a shell
//! that outlives this process if that is killed.

mod clock;
mod disk;
mod net;
mod server;
mod undo;

pub use clock::Clock;
pub use disk::Disk;
pub use net::Net;
pub use server::{Kubernetes, Server};
pub use undo::Undo;

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

/// Runs a command to its end and gives what it printed.
fn run(line: &[&str]) -> Result<String> {
    let (program, args) = line.split_first().context("an empty command")?;
    let Output { status, stdout, stderr } = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{}: {status}: {}", line.join(" "), String::from_utf8_lossy(&stderr).trim());
    Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
}
