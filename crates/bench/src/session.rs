//! A running server, connected to, and what is found out about it.

use std::sync::Arc;

use anyhow::Result;

use crate::{
    api::{CONNECTIONS, PAYLOAD, Plan, WATCH_PAYLOAD},
    client::{Connection, Endpoint},
    definitions,
    figures::{Figure, ListKind, Operation, Repetition, Row, Sample},
    lists::Lister,
    load::{self, Limit},
    objects::{Kind, Population, Verb},
    servers::{Ready, Server, Subject},
    setting::Admin,
    stages::Totals,
    watches,
};

/// Dropped, it hangs up: a server waits for its clients before it stops.
pub struct Session<'a> {
    plan: &'a Plan,
    subject: Subject,
    /// Objects that the server is meant to hold.
    objects: usize,
    admin: Admin,
    admin_endpoint: Endpoint,
    endpoint: Endpoint,
    /// Of the user who makes the load.
    connections: Vec<Connection>,
    server: Vec<u32>,
    pub found: &'a mut Repetition,
}

impl<'a> Session<'a> {
    pub async fn open(
        plan: &'a Plan,
        server: &Server,
        ready: &Ready,
        objects: usize,
        found: &'a mut Repetition,
    ) -> Result<Self> {
        let subject = server.subject;
        Ok(Self {
            plan,
            subject,
            objects,
            admin: Admin::connect(&ready.admin, subject == Subject::Kube).await?,
            admin_endpoint: ready.admin.clone(),
            endpoint: ready.loader.clone(),
            connections: ready.loader.connect_many(CONNECTIONS).await?,
            server: server.pids(),
            found,
        })
    }

    pub async fn furnish(&mut self) -> Result<()> {
        self.admin.furnish().await
    }

    /// A furnished namespace, and what is to be made in it.
    pub async fn population(
        &mut self,
        kind: Kind,
        namespace: &str,
        count: usize,
        payload: usize,
    ) -> Result<Arc<Population>> {
        self.admin.namespace(namespace).await?;
        Population::new(&self.endpoint, kind, namespace, count, payload)
    }

    /// All rows of one object but those that fill and empty `population`.
    pub async fn requests(&mut self, population: &Arc<Population>) -> Result<()> {
        let plan = self.plan;
        for verb in [Verb::Get, Verb::Update, Verb::MergePatch, Verb::StrategicPatch] {
            for workers in &plan.workers {
                self.one(population, verb, *workers, Limit::for_a(plan.duration)).await?;
            }
        }
        for workers in &plan.workers {
            self.apply(*workers).await?;
            self.create(Kind::Pod, *workers).await?;
            self.create(Kind::Thing, *workers).await?;
        }
        match definitions::until_first_object(&self.admin_endpoint, &mut self.admin.connection).await {
            Ok(took) => self.found.figure(Figure::DefinitionToFirstObject, took.as_secs_f64() * 1e3),
            Err(error) => self.found.problems.push(format!("custom resource definition: {error:#}")),
        }
        let Some((_, fewer)) = plan.workers.split_last() else { return Ok(()) };
        for workers in fewer {
            self.create_and_delete(*workers).await?;
        }
        Ok(())
    }

    /// In a namespace of its own, so that the full one stays as it is.
    async fn create(&mut self, kind: Kind, workers: usize) -> Result<Arc<Population>> {
        let namespace = format!("bench-{kind:?}-{workers}").to_lowercase();
        let population = self.population(kind, &namespace, self.plan.objects, PAYLOAD).await?;
        let limit = Limit { requests: population.count(), duration: self.plan.duration };
        self.one(&population, Verb::Create, workers, limit).await?;
        Ok(population)
    }

    async fn create_and_delete(&mut self, workers: usize) -> Result<()> {
        let population = self.create(Kind::ConfigMap, workers).await?;
        let made = self.made(Kind::ConfigMap, Verb::Create, workers);
        self.one(&population, Verb::Delete, workers, Limit::all_of(made)).await
    }

    /// New objects first, then the same again.
    async fn apply(&mut self, workers: usize) -> Result<()> {
        let name = format!("bench-apply-{workers}");
        let population = self.population(Kind::ConfigMap, &name, self.plan.objects, PAYLOAD).await?;
        let limit = Limit { requests: population.count(), duration: self.plan.duration };
        self.one(&population, Verb::Apply, workers, limit).await?;
        let made = self.made(Kind::ConfigMap, Verb::Apply, workers);
        // Only those that are there; workers were still making some when the time was up.
        let again = Limit { requests: made.saturating_sub(workers), duration: self.plan.duration };
        self.one(&population, Verb::ApplyUnchanged, workers, again).await
    }

    fn made(&self, kind: Kind, verb: Verb, workers: usize) -> usize {
        let row = Row { objects: self.objects, operation: Operation::One(kind, verb), workers };
        self.found.samples.get(&row).map_or(0, |sample| sample.operations as usize)
    }

    pub async fn one(
        &mut self,
        population: &Arc<Population>,
        verb: Verb,
        workers: usize,
        limit: Limit,
    ) -> Result<()> {
        let operation = Operation::One(population.kind, verb);
        let row = Row { objects: self.objects, operation, workers };
        let before = self.stages(verb).await?;
        let sample =
            load::closed_loop(population, verb, &self.connections, workers, limit, &self.server).await?;
        self.found.sample(row, sample);
        if let (Some(before), Some(after)) = (before, self.stages(verb).await?) {
            self.found.stages.extend(after.since(&before).map(|spent| (row, spent)));
        }
        Ok(())
    }

    /// What Hanse has spent on writes so far. The other server is not asked: its metrics are long.
    async fn stages(&mut self, verb: Verb) -> Result<Option<Totals>> {
        if matches!(verb, Verb::Get | Verb::Delete) || self.subject == Subject::Kube {
            return Ok(None);
        }
        Totals::read(&self.admin_endpoint, &mut self.admin.connection).await
    }

    pub async fn many(&mut self, population: &Population, kind: ListKind) -> Result<()> {
        let mut lister = Lister {
            endpoint: &self.endpoint,
            connection: self.connections[0].clone(),
            namespace: &population.namespace,
            expected: population.count(),
        };
        let sample = lister.measure(kind, self.plan.duration, &self.server).await?;
        let row = Row { objects: self.objects, operation: Operation::Many(kind), workers: 1 };
        self.found.sample(row, sample);
        Ok(())
    }

    pub async fn watch(&mut self) -> Result<()> {
        let load = self.plan.watch;
        let population =
            self.population(Kind::ConfigMap, "bench-watch", load.writes(), WATCH_PAYLOAD).await?;
        let sample =
            watches::measure(load, &self.endpoint, &self.connections, &population, &self.server).await?;
        eprintln!(
            "  watch: {:.0} writes/s, p99 {:.2} ms",
            sample.achieved,
            sample.after_answer.quantile(0.99)
        );
        self.found.watch = Some(sample);
        Ok(())
    }
}

impl Repetition {
    pub fn figure(&mut self, figure: Figure, value: f64) {
        eprintln!("  {figure:?}: {value:.1}");
        self.figures.insert(figure, value);
    }

    fn sample(&mut self, row: Row, sample: Sample) {
        eprintln!(
            "  {row}: {:.1}/s, p50 {:.2} ms, p99 {:.2} ms{}",
            sample.rate(),
            sample.latencies.quantile(0.5),
            sample.latencies.quantile(0.99),
            if sample.errors.count > 0 { format!(", {} errors", sample.errors.count) } else { String::new() }
        );
        self.samples.insert(row, sample);
    }
}
