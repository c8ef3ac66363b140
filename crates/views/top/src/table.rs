//! A table whose rows may form a tree, with sorting and filtering.

use crate::cell::Cell;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) width: usize,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Identifies the row, also in the next snapshot.
    pub(crate) key: String,
    /// The index of its parent row, which comes before it.
    pub(crate) parent: Option<usize>,
    /// One cell for each column.
    pub(crate) cells: Vec<Cell>,
    /// The value of its sparkline.
    pub(crate) rate: Option<f64>,
    /// Whether it reports a problem.
    pub(crate) is_warning: bool,
}

impl Row {
    pub(crate) fn new(key: impl Into<String>, parent: Option<usize>, cells: Vec<Cell>) -> Self {
        Self { key: key.into(), parent, cells, rate: None, is_warning: false }
    }
}

/// Columns and rows.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// How a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sorting {
    pub(crate) column: usize,
    pub(crate) is_descending: bool,
}

impl Table {
    /// Gives the first column what the others leave of `room` characters, as far as its names need
    /// it.
    pub(crate) fn widen(&mut self, room: usize) {
        let all: usize = self.columns.iter().map(|column| column.width + 1).sum();
        let spare = (room + 1).saturating_sub(all);
        let mut longest = 0;
        let mut depths = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let depth = row.parent.map_or(0, |parent| depths[parent] + 1);
            depths.push(depth);
            let name = row.cells.first().map_or(0, |cell| cell.text.chars().count());
            longest = longest.max(depth + name);
        }
        if let Some(first) = self.columns.first_mut() {
            first.width += longest.saturating_sub(first.width).min(spare);
        }
    }

    /// The rows in order, each with its depth: those whose text contains `filter`, ignoring case,
    /// and their ancestors. Siblings are sorted among themselves.
    pub(crate) fn arranged(&self, sorting: Option<Sorting>, filter: &str) -> Vec<(usize, &Row)> {
        let kept = self.kept(&filter.to_lowercase());
        let mut below = vec![Vec::new(); self.rows.len() + 1];
        let tops = self.rows.len();
        for (index, row) in self.rows.iter().enumerate().filter(|(index, _)| kept[*index]) {
            below[row.parent.unwrap_or(tops)].push(index);
        }
        if let Some(Sorting { column, is_descending }) = sorting {
            for rows in &mut below {
                rows.sort_by(|&one, &other| {
                    let cell = |index: usize| self.rows[index].cells.get(column);
                    let order = match (cell(one), cell(other)) {
                        (Some(one), Some(other)) => one.order(other),
                        _ => std::cmp::Ordering::Equal,
                    };
                    if is_descending { order.reverse() } else { order }
                });
            }
        }
        let mut arranged = Vec::new();
        let mut to_do: Vec<(usize, usize)> =
            below[tops].iter().rev().map(|&row| (0, row)).collect();
        while let Some((depth, row)) = to_do.pop() {
            arranged.push((depth, &self.rows[row]));
            to_do.extend(below[row].iter().rev().map(|&row| (depth + 1, row)));
        }
        arranged
    }

    /// Whether each row is kept.
    fn kept(&self, filter: &str) -> Vec<bool> {
        let has = |row: &Row| {
            row.key.to_lowercase().contains(filter)
                || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(filter))
        };
        let mut kept: Vec<bool> = self.rows.iter().map(has).collect();
        // A parent comes before its children, so walking backwards sees all children of a row
        // before it.
        for index in (0..self.rows.len()).rev() {
            if let (true, Some(parent)) = (kept[index], self.rows[index].parent) {
                kept[parent] = true;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: &[Column] =
        &[Column { name: "Name", width: 8 }, Column { name: "Count", width: 6 }];

    fn table(rows: &[(&str, Option<usize>, u64)]) -> Table {
        let row = |&(name, parent, count): &(&str, Option<usize>, u64)| {
            Row::new(name, parent, vec![Cell::text(name), Cell::count(count)])
        };
        Table { columns: COLUMNS.to_vec(), rows: rows.iter().map(row).collect() }
    }

    fn keys(rows: &[(usize, &Row)]) -> Vec<String> {
        rows.iter().map(|(depth, row)| format!("{}{}", " ".repeat(*depth), row.key)).collect()
    }

    const TREE: [(&str, Option<usize>, u64); 5] = [
        ("root", None, 9),
        ("home", Some(0), 2),
        ("work", Some(0), 7),
        ("tv", Some(1), 1),
        ("phone", Some(1), 4),
    ];

    #[test]
    fn rows_stand_below_their_parents() {
        let table = table(&TREE);
        assert_eq!(keys(&table.arranged(None, "")), ["root", " home", "  tv", "  phone", " work"]);
    }

    #[test]
    fn siblings_are_sorted_and_the_tree_stays() {
        let table = table(&TREE);
        let by_count = Some(Sorting { column: 1, is_descending: true });
        assert_eq!(
            keys(&table.arranged(by_count, "")),
            ["root", " work", " home", "  phone", "  tv"]
        );
    }

    #[test]
    fn a_filter_keeps_matches_and_their_ancestors() {
        let table = table(&TREE);
        assert_eq!(keys(&table.arranged(None, "TV")), ["root", " home", "  tv"]);
        assert!(table.arranged(None, "no such thing").is_empty());
    }

    #[test]
    fn the_first_column_takes_the_rest_if_its_names_need_it() {
        let width = |room| {
            let mut table = table(&[("a site", None, 1), ("a subscriber", Some(0), 1)]);
            table.widen(room);
            table.columns[0].width
        };
        assert_eq!([width(10), width(15), width(17), width(100)], [8, 8, 10, 13]);
    }

    #[test]
    fn unknown_values_sort_last() {
        let cells = [Cell::number(None), Cell::number(Some(0.0)), Cell::number(Some(3.0))];
        assert!(cells.windows(2).all(|pair| pair[0].order(&pair[1]).is_lt()));
    }

    proptest! {
        #[test]
        fn sorting_loses_no_row_and_doubles_none(
            parents in proptest::collection::vec(proptest::option::of(0usize..1000), 1..60),
            column in 0usize..3,
            is_descending: bool,
        ) {
            let rows = parents.iter().enumerate().map(|(index, parent)| {
                let parent = parent.and_then(|parent| parent.checked_rem(index));
                let cells = vec![Cell::text("x"), Cell::count(index as u64 % 7)];
                Row::new(index.to_string(), parent, cells)
            });
            let table = Table { columns: COLUMNS.to_vec(), rows: rows.collect() };
            let arranged = table.arranged(Some(Sorting { column, is_descending }), "");
            let mut seen: Vec<usize> =
                arranged.iter().map(|(_, row)| row.key.parse().unwrap()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..parents.len()).collect::<Vec<_>>());
        }
    }
}
