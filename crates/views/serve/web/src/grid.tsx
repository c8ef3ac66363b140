// The table of subscribers, sites or hosts: only the rows in sight are there, the server sorts.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { count, digits, megabits, millis, percent, plural, UNKNOWN } from "./format";
import { useScreen } from "./live";
import { Mark, Section, Table } from "./parts";
import { points } from "./quality";
import { linkTo, type Route, setQuery } from "./route";
import type { Flow, Kind, Row, Side } from "./types";
import { bits, time } from "./format";

const ROW_PX = 30;
/** Windows begin at multiples of this. */
const STEP = 20;
/** After so long without scrolling, the stream follows, in milliseconds. */
const SETTLED_MS = 200;

interface Pair {
  key: string;
  label: string;
  unit: string;
  cell: (side: Side) => string;
  /** Left out on narrower screens: the larger, the earlier. */
  rank: number;
}

const PAIRS: Pair[] = [
  { key: "rate", label: "Rate", unit: "Mbit/s", cell: (side) => megabits(side.rate), rank: 0 },
  { key: "share", label: "Of ceiling", unit: "%", cell: (side) => percent(side.share).replace(" %", ""), rank: 1 },
  { key: "ceil", label: "Ceiling", unit: "Mbit/s", cell: (side) => megabits(side.ceil), rank: 4 },
  { key: "delay", label: "Delay p99", unit: "ms", cell: (side) => millis(side.delay), rank: 0 },
  { key: "median", label: "Delay median", unit: "ms", cell: (side) => millis(side.median), rank: 3 },
  { key: "round_trip", label: "Round trip", unit: "ms", cell: (side) => millis(side.round_trip), rank: 2 },
  { key: "beyond", label: "Lost beyond", unit: "%", cell: (side) => percent(side.beyond).replace(" %", ""), rank: 2 },
  { key: "drops", label: "Dropped here", unit: "packets/s", cell: (side) => digits(side.drops), rank: 2 },
  { key: "queued", label: "Queued", unit: "packets", cell: (side) => count(side.queued), rank: 3 },
];

const TITLES: Record<Kind, string> = { subscribers: "Subscribers", sites: "Sites", hosts: "Heaviest hosts" };
const SINGLE: Record<Kind, string> = { subscribers: "subscriber", sites: "site", hosts: "host" };

/** What is known of hosts. */
const OF_HOSTS = new Set(["rate", "delay", "median", "round_trip", "beyond"]);

export function Grid({ kind, route }: { kind: Kind; route: Route }) {
  const sort = route.query.get("sort") ?? (kind === "subscribers" ? "quality" : "rate_down");
  const isDescending = route.query.get("desc") !== "0";
  const search = route.query.get("search") ?? "";
  const site = route.query.get("site") ?? "";
  const scroller = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ first: 0, rows: 30 });
  const first = Math.max(Math.floor(seen.first / STEP) * STEP - STEP, 0);
  const limit = Math.min(Math.ceil((seen.rows + 3 * STEP) / STEP) * STEP, 200);
  const asked = new URLSearchParams({ kind, sort, desc: isDescending ? "1" : "0", search: search.slice(0, 100), site });
  const key = asked.toString();
  const [settled, setSettled] = useState({ key, first, limit });
  useEffect(() => {
    const timer = setTimeout(() => setSettled({ key, first, limit }), settled.key === key ? SETTLED_MS : 0);
    return () => clearTimeout(timer);
  }, [key, first, limit]);
  const live = useScreen(`view=rows&${settled.key}&offset=${settled.first}&limit=${settled.limit}`);

  // Rows by place. Those of another order stay until the first of the new one are here.
  const cache = useRef({ key: "", total: 0, rows: new Map<number, Row>() });
  const put = useCallback((of: string, total: number, offset: number, rows: Row[]) => {
    if (cache.current.key !== of) cache.current = { key: of, total, rows: new Map() };
    cache.current.total = total;
    rows.forEach((row, number) => cache.current.rows.set(offset + number, row));
  }, []);
  const { order, offset, total } = live.data;
  if (order && offset !== undefined && total !== undefined && settled.key === key) {
    put(key, total, offset, order.flatMap((id) => live.rows.get(id) ?? []));
  }
  // While it scrolls, a window is fetched at once.
  const [, redraw] = useState(0);
  const { current } = cache;
  const end = Math.min(seen.first + seen.rows, current.total);
  const isMissing = current.key === key && !Array.from({ length: Math.max(end - seen.first, 0) }).every((_, number) => current.rows.has(seen.first + number));
  useEffect(() => {
    if (!isMissing) return undefined;
    const abort = new AbortController();
    fetch(`api/rows?${key}&offset=${first}&limit=${limit}`, { signal: abort.signal, cache: "no-store" })
      .then((answer) => (answer.ok ? answer.json() : undefined))
      .then((window: { total: number; offset: number; rows: Row[] } | undefined) => {
        if (!window) return;
        put(key, window.total, window.offset, window.rows);
        redraw((number) => number + 1);
      })
      // It was scrolled on, or the server is gone, which the line on top says.
      .catch(() => undefined);
    return () => abort.abort();
  }, [isMissing, key, first, limit]);

  useLayoutEffect(() => {
    const node = scroller.current;
    if (!node) return undefined;
    const look = () => {
      const next = { first: Math.floor(node.scrollTop / ROW_PX), rows: Math.ceil(node.clientHeight / ROW_PX) + 1 };
      setSeen((was) => (was.first === next.first && was.rows === next.rows ? was : next));
    };
    look();
    node.addEventListener("scroll", look, { passive: true });
    const sized = new ResizeObserver(look);
    sized.observe(node);
    return () => {
      node.removeEventListener("scroll", look);
      sized.disconnect();
    };
  }, []);
  useEffect(() => scroller.current?.scrollTo(0, 0), [key]);

  const sortBy = (column: string) => {
    // Names from A, and the lowest score first: that is who suffers.
    const isAscending = ["name", "class", "site", "score"].includes(column);
    const desc = column === sort ? !isDescending : !isAscending;
    setQuery({ sort: column, desc: desc ? undefined : "0" });
  };
  const head = (column: string, label: string, extra = "", of = "") => (
    <th scope="col" class={extra} aria-sort={column === sort ? (isDescending ? "descending" : "ascending") : undefined}>
      <button type="button" onClick={() => sortBy(column)} title={`Sort by ${of}${label}`} aria-label={`${of}${label}`}>
        {label}<span aria-hidden="true" class="order">{column === sort ? (isDescending ? "▾" : "▴") : ""}</span>
      </button>
    </th>
  );
  const pairs = kind === "hosts" ? PAIRS.filter((pair) => OF_HOSTS.has(pair.key)) : PAIRS;
  const hasSite = kind === "subscribers";
  const from = Math.max(seen.first - 6, 0);
  const to = Math.min(seen.first + seen.rows + 6, current.total);
  const shown = Array.from({ length: Math.max(to - from, 0) }, (_, number) => from + number);
  return (
    <div class="screen">
      <Section
        title={TITLES[kind]}
        class="full"
        aside={
          <>
            <span id="total" role="status">{live.data.total === undefined && current.total === 0 ? "" : plural(current.total, SINGLE[kind])}</span>
            {search !== "" && <span> with “{search}” <button type="button" onClick={() => setQuery({ search: undefined })}>show all</button></span>}
            {site !== "" && <span> of {site} <button type="button" onClick={() => setQuery({ site: undefined })}>of all sites</button></span>}
          </>
        }
      >
        <div class={kind === "hosts" ? "grid short" : "grid"} ref={scroller} tabIndex={0} role="region" aria-label={TITLES[kind]}>
          <table aria-rowcount={current.total + 2}>
            <colgroup>
              <col class="c-name" />
              <col class="c-quality" />
              <col class="c-score r1" />
              {hasSite && <col class="c-site r3" />}
              {kind === "sites" && <col class="c-members r1" />}
              {pairs.flatMap((pair) => [<col class={`c-figure r${pair.rank}`} key={`${pair.key}d`} />, <col class={`c-figure r${pair.rank}`} key={`${pair.key}u`} />])}
            </colgroup>
            <thead>
              <tr aria-rowindex={1}>
                <th colSpan={2} />
                <th class="r1" />
                {hasSite && <th class="r3" />}
                {kind === "sites" && <th class="r1" />}
                {pairs.map((pair) => <th scope="colgroup" colSpan={2} key={pair.key} class={`r${pair.rank}`}>{pair.label}<br />{pair.unit}</th>)}
              </tr>
              <tr aria-rowindex={2}>
                {head("name", SINGLE[kind], "left")}
                {head("quality", "quality", "left quality")}
                {head("score", "score", "r1")}
                {hasSite && head("site", "site", "left r3")}
                {kind === "sites" && head("members", "members", "r1")}
                {pairs.flatMap((pair) => [head(`${pair.key}_down`, "down", `r${pair.rank} first`, `${pair.label}, `), head(`${pair.key}_up`, "up", `r${pair.rank}`, `${pair.label}, `)])}
              </tr>
            </thead>
            <tbody>
              {from > 0 && <tr aria-hidden="true" style={{ height: `${from * ROW_PX}px` }}><td /></tr>}
              {shown.map((place) => {
                const row = current.rows.get(place);
                if (!row) return <tr key={place} class="empty" aria-rowindex={place + 3}><td>…</td></tr>;
                return (
                  <tr key={place} aria-rowindex={place + 3} data-id={row.id}>
                    <th scope="row" title={row.class ? `${row.name} (${row.class})` : row.name}><a href={linkTo(kind, row.id)}>{row.name}</a></th>
                    <td class="left"><Mark quality={row.quality} /></td>
                    <td class="score r1" title={row.score && `${row.score.application}${row.score.because && `: ${row.score.because}`}`}>{points(row.score?.percent)}</td>
                    {hasSite && <td class="left r3">{row.site ?? ""}</td>}
                    {kind === "sites" && <td class="r1">{count(row.members)}</td>}
                    {pairs.flatMap((pair) => [
                      <td key={`${pair.key}d`} class={`r${pair.rank} first`}>{row.down ? pair.cell(row.down) : UNKNOWN}</td>,
                      <td key={`${pair.key}u`} class={`r${pair.rank}`}>{row.up ? pair.cell(row.up) : UNKNOWN}</td>,
                    ])}
                  </tr>
                );
              })}
              {to < current.total && <tr aria-hidden="true" style={{ height: `${(current.total - to) * ROW_PX}px` }}><td /></tr>}
            </tbody>
          </table>
          {current.key === key && current.total === 0 && <p class="none">{nothing(kind, search)}</p>}
        </div>
      </Section>
      {kind === "hosts" && <Section title="Heaviest flows"><Flows flows={live.data.flows ?? []} /></Section>}
    </div>
  );
}

function nothing(kind: Kind, search: string): string {
  if (search !== "") return `No ${SINGLE[kind]} has “${search}” in its name, class, site or addresses.`;
  if (kind === "hosts") return "No host sent anything in the last seconds.";
  return kind === "sites" ? "No class has classes below." : "There are no classes: see the hosts.";
}

export function Flows({ flows }: { flows: Flow[] }) {
  return (
    <Table
      label="Heaviest flows"
      heads={["flow", "leaves", "rate", "delay median", "delay p99"]}
      rows={flows.map((flow) => [flow.name, flow.port, bits(flow.rate), time(flow.median), time(flow.delay)])}
      none="No flow sent enough in the last seconds."
    />
  );
}
