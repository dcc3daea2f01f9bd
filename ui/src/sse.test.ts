// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";

import { readEvents, takeEvents } from "./sse";

describe("events of a text", () => {
  const table: Record<string, { text: string; want: ReturnType<typeof takeEvents> }> = {
    "none yet": { text: "event: no", want: { events: [], rest: "event: no" } },
    "one, and the start of another": {
      text: "event: nodes\nid: 7\ndata: {}\n\nevent: w",
      want: { events: [{ event: "nodes", id: "7", data: "{}" }], rest: "event: w" },
    },
    "a comment is none": { text: ": alive\n\n", want: { events: [], rest: "" } },
    "lines of data are joined": { text: "data: a\ndata: b\n\n", want: { events: [{ event: "message", id: "", data: "a\nb" }], rest: "" } },
    "lines may end as in HTTP": { text: "event: x\r\ndata: 1\r\n\r\n", want: { events: [{ event: "x", id: "", data: "1" }], rest: "" } },
    "a colon in the data stays": { text: 'data: {"a":1}\n\n', want: { events: [{ event: "message", id: "", data: '{"a":1}' }], rest: "" } },
  };
  it.each(Object.entries(table))("%s", (_, { text, want }) => {
    expect(takeEvents(text)).toEqual(want);
  });
});

it("a stream cut anywhere, within characters too, gives the same events", async () => {
  const bytes = new TextEncoder().encode(': hello\n\nevent: a\nid: 1\ndata: "µ→"\n\nevent: b\nid: 2\ndata: 2\n\n');
  for (let size = 1; size <= bytes.length; size++) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
        controller.close();
      },
    });
    const got: string[] = [];
    await readEvents(
      body,
      (e) => got.push(`${e.event} ${e.id} ${e.data}`),
      () => undefined,
    );
    expect(got, `in pieces of ${size}`).toEqual(['a 1 "µ→"', "b 2 2"]);
  }
});
