//! Who of several may act, by a Lease.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};

/// One who wants to hold a lease.
pub struct Candidate {
    leases: Api<Lease>,
    lease: String,
    name: String,
}

impl Candidate {
    pub fn new(client: Client, namespace: &str, lease: &str, name: &str) -> Candidate {
        Candidate {
            leases: Api::namespaced(client, namespace),
            lease: lease.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether it holds the lease now.
    pub async fn stands(&self) -> Result<bool> {
        let Some(mut lease) = self.leases.get_opt(&self.lease).await? else {
            let metadata = ObjectMeta { name: Some(self.lease.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.held(0)) };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if !holder.is_empty() && holder != self.name {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or_default() + i32::from(holder.is_empty());
        lease.spec = Some(self.held(transitions));
        // The version that was read is sent along: of two who saw it free, one is refused.
        won(self.leases.replace(&self.lease, &PostParams::default(), &lease).await)
    }

    pub async fn steps_down(&self) -> Result<()> {
        let mut lease = self.leases.get(&self.lease).await?;
        lease.spec.get_or_insert_default().holder_identity = None;
        self.leases.replace(&self.lease, &PostParams::default(), &lease).await?;
        Ok(())
    }

    fn held(&self, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn won(written: Result<Lease, Error>) -> Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error.into()),
    }
}
