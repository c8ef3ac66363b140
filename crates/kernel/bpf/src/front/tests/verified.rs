//! How much the verifier does until it accepts a program: instructions that it goes through, on all
//! ways together. Each port of each plane has such a program, and each change of a filter loads
//! another.

use super::*;
use crate::Field;
use crate::test_run::verified;

/// What a program without terms may take, with all that they call, in instructions.
const PROGRAM: u32 = 60_000;
const PROGRAM_AT_TCX: u32 = 80_000;
/// What a term may add. So there is no way through several that the verifier goes for each.
const TERM: u32 = 2_500;

/// Terms with each kind of condition and action, in turns.
fn mixed(bench: &Bench) -> Vec<Term> {
    let [in_a, not_in_b] = [bench.look_up("a", false), bench.look_up("b", true)];
    let looks_up = term(&[in_a, not_in_b], Then::Drop, 0);
    let mut flower = term(&[], Then::Drop, 1);
    flower.headers.ask(Field::Protocol, &[6], &[0xff]);
    flower.headers.ask(Field::TcpFlags, &[0, 2], &[0, 0x12]);
    flower.headers.destination_ports = Some((1000, 2000));
    let words = vec![word(8, false), word(0, true)];
    let has_words = Term { words, ..term(&[], Then::Drop, 2) };
    let mut edits = Term { steps: vec![edit(Then::Continue)], ..Term::any() };
    edits.headers.ask(Field::Source, &[0x20, 1, 0xd, 0xb8], &[0xff; 4]);
    let marked = Term { mark: Some((5, u32::MAX)), ..term(&[], Then::Drop, 3) };
    let mut polices = police::policing(10_000, 1000, Some(AccountKey::Source));
    polices.steps[0].then = Then::Continue;
    let kinds = [looks_up, flower, has_words, edits, marked, polices];
    kinds.into_iter().cycle().take(TERMS_MAX).collect()
}

/// Terms that have as much of everything as there may be.
fn full(bench: &Bench) -> Vec<Term> {
    let in_a = bench.look_up("a", false);
    let with_port = LookUp { port: Some(Endpoint::Destination), ..in_a };
    let destination = LookUp { address: Endpoint::Destination, ..with_port };
    let mut full = police::policing(10_000, 1000, Some(AccountKey::Flow));
    full.steps[0].then = Then::Pipe;
    full.steps.extend([edit(Then::Pipe), decide(Then::Continue, 0)]);
    full.mark = Some((5, u32::MAX));
    full.words = vec![word(8, false), word(0, true), word(4, true), word(12, false)];
    full.look_ups = vec![in_a, bench.look_up("b", true), with_port, destination];
    for field in [Field::Source, Field::Destination] {
        full.headers.ask(field, &[0x20; 16], &[0xff; 16]);
    }
    full.headers.ask(Field::Protocol, &[6], &[0xff]);
    full.headers.ask(Field::TcpFlags, &[0, 2], &[0, 0x12]);
    full.headers.source_ports = Some((1, 2000));
    full.headers.destination_ports = Some((1000, 2000));
    vec![full; TERMS_MAX]
}

fn word(offset: i16, is_behind_ip: bool) -> Word {
    Word { value: 7, mask: 0xffff, offset, is_behind_ip, is_in_carrier: false }
}

fn edit(then: Then) -> Step {
    let does = Does::Edit { mark: Some((5, u32::MAX)), priority: Some(3) };
    Step { does, then, exceed: then, counter: Some(4) }
}

#[test]
fn the_verifier_goes_through_so_many_instructions_at_most_for_each_number_of_terms() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create a hash:net");
        bench.run("create b hash:net");
        let program = if bench.entry == Entry::Tcx { PROGRAM_AT_TCX } else { PROGRAM };
        for (name, terms) in [("mixed", mixed(&bench)), ("full", full(&bench))] {
            for count in 0..=TERMS_MAX {
                let front = bench.front(&terms[..count]);
                let took = verified(front.front.program()).unwrap();
                let at_most = program + TERM * count as u32;
                println!("{:?}, {name}, {count} terms: {took} of {at_most}", bench.entry);
                assert!(took <= at_most, "{:?}, {name}, {count}: {took}", bench.entry);
            }
        }
    }
}
