// SPDX-License-Identifier: Apache-2.0
import type { WorkState } from "../api";

const signs: Record<WorkState, string> = { pending: "◔", running: "●", ended: "✓", failing: "!" };

/** The state of a pod in colour, sign and word. */
export function WorkStateBadge({ state }: { state: WorkState }) {
  return (
    <span className={`work work-${state}`}>
      <span aria-hidden="true">{signs[state]}</span> {state}
    </span>
  );
}
