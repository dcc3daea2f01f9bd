// SPDX-License-Identifier: Apache-2.0
import { ActionIcon, Anchor, TextInput, Tooltip, useMantineColorScheme } from "@mantine/core";
import type { KeyboardEvent } from "react";
import { useEffect, useState } from "react";
import { Link, useLocation } from "wouter";

import { useLive } from "../live";
import { useParams } from "../url";

const pages = [
  { path: "/", title: "Fabric", key: "g f" },
  { path: "/workloads", title: "Workloads", key: "g w" },
  { path: "/gangs", title: "Gangs", key: "g g" },
  { path: "/pools", title: "Pools", key: "g p" },
];

export function Header({ onHelp }: { onHelp: () => void }) {
  const [location] = useLocation();
  const current = (path: string) => (path === "/" ? location === "/" || location.startsWith("/nodes/") : location.startsWith(path));
  return (
    <header>
      <Link href="/" className="brand" aria-label="nvtopo, to the fabric map">
        <img src="/icon.svg" alt="" width="20" height="20" /> nvtopo
      </Link>
      <nav aria-label="Pages">
        {pages.map((p) => (
          <Anchor
            key={p.path}
            component={Link}
            href={p.path}
            className="nav"
            aria-current={current(p.path) ? "page" : undefined}
            title={`Keys: ${p.key}`}
          >
            {p.title}
          </Anchor>
        ))}
      </nav>
      <Search />
      <Status />
      <Scheme />
      <Tooltip label="Keys (?)">
        <ActionIcon variant="default" aria-label="Show the keys" onClick={onHelp}>
          ?
        </ActionIcon>
      </Tooltip>
    </header>
  );
}

// Pages whose lists are filtered while one types.
const filtered = ["/", "/workloads", "/gangs", "/pools"];

function Search() {
  const [location, navigate] = useLocation();
  const [query, setParams] = useParams();
  const [text, setText] = useState("");
  const here = filtered.includes(location);
  const shown = here ? (query.get("q") ?? "") : text;
  const onKeyDown = (e: KeyboardEvent<HTMLInputElement>) => {
    if (e.key === "Escape") e.currentTarget.blur();
    if (e.key !== "Enter") return;
    if (here) document.querySelector<HTMLElement>("main [role=grid], main [role=treegrid], main [role=listbox]")?.focus();
    else navigate(`/workloads?q=${encodeURIComponent(text)}`);
  };
  return (
    <TextInput
      id="search"
      className="search"
      size="xs"
      type="search"
      aria-label="Search by name"
      placeholder="Search  ( / )"
      value={shown}
      onChange={(e) => (here ? setParams({ q: e.currentTarget.value }, true) : setText(e.currentTarget.value))}
      onKeyDown={onKeyDown}
    />
  );
}

const words = { connecting: "connecting", live: "live", retrying: "not connected", unauthorised: "no access" };

/** Whether what is shown is live. The same is on the html element, for tests. */
function Status() {
  const version = useLive((l) => l.cluster?.version ?? 0);
  const state = useLive((l) => l.state);
  useEffect(() => {
    document.documentElement.dataset.connection = state;
    document.documentElement.dataset.version = String(version);
  }, [state, version]);
  return (
    <span className={`status status-${state}`} role="status">
      <span className="dot" aria-hidden="true" />
      {words[state]}
    </span>
  );
}

const schemes = ["auto", "light", "dark"] as const;
const schemeSigns = { auto: "◐", light: "☀", dark: "☾" };

/** Light, dark, or as the system has it. */
function Scheme() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const next = schemes[(schemes.indexOf(colorScheme) + 1) % schemes.length] ?? "auto";
  const label = `Colours: ${colorScheme === "auto" ? "as the system" : colorScheme}; switch to ${next === "auto" ? "the system's" : next}`;
  return (
    <Tooltip label={label}>
      <ActionIcon variant="default" aria-label={label} onClick={() => setColorScheme(next)}>
        {schemeSigns[colorScheme]}
      </ActionIcon>
    </Tooltip>
  );
}
