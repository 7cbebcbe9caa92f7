//! Any order of things: whatever happens, what is wanted throughout is never deleted, and at rest everything is where
//! it should be and nowhere else.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, items, path, shares, text},
};

const MEMBERS: [&str; 2] = ["m1", "m2"];
const STEPS: usize = 40;

/// Numbers from a seed, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

fn churned(number: u64) -> Value {
    app::config_map(&format!("churned-{number}"), "x")
}

async fn step(world: &mut World, dice: &mut Dice) -> Result<String> {
    let (what, number) = (dice.roll(10), dice.roll(4));
    let member = MEMBERS[dice.roll(2) as usize];
    let object = churned(number);
    Ok(match what {
        0..=2 => {
            let mut object = object;
            let clusters = ["m1", "m2", "m1,m2"][dice.roll(3) as usize];
            object["metadata"]["annotations"] = json!({"hanse.io/clusters": clusters});
            object["data"]["key"] = json!(dice.roll(100).to_string());
            // It may be on its way out.
            crate::world::apply(&world.client, "", &object).await?;
            format!("apply {number} to {clusters}")
        }
        3 | 4 => {
            world.client.delete(&path(&object)).await?;
            format!("delete {number}")
        }
        5 => {
            world.cut(member)?;
            format!("cut {member}")
        }
        6 | 7 => {
            world.heal(member)?;
            format!("heal {member}")
        }
        8 => {
            world.restart_hub(dice.roll(2) == 0).await?;
            "restart".to_owned()
        }
        _ => {
            world
                .client
                .merge_patch(&path(&app::deployment("web", 3)), &json!({"spec": {"replicas": 2 + number}}))
                .await?;
            format!("scale to {}", 2 + number)
        }
    })
}

/// The names of copies of ConfigMaps in a member.
async fn copies(world: &World, member: &str) -> Result<BTreeSet<String>> {
    let all = world.member(member).await?.items(&format!("/api/v1/namespaces/{NS}/configmaps")).await?;
    let is_copy = |it: &&Value| it["metadata"]["annotations"][api::SOURCE_ANNOTATION].is_string();
    Ok(all.iter().filter(is_copy).map(|it| text(it, "/metadata/name").to_owned()).collect())
}

/// What should be there: one copy in each cluster that is assigned.
async fn wanted(world: &World, member: &str) -> Result<BTreeSet<String>> {
    let mut wanted = BTreeSet::new();
    for object in items(&world.client, &format!("/api/v1/namespaces/{NS}/configmaps")).await? {
        let mut object = object;
        (object["apiVersion"], object["kind"]) = (json!("v1"), json!("ConfigMap"));
        let assignment = world.get(&assignment_path(&object)).await?;
        if shares(&assignment).iter().any(|(name, _)| name == member) {
            wanted.insert(text(&object, "/metadata/name").to_owned());
        }
    }
    Ok(wanted)
}

async fn any_order(seed: u64) -> Result<()> {
    let mut world = World::start(&MEMBERS).await?;
    let mut dice = Dice(seed);
    world.namespace(NS).await?;
    world.annotate(&format!("/api/v1/namespaces/{NS}"), json!({"hanse.io/clusters": "m1,m2"})).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    world.barrier(NS, 0, &MEMBERS).await?;
    let mark = world.there.mark();
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        steps.push(step(&mut world, &mut dice).await?);
    }
    for member in MEMBERS {
        world.heal(member)?;
        world.until_ready(member).await?;
    }
    let web = world.get(&path(&app::deployment("web", 3))).await?;
    world.until_rolled_out("web", web["spec"]["replicas"].as_u64().unwrap_or(0)).await?;
    world.barrier(NS, 1, &MEMBERS).await?;

    // Wanted throughout, in both of them.
    let steady = ["web", "settings", "password", NS, "barrier-0"];
    let is_copy = ["deployments", "services", "configmaps", "secrets", "namespaces"];
    let ends = world.there.since(mark).into_iter();
    let ends = ends.filter(|it| {
        it.is_end() && steady.contains(&it.name.as_str()) && is_copy.contains(&it.resource.as_str())
    });
    assert_eq!(ends.collect::<Vec<_>>(), [], "seed {seed}: {steps:?}");
    for member in MEMBERS {
        let what = format!("seed {seed}: {member} has what it should: {steps:?}");
        testing::hub::eventually(&what, || async {
            let is_so = copies(&world, member).await? == wanted(&world, member).await?;
            Ok(is_so.then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_3_any_order_of_things_ends_where_it_should() -> Result<()> {
    for seed in [1, 20_261_116, 0xdead_beef] {
        any_order(seed).await?;
    }
    Ok(())
}
