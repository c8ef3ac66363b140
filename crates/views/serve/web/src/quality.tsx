// What a line is good for: Quality of Outcome and responsiveness, as the server computes them.
import { useEffect, useState } from "preact/hooks";
import { count, UNKNOWN } from "./format";
import { live } from "./live";
import { Section, Table } from "./parts";
import type { Figure, Score } from "./types";

/** What `/api/quality` says of the last quarter of an hour. */
interface Kept {
  scores: Score[];
  responsiveness: { port: string; rpm: number | null; loaded_intervals: number; meaning: string }[];
}

/** So often the last quarter of an hour is asked for, in milliseconds. */
const AGAIN_MS = 60_000;

export const points = (percent: Figure): string => (typeof percent === "number" ? `${Math.round(percent)} %` : UNKNOWN);

/** The last quarter of an hour, where the server keeps a history. */
function useKept(id: string, hasName: boolean): Kept | undefined {
  const [kept, setKept] = useState<{ id: string; is: Kept | undefined }>({ id, is: undefined });
  useEffect(() => {
    if (!hasName) return undefined;
    const abort = new AbortController();
    const ask = () => {
      fetch(`api/quality?${new URLSearchParams({ subject: id })}`, { signal: abort.signal, cache: "no-store" })
        .then((answer) => (answer.ok ? (answer.json() as Promise<Kept>) : undefined))
        .then((is) => setKept({ id, is }))
        // The server is gone, which the line on top says.
        .catch(() => undefined);
    };
    ask();
    const timer = setInterval(ask, AGAIN_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id, hasName]);
  return kept.id === id ? kept.is : undefined;
}

export function Outcomes({ id, hasName, scores }: { id: string; hasName: boolean; scores: Score[] }) {
  const kept = useKept(id, hasName);
  const rows = scores.map((now, number) => {
    const before = kept?.scores[number];
    const said = before && before.percent !== null ? before : now;
    const missing = said.percent === null && said.missing ? ` Unknown: ${said.missing.join(", ")}.` : "";
    return [now.application, points(now.percent), ...(kept ? [points(before?.percent)] : []), `${said.meaning}${missing}`];
  });
  const busy = (kept?.responsiveness ?? []).filter((one) => one.rpm !== null);
  return (
    <Section title="What it is good for" class="wide outcomes" aside={<span>100 %: no better network helps</span>}>
      <Table label="Quality of Outcome" text heads={["application", "last second", ...(kept ? ["last 15 min"] : []), "which means"]} rows={rows} none="" />
      {busy.map((one) => (
        <p key={one.port} class="rpm">
          Responsiveness while what leaves {one.port} is busy: <b>{count(one.rpm)} round trips/min</b>. {one.meaning}
        </p>
      ))}
    </Section>
  );
}

const shares = (share: number): string => `${Math.round(share * 100)} %`;

/** The scale in words, for the help. */
export function Scale() {
  const { scale } = live;
  if (!scale) return <p class="none">Waiting for the server.</p>;
  const text = scale.steps.map(({ step, delay, dropped }) => `${step}: at most ${delay / 1000} ms and ${shares(dropped)}`);
  return (
    <>
      <p>
        The worse one of two figures of the last second, over both directions: the delay here (p99) and the share of packets dropped here.
        {` ${text.join("; ")}; bad: more.`} Loss and round trips beyond this box are shown, and are no part of it.
      </p>
      <p>
        The score is Quality of Outcome over the whole path, of {scale.applications.join(", ")} the one that suffers most: at 100 % no better network helps, at 0 % it is unusable. It needs round trips and losses.
      </p>
    </>
  );
}
