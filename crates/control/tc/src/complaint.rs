//! The result of a command: text, complaints, an exit code.

use narrows_policy::PolicyError;

/// The output and exit code of the `tc` process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit code: 0, or [`Outcome::WRONG`], [`Outcome::REFUSED`], [`Outcome::UNREADABLE`].
    pub code: i32,
}

impl Outcome {
    /// A parameter is wrong, a device does not exist, or a line of a batch failed.
    pub const WRONG: i32 = 1;
    /// The policy does not allow it; `tc` returns this if the kernel refuses.
    pub const REFUSED: i32 = narrows_policy::PolicyError::EXIT_CODE;
    /// The line could not be parsed as a command; `tc` returns -1 here.
    pub const UNREADABLE: i32 = 255;

    pub(crate) fn printed(stdout: String) -> Self {
        Self { stdout, ..Self::default() }
    }
}

impl From<Complaint> for Outcome {
    fn from(complaint: Complaint) -> Self {
        Self {
            stdout: String::new(),
            stderr: format!("{}\n", complaint.message),
            code: complaint.code,
        }
    }
}

/// Why a line failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Complaint {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// What the policy refused, in words. A second line has the words of `tc` for kernels without
/// messages of their own, if scripts look for those.
pub fn refusal(error: &PolicyError) -> String {
    let answer = error.answer().map(|answer| format!("\nRTNETLINK answers: {answer}"));
    format!("{error}{}", answer.unwrap_or_default())
}

impl Complaint {
    /// An invalid parameter.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self { code: Outcome::WRONG, message: message.into() }
    }

    /// Something that the policy does not allow.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { code: Outcome::REFUSED, message: message.into() }
    }

    /// A line that is not a command.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self { code: Outcome::UNREADABLE, message: message.into() }
    }
}
