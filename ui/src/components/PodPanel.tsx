// SPDX-License-Identifier: Apache-2.0
import { Anchor, Group } from "@mantine/core";
import { useEffect, useRef } from "react";
import { Link } from "wouter";

import type { Explanation } from "../api";
import { fullName, objectPath } from "../api";
import { moveAmongLinks } from "../keyboard";
import { useLive } from "../live";
import { useFetched } from "../useFetched";
import { historyPath } from "../url";
import { ExplanationView } from "./ExplanationView";
import { GangLink, NodeLink } from "./links";
import { Quality } from "./Quality";
import { ErrorState, Loading } from "./states";
import { WorkStateBadge } from "./WorkStateBadge";

/** Why a pod waits, or is where it is. Has the focus when it is shown; j and k go from link to link. */
export function PodPanel({ name }: { name: string }) {
  const work = useLive((l) => l.workloads?.items.find((w) => fullName(w) === name));
  const { value, error, retry } = useFetched<Explanation>(objectPath("explain/pod", name), work);
  const panel = useRef<HTMLDivElement>(null);
  useEffect(() => panel.current?.focus(), []);
  return (
    // A pod that blocks another is opened in the same place, so the focus must come along.
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions
    <div ref={panel} tabIndex={-1} data-keys data-autofocus onKeyDown={moveAmongLinks} className="panel">
      <Group gap="sm" mb="xs">
        {work && <WorkStateBadge state={work.state} />}
        {work?.node && (
          <span>
            {work.gpus} GPUs on <NodeLink name={work.node} />
          </span>
        )}
        {work && work.quality >= 0 && <Quality {...work} />}
        {work?.gang && (
          <span>
            gang <GangLink name={work.gang} />
          </span>
        )}
        {work?.tenant && <span>tenant {work.tenant}</span>}
        {work?.queue && <span>queue {work.queue}</span>}
        <Anchor component={Link} href={historyPath(name)} size="sm" underline="always">
          its history
        </Anchor>
      </Group>
      {error && <ErrorState error={error} retry={retry} />}
      {value ? <ExplanationView explanation={value} /> : !error && <Loading />}
    </div>
  );
}
