// The page of `narrows serve`: what is on every screen, and which screen is shown.
//
// All text that comes from the instance is set as text, never as HTML. Figures come over one stream
// of events, made on the server; the page keeps the last minutes of them and draws.
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Box } from "./box";
import { clock, duration } from "./format";
import { Grid } from "./grid";
import { live, useLive } from "./live";
import { Now } from "./now";
import { One } from "./one";
import { Scale } from "./quality";
import { kindOf, type Route, setQuery, useRoute } from "./route";
import type { Kind } from "./types";

const SCREENS: [string, string, string][] = [
  ["", "Now", "n"],
  ["subscribers", "Subscribers", "s"],
  ["sites", "Sites", "i"],
  ["hosts", "Hosts", "h"],
  ["box", "Box", "b"],
];

const SPANS: [string, string, number][] = [
  ["1", "5 min", 300],
  ["2", "15 min", 900],
  ["3", "1 h", 3600],
];

const KEYS: [string, string][] = [
  ["n s i h b", "now, subscribers, sites, hosts, box"],
  ["/", "search"],
  ["1 2 3", "charts of 5 min, 15 min, 1 h"],
  ["j k", "next row, previous row"],
  ["Enter", "open the row"],
  ["u", "one up: from a subscriber to the table"],
  ["p", "pause, and go on"],
  ["?", "these keys"],
  ["Esc", "close this; leave the search"],
];

function Screen({ route, span }: { route: Route; span: number }) {
  const [first, id] = route.path;
  const kind = kindOf(first);
  if (kind && id !== undefined) return <One kind={kind} id={id} />;
  if (first === undefined) return <Now span={span} />;
  if (first === "box") return <Box />;
  if (["subscribers", "sites", "hosts"].includes(first)) return <Grid key={first} kind={first as Kind} route={route} />;
  return <p class="none">There is no such screen. <a href="#/">Now</a></p>;
}

function State() {
  useLive();
  const { standing } = live;
  if (live.isPaused) {
    return <Banner level="warning" title="Paused" detail={`These are the figures of ${clock(live.time)}. Key p goes on.`} />;
  }
  if (live.isLost || (live.heard > 0 && !live.isFresh)) {
    return (
      <Banner level="bad" title="No answer" detail={`narrows serve does not answer: the figures are those of ${live.time > 0 ? clock(live.time) : "an earlier time"}. Whether traffic is shaped is not known.`} />
    );
  }
  if (!standing) return <Banner level="warning" title="Connecting" detail="" />;
  const old = standing.stale_since === undefined ? "" : ` The figures below are those of ${clock(standing.stale_since)}.`;
  return (
    <>
      <Banner level={standing.level} title={standing.title} running={standing.uptime_s} detail={standing.detail + old} />
      {standing.warnings.map((text) => <p key={text} class="banner warning" role="alert"><b>Warning</b> {text}</p>)}
    </>
  );
}

function Banner({ level, title, running, detail }: { level: string; title: string; running?: number; detail: string }) {
  // Old figures look old.
  useEffect(() => {
    document.body.classList.toggle("is-old", level === "bad");
  }, [level]);
  return (
    <div class={`banner ${level}`}>
      {/* Without the time that it has run, which would be read out each second. */}
      <span class="unseen" role="status">{title}. {detail}</span>
      <p aria-hidden="true"><b>{title}{running === undefined ? "" : ` for ${duration(running)}`}.</b> <span>{detail}</span></p>
    </div>
  );
}

function Header({ route, span }: { route: Route; span: number }) {
  const [first] = route.path;
  const here = first === undefined ? "" : kindOf(first) ?? first;
  const input = useRef<HTMLInputElement>(null);
  const timer = useRef(0);
  const search = route.query.get("search") ?? "";
  useEffect(() => {
    if (input.current && document.activeElement !== input.current) input.current.value = search;
  }, [search]);
  const searched = () => {
    const text = input.current?.value ?? "";
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const isTable = ["subscribers", "sites", "hosts"].includes(first ?? "");
      setQuery({ search: text }, isTable ? undefined : "#/subscribers");
    }, 120);
  };
  return (
    <header>
      <h1><a href="#/">Narrows</a></h1>
      <nav aria-label="Screens">
        {SCREENS.map(([path, name]) => (
          <a key={path} href={`#/${path}`} aria-current={here === path ? "page" : undefined}>{name}</a>
        ))}
      </nav>
      <input ref={input} id="search" type="search" placeholder="name, class, site, address  ( / )" aria-label="Search by name, class, site or address" maxLength={100} onInput={searched} />
      <div class="spans" role="group" aria-label="Time shown in charts">
        {SPANS.map(([key, name, seconds]) => (
          <button type="button" key={key} aria-pressed={span === seconds} onClick={() => setQuery({ span: seconds === 300 ? undefined : String(seconds) })} hidden={first !== undefined}>{name}</button>
        ))}
        <Pause />
        <button type="button" aria-label="Keys" title="Keys" onClick={help}>?</button>
      </div>
    </header>
  );
}

function Pause() {
  useLive();
  return <button type="button" id="pause" aria-pressed={live.isPaused} onClick={() => live.pause()}>Pause</button>;
}

const dialog = () => document.getElementById("help") as HTMLDialogElement;
const help = () => (dialog().open ? dialog().close() : dialog().showModal());

function Help() {
  useLive();
  return (
    <dialog id="help" aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl>
        {KEYS.map(([keys, what]) => (
          <div key={keys}><dt>{keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>
        ))}
      </dl>
      <h2>Quality</h2>
      <Scale />
      <form method="dialog"><button>Close</button></form>
    </dialog>
  );
}

function moveRow(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>("tbody th[scope=row] a")];
  const at = links.indexOf(document.activeElement as HTMLAnchorElement);
  links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

function pressed(event: KeyboardEvent, route: Route): void {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog().open) return;
  const input = document.getElementById("search");
  if (event.target instanceof HTMLInputElement) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const screen = SCREENS.find(([, , key]) => key === event.key);
  const span = SPANS.find(([key]) => key === event.key);
  if (screen) location.hash = `#/${screen[0]}`;
  else if (span && route.path.length === 0) setQuery({ span: span[2] === 300 ? undefined : String(span[2]) });
  else if (event.key === "/") {
    event.preventDefault();
    input?.focus();
  } else if (event.key === "p") live.pause();
  else if (event.key === "?") help();
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "u" && route.path.length === 2) location.hash = `#/${kindOf(route.path[0]) ?? ""}`;
}

function App() {
  const route = useRoute();
  const span = Math.min(Math.max(Number(route.query.get("span") ?? 300) || 300, 60), 3600);
  useEffect(() => {
    const key = (event: KeyboardEvent) => pressed(event, route);
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [route]);
  useEffect(() => {
    const name = route.path[1] ?? SCREENS.find(([path]) => path === (route.path[0] ?? ""))?.[1] ?? "";
    document.title = `${name} – Narrows`;
  }, [route]);
  return (
    <>
      <Header route={route} span={span} />
      <State />
      <main><Screen route={route} span={span} /></main>
      <footer>
        Data: <a href="metrics">metrics</a>, <a href="api/snapshot">snapshot</a>, <a href="api/history">history</a>, <a href="api/rows">rows</a>. Keys: <kbd>?</kbd>
      </footer>
      <Help />
    </>
  );
}

const page = document.getElementById("page");
if (page) {
  page.replaceChildren();
  render(<App />, page);
}
