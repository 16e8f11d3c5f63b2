//! Any sequence of events keeps the bound and the order, and leaves no slot free that a request waits
//! for.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive,
    /// The end of one of the requests in flight.
    End(usize),
    /// The end of a client whose request waits.
    Leave(usize),
    Eject(usize),
    Return(usize),
    /// A reload with another bound.
    Reload(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Arrive),
        4 => any::<usize>().prop_map(Event::End),
        2 => any::<usize>().prop_map(Event::Leave),
        1 => any::<usize>().prop_map(Event::Eject),
        1 => any::<usize>().prop_map(Event::Return),
        1 => (1..4_u32).prop_map(Event::Reload),
    ]
}

proptest! {
    #[test]
    fn slots_are_bounded_used_and_given_in_order(
        hosts in 1..4_usize,
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut max = 2;
        let first = cluster(hosts, Some(bound(max)), None);
        let mut last = Arc::clone(&first);
        let mut slots = Vec::new();
        let mut waiting = VecDeque::new();
        let mut before = in_flight(&first);
        for event in events {
            match event {
                Event::Arrive => match take(&first, &[]) {
                    Some(slot) => slots.push(slot),
                    None => waiting.push_back(wait(&first, &[])),
                },
                Event::End(number) if !slots.is_empty() => {
                    slots.swap_remove(number % slots.len());
                }
                Event::Leave(number) if !waiting.is_empty() => {
                    waiting.remove(number % waiting.len());
                }
                Event::Eject(number) => {
                    let host = host(&first, number % hosts);
                    host.health.eject(&EJECTION, EjectionReason::ConnectFailure, false, Instant::now());
                    first.tick();
                }
                Event::Return(number) => {
                    let host = host(&first, number % hosts);
                    let later = Instant::now() + EJECTION.max;
                    host.health.tick(Some(&EJECTION), Duration::ZERO, later);
                    first.tick();
                }
                Event::Reload(other) => {
                    max = other;
                    last = cluster(hosts, Some(bound(max)), Some(&last));
                }
                Event::End(_) | Event::Leave(_) => {}
            }
            // The first of those that wait are served, and no others.
            while let Some(slot) = waiting.front_mut().and_then(assigned) {
                waiting.pop_front();
                slots.push(slot);
            }
            prop_assert!(waiting.iter_mut().all(|one| assigned(one).is_none()));
            let now = in_flight(&first);
            prop_assert_eq!(now.iter().sum::<usize>(), slots.len());
            for (now, before) in now.iter().zip(before) {
                prop_assert!(*now <= max as usize || *now <= before);
            }
            let set = first.hosts.load();
            let is_free = |number: usize| {
                set.may_take(number, &[]) && set.hosts[number].host.has_slot(max)
            };
            prop_assert!(waiting.is_empty() || !(0..hosts).any(is_free));
            before = now;
        }
    }
}
