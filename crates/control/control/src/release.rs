//! A command that runs while an instance has released its ports.
//!
//! The connection is the claim: the instance joins its ports again when it ends, however it ends,
//! so a command that crashes leaves no ports apart.

use crate::turn::{ANSWER_TIME, Turn, receive};
use crate::{Answer, Client, ControlError, Request};
use std::io::{self, BufReader};
use std::time::Duration;

/// Makes the instance release its ports, does `work`, and makes it join them again. Returns the
/// result of `work`, and the instance's last answer.
///
/// # Errors
/// If the instance does not release the ports; then `work` is not done. If the instance is gone
/// afterwards, the last answer is missing.
pub fn while_let_go<T>(
    client: &Client,
    why: String,
    limit: Duration,
    work: impl FnOnce() -> T,
) -> Result<(T, Result<Answer, ControlError>), ControlError> {
    let stream = client.connect()?;
    let broken = |source| client.broken(source);
    let hear = || {
        let mut lines = BufReader::new(Turn::begin(&stream, ANSWER_TIME));
        loop {
            match receive(&mut lines) {
                // Something else has to be done before.
                Ok(Answer::Working { .. }) => {}
                heard => return heard,
            }
        }
    };
    let request = Request::LetGo { why, limit_s: limit.as_secs() };
    Turn::begin(&stream, ANSWER_TIME).send(&request).map_err(broken)?;
    match hear().map_err(broken)? {
        Answer::LetGo => {}
        Answer::Refused(reason) => return Err(broken(io::Error::other(reason))),
        other => return Err(broken(io::Error::other(format!("it answers {other:?}")))),
    }
    let result = work();
    // It fails if the time limit has passed; the answer is there all the same.
    let _ = Turn::begin(&stream, ANSWER_TIME).send(&"done");
    Ok((result, hear().map_err(broken)))
}
