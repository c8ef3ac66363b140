//! Filters in the driver give the same results as in a worker.

use super::terms::resolve;
use crate::random::{filter, flower, frames, mark, words};
use narrows_bpf::{Entry, Front, FrontMaps, FrontPort, test_run};
use narrows_classify::{Action, ActionId, ActionKind, Control, Filter, Matches, Subject};
use narrows_policy::FrontTerm;
use narrows_sets::Sets;
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert_eq, prop_oneof, proptest};

const PORT: FrontPort<'static> = FrontPort {
    own: narrows_bpf::OwnAddress::of([2, 0, 0, 0, 0, 9], true),
    multi_buffer: false,
    entry: Entry::Own,
    handed: None,
};

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let matches = prop_oneof![6 => flower(), 2 => words(), 1 => Just(Matches::All), 1 => mark()];
    vec(filter(matches), 32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_filter_matches_the_same_in_the_driver_and_in_a_worker(
        mut filters in filters(),
        frames in vec(frames(), 150),
    ) {
        // The policy makes no term of a filter that no mark matches.
        filters.retain(|filter| !matches!(filter.matches, Matches::Mark(mark) if mark.is_impossible()));
        let Ok(mut maps) = FrontMaps::new() else {
            eprintln!("SKIPPED: the kernel makes no maps here");
            return Ok(());
        };
        let term = |(index, filter): (u32, &Filter)| {
            let id = ActionId { kind: ActionKind::Gact, index };
            let action = Action::Gact { control: Control::Continue, random: None };
            let (mut flower, mut words, mut mark) = Default::default();
            match &filter.matches {
                Matches::Flower(one) => flower = *one,
                Matches::Words(all) => words = all.clone(),
                Matches::Mark(one) => mark = Some(*one),
                _ => {}
            }
            let (protocol, look_ups, has_more) = (filter.protocol, Vec::new(), false);
            let actions = vec![(id, action)];
            let is_repeated = false;
            FrontTerm { protocol, flower, words, mark, look_ups, actions, is_repeated, has_more }
        };
        let terms: Vec<FrontTerm> = (0..).zip(&filters).map(term).collect();
        let resolved = resolve(&terms, &Sets::default()).unwrap();
        let terms: Vec<_> =
            resolved.iter().map(|term| term.counted_by(|id| Some(id.index as u8))).collect();
        let front = Front::load(PORT, &terms, None, &mut maps).unwrap();
        let mut expected = vec![0; filters.len()];
        for frame in &frames {
            test_run::test_run(front.program(), frame, 1).unwrap();
            let subject = Subject::new(frame).unwrap();
            for (filter, expected) in filters.iter().zip(&mut expected) {
                *expected += u64::from(filter.matches(&subject));
            }
            for (number, (filter, expected)) in filters.iter().zip(&expected).enumerate() {
                let counted = maps.get(number as u8).packets;
                prop_assert_eq!(counted, *expected, "{:?}\n{:02x?}", filter, frame);
            }
        }
    }
}
