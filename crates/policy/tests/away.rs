//! Tasks that another scheduler runs.

mod world;

use loxley_model::*;
use loxley_policy::*;
use world::World;

fn ended(world: &World, id: TaskId) -> Option<Ending> {
    world.reports().find_map(|report| match report {
        Report::Finished { task, ending, .. } if *task == id => Some(*ending),
        _ => None,
    })
}

fn is_refused(world: &World) -> bool {
    world
        .reports()
        .any(|report| matches!(report, Report::Rejected(_)))
}

const SUCCEEDED: Ending = Ending::Succeeded {
    agent: AgentId(9),
    lease: Lease(0),
};

#[test]
fn a_task_that_is_away_ends_here_as_it_ended_there_and_others_wait_for_it() {
    let mut world = World::new(Config::default());
    let ann = world.join(1, &[1]);
    let first = world.new_task(&[7], 3);
    let mut second = world.new_task(&[1], 3);
    second.dependencies = [first.id].into();
    let (one, two) = (first.id, second.id);
    let (job, tasks) = (world.new_job(), [first, second].into());
    world.handle(Input::TasksSubmitted { job, tasks });
    assert_eq!(world.scheduler.counts().held, 1);
    let waiting = world.scheduler.waiting_classes(|_| true);
    assert_eq!(waiting.len(), 1, "what waits for another does not count");
    assert_eq!((waiting[0].example, waiting[0].slots), (one, 0));
    world.handle(Input::TaskSentAway(one));
    let status = world.scheduler.task_status(one).expect("it is not over");
    assert_eq!(status.place, Place::Away);
    world.scheduler.verify().expect("every book is right");
    // Twice makes no sense, nor does what is not away.
    world.handle(Input::TaskSentAway(one));
    assert!(is_refused(&world));
    world.handle(Input::TaskCameBack(two));
    assert!(is_refused(&world));
    world.handle(Input::TaskEndedAway {
        task: one,
        ending: SUCCEEDED,
    });
    assert_eq!(ended(&world, one), Some(SUCCEEDED));
    let held = world.scheduler.task_status(two).expect("it is not over");
    assert!(
        matches!(held.place, Place::Queued { agent, .. } | Place::Leased { agent, .. } if agent == ann),
        "{held:?}"
    );
    world.scheduler.verify().expect("every book is right");
    assert!(world.scheduler.counts().balance());
}

#[test]
fn a_task_that_comes_back_waits_again_and_goes_again() {
    let mut world = World::new(Config::default());
    let task = world.new_task(&[7], 3);
    let (id, job) = (task.id, world.new_job());
    let tasks = [task].into();
    world.handle(Input::TasksSubmitted { job, tasks });
    for _ in 0..3 {
        world.handle(Input::TaskSentAway(id));
        world.handle(Input::TaskCameBack(id));
        let status = world.scheduler.task_status(id).expect("it is not over");
        assert_eq!(status.place, Place::Held);
        world.scheduler.verify().expect("every book is right");
    }
}

#[test]
fn one_that_is_cancelled_while_it_is_away_is_over_when_word_comes() {
    for ends in [true, false] {
        let mut world = World::new(Config::default());
        let task = world.new_task(&[7], 3);
        let (id, job) = (task.id, world.new_job());
        let tasks = [task].into();
        world.handle(Input::TasksSubmitted { job, tasks });
        world.handle(Input::TaskSentAway(id));
        world.handle(Input::CancelRequested(Selection::Job(job.id)));
        assert_eq!(ended(&world, id), None, "somebody has it");
        world.handle(match ends {
            true => Input::TaskEndedAway {
                task: id,
                ending: SUCCEEDED,
            },
            false => Input::TaskCameBack(id),
        });
        assert_eq!(ended(&world, id), Some(Ending::Cancelled));
        world.scheduler.verify().expect("every book is right");
        assert!(world.scheduler.counts().balance());
    }
}

#[test]
fn what_has_begun_or_is_in_a_group_stays() {
    let mut world = World::new(Config::default());
    let mut task = world.new_task(&[7], 3);
    let mut kind = TaskKind::clone(&task.kind);
    kind.group = Some(GroupId(1));
    task.kind = kind.into();
    let (id, job) = (task.id, world.new_job());
    let tasks = [task].into();
    world.handle(Input::TasksSubmitted { job, tasks });
    assert_eq!(world.scheduler.waiting_classes(|_| true), []);
    world.handle(Input::TaskSentAway(id));
    assert!(is_refused(&world));
    let status = world.scheduler.task_status(id).expect("it is not over");
    assert_eq!(status.place, Place::Held);
}

#[test]
fn the_number_of_a_guest_that_is_over_may_come_again_and_nothing_is_left_of_it() {
    let mut world = World::new(Config::default());
    let far = TaskId(3 << 40 | 5);
    for _ in 0..2 {
        let (job, task) = (
            world.new_job(),
            TaskSpec::new(far, TaskKind::default().into()),
        );
        let tasks = [task].into();
        world.handle(Input::TasksSubmitted { job, tasks });
        assert!(world.scheduler.task_status(far).is_some());
        world.handle(Input::CancelRequested(Selection::Task(far)));
        assert_eq!(ended(&world, far), Some(Ending::Cancelled));
        world.handle(Input::TaskForgotten(far));
    }
    world.scheduler.verify().expect("every book is right");
}
