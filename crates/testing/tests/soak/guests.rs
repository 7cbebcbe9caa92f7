//! Things that come and go, one life after the other: definitions, namespaces, workspaces, service accounts and their
//! tokens, pods under a quota, objects that a webhook is asked about.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use testing::{
    patience::Patience,
    webhook::{Asked, Reply, Webhook},
};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::world::{Gone, JSON, Session, WORKSPACES, World, staying};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Definition,
    Namespace,
    Workspace,
    Token,
    Pod,
    Reviewed,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Definition, Kind::Namespace, Kind::Workspace, Kind::Token, Kind::Pod, Kind::Reviewed];
}

/// Pods that the quota allows.
const PODS: usize = 5;

pub struct Guest {
    session: Session,
    kind: Kind,
    /// Where it lives, as the beginning of a path.
    home: String,
    /// What a life that was cut short may have left.
    left: Vec<String>,
}

impl Guest {
    pub async fn new(world: &Arc<World>, kind: Kind, number: usize) -> Guest {
        let home = format!("/clusters/{}", staying(number));
        Guest { session: Session::open(world).await, kind, home, left: Vec::new() }
    }

    /// One life after the other until all is over; after the last nothing is left.
    pub async fn run(mut self, every: Duration) {
        let world = self.session.world.clone();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lives = 0;
        loop {
            ticks.tick().await;
            let Some(_busy) = world.turn().await else { break };
            lives += 1;
            if self.clean().await.is_err() {
                continue;
            }
            if self.live(lives).await.is_ok() {
                self.left.clear();
                world.ledger.count("lives");
            }
        }
        while let Err(Gone::Lost) = self.clean().await {}
    }

    async fn clean(&mut self) -> Result<(), Gone> {
        while let Some(path) = self.left.last().cloned() {
            self.session.delete(&path).await?;
            self.session.until(&path, 404).await?;
            self.left.pop();
        }
        Ok(())
    }

    async fn live(&mut self, number: usize) -> Result<(), Gone> {
        match self.kind {
            Kind::Definition => self.definition(number).await,
            Kind::Namespace => self.namespace(number).await,
            Kind::Workspace => self.workspace(number).await,
            Kind::Token => self.token(number).await,
            Kind::Pod => self.pods().await,
            Kind::Reviewed => self.reviewed(number).await,
        }
    }

    /// Makes an object that is to be removed again, whatever happens.
    async fn make(&mut self, collection: &str, object: &Value) -> Result<String, Gone> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        self.left.push(path.clone());
        self.session.post(collection, object).await?;
        Ok(path)
    }

    async fn end(&mut self, path: &str) -> Result<(), Gone> {
        self.session.delete(path).await?;
        self.session.until(path, 404).await.map(drop)
    }

    async fn definition(&mut self, number: usize) -> Result<(), Gone> {
        let plural = format!("ships{number}");
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}},
            "x-kubernetes-validations": [{"rule": "self.size < 100"}],
        }}});
        let definition = json!({
            "metadata": {"name": format!("{plural}.soak.example")},
            "spec": {
                "group": "soak.example", "scope": "Namespaced",
                "names": {"plural": plural, "singular": format!("ship{number}"), "kind": format!("Ship{number}")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        let collection = format!("{}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", self.home);
        let path = self.make(&collection, &definition).await?;
        let ships = format!("{}/apis/soak.example/v1/namespaces/default/{plural}", self.home);
        self.session.until(&ships, 200).await?;
        for ship in 0..3 {
            let ship = json!({
                "apiVersion": "soak.example/v1", "kind": format!("Ship{number}"),
                "metadata": {"name": format!("ship-{ship}")}, "spec": {},
            });
            let made = self.session.post(&ships, &ship).await?.json();
            if made["spec"]["size"] != 3 {
                self.session.world.ledger.problem(format!("a ship without its default: {made}"));
            }
        }
        self.end(&path).await?;
        self.session.until(&ships, 404).await.map(drop)
    }

    async fn namespace(&mut self, number: usize) -> Result<(), Gone> {
        let collection = format!("{}/api/v1/namespaces", self.home);
        let name = format!("guest-{number}");
        let path = self.make(&collection, &json!({"metadata": {"name": name}})).await?;
        for inside in 0..3 {
            let object = json!({"metadata": {"name": format!("c{inside}")}, "data": {"a": "b"}});
            self.session.post(&format!("{path}/configmaps"), &object).await?;
        }
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
        self.session.post(&format!("{path}/secrets"), &secret).await?;
        self.end(&path).await?;
        self.session.get(&format!("{path}/configmaps/c0"), &[404]).await.map(drop)
    }

    async fn workspace(&mut self, number: usize) -> Result<(), Gone> {
        let name = format!("guest-{number}");
        let path = self.make(WORKSPACES, &json!({"metadata": {"name": name}})).await?;
        let maps = format!("/clusters/{name}/api/v1/namespaces/default/configmaps");
        for inside in 0..3 {
            let object = json!({"metadata": {"name": format!("c{inside}")}, "data": {"a": "b"}});
            self.session.post(&maps, &object).await?;
        }
        self.end(&path).await
    }

    async fn token(&mut self, number: usize) -> Result<(), Gone> {
        let collection = format!("{}/api/v1/namespaces/default/serviceaccounts", self.home);
        let name = format!("guest-{number}");
        let path = self.make(&collection, &json!({"metadata": {"name": name}})).await?;
        let request = json!({"spec": {"expirationSeconds": 600}});
        let token = self.session.post(&format!("{path}/token"), &request).await?.json();
        let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap_or_default());
        let mut nobody = Session::open_as_nobody(&self.session.world).await;
        let review = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", self.home);
        let headers = [("content-type", JSON), ("authorization", bearer.as_str())];
        let who = nobody.ask(Method::POST, &review, &headers, &json!({}), &[201]).await?.json();
        if who["status"]["userInfo"]["username"] != format!("system:serviceaccount:default:{name}") {
            self.session.world.ledger.problem(format!("a token of {name} is that of {who}"));
        }
        self.end(&path).await?;
        nobody.ask(Method::POST, &review, &headers, &json!({}), &[401]).await.map(drop)
    }

    /// As many as are allowed and one more; then all go, and the quota counts none.
    async fn pods(&mut self) -> Result<(), Gone> {
        let namespace = format!("{}/api/v1/namespaces/default", self.home);
        let quota = json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": PODS.to_string()}}});
        let quota = self.make(&format!("{namespace}/resourcequotas"), &quota).await?;
        self.used(&quota, 0).await?;
        for number in 0..=PODS {
            let pod = json!({
                "metadata": {"name": format!("guest-{number}")},
                "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
            });
            let pods = format!("{namespace}/pods");
            if number < PODS {
                self.make(&pods, &pod).await?;
            } else {
                let headers = [("content-type", JSON)];
                self.session.ask(Method::POST, &pods, &headers, &pod, &[403]).await?;
            }
        }
        self.used(&quota, PODS).await?;
        for number in 0..PODS {
            let path = format!("{namespace}/pods/guest-{number}");
            let now = json!({"gracePeriodSeconds": 0});
            let headers = [("content-type", JSON)];
            self.session.ask(Method::DELETE, &path, &headers, &now, &[200]).await?;
        }
        self.used(&quota, 0).await?;
        self.end(&quota).await
    }

    async fn used(&mut self, quota: &str, pods: usize) -> Result<(), Gone> {
        let (mut patience, wanted) = (Patience::default(), pods.to_string());
        loop {
            let found = self.session.get(quota, &[200]).await?.json();
            if found["status"]["used"]["pods"] == wanted.as_str() {
                return Ok(());
            }
            if !patience.lasts(found["status"].clone()) {
                self.session.world.ledger.problem(format!("{pods} pods are there, and counted: {found}"));
                return Err(Gone::Wrong);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// In a namespace that a webhook is asked about: it refuses what is labelled so.
    async fn reviewed(&mut self, number: usize) -> Result<(), Gone> {
        let maps = format!("{}/api/v1/namespaces/{REVIEWED}/configmaps", self.home);
        let good = json!({"metadata": {"name": format!("good-{number}")}});
        let path = self.make(&maps, &good).await?;
        let bad = json!({"metadata": {"name": "bad", "labels": {"soak": "refused"}}});
        self.session.ask(Method::POST, &maps, &[("content-type", JSON)], &bad, &[403]).await?;
        self.end(&path).await
    }
}

const REVIEWED: &str = "reviewed";

/// Asks a webhook about every config map of one namespace of each workspace where `numbers` live.
pub async fn review(world: &Arc<World>, numbers: impl IntoIterator<Item = usize>) -> anyhow::Result<Webhook> {
    let webhook = Webhook::start(|asked: &Asked| {
        let request = &asked.body["request"];
        let allowed = request["object"]["metadata"]["labels"]["soak"] != "refused";
        let mut response = json!({"uid": request["uid"], "allowed": allowed});
        if !allowed {
            response["status"] = json!({"code": 403, "message": "refused"});
        }
        Reply::Json(json!({
            "kind": "AdmissionReview", "apiVersion": asked.body["apiVersion"], "response": response,
        }))
    })
    .await?;
    let mut session = Session::open(world).await;
    for number in numbers {
        let home = format!("/clusters/{}", staying(number));
        let labels = json!({"name": REVIEWED, "labels": {"soak": REVIEWED}});
        let configuration = json!({"metadata": {"name": "soak"}, "webhooks": [{
            "name": "soak.webhooks.io",
            "clientConfig": {"url": webhook.url, "caBundle": webhook.ca_bundle},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"soak": REVIEWED}},
            "rules": [{
                "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }],
        }]});
        let admission = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        for (path, object) in [
            ("/api/v1/namespaces".to_owned(), json!({"metadata": labels})),
            (admission.to_owned(), configuration),
        ] {
            let made = session.post(&format!("{home}{path}"), &object).await;
            anyhow::ensure!(made.is_ok(), "{path} cannot be made");
        }
    }
    Ok(webhook)
}
