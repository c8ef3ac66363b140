//! How good a line is, in a number that a subscriber can be told.
//!
//! *Idea.* One definition for all views, from what is measured anyway:
//!
//! * [`Step`]: how good a class is right now in this box, in steps of one scale, with the
//!   [`Reason`]s why somebody may complain.
//! * [`score`]: Quality of Outcome (draft-ietf-ippm-qoo-10, section 3.3). An application has
//!   thresholds for which it works at its best, and others from which it is unusable. The score is
//!   where the line stands between the two, 0 to 100 %, for the worst of latency and loss.
//! * [`responsiveness`]: round trips per minute under load (draft-ietf-ippm-responsiveness), here
//!   of the traffic that passes, not of a test.
//!
//! *Principles.* No I/O and no clock. What is not measured is unknown, and so is a score that would
//! need it; the answer says what is missing. A score is of the part of the path that was measured.
//!
//! *Non-goals.* A prediction of throughput, opinions of users.

mod evidence;
mod qoo;
mod reason;
mod rpm;
mod step;

pub use evidence::{Direction, Evidence, Latency, Measured};
pub use qoo::{Application, Limits, Outcome, Score, score, worst_outcome};
pub use reason::{Reason, Symptoms};
pub use rpm::{LOADED, LoadedPoint, Responsiveness, responsiveness};
pub use step::{Step, StepLimit};
