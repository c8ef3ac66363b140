//! A table whose rows may form a tree, with sorting and filtering.

use crate::cell::Cell;
use std::collections::BTreeSet;

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

/// Which rows of a table are shown, and in which order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrangement<'a> {
    /// None: in the table's order.
    pub(crate) sorting: Option<Sorting>,
    /// Only rows that contain it, and what they stand below.
    pub(crate) filter: &'a str,
    /// Rows without others below them, as a list: the first of all, wherever they stand.
    pub(crate) is_flat: bool,
    /// The keys of rows whose descendants are hidden, unless a filter looks for them.
    pub(crate) folded: Option<&'a BTreeSet<String>>,
}

/// A row where it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) row: &'a Row,
    /// How many rows it stands below.
    pub(crate) depth: usize,
    /// How many rows are hidden below it.
    pub(crate) hidden: usize,
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

    /// How many columns of characters its columns take.
    pub(crate) fn width(&self) -> usize {
        self.columns.iter().map(|column| column.width + 1).sum::<usize>().saturating_sub(1)
    }

    /// The rows in order: those whose text contains the filter, ignoring case, and their ancestors.
    /// Siblings are sorted among themselves; without the tree, all rows.
    pub(crate) fn arranged(&self, how: &Arrangement<'_>) -> Vec<Placed<'_>> {
        let kept = self.kept(&how.filter.to_lowercase());
        if how.is_flat {
            let has_rows = self.has_rows_below();
            let mut rows: Vec<usize> = (0..self.rows.len())
                .filter(|&row| !has_rows[row] && self.contains(row, how.filter))
                .collect();
            self.sort(&mut rows, how.sorting);
            let placed = |row: usize| Placed { row: &self.rows[row], depth: 0, hidden: 0 };
            return rows.into_iter().map(placed).collect();
        }
        let mut below = vec![Vec::new(); self.rows.len() + 1];
        let tops = self.rows.len();
        for (index, row) in self.rows.iter().enumerate().filter(|(index, _)| kept[*index]) {
            below[row.parent.unwrap_or(tops)].push(index);
        }
        below.iter_mut().for_each(|rows| self.sort(rows, how.sorting));
        let folded = how.folded.filter(|_| how.filter.is_empty());
        let is_folded = |row: usize| folded.is_some_and(|all| all.contains(&self.rows[row].key));
        let mut arranged: Vec<Placed<'_>> = Vec::new();
        let mut to_do: Vec<(usize, usize)> =
            below[tops].iter().rev().map(|&row| (0, row)).collect();
        while let Some((depth, row)) = to_do.pop() {
            let hidden = if is_folded(row) { descendants(&below, row) } else { 0 };
            arranged.push(Placed { row: &self.rows[row], depth, hidden });
            if hidden == 0 {
                to_do.extend(below[row].iter().rev().map(|&row| (depth + 1, row)));
            }
        }
        arranged
    }

    fn sort(&self, rows: &mut [usize], sorting: Option<Sorting>) {
        let Some(Sorting { column, is_descending }) = sorting else { return };
        rows.sort_by(|&one, &other| {
            let cell = |index: usize| self.rows[index].cells.get(column);
            let order = match (cell(one), cell(other)) {
                (Some(one), Some(other)) => one.order(other),
                _ => std::cmp::Ordering::Equal,
            };
            if is_descending { order.reverse() } else { order }
        });
    }

    fn has_rows_below(&self) -> Vec<bool> {
        let mut has = vec![false; self.rows.len()];
        self.rows.iter().filter_map(|row| row.parent).for_each(|parent| has[parent] = true);
        has
    }

    /// The column with this name, ignoring case.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn contains(&self, row: usize, filter: &str) -> bool {
        let (row, filter) = (&self.rows[row], filter.to_lowercase());
        row.key.to_lowercase().contains(&filter)
            || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&filter))
    }

    /// Whether each row is kept.
    fn kept(&self, filter: &str) -> Vec<bool> {
        let mut kept: Vec<bool> =
            (0..self.rows.len()).map(|row| self.contains(row, filter)).collect();
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

/// How many rows stand below `row`, at any depth.
fn descendants(below: &[Vec<usize>], row: usize) -> usize {
    let mut to_do = vec![row];
    let mut count = 0;
    while let Some(row) = to_do.pop() {
        count += below[row].len();
        to_do.extend(&below[row]);
    }
    count
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

    fn keys(rows: &[Placed<'_>]) -> Vec<String> {
        rows.iter().map(|it| format!("{}{}", " ".repeat(it.depth), it.row.key)).collect()
    }

    const TREE: [(&str, Option<usize>, u64); 5] = [
        ("root", None, 9),
        ("home", Some(0), 2),
        ("work", Some(0), 7),
        ("tv", Some(1), 1),
        ("phone", Some(1), 4),
    ];

    fn looking_for(filter: &str) -> Arrangement<'_> {
        Arrangement { filter, ..Arrangement::default() }
    }

    #[test]
    fn a_folded_row_hides_what_is_below_it_unless_a_filter_looks_for_it() {
        let table = table(&TREE);
        let folded = ["home".to_owned()].into();
        let arranged = table.arranged(&Arrangement { folded: Some(&folded), ..looking_for("") });
        assert_eq!(keys(&arranged), ["root", " home", " work"]);
        assert_eq!(arranged.iter().map(|it| it.hidden).collect::<Vec<_>>(), [0, 2, 0]);
        let found = table.arranged(&Arrangement { folded: Some(&folded), ..looking_for("tv") });
        assert_eq!(keys(&found), ["root", " home", "  tv"]);
    }

    #[test]
    fn without_the_tree_rows_with_nothing_below_them_are_one_list() {
        let table = table(&TREE);
        let sorting = Some(Sorting { column: 1, is_descending: true });
        let flat = Arrangement { sorting, is_flat: true, ..looking_for("") };
        assert_eq!(keys(&table.arranged(&flat)), ["work", "phone", "tv"]);
        assert_eq!(keys(&table.arranged(&Arrangement { filter: "o", ..flat })), ["work", "phone"]);
    }

    #[test]
    fn rows_stand_below_their_parents() {
        let table = table(&TREE);
        assert_eq!(
            keys(&table.arranged(&Arrangement::default())),
            ["root", " home", "  tv", "  phone", " work"]
        );
    }

    #[test]
    fn siblings_are_sorted_and_the_tree_stays() {
        let table = table(&TREE);
        let by_count = Some(Sorting { column: 1, is_descending: true });
        assert_eq!(
            keys(&table.arranged(&Arrangement { sorting: by_count, ..Arrangement::default() })),
            ["root", " work", " home", "  phone", "  tv"]
        );
    }

    #[test]
    fn a_filter_keeps_matches_and_their_ancestors() {
        let table = table(&TREE);
        assert_eq!(keys(&table.arranged(&looking_for("TV"))), ["root", " home", "  tv"]);
        assert!(table.arranged(&looking_for("no such thing")).is_empty());
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
            let sorting = Some(Sorting { column, is_descending });
            let arranged = table.arranged(&Arrangement { sorting, ..Arrangement::default() });
            let mut seen: Vec<usize> =
                arranged.iter().map(|it| it.row.key.parse().unwrap()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..parents.len()).collect::<Vec<_>>());
        }
    }
}
