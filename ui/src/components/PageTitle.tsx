// SPDX-License-Identifier: Apache-2.0
import { Title } from "@mantine/core";
import type { ReactNode } from "react";
import { useEffect } from "react";

/** The heading of a page, also the title of the browser's tab. */
export function PageTitle({ text, children }: { text: string; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${text} · nvtopo`;
  }, [text]);
  return (
    <div className="page-title">
      <Title order={1} size="h3">
        {text}
      </Title>
      {children}
    </div>
  );
}
