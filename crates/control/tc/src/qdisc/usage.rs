//! The usage text of `tc qdisc`.

use crate::complaint::Outcome;
use narrows_policy::KINDS;

const USAGE: &str = "Usage: tc qdisc { add | replace | change | del } dev NAME { root | parent ID }
           [ handle ID ] [ stab ... ] [ KIND [ PARAMETERS ] ]
       tc qdisc { add | replace | del } dev NAME { clsact | ingress }
       tc qdisc show [ dev NAME ] [ root | parent ID ] [ handle ID ] [ invisible ]
";

/// The usage text as an outcome with the exit code `code`.
pub(super) fn usage(code: i32) -> Outcome {
    let stderr = format!("{USAGE}The kinds are {KINDS}; KIND help tells its parameters.\n");
    Outcome { stdout: String::new(), stderr, code }
}
