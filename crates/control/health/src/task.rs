//! A task that ends with what it is for.

use tokio::task::AbortHandle;

/// A task of the runtime, which is aborted when this is dropped.
pub(crate) struct Task(AbortHandle);

impl Task {
    pub(crate) fn spawn<F>(work: F) -> Self
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
