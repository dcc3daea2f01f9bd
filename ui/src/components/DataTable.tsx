// SPDX-License-Identifier: Apache-2.0
import { Table } from "@mantine/core";
import type { ReactNode } from "react";

interface Props {
  label: string;
  head: string[];
  tall?: boolean; // it scrolls by itself when it is long
  children: ReactNode; // Table.Tr
}

/** A table that scrolls sideways where it is too wide, also by the keyboard. */
export function DataTable({ label, head, tall = false, children }: Props) {
  return (
    <div className={tall ? "scroll tall" : "scroll"} tabIndex={0} role="region" aria-label={label}>
      <Table stickyHeader={tall}>
        <Table.Thead>
          <Table.Tr>
            {head.map((h) => (
              <Table.Th key={h}>{h}</Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </div>
  );
}
