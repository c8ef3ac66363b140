// Where the page is: `#/subscribers?sort=delay_down`. Each screen has an address.
import { useEffect, useState } from "preact/hooks";
import type { Kind } from "./types";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

function parse(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const decode = (part: string) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return { path: path.split("/").filter((part) => part !== "").map(decode), query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(parse);
  useEffect(() => {
    const changed = () => setRoute(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

const ONE: Record<Kind, string> = { subscribers: "subscriber", sites: "site", hosts: "host" };

export const linkTo = (kind: Kind, id: string): string => `#/${ONE[kind]}/${encodeURIComponent(id)}`;

export function kindOf(word: string | undefined): Kind | undefined {
  return (Object.keys(ONE) as Kind[]).find((kind) => ONE[kind] === word);
}

/** Changes the query of the screen, without a step in the browser's history. */
export function setQuery(changes: Record<string, string | undefined>, path?: string): void {
  const [now = "#/", query = ""] = location.hash.split("?");
  const next = new URLSearchParams(path === undefined ? query : "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  const hash = (path ?? now) + (text === "" ? "" : `?${text}`);
  if (path === undefined) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = hash;
  }
}
