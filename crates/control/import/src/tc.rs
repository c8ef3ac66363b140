//! The running host's queueing, as `tc -j` prints it.
//!
//! Objects are recognized by their keys: a class has `class`, a filter `protocol` or `pref`, a
//! qdisc neither. Qdiscs name their device. Classes and filters do not, because `tc` prints those
//! of one device at a time.
//!
//! Some versions print classes as text even with `-j` (6.1, in Debian 12), so text is read, too
//! ([`class_text`]). These versions also print the default class of an `hfsc` as text amid the
//! JSON.
//!
//! Nothing is guessed. What has a key or a word that is not known here is left out, with the
//! reason: a filter without one of its conditions would match more. And each command must be
//! accepted by the policy that it is for.
//!
//! Source: iproute2 6.1 to 7.3, `tc_qdisc.c`, `tc_class.c`, `tc_filter.c` and the kinds'
//! `print_opt`. In JSON, rates are bytes per second and times are microseconds.

mod class_text;
mod filter;
mod netem;
mod qdisc;
mod value;

use crate::draft::Draft;
use crate::json::Kept;
use crate::{ImportError, Imported};
use narrows_units::counted;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use value::text;

const FILE: &str = "tc -j";

type Object = Map<String, Value>;

/// The output of `tc`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Printed {
    devices: BTreeMap<String, Device>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Device {
    qdiscs: Vec<Object>,
    classes: Vec<Object>,
    filters: Vec<Object>,
    /// What could not be read.
    lacking: Vec<String>,
}

impl Printed {
    /// Adds the JSON of `tc -j … show`: one array or several; or the text of `tc class show`. `dev`
    /// is the device of classes and filters, `parent` the parent of filters. Both may be missing if
    /// the qdiscs are of a single device; then that device and its root are meant.
    ///
    /// # Errors
    /// If it is not such JSON, or the device of classes and filters is unknown.
    pub fn add(
        &mut self,
        json: &[u8],
        dev: Option<&str>,
        parent: Option<&str>,
    ) -> Result<(), ImportError> {
        let mut rest = Vec::new();
        let is_text = json.trim_ascii_start().first().is_some_and(|byte| *byte != b'[');
        if is_text {
            rest = class_text::read(&String::from_utf8_lossy(json))
                .map_err(|why| ImportError::format(FILE, why))?;
        }
        let json = if is_text { Vec::new() } else { with_default_as_json(json) };
        for array in serde_json::Deserializer::from_slice(&json).into_iter::<Kept>() {
            let Kept(array) = array.map_err(|error| {
                let why = format!("{error}: what `tc -j qdisc show` prints is expected");
                ImportError::format(FILE, why)
            })?;
            let Value::Array(objects) = array else {
                return Err(ImportError::format(FILE, "an array of objects is expected"));
            };
            for object in objects {
                let Value::Object(mut object) = object else {
                    return Err(ImportError::format(FILE, "an array of objects is expected"));
                };
                if let Some(parent) = parent {
                    object.entry("parent").or_insert_with(|| parent.into());
                }
                match text(&object, "dev") {
                    Some(dev) => {
                        let dev = dev.to_owned();
                        self.put(&dev, object);
                    }
                    // iproute2 ends some arrays with an empty object.
                    None if object.is_empty() => {}
                    None => rest.push(object),
                }
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let only = self.devices.keys().next().filter(|_| self.devices.len() == 1).cloned();
        let Some(dev) = dev.map(str::to_owned).or(only) else {
            let why = "classes and filters do not name their device: give it with --dev";
            return Err(ImportError::format(FILE, why));
        };
        rest.into_iter().for_each(|object| self.put(&dev, object));
        Ok(())
    }

    fn put(&mut self, dev: &str, object: Object) {
        let device = self.devices.entry(dev.to_owned()).or_default();
        if object.contains_key("class") {
            device.classes.push(object);
        } else if object.contains_key("protocol") || object.contains_key("pref") {
            device.filters.push(object);
        } else {
            device.qdiscs.push(object);
        }
    }

    /// Removes all devices but `dev`.
    pub fn keep(&mut self, dev: &str) {
        self.devices.retain(|name, _| name == dev);
    }

    /// Says that something of a device could not be read, and is left out.
    pub fn lacks(&mut self, dev: &str, what: &str) {
        self.devices.entry(dev.to_owned()).or_default().lacking.push(what.to_owned());
    }

    /// The devices with the handles of their qdiscs that may have filters, for further calls of
    /// `tc`.
    pub fn handles(&self) -> Vec<(String, Vec<String>)> {
        let of = |device: &Device| {
            let handles = device.qdiscs.iter().filter_map(|qdisc| text(qdisc, "handle"));
            // Those of 0: are the kernel's own, and those of ffff: are the ends of the port.
            let handles = handles.filter(|handle| !matches!(*handle, "0:" | "ffff:"));
            handles.map(str::to_owned).collect()
        };
        self.devices.iter().map(|(dev, device)| (dev.clone(), of(device))).collect()
    }

    /// The equivalent policy. `ports` maps old device names to new ones.
    ///
    /// # Errors
    /// If no device has a qdisc other than the default.
    pub fn import(&self, ports: &HashMap<String, String>) -> Result<Imported, ImportError> {
        let mut draft = Draft::default();
        draft.comment("Imported from what tc -j printed.");
        let mut counts = [0_usize; 3];
        for (dev, device) in &self.devices {
            let to = ports.get(dev).map_or(dev.as_str(), String::as_str);
            if !is_device_name(to) {
                draft.fault(&format!("{to} is not the name of a device: left out"));
                continue;
            }
            let wrote = device.write(to, &mut draft);
            for (count, wrote) in counts.iter_mut().zip(wrote) {
                *count += wrote;
            }
        }
        let [qdiscs, classes, filters] = counts;
        if qdiscs == 0 {
            let why = "no device has a qdisc to import: all have the kernel's defaults";
            return Err(ImportError::Nothing(why.to_owned()));
        }
        let summary =
            [counted(qdiscs, "qdisc"), counted(classes, "class"), counted(filters, "filter")];
        Ok(draft.finish(summary.join(", ")))
    }
}

impl Device {
    /// Returns how many qdiscs, classes and filters were written.
    fn write(&self, dev: &str, draft: &mut Draft) -> [usize; 3] {
        let mut tree = Tree { dev, device: self, kinds: HashMap::new(), counts: [0; 3] };
        for qdisc in &self.qdiscs {
            match text(qdisc, "kind").unwrap_or("") {
                kind @ ("clsact" | "ingress") => {
                    draft.fault(&format!("{kind} of {dev} is left out, with its filters"));
                }
                _ if qdisc.contains_key("root") => tree.qdisc(qdisc, 0, draft),
                _ => {}
            }
        }
        let Tree { kinds, mut counts, .. } = tree;
        let is_root = |qdisc: &&Object| qdisc.contains_key("root");
        let root = self.qdiscs.iter().find(is_root).and_then(|root| text(root, "handle"));
        let tables = filter::Tables::new(&self.filters);
        for filter in &self.filters {
            let place = filter::Place { dev, root, kinds: &kinds, tables: &tables };
            counts[2] += usize::from(filter::write(&place, filter, draft));
        }
        if self.qdiscs.iter().any(|qdisc| qdisc::has_details(qdisc) == Some(false)) {
            let what = "tc has printed no details (tc -d -j qdisc show)";
            draft.fault(&format!("{what} of {dev}: size tables, mpu and linklayer are left out"));
        }
        for what in &self.lacking {
            draft.fault(&format!("{what} of {dev}: left out"));
        }
        counts
    }
}

/// `json` with the default class of each `hfsc` as JSON: `{default 20 }` is `{"default":"20"}`.
fn with_default_as_json(json: &[u8]) -> Vec<u8> {
    const START: &[u8] = b"{default ";
    let mut whole = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.windows(START.len()).position(|bytes| bytes == START) {
        let (before, behind) = rest.split_at(at);
        let digits = &behind[START.len()..];
        let end = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        whole.extend_from_slice(before);
        whole.extend_from_slice(b"{\"default\":\"");
        whole.extend_from_slice(&digits[..end]);
        whole.push(b'"');
        rest = &digits[end..];
    }
    whole.extend_from_slice(rest);
    whole
}

/// The qdiscs and classes of a device, written from the root.
struct Tree<'a> {
    dev: &'a str,
    device: &'a Device,
    /// What is already written: the kind of each qdisc, by its number.
    kinds: HashMap<String, String>,
    counts: [usize; 3],
}

impl<'a> Tree<'a> {
    /// Writes a qdisc, its classes, and their child qdiscs.
    fn qdisc(&mut self, qdisc: &'a Object, level: usize, draft: &mut Draft) {
        /// No tree of tc's is as deep; a cycle in the input would be.
        const LEVELS_MAX: usize = 32;
        let number = text(qdisc, "handle").map_or("", major);
        let kind = text(qdisc, "kind").unwrap_or("");
        if matches!(number, "" | "0") && kind != "cake_mq" {
            if !matches!(kind, "noqueue" | "mq") {
                draft.report(
                    "a qdisc that the kernel chose is left out",
                    &format!("{kind} at {}", self.dev),
                );
            }
            return;
        }
        if level > LEVELS_MAX || self.kinds.contains_key(number) {
            draft.fault(&format!("qdisc {number}: of {} occurs twice: the first counts", self.dev));
            return;
        }
        if level == 0 {
            draft.blank();
        }
        if !qdisc::write(self.dev, qdisc, draft) {
            return;
        }
        self.kinds.insert(number.to_owned(), kind.to_owned());
        self.counts[0] += 1;
        let top = format!("{number}:");
        let is_top = |class: &&Object| {
            class.contains_key("root") || text(class, "parent") == Some(top.as_str())
        };
        let own: Vec<&Object> = self
            .device
            .classes
            .iter()
            .filter(|class| text(class, "handle").is_some_and(|handle| major(handle) == number))
            .collect();
        let mut queue: Vec<&Object> = own.iter().copied().filter(is_top).collect();
        let mut by_parent: HashMap<&str, Vec<&Object>> = HashMap::new();
        for class in own.iter().copied().filter(|class| !is_top(class)) {
            by_parent.entry(text(class, "parent").unwrap_or("")).or_default().push(class);
        }
        let mut next = 0;
        while let Some(class) = queue.get(next).copied() {
            next += 1;
            self.counts[1] += usize::from(qdisc::write_class(self.dev, class, kind, draft));
            queue.extend(by_parent.remove(text(class, "handle").unwrap_or("")).unwrap_or_default());
        }
        if next < own.len() {
            let many = counted(own.len() - next, "class");
            draft.fault(&format!("{many} of {top} below a missing one: left out"));
        }
        // A cake_mq makes its children itself.
        if kind == "cake_mq" {
            return;
        }
        for below in &self.device.qdiscs {
            if text(below, "parent").is_some_and(|parent| major(parent) == number) {
                self.qdisc(below, level + 1, draft);
            }
        }
    }
}

/// The number of a qdisc in `1:`, `1:10`.
fn major(handle: &str) -> &str {
    handle.split_once(':').map_or(handle, |(major, _)| major)
}

/// Whether a policy file can hold this name.
fn is_device_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.chars().all(|letter| letter.is_ascii_graphic() && !"/:#'\"\\".contains(letter))
}
