//! Where the time of a write goes inside of Hanse: what its metrics say before and after a row.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::client::{self, Connection, Endpoint};

/// In the order in which a write goes through them.
pub const STAGES: [&str; 7] = ["decode", "prepare", "track", "check", "admit", "encode", "commit"];

/// Writes so far, and seconds in each stage.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    writes: f64,
    seconds: BTreeMap<String, f64>,
}

/// Microseconds per write in each of [`STAGES`].
pub type PerWrite = [f64; STAGES.len()];

impl Totals {
    /// `None` from a server that does not measure its stages.
    pub async fn read(endpoint: &Endpoint, connection: &mut Connection) -> Result<Option<Totals>> {
        let text = connection.call(client::get(endpoint.server_uri("/metrics")?)).await?;
        Ok(Totals::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Option<Totals> {
        let mut totals = Totals::default();
        let mut found = false;
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if name == "hanse_writes_total" {
                (totals.writes, found) = (value, true);
            } else if let Some(stage) = name
                .strip_prefix("hanse_write_stage_seconds_total{stage=\"")
                .and_then(|rest| rest.strip_suffix("\"}"))
            {
                totals.seconds.insert(stage.to_owned(), value);
            }
        }
        found.then_some(totals)
    }

    /// What the writes between `before` and this cost on average; `None` if there were none.
    pub fn since(&self, before: &Totals) -> Option<PerWrite> {
        let writes = self.writes - before.writes;
        let seconds = |totals: &Totals, stage: &str| totals.seconds.get(stage).copied().unwrap_or(0.0);
        let of = |stage: &str| (seconds(self, stage) - seconds(before, stage)) * 1e6 / writes;
        (writes > 0.0).then(|| STAGES.map(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_from_metrics_and_averaged() {
        let page = |writes: u32, seconds: f64| {
            let text = format!(
                "# TYPE x\nhanse_writes_total {writes}\nhanse_write_stage_seconds_total{{stage=\"track\"}} {seconds}\n"
            );
            Totals::parse(&text).unwrap()
        };
        let spent = page(30, 0.5).since(&page(10, 0.1)).unwrap();
        assert!((spent[2] - 20_000.0).abs() < 1e-6, "{spent:?}");
        assert!(page(10, 0.1).since(&page(10, 0.1)).is_none());
        assert!(Totals::parse("apiserver_request_total 3\n").is_none());
    }
}
