//! What can be wrong with several servers on one database, and what to do about it.

use loxley_api::{ClusterInfo, InstanceState, Problem, Replication, Severity};

/// Clocks that are this far apart, in seconds, are told of: leases do not depend on them, times in the history do.
const CLOCKS_APART_SEC: f64 = 2.0;
/// A write that takes this long, in seconds, makes everything wait.
const SLOW_SEC: f64 = 0.5;

/// What to do when the database has lost something.
pub(crate) const AFTER_A_LOSS: &str = "bring back the database that has it; or have the fleet go on without: `loxley journal \
     accept-loss postgres://…`, and submit again what is missing";

/// The problems of a cluster; none of a server that is the only one.
pub(crate) fn problems(cluster: &ClusterInfo) -> Vec<Problem> {
    let Some(replication) = cluster.replication else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for shard in &cluster.shards {
        if let Some(lost) = &shard.lost {
            problems.push(Problem {
                severity: Severity::Critical,
                kind: "lost_commits".to_owned(),
                message: format!(
                    "the database has lost what it had acknowledged, and nobody serves shard {}: {lost}",
                    shard.shard
                ),
                remedies: vec![AFTER_A_LOSS.to_owned()],
            });
        }
    }
    let mut warn = |kind: &str, message: String, remedies: &[&str]| {
        problems.push(Problem {
            severity: Severity::Warning,
            kind: kind.to_owned(),
            message,
            remedies: remedies.iter().map(|&remedy| remedy.to_owned()).collect(),
        });
    };
    let is_there = |state| state != InstanceState::Silent;
    let there = cluster.instances.iter().filter(|one| is_there(one.state));
    if there.count() < 2 {
        warn(
            "no_standby",
            "no other server stands by: when this one dies, nobody takes over".to_owned(),
            &["start another one with the same --journal, on another machine"],
        );
    }
    if replication == Replication::Asynchronous {
        warn(
            "asynchronous_replication",
            "the standbys of the database are asynchronous: when it fails over, what was acknowledged last may be lost"
                .to_owned(),
            &["set synchronous_standby_names in the database"],
        );
    }
    let away = cluster
        .instances
        .iter()
        .filter(|one| one.state != InstanceState::Silent)
        .max_by(|a, b| {
            let (a, b) = (a.clock_ahead_sec.abs(), b.clock_ahead_sec.abs());
            a.total_cmp(&b)
        });
    if let Some(one) = away
        && one.clock_ahead_sec.abs() > CLOCKS_APART_SEC
    {
        let (seconds, where_to) = (
            one.clock_ahead_sec.abs(),
            match one.clock_ahead_sec > 0.0 {
                true => "before",
                false => "behind",
            },
        );
        warn(
            "clocks_apart",
            format!(
                "the clock of {} is {seconds:.1} s {where_to} that of the database: nothing is lost by that, but times \
                 in the history jump when another server takes over",
                one.name
            ),
            &["have the machines keep time (chrony, systemd-timesyncd)"],
        );
    }
    let slow = cluster.shards.iter().filter_map(|shard| shard.commit_sec);
    let slow = slow.fold(0.0, f64::max);
    if slow > SLOW_SEC {
        warn(
            "slow_database",
            format!(
                "a commit to the database takes {slow:.1} s: everything that is accepted waits for it, and a takeover \
                 takes longer"
            ),
            &[
                "look at the disk, the network and the standbys of the database",
                "look for transactions that hold locks (pg_stat_activity)",
            ],
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use loxley_api::{InstanceInfo, ShardInfo};

    use super::*;

    fn instance(name: &str, state: InstanceState, clock_ahead_sec: f64) -> InstanceInfo {
        InstanceInfo {
            name: name.to_owned(),
            url: format!("https://{name}"),
            version: String::new(),
            state,
            started_unix_ms: 0,
            silent_sec: 0.0,
            clock_ahead_sec,
        }
    }

    fn healthy() -> ClusterInfo {
        ClusterInfo {
            instances: vec![
                instance("a", InstanceState::Serving, 0.1),
                instance("b", InstanceState::Standby, -0.1),
            ],
            shards: vec![ShardInfo {
                shard: 0,
                epoch: 1,
                holder: Some("a".to_owned()),
                lease_left_sec: Some(5.0),
                journal_position: 3,
                lag_groups: Some(3),
                commit_sec: Some(0.001),
                agents: Some(1),
                away: None,
                guests: None,
                lost: None,
            }],
            replication: Some(Replication::Synchronous),
            replicas: Vec::new(),
        }
    }

    fn kinds(cluster: &ClusterInfo) -> Vec<String> {
        let problems = problems(cluster);
        problems.into_iter().map(|problem| problem.kind).collect()
    }

    #[test]
    fn each_problem_has_its_word() {
        assert!(kinds(&healthy()).is_empty());
        let mut alone = healthy();
        alone.instances[1].state = InstanceState::Silent;
        // What is gone has no clock that matters.
        alone.instances[1].clock_ahead_sec = 100.0;
        assert_eq!(kinds(&alone), ["no_standby"]);
        let mut asynchronous = healthy();
        asynchronous.replication = Some(Replication::Asynchronous);
        assert_eq!(kinds(&asynchronous), ["asynchronous_replication"]);
        let mut apart = healthy();
        apart.instances[1].clock_ahead_sec = -7.0;
        assert_eq!(kinds(&apart), ["clocks_apart"]);
        let words = &problems(&apart)[0].message;
        assert!(words.contains("b is 7.0 s behind"), "{words}");
        let mut slow = healthy();
        slow.shards[0].commit_sec = Some(2.0);
        assert_eq!(kinds(&slow), ["slow_database"]);
        let mut lost = healthy();
        lost.shards[0].lost = Some("the agent `ada` saw more".to_owned());
        assert_eq!(kinds(&lost), ["lost_commits"]);
        assert_eq!(problems(&lost)[0].severity, Severity::Critical);
        let mut embedded = healthy();
        embedded.instances.truncate(1);
        embedded.replication = None;
        assert!(kinds(&embedded).is_empty());
    }
}
