//! The kinds of qdiscs: parses, prints and saves their parameters.
//!
//! A new kind is a module of its own here and a line in each of these functions.

mod autorate;
mod bands;
mod cake;
mod codel;
mod coordination;
pub(crate) mod delays;
mod fifo;
mod figures;
pub(crate) mod filters;
mod fleet;
mod fq;
mod fq_codel;
mod hfsc;
mod htb;
mod label;
mod legal;
mod netem;
mod pacing;
mod red;
mod sfq;
pub(crate) mod stab;
mod style;
mod tbf;

pub(crate) use figures::TreeFigures;
pub(crate) use htb::show_direct;
pub(crate) use style::Style;

use crate::complaint::Complaint;
use crate::host::Host;
use crate::render::Line;
use crate::words::Words;
pub use cake::link_overhead;
use narrows_policy::{ClassParams, Fifo, FifoUnit, Handle, KINDS, Kind, Params, PortFacts};
use narrows_qdisc::pacing::Structure;
use narrows_qdisc::{Detail, Stats};

/// Parses the words after the name of a kind.
pub(crate) fn parse(kind: &str, words: Words) -> Result<Params, Complaint> {
    fleet::refuse(kind, words)?;
    match kind {
        "pfifo" => fifo::parse(FifoUnit::Packets, words),
        "bfifo" => fifo::parse(FifoUnit::Bytes, words),
        "tbf" => tbf::parse(words).map(Params::Tbf),
        "cake" => cake::parse(false, words),
        "cake_mq" => cake::parse(true, words),
        "fq" => fq::parse(words),
        "fq_codel" => fq_codel::parse(words),
        "codel" => codel::parse(words),
        "sfq" => sfq::parse(words),
        "netem" => netem::parse(words),
        "red" => red::parse(words),
        "htb" => htb::parse(words),
        "hfsc" => hfsc::parse(words),
        "prio" => bands::parse_prio(words),
        "drr" => bands::parse_drr(words),
        "ets" => bands::parse_ets(words),
        "carousel" => pacing::parse(Structure::Carousel, words),
        "eiffel" => pacing::parse(Structure::Eiffel, words),
        "flowbundler" => pacing::parse(Structure::FlowBundler, words),
        "noqueue" => without_parameters(Params::Noqueue, words),
        "mq" => without_parameters(Params::Mq, words),
        "pfifo_fast" => without_parameters(Params::PfifoFast, words),
        _ => match nearest(kind) {
            Some(instead) => {
                let why = format!(
                    "Unknown qdisc \"{kind}\": it is not one of the kinds here. Nearest is {instead}."
                );
                // Without parameters tc leaves it to the kernel.
                let is_bare = words.peek().is_none();
                Err(if is_bare { Complaint::refused(why) } else { Complaint::wrong(why) })
            }
            None => without_parameters(Params::Unknown(kind.to_owned()), words),
        },
    }
}

/// What to use in place of a kind that Linux has and Narrows has not.
fn nearest(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "gred" => "prio with a red in each class",
        "choke" | "sfb" | "hhf" | "fq_pie" => {
            "fq_codel, or cake, which bound each flow's delay and hold flows that send too much apart"
        }
        "pie" | "dualpi2" => "codel, which holds the delay of one queue, or fq_codel",
        "pfifo_head_drop" => "codel, which drops what has waited longest",
        "cbq" => "htb",
        "qfq" => "drr, or ets, whose classes take turns, too",
        "skbprio" => "prio",
        "dsmark" => "prio with filters that match ip_tos, or cake diffserv4",
        "mqprio" | "multiq" => "mq, with a qdisc for each queue of the port",
        "taprio" => "tbf, or fq, which paces: nothing here opens gates by the clock",
        "etf" => "fq, which sends packets at their times, or carousel",
        "cbs" => "tbf",
        "plug" => "netem slot, which holds packets back for a time",
        "atm" => "linklayer atm at a tbf or an htb class: packets leave by the other port alone",
        "teql" | "teql0" => "none: packets of a port leave in one queue order by one port",
        _ => return None,
    })
}

fn without_parameters(params: Params, mut words: Words) -> Result<Params, Complaint> {
    let Some(word) = words.next() else { return Ok(params) };
    let kind = params.kind_name();
    Err(Complaint::wrong(match params {
        Params::Unknown(_) => format!(
            "Unknown qdisc \"{kind}\", hence option \"{word}\" is unparsable: the kinds are {KINDS}."
        ),
        _ => format!("{kind}: unknown parameter \"{word}\": {kind} takes none."),
    }))
}

/// Parses the words after the kind of a class; `None` if there is no such kind, or its classes
/// cannot be created.
pub(crate) fn parse_class(kind: &str, words: Words) -> Option<Result<ClassParams, Complaint>> {
    if kind != "htb"
        && let Err(complaint) = fleet::refuse(kind, words)
    {
        return Some(Err(complaint));
    }
    match kind {
        "htb" => Some(htb::parse_class(words).map(ClassParams::Htb)),
        "hfsc" => Some(hfsc::parse_class(words).map(ClassParams::Hfsc)),
        "drr" => Some(bands::parse_drr_class(words)),
        "ets" => Some(bands::parse_ets_class(words)),
        _ => None,
    }
}

/// A warning about parameters that are allowed but probably not meant.
pub(crate) fn warning(params: &Params, facts: &PortFacts, host: &dyn Host) -> Option<String> {
    match params {
        Params::Tbf(params) => tbf::warning(params, facts),
        Params::Netem(config) => netem::warning(config),
        Params::Red(config) => red::warning(config),
        Params::Cake { options, .. } => cake::warning(options, || host.looks_up_translations()),
        Params::FqCodel(options) => fq_codel::warning(options, || host.looks_up_translations()),
        _ => None,
    }
}

/// That `what` needs addresses before network address translation, and does not have them.
fn no_look_up(what: &str) -> String {
    format!(
        "Warning: {what}: this kernel offers BPF programs no conntrack look-up now (Linux 5.18 \
         with BTF, and the module nf_conntrack loaded) of what addresses were before translation, \
         so hosts are told apart by those in the packets until it does: try modprobe nf_conntrack, \
         or put Narrows on the inside of the translation."
    )
}

/// Prints the parameters.
pub(crate) fn show(kind: &Kind, style: Style, line: &mut Line) {
    match kind {
        Kind::Noqueue | Kind::Mq => {}
        Kind::Fifo(fifo) => fifo::show(*fifo, line),
        Kind::Tbf(tbf) => tbf::show(tbf, style, line),
        Kind::Cake(cake) => cake::show(&cake.params, style, line),
        Kind::Fq(params) => fq::show(params, line),
        Kind::FqCodel(config) => fq_codel::show(config, line),
        Kind::Codel(config) => codel::show(config, line),
        Kind::Sfq(config) => sfq::show(config, style.details, line),
        Kind::Netem(config) => netem::show(config, line),
        Kind::Red(config) => red::show(config, style.details, line),
        Kind::Htb(htb) => htb::show(htb, line),
        Kind::Hfsc(hfsc) => hfsc::show(hfsc, line),
        Kind::Prio(prio) => bands::show_prio(prio, line),
        Kind::Drr(_) => {}
        Kind::Ets(ets) => bands::show_ets(ets, line),
        Kind::Pacing(config) => pacing::show(config, line),
    }
}

/// Prints the parameters of the class `minor` of `kind`.
pub(crate) fn show_class(kind: &Kind, minor: u32, details: bool, line: &mut Line) {
    match kind {
        Kind::Htb(htb) => htb::show_class(htb, minor, details, line),
        Kind::Hfsc(hfsc) => hfsc::show_class(hfsc, minor, line),
        Kind::Drr(drr) => bands::show_drr_class(drr, minor, line),
        Kind::Ets(ets) => bands::show_ets_class(ets, minor, line),
        _ => {}
    }
}

/// The commands that create the classes of the qdisc `handle` on `dev`, if its own command does
/// not.
pub(crate) fn save_classes(dev: &str, handle: Handle, kind: &Kind) -> String {
    match kind {
        Kind::Htb(htb) => htb::save_classes(dev, handle, htb),
        Kind::Hfsc(hfsc) => hfsc::save_classes(dev, handle, hfsc),
        Kind::Drr(drr) => bands::save_drr_classes(dev, handle, drr),
        _ => String::new(),
    }
}

/// Prints the default FIFO of a qdisc.
pub(crate) fn show_implicit(fifo: Fifo, line: &mut Line) {
    fifo::show(fifo, line);
}

/// The statistics of the class `minor` of `kind`, if its classes are a tree; `stats` are the
/// qdisc's.
pub(crate) fn tree_figures(kind: &Kind, minor: u32, stats: Option<&Stats>) -> Option<TreeFigures> {
    match kind {
        Kind::Htb(htb) => Some(htb::figures(htb, minor, stats)),
        Kind::Hfsc(hfsc) => Some(hfsc::figures(hfsc, minor, stats)),
        _ => None,
    }
}

/// Prints the statistics of a single kind.
pub(crate) fn show_detail(detail: &Detail, line: &mut Line) {
    match detail {
        Detail::Cake(figures) => cake::figures(figures, line),
        Detail::Fq(figures) => fq::figures(figures, line),
        Detail::FqCodel(figures) => fq_codel::figures(figures, line),
        Detail::Codel(figures) => codel::figures(figures, line),
        // Printed with the parameters, as the kernel does, or with the classes.
        Detail::Htb(_) | Detail::Bands(_) => {}
        Detail::Pacing(figures) => pacing::figures(figures, line),
        Detail::Red(figures) => red::figures(figures, line),
    }
}

/// The parameters as words that [`parse`] reads back without loss, each after a space.
pub(crate) fn save(kind: &Kind) -> String {
    match kind {
        Kind::Noqueue | Kind::Mq => String::new(),
        Kind::Fifo(fifo) => fifo::save(*fifo),
        Kind::Tbf(tbf) => tbf::save(tbf),
        Kind::Cake(cake) => cake::save(&cake.params),
        Kind::Fq(params) => fq::save(params),
        Kind::FqCodel(config) => fq_codel::save(config),
        Kind::Codel(config) => codel::save(config),
        Kind::Sfq(config) => sfq::save(config),
        Kind::Netem(config) => netem::save(config),
        Kind::Red(config) => red::save(config),
        Kind::Htb(htb) => htb::save(htb),
        Kind::Hfsc(hfsc) => hfsc::save(hfsc),
        Kind::Prio(prio) => bands::save_prio(prio),
        Kind::Drr(_) => String::new(),
        Kind::Ets(ets) => bands::save_ets(ets),
        Kind::Pacing(config) => pacing::save(config),
    }
}
