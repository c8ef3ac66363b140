//! What becomes of a packet after an action: `pass`, `drop`, `jump 2`.
//!
//! Source: iproute2's `m_gact.c` and `tc_util.c`.

use crate::complaint::Complaint;
use crate::number;
use crate::render::Json;
use crate::words::{Words, abbreviates};
use narrows_classify::Control;

/// The longest jump between actions (`TCA_ACT_MAX_PRIO_MASK`).
const JUMP_MAX: u32 = 0x1ff;

/// In `tc`'s order, which decides what a common beginning stands for.
const CONTROLS: [(&str, Control); 7] = [
    ("continue", Control::Continue),
    ("drop", Control::Drop),
    ("shot", Control::Drop),
    ("pass", Control::Pass),
    ("ok", Control::Pass),
    ("reclassify", Control::Reclassify),
    ("pipe", Control::Pipe),
];

/// The kernel's numbers of controls.
pub(super) const NUMBERS: [(&str, Control); 5] = [
    ("-1", Control::Continue),
    ("0", Control::Pass),
    ("1", Control::Reclassify),
    ("2", Control::Drop),
    ("3", Control::Pipe),
];

/// Parses a control.
pub(super) fn control(word: &str) -> Option<Control> {
    CONTROLS.iter().find(|(name, _)| abbreviates(word, name)).map(|(_, control)| *control)
}

/// Parses a control that may be `jump N`. `None` if the next word begins none.
pub(super) fn control_or_jump(words: &mut Words) -> Option<Result<Control, Complaint>> {
    let word = words.peek()?;
    if !abbreviates(word, "jump") {
        let read = control(word)?;
        words.next();
        return Some(Ok(read));
    }
    words.next();
    let to = words.next().and_then(jump);
    let illegal = || {
        Complaint::wrong(format!(
            "Illegal \"jump\": the place of an action, counted from 0 and up to {JUMP_MAX}, as jump 2."
        ))
    };
    Some(to.ok_or_else(illegal))
}

/// The jump to the action at the place `word`.
pub(super) fn jump(word: &str) -> Option<Control> {
    let to = number::mask(word).filter(|to| *to <= JUMP_MAX)?;
    u16::try_from(to).ok().map(Control::Jump)
}

/// The name of a control, as `tc` prints it.
pub(super) fn control_name(control: Control) -> String {
    if let Control::Jump(to) = control {
        return format!("jump {to}");
    }
    let named = CONTROLS.iter().find(|(_, of)| *of == control);
    named.map_or("pass", |(name, _)| name).to_owned()
}

/// A control in JSON.
pub(super) fn control_json(control: Control) -> Json {
    let text = |text: &str| Json::Text(text.to_owned());
    Json::Object(match control {
        Control::Jump(to) => {
            vec![("type", text("jump")), ("jump", Json::Number(u64::from(to)))]
        }
        control => vec![("type", Json::Text(control_name(control)))],
    })
}
