// SPDX-License-Identifier: Apache-2.0
import { Text, Timeline } from "@mantine/core";

import type { History } from "../api";
import { fullName, objectPath } from "../api";
import { PodLink } from "../components/links";
import { PageTitle } from "../components/PageTitle";
import { EmptyState, ErrorState, Loading, Notice } from "../components/states";
import { utc } from "../format";
import { useLive } from "../live";
import { useFetched } from "../useFetched";

const sources = {
  event: { sign: "E", word: "event" },
  condition: { sign: "C", word: "condition of the pod" },
  decision: { sign: "D", word: "record of the decision" },
  record: { sign: "K", word: "kubelet’s record" },
  pod: { sign: "P", word: "pod" },
};

/** What became of a pod, oldest first. */
export function HistoryPage({ name }: { name: string }) {
  const work = useLive((l) => l.workloads?.items.find((w) => fullName(w) === name));
  const { value, error, retry } = useFetched<History>(objectPath("history", name), work);
  return (
    <>
      <PageTitle text={`History of ${name}`}>
        <PodLink name={name} />
      </PageTitle>
      {error && <ErrorState error={error} retry={retry} />}
      {value?.problems.map((p) => (
        <Notice key={p} title={p} />
      ))}
      {value ? <Entries history={value} /> : !error && <Loading />}
    </>
  );
}

function Entries({ history }: { history: History }) {
  if (history.entries.length === 0)
    return (
      <EmptyState title="Nothing is known of this pod.">
        Events are kept for an hour by most clusters; a pod that is gone has none of its own.
      </EmptyState>
    );
  return (
    <Timeline bulletSize={26} lineWidth={2} active={history.entries.length}>
      {history.entries.map((e, i) => (
        <Timeline.Item
          key={`${e.at} ${i}`}
          bullet={
            <span className="bullet" aria-hidden="true">
              {sources[e.source].sign}
            </span>
          }
          title={
            <>
              {e.reason}{" "}
              <span className="dim">
                {sources[e.source].word}
                {(e.count ?? 1) > 1 && `, ${e.count} times`}
              </span>
            </>
          }
        >
          <Text size="sm" className="dim">
            <time dateTime={e.at}>{utc(e.at)}</time>
          </Text>
          <Text size="sm">{e.text}</Text>
          {e.data && Object.keys(e.data).length > 0 && (
            <details>
              <summary>data</summary>
              <pre tabIndex={0} role="region" aria-label={`data of ${e.reason}`}>
                {JSON.stringify(e.data, null, 2)}
              </pre>
            </details>
          )}
        </Timeline.Item>
      ))}
    </Timeline>
  );
}
