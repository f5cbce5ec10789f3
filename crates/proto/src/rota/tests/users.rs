//! Users with crowds of lanes that are always full, and clients of others that call now and then: what the crowds cost them.

use super::super::*;
use super::{SERVICE_NS, WAKE_NS, jain};

/// Between a reply and the client's next call.
const THINK_NS: u64 = 300_000;
/// How long a client looks for its reply until it sleeps.
const SPIN_NS: u64 = 10_000;
/// As long as this a lane may be empty.
const QUIET_NS: u64 = 20_000;
const LOOKS_PER_BELL: u64 = 16;
const TOTAL_NS: u64 = 200_000_000;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Client {
    /// Its lane is always full; when its reply comes it sleeps, or says so, or does not.
    Floods { asleep: bool },
    /// Will post at this time.
    Thinks(u64),
    /// Posted at this time, and has rung or not been heard yet.
    Waits(u64),
    /// Has a reply since the call that it posted at this time, and sleeps.
    Replied(u64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Order {
    ByUser,
    /// As if all lanes were of one user.
    ByLane,
    /// By user in the rota, and not in what is looked at.
    LooksByLane,
}

struct Machine {
    rota: Rota,
    active: Active,
    order: Order,
    spin_ns: u64,
    now_ns: u64,
    users: Vec<u32>,
    clients: Vec<Client>,
    rings: Vec<bool>,
    seen_ns: Vec<u64>,
    served: Vec<u64>,
    took_ns: Vec<u64>,
}

impl Machine {
    /// `crowds` users of so many lanes each, and behind them a client of each of `callers` more.
    fn new(
        order: Order,
        cap: usize,
        (crowds, lanes, asleep): (u32, usize, bool),
        (callers, spin_ns): (u32, u64),
    ) -> Self {
        // The first has four times as many as others.
        let lanes = |user| {
            if user == 0 && crowds > 1 {
                4 * lanes
            } else {
                lanes
            }
        };
        let crowd = (0..crowds).flat_map(|user| core::iter::repeat_n(user, lanes(user)));
        let users: Vec<_> = crowd.chain(crowds..crowds + callers).collect();
        let client = |user| match user < crowds {
            true => Client::Floods { asleep },
            false => Client::Thinks(1_000_000 + 77_000 * u64::from(user)),
        };
        let count = users.len();
        let mut machine = Self {
            rota: Rota::new(cap),
            active: Active::default(),
            order,
            spin_ns,
            now_ns: 1,
            clients: users.iter().map(|user| client(*user)).collect(),
            users,
            rings: vec![false; count],
            seen_ns: vec![0; count],
            served: vec![0; count],
            took_ns: Vec::new(),
        };
        for key in 0..count {
            let user = if order == Order::ByLane {
                0
            } else {
                machine.users[key]
            };
            machine.rota.add(key, user);
            machine.rings[key] = matches!(machine.clients[key], Client::Floods { .. });
        }
        machine
    }

    fn run(mut self) -> Self {
        let first_caller = (self.clients.iter())
            .position(|client| !matches!(client, Client::Floods { .. }))
            .unwrap_or(self.clients.len());
        let callers = first_caller..self.clients.len();
        self.hear(0..self.clients.len());
        let mut looks = 0;
        while self.now_ns < TOTAL_NS {
            looks += 1;
            for key in callers.clone() {
                if let Client::Thinks(at) = self.clients[key]
                    && at <= self.now_ns
                {
                    self.clients[key] = Client::Waits(at);
                    self.rings[key] = !self.rota.is_active(key);
                }
            }
            let found = self.look();
            if !found || looks % LOOKS_PER_BELL == 0 {
                self.hear(callers.clone());
                while self.rota.has_place()
                    && let Some(admitted) = self.rota.admit(self.now_ns)
                {
                    self.activate(admitted);
                }
            }
            if !found {
                self.admit();
                self.now_ns += 100;
            }
            for key in callers.clone() {
                let is_quiet = self.now_ns - self.seen_ns[key] > QUIET_NS && !self.is_ready(key);
                if is_quiet && self.active.remove(key) {
                    self.rota.quiet(key, self.now_ns);
                }
            }
        }
        for client in &self.clients {
            if let Client::Waits(at) | Client::Replied(at) = client {
                self.took_ns.push(self.now_ns - at);
            }
        }
        self
    }

    /// One look of the poller.
    fn look(&mut self) -> bool {
        self.active.begin();
        while let Some(key) = self.active.look() {
            if !self.is_ready(key) {
                continue;
            }
            if self.rota.request(key, self.now_ns) == Verdict::Defer {
                self.active.remove(key);
                self.active.found();
                return self.admit();
            }
            self.serve(key);
            self.active.found();
            return true;
        }
        false
    }

    fn admit(&mut self) -> bool {
        while let Some(admitted) = self.rota.admit(self.now_ns) {
            self.activate(admitted);
            if let Admitted::Request(key) = admitted
                && self.is_ready(key)
            {
                self.serve(key);
                return true;
            }
        }
        false
    }

    fn activate(&mut self, admitted: Admitted) {
        let (Admitted::Request(key) | Admitted::Reply(key)) = admitted;
        self.poll(key);
        if matches!(admitted, Admitted::Reply(_)) {
            self.wake(key);
        }
    }

    fn hear(&mut self, keys: core::ops::Range<usize>) {
        for key in keys {
            if core::mem::take(&mut self.rings[key]) {
                let asleep = self.is_asleep(key);
                if self.rota.rang(key, self.now_ns, asleep) == Rang::Poll {
                    self.poll(key);
                }
            }
        }
    }

    fn poll(&mut self, key: Key) {
        let user = match self.order {
            Order::ByUser => self.users[key],
            Order::ByLane | Order::LooksByLane => 0,
        };
        self.seen_ns[key] = self.now_ns;
        self.active.push(user, key);
    }

    fn is_ready(&self, key: Key) -> bool {
        matches!(self.clients[key], Client::Floods { .. } | Client::Waits(_))
    }

    fn is_asleep(&self, key: Key) -> bool {
        match self.clients[key] {
            Client::Floods { asleep } => asleep,
            Client::Waits(at) => self.now_ns > at + self.spin_ns,
            Client::Thinks(_) | Client::Replied(_) => false,
        }
    }

    fn serve(&mut self, key: Key) {
        self.now_ns += SERVICE_NS;
        self.served[key] += 1;
        self.seen_ns[key] = self.now_ns;
        let asleep = self.is_asleep(key);
        if let Client::Waits(at) = self.clients[key] {
            self.clients[key] = Client::Replied(at);
        }
        if !asleep {
            self.rota.awake_at_reply(key);
            self.answered(key, 0);
        } else if self.rota.asleep_at_reply(key, self.now_ns) == Wake::Now {
            self.wake(key);
        } else {
            self.active.remove(key);
        }
    }

    fn wake(&mut self, key: Key) {
        self.now_ns += WAKE_NS;
        self.rota.woke(key, self.now_ns);
        self.answered(key, WAKE_NS);
    }

    fn answered(&mut self, key: Key, later_ns: u64) {
        if let Client::Replied(at) = self.clients[key] {
            let end = self.now_ns + later_ns;
            self.took_ns.push(end - at);
            self.clients[key] = Client::Thinks(end + THINK_NS);
        }
    }

    /// Median and worst of the callers' calls.
    fn took(&self) -> (u64, u64) {
        let mut took = self.took_ns.clone();
        took.sort_unstable();
        (took[took.len() / 2], took[took.len() - 1])
    }

    /// Calls of each user.
    fn by_user(&self) -> Vec<u64> {
        let mut served = vec![0; 1 + *self.users.iter().max().unwrap() as usize];
        for (user, calls) in self.users.iter().zip(&self.served) {
            served[*user as usize] += calls;
        }
        served
    }
}

const CROWD: usize = 400;

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn a_crowd_of_one_user_costs_the_client_of_another_what_one_busy_client_costs() {
    for cap in [1, 2, 3, 7] {
        for (asleep, spin_ns) in [(false, SPIN_NS), (true, SPIN_NS), (false, 0), (true, 0)] {
            let of = |order, lanes| {
                Machine::new(order, cap, (1, lanes, asleep), (1, spin_ns))
                    .run()
                    .took()
            };
            let (one, crowd) = (of(Order::ByUser, 1), of(Order::ByUser, CROWD));
            let by_lane = of(Order::ByLane, CROWD);
            println!(
                "{cap} places, asleep {asleep}, spin {spin_ns}: {one:?} ns with one, {crowd:?} with {CROWD}, {by_lane:?} by lane"
            );
            // The turn of a lane of the other user, up to twice its length, where there is one place for two users.
            let turn = if cap == 1 { 2 * TURN_MIN_NS } else { 0 };
            assert!(crowd.0 <= 3 * one.0, "median {crowd:?}, one {one:?}");
            assert!(crowd.1 <= 3 * one.1 + turn, "worst {crowd:?}, one {one:?}");
            assert!(by_lane.1 >= 20 * crowd.1, "this machine shows nothing");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn where_all_may_be_active_a_crowd_costs_others_no_more() {
    let of = |order, lanes| {
        Machine::new(order, 2 * CROWD, (1, lanes, false), (1, SPIN_NS))
            .run()
            .took()
    };
    let (one, crowd) = (of(Order::ByUser, 1), of(Order::ByUser, CROWD));
    let by_lane = of(Order::LooksByLane, CROWD);
    println!("{one:?} ns with one, {crowd:?} with {CROWD}, {by_lane:?} by lane");
    assert!(
        crowd.0 <= 3 * one.0 && crowd.1 <= 3 * one.1,
        "{crowd:?}, one {one:?}"
    );
    assert!(by_lane.0 >= 10 * crowd.0, "this machine shows nothing");
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn more_users_than_places_have_as_many_calls_however_many_lanes_each_has() {
    let kinds = [(1, 2), (2, 3), (2, 8), (3, 16)];
    for ((cap, crowds), spin_ns) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, SPIN_NS), (kind, 0)])
    {
        let of = |order| Machine::new(order, cap, (crowds, CROWD / 4, false), (2, spin_ns)).run();
        let (by_user, by_lane) = (of(Order::ByUser), of(Order::ByLane));
        let fair = |machine: &Machine| jain(&machine.by_user()[..crowds as usize]);
        let (worst, worst_by_lane) = (by_user.took().1, by_lane.took().1);
        println!(
            "{cap} places, {crowds} crowds, spin {spin_ns}: Jain {:.3}, worst {worst} ns; by lane {:.3}, {worst_by_lane} ns",
            fair(&by_user),
            fair(&by_lane)
        );
        assert!(fair(&by_user) >= 0.99);
        assert!(fair(&by_lane) <= 0.9, "this machine shows nothing");
        // Each other user's turn, and one that is above the places (rule 6).
        let turns = u64::from(crowds) * 2 * TURN_MIN_NS / cap as u64 + TURN_NS;
        assert!(worst <= turns, "{worst} ns, {turns} ns of turns");
        assert!(worst_by_lane >= 10 * worst, "this machine shows nothing");
    }
}

/// A server that asks for waiters only where it finds no message, or has deferred one, never asks here: the flood's lane is always
/// full, and is served at once since there are no more users than places.
#[test]
fn a_place_that_a_user_leaves_is_seen_beside_a_lane_that_is_always_full() {
    const FLOODS: Key = 0;
    const WAITS: Key = 1;
    const LEAVES: Key = 2;
    let mut rota = Rota::new(2);
    for (key, user) in [(FLOODS, 0), (WAITS, 1), (LEAVES, 2)] {
        rota.add(key, user);
        assert_eq!(rota.rang(key, 1, false), Rang::Poll);
    }
    assert_eq!(rota.asleep_at_reply(WAITS, 2), Wake::Later);
    assert!(!rota.has_place(), "two places, two active lanes");
    rota.remove(LEAVES);
    for now_ns in [3, 100 * TURN_NS] {
        assert_eq!(rota.request(FLOODS, now_ns), Verdict::Serve);
        assert!(rota.has_place(), "it waits, beside a place");
    }
    assert_eq!(rota.admit(100 * TURN_NS), Some(Admitted::Reply(WAITS)));
    assert!(!rota.has_place());
}
