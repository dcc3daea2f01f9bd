// SPDX-License-Identifier: Apache-2.0
import { useCallback, useMemo } from "react";
import { useLocation } from "wouter";

import type { GangSum } from "../api";
import { fullName } from "../api";
import { Bar } from "../components/Bar";
import { PageTitle } from "../components/PageTitle";
import { EmptyState, ErrorState, Loading } from "../components/states";
import type { Column } from "../components/VirtualGrid";
import { VirtualGrid } from "../components/VirtualGrid";
import { crossingsText, millis } from "../gang";
import { useLive } from "../live";
import { gangPath, useParams } from "../url";
import { useFetched } from "../useFetched";

/** The gangs; `q` is a search. */
export function GangsPage() {
  const installed = useLive((l) => l.cluster?.features.gangs ?? false);
  return (
    <>
      <PageTitle text="Gangs" />
      {installed ? (
        <Gangs />
      ) : (
        <EmptyState title="There are no PodGroups in this cluster.">
          Install the definition of PodGroup from <code>manifests/gangs</code>, and give the pods of a job one gang. See docs/gangs.md.
        </EmptyState>
      )}
    </>
  );
}

function Gangs() {
  const version = useLive((l) => l.gangs);
  const [params] = useParams();
  const [, navigate] = useLocation();
  const { value, error, retry } = useFetched<{ items: GangSum[] }>("gangs", version);
  const text = (params.get("q") ?? "").toLowerCase();
  const rows = useMemo(
    () => (value?.items ?? []).filter((g) => `${fullName(g)} ${g.domains.join(" ")}`.toLowerCase().includes(text)),
    [value, text],
  );
  const open = useCallback((g: GangSum) => navigate(gangPath(fullName(g))), [navigate]);

  if (error) return <ErrorState error={error} retry={retry} />;
  if (!value) return <Loading />;
  if (rows.length === 0)
    return (
      <EmptyState title={text ? `No gang matches “${text}”.` : "No gang is there."}>
        {!text && "A gang is pods that are placed together or not at all: create a PodGroup, and name it on the pods. See docs/gangs.md."}
      </EmptyState>
    );
  return <VirtualGrid label="Gangs" columns={columns} rows={rows} rowKey={fullName} onOpen={open} />;
}

const columns: Column<GangSum>[] = [
  { key: "gang", title: "Gang", width: "minmax(160px, 1.5fr)", narrow: "minmax(110px, 1.5fr)", cell: fullName },
  { key: "state", title: "State", width: "110px", narrow: "84px", cell: (g) => g.state },
  {
    key: "placed",
    title: "Placed",
    width: "minmax(120px, 1fr)",
    cell: (g) => (
      <Bar
        total={Math.max(g.have, g.minimum)}
        parts={[
          { name: "placed", value: g.placed, kind: "used" },
          { name: "waiting", value: g.have - g.placed, kind: "reserved" },
        ]}
        marks={[{ name: "minimum", at: g.minimum }]}
      />
    ),
  },
  { key: "members", title: "Members", width: "84px", narrow: "70px", right: true, cell: (g) => `${g.placed}/${g.have}` },
  { key: "minimum", title: "Minimum", width: "84px", right: true, cell: (g) => g.minimum },
  { key: "level", title: "Within one", width: "100px", cell: (g) => g.level || "–" },
  {
    key: "domains",
    title: "Domains",
    width: "minmax(100px, 1fr)",
    cell: (g) => <span title={g.domains.join(", ")}>{g.domains.join(", ")}</span>,
  },
  { key: "crossings", title: "Crossings", width: "minmax(90px, 1fr)", cell: (g) => (g.placed > 0 ? crossingsText(g.crossings) : "–") },
  {
    key: "estimate",
    title: "Estimate",
    width: "120px",
    right: true,
    cell: (g) => (g.estimateMillis > 0 ? `${millis(g.estimateMillis)}${g.exact ? "" : ", not exact"}` : "–"),
  },
];
