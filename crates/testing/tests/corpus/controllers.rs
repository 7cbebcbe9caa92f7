//! The controllers of the corpus, all of them: on a cluster that stands alone, and with a hub.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use futures_util::{StreamExt, stream};

use super::{
    controller::{self, Controller},
    course::Outcome,
    report::{self, Known, Run},
    side::Side,
    tending::{self, Runs, Tended},
    worlds::World,
};

/// Each is a program of its own.
const AT_ONCE: usize = 10;

fn chosen() -> Result<Vec<Controller>> {
    controller::all()?.iter().map(controller::Described::controller).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real control plane and Go: ./test corpus-controllers-plain"]
async fn controllers_do_on_a_cluster_alone_what_is_recorded() -> Result<()> {
    let (controllers, records) = (chosen()?, std::env::var_os("HANSE_CORPUS_RECORD").is_some());
    let world = World::plain().await?;
    let side = &world.side;
    let run = |controller: &Controller| {
        let controller = controller.clone();
        async move {
            let problem = match tending::found(side, &controller).await {
                Ok(tended) if records => tended.write(&controller.name).err().map(|it| format!("{it:#}")),
                Ok(tended) => compared(&controller.name, &tended).err().map(|it| format!("{it:#}")),
                Err(error) => Some(format!("{error:#}")),
            };
            println!(
                "plain      {:<24} {}",
                controller.name,
                if problem.is_none() { "ok" } else { "FAILED" }
            );
            problem.map(|it| format!("{}: {it}", controller.name))
        }
    };
    let found: Vec<Option<String>> =
        stream::iter(controllers.iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
    let problems: Vec<String> = found.into_iter().flatten().collect();
    ensure!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// With what is recorded.
fn compared(name: &str, tended: &Tended) -> Result<()> {
    let recorded = Tended::read(name)?;
    let stages = tended.stages.iter().zip(&recorded.stages);
    let differences: Vec<String> = stages.flat_map(|(now, then)| now.differences(then)).collect();
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    ensure!(tended.left == recorded.left, "{:?} is left, not {:?}", tended.left, recorded.left);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs programs that are built with Go: ./test corpus-controllers"]
async fn controllers_work_with_simulated_members() -> Result<()> {
    let run = Run::begin()?;
    let controllers = chosen()?;
    let expected: BTreeMap<String, Tended> =
        controllers.iter().map(|it| Ok((it.name.clone(), Tended::read(&it.name)?))).collect::<Result<_>>()?;
    let mut problems = Vec::new();
    for runs in [Runs::Outside, Runs::Placed] {
        // A hub for each, so that nothing is in the way of the others.
        let world = World::simulated().await?;
        let found = compare(&world.side, &controllers, runs, &expected).await?;
        if found.is_empty() {
            run.note(report::CONTROLLERS, runs.name())?;
        }
        problems.extend(found);
    }
    ensure!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// What differs and is not known to, or is known to and does not any more.
async fn compare(
    side: &Side,
    controllers: &[Controller],
    runs: Runs,
    expected: &BTreeMap<String, Tended>,
) -> Result<Vec<String>> {
    let run = |controller: &Controller| {
        let (controller, plain) = (controller.clone(), expected[&controller.name].clone());
        async move { tending::tried(side, &controller, runs, &plain).await }
    };
    let outcomes: Vec<Outcome> =
        stream::iter(controllers.iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
    let passed = outcomes.iter().filter(|it| it.misses.is_empty()).count();
    println!("{passed} of {} controllers do {} as on a cluster alone", outcomes.len(), runs.name());
    let problems = Known::read()?.problems(runs.name(), &outcomes);
    Ok(problems.into_iter().map(|it| format!("{}: {it}", runs.name())).collect())
}
