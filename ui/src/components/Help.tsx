// SPDX-License-Identifier: Apache-2.0
import { Kbd, Modal, Table } from "@mantine/core";

const keys: [string[], string][] = [
  [["/"], "search by name"],
  [["g", "f"], "fabric map"],
  [["g", "w"], "workloads"],
  [["g", "g"], "gangs"],
  [["g", "p"], "pools"],
  [["j", "k"], "down and up in a list or among the links of an explanation; the arrows, too"],
  [["Enter"], "open"],
  [["←", "→"], "fold and unfold in the tree"],
  [["Esc"], "close"],
  [["?"], "this help"],
];

export function Help({ opened, close }: { opened: boolean; close: () => void }) {
  return (
    <Modal opened={opened} onClose={close} title="Keys" closeButtonProps={{ "aria-label": "Close" }}>
      <Table>
        <Table.Tbody>
          {keys.map(([ks, what]) => (
            <Table.Tr key={what}>
              <Table.Th scope="row" w={120}>
                {ks.map((k) => (
                  <Kbd key={k} mr={4}>
                    {k}
                  </Kbd>
                ))}
              </Table.Th>
              <Table.Td>{what}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
