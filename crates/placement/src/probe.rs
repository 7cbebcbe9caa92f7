//! What is published of the health of a cluster, so that one lost probe does not make it lost.

/// What is known of a cluster. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub ready: bool,
    /// When it was asked last.
    pub probed: i64,
    /// Since when it has been as it is.
    pub since: i64,
    /// A number of probes up to the last: see [`steady`] and [`as_kubefed`].
    pub run: u64,
}

/// How many probes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub failure: u64,
    pub success: u64,
}

impl Thresholds {
    fn of(self, ready: bool) -> u64 {
        if ready { self.success } else { self.failure }
    }
}

/// It turns when as many probes one after the other say so as the threshold asks. `run` counts those that have said
/// otherwise than what is published.
pub fn steady(ready: bool, now: i64, stored: Option<Published>, thresholds: Thresholds) -> Published {
    let Some(stored) = stored else { return Published { ready, probed: now, since: now, run: 0 } };
    if ready == stored.ready {
        return Published { probed: now, run: 0, ..stored };
    }
    match stored.run.saturating_add(1) {
        run if run < thresholds.of(ready) => Published { probed: now, run, ..stored },
        _ => Published { ready, probed: now, since: now, run: 0 },
    }
}

/// As KubeFed does it. There `run` counts how often the same was published, so that a cluster that was well for long is
/// lost with the first probe that fails.
pub fn as_kubefed(ready: bool, now: i64, stored: Option<Published>, thresholds: Thresholds) -> Published {
    let turned = Published { ready, probed: now, since: now, run: 1 };
    let Some(stored) = stored else { return turned };
    match ready != stored.ready && stored.run >= thresholds.of(ready) {
        true => turned,
        false => Published { probed: now, run: stored.run.saturating_add(1), ..stored },
    }
}
