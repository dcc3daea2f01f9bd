// SPDX-License-Identifier: Apache-2.0
import { Table } from "@mantine/core";
import { useMemo } from "react";

import type { NodeSum } from "../api";
import { Bar } from "../components/Bar";
import { DataTable } from "../components/DataTable";
import { modelsOf } from "./models";

/** Used and free GPUs by model, of the whole cluster. */
export function ModelsTable({ nodes, size }: { nodes: NodeSum[]; size: number }) {
  const models = useMemo(() => modelsOf(nodes), [nodes]);
  if (models.length === 0) return null;
  return (
    <DataTable label="GPUs by model" head={["Model", "Nodes", "GPUs", "Share used", "Used", "Free", "Whole nodes", `Slots of ${size}`]}>
      {models.map((m) => (
        <Table.Tr key={m.model}>
          <Table.Th scope="row">{m.model || "–"}</Table.Th>
          <Table.Td>{m.nodes}</Table.Td>
          <Table.Td>{m.gpus}</Table.Td>
          <Table.Td>
            <Bar
              total={m.gpus}
              parts={[
                { name: "used", value: m.used, kind: "used" },
                { name: "unhealthy, partitioned or degraded", value: m.bad, kind: "bad" },
              ]}
            />
          </Table.Td>
          <Table.Td>{m.used}</Table.Td>
          <Table.Td>{m.free}</Table.Td>
          <Table.Td>{m.whole}</Table.Td>
          <Table.Td>{m.slots[size] ?? 0}</Table.Td>
        </Table.Tr>
      ))}
    </DataTable>
  );
}
