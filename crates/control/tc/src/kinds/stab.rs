//! `stab`: the words of `tc-stab(8)`, before those of a kind. As in `tc`, they may be abbreviated.

use crate::complaint::Complaint;
use crate::overhead;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates, twice};
use narrows_policy::Stab;
use narrows_units::wire::Framing;
use std::fmt::Write;

const USAGE: &str = "Usage: ... stab [ mtu BYTES ] [ tsize SLOTS ] [ mpu BYTES ]
                [ overhead BYTES ] [ linklayer {ethernet|atm|adsl|ptm} ] ...";

/// What `tc` assumes for its table.
const MTU: u32 = 2047;
const TSIZE: u32 = 512;
/// No link adds more than this to a frame, or takes away.
const MOST: i32 = 65_535;

/// Parses the words behind `stab`, up to the first that is none of them.
pub(crate) fn parse(words: &mut Words) -> Result<Stab, Complaint> {
    let mut stab = Stab { overhead: 0, mpu: 0, linklayer: None, table: [0, 0] };
    while let Some(word) = words.peek() {
        let full = ["mtu", "mpu", "overhead", "tsize", "linklayer", "help"];
        let Some(name) = full.into_iter().find(|full| abbreviates(word, full)) else { break };
        words.next();
        if name == "help" {
            return Err(Complaint::unreadable(USAGE));
        }
        let value = words.value(word, if name == "linklayer" { "atm" } else { "64" })?;
        let is_given = match name {
            "mtu" => stab.table[0] != 0,
            "mpu" => stab.mpu != 0,
            "overhead" => stab.overhead != 0,
            "tsize" => stab.table[1] != 0,
            _ => stab.linklayer.is_some(),
        };
        if is_given {
            return Err(twice(name, value));
        }
        match name {
            "linklayer" => {
                let framing = overhead::framing(value);
                stab.linklayer = Some(framing.ok_or_else(|| wrong(value, overhead::FRAMING_HINT))?);
            }
            "overhead" => {
                let bytes = value.parse().ok().filter(|bytes| (-MOST..=MOST).contains(bytes));
                stab.overhead =
                    bytes.ok_or_else(|| wrong(value, "a number of bytes from -65535 to 65535"))?;
            }
            _ => {
                let most = if name == "mpu" { MOST as u32 } else { u32::MAX };
                let number = value.parse().ok().filter(|number: &u32| *number <= most);
                let number = number.ok_or_else(|| {
                    wrong(value, "a number without a unit, as mtu 2047 or mpu 64")
                })?;
                match name {
                    "mtu" => stab.table[0] = number,
                    "tsize" => stab.table[1] = number,
                    _ => stab.mpu = number,
                }
            }
        }
    }
    if stab.overhead == 0 && stab.mpu == 0 && stab.linklayer.is_none() {
        return Err(Complaint::unreadable(format!(
            "Error: stab: give overhead, mpu or linklayer, as stab overhead 44 linklayer atm.\n{USAGE}"
        )));
    }
    let [mtu, tsize] = stab.table;
    // Without a minimum and cells, a length needs no table.
    let needs_table = stab.mpu != 0 || !matches!(stab.linklayer, None | Some(Framing::Whole));
    let or = |given: u32, default| if given == 0 { default } else { given };
    stab.table = if needs_table { [or(mtu, MTU), or(tsize, TSIZE)] } else { [0, 0] };
    Ok(stab)
}

fn wrong(value: &str, hint: &str) -> Complaint {
    Complaint::unreadable(format!("Error: argument \"{value}\" is wrong: stab: {hint}."))
}

/// Prints it, as `tc -d` does.
pub(crate) fn show(stab: &Stab) -> Line {
    let mut line = Line::default();
    if let Some(framing) = stab.linklayer {
        let name = overhead::framing_name(framing);
        line.add("linklayer", Json::Text(name.to_owned()), &format!("linklayer {name} "));
    }
    if stab.overhead != 0 {
        let bytes = i64::from(stab.overhead);
        line.add("overhead", Json::Signed(bytes), &format!("overhead {bytes} "));
    }
    let [mtu, tsize] = stab.table;
    for (key, number) in [("mpu", stab.mpu), ("mtu", mtu), ("tsize", tsize)] {
        if number != 0 {
            line.add(key, Json::Number(number.into()), &format!("{key} {number} "));
        }
    }
    line
}

/// The words that [`parse`] reads back, each before a space.
pub(crate) fn save(stab: &Stab) -> String {
    let mut words = "stab ".to_owned();
    // Writing to a string cannot fail.
    if let Some(framing) = stab.linklayer {
        let _ = write!(words, "linklayer {} ", overhead::framing_name(framing));
    }
    if stab.overhead != 0 {
        let _ = write!(words, "overhead {} ", stab.overhead);
    }
    let [mtu, tsize] = stab.table;
    for (key, number) in [("mpu", stab.mpu), ("mtu", mtu), ("tsize", tsize)] {
        if number != 0 {
            let _ = write!(words, "{key} {number} ");
        }
    }
    words
}
