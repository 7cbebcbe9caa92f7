//! A hub that goes and comes back where clients know it: on the same port and the same data.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{
    etcd::{EtcdCluster, EtcdOptions},
    process::{HubProcess, free_port},
};

/// How a hub goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// SIGTERM.
    Told,
    /// SIGKILL.
    Killed,
}

/// Dropped, it is killed, and its data are gone.
pub struct LastingHub {
    pub data: PathBuf,
    port: u16,
    flags: Vec<String>,
    hub: Option<HubProcess>,
    etcd: Option<EtcdCluster>,
    _directory: TempDir,
}

impl LastingHub {
    /// On the store that the environment variable `choice` names: `etcd`, a member of its own; without it, the data
    /// directory. `flags` are further ones of `hanse serve`.
    pub fn start(choice: &str, mut flags: Vec<String>) -> Result<LastingHub> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        std::fs::create_dir(&data)?;
        let etcd = match std::env::var(choice).unwrap_or_default().as_str() {
            "" | "embedded" => None,
            "etcd" => Some(EtcdCluster::start(EtcdOptions { fsync: true, ..EtcdOptions::default() })?),
            other => bail!("{choice}: there is no store {other}"),
        };
        if let Some(etcd) = &etcd {
            flags.push(format!("--store=etcd://{}/lasting", etcd.address(0)));
        }
        let port = free_port()?;
        let hub = Some(HubProcess::start_with(&data, port, &flags)?);
        Ok(LastingHub { data, port, flags, hub, etcd, _directory: directory })
    }

    /// What it stands on, if that is etcd.
    pub fn etcd(&self) -> Option<&EtcdCluster> {
        self.etcd.as_ref()
    }

    pub fn hub(&self) -> Result<&HubProcess> {
        self.hub.as_ref().context("it does not run")
    }

    /// Returns when it has gone.
    pub fn go(&mut self, way: Way) -> Result<()> {
        let hub = self.hub.take().context("it does not run")?;
        match way {
            Way::Told => hub.stop(),
            Way::Killed => hub.kill(),
        }
    }

    /// Returns when it is ready again.
    pub fn come_back(&mut self) -> Result<()> {
        self.hub = Some(HubProcess::start_with(&self.data, self.port, &self.flags)?);
        Ok(())
    }
}
