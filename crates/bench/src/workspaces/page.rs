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

fn aims(plan: &Plan, found: &Found) -> Vec<String> {
    let verdict = |met: bool| if met { "**met**" } else { "**missed**" };
    let at_most = |found: f64, most: f64, aim: &str, unit: &str| {
        format!("{}: {aim}: {} {unit}", verdict(found <= most), number(found))
    };
    let mut lines = Vec::new();
    for weight in found.weights.iter().skip(1).filter(|weight| weight.when != "all deleted") {
        let aim = format!("≤ 64 KiB each, {}", weight.when);
        lines.push(at_most(each_kib(plan, found, weight), MOST_KIB, &aim, "KiB"));
    }
    let each = |step: &Step| step.usage.elapsed.as_secs_f64() * 1e3 / step.operations as f64;
    if let [alone, many, ..] = found.steps.as_slice() {
        lines.push(at_most(
            alone.latencies.quantile(0.5),
            MOST_CREATE_MS,
            "p50 ≤ 10 ms, one after the other",
            "ms",
        ));
        lines.push(at_most(each(many), MOST_CREATE_MS, "≤ 10 ms each, many at once", "ms"));
    }
    if let Some(deletion) = found.steps.last() {
        let seconds = deletion.usage.elapsed.as_secs_f64();
        lines.push(at_most(seconds, MOST_DELETE_SECONDS, "all deleted within a minute", "s"));
    }
    let same = found.series.1 <= found.series.0 + 100;
    lines.push(format!(
        "{}: no series of metrics per workspace: {} more",
        verdict(same),
        found.series.1.saturating_sub(found.series.0)
    ));
    lines
}
