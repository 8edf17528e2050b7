use loxley_sim::{EventLog, storm};
#[test]
fn show() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let setup = storm::setup(seed);
    eprintln!("SKEW {} {:#?}", setup.clock_skew, setup.config);
    for (i, a) in setup.agents.iter().enumerate() { eprintln!("agent {i} slots {} speed {} true {} mem {} {:?} joins {} zone {:?}", a.spec.slots, a.spec.speed, a.true_speed, a.spec.resources.memory_bytes, a.spec.dispatch, a.joins, a.spec.zone); }
    let tasks = setup.tasks(&loxley_balance::Rng::new(seed));
    for i in 0..tasks.len() { let s = tasks.spec(i); eprintln!("task {i} prio {:?} mem {} cost {:?} work {} deadline {:?} deps {:?} group {:?} user", s.priority, s.kind.needs.memory_bytes, s.cost, tasks.work()[i], s.deadline, s.dependencies, s.kind.group); }
    let mut log = EventLog::new(Vec::new());
    let r = storm::run(seed, &mut log);
    println!("{}", String::from_utf8(log.finish().unwrap()).unwrap());
    eprintln!("{:?}", r.err().map(|e| e.to_string()));
}
