//! What others were measured at: the one place for it, each with its source. None of them is run here.

/// Karmada v1.18.2 with three members of Kubernetes 1.36.4, 20 kwok nodes each, in push mode; etcd, kube-apiserver and
/// Karmada's own components on the same type of machine as these figures, measured on 2026-11-15 with the same loads.
pub const KARMADA: &str = "Karmada v1.18.2, measured on 2026-11-15 on a machine of the same type (2 cores of an AMD EPYC, 24 GiB, \
    ext4): three members of Kubernetes 1.36.4 with 20 kwok nodes each, client limits of the members' components raised to \
    500/1000, one ClusterPropagationPolicy that duplicates to all three. Default: its own flags, 40 requests per second. \
    Raised: 2 000 per second, which is no default. It was neither built nor run again for this page";

/// Two columns of the same figure.
pub struct Karmada {
    pub default: &'static str,
    pub raised: &'static str,
}

const fn karmada(default: &'static str, raised: &'static str) -> Karmada {
    Karmada { default, raised }
}

/// 200 Deployments of 3 replicas.
pub mod deployments {
    use super::{Karmada, karmada};

    pub const CREATED: Karmada = karmada("284–330", "448–559");
    pub const ARRIVED: Karmada = karmada("79–81 / 119–122 / 128–130", "41 / 70–72 / 77–79");
    pub const ALL_ARRIVED: Karmada = karmada("129–131", "78.2–80.2");
    pub const RATE: Karmada = karmada("1.5", "2.5");
    pub const SUMMED_UP: Karmada = karmada("82–84 / – / 130–132", "42 / – / 78–80");
    pub const ALL_SUMMED_UP: Karmada = karmada("130–133", "78.7–80.6");
    pub const LAG: Karmada = karmada("3.4–3.7 / 5.3–5.5 / 8.1–8.2", "1.0–1.1 / 1.6–1.7 / 2.1–2.7");
    pub const CPU: Karmada = karmada("600–780", "380–410");
    pub const WRITTEN: Karmada = karmada("134–142", "105–112");
    pub const IDLE: Karmada = karmada("714–753", "714–753");
    pub const AFTER: Karmada = karmada("1 153–1 316", "1 153–1 316");
    /// In a second: the better of two runs.
    pub const BEST_RATE: [f64; 2] = [1.5, 2.5];
}

/// 1 000 ConfigMaps.
pub mod config_maps {
    use super::{Karmada, karmada};

    pub const ARRIVED: Karmada = karmada("–", "63.7 / 109.6 / 118.1");
    pub const ALL_ARRIVED: Karmada = karmada("about 830 (extrapolated)", "120.9");
    pub const RATE: Karmada = karmada("1.2", "8.3");
    pub const CPU: Karmada = karmada("450–520", "210");
    pub const AFTER: Karmada = karmada("–", "2 676");
    pub const BEST_RATE: [f64; 2] = [1.2, 8.3];
}

/// The first object of an idle system, to all three members, at best.
pub const KARMADA_FIRST: &str = "600–900";

/// What was published of loads like ours, on machines of theirs.
pub const W1: &str = "Karmada's test report of 2022-10-26 (64 cores, 512 GiB; 100 members): 612–706 / 881–899 / 989–1 298 ms; \
    11.4–26.9 GiB and 6.65–7.07 cores of all components";
pub const W2: &str =
    "Karmada 1.15's release post: 22 bindings/s with an estimator; its issue 7062: about 200 Work objects/s";
pub const W3: &str = "Karmada 1.14's release post: about 4 min";
pub const W4: &str = "Karmada 1.17's release post: about 5 min";
pub const W5: &str = "KubeFleet's report of 2026-04-07 (hub on 2 × 16 cores, 64 GB; 1 000 members, 1 000 placements × 100): \
    a new placement p90 20–21 s, resync after a restart 11 min 15 s";
pub const W7: &str = "Karmada 1.15 without a priority queue: minutes; with one: at once";
