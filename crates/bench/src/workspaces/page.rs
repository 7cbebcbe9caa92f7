//! Lays out what was found.

use std::fmt::Write;

use super::{Found, Plan, Step, Weighed};
use crate::{report::number, servers::Subject};

const KIB: f64 = 1024.0;
/// Of memory for each workspace.
const MOST_KIB: f64 = 64.0;
const MOST_CREATE_MS: f64 = 10.0;
const MOST_DELETE_SECONDS: f64 = 60.0;

pub fn page(plan: &Plan, machine: &str, found: &[Found]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut text, plan, machine, found);
    text
}

fn write_page(text: &mut String, plan: &Plan, machine: &str, found: &[Found]) -> std::fmt::Result {
    let date = jiff::Zoned::now().date();
    writeln!(text, "# {} workspaces in one server\n", number(plan.count as f64))?;
    writeln!(text, "{date}; {machine}. Client and server share the machine.")?;
    for found in found {
        let engine = match found.subject {
            Subject::HanseEtcd => "On etcd, one member with fsync",
            Subject::Hanse | Subject::Kube => "On its own engine",
        };
        writeln!(text, "\n## {engine}\n\n- {}\n\n### Aims\n", found.version)?;
        for line in aims(plan, found) {
            writeln!(text, "- {line}")?;
        }
        write_steps(text, plan, found)?;
        write_memory(text, plan, found)?;
        write_idle(text, found)?;
        write_noise(text, plan, found)?;
    }
    Ok(())
}

fn write_steps(text: &mut String, plan: &Plan, found: &Found) -> std::fmt::Result {
    writeln!(
        text,
        "\n### Steps\n\nUsable: a client has read the namespace `default`. {} workers, the first step one.\n",
        plan.workers
    )?;
    writeln!(
        text,
        "| step | workspaces | seconds | each ms | server CPU ms each | KiB written each | p50 ms | p99 ms | errors | other CPU s |"
    )?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for step in &found.steps {
        let each = |amount: f64| number(amount / step.operations as f64);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            step.name,
            number(step.operations as f64),
            number(step.usage.elapsed.as_secs_f64()),
            each(step.usage.elapsed.as_secs_f64() * 1e3),
            each(step.usage.server.as_secs_f64() * 1e3),
            step.usage.written.map_or_else(|| "–".to_owned(), |bytes| each(bytes as f64 / KIB)),
            number(step.latencies.quantile(0.5)),
            number(step.latencies.quantile(0.99)),
            step.errors.count,
            number(step.usage.other.as_secs_f64()),
        )?;
    }
    Ok(())
}

fn write_memory(text: &mut String, plan: &Plan, found: &Found) -> std::fmt::Result {
    writeln!(text, "\n### Memory\n\nResident; each step comes on top of those before.\n")?;
    let on_etcd = found.subject == Subject::HanseEtcd;
    let (of_etcd, rule) =
        if on_etcd { (" of hanse | MiB of etcd | KiB of both", "--:|--:|") } else { (" | KiB", "--:|") };
    writeln!(text, "| when | MiB{of_etcd} for each workspace |\n|---|{rule}--:|")?;
    for weight in &found.weights {
        let each = number(each_kib(plan, found, weight));
        let mib = |bytes: u64| number(bytes as f64 / KIB / KIB);
        let etcd = if on_etcd { format!(" {} |", mib(weight.etcd)) } else { String::new() };
        writeln!(text, "| {} | {} |{etcd} {each} |", weight.when, mib(weight.hanse))?;
    }
    writeln!(
        text,
        "\nSeries of `/metrics`: {} with no workspace, {} with all.",
        found.series.0, found.series.1
    )
}

fn write_idle(text: &mut String, found: &Found) -> std::fmt::Result {
    writeln!(text, "\n### Starting, and doing nothing\n")?;
    let milliseconds = |time: std::time::Duration| number(time.as_secs_f64() * 1e3);
    writeln!(text, "- ready, empty: {} ms", milliseconds(found.ready_empty))?;
    writeln!(text, "- ready, with all of them: {} ms", milliseconds(found.ready_full))?;
    for idle in &found.idle {
        let percent = 100.0 * idle.usage.server.as_secs_f64() / idle.usage.elapsed.as_secs_f64();
        let seconds = number(idle.usage.elapsed.as_secs_f64());
        writeln!(text, "- CPU, {}: {} % of a core, over {seconds} s", idle.when, number(percent))?;
    }
    Ok(())
}

fn write_noise(text: &mut String, plan: &Plan, found: &Found) -> std::fmt::Result {
    let seconds = number(plan.noise.as_secs_f64());
    writeln!(
        text,
        "\n### A quiet workspace beside a noisy one\n\nThe quiet one makes, reads and deletes a config map, one request at a time, for {seconds} s each.\n"
    )?;
    writeln!(
        text,
        "| the neighbour | write p50 ms | write p99 ms | read p50 ms | read p99 ms | errors | neighbour: answered | refused |"
    )?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for quiet in &found.quiet {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            quiet.noise.describe(),
            number(quiet.writes.quantile(0.5)),
            number(quiet.writes.quantile(0.99)),
            number(quiet.reads.quantile(0.5)),
            number(quiet.reads.quantile(0.99)),
            quiet.errors.count,
            number(quiet.answered as f64),
            number(quiet.refused as f64),
        )?;
    }
    writeln!(text, "\nThe server, the noise and the quiet client share {} cores.", crate::machine::cores())
}

fn each_kib(plan: &Plan, found: &Found, weight: &Weighed) -> f64 {
    let idle = found.weights.first().map_or(0, Weighed::resident);
    (weight.resident() as f64 - idle as f64) / KIB / plan.count as f64
}

fn verdict(met: bool) -> &'static str {
    if met { "**met**" } else { "**missed**" }
}

/// What failed took no time, and holds no memory: with errors an aim is missed, whatever the figure.
fn at_most(found: f64, most: f64, aim: &str, unit: &str, errors: u64) -> String {
    let met = found <= most && errors == 0;
    let failed = if errors == 0 { String::new() } else { format!(" ⚠ {errors} failed") };
    format!("{}: {aim}: {} {unit}{failed}", verdict(met), number(found))
}

fn aims(plan: &Plan, found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    for weight in found.weights.iter().skip(1).filter(|weight| weight.when != "all deleted") {
        let aim = format!("≤ 64 KiB each, {}", weight.when);
        lines.push(at_most(each_kib(plan, found, weight), MOST_KIB, &aim, "KiB", weight.errors));
    }
    let each = |step: &Step| step.usage.elapsed.as_secs_f64() * 1e3 / step.operations as f64;
    if let [alone, many, ..] = found.steps.as_slice() {
        let (p50, aim) = (alone.latencies.quantile(0.5), "p50 ≤ 10 ms, one after the other");
        lines.push(at_most(p50, MOST_CREATE_MS, aim, "ms", alone.errors.count));
        let aim = "≤ 10 ms each, many at once";
        lines.push(at_most(each(many), MOST_CREATE_MS, aim, "ms", many.errors.count));
    }
    if let Some(deletion) = found.steps.last() {
        let (seconds, aim) = (deletion.usage.elapsed.as_secs_f64(), "all deleted within a minute");
        lines.push(at_most(seconds, MOST_DELETE_SECONDS, aim, "s", deletion.errors.count));
    }
    let same = found.series.1 <= found.series.0 + 100;
    lines.push(format!(
        "{}: no series of metrics per workspace: {} more",
        verdict(same),
        found.series.1.saturating_sub(found.series.0)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        figures::{Errors, Latencies},
        machine::Usage,
    };

    fn plan() -> Plan {
        let [idle, noise, settle] = [Duration::ZERO; 3];
        Plan { count: 100, alone: 10, workers: 4, idle, noise, settle }
    }

    /// Within every aim, if it were not for the errors.
    fn step(name: &'static str, errors: u64) -> Step {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_millis(1));
        let usage = Usage { elapsed: Duration::from_millis(50), ..Usage::default() };
        let errors = Errors { count: errors, first: None };
        Step { name, operations: 10, latencies, errors, usage }
    }

    /// Of so many errors in each step.
    fn aims_of(errors: [u64; 3]) -> Vec<String> {
        let mut found = Found::new(Subject::Hanse);
        found.steps =
            ["alone", "many", "deletion"].into_iter().zip(errors).map(|(name, it)| step(name, it)).collect();
        let weighed = |when, errors| Weighed { when, hanse: 1 << 20, etcd: 0, errors };
        found.weights = vec![weighed("idle", 0), weighed("created", errors[0] + errors[1])];
        aims(&plan(), &found)
    }

    #[test]
    fn an_aim_whose_step_had_errors_is_missed_and_says_so() {
        let met = aims_of([0; 3]);
        assert!(met.iter().all(|line| line.starts_with("**met**")), "{met:#?}");
        // The memory of what was created, one after the other, many at once, deleted, and series.
        for (errors, missed) in [([2, 0, 0], vec![0, 1]), ([0, 3, 0], vec![0, 2]), ([0, 0, 9], vec![3])] {
            let lines = aims_of(errors);
            for (index, line) in lines.iter().enumerate() {
                let is_missed = line.starts_with("**missed**") && line.ends_with("failed");
                assert_eq!(is_missed, missed.contains(&index), "{errors:?}: {line}");
            }
        }
        assert!(aims_of([0, 3, 0])[2].ends_with("5.00 ms ⚠ 3 failed"), "{:?}", aims_of([0, 3, 0])[2]);
    }
}
