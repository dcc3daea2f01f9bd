// SPDX-License-Identifier: Apache-2.0
import { Anchor, Group, NativeSelect, Table, Text, TextInput, Title } from "@mantine/core";
import type { MouseEvent } from "react";
import { useState } from "react";

import type { HoursOf, PoolHours as Hours } from "../api";
import { APIError, hasToken, request } from "../api";
import { DataTable } from "../components/DataTable";
import { ErrorState, Loading, Notice } from "../components/states";
import { utc } from "../format";
import { csvPath, daysOfTime, hoursPath, hoursText, recorded, shareText, timeOfDays, timesFrom } from "../hours";
import { useLive } from "../live";
import type { SetParams } from "../url";
import { useFetched } from "../useFetched";

interface Props {
  time: string; // as hoursPath takes it
  tenant: string;
  text: string; // that names have in them
  setParams: SetParams;
}

/** GPU hours of a time by tenant, queue and model; a tenant opens its own. */
export function PoolHours({ time, tenant, text, setParams }: Props) {
  const answer = useFetched<Hours>(
    hoursPath(time, tenant),
    useLive((l) => l.pools),
  );
  const h = answer.value;
  return (
    <>
      <TimeChoice key={time} time={time} choose={(t) => setParams({ time: t })} />
      {answer.error && <ErrorState error={answer.error} retry={answer.retry} />}
      {!answer.error && !h && <Loading />}
      {h && (
        <>
          <Text size="sm">
            {hoursText(h.hours)} GPU hours{h.tenant && ` of ${h.tenant}`} from {utc(h.from)} until {utc(h.until)}.{" "}
            <Download path={csvPath(time, tenant)} />{" "}
            {tenant && (
              <Anchor component="button" type="button" size="sm" underline="always" onClick={() => setParams({ tenant: "" })}>
                All tenants
              </Anchor>
            )}
          </Text>
          {h.notes.map((n) => (
            <Notice key={n} title={n} />
          ))}
          <HoursTable title="By tenant" name="Tenant" rows={h.byTenant} hours={h} text={text} open={(t) => setParams({ tenant: t })} />
          <HoursTable title="By queue" name="Queue" rows={h.byQueue} hours={h} text={text} />
          <HoursTable title="By GPU model" name="Model" rows={h.byModel} hours={h} text={text} />
        </>
      )}
    </>
  );
}

/** A time of the list, or days from a first to a last one. */
function TimeChoice({ time, choose }: { time: string; choose: (time: string) => void }) {
  const [days, setDays] = useState(daysOfTime(time));
  const times = timesFrom(new Date());
  if (!times.some((t) => t.value === time)) times.push({ value: time, label: days.first ? `${days.first} to ${days.last}` : time });
  const change = (next: { first: string; last: string }) => {
    setDays(next);
    const chosen = timeOfDays(next.first, next.last);
    if (chosen) choose(chosen);
  };
  return (
    <Group gap="sm" mb="xs">
      <NativeSelect size="xs" aria-label="Time" data={times} value={time} onChange={(e) => choose(e.currentTarget.value)} />
      <TextInput
        size="xs"
        type="date"
        aria-label="First day"
        value={days.first}
        onChange={(e) => change({ ...days, first: e.currentTarget.value })}
      />
      <TextInput
        size="xs"
        type="date"
        aria-label="Last day"
        value={days.last}
        onChange={(e) => change({ ...days, last: e.currentTarget.value })}
      />
    </Group>
  );
}

/** A link to the same as CSV. A link has no token: with one, the file is asked for and then kept. */
function Download({ path }: { path: string }) {
  const [error, setError] = useState<APIError | null>(null);
  const onClick = (e: MouseEvent) => {
    if (!hasToken()) return;
    e.preventDefault();
    request(path)
      .then(async (response) => {
        const url = URL.createObjectURL(await response.blob());
        const link = document.createElement("a");
        link.href = url;
        link.download = "gpu-hours.csv";
        link.click();
        URL.revokeObjectURL(url);
        setError(null);
      })
      .catch((err: unknown) => setError(err instanceof APIError ? err : new APIError(0, String(err), "")));
  };
  return (
    <>
      <Anchor href={`/api/v1/${path}`} download size="sm" underline="always" onClick={onClick}>
        Download as CSV
      </Anchor>
      {error && <span role="alert"> {error.message}</span>}
    </>
  );
}

interface TableProps {
  title: string;
  name: string;
  rows: HoursOf[];
  hours: Hours;
  text: string;
  open?: (name: string) => void;
}

function HoursTable({ title, name, rows, hours, text, open }: TableProps) {
  const shown = rows.filter((r) => recorded(r.name).toLowerCase().includes(text));
  return (
    <section aria-label={title}>
      <Title order={2} size="h5" mt="sm">
        {title}
      </Title>
      <DataTable label={`GPU hours ${title.toLowerCase()}`} head={[name, "GPU hours", "Share", "From invoices", "Sessions"]}>
        {shown.map((r) => (
          <Table.Tr key={r.name}>
            <Table.Th scope="row">
              {open ? (
                <Anchor component="button" type="button" size="sm" underline="always" onClick={() => open(r.name)}>
                  {r.name}
                </Anchor>
              ) : (
                recorded(r.name)
              )}
            </Table.Th>
            <Table.Td>{hoursText(r.hours)}</Table.Td>
            <Table.Td>{shareText(r.hours, hours.hours)}</Table.Td>
            <Table.Td>{hoursText(r.invoiced)}</Table.Td>
            <Table.Td>{r.sessions}</Table.Td>
          </Table.Tr>
        ))}
        {shown.length === rows.length && (
          <Table.Tr>
            <Table.Th scope="row">total</Table.Th>
            <Table.Td>{hoursText(hours.hours)}</Table.Td>
            <Table.Td>{shareText(hours.hours, hours.hours)}</Table.Td>
            <Table.Td>{hoursText(String(rows.reduce((sum, r) => sum + Number(r.invoiced), 0)))}</Table.Td>
            <Table.Td>{hours.sessions}</Table.Td>
          </Table.Tr>
        )}
      </DataTable>
    </section>
  );
}
