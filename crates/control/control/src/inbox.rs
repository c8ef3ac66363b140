//! A request as it arrives: a line of JSON, and behind that of a batch its text, as it is.
//!
//! Both are bounded before any of it is kept: the line by [`LINE_MAX`], the text by [`BATCH_MAX`].

use crate::{Answer, Request};

/// The longest line of a request, in bytes.
pub const LINE_MAX: usize = 16 << 20;
/// The longest text of a batch, in bytes: a million lines and more.
pub const BATCH_MAX: u64 = 256 << 20;

/// The input of one connection; see the module's documentation.
#[derive(Debug)]
pub enum Inbox {
    /// The line so far.
    Line(Vec<u8>),
    /// A batch and its text so far.
    Text {
        /// The batch.
        request: Request,
        /// What has come.
        text: Vec<u8>,
        /// How long it will be.
        bytes: usize,
    },
}

/// A whole request.
#[derive(Debug)]
pub struct Received {
    /// The request.
    pub request: Request,
    /// The text of a batch.
    pub text: String,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::Line(Vec::new())
    }
}

impl Inbox {
    /// Takes `new` in; with `ended` nothing follows. Returns the request once it is whole.
    ///
    /// # Errors
    /// A refusal, if it never will be a request. Then the rest of the input means nothing.
    pub fn take(&mut self, mut new: &[u8], ended: bool) -> Result<Option<Received>, Answer> {
        if let Self::Line(line) = self {
            let end = new.iter().position(|&byte| byte == b'\n');
            line.extend_from_slice(&new[..end.unwrap_or(new.len())]);
            if line.len() > LINE_MAX {
                let why = format!("not a request: longer than {} MiB", LINE_MAX >> 20);
                return Err(Answer::Refused(why));
            }
            if end.is_none() && !ended {
                return Ok(None);
            }
            let request = serde_json::from_slice(&std::mem::take(line))
                .map_err(|error| Answer::Refused(format!("not a request: {error}")))?;
            let Request::Batch { bytes, .. } = request else {
                return Ok(Some(Received { request, text: String::new() }));
            };
            if bytes > BATCH_MAX {
                let most = BATCH_MAX >> 20;
                let why = format!("a batch has at most {most} MiB: divide it");
                return Err(Answer::Refused(why));
            }
            new = end.map_or(&[], |end| &new[end + 1..]);
            *self = Self::Text { request, text: Vec::new(), bytes: bytes as usize };
        }
        let Self::Text { text, bytes, .. } = self else { return Ok(None) };
        let missing = *bytes - text.len();
        text.extend_from_slice(&new[..missing.min(new.len())]);
        if text.len() < *bytes {
            return match ended {
                true => Err(Answer::Refused(format!(
                    "the batch ended after {} of {bytes} bytes: none of it was run",
                    text.len()
                ))),
                false => Ok(None),
            };
        }
        let Self::Text { request, text, .. } = std::mem::take(self) else { return Ok(None) };
        // Text that is not UTF-8 is no valid word either: the complaint about its line shows it.
        let text = String::from_utf8(text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(Some(Received { request, text }))
    }

    /// How much memory the request may take, in bytes, as far as known.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Text { bytes, .. } => *bytes,
        }
    }
}
