//! One application from the first apply until nothing is left of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::{
    api::text,
    bundle::{Bundle, corpus},
    picture::Picture,
    side::Side,
};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Nothing changes for so long: it is at rest. A hub must say the same for a shorter time, since it is known what for.
const REST: Duration = Duration::from_secs(6);
const SAME: Duration = Duration::from_secs(2);
/// What has not become what it is elsewhere, and does not change for so long, will not.
const STANDSTILL: Duration = Duration::from_secs(75);
/// No application may take longer, to come or to go.
const LONGEST: Duration = Duration::from_secs(240);
/// Of a line of a recorded file: what stays when the application is deleted.
const LEFT: &str = "left ";

/// What becomes of an application on a cluster that stands alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plain {
    pub picture: Picture,
    /// After its objects were deleted, and before its namespaces were.
    pub left: BTreeSet<String>,
}

/// What became of it elsewhere.
#[derive(Debug)]
pub struct Outcome {
    pub bundle: String,
    /// One line for each thing that is not as on a cluster that stands alone.
    pub misses: Vec<String>,
    /// Kinds of objects that controllers made and that the hub does not show.
    pub hidden: BTreeSet<String>,
    /// Until it was as it should be.
    pub seconds: u64,
}

impl Plain {
    fn file(bundle: &str) -> PathBuf {
        corpus().join("plain").join(format!("{bundle}.txt"))
    }

    pub fn read(bundle: &str) -> Result<Plain> {
        let file = Self::file(bundle);
        let text = fs::read_to_string(&file).with_context(|| {
            format!("{} is missing; HANSE_CORPUS_RECORD=1 ./test corpus-plain writes it", file.display())
        })?;
        let mut plain = Plain::default();
        for line in text.lines() {
            match line.strip_prefix(LEFT) {
                Some(left) => drop(plain.left.insert(left.to_owned())),
                None => {
                    let (what, state) = line.split_once(": ").with_context(|| line.to_owned())?;
                    plain.picture.0.insert(what.to_owned(), state.to_owned());
                }
            }
        }
        Ok(plain)
    }

    pub fn write(&self, bundle: &str) -> Result<()> {
        let left: String = self.left.iter().map(|it| format!("{LEFT}{it}\n")).collect();
        fs::create_dir_all(corpus().join("plain"))?;
        Ok(fs::write(Self::file(bundle), format!("{}{left}", self.picture))?)
    }
}

/// Runs it on a cluster that stands alone, and says what became of it.
pub async fn found(side: &Side, bundle: &Bundle) -> Result<Plain> {
    apply(side, bundle).await?;
    let picture = rest(side, bundle).await?;
    delete(side, bundle).await?;
    let began = Instant::now();
    let mut left = side.left(bundle).await?;
    let mut since = Instant::now();
    while since.elapsed() < REST {
        sleep(LOOK_EVERY).await;
        let now = side.left(bundle).await?;
        if now != left {
            (left, since) = (now, Instant::now());
        }
        if began.elapsed() > LONGEST {
            bail!("{} does not end: {left:?}", bundle.name);
        }
    }
    end(side, bundle).await?;
    Ok(Plain { picture, left })
}

/// Runs it on a hub, and says what is not as it is on a cluster that stands alone.
pub async fn tried(side: &Side, bundle: &Bundle, plain: &Plain) -> Outcome {
    let mut outcome =
        Outcome { bundle: bundle.name.clone(), misses: Vec::new(), hidden: BTreeSet::new(), seconds: 0 };
    let began = Instant::now();
    if let Err(error) = try_all(side, bundle, plain, &mut outcome).await {
        outcome.misses.push(format!("{error:#}"));
    }
    let state = if outcome.misses.is_empty() { "ok" } else { "MISSED" };
    println!(
        "{:<10} {:<32} {state:<6} {:>3} s of {:>3} s",
        side.name,
        bundle.name,
        outcome.seconds,
        began.elapsed().as_secs()
    );
    outcome.misses.iter().for_each(|miss| println!("    {miss}"));
    outcome
}

async fn try_all(side: &Side, bundle: &Bundle, plain: &Plain, outcome: &mut Outcome) -> Result<()> {
    let began = Instant::now();
    if let Err(error) = apply(side, bundle).await {
        outcome.misses.push(format!("it is refused: {error:#}"));
    }
    outcome.misses.extend(until_same(side, bundle, &plain.picture).await?);
    outcome.seconds = began.elapsed().as_secs();
    outcome.hidden = side.hidden(bundle).await?;
    delete(side, bundle).await?;
    outcome.misses.extend(until_left(side, bundle, &plain.left).await?);
    end(side, bundle).await
}

pub async fn apply(side: &Side, bundle: &Bundle) -> Result<()> {
    for namespace in bundle.namespaces() {
        side.api.apply(&namespace, "").await?;
    }
    for object in bundle.contents() {
        side.api.apply(object, &bundle.name).await?;
    }
    Ok(())
}

/// As `kubectl delete` does with the same files, the last one first; namespaces stay.
pub async fn delete(side: &Side, bundle: &Bundle) -> Result<()> {
    for object in bundle.contents().rev() {
        side.api.delete(object, &bundle.name).await?;
    }
    Ok(())
}

/// Deletes the namespaces, after which nothing may be left.
pub async fn end(side: &Side, bundle: &Bundle) -> Result<()> {
    for namespace in bundle.namespaces() {
        side.api.delete(&namespace, "").await?;
    }
    let began = Instant::now();
    loop {
        let left = side.left_of_namespaces(bundle).await?;
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > STANDSTILL {
            bail!("left behind with its namespaces: {left:?}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What it looks like when nothing changes any more.
async fn rest(side: &Side, bundle: &Bundle) -> Result<Picture> {
    let began = Instant::now();
    let mut last = side.picture(bundle).await?;
    let mut since = Instant::now();
    loop {
        let enough = if is_done(bundle, &last) { REST } else { STANDSTILL };
        if since.elapsed() > enough {
            return Ok(last);
        }
        if began.elapsed() > LONGEST {
            bail!("{} does not come to rest: {last}", bundle.name);
        }
        sleep(LOOK_EVERY).await;
        let now = side.picture(bundle).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

/// Whether all has happened that is to happen: also what waits for the minute.
fn is_done(bundle: &Bundle, picture: &Picture) -> bool {
    let waits = |it: &serde_json::Value| {
        let title = super::picture::title(it, &bundle.name);
        it["kind"] == "CronJob"
            && text(it, "/spec/schedule") == "* * * * *"
            && !picture.0.get(&title).is_some_and(|state| state.contains("lastSuccessfulTime"))
    };
    picture.is_done() && !bundle.contents().any(waits)
}

/// Waits until it looks as it should; else, where it does not.
async fn until_same(side: &Side, bundle: &Bundle, wanted: &Picture) -> Result<Vec<String>> {
    let (began, mut since, mut same) = (Instant::now(), Instant::now(), None);
    let mut last: Option<Picture> = None;
    loop {
        let now = side.picture(bundle).await?;
        let differences = now.differences(wanted);
        same = if differences.is_empty() { same.or(Some(Instant::now())) } else { None };
        if same.is_some_and(|since| since.elapsed() >= SAME) {
            return Ok(Vec::new());
        }
        if last.as_ref() != Some(&now) {
            (last, since) = (Some(now), Instant::now());
        }
        if same.is_none() && (since.elapsed() > STANDSTILL || began.elapsed() > LONGEST) {
            return Ok(differences);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until no more is left than elsewhere, and no less; else, what differs.
async fn until_left(side: &Side, bundle: &Bundle, wanted: &BTreeSet<String>) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        let left = side.left(bundle).await?;
        if left == *wanted {
            return Ok(Vec::new());
        }
        if began.elapsed() > STANDSTILL {
            return Ok(differences(&left, wanted));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Between what is left and what should be.
pub fn differences(left: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Vec<String> {
    let more = left.difference(wanted).map(|it| format!("left behind: {it}"));
    let less = wanted.difference(left).map(|it| format!("gone, though it stays elsewhere: {it}"));
    more.chain(less).collect()
}

/// What clusters hold at the end that they did not hold at the beginning.
pub async fn left_in_the_end(side: &Side, before: &BTreeSet<String>) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        let now = side.inventory().await?;
        let more: Vec<String> = now.difference(before).cloned().collect();
        if more.is_empty() || began.elapsed() > STANDSTILL {
            return Ok(more);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// By bundle.
pub type Expected = BTreeMap<String, Plain>;
