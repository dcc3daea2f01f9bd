// SPDX-License-Identifier: Apache-2.0
import { Drawer, Tabs } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useCallback, useMemo } from "react";

import type { WorkState, WorkSum, Workloads } from "../api";
import { fullName } from "../api";
import type { Column } from "../components/VirtualGrid";
import { VirtualGrid } from "../components/VirtualGrid";
import { GangLink, NodeLink } from "../components/links";
import { PageTitle } from "../components/PageTitle";
import { PodPanel } from "../components/PodPanel";
import { Quality } from "../components/Quality";
import { EmptyState } from "../components/states";
import { WorkStateBadge } from "../components/WorkStateBadge";
import { utc } from "../format";
import { useLive } from "../live";
import { useParams } from "../url";
import { listOf } from "../worklist";

const tabs: (WorkState | "now")[] = ["now", "pending", "running", "failing", "ended"];

/** The pods that ask for GPUs: `state` is the tab, `q` a search, `pod` the one that is explained. */
export function WorkloadsPage() {
  const workloads = useLive((l) => l.workloads);
  return workloads && <Lists workloads={workloads} />;
}

function Lists({ workloads }: { workloads: Workloads }) {
  const [params, setParams] = useParams();
  const text = params.get("q") ?? ""; // not deferred: Enter opens the first row that matches
  const pod = params.get("pod") ?? "";
  const tab = tabs.find((t) => t === params.get("state")) ?? "now";
  const { counts } = workloads;
  const number = (t: WorkState | "now") => (t === "now" ? counts.pending + counts.running + counts.failing : counts[t]);

  const open = useCallback((w: WorkSum) => setParams({ pod: fullName(w) }), [setParams]);
  const close = useCallback(() => setParams({ pod: "" }), [setParams]);

  return (
    <>
      <PageTitle text="Workloads" />
      <Tabs value={tab} onChange={(t) => setParams({ state: t === "now" || !t ? "" : t })}>
        <Tabs.List aria-label="State">
          {tabs.map((t) => (
            <Tabs.Tab key={t} value={t}>
              {t} <span className="count">{number(t)}</span>
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={tab} className="lists">
          {tab === "now" ? (
            <div className="beside">
              <List state="pending" title="Pending, longest waiting first" {...{ workloads, text, pod, open }} short />
              <List state="running" title="Running and failing" {...{ workloads, text, pod, open }} short />
            </div>
          ) : (
            <List state={tab} title={tab} {...{ workloads, text, pod, open }} />
          )}
        </Tabs.Panel>
      </Tabs>
      <PodDrawer pod={pod} close={close} />
    </>
  );
}

interface ListProps {
  workloads: Workloads;
  state: WorkState;
  title: string;
  text: string;
  pod: string;
  short?: boolean;
  open: (w: WorkSum) => void;
}

function List({ workloads, state, title, text, pod, short = false, open }: ListProps) {
  const states = useMemo<WorkState[]>(() => (short && state === "running" ? ["failing", "running"] : [state]), [short, state]);
  const rows = useMemo(() => listOf(workloads.items, states, text), [workloads.items, states, text]);
  return (
    <section aria-label={title} className="list">
      <h2 className="list-title">
        {title} <span className="dim">{rows.length}</span>
      </h2>
      {rows.length === 0 ? (
        <Nothing state={state} text={text} />
      ) : (
        <VirtualGrid
          label={title}
          columns={short ? shortColumns[state] : columns[state]}
          rows={rows}
          rowKey={fullName}
          onOpen={open}
          selected={pod}
        />
      )}
    </section>
  );
}

function Nothing({ state, text }: { state: WorkState; text: string }) {
  if (text)
    return (
      <EmptyState title={`No ${state} pod matches “${text}”.`}>
        The search looks at namespace, name, node, gang, tenant and queue.
      </EmptyState>
    );
  if (state === "pending") return <EmptyState title="Nothing waits.">Each pod that asks for GPUs has a node.</EmptyState>;
  return (
    <EmptyState title={`No pod is ${state}.`}>
      {state === "running" && (
        <>
          Pods that ask for GPUs are shown here. Give one <code>schedulerName: topology-aware-scheduler</code> to have its GPUs chosen.
        </>
      )}
    </EmptyState>
  );
}

const pod: Column<WorkSum> = {
  key: "pod",
  title: "Pod",
  width: "minmax(150px, 1.5fr)",
  narrow: "minmax(120px, 2fr)",
  cell: (w) => <span title={fullName(w)}>{fullName(w)}</span>,
};
const gpus: Column<WorkSum> = { key: "gpus", title: "GPUs", width: "64px", narrow: "64px", right: true, cell: (w) => w.gpus };
const reason: Column<WorkSum> = {
  key: "reason",
  title: "Reason",
  width: "minmax(120px, 2fr)",
  narrow: "minmax(90px, 1.5fr)",
  cell: (w) => <span title={w.reason}>{w.reason}</span>,
};
const node: Column<WorkSum> = {
  key: "node",
  title: "Node",
  width: "minmax(90px, 1fr)",
  narrow: "minmax(80px, 1fr)",
  cell: (w) => w.node && <NodeLink name={w.node} inGrid />,
};
const quality: Column<WorkSum> = { key: "quality", title: "Quality", width: "110px", narrow: "64px", cell: (w) => <Quality {...w} /> };
const state: Column<WorkSum> = { key: "state", title: "State", width: "84px", cell: (w) => <WorkStateBadge state={w.state} /> };
const gang: Column<WorkSum> = {
  key: "gang",
  title: "Gang",
  width: "minmax(90px, 1fr)",
  cell: (w) => w.gang && <GangLink name={w.gang} inGrid />,
};
const tenant: Column<WorkSum> = {
  key: "tenant",
  title: "Tenant, queue",
  width: "minmax(90px, 1fr)",
  cell: (w) => [w.tenant, w.queue].filter(Boolean).join(", "),
};
const link: Column<WorkSum> = { key: "link", title: "Link", width: "64px", cell: (w) => w.linkClass };
const indices: Column<WorkSum> = { key: "indices", title: "Which", width: "minmax(80px, 1fr)", cell: (w) => w.gpuIndices.join(",") };
const since: Column<WorkSum> = { key: "since", title: "Since (UTC)", width: "168px", cell: (w) => utc(w.since) };

const placed = [pod, state, gpus, indices, node, link, quality, gang, tenant, since];
const columns: Record<WorkState, Column<WorkSum>[]> = {
  pending: [pod, gpus, reason, gang, tenant, since],
  running: placed,
  failing: [pod, state, gpus, node, reason, since],
  ended: placed,
};
const shortPlaced = [pod, state, gpus, node, quality];
const shortColumns: Record<WorkState, Column<WorkSum>[]> = {
  pending: [pod, gpus, reason],
  running: shortPlaced,
  failing: shortPlaced,
  ended: shortPlaced,
};

function PodDrawer({ pod, close }: { pod: string; close: () => void }) {
  const narrow = useMediaQuery("(max-width: 700px)");
  const wide = useMediaQuery("(min-width: 1200px)"); // the list stays readable beside it
  return (
    <Drawer.Root
      opened={pod !== ""}
      onClose={close}
      position="right"
      size={narrow ? "100%" : wide ? "50%" : 640}
      transitionProps={{ duration: 0 }}
    >
      <Drawer.Overlay backgroundOpacity={wide ? 0 : 0.5} />
      <Drawer.Content>
        <div className="drawer-head">
          <Drawer.Title>{pod}</Drawer.Title>
          <Drawer.CloseButton aria-label="Close" />
        </div>
        <Drawer.Body>{pod && <PodPanel key={pod} name={pod} />}</Drawer.Body>
      </Drawer.Content>
    </Drawer.Root>
  );
}
