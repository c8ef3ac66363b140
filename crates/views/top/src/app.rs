//! The state behind the screen, updated by snapshots and keys.

use crate::chart::Charted;
use crate::spark::History;
use crate::table::{Arrangement, Placed, Sorting, Table};
use crate::view::View;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use narrows_snapshot::{Change, Port, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// How many rows a page key moves.
const PAGE: isize = 10;

/// News from an instance.
#[derive(Clone, Debug)]
pub enum Feed {
    /// Its present state.
    Snapshot(Box<Snapshot>),
    /// It does not answer, for this reason.
    Gone(String),
}

/// The use of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Table,
    /// A filter is being typed.
    Filter,
    /// The details of one row are shown.
    Details,
    Help,
}

/// The state behind the screen.
#[derive(Clone, Debug)]
pub struct App {
    view: View,
    mode: Mode,
    earlier: Option<Snapshot>,
    now: Option<Snapshot>,
    gone: Option<String>,
    /// Whether the next snapshot may be from another instance, whose counters restarted.
    is_another: bool,
    is_paused: bool,
    is_done: bool,
    filter: String,
    sortings: BTreeMap<View, Sorting>,
    /// The key of the row selected in each view.
    selected: BTreeMap<View, String>,
    /// The history of each port's rate.
    delivered: BTreeMap<String, History>,
    /// Whether rows are one list instead of a tree.
    is_flat: bool,
    /// The keys of the rows in each view that hide what is below them.
    folded: BTreeMap<View, BTreeSet<String>>,
    /// The histories of the row whose details are shown, one for each chart of the view.
    watched: Vec<History>,
}

impl App {
    /// Before the first snapshot, showing `view`.
    pub fn new(view: View) -> Self {
        Self {
            view,
            mode: Mode::Table,
            earlier: None,
            now: None,
            gone: None,
            is_another: false,
            is_paused: false,
            is_done: false,
            filter: String::new(),
            sortings: BTreeMap::new(),
            selected: BTreeMap::new(),
            delivered: BTreeMap::new(),
            is_flat: false,
            folded: BTreeMap::new(),
            watched: Vec::new(),
        }
    }

    /// Handles news from the instance. While paused, snapshots are ignored: the first rates
    /// afterwards are means over the pause.
    pub fn feed(&mut self, feed: Feed) {
        match feed {
            Feed::Gone(reason) => {
                self.gone = Some(reason);
                self.is_another = true;
            }
            Feed::Snapshot(_) if self.is_paused => self.gone = None,
            Feed::Snapshot(snapshot) => {
                let was = self.now.replace(*snapshot);
                self.earlier = was.filter(|_| !self.is_another);
                self.gone = None;
                self.is_another = false;
                self.remember();
            }
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.is_done |= key.code == KeyCode::Char('c');
            return;
        }
        match (self.mode, key.code) {
            (Mode::Filter, code) => self.filter_key(code),
            (_, KeyCode::Char('q')) => self.is_done = true,
            (Mode::Help, _) => self.mode = Mode::Table,
            (_, KeyCode::Char('?')) => self.mode = Mode::Help,
            (_, KeyCode::Char('p' | ' ')) => self.is_paused = !self.is_paused,
            (Mode::Details, KeyCode::Esc | KeyCode::Backspace | KeyCode::Left) => {
                self.mode = Mode::Table;
            }
            (Mode::Details, KeyCode::Enter) => {}
            (mode, code) => self.table_key(mode, code),
        }
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn table_key(&mut self, mode: Mode, code: KeyCode) {
        match code {
            KeyCode::Tab => self.show(1),
            KeyCode::BackTab => self.show(-1),
            KeyCode::Char(digit @ '1'..='9') => {
                let view = View::ALL[digit as usize - '1' as usize];
                match self.view.tab() == view && view == View::Classes {
                    true => self.turn_both(),
                    false => self.view = view,
                }
                self.mode = Mode::Table;
            }
            KeyCode::Char('0') => {
                self.view = View::Fleet;
                self.mode = Mode::Table;
            }
            KeyCode::Char('b') => self.turn_both(),
            KeyCode::Char('f') => self.turn_flat(),
            KeyCode::Left | KeyCode::Char('-') if mode == Mode::Table => self.fold(true),
            KeyCode::Char('+') if mode == Mode::Table => self.fold(false),
            KeyCode::Right if mode == Mode::Table && self.is_folded() => self.fold(false),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            KeyCode::Enter | KeyCode::Right if mode == Mode::Table => {
                self.watch();
                self.mode = Mode::Details;
            }
            KeyCode::Char('/') => {
                self.filter.clear();
                self.mode = Mode::Filter;
            }
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('r') => {
                if let Some(sorting) = self.sortings.get_mut(&self.view) {
                    sorting.is_descending = !sorting.is_descending;
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, step: isize) {
        let all = View::ALL.len() as isize;
        let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0) as isize;
        self.view = View::ALL[(at + step).rem_euclid(all) as usize];
        self.mode = Mode::Table;
    }

    /// Turns from the tree of each port to both directions in a row, and back.
    fn turn_both(&mut self) {
        self.view = if self.view == View::Both { View::Classes } else { View::Both };
        self.mode = Mode::Table;
    }

    /// Turns from the tree to one list and back. A list of all begins with the most of something:
    /// without a sorting, with what is charted first.
    fn turn_flat(&mut self) {
        self.is_flat = !self.is_flat;
        if let (true, Some(chart)) = (self.is_flat, self.view.charts().first()) {
            let most = Sorting { column: chart.column, is_descending: true };
            self.sortings.entry(self.view).or_insert(most);
        }
    }

    /// Whether the selected row hides others.
    fn is_folded(&self) -> bool {
        let folded = self.folded.get(&self.view);
        self.selected_key().zip(folded).is_some_and(|(key, folded)| folded.contains(key))
    }

    /// Hides what is below the selected row, or shows it. A row with nothing below it, or which
    /// hides it already, leads to the one above it instead.
    fn fold(&mut self, hides: bool) {
        let Some(table) = self.table() else { return };
        let Some(key) = self.placed(&table).first().map(|first| first.row.key.clone()) else {
            return;
        };
        let key = self.selected_key().map_or(key, str::to_owned);
        let Some(at) = table.rows.iter().position(|row| row.key == key) else { return };
        let has_rows = table.rows.iter().any(|row| row.parent == Some(at));
        let above = table.rows[at].parent.map(|parent| table.rows[parent].key.clone());
        let folded = self.folded.entry(self.view).or_default();
        if !hides {
            folded.remove(&key);
        } else if has_rows && !self.is_flat && folded.insert(key) {
            // It is hidden now.
        } else if let Some(above) = above.filter(|_| !self.is_flat) {
            self.selected.insert(self.view, above);
        }
    }

    /// Sorts by the next column, and after the last one in the instance's order. Numbers start with
    /// the largest.
    fn sort_next(&mut self) {
        let columns = self.table().map_or(0, |table| table.columns.len());
        let column = self.sortings.get(&self.view).map_or(0, |sorting| sorting.column + 1);
        if column < columns {
            self.sortings.insert(self.view, Sorting { column, is_descending: column > 0 });
        } else {
            self.sortings.remove(&self.view);
        }
    }

    fn move_by(&mut self, steps: isize) {
        let Some(table) = self.table() else { return };
        let rows = self.placed(&table);
        let at = self.position(&rows);
        let to = (at as isize).saturating_add(steps).clamp(0, rows.len().max(1) as isize - 1);
        if let Some(placed) = rows.get(to as usize) {
            let key = placed.row.key.clone();
            self.selected.insert(self.view, key);
            self.watch();
        }
    }

    /// The index of the selected row among `rows`; the first if it is missing.
    pub(crate) fn position(&self, rows: &[Placed<'_>]) -> usize {
        let selected = self.selected.get(&self.view);
        selected.and_then(|key| rows.iter().position(|it| it.row.key == *key)).unwrap_or(0)
    }

    /// The rows of `table` that are shown, in order.
    pub(crate) fn placed<'a>(&self, table: &'a Table) -> Vec<Placed<'a>> {
        table.arranged(&Arrangement {
            sorting: self.sorting(),
            filter: &self.filter,
            is_flat: self.is_flat,
            folded: self.folded.get(&self.view),
        })
    }

    /// Starts histories of the selected row.
    fn watch(&mut self) {
        self.watched = vec![History::default(); self.view.charts().len()];
        if let (None, Some(table)) = (self.selected.get(&self.view), self.table())
            && let Some(first) = self.placed(&table).first()
        {
            let key = first.row.key.clone();
            self.selected.insert(self.view, key);
        }
    }

    /// Adds the present rates to the histories.
    fn remember(&mut self) {
        let Some(now) = &self.now else { return };
        let change = self.change();
        let ports: Vec<(String, Option<f64>)> = now
            .ports
            .iter()
            .map(|port| (port.name.clone(), change.as_ref().and_then(|it| it.of_port(port).tx_bps)))
            .collect();
        self.delivered.retain(|name, _| ports.iter().any(|(port, _)| port == name));
        let figures = if self.mode == Mode::Details { self.charted() } else { Vec::new() };
        for (name, rate) in ports {
            self.delivered.entry(name).or_default().push(rate);
        }
        for (history, figure) in self.watched.iter_mut().zip(figures) {
            history.push(figure);
        }
    }

    /// The figures of the selected row that its view charts.
    fn charted(&self) -> Vec<Option<f64>> {
        let table = self.table();
        let key = self.selected_key();
        let row = table.iter().flat_map(|table| &table.rows).find(|row| Some(&*row.key) == key);
        let figure = |chart: &Charted| row?.cells.get(chart.column)?.value();
        self.view.charts().iter().map(figure).collect()
    }

    /// Whether the user wants to quit.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub(crate) fn view(&self) -> View {
        self.view
    }

    pub(crate) fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }

    pub(crate) fn change(&self) -> Option<Change<'_>> {
        Change::between(self.earlier.as_ref()?, self.now.as_ref()?)
    }

    /// Why the instance does not answer, if it does not.
    pub(crate) fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(crate) fn shows_help(&self) -> bool {
        self.mode == Mode::Help
    }

    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    pub(crate) fn is_typing(&self) -> bool {
        self.mode == Mode::Filter
    }

    pub(crate) fn sorting(&self) -> Option<Sorting> {
        self.sortings.get(&self.view).copied()
    }

    pub(crate) fn delivered(&self, port: &Port) -> Option<&History> {
        self.delivered.get(&port.name)
    }

    /// The table of the present view.
    pub(crate) fn table(&self) -> Option<Table> {
        Some(self.view.table(self.now.as_ref()?, self.change().as_ref()))
    }

    /// The key of the row whose details are shown, and its charts since then.
    pub(crate) fn details(&self) -> Option<(&str, Vec<(Charted, &History)>)> {
        let is_shown = self.mode == Mode::Details;
        let charts = self.view.charts().iter().copied().zip(&self.watched);
        self.selected_key().filter(|_| is_shown).map(|key| (key, charts.collect()))
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.is_flat
    }

    fn selected_key(&self) -> Option<&str> {
        self.selected.get(&self.view).map(String::as_str)
    }
}
