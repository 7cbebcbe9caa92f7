//! A corpus of applications, each applied to a cluster that stands alone, to a hub with simulated members and to a hub
//! with real ones: what reaches its goal there must reach it in a hub. And one of controllers, which work against the same.
//!
//! ```text
//!   tests/corpus/apps ──> a real control plane, nodes by kwok ──> tests/corpus/plain   (recorded)
//!                    └──> a hub with members ──> pictures ──> compared ──> misses, which must be known
//!   tests/corpus/controllers: the same, with a program that is asked for things
//! ```
//!
//! `HANSE_CORPUS=a,b` tries only these. `HANSE_CORPUS_RECORD=1` writes down what the cluster that stands alone says;
//! `HANSE_CORPUS_WRITE=1` writes `docs/compatibility.md`, and notes when all were tried and found as they should be, and on
//! what commit: it refuses to try what is not committed.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod api;
mod bundle;
mod charts;
mod cloud;
mod controller;
mod controllers;
mod course;
mod picture;
mod program;
mod report;
mod side;
mod tending;
mod worlds;

use anyhow::{Result, ensure};
use futures_util::{StreamExt, stream};

use self::{
    bundle::Bundle,
    charts::CHARTS,
    course::{Expected, Outcome, Plain},
    report::{Known, Ran, Run},
    side::Side,
    tending::Tended,
    worlds::World,
};

/// Applications on one side at once: all of them at once would fill its nodes.
const AT_ONCE: usize = 8;

#[test]
fn the_page_says_what_is_tried_and_missed() -> Result<()> {
    if std::env::var_os("HANSE_CORPUS").is_some() {
        return Ok(());
    }
    let bundles = bundle::all()?;
    let controllers = controller::all()?;
    let page = report::page(&Known::read()?, &Ran::read()?, &bundles, CHARTS, &controllers);
    if std::env::var_os("HANSE_CORPUS_WRITE").is_some() {
        return Ok(std::fs::write(report::page_file(), page)?);
    }
    are_enough(&bundles, &controllers)?;
    for bundle in &bundles {
        ensure!(!bundle.about.is_empty(), "{} does not begin with what it is", bundle.name);
        Plain::read(&bundle.name)?;
    }
    for controller in &controllers {
        Tended::read(&controller.name)?;
    }
    let there = std::fs::read_to_string(report::page_file())?;
    ensure!(
        there == page,
        "docs/compatibility.md is not up to date: HANSE_CORPUS_WRITE=1 ./test corpus writes it"
    );
    Ok(())
}

/// So many are tried at least, of applications only those of several kinds counted, and so many of a hundred do as on a
/// cluster alone, on each side: what is known to be missed may not become the rule.
fn are_enough(bundles: &[Bundle], controllers: &[controller::Described]) -> Result<()> {
    let known = Known::read()?;
    let several = bundles.iter().filter(|it| it.has_several_kinds()).count();
    ensure!(several >= 60, "{several} applications of two or more kinds are tried, not 60");
    ensure!(controllers.len() >= 20, "{} controllers are tried, not 20", controllers.len());
    let applications: Vec<&str> = bundles.iter().map(|it| it.name.as_str()).collect();
    let controllers: Vec<&str> = controllers.iter().map(|it| it.name.as_str()).collect();
    let groups = [
        (report::APPLICATIONS, report::SIDES, applications, 95),
        (report::CONTROLLERS, report::RUNS, controllers, 90),
    ];
    for (group, sides, names, rate) in groups {
        for (side, _) in sides {
            let passed = known.passed(side, &names);
            ensure!(
                100 * passed >= rate * names.len(),
                "{passed} of {} {group} pass on the side {side}, which is less than {rate} %",
                names.len()
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_run_in_simulated_members() -> Result<()> {
    let run = Run::begin()?;
    let bundles = bundle::all()?;
    let expected = recorded(&bundles)?;
    let world = World::simulated().await?;
    compare(&world.side, report::APPLICATIONS, &bundles, &expected, &run).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real control planes: ./test corpus-real"]
async fn applications_run_in_real_members() -> Result<()> {
    let run = Run::begin()?;
    let bundles = bundle::all()?;
    let expected = recorded(&bundles)?;
    let world = World::real().await?;
    compare(&world.side, report::APPLICATIONS, &bundles, &expected, &run).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real control plane: ./test corpus-plain"]
async fn what_is_recorded_is_what_a_cluster_alone_says() -> Result<()> {
    let bundles = bundle::all()?;
    let world = World::plain().await?;
    let found = on_plain(&world.side, &bundles, std::env::var_os("HANSE_CORPUS_RECORD").is_some()).await?;
    let mut problems = Vec::new();
    for (name, plain) in &found {
        let recorded = Plain::read(name)?;
        problems
            .extend(plain.picture.differences(&recorded.picture).iter().map(|it| format!("{name}: {it}")));
        if plain.left != recorded.left {
            problems.push(format!("{name}: {:?} is left, not {:?}", plain.left, recorded.left));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Charts are not ours to keep, so neither is what they do: all sides run in one go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs real control planes, helm and Go: ./test corpus-charts"]
async fn charts_of_others_run_in_members() -> Result<()> {
    let run = Run::begin()?;
    let bundles = CHARTS.iter().map(charts::render).collect::<Result<Vec<Bundle>>>()?;
    let expected = {
        let world = World::plain().await?;
        on_plain(&world.side, &bundles, false).await?
    };
    let simulated = World::simulated().await?;
    let first = compare(&simulated.side, report::CHARTS, &bundles, &expected, &run).await;
    drop(simulated);
    let real = World::real().await?;
    compare(&real.side, report::CHARTS, &bundles, &expected, &run).await.and(first)
}

fn recorded(bundles: &[Bundle]) -> Result<Expected> {
    bundles.iter().map(|bundle| Ok((bundle.name.clone(), Plain::read(&bundle.name)?))).collect()
}

/// All of them on a cluster that stands alone; fails if one does not come to rest, when all were tried. `records`: what
/// became of them is written down.
async fn on_plain(side: &Side, bundles: &[Bundle], records: bool) -> Result<Expected> {
    let run = |bundle: &Bundle| {
        let bundle = bundle.clone();
        async move {
            let plain = course::found(side, &bundle).await;
            if let (Ok(plain), true) = (&plain, records) {
                plain.write(&bundle.name).expect("a file");
            }
            println!("{:<10} {:<32} {}", side.name, bundle.name, if plain.is_ok() { "ok" } else { "FAILED" });
            (bundle.name.clone(), plain)
        }
    };
    let all: Vec<(String, Result<Plain>)> =
        stream::iter(bundles.iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
    let (mut found, mut problems) = (Expected::new(), Vec::new());
    for (name, plain) in all {
        match plain {
            Ok(plain) => drop(found.insert(name, plain)),
            Err(error) => problems.push(format!("{name}: {error:#}")),
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(found)
}

/// All of them on a hub; fails if anything differs that is not known to, or does not any more.
async fn compare(side: &Side, group: &str, bundles: &[Bundle], expected: &Expected, run: &Run) -> Result<()> {
    let before = side.inventory().await?;
    let try_one = |bundle: &Bundle| {
        let (bundle, plain) = (bundle.clone(), expected[&bundle.name].clone());
        async move { course::tried(side, &bundle, &plain).await }
    };
    let outcomes: Vec<Outcome> =
        stream::iter(bundles.iter().map(try_one)).buffer_unordered(AT_ONCE).collect().await;
    let mut problems = Known::read()?.problems(side.name, &outcomes);
    let mut left = course::left_in_the_end(side, &before).await?;
    left.retain(|line| !is_told(line, &outcomes));
    problems.extend(left.into_iter().map(|it| format!("left behind in the end in {it}")));
    let passed = outcomes.iter().filter(|it| it.misses.is_empty()).count();
    println!(
        "{passed} of {} applications do with {} members as on a cluster alone",
        outcomes.len(),
        side.name
    );
    ensure!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    run.note(group, side.name)
}

/// Whether what is left in the end is of an application that was said already not to go.
fn is_told(line: &str, outcomes: &[Outcome]) -> bool {
    let lingers = |it: &&Outcome| it.misses.iter().any(|miss| miss.starts_with("left behind"));
    outcomes.iter().filter(lingers).any(|it| {
        let is_volume = line.contains(": PersistentVolume /");
        is_volume || line.contains(&format!(" {}/", it.bundle)) || line.ends_with(&format!("/{}", it.bundle))
    })
}
