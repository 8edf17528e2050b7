//! The worlds against closed forms of queueing theory [X9]: independent runs give a mean and a 95 %
//! interval, and the interval (widened by what a finite number of workers adds) must hold the
//! formula.
#![expect(clippy::print_stdout, reason = "a test shows what it measured")]

use loxley_balance::{StealAmount, VictimOrder};
use loxley_sim::deque_world::{self, Idle, OwnerEnd, Placement, Stealing};
use loxley_sim::estimate::Estimate;
use loxley_sim::{Arrivals, DequeSetup, Distribution, Load};

fn stream(workers: usize, rate: f64, count: u32) -> DequeSetup {
    let mut setup = DequeSetup::new(
        workers,
        Load::Stream {
            count,
            work: Distribution::Exponential(1.0),
            arrivals: Arrivals::Poisson(rate),
        },
    );
    setup.owner_end = OwnerEnd::Oldest;
    setup.stealing = None;
    setup
}

fn require(what: &str, runs: &[f64], formula: f64, allowance: f64) {
    let estimate = Estimate::of(runs);
    println!("{what}: {estimate}, formula {formula}");
    let distance = (estimate.mean - formula).abs();
    assert!(
        distance <= estimate.half_width + allowance * formula,
        "{what}: {estimate} is not {formula}"
    );
    assert!(
        estimate.half_width < 0.03 * formula,
        "{what}: {estimate} is too wide to say anything"
    );
}

/// M/M/c with c = 4, λ = 3.2, μ = 1: Erlang C gives a mean wait of 0.7455.
#[test]
fn four_servers_with_one_queue_wait_as_erlang_says() {
    let mut setup = stream(4, 3.2, 200_000);
    setup.placement = Placement::Shared;
    setup.warm_up = 1_000_000_000_000;
    let waits: Vec<f64> = (0..10)
        .map(|seed| deque_world::run(&setup, seed, &mut ()).mean_wait())
        .collect();
    require("M/M/4", &waits, 0.7455, 0.0);
}

/// One try at a random victim when the own queue runs dry (Mitzenmacher's model of stealing).
#[test]
fn stealing_one_on_empty_takes_as_long_as_the_fixed_point_says() {
    for (rate, formula) in [(0.5, 1.618), (0.8, 2.562), (0.9, 3.541), (0.95, 4.887)] {
        let workers = 500;
        let mut setup = stream(workers, rate * workers as f64, 300_000);
        setup.placement = Placement::Random;
        setup.warm_up = 60_000_000_000;
        setup.stealing = Some(Stealing {
            order: VictimOrder::Random,
            amount: StealAmount::One,
            probes: 1,
            idle: Idle::Once,
            ..Stealing::default()
        });
        let times: Vec<f64> = (0..5)
            .map(|seed| deque_world::run(&setup, seed, &mut ()).mean_response())
            .collect();
        require(&format!("stealing at {rate}"), &times, formula, 0.015);
    }
}

/// Each task joins the shorter of two queues chosen at random.
#[test]
fn two_choices_take_as_long_as_the_fixed_point_says() {
    for (rate, formula) in [(0.5, 1.266), (0.8, 1.947), (0.9, 2.614), (0.95, 3.383)] {
        let workers = 500;
        let mut setup = stream(workers, rate * workers as f64, 300_000);
        setup.placement = Placement::LeastOf(2);
        setup.warm_up = 60_000_000_000;
        let times: Vec<f64> = (0..5)
            .map(|seed| deque_world::run(&setup, seed, &mut ()).mean_response())
            .collect();
        require(&format!("two choices at {rate}"), &times, formula, 0.015);
    }
}
