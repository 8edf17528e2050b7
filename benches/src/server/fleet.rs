//! A server in this process, and its agents: this program again, in processes of their own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loxley_agent::{Agent, AgentOptions, Functions};
use loxley_api::{Access, JobInfo, JobRequest};
use loxley_journal::postgres::Address;
use loxley_server::cluster::{Cluster, ClusterOptions};
use loxley_server::decider::Handle;
use loxley_server::{Context, Server, ServerOptions, api};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{array, function};

/// As many agents as are asked for, until this process is killed.
#[derive(clap::Args)]
pub(crate) struct AgentArguments {
    access: std::path::PathBuf,
    count: u32,
    slots: u32,
}

pub(crate) fn agents(arguments: &AgentArguments) -> Result<()> {
    let access = Access::read(&arguments.access)?;
    let functions = Functions::default()
        .with("no-op", |_| Ok(Vec::new()))
        .with("sleep", |call| {
            let seconds: f64 = std::str::from_utf8(call.input)?.parse()?;
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Ok(Vec::new())
        });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut agents = tokio::task::JoinSet::new();
        for number in 0..arguments.count {
            let name = format!("{}-{number}", std::process::id());
            agents.spawn(
                Agent::new(AgentOptions {
                    slots: arguments.slots,
                    functions: functions.clone(),
                    ..AgentOptions::new(access.clone(), &name)
                })
                .run(),
            );
        }
        while let Some(ended) = agents.join_next().await {
            ended??;
        }
        Ok(())
    })
}

/// A server with its agents. They end with it.
pub(crate) struct Fleet {
    pub(super) runtime: Runtime,
    /// One for each shard.
    contexts: Vec<Context>,
    serving: Option<tokio::task::JoinHandle<Result<(), loxley_server::ServerError>>>,
    agents: Vec<Child>,
    /// None once somebody took it. It goes when everything else is gone.
    directory: Option<TempDir>,
}

impl Fleet {
    /// `processes` agents' processes of `count` agents with `slots` slots each.
    pub(crate) fn start(durable: bool, processes: u32, count: u32, slots: u32) -> Result<Self> {
        let fleet = Self::start_in(tempfile::tempdir()?, durable)?;
        fleet.with_agents(processes, count, slots)
    }

    /// A server on a journal in PostgreSQL, the only instance.
    pub(crate) fn start_on(
        address: Address,
        shards: u16,
        processes: u32,
        count: u32,
        slots: u32,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let runtime = new_runtime()?;
        let options = ServerOptions::new(directory.path().to_owned());
        let name = Some("bench".to_owned());
        let cluster = ClusterOptions {
            address,
            name,
            shards: Some(shards),
        };
        let cluster = Cluster::start(options, cluster);
        let cluster = runtime.block_on(cluster)?;
        let (serves, served) = std::sync::mpsc::channel();
        let serving = cluster.run(move |context| {
            let _ = serves.send(context.clone());
            api::router(context)
        });
        let serving = Some(runtime.spawn(serving));
        let contexts = (0..shards).map(|_| served.recv_timeout(Duration::from_secs(60)));
        let contexts = contexts.collect::<Result<_, _>>()?;
        let fleet = Self {
            runtime,
            contexts,
            serving,
            agents: Vec::new(),
            directory: Some(directory),
        };
        fleet.with_agents(processes, count, slots)
    }

    /// A server on what is in this directory, without agents.
    pub(super) fn start_in(directory: TempDir, durable: bool) -> Result<Self> {
        let runtime = new_runtime()?;
        let options = ServerOptions::new(directory.path().to_owned());
        let server = runtime.block_on(async {
            match durable {
                true => Server::start(options, api::router).await,
                false => Server::start_in_memory(options, api::router).await,
            }
        })?;
        let contexts = vec![server.context().clone()];
        let serving = Some(runtime.spawn(server.run()));
        Ok(Self {
            runtime,
            contexts,
            serving,
            agents: Vec::new(),
            directory: Some(directory),
        })
    }

    fn with_agents(mut self, processes: u32, count: u32, slots: u32) -> Result<Self> {
        let access = self.directory().join(Access::FILE);
        for _ in 0..processes {
            self.agents.push(start_agents(&access, count, slots)?);
        }
        self.wait_for_agents(u64::from(processes * count))?;
        Ok(self)
    }

    /// Stops everything in good order. What is left is on disk.
    pub(super) fn stop(mut self) -> TempDir {
        self.directory.take().expect("nobody took it")
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.as_ref().expect("nobody took it").path()
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.contexts[0].handle
    }

    /// Waits until every shard has an agent: they go where there is work.
    pub(crate) fn share_out_agents(&self) -> Result<()> {
        let job = array(function("no-op"), 10_000);
        let begun = Instant::now();
        while self.agent_counts()?.contains(&0) {
            ensure!(
                begun.elapsed() < Duration::from_secs(120),
                "a shard has no agent"
            );
            self.time_in_all_shards(&job);
        }
        Ok(())
    }

    /// How many agents each shard has.
    fn agent_counts(&self) -> Result<Vec<u64>> {
        let counts = self.contexts.iter().map(|context| {
            let fleet = self.runtime.block_on(context.handle.fleet())?;
            Ok(fleet.agent_count)
        });
        counts.collect()
    }

    fn wait_for_agents(&self, count: u64) -> Result<()> {
        let begun = Instant::now();
        self.runtime.block_on(async {
            loop {
                let mut found = 0;
                for context in &self.contexts {
                    found += context.handle.fleet().await?.agent_count;
                }
                if found >= count {
                    break;
                }
                ensure!(
                    begun.elapsed() < Duration::from_secs(60),
                    "agents are missing"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
    }

    /// Seconds from the submission of a job to its end.
    pub(crate) fn time(&self, job: &JobRequest) -> f64 {
        self.time_in(&self.contexts[..1], job)
    }

    /// Seconds from the submission of a job to each shard until all of them have ended.
    pub(crate) fn time_in_all_shards(&self, job: &JobRequest) -> f64 {
        self.time_in(&self.contexts, job)
    }

    fn time_in(&self, shards: &[Context], job: &JobRequest) -> f64 {
        let begun = Instant::now();
        let ended: Result<Vec<JobInfo>, _> = self.runtime.block_on(async {
            let mut accepted = Vec::new();
            for shard in shards {
                accepted.push((shard, shard.handle.submit(job, "bench").await?.id));
            }
            let mut ended = Vec::new();
            for (shard, job) in accepted {
                ended.push(shard.handle.wait(job).await?);
            }
            Ok::<_, loxley_api::ApiError>(ended)
        });
        let took = begun.elapsed().as_secs_f64();
        for job in ended.expect("jobs are accepted and end") {
            assert_eq!(job.tasks.succeeded, job.tasks.total, "every task succeeds");
        }
        took
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        for context in &self.contexts {
            context.stop();
        }
        if let Some(serving) = self.serving.take() {
            let _ = self.runtime.block_on(serving);
        }
    }
}

fn new_runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

fn start_agents(access: &Path, count: u32, slots: u32) -> Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("server-agents").arg(access);
    command.args([count.to_string(), slots.to_string()]);
    Ok(command.stdin(Stdio::null()).spawn()?)
}
