//! A hub that starts on what it has, and how long it takes until all is as it should be.

use std::time::Instant;

use anyhow::Result;

use super::{
    fleet::{Fleet, PATIENCE},
    page::{Section, in_seconds},
    traces::{Kind, Wish},
};
use crate::report::number;

/// What a restart took, until everything was looked at.
pub struct Settled {
    pub seconds: f64,
}

/// A ConfigMap that is changed in a member while the hub is down.
pub struct Changed {
    pub namespace: String,
    pub name: String,
    pub member: usize,
    /// What the hub says it is, and what it is to be again.
    pub mark: String,
}

/// Some ConfigMaps are changed in members while the hub is down, so that it can be seen from outside when a member was
/// looked at.
pub async fn restart(fleet: &mut Fleet, changed: &[Changed], section: &mut Section) -> Result<Settled> {
    eprintln!("restart");
    let copies = fleet.metrics().await?.of("hanse_copies") as usize;
    fleet.stop().await?;
    fleet.traces.forget_all();
    for Changed { namespace, name, member, mark } in changed {
        let wish = Wish { members: 1, ready: None, mark: Some(mark.clone()) };
        fleet.traces.expect(Kind::ConfigMap, name, wish);
        fleet.mark(&fleet.members[*member].endpoint, namespace, name, "changed in the member").await?;
    }
    let began = Instant::now();
    let answers = fleet.start_again().await?;
    fleet.traces.all_arrived(PATIENCE).await?;
    let mended = began.elapsed();
    fleet.at_rest(copies).await?;
    let settled = began.elapsed();
    let metrics = fleet.metrics().await?;
    section.row("restart: the hub answers after, s", &[&in_seconds(answers)]);
    section.row("restart: what was changed in members meanwhile is mended after, s", &[&in_seconds(mended)]);
    section.row("restart: everything is settled after, s", &[&in_seconds(settled)]);
    section.row(
        &format!("restart: writes to members, of which {} were needed", changed.len()),
        &[&number(metrics.of("hanse_copy_writes_total"))],
    );
    section.row(
        "restart: writes of Assignments, sums and reports",
        &[&number(metrics.of("hanse_placement_writes_total") + metrics.of("hanse_copy_reports_total"))],
    );
    section.row("restart: memory of the hub, MiB", &[&number(fleet.resident()?)]);
    Ok(Settled { seconds: settled.as_secs_f64() })
}
