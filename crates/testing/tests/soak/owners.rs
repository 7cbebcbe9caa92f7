//! Who owns objects and knows what they must be: every answer is compared with what was acknowledged before.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use env::random::SeededRandom;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::world::{Gone, JSON, Session, World, staying};

/// Objects of one owner at most.
const NAMES: u64 = 40;
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What the write under way is to bring about, if it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meant {
    Nothing,
    Value(String),
    Absence,
}

pub struct Owner {
    session: Session,
    random: SeededRandom,
    label: String,
    collection: String,
    /// What was acknowledged: the value and version of each object there is.
    known: BTreeMap<String, (String, String)>,
    meant: Meant,
    count: u64,
}

impl Owner {
    pub async fn new(world: &Arc<World>, number: usize) -> Owner {
        Owner {
            session: Session::open(world).await,
            random: SeededRandom::new(number as u64),
            label: format!("owner-{number}"),
            collection: format!("/clusters/{}/api/v1/namespaces/default/configmaps", staying(number)),
            known: BTreeMap::new(),
            meant: Meant::Nothing,
            count: 0,
        }
    }

    /// At a steady rate until all is over, and then everything is looked at once more.
    pub async fn run(mut self, every: Duration) {
        let world = self.session.world.clone();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(_busy) = world.turn().await else { break };
            let name = format!("{}-{}", self.label, self.random.below(NAMES));
            let act = self.random.below(20);
            self.meant = Meant::Nothing;
            if let Err(Gone::Lost) = self.act(&name, act).await {
                self.resolve(&name).await;
            }
        }
        for _ in 0..10 {
            if self.look_at_all().await.is_ok() {
                return;
            }
        }
        world.ledger.problem(format!("{} cannot look at its objects", self.label));
    }

    async fn act(&mut self, name: &str, act: u64) -> Result<(), Gone> {
        let path = format!("{}/{name}", self.collection);
        match (self.known.get(name).cloned(), act) {
            (_, 0) => self.look_at_all().await,
            (Some((value, _)), 1..=3) => {
                let object = self.session.get(&path, &[200]).await?.json();
                self.compare(name, &object, &value);
                Ok(())
            }
            (None, 1..=3) => self.session.get(&path, &[404]).await.map(drop),
            (Some(_), 4..=6) => {
                self.meant = Meant::Absence;
                self.session.ask(Method::DELETE, &path, &[], &Value::Null, &[200]).await?;
                self.known.remove(name);
                Ok(())
            }
            (Some((_, version)), 7..=11) => {
                let (value, mut object) = self.object(name);
                object["metadata"]["resourceVersion"] = version.into();
                self.write(Method::PUT, &path, JSON, name, value, &object).await
            }
            (Some(_), 12..=15) => {
                let (value, object) = self.object(name);
                self.write(Method::PATCH, &path, MERGE, name, value, &json!({"data": object["data"]})).await
            }
            (None, 4..=13) => {
                let (value, object) = self.object(name);
                let collection = self.collection.clone();
                self.write(Method::POST, &collection, JSON, name, value, &object).await
            }
            _ => {
                let (value, mut object) = self.object(name);
                object["apiVersion"] = "v1".into();
                object["kind"] = "ConfigMap".into();
                let path = format!("{path}?fieldManager=soak&force=true");
                self.write(Method::PATCH, &path, APPLY, name, value, &object).await
            }
        }
    }

    fn object(&mut self, name: &str) -> (String, Value) {
        self.count += 1;
        let value = self.count.to_string();
        let padding = "x".repeat(self.random.below(2000) as usize);
        let data = json!({"value": value, "padding": padding});
        (value, json!({"metadata": {"name": name, "labels": {"owner": self.label}}, "data": data}))
    }

    async fn write(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        name: &str,
        value: String,
        object: &Value,
    ) -> Result<(), Gone> {
        let headers = [("content-type", content_type)];
        self.meant = Meant::Value(value.clone());
        let answer = self.session.ask(method, path, &headers, object, &[200, 201]).await?.json();
        self.session.world.ledger.count("writes");
        self.compare(name, &answer, &value);
        self.known.insert(name.to_owned(), (value, version(&answer)));
        Ok(())
    }

    fn compare(&self, name: &str, object: &Value, value: &str) {
        if object["data"]["value"] != value {
            let found = &object["data"]["value"];
            self.session.world.ledger.problem(format!("{name} is {found}, and was acknowledged as {value}"));
        }
    }

    /// After a write without an answer: it happened, or what was acknowledged before is still there.
    async fn resolve(&mut self, name: &str) {
        let path = format!("{}/{name}", self.collection);
        self.session.world.ledger.count("writes without an answer");
        let answer = loop {
            match self.session.get(&path, &[200, 404]).await {
                Ok(answer) => break answer,
                Err(Gone::Lost) => {}
                Err(Gone::Wrong) => return,
            }
        };
        let found = (answer.code == 200).then(|| {
            let object = answer.json();
            (object["data"]["value"].as_str().unwrap_or_default().to_owned(), version(&object))
        });
        if !is_accounted_for(found.as_ref(), self.known.get(name), &self.meant) {
            self.session.world.ledger.problem(format!(
                "{name} is {found:?}, was acknowledged as {:?}, and {:?} was meant without an answer",
                self.known.get(name),
                self.meant
            ));
        }
        match found {
            Some(found) => self.known.insert(name.to_owned(), found),
            None => self.known.remove(name),
        };
    }

    /// A list has all that was acknowledged, as it was acknowledged, and nothing else.
    async fn look_at_all(&mut self) -> Result<(), Gone> {
        let path = format!("{}?labelSelector=owner%3D{}", self.collection, self.label);
        let list = self.session.get(&path, &[200]).await?.json();
        let items = list["items"].as_array().into_iter().flatten();
        let found: BTreeMap<String, (String, String)> = items
            .map(|item| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (text(&item["metadata"]["name"]), (text(&item["data"]["value"]), version(item)))
            })
            .collect();
        if found != self.known {
            let ledger = &self.session.world.ledger;
            ledger.problem(format!("{}: listed {found:?}, acknowledged {:?}", self.label, self.known));
        }
        Ok(())
    }
}

fn version(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether what is there is what was acknowledged, untouched, or what a write after that was to make of it.
fn is_accounted_for(
    found: Option<&(String, String)>,
    acknowledged: Option<&(String, String)>,
    meant: &Meant,
) -> bool {
    found == acknowledged
        || match (found, meant) {
            (Some((value, version)), Meant::Value(new)) => {
                value == new && acknowledged.is_none_or(|(_, old)| old != version)
            }
            (None, Meant::Absence) => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_without_an_answer_hides_no_other_loss() {
        let state = |value: &str, version: &str| Some((value.to_owned(), version.to_owned()));
        let (new, old) = (Meant::Value("8".to_owned()), state("7", "70"));
        for (found, acknowledged, meant, is_good) in [
            (state("7", "70"), &old, &new, true),
            (state("8", "80"), &old, &new, true),
            (state("8", "80"), &None, &new, true),
            (None, &None, &new, true),
            (None, &old, &Meant::Absence, true),
            (state("7", "70"), &old, &Meant::Absence, true),
            (state("6", "60"), &old, &new, false),
            (state("7", "75"), &old, &new, false),
            (state("8", "70"), &old, &new, false),
            (None, &old, &new, false),
            (state("7", "70"), &None, &new, false),
            (None, &old, &Meant::Nothing, false),
            (state("8", "80"), &old, &Meant::Absence, false),
        ] {
            let verdict = is_accounted_for(found.as_ref(), acknowledged.as_ref(), meant);
            assert_eq!(verdict, is_good, "{found:?} after {acknowledged:?} and {meant:?}");
        }
    }
}
