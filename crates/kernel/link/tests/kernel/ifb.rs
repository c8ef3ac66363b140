//! Ifbs against the kernel.

use crate::bed::Bed;
use narrows_link::ifb::{IfbError, prepare, remove};

fn shown(bed: &Bed) -> String {
    String::from_utf8(bed.shaper.exec("ip -details link show dev ifb4sa").stdout).unwrap()
}

fn try_prepare(bed: &Bed) -> Option<Result<(), IfbError>> {
    match bed.shaper.inside(|| prepare("sa", "ifb4sa")) {
        Err(error @ IfbError::Missing) => {
            println!("SKIPPED: {error}");
            None
        }
        prepared => Some(prepared),
    }
}

#[test]
fn a_port_gets_one_like_it_and_loses_it_at_the_end() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa mtu 1400");
    // The second time it is there already, as after a kill.
    for _ in 0..2 {
        let Some(prepared) = try_prepare(&bed) else { return };
        prepared.unwrap();
        let shown = shown(&bed);
        for words in ["mtu 1400", "numtxqueues 4", ",UP", "addrgenmode none", "alias narrows"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
    for _ in 0..2 {
        bed.shaper.inside(|| remove("ifb4sa")).unwrap();
        assert_eq!(shown(&bed), "");
    }
}

#[test]
fn that_of_somebody_else_stays_unless_it_is_down() {
    let Some(bed) = Bed::new() else { return };
    if try_prepare(&bed).is_none() {
        return;
    }
    bed.shaper.inside(|| remove("ifb4sa")).unwrap();
    bed.shaper.ip("link add ifb4sa type ifb");
    bed.shaper.ip("link set ifb4sa up");
    let before = shown(&bed);
    let refused = bed.shaper.inside(|| prepare("sa", "ifb4sa")).unwrap_err().to_string();
    assert!(refused.contains("ip link del dev ifb4sa"), "{refused}");
    bed.shaper.inside(|| remove("ifb4sa")).unwrap();
    assert_eq!(shown(&bed), before);
    bed.shaper.ip("link set ifb4sa down");
    bed.shaper.inside(|| prepare("sa", "ifb4sa")).unwrap();
}

#[test]
fn without_its_port_there_is_none() {
    let Some(bed) = Bed::new() else { return };
    let refused = bed.shaper.inside(|| prepare("none", "ifb4none")).unwrap_err().to_string();
    assert!(refused.contains("there is no interface 'none'"), "{refused}");
}
