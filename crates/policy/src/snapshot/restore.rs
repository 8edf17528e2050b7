//! From facts to a state. Every place that a fact names is looked up: a snapshot that was not made here
//! is refused, not stumbled over.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use loxley_balance::Rng;
use loxley_model::TaskId;

use super::{
    AgentFacts, ClassFacts, CohortFacts, CopyFacts, DeadFacts, ExtraFacts, GroupFacts, JobFacts,
    KindFacts, KindLot, LotFacts, RecordFacts, SkillFacts, Snapshot, SnapshotError, TallyFacts,
    TaskFacts, UserFacts,
};
use crate::Scheduler;
use crate::agents::{Agent, Agents, Appetite, Cohort, InHand, Record, SkillRecord, Stale};
use crate::dependencies::{Dependent, Edges};
use crate::endings::DeadLetter;
use crate::id_table::{IdTable, Known};
use crate::jobs::{Job, Jobs};
use crate::limits::{Group, Limits, User};
use crate::lots::{Class, Durations, Kind, Lot, LotTraits, Lots, class_bit};
use crate::metrics::{Tallies, bounds_of};
use crate::paged::Paged;
use crate::queue::Queue;
use crate::refs::{AgentRef, ClassRef, CohortRef, JobRef, KindRef, LotRef, Seat, TaskRef, UserRef};
use crate::tasks::{Copy, Extra, NO_EDGE, State, Task, Tasks};
use crate::timers::Timers;
use crate::tournament::{Ranking, Victims};

type Result<T> = core::result::Result<T, SnapshotError>;

impl Scheduler {
    /// A scheduler that goes on where the one of the snapshot was. The same snapshot and the same further
    /// inputs give the same actions.
    pub fn restore(snapshot: Snapshot) -> Result<Self> {
        let Snapshot {
            config,
            now,
            announced,
            rng,
            leases,
            arrivals,
            retracts,
            copies,
            overdue,
            mean_cost,
            small_live,
            counts,
            tallies,
            users,
            groups,
            active_weight,
            queued,
            kinds,
            classes,
            lots,
            jobs,
            agents,
            vacant_agents,
            incarnations,
            cohorts,
            generation,
            tasks,
            orphans,
            over,
            alarms,
            alarms_set,
            alarms_sweep_at,
            locations,
            probes,
            stale_ranks,
            stale_loot,
            dead,
        } = snapshot;
        let sizes = Sizes {
            users: users.len(),
            classes: classes.len(),
            lots: lots.len(),
            kinds: kinds.len(),
            jobs: jobs.len(),
            agents: agents.len(),
            cohorts: cohorts.len(),
            arrivals: tasks.iter().map(|task| task.arrival).collect(),
        };
        let mut edges = Edges::default();
        let tasks = restore_tasks(tasks, &sizes, &mut edges)?;
        let mut table = IdTable::default();
        for (first, len, succeeded) in over {
            for id in first.0..first.0.saturating_add(len) {
                table.set(TaskId(id), Known::Over { succeeded });
            }
        }
        for (place, task) in tasks.iter() {
            table.set(task.id, Known::Live(place));
        }
        let orphans = orphans
            .into_iter()
            .map(|(id, waiting)| Ok((id, list(&mut edges, &waiting, &sizes)?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        let shapes = agents
            .iter()
            .map(|agent| Some(agent.as_ref()?.queue.clone()));
        let shapes: Vec<_> = shapes.collect();
        let agents = restore_agents(
            agents,
            vacant_agents,
            incarnations,
            cohorts,
            generation,
            &sizes,
        )?;
        let overdue = overdue.into_iter().map(|agent| sizes.agent(agent));
        let overdue = overdue.collect::<Result<_>>()?;
        let probes = probes
            .into_iter()
            .map(|(skill, agent)| Ok((skill, sizes.agent(agent)?)));
        let mut scheduler = Self {
            config,
            now,
            tasks,
            ids: table,
            edges,
            orphans,
            lots: restore_lots(kinds, classes, lots, &sizes)?,
            agents,
            jobs: restore_jobs(jobs, &sizes)?,
            limits: restore_limits(users, groups, active_weight, queued, &sizes)?,
            timers: Timers {
                heap: alarms.into_iter().map(Reverse).collect(),
                set_so_far: alarms_set,
                sweep_at: usize::try_from(alarms_sweep_at).unwrap_or(usize::MAX),
            },
            announced,
            rng: Rng::from_words(rng),
            leases,
            arrivals,
            locations: locations.into_iter().collect(),
            retracts,
            copies,
            overdue,
            backlogged: BTreeSet::new(),
            chained: BTreeSet::new(),
            probes: probes.collect::<Result<_>>()?,
            dead: dead
                .into_iter()
                .map(|(id, letter)| (id, restore_dead(letter)))
                .collect(),
            mean_cost,
            small_live,
            counts,
            tallies: restore_tallies(tallies),
            samples: VecDeque::new(),
            stale_ranks: sizes.agents_at(stale_ranks)?,
            stale_loot: sizes.agents_at(stale_loot)?,
            stale_backlog: Vec::new(),
        };
        let agents: Vec<AgentRef> = scheduler.agents.iter().map(|(agent, _)| agent).collect();
        for agent in agents {
            scheduler.note_backlog(agent);
        }
        scheduler.fill_queues(&shapes)?;
        if !counts.balance() || scheduler.tasks.iter().count() as u64 != counts.live() {
            return Err(SnapshotError::Unbalanced);
        }
        Ok(scheduler)
    }

    /// Puts every task where its state says: on a queue, on the list of held tasks.
    fn fill_queues(&mut self, shapes: &[Option<Vec<crate::queue::LevelShape>>]) -> Result<()> {
        let mut all: Vec<TaskRef> = self.tasks.iter().map(|(task, _)| task).collect();
        all.sort_by_key(|task| self.tasks[*task].key());
        for task in all {
            let this = &self.tasks[task];
            let class = self.lots.at(this.lot).class;
            match this.state {
                State::Queued => {
                    let (agent, settled) = (this.agent, this.settled);
                    let Some(holder) = self.agents.entries[agent.index()].as_mut() else {
                        return Err(SnapshotError::Unknown("an agent"));
                    };
                    holder
                        .queue
                        .push(&mut self.tasks, task, settled, class_bit(class));
                    self.note_chain(task, true);
                }
                State::Held => {
                    let entry = (Reverse(this.priority), this.key(), task);
                    self.lots.class_at_mut(class).held.insert(entry);
                }
                State::Waiting
                | State::Backoff
                | State::Standby
                | State::Delegated
                | State::Leased
                | State::Running => {}
            }
        }
        for (agent, shape) in self.agents.entries.iter_mut().zip(shapes) {
            if let (Some(agent), Some(shape)) = (agent, shape) {
                agent.queue.reshape(&self.tasks, shape);
            }
        }
        Ok(())
    }
}

/// How many there are of everything that facts refer to by place.
struct Sizes {
    users: usize,
    classes: usize,
    lots: usize,
    kinds: usize,
    jobs: usize,
    agents: usize,
    cohorts: usize,
    /// The arrivals of all tasks. The place of a task is the place of its arrival here.
    arrivals: Vec<u64>,
}

fn within(place: u32, len: usize, what: &'static str) -> Result<usize> {
    let place = place as usize;
    if place < len {
        Ok(place)
    } else {
        Err(SnapshotError::Unknown(what))
    }
}

impl Sizes {
    fn user(&self, place: u32) -> Result<UserRef> {
        within(place, self.users, "a user").map(UserRef::new)
    }

    fn class(&self, place: u32) -> Result<ClassRef> {
        within(place, self.classes, "a class").map(ClassRef::new)
    }

    fn lot(&self, place: u32) -> Result<LotRef> {
        within(place, self.lots, "a lot").map(LotRef::new)
    }

    fn kind(&self, place: u32) -> Result<KindRef> {
        within(place, self.kinds, "a kind").map(KindRef::new)
    }

    fn job(&self, place: u32) -> Result<JobRef> {
        within(place, self.jobs, "a job").map(JobRef::new)
    }

    fn agent(&self, place: u32) -> Result<AgentRef> {
        within(place, self.agents, "an agent").map(AgentRef::new)
    }

    fn agents_at(&self, places: Vec<u32>) -> Result<Vec<AgentRef>> {
        places.into_iter().map(|place| self.agent(place)).collect()
    }

    fn cohort(&self, place: u32) -> Result<CohortRef> {
        within(place, self.cohorts, "a cohort").map(CohortRef::new)
    }

    fn task(&self, arrival: u64) -> Result<TaskRef> {
        let found = self.arrivals.binary_search(&arrival);
        found
            .map(TaskRef::new)
            .map_err(|_| SnapshotError::Unknown("a task"))
    }
}

/// A list of edges to the tasks with these arrivals.
fn list(edges: &mut Edges, waiting: &[u64], sizes: &Sizes) -> Result<u32> {
    let mut first = NO_EDGE;
    for arrival in waiting {
        let dependent = Dependent {
            task: sizes.task(*arrival)?,
            arrival: *arrival as u32,
        };
        first = edges.add(first, dependent);
    }
    Ok(first)
}

fn restore_tasks(facts: Vec<TaskFacts>, sizes: &Sizes, edges: &mut Edges) -> Result<Tasks> {
    let in_order = facts.is_sorted_by(|a, b| a.arrival < b.arrival);
    // The first task of a submission came at 1 or later.
    let possible = |task: &TaskFacts| task.arrival > u64::from(task.position);
    if !in_order || !facts.iter().all(possible) {
        return Err(SnapshotError::Unknown("an arrival"));
    }
    let mut tasks = Tasks::default();
    for facts in facts {
        let TaskFacts {
            id,
            arrival,
            slack,
            cost,
            created,
            since,
            assigned,
            lease,
            reason,
            job,
            kind,
            lot,
            agent,
            position,
            dependencies_left,
            dependents,
            attempts,
            moves,
            priority,
            state,
            settled,
            doomed,
            extra,
        } = facts;
        // The agent of a task that is with nobody is left over, and may be gone.
        let agent = match state {
            State::Queued | State::Leased | State::Running => sizes.agent(agent)?,
            _ => AgentRef::new(agent as usize),
        };
        tasks.insert(Task {
            id,
            arrival,
            slack,
            cost,
            created,
            since,
            assigned,
            lease,
            reason,
            extra: extra
                .map(|extra| restore_extra(*extra, sizes))
                .transpose()?,
            job: sizes.job(job)?,
            kind: sizes.kind(kind)?,
            lot: sizes.lot(lot)?,
            agent,
            stamp: 0,
            position,
            dependencies_left,
            dependents: list(edges, &dependents, sizes)?,
            attempts,
            moves,
            priority,
            state,
            settled,
            // Set when the task is put on its queue.
            class_bit: 0,
            doomed,
        });
    }
    Ok(tasks)
}

fn restore_extra(facts: ExtraFacts, sizes: &Sizes) -> Result<Box<Extra>> {
    let ExtraFacts {
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
    } = facts;
    let copy = copy.map(|copy| {
        let CopyFacts {
            agent,
            lease,
            started,
            running,
        } = copy;
        Ok(Copy {
            agent: sizes.agent(agent)?,
            lease,
            started,
            running,
        })
    });
    Ok(Box::new(Extra {
        deadline,
        deadline_reported,
        failures,
        losses,
        locality,
        fallback,
        stands_in_for,
        copy: copy.transpose()?,
        copied,
        retract_for,
        retracting,
        retry_at,
    }))
}

fn restore_agents(
    facts: Vec<Option<Box<AgentFacts>>>,
    vacant: Vec<u32>,
    incarnations: Vec<(loxley_model::AgentId, u32)>,
    cohorts: Vec<CohortFacts>,
    generation: u64,
    sizes: &Sizes,
) -> Result<Agents> {
    let mut agents = Agents {
        entries: Vec::new(),
        vacant: vacant
            .into_iter()
            .map(|place| sizes.agent(place))
            .collect::<Result<_>>()?,
        by_id: Paged::default(),
        incarnations: incarnations.into_iter().collect(),
        cohorts: Vec::new(),
        best: Ranking::default(),
        cohort_of: BTreeMap::new(),
        generation,
        total_slots: 0,
        idle_count: 0,
    };
    for (place, facts) in facts.into_iter().enumerate() {
        let agent = facts
            .map(|facts| restore_agent(*facts, sizes))
            .transpose()?;
        if let Some(agent) = &agent {
            agents.by_id.insert(agent.id.0, AgentRef::new(place));
            agents.total_slots += u64::from(agent.slots);
        }
        agents.entries.push(agent);
    }
    for (place, facts) in cohorts.into_iter().enumerate() {
        let cohort = restore_cohort(facts, sizes)?;
        agents.best.set(place, cohort.ranking.best_key());
        seat_members(&mut agents, &cohort)?;
        let key = (cohort.skills.clone(), cohort.resources.clone());
        agents.cohort_of.insert(key, CohortRef::new(place));
        agents.cohorts.push(cohort);
    }
    Ok(agents)
}

/// Tells the agents on the lists of a cohort where they are.
fn seat_members(agents: &mut Agents, cohort: &Cohort) -> Result<()> {
    const ABSENT: SnapshotError = SnapshotError::Unknown("an agent");
    for (at, agent) in cohort.hungry.iter().enumerate() {
        agents.get_mut(*agent).ok_or(ABSENT)?.hungry_at = Some(Seat::new(at));
    }
    for (at, agent) in cohort.idle.iter().enumerate() {
        agents.get_mut(*agent).ok_or(ABSENT)?.idle_at = Some(Seat::new(at));
    }
    agents.idle_count += cohort.idle.len();
    Ok(())
}

fn restore_agent(facts: AgentFacts, sizes: &Sizes) -> Result<Agent> {
    let AgentFacts {
        id,
        incarnation,
        skills,
        resources,
        slots,
        dispatch,
        cohort,
        position,
        queue: _,
        queued_cost,
        in_hand,
        unstarted,
        large_in_hand,
        used,
        want,
        awaited,
        bypassed,
        liveness,
        last_heard,
        throttle,
        round_trip,
        robbed_at,
        refusals,
        no_asking_until,
        check_at,
        rank_is_stale,
        loot_is_stale,
        record,
    } = facts;
    let mut stale = Stale::default();
    if rank_is_stale {
        stale.add(Stale::RANK);
    }
    if loot_is_stale {
        stale.add(Stale::LOOT);
    }
    let held = |(arrival, lease)| {
        Ok(InHand {
            task: sizes.task(arrival)?,
            lease,
        })
    };
    Ok(Agent {
        id,
        queue: Queue::default(),
        queued_cost,
        slots,
        cohort: sizes.cohort(cohort)?,
        position,
        want,
        unstarted,
        large_in_hand,
        dispatch,
        liveness,
        stale,
        bypassed,
        hungry_at: None,
        idle_at: None,
        in_hand: in_hand.into_iter().map(held).collect::<Result<_>>()?,
        check_at,
        throttle,
        record: restore_record(record),
        used,
        incarnation,
        awaited,
        listed_backlog: 0,
        last_heard,
        round_trip,
        robbed_at,
        refusals,
        no_asking_until,
        skills,
        resources,
    })
}

fn restore_record(facts: RecordFacts) -> Record {
    let RecordFacts {
        completed,
        failed,
        successes,
        failures,
        decayed_at,
        speed,
        mean_duration,
        is_troubled,
        skills,
    } = facts;
    let skill = |facts: SkillFacts| {
        let SkillFacts {
            skill,
            failures_in_a_row,
            speed,
            breaker,
            suspensions,
        } = facts;
        SkillRecord {
            skill,
            failures_in_a_row,
            speed,
            breaker,
            suspensions,
        }
    };
    Record {
        successes,
        failures,
        decayed_at,
        speed,
        mean_duration,
        completed,
        is_troubled,
        failed,
        skills: skills.into_iter().map(skill).collect(),
    }
}

fn restore_cohort(facts: CohortFacts, sizes: &Sizes) -> Result<Cohort> {
    let CohortFacts {
        skills,
        resources,
        members,
        vacant,
        hungry,
        idle,
        ranking,
        victims,
    } = facts;
    let members = members
        .into_iter()
        .map(|place| place.map(|place| sizes.agent(place)).transpose())
        .collect::<Result<Vec<_>>>()?;
    Ok(Cohort {
        skills,
        resources,
        count: members.iter().flatten().count(),
        members,
        vacant: vacant
            .into_iter()
            .map(|position| position as usize)
            .collect(),
        ranking: Ranking::with_keys(&ranking),
        victims: Victims::with_all(&victims),
        hungry: sizes.agents_at(hungry)?,
        idle: sizes.agents_at(idle)?,
        appetite: Appetite::default(),
    })
}

fn restore_lots(
    kinds: Vec<KindFacts>,
    classes: Vec<ClassFacts>,
    lots: Vec<LotFacts>,
    sizes: &Sizes,
) -> Result<Lots> {
    let mut restored = Lots::default();
    for (place, facts) in classes.into_iter().enumerate() {
        let class = restore_class(facts, sizes)?;
        let key = (class.skills.clone(), class.needs.clone(), class.strict);
        restored.class_of.insert(key, ClassRef::new(place));
        restored.classes.push(class);
    }
    for (place, facts) in lots.into_iter().enumerate() {
        let LotFacts {
            class,
            group,
            user,
            large,
        } = facts;
        let class = sizes.class(class)?;
        let lot = Lot {
            class,
            group,
            user: sizes.user(user)?,
            large,
            needy: !restored.class_at(class).needs.is_empty(),
        };
        restored.lot_of.insert(lot, LotRef::new(place));
        restored.lots.push(lot);
    }
    for (place, facts) in kinds.into_iter().enumerate() {
        let kind = restore_kind(facts, sizes)?;
        restored
            .kind_of
            .insert(Arc::clone(&kind.spec), KindRef::new(place));
        restored.kinds.push(kind);
    }
    Ok(restored)
}

fn restore_class(facts: ClassFacts, sizes: &Sizes) -> Result<Class> {
    let ClassFacts {
        skills,
        needs,
        strict,
        capable,
        known_at,
        known_for,
    } = facts;
    let capable = capable
        .into_iter()
        .map(|(cohort, share)| Ok((sizes.cohort(cohort)?, share)));
    Ok(Class {
        skills,
        needs,
        strict,
        capable: capable.collect::<Result<_>>()?,
        known_at,
        known_for,
        held: BTreeSet::new(),
    })
}

fn restore_kind(facts: KindFacts, sizes: &Sizes) -> Result<Kind> {
    let KindFacts {
        spec,
        recent_durations,
        duration_count,
        median_duration,
        lots,
    } = facts;
    let lot = |facts: KindLot| {
        let KindLot {
            strict,
            large,
            user,
            lot,
        } = facts;
        let traits = LotTraits {
            strict,
            large,
            user: sizes.user(user)?,
        };
        Ok((traits, sizes.lot(lot)?))
    };
    Ok(Kind {
        spec,
        durations: Durations {
            recent: recent_durations,
            count: duration_count,
            median: median_duration,
        },
        lots: lots.into_iter().map(lot).collect::<Result<_>>()?,
    })
}

fn restore_jobs(facts: Vec<JobFacts>, sizes: &Sizes) -> Result<Jobs> {
    let mut jobs = Jobs::default();
    for facts in facts {
        let JobFacts {
            spec,
            user,
            live,
            first_run,
            more_runs,
        } = facts;
        let user = sizes.user(user)?;
        let place = jobs.find_or_insert(spec, user);
        jobs[place] = Job {
            spec,
            user,
            live,
            first_run,
            more_runs: (!more_runs.is_empty()).then(|| Box::new(more_runs)),
        };
    }
    Ok(jobs)
}

fn restore_limits(
    users: Vec<UserFacts>,
    groups: Vec<GroupFacts>,
    active_weight: u64,
    queued: u64,
    sizes: &Sizes,
) -> Result<Limits> {
    let mut limits = Limits {
        groups: BTreeMap::new(),
        users: Vec::new(),
        user_of: BTreeMap::new(),
        latest: None,
        active_weight,
        queued,
    };
    for facts in users {
        let UserFacts {
            id,
            weight,
            live,
            queued,
            running,
        } = facts;
        limits.user_of.insert(id, UserRef::new(limits.users.len()));
        limits.users.push(User {
            weight,
            live,
            queued,
            running,
        });
    }
    for facts in groups {
        let GroupFacts {
            id,
            limit,
            running,
            queued,
            turned_away,
        } = facts;
        let turned_away = turned_away.into_iter().map(|place| sizes.agent(place));
        let group = Group {
            limit,
            running,
            queued,
            turned_away: turned_away.collect::<Result<_>>()?,
        };
        limits.groups.insert(id, group);
    }
    Ok(limits)
}

fn restore_tallies(facts: TallyFacts) -> Tallies {
    let TallyFacts {
        successful_steals,
        failed_steals,
        tasks_migrated,
        rebalance_cycles,
        waits,
        waited,
        histogram,
        samples,
        deadline_misses,
        retries,
        speculations,
        speculations_won,
        stale_answers,
        rules,
    } = facts;
    Tallies {
        successful_steals,
        failed_steals,
        tasks_migrated,
        rebalance_cycles,
        waits,
        waited,
        histogram,
        bounds: bounds_of(&rules),
        samples,
        deadline_misses,
        retries,
        speculations,
        speculations_won,
        stale_answers,
        rules,
    }
}

fn restore_dead(facts: DeadFacts) -> DeadLetter {
    let DeadFacts {
        job,
        kind,
        priority,
        cost,
        locality,
    } = facts;
    DeadLetter {
        job,
        kind,
        priority,
        cost,
        locality,
    }
}
