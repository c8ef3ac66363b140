//! The network configuration that a runtime writes to the plugin's standard input.

use crate::CniError;
use crate::limits::Limits;
use crate::version::Version;
use crate::wishes::{Keys, Wishes};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest configuration, in bytes.
const INPUT_MAX: u64 = 1 << 20;
/// How long a command may wait for the host plane, in seconds.
const WAITS: RangeInclusive<u64> = 0..=60;
/// How long it waits if the configuration does not say.
const WAIT: u64 = 10;

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) version: Version,
    /// What the plugins before this one have done; none outside a chain.
    pub(crate) previous: Option<Value>,
    /// What is asked for.
    pub limits: Limits,
    /// How long to wait for a host plane that has the device.
    pub(crate) wait: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form {
    prev_result: Option<Value>,
    runtime_config: Option<Runtime>,
    wait_seconds: Option<u64>,
    #[serde(flatten)]
    keys: Keys,
}

#[derive(Default, Deserialize)]
struct Runtime {
    bandwidth: Option<Keys>,
    #[serde(rename = "io.kubernetes.cri.pod-annotations")]
    annotations: Option<BTreeMap<String, String>>,
}

/// Only the version, so that every answer can be in that one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned {
    cni_version: Option<String>,
}

impl Config {
    /// Reads what a runtime has written.
    ///
    /// # Errors
    /// If it is no configuration, of another version of CNI, or asks for what is not possible.
    pub fn parse(text: &[u8]) -> Result<Self, CniError> {
        let version = version(text)?;
        let form: Form = serde_json::from_slice(text)?;
        let wait = form.wait_seconds.unwrap_or(WAIT);
        if !WAITS.contains(&wait) {
            return Err(CniError::Config(format!(
                "waitSeconds is {wait}: it is from {} to {}",
                WAITS.start(),
                WAITS.end()
            )));
        }
        let runtime = form.runtime_config.unwrap_or_default();
        let annotated = Wishes::annotated(&runtime.annotations.unwrap_or_default())?;
        let wishes = Wishes::from(form.keys)
            .or(runtime.bandwidth.map(Wishes::from).unwrap_or_default())
            .or(annotated);
        Ok(Self {
            version,
            previous: form.prev_result.filter(|value| !value.is_null()),
            limits: Limits::of(&wishes)?,
            wait: Duration::from_secs(wait),
        })
    }

    /// What the plugins before this one have done.
    pub(crate) fn chained(&self) -> Result<&Value, CniError> {
        self.previous.as_ref().ok_or_else(|| {
            CniError::Config(
                "there is no prevResult: this plugin changes an interface that another one has \
                 made, so put it behind that one in a list of plugins"
                    .to_owned(),
            )
        })
    }
}

/// The version that `text` is of.
pub(crate) fn version(text: &[u8]) -> Result<Version, CniError> {
    let versioned: Versioned = serde_json::from_slice(text)?;
    Version::parse(versioned.cni_version.as_deref())
}

/// Reads all of `input`, which has a bound.
pub(crate) fn read(input: impl Read) -> Result<Vec<u8>, CniError> {
    let mut text = Vec::new();
    input
        .take(INPUT_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| CniError::Input(format!("standard input cannot be read: {error}")))?;
    if text.len() as u64 > INPUT_MAX {
        return Err(CniError::Input(format!(
            "the network configuration has more than {} KiB: shorten it",
            INPUT_MAX >> 10
        )));
    }
    Ok(text)
}
