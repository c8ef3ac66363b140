//! The text format: HELP and TYPE once, then samples.

use narrows_escape::label;
use std::fmt::{Display, Write};

/// A text to which families of metrics are appended.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

/// One metric, to which samples are added.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

/// A metric that every object of type `T` has.
pub(super) struct Metric<T> {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    value: fn(&T) -> Option<Value>,
}

/// An object with metrics, and the labels of its samples.
pub(super) struct Labelled<'a, T> {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) it: &'a T,
}

/// The value of a sample: a float would lose the last digits of a large count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Count(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl<T> Metric<T> {
    /// A counter.
    pub(super) const fn counter(
        name: &'static str,
        help: &'static str,
        value: fn(&T) -> Option<Value>,
    ) -> Self {
        Self { name, help, is_counter: true, value }
    }

    /// A gauge.
    pub(super) const fn gauge(
        name: &'static str,
        help: &'static str,
        value: fn(&T) -> Option<Value>,
    ) -> Self {
        Self { name, help, is_counter: false, value }
    }
}

impl Exposition {
    /// Starts a gauge.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Starts a histogram; its samples have suffixes.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Histogram<'_> {
        Histogram(self.family(name, "histogram", help))
    }

    /// Starts a counter.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Adds each of `metrics`, with a sample for each of `things` that has a value.
    pub(super) fn each<T>(&mut self, metrics: &[Metric<T>], things: &[Labelled<T>]) {
        for metric in metrics {
            let kind = if metric.is_counter { "counter" } else { "gauge" };
            let mut family = self.family(metric.name, kind, metric.help);
            for Labelled { labels, it } in things {
                if let Some(value) = (metric.value)(it) {
                    let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
                    family.sample(labels, value);
                }
            }
        }
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.0, name }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// A histogram, to which objects are added.
pub(super) struct Histogram<'a>(Family<'a>);

impl Histogram<'_> {
    /// Adds an object: how many values are at most each of `buckets`, their number, and their sum.
    pub(super) fn add(
        &mut self,
        labels: &[(&str, &str)],
        buckets: &[(f64, u64)],
        all: u64,
        sum: f64,
    ) {
        let name = self.0.name;
        let mut sample = |suffix, more: Option<(&str, &str)>, value| {
            self.0.named(name, suffix, labels.iter().copied().chain(more), value);
        };
        for (most, count) in buckets {
            sample("_bucket", Some(("le", &most.to_string())), Value::Count(*count));
        }
        sample("_bucket", Some(("le", "+Inf")), Value::Count(all));
        sample("_sum", None, Value::Real(sum));
        sample("_count", None, Value::Count(all));
    }
}

impl Family<'_> {
    /// Adds a sample. Labels are pairs of name and value.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.sample(labels.iter().copied(), value.into());
    }

    fn sample<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>, value: Value) {
        self.named(self.name, "", labels, value);
    }

    fn named<'a>(
        &mut self,
        name: &str,
        suffix: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: Value,
    ) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut is_labelled = false;
        for (name, value) in labels {
            self.text.push(if is_labelled { ',' } else { '{' });
            is_labelled = true;
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.text.push_str(&label(value));
            self.text.push('"');
        }
        if is_labelled {
            self.text.push('}');
        }
        let value: &dyn Display = match &value {
            Value::Count(count) => count,
            Value::Real(real) => real,
        };
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_counts_keep_their_last_digit() {
        let mut text = Exposition::default();
        let mut family = text.counter("a_total", "What.");
        family.add(&[("device", "e\"t\\h\n"), ("queue", "0")], u64::MAX);
        text.gauge("b", "Other.").add(&[], 0.25);
        assert_eq!(
            text.finish(),
            "# HELP a_total What.\n# TYPE a_total counter\n\
             a_total{device=\"e\\\"t\\\\h\\n\",queue=\"0\"} 18446744073709551615\n\
             # HELP b Other.\n# TYPE b gauge\nb 0.25\n"
        );
    }

    #[test]
    fn missing_values_have_no_sample() {
        let even = Metric::gauge("even", "Even.", |&number: &u64| {
            number.is_multiple_of(2).then(|| number.into())
        });
        let things = [1, 2].map(|number| (vec![("number", number.to_string())], number));
        let things: Vec<_> =
            things.iter().map(|(labels, it)| Labelled { labels: labels.clone(), it }).collect();
        let mut text = Exposition::default();
        text.each(&[even], &things);
        let text = text.finish();
        assert!(text.ends_with("gauge\neven{number=\"2\"} 2\n"), "{text}");
    }
}
