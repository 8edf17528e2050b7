//! From the state to facts.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use loxley_model::{TaskId, UserId};

use super::{
    AgentFacts, ClassFacts, CohortFacts, CopyFacts, DeadFacts, ExtraFacts, GroupFacts, JobFacts,
    KindFacts, KindLot, LotFacts, RecordFacts, SkillFacts, Snapshot, TallyFacts, TaskFacts,
    UserFacts,
};
use crate::Scheduler;
use crate::agents::{Agent, Cohort, Record, SkillRecord, Stale};
use crate::endings::DeadLetter;
use crate::jobs::Job;
use crate::limits::{Group, Limits, User};
use crate::lots::{Class, Durations, Kind, Lot, LotTraits};
use crate::metrics::Tallies;
use crate::refs::{AgentRef, JobRef, TaskRef};
use crate::tasks::{Copy, Extra, Task};

impl Scheduler {
    /// The whole state, to be kept. Go on from it with [`restore`](Self::restore), as whoever recovers
    /// later will: then both decide the same.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut tasks: Vec<&Task> = self.tasks.iter().map(|(_, task)| task).collect();
        tasks.sort_by_key(|task| task.arrival);
        let jobs: Vec<JobRef> = self.jobs.all().collect();
        let job_numbers: BTreeMap<JobRef, u32> = jobs.iter().copied().zip(0..).collect();
        let mut alarms: Vec<_> = self.timers.heap.iter().map(|alarm| alarm.0).collect();
        alarms.sort_unstable();
        let places = self.agents.entries.iter();
        let orphans = self.orphans.iter();
        Snapshot {
            config: self.config.clone(),
            now: self.now,
            announced: self.announced,
            rng: self.rng.to_words(),
            leases: self.leases,
            arrivals: self.arrivals,
            retracts: self.retracts,
            copies: self.copies,
            overdue: self
                .overdue
                .iter()
                .map(|agent| agent.index() as u32)
                .collect(),
            mean_cost: self.mean_cost,
            small_live: self.small_live,
            counts: self.counts,
            tallies: tallies(&self.tallies),
            users: users(&self.limits),
            groups: groups(&self.limits),
            active_weight: self.limits.active_weight,
            queued: self.limits.queued,
            kinds: self.lots.kinds.iter().map(kind).collect(),
            classes: self.lots.classes.iter().map(class).collect(),
            lots: self.lots.lots.iter().map(lot).collect(),
            jobs: jobs.iter().map(|place| job(&self.jobs[*place])).collect(),
            agents: places
                .map(|place| {
                    place
                        .as_ref()
                        .map(|agent| Box::new(self.agent_facts(agent)))
                })
                .collect(),
            vacant_agents: self
                .agents
                .vacant
                .iter()
                .map(|place| place.index() as u32)
                .collect(),
            incarnations: self
                .agents
                .incarnations
                .iter()
                .map(|(id, n)| (*id, *n))
                .collect(),
            cohorts: self.agents.cohorts.iter().map(cohort).collect(),
            generation: self.agents.generation,
            tasks: tasks
                .iter()
                .map(|task| self.task_facts(task, job_numbers[&task.job]))
                .collect(),
            orphans: orphans
                .map(|(id, edge)| (*id, self.waiting(*edge)))
                .collect(),
            over: runs(self.ids.over()),
            alarms,
            alarms_set: self.timers.set_so_far,
            alarms_sweep_at: self.timers.sweep_at as u64,
            locations: self
                .locations
                .iter()
                .map(|(key, agent)| (*key, *agent))
                .collect(),
            probes: self
                .probes
                .iter()
                .map(|(skill, agent)| (*skill, agent.index() as u32))
                .collect(),
            stale_ranks: places_of(&self.stale_ranks),
            stale_loot: places_of(&self.stale_loot),
            dead: self
                .dead
                .iter()
                .map(|(id, letter)| (*id, dead(letter)))
                .collect(),
        }
    }

    /// The arrivals of the tasks in a list of edges, in the order in which the list was filled. Those
    /// that are over already do not count any more.
    fn waiting(&self, first_edge: u32) -> Vec<u64> {
        let waiting = self.edges.iter(first_edge).filter_map(|dependent| {
            let task = self.tasks.get(dependent.task)?;
            (task.arrival as u32 == dependent.arrival).then_some(task.arrival)
        });
        let mut waiting: Vec<u64> = waiting.collect();
        waiting.reverse();
        waiting
    }

    fn arrival(&self, task: TaskRef) -> u64 {
        self.tasks[task].arrival
    }

    fn agent_facts(&self, agent: &Agent) -> AgentFacts {
        let Agent {
            id,
            queue,
            queued_cost,
            slots,
            cohort,
            position,
            want,
            unstarted,
            large_in_hand,
            dispatch,
            liveness,
            stale,
            bypassed,
            // Follow from the lists of its cohort.
            hungry_at: _,
            idle_at: _,
            in_hand,
            check_at,
            throttle,
            record,
            used,
            incarnation,
            awaited,
            // Worked out anew when it is asked for.
            listed_backlog: _,
            last_heard,
            round_trip,
            robbed_at,
            refusals,
            no_asking_until,
            skills,
            resources,
        } = agent;
        AgentFacts {
            id: *id,
            incarnation: *incarnation,
            skills: skills.clone(),
            resources: resources.clone(),
            slots: *slots,
            dispatch: *dispatch,
            cohort: cohort.index() as u32,
            position: *position,
            queue: queue.shape(),
            queued_cost: *queued_cost,
            in_hand: in_hand
                .iter()
                .map(|held| (self.arrival(held.task), held.lease))
                .collect(),
            unstarted: *unstarted,
            large_in_hand: *large_in_hand,
            used: used.clone(),
            want: *want,
            awaited: *awaited,
            bypassed: *bypassed,
            liveness: *liveness,
            last_heard: *last_heard,
            throttle: *throttle,
            round_trip: *round_trip,
            robbed_at: *robbed_at,
            refusals: *refusals,
            no_asking_until: *no_asking_until,
            check_at: *check_at,
            rank_is_stale: stale.has(Stale::RANK),
            loot_is_stale: stale.has(Stale::LOOT),
            record: record_facts(record),
        }
    }

    fn task_facts(&self, task: &Task, job_number: u32) -> TaskFacts {
        let Task {
            id,
            arrival,
            slack,
            cost,
            created,
            since,
            assigned,
            lease,
            reason,
            extra,
            job: _,
            kind,
            lot,
            agent,
            // Old entries of queues are not kept, so nothing has to be told from them.
            stamp: _,
            position,
            dependencies_left,
            dependents,
            attempts,
            moves,
            priority,
            state,
            settled,
            // Follows from the lot of a task that is on a queue.
            class_bit: _,
            doomed,
        } = task;
        TaskFacts {
            id: *id,
            arrival: *arrival,
            slack: *slack,
            cost: *cost,
            created: *created,
            since: *since,
            assigned: *assigned,
            lease: *lease,
            reason: *reason,
            job: job_number,
            kind: kind.index() as u32,
            lot: lot.index() as u32,
            agent: agent.index() as u32,
            position: *position,
            dependencies_left: *dependencies_left,
            dependents: self.waiting(*dependents),
            attempts: *attempts,
            moves: *moves,
            priority: *priority,
            state: *state,
            settled: *settled,
            doomed: *doomed,
            extra: extra.as_ref().map(|extra| Box::new(extra_facts(extra))),
        }
    }
}

fn places_of(agents: &[AgentRef]) -> Vec<u32> {
    agents.iter().map(|agent| agent.index() as u32).collect()
}

fn tallies(tallies: &Tallies) -> TallyFacts {
    let Tallies {
        successful_steals,
        failed_steals,
        tasks_migrated,
        rebalance_cycles,
        waits,
        waited,
        histogram,
        // Follow from the rules.
        bounds: _,
        samples,
        deadline_misses,
        retries,
        speculations,
        speculations_won,
        stale_answers,
        rules,
    } = tallies;
    TallyFacts {
        successful_steals: *successful_steals,
        failed_steals: *failed_steals,
        tasks_migrated: *tasks_migrated,
        rebalance_cycles: *rebalance_cycles,
        waits: *waits,
        waited: *waited,
        histogram: histogram.clone(),
        samples: *samples,
        deadline_misses: *deadline_misses,
        retries: *retries,
        speculations: *speculations,
        speculations_won: *speculations_won,
        stale_answers: *stale_answers,
        rules: rules.clone(),
    }
}

/// In the order of their places.
fn users(limits: &Limits) -> Vec<UserFacts> {
    let mut ids = vec![UserId(0); limits.users.len()];
    for (id, place) in &limits.user_of {
        ids[place.index()] = *id;
    }
    let facts = |(id, user): (UserId, &User)| {
        let User {
            weight,
            live,
            queued,
            running,
        } = *user;
        UserFacts {
            id,
            weight,
            live,
            queued,
            running,
        }
    };
    ids.into_iter().zip(&limits.users).map(facts).collect()
}

fn groups(limits: &Limits) -> Vec<GroupFacts> {
    let groups = limits.groups.iter().map(|(id, group)| {
        let Group {
            limit,
            running,
            queued,
            turned_away,
        } = group;
        GroupFacts {
            id: *id,
            limit: *limit,
            running: *running,
            queued: *queued,
            turned_away: turned_away
                .iter()
                .map(|agent| agent.index() as u32)
                .collect(),
        }
    });
    groups.collect()
}

fn kind(kind: &Kind) -> KindFacts {
    let Kind {
        spec,
        durations,
        lots,
    } = kind;
    let Durations {
        recent,
        count,
        median,
    } = durations;
    let lot = |(traits, lot): &(LotTraits, crate::refs::LotRef)| {
        let LotTraits {
            strict,
            large,
            user,
        } = *traits;
        KindLot {
            strict,
            large,
            user: user.index() as u32,
            lot: lot.index() as u32,
        }
    };
    KindFacts {
        spec: Arc::clone(spec),
        recent_durations: recent.clone(),
        duration_count: *count,
        median_duration: *median,
        lots: lots.iter().map(lot).collect(),
    }
}

fn class(class: &Class) -> ClassFacts {
    let Class {
        skills,
        needs,
        strict,
        capable,
        known_at,
        known_for,
        // Follows from the tasks that are held.
        held: _,
    } = class;
    ClassFacts {
        skills: skills.clone(),
        needs: needs.clone(),
        strict: *strict,
        capable: capable
            .iter()
            .map(|(cohort, share)| (cohort.index() as u32, *share))
            .collect(),
        known_at: *known_at,
        known_for: *known_for,
    }
}

fn lot(lot: &Lot) -> LotFacts {
    let Lot {
        class,
        group,
        user,
        large,
        // Follows from the class.
        needy: _,
    } = *lot;
    LotFacts {
        class: class.index() as u32,
        group,
        user: user.index() as u32,
        large,
    }
}

fn job(job: &Job) -> JobFacts {
    let Job {
        spec,
        user,
        live,
        first_run,
        more_runs,
    } = job;
    JobFacts {
        spec: *spec,
        user: user.index() as u32,
        live: *live,
        first_run: *first_run,
        more_runs: more_runs
            .iter()
            .flat_map(|runs| runs.iter().copied())
            .collect(),
    }
}

fn cohort(cohort: &Cohort) -> CohortFacts {
    let Cohort {
        skills,
        resources,
        members,
        vacant,
        // Follows from the members.
        count: _,
        ranking,
        victims,
        hungry,
        idle,
        // Worked out anew when it is asked for.
        appetite: _,
    } = cohort;
    CohortFacts {
        skills: skills.clone(),
        resources: resources.clone(),
        members: members
            .iter()
            .map(|place| place.map(|place| place.index() as u32))
            .collect(),
        vacant: vacant.iter().map(|position| *position as u32).collect(),
        hungry: places_of(hungry),
        idle: places_of(idle),
        ranking: ranking.keys().to_vec(),
        victims: victims.all().to_vec(),
    }
}

fn record_facts(record: &Record) -> RecordFacts {
    let Record {
        successes,
        failures,
        decayed_at,
        speed,
        mean_duration,
        completed,
        is_troubled,
        failed,
        skills,
    } = record;
    let skill = |record: &SkillRecord| {
        let SkillRecord {
            skill,
            failures_in_a_row,
            speed,
            breaker,
            suspensions,
        } = *record;
        SkillFacts {
            skill,
            failures_in_a_row,
            speed,
            breaker,
            suspensions,
        }
    };
    RecordFacts {
        completed: *completed,
        failed: *failed,
        successes: *successes,
        failures: *failures,
        decayed_at: *decayed_at,
        speed: *speed,
        mean_duration: *mean_duration,
        is_troubled: *is_troubled,
        skills: skills.iter().map(skill).collect(),
    }
}

fn extra_facts(extra: &Extra) -> ExtraFacts {
    let Extra {
        deadline,
        deadline_reported,
        failures,
        losses,
        locality,
        fallback,
        stands_in_for,
        copy,
        copied,
        retract_for,
        retracting,
        retry_at,
    } = extra;
    let copy = copy.map(|copy| {
        let Copy {
            agent,
            lease,
            started,
            running,
        } = copy;
        CopyFacts {
            agent: agent.index() as u32,
            lease,
            started,
            running,
        }
    });
    ExtraFacts {
        deadline: *deadline,
        deadline_reported: *deadline_reported,
        failures: *failures,
        losses: *losses,
        locality: *locality,
        fallback: *fallback,
        stands_in_for: *stands_in_for,
        copy,
        copied: *copied,
        retract_for: *retract_for,
        retracting: *retracting,
        retry_at: *retry_at,
    }
}

fn dead(letter: &DeadLetter) -> DeadFacts {
    let DeadLetter {
        job,
        kind,
        priority,
        cost,
        locality,
    } = letter;
    DeadFacts {
        job: *job,
        kind: Arc::clone(kind),
        priority: *priority,
        cost: *cost,
        locality: *locality,
    }
}

/// Ids in order, as runs of ids that follow each other and ended alike.
fn runs(over: impl Iterator<Item = (TaskId, bool)>) -> Vec<(TaskId, u64, bool)> {
    let mut runs: Vec<(TaskId, u64, bool)> = Vec::new();
    for (id, succeeded) in over {
        match runs.last_mut() {
            Some((first, len, same)) if first.0 + *len == id.0 && *same == succeeded => *len += 1,
            _ => runs.push((id, 1, succeeded)),
        }
    }
    runs
}
