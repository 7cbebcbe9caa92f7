//! What is known to be different, and the page that says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    api::text,
    bundle::{self, Bundle, corpus},
    charts::{self, Chart},
    controller::{self, Described},
    course::Outcome,
};

pub const APPLICATIONS: &str = "applications";
pub const CHARTS: &str = "charts that others wrote";
pub const CONTROLLERS: &str = "controllers";
/// Where applications are compared with a cluster that stands alone.
pub const SIDES: [(&str, &str); 2] = [("simulated", "simulated members"), ("real", "real members")];
/// How controllers run.
pub const RUNS: [(&str, &str); 2] =
    [("outside", "outside of the hub"), ("placed", "as workloads that are placed")];

/// Something that is not in a hub as it is on a cluster that stands alone.
pub struct Miss {
    bundles: Vec<String>,
    sides: Vec<String>,
    /// What lines begin with that say so.
    what: Vec<String>,
    reason: String,
    /// It depends on who comes first, so it need not be found each time.
    sometimes: bool,
}

/// `tests/corpus/misses.yaml`
pub struct Known {
    pub misses: Vec<Miss>,
    /// Kinds of objects that controllers make in clusters and a hub does not show.
    pub hidden: Vec<(String, String)>,
}

impl Known {
    pub fn read() -> Result<Known> {
        let file = corpus().join("misses.yaml");
        let all: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?).context("misses.yaml")?;
        let rows = |key: &str| all[key].as_array().cloned().unwrap_or_default();
        let words = |it: &Value| {
            it.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let miss = |it: &Value| Miss {
            bundles: words(&it["apps"]),
            sides: words(&it["with"]),
            what: words(&it["what"]),
            reason: text(it, "/reason").to_owned(),
            sometimes: it["sometimes"] == true,
        };
        Ok(Known {
            misses: rows("misses").iter().map(miss).collect(),
            hidden: rows("hidden")
                .iter()
                .map(|it| (text(it, "/kind").to_owned(), text(it, "/reason").to_owned()))
                .collect(),
        })
    }

    /// What is found and not known, and what is known and not found any more.
    pub fn problems(&self, side: &str, outcomes: &[Outcome]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut used = BTreeSet::new();
        for outcome in outcomes {
            for line in &outcome.misses {
                match self.misses.iter().position(|it| it.fits(side, &outcome.bundle, line)) {
                    Some(at) => drop(used.insert((at, &outcome.bundle))),
                    None => problems.push(format!("{}: {line}", outcome.bundle)),
                }
            }
            let new = outcome.hidden.iter().filter(|it| !self.hidden.iter().any(|(kind, _)| kind == *it));
            problems.extend(new.map(|it| format!("{}: the hub does not show {it}", outcome.bundle)));
        }
        let tried = |name: &String| outcomes.iter().any(|it| it.bundle == *name);
        let is_due = |it: &Miss| !it.sometimes && it.sides.iter().any(|it| it == side);
        for (at, miss) in self.misses.iter().enumerate().filter(|(_, it)| is_due(it)) {
            let over = miss.bundles.iter().filter(|name| tried(name) && !used.contains(&(at, name)));
            problems.extend(
                over.map(|name| format!("{name}: does not differ any more: {}", miss.what.join(", "))),
            );
        }
        problems
    }

    /// How many of these do on a side as on a cluster alone.
    pub fn passed(&self, side: &str, names: &[&str]) -> usize {
        names.iter().filter(|name| self.of(side, name).next().is_none()).count()
    }

    fn of<'a>(&'a self, side: &'a str, bundle: &'a str) -> impl Iterator<Item = &'a Miss> {
        self.misses.iter().filter(move |it| it.concerns(side, bundle))
    }
}

impl Miss {
    fn concerns(&self, side: &str, bundle: &str) -> bool {
        self.sides.iter().any(|it| it == side) && self.bundles.iter().any(|it| it == bundle)
    }

    fn fits(&self, side: &str, bundle: &str, line: &str) -> bool {
        self.concerns(side, bundle) && self.what.iter().any(|it| line.starts_with(it))
    }
}

pub fn page_file() -> PathBuf {
    corpus().join("../../docs/compatibility.md")
}

/// When all of a group were tried last on a side, and on what commit, and what came of the last drift:
/// `tests/corpus/runs.txt`. A commit with `+` is from before changes that were not committed were refused.
#[derive(Default)]
pub struct Ran(BTreeMap<String, String>);

impl Ran {
    fn file() -> PathBuf {
        corpus().join("runs.txt")
    }

    pub fn read() -> Result<Ran> {
        let lines = fs::read_to_string(Self::file()).context("runs.txt")?;
        let lines = lines.lines().filter_map(|line| line.split_once(": "));
        Ok(Ran(lines.map(|(what, when)| (what.to_owned(), when.to_owned())).collect()))
    }
}

/// A run of all of a group, which is noted when it went well, with the commit that it began on.
pub struct Run {
    /// None where it is not to be noted.
    commit: Option<String>,
}

impl Run {
    /// It is to be noted where a page is to be written and nothing is left out. What is not committed has no name to
    /// be noted by: such a run is refused, and before it begins.
    pub fn begin() -> Result<Run> {
        let is_asked = |name: &str| std::env::var_os(name).is_some();
        if is_asked("HANSE_CORPUS") || !is_asked("HANSE_CORPUS_WRITE") {
            return Ok(Run { commit: None });
        }
        // What is run, and what it is run on; the notes themselves are what changes.
        let paths = [":/crates", ":/Cargo.*", ":/tests", ":(top,exclude)tests/corpus/runs.txt"];
        let changed = git(&[&["status", "--porcelain", "--"], &paths[..]].concat())?;
        ensure!(
            changed.is_empty(),
            "a run is noted with its commit, and these differ from it; commit them, or go without \
             HANSE_CORPUS_WRITE (with it, `cargo test --workspace --test corpus the_page` writes the page alone)\n\
             {changed}"
        );
        Ok(Run { commit: Some(git(&["rev-parse", "--short=12", "HEAD"])?) })
    }

    /// That all went well; the page says so from now on.
    pub fn note(&self, group: &str, side: &str) -> Result<()> {
        let Some(commit) = &self.commit else { return Ok(()) };
        let mut ran = Ran::read()?;
        let day = jiff::Timestamp::now().strftime("%Y-%m-%d");
        ran.0.insert(format!("{group}, {side}"), format!("{day}, {commit}"));
        let lines: String = ran.0.iter().map(|(what, when)| format!("{what}: {when}\n")).collect();
        fs::write(Ran::file(), lines)?;
        let page = page(&Known::read()?, &ran, &bundle::all()?, charts::CHARTS, &controller::all()?);
        Ok(fs::write(page_file(), page)?)
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    let git = Command::new("git").args(arguments).output().context("git")?;
    ensure!(git.status.success(), "git: {}", String::from_utf8_lossy(&git.stderr));
    Ok(String::from_utf8_lossy(&git.stdout).trim_end().to_owned())
}

/// `docs/compatibility.md`
pub fn page(
    known: &Known,
    ran: &Ran,
    bundles: &[Bundle],
    charts: &[Chart],
    controllers: &[Described],
) -> String {
    let names: Vec<&str> = bundles.iter().map(|it| it.name.as_str()).collect();
    let chart_names: Vec<&str> = charts.iter().map(|it| it.name).collect();
    let controller_names: Vec<&str> = controllers.iter().map(|it| it.name.as_str()).collect();
    let groups = [
        ("applications and charts", SIDES, [names.clone(), chart_names.clone()].concat()),
        (APPLICATIONS, SIDES, names),
        (CHARTS, SIDES, chart_names),
        (CONTROLLERS, RUNS, controller_names),
    ];
    let several = bundles.iter().filter(|it| it.has_several_kinds()).count();
    let mut page = include_str!("page.md").to_owned();
    let put = |page: &mut String, mark: &str, text: &str| *page = page.replace(mark, text.trim_end());
    put(&mut page, "{several}", &format!("{several} of the {}", bundles.len()));
    put(&mut page, "{rates}", &rates(known, ran, &groups));
    put(&mut page, "{misses}", &misses(known));
    put(&mut page, "{hidden}", &hidden(known));
    put(&mut page, "{apps}", &apps(known, bundles));
    put(&mut page, "{charts}", &charts::table(known_row(known, SIDES), charts));
    put(&mut page, "{controllers}", &controllers_table(known, controllers));
    put(&mut page, "{drift}", &drift(ran));
    page
}

type Columns = [(&'static str, &'static str); 2];

fn rates(known: &Known, ran: &Ran, groups: &[(&str, Columns, Vec<&str>)]) -> String {
    let mut text =
        String::from("| | tried | pass | rate | last run, commit |\n| --- | --- | --- | --- | --- |\n");
    for (group, sides, names) in groups {
        for (side, words) in sides {
            let passed = known.passed(side, names);
            let rate = 100.0 * passed as f64 / names.len().max(1) as f64;
            let when = ran.0.get(&format!("{group}, {side}")).map_or("", String::as_str);
            let _ =
                writeln!(text, "| {group}, {words} | {} | {passed} | {rate:.1} % | {when} |", names.len());
        }
    }
    text
}

fn misses(known: &Known) -> String {
    let mut text = String::from("| application | on | what differs | why |\n| --- | --- | --- | --- |\n");
    for miss in &known.misses {
        let (apps, sides) = (miss.bundles.join(", "), miss.sides.join(", "));
        let sides = if miss.sometimes { format!("{sides}, sometimes") } else { sides };
        let what = miss.what.join("`, `");
        let _ = writeln!(text, "| {apps} | {sides} | `{what}` | {} |", miss.reason);
    }
    if known.misses.is_empty() { "Nothing.".to_owned() } else { text }
}

fn hidden(known: &Known) -> String {
    let mut text = String::from("| kind | why |\n| --- | --- |\n");
    for (kind, reason) in &known.hidden {
        let _ = writeln!(text, "| {kind} | {reason} |");
    }
    if known.hidden.is_empty() { "All of it is.".to_owned() } else { text }
}

/// `passes`, or that it is missed, on each side.
fn known_row(known: &Known, sides: Columns) -> impl Fn(&str) -> String + '_ {
    move |name| {
        let word = |side: &str| if known.of(side, name).next().is_none() { "passes" } else { "**missed**" };
        sides.map(|(side, _)| word(side)).join(" | ")
    }
}

fn apps(known: &Known, bundles: &[Bundle]) -> String {
    let row = known_row(known, SIDES);
    let mut text = String::from(
        "| application | what it is | kinds | simulated | real |\n| --- | --- | --- | --- | --- |\n",
    );
    for bundle in bundles {
        let Bundle { name, about, .. } = bundle;
        let _ = writeln!(text, "| {name} | {about} | {} | {} |", bundle.kinds().join(", "), row(name));
    }
    text
}

fn controllers_table(known: &Known, controllers: &[Described]) -> String {
    let row = known_row(known, RUNS);
    let mut text = String::from(
        "| controller | what it does | by | outside | placed |\n| --- | --- | --- | --- | --- |\n",
    );
    for it in controllers {
        let _ = writeln!(text, "| {} | {} | {} | {} |", it.name, it.about(), it.with(), row(&it.name));
    }
    text
}

/// As `tests/clients/hanse` notes it: a day, a commit, and what the program said.
fn drift(ran: &Ran) -> String {
    let noted = ran.0.get("drift").map(|it| it.splitn(3, ", ").collect::<Vec<_>>());
    match noted.as_deref() {
        Some([day, commit, result]) => format!("The last run, {day}, commit {commit}: {result}."),
        _ => "No run is noted.".to_owned(),
    }
}

#[test]
fn the_page_says_what_came_of_the_last_drift() {
    assert_eq!(drift(&Ran::default()), "No run is noted.");
    let noted = "2026-11-18, 50076f9, in 10m0s all drifted, and helm wrote; then nobody did";
    let ran = Ran(BTreeMap::from([("drift".to_owned(), noted.to_owned())]));
    assert_eq!(
        drift(&ran),
        "The last run, 2026-11-18, commit 50076f9: in 10m0s all drifted, and helm wrote; then nobody did."
    );
}
