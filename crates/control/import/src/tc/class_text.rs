//! Classes as text: what `tc class show` prints, and `tc -j class show` of iproute2 6.1.
//!
//! A line is `class KIND HANDLE root|parent PARENT [leaf QDISC]` and words with values, of which
//! the values are as `tc` reads them. A service curve has words of its own. Text has rates with
//! four digits or more, so an odd rate is less than it was by at most a thousandth.

use super::Object;

/// Lines of statistics below a class begin so.
const STATISTICS: [&str; 8] =
    ["Sent", "rate", "backlog", "lended:", "tokens:", "deficit", "period", "dropped"];

/// The classes, as objects with the keys of the JSON and the words of the text.
///
/// # Errors
/// A message with the line that is not such text.
pub(super) fn read(text: &str) -> Result<Vec<Object>, String> {
    let mut classes: Vec<Object> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match words.next() {
            None => {}
            Some("class") if !line.starts_with(' ') => {
                let class = class(words).ok_or_else(|| format!("line {} is cut", index + 1))?;
                classes.push(class);
            }
            Some(first)
                if line.starts_with([' ', '\t'])
                    && !classes.is_empty()
                    && STATISTICS.contains(&first) => {}
            Some(_) => {
                return Err(format!(
                    "line {} is neither JSON, as `tc -j qdisc show` prints it, nor a class, as `tc \
                     class show` does",
                    index + 1
                ));
            }
        }
    }
    Ok(classes)
}

fn class<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Object> {
    let mut class = Object::new();
    class.insert("class".to_owned(), words.next()?.into());
    class.insert("handle".to_owned(), words.next()?.into());
    while let Some(word) = words.next() {
        let value = match word {
            "root" => true.into(),
            // The number of bytes that a cell has.
            "burst" | "cburst" => words.next()?.split('/').next().unwrap_or("").into(),
            // Without a unit, as it is given.
            "mpu" => words.next()?.trim_end_matches('b').into(),
            "rt" | "ls" | "sc" | "ul" => curve(&mut words)?.into(),
            // What is not known here may have a value or not: the word is enough to say so.
            word if !is_known(word) => true.into(),
            _ => words.next()?.into(),
        };
        class.insert(word.to_owned(), value);
    }
    Some(class)
}

/// The curve in the next words.
fn curve<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Object> {
    let part = |name: &str| {
        let value = words.next().filter(|word| *word == name).and_then(|_| words.next())?;
        Some((name.to_owned(), value.into()))
    };
    ["m1", "d", "m2"].into_iter().map(part).collect()
}

fn is_known(word: &str) -> bool {
    const KNOWN: [&str; 9] =
        ["parent", "leaf", "prio", "quantum", "rate", "ceil", "overhead", "linklayer", "level"];
    KNOWN.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_iproute2_6_1_is_read() {
        let line = "class htb 1:20 parent 1:1 leaf 20: prio 0 quantum 200000 rate 10Gbit ceil \
                    10Gbit linklayer ethernet burst 13750b/1 mpu 0b cburst 0b/1 mpu 0b level 0 \n";
        let classes = read(&format!("{line} Sent 0 bytes\n")).unwrap();
        let text = serde_json::Value::Object(classes[0].clone()).to_string();
        for part in [
            r#""class":"htb""#,
            r#""handle":"1:20""#,
            r#""parent":"1:1""#,
            r#""burst":"13750b""#,
            r#""mpu":"0""#,
            r#""rate":"10Gbit""#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_curve_has_three_parts() {
        let line = "class hfsc 1:10 parent 1:1 leaf 10: rt m1 0bit d 7.6ms m2 5Mbit ul m1 0bit d 0us \
                    m2 9Mbit \n";
        let classes = read(&format!("class hfsc 1: root \n{line} period 3 level 0 \n")).unwrap();
        let curve = |m1, d, m2| serde_json::json!({"m1": m1, "d": d, "m2": m2});
        assert_eq!(classes[1]["rt"], curve("0bit", "7.6ms", "5Mbit"));
        assert_eq!(classes[1]["ul"], curve("0bit", "0us", "9Mbit"));
        assert_eq!(classes[1]["leaf"], "10:");
        assert_eq!((classes.len(), &classes[0]["root"]), (2, &true.into()));
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        for text in [
            "qdisc htb 1: root",
            "class",
            "class htb 1:1 root rate",
            "class htb 1:1\nx",
            "class hfsc 1:1 parent 1: sc m1 0bit m2 5Mbit d 1us",
        ] {
            assert!(read(text).unwrap_err().contains("line "), "{text}");
        }
    }
}
