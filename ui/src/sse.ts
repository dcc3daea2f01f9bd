// SPDX-License-Identifier: Apache-2.0

// Server-sent events read with fetch, since EventSource cannot send a token.

export interface ServerEvent {
  event: string;
  id: string;
  data: string;
}

/** The whole events at the start of a text, and what is left of it. Comments are left out. */
export function takeEvents(text: string): { events: ServerEvent[]; rest: string } {
  const blocks = text.replaceAll("\r\n", "\n").split("\n\n");
  const rest = blocks.pop() ?? "";
  const events: ServerEvent[] = [];
  for (const block of blocks) {
    const event = eventOf(block);
    if (event.data !== "") events.push(event);
  }
  return { events, rest };
}

function eventOf(block: string): ServerEvent {
  const event: ServerEvent = { event: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const field = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") event.data += event.data ? `\n${value}` : value;
    else if (field === "event" || field === "id") event[field] = value;
  }
  return event;
}

/**
 * Reads a stream until it ends, and takes one event after the other. Calls alive whenever something
 * came, a comment too.
 */
export async function readEvents(body: ReadableStream<Uint8Array>, onEvent: (e: ServerEvent) => unknown, alive: () => void): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const taken = takeEvents(text + value);
    text = taken.rest;
    for (const e of taken.events) await onEvent(e);
  }
}
