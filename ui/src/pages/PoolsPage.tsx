// SPDX-License-Identifier: Apache-2.0
import { Anchor, Table, Tabs, Text, Title } from "@mantine/core";

import type { Bill, Bills as BillList, Pool, Share, Usage as UsageList } from "../api";
import { podOf } from "../api";
import { Bar, BarLegend } from "../components/Bar";
import { DataTable } from "../components/DataTable";
import { NodeLink, PodLink } from "../components/links";
import { PageTitle } from "../components/PageTitle";
import { EmptyState, ErrorState, Loading, Notice } from "../components/states";
import { count, utc } from "../format";
import { useLive } from "../live";
import { useParams } from "../url";
import { useFetched } from "../useFetched";
import { PoolHours } from "./PoolHours";

const tabs = ["shares", "hours", "usage", "bills"];

/** What a tab is called where that is not its name in the URL. */
const titles: Record<string, string> = { hours: "GPU hours" };

/** Pools of GPUs: `tab` shares, hours, usage or bills, `q` a search, `tenant` one, `time` that of the hours. */
export function PoolsPage() {
  const [params, setParams] = useParams();
  const installed = useLive((l) => l.cluster?.features.pools ?? false);
  const tab = tabs.find((t) => t === params.get("tab")) ?? "shares";
  const text = (params.get("q") ?? "").toLowerCase();
  if (!installed)
    return (
      <>
        <PageTitle text="Pools" />
        <EmptyState title="Pools are not installed in this cluster.">
          Install Kueue and nvtopo-pool-controller, and create a ComputePool. See docs/pools.md.
        </EmptyState>
      </>
    );
  const tenant = params.get("tenant") ?? "";
  return (
    <>
      <PageTitle text="Pools" />
      <Tabs value={tab} onChange={(t) => setParams({ tab: t === "shares" || !t ? "" : t, tenant: "" })}>
        <Tabs.List aria-label="What of the pools">
          {tabs.map((t) => (
            <Tabs.Tab key={t} value={t}>
              {titles[t] ?? t}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={tab} pt="sm">
          {tab === "shares" && <Shares text={text} />}
          {tab === "hours" && <PoolHours time={params.get("time") ?? ""} tenant={tenant} text={text} setParams={setParams} />}
          {tab === "usage" && <Usage text={text} />}
          {tab === "bills" && <Bills text={text} tenant={tenant} open={(t) => setParams({ tenant: t })} />}
        </Tabs.Panel>
      </Tabs>
    </>
  );
}

/** What is shown while a list is not there; null once it is. */
function missing(f: { value: unknown; error: Parameters<typeof ErrorState>[0]["error"] | null; retry: () => void }) {
  if (f.error) return <ErrorState error={f.error} retry={f.retry} />;
  return f.value ? null : <Loading />;
}

function Shares({ text }: { text: string }) {
  const answer = useFetched<{ items: Pool[] }>(
    "pools",
    useLive((l) => l.pools),
  );
  const pools = answer.value?.items ?? [];
  if (answer.value && pools.length === 0)
    return (
      <EmptyState title="There is no pool yet.">
        Create a ComputePool: which nodes it has, and what each tenant is guaranteed. See docs/pools.md.
      </EmptyState>
    );
  return (
    missing(answer) ?? (
      <>
        <BarLegend
          kinds={[
            ["used", "allocated or used"],
            ["borrowed", "borrowed"],
            ["reserved", "reserved"],
            ["bad", "failed or in maintenance"],
          ]}
          mark="guaranteed"
        />
        {pools.map((p) => (
          <PoolSection key={p.metadata.name} pool={p} text={text} />
        ))}
      </>
    )
  );
}

function PoolSection({ pool, text }: { pool: Pool; text: string }) {
  const { status: s, metadata } = pool;
  const shares = (s.shares ?? []).filter((x) => `${metadata.name} ${x.tenant ?? ""} ${x.queue ?? ""}`.toLowerCase().includes(text));
  const alarms = (s.conditions ?? []).filter((c) =>
    c.type === "Ready" ? c.status !== "True" : c.status === "True" && c.type !== "VirtualizationApplied",
  );
  const states = s.states;
  return (
    <section aria-label={`Pool ${metadata.name}`} className="pool">
      <Title order={2} size="h5">
        {metadata.name} <span className="dim">{[pool.spec.poolType, s.phase ?? "Pending"].filter(Boolean).join(", ")}</span>
      </Title>
      <Bar
        total={Math.max(s.totalCapacity, 1)}
        parts={[
          { name: "allocated", value: s.allocatedCapacity, kind: "used" },
          { name: "reserved", value: s.reservedCapacity, kind: "reserved" },
          { name: "failed or in maintenance", value: (states?.failed ?? 0) + (states?.maintenance ?? 0), kind: "bad" },
        ]}
      />
      <Text size="sm">
        {s.allocatedCapacity} of {s.totalCapacity} GPUs allocated, {s.availableCapacity} available, {s.reservedCapacity} reserved
        {states && `, ${states.failed} failed, ${states.maintenance} in maintenance`}; {s.readyNodes} of {count(s.nodes, "node")} ready
      </Text>
      {alarms.map((c) => (
        <Notice key={c.type} title={`${c.type}: ${c.reason ?? c.status}`}>
          {c.message}
        </Notice>
      ))}
      <DataTable
        label={`Shares of ${metadata.name}`}
        head={["Tenant", "Queue", "Share", "Used", "Guaranteed", "Limit", "Borrowed", "Pending"]}
      >
        {shares.map((x) => (
          <ShareRow key={`${x.tenant ?? ""}/${x.queue ?? ""}`} share={x} />
        ))}
      </DataTable>
    </section>
  );
}

function ShareRow({ share: s }: { share: Share }) {
  return (
    <Table.Tr>
      <Table.Th scope="row">{s.tenant ?? "all"}</Table.Th>
      <Table.Td>{s.queue ?? "all"}</Table.Td>
      <Table.Td className="share">
        <Bar
          total={Math.max(s.limit, s.used, s.guaranteed, 1)}
          parts={[
            { name: "used within the guarantee", value: s.used - s.borrowed, kind: "used" },
            { name: "borrowed", value: s.borrowed, kind: "borrowed" },
          ]}
          marks={[{ name: "guaranteed", at: s.guaranteed }]}
        />
      </Table.Td>
      <Table.Td>{s.used}</Table.Td>
      <Table.Td>{s.guaranteed}</Table.Td>
      <Table.Td>{s.limit}</Table.Td>
      <Table.Td>{s.borrowed}</Table.Td>
      <Table.Td>{s.pending}</Table.Td>
    </Table.Tr>
  );
}

function Usage({ text }: { text: string }) {
  const answer = useFetched<UsageList>(
    "pools/usage",
    useLive((l) => l.pools),
  );
  const records = (answer.value?.items ?? []).filter((r) => `${r.spec.tenant} ${r.spec.pool} ${podOf(r)}`.toLowerCase().includes(text));
  if (answer.value && records.length === 0)
    return (
      <EmptyState title="No session this month.">
        A session is a pod’s hold of devices, from its binding to the end of its last container.
      </EmptyState>
    );
  const more = answer.value?.more ?? 0;
  return (
    missing(answer) ?? (
      <>
        {more > 0 && <Notice title={`${count(more, "older session")} not shown`}>nvtopo pool usage TENANT prints all.</Notice>}
        <DataTable
          label="Sessions of this month"
          head={["Tenant", "Pod", "Pool", "Node", "Resource", "Quantity", "Start", "End", "Cost"]}
          tall
        >
          {records.map((r) => (
            <Table.Tr key={r.metadata.name}>
              <Table.Td>{r.spec.tenant}</Table.Td>
              <Table.Td>
                <PodLink name={podOf(r)} />
              </Table.Td>
              <Table.Td>{r.spec.pool}</Table.Td>
              <Table.Td>
                <NodeLink name={r.spec.node} />
              </Table.Td>
              <Table.Td>{[r.spec.resource, r.spec.model].filter(Boolean).join(", ")}</Table.Td>
              <Table.Td>{r.spec.quantity}</Table.Td>
              <Table.Td>{utc(r.spec.start)}</Table.Td>
              <Table.Td>{r.status?.end ? `${r.status.estimated ? "~" : ""}${utc(r.status.end)}` : "goes on"}</Table.Td>
              <Table.Td>{r.status?.cost ?? "–"}</Table.Td>
            </Table.Tr>
          ))}
        </DataTable>
      </>
    )
  );
}

/** The amounts of all tenants, and the bill of the one that is open. */
function Bills({ text, tenant, open }: { text: string; tenant: string; open: (tenant: string) => void }) {
  const answer = useFetched<BillList>(
    "pools/bills",
    useLive((l) => l.pools),
  );
  const bills = (answer.value?.items ?? []).filter((b) => b.tenant.toLowerCase().includes(text));
  if (answer.value && bills.length === 0)
    return (
      <EmptyState title="No tenant has an account.">Create a PriceBook, and a TenantAccount for each tenant. See docs/pools.md.</EmptyState>
    );
  return (
    missing(answer) ?? (
      <>
        {answer.value?.problems.map((p) => (
          <Notice key={p} title={p} />
        ))}
        {tenant && <TenantBill tenant={tenant} />}
        <DataTable label="Tenants" head={["Tenant", "Billed", "Balance", "Accrued", "Currency", "As of"]} tall>
          {bills.map((b) => (
            <Table.Tr key={b.tenant}>
              <Table.Th scope="row">
                <Anchor component="button" type="button" size="sm" underline="always" onClick={() => open(b.tenant)}>
                  {b.tenant}
                </Anchor>
              </Table.Th>
              <Table.Td>{b.asOf ? b.billed : "–"}</Table.Td>
              <Table.Td>{b.asOf ? b.balance : "–"}</Table.Td>
              <Table.Td>{b.asOf ? b.accrued : "–"}</Table.Td>
              <Table.Td>{b.currency}</Table.Td>
              <Table.Td>{b.asOf ? utc(b.asOf) : "not billed yet"}</Table.Td>
            </Table.Tr>
          ))}
        </DataTable>
      </>
    )
  );
}

function TenantBill({ tenant }: { tenant: string }) {
  const answer = useFetched<BillList>(
    `pools/bills?tenant=${encodeURIComponent(tenant)}`,
    useLive((l) => l.pools),
  );
  return (
    missing(answer) ?? (
      <div className="bills">
        {answer.value?.items.map((b) => (
          <BillCard key={b.tenant} bill={b} />
        ))}
      </div>
    )
  );
}

function BillCard({ bill: b }: { bill: Bill }) {
  return (
    <section className="card" aria-label={`Bill of ${b.tenant}`}>
      <Title order={2} size="h5">
        {b.tenant}
      </Title>
      <dl className="facts">
        {[
          ["Billed", b.billed],
          ["Balance", b.balance],
          ["Accrued, if all ended now", b.accrued],
        ].map(([name, amount]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {amount} {b.currency}
            </dd>
          </div>
        ))}
      </dl>
      <DataTable label={`Lines of the bill of ${b.tenant}`} head={["Resource", "Model", "Price", "Sessions", "Cost", "Open", "Accrued"]}>
        {b.lines.map((l) => (
          <Table.Tr key={`${l.resource} ${l.model ?? ""} ${l.noPrice ? "" : l.unitPrice}`}>
            <Table.Td>{l.resource}</Table.Td>
            <Table.Td>{l.model ?? "–"}</Table.Td>
            <Table.Td>{l.noPrice ? "–" : l.unitPrice}</Table.Td>
            <Table.Td>{l.sessions}</Table.Td>
            <Table.Td>{l.noPrice ? "no price" : l.cost}</Table.Td>
            <Table.Td>{l.open}</Table.Td>
            <Table.Td>{l.accrued}</Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
      {(b.wrong ?? []).map((w) => (
        <Text key={w} size="sm">
          Not billed: {w}
        </Text>
      ))}
      <Text size="xs" className="dim">
        {b.asOf ? `as of ${utc(b.asOf)}` : "not billed yet"}
      </Text>
    </section>
  );
}
